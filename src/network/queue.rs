//! One request at a time for each attachment, in the order of arrival.
//!
//! A DEL that overtakes the ADD of its own container is how two pods came to share an address elsewhere
//! (Azure/azure-container-networking#4829): here it waits for its turn.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::cni::AttachmentKey;

/// The queues of all attachments that have a request under way.
#[derive(Debug, Default)]
pub struct KeyedQueue {
    keys: RefCell<HashMap<AttachmentKey, Arc<Mutex<()>>>>,
}

/// A request's turn at its attachment; the next one starts when it is dropped.
#[derive(Debug)]
pub struct Turn {
    queue: Rc<KeyedQueue>,
    key: AttachmentKey,
    guard: Option<OwnedMutexGuard<()>>,
}

impl KeyedQueue {
    /// Waits until every earlier request for `key` is done.
    pub async fn turn(self: &Rc<Self>, key: &AttachmentKey) -> Turn {
        let lock = Arc::clone(self.keys.borrow_mut().entry(key.clone()).or_default());
        // The entry must go with its last user even when this future is dropped while it waits.
        let mut turn = Turn { queue: Rc::clone(self), key: key.clone(), guard: None };
        turn.guard = Some(lock.lock_owned().await);
        turn
    }

    /// How many attachments have a request under way.
    pub fn len(&self) -> usize {
        self.keys.borrow().len()
    }

    /// Whether no request is under way.
    pub fn is_empty(&self) -> bool {
        self.keys.borrow().is_empty()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.guard = None;
        let mut keys = self.queue.keys.borrow_mut();
        // Waiters hold a clone of the lock each; the map's own is the only one left when nobody waits.
        if keys.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(container: &str) -> AttachmentKey {
        AttachmentKey {
            network: "n".parse().unwrap(),
            container_id: container.parse().unwrap(),
            ifname: "eth0".parse().unwrap(),
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn requests_for_one_attachment_run_in_the_order_of_arrival() {
        run(async {
            let queue = Rc::new(KeyedQueue::default());
            let order = Rc::new(RefCell::new(Vec::new()));
            let first = queue.turn(&key("a")).await;
            let tasks: Vec<_> = (0..5)
                .map(|number| {
                    let (queue, order) = (Rc::clone(&queue), Rc::clone(&order));
                    tokio::task::spawn_local(async move {
                        let _turn = queue.turn(&key("a")).await;
                        order.borrow_mut().push(number);
                        tokio::task::yield_now().await;
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            assert!(order.borrow().is_empty(), "nobody passes the first");
            drop(first);
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*order.borrow(), [0, 1, 2, 3, 4]);
            assert!(queue.is_empty(), "no lock is kept for an attachment nobody asks for");
        });
    }

    #[test]
    fn requests_for_different_attachments_do_not_wait_for_each_other() {
        run(async {
            let queue = Rc::new(KeyedQueue::default());
            let _a = queue.turn(&key("a")).await;
            let _b = queue.turn(&key("b")).await;
            assert_eq!(queue.len(), 2);
        });
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_no_lock_behind() {
        run(async {
            let queue = Rc::new(KeyedQueue::default());
            let first = queue.turn(&key("a")).await;
            let waiter = tokio::task::spawn_local({
                let queue = Rc::clone(&queue);
                async move { drop(queue.turn(&key("a")).await) }
            });
            tokio::task::yield_now().await;
            waiter.abort();
            let _ = waiter.await;
            drop(first);
            assert!(queue.is_empty());
        });
    }
}
