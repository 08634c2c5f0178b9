//! Somebody else in the middle of a placing.

use super::*;

const OURS: &[u8] = br#"{"io.hostcni.managed": "yes"}"#;
const FOREIGN: &[u8] = br#"{"type": "calico"}"#;

/// Somebody else renames his file over our older one between the look and the exchange.
#[test]
fn a_foreign_file_that_replaces_ours_in_the_middle_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("80-net.conf");
    let ledger = Ledger::new(&dir.path().join("state"));
    place(&path, OURS, &ledger).unwrap();
    let site = Site::open(&path, false).unwrap();
    let older = site.look(None, &ledger).unwrap().file.unwrap();
    let hidden = temporary::hidden_name(site.name);
    temporary::make(site.directory.as_fd(), &hidden, OURS).unwrap();
    std::fs::write(dir.path().join("his"), FOREIGN).unwrap();
    std::fs::rename(dir.path().join("his"), &path).unwrap();

    assert!(matches!(site.exchange(&hidden, older), Err(PlaceError::Foreign { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), FOREIGN);
}

/// Somebody else links his file in whenever the name is free, and looks whether it stays his.
#[test]
fn a_foreign_file_that_appears_in_the_middle_survives_every_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("80-net.conf");
    let ledger = Ledger::new(&dir.path().join("state"));
    let his = dir.path().join("his");
    std::fs::write(&his, FOREIGN).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300 {
                let _ = place(&path, OURS, &ledger);
                remove(&path, &ledger).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            if std::fs::hard_link(&his, &path).is_ok() {
                std::thread::yield_now();
                assert_eq!(std::fs::read(&path).unwrap(), FOREIGN);
                std::fs::remove_file(&path).unwrap();
            }
        }
    });
}
