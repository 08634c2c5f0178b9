//! Disks that are full, or fail. As root, in a mount namespace of the test's own.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::*;
use crate::attachment::names::key_digits;

/// Runs the test on a thread that has its own mounts, in an empty directory.
fn with_own_mounts(test: impl FnOnce(&Path) + Send) {
    let directory = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS).expect("this test needs root, for a mount namespace");
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            test(directory.path());
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn small_disk(at: &Path, size: &str) {
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some(size)).unwrap();
}

fn bind(what: &Path, over: &Path) {
    mount(Some(what), over, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
}

fn fill(directory: &Path) {
    let mut file = fs::File::create(directory.join("ballast")).unwrap();
    while std::io::Write::write_all(&mut file, &[b'x'; 4096]).is_ok() {}
}

#[test]
fn a_full_disk_is_an_error_that_leaves_the_old_record_and_no_rest() {
    with_own_mounts(|path| {
        small_disk(path, "size=64k");
        let dir = path.join("attachments");
        let store = Store::open(&dir).unwrap();
        store.put(&full("pod")).unwrap();
        fill(path);
        for container in ["pod", "other"] {
            let error = store.put(&Attachment { mtu: Some(1), ..full(container) }).unwrap_err().to_string();
            assert!(error.starts_with("cannot write ") && error.contains("No space left"), "{error}");
        }
        only(&dir);
        assert_eq!(store.load_all().unwrap().attachments, [full("pod")]);
        store.remove(&key("pod")).unwrap();
        assert_eq!(names(&dir), Vec::<String>::new());
    });
}

#[test]
fn a_full_disk_takes_what_has_become_of_known_attachments_and_new_ones_into_free_files() {
    with_own_mounts(|path| {
        small_disk(path, "size=128k");
        let slots = Slots::new(&path.join("delegated"));
        slots.put(&full("pod")).unwrap();
        slots.put(&full("old")).unwrap();
        slots.remove(&key("old")).unwrap();
        fill(path);
        let deleting = Attachment { state: State::Deleting, ..full("pod") };
        slots.amend(&deleting).unwrap();
        slots.put(&full("new")).unwrap();
        let before = names(&path.join("delegated"));
        let error = slots.put(&full("more")).unwrap_err().to_string();
        assert!(error.starts_with("cannot write a record to ") && error.contains("No space left"), "{error}");
        assert_eq!(names(&path.join("delegated")), before, "no rest");
        let loaded = Slots::new(&path.join("delegated")).load_all().unwrap();
        let mut loaded = loaded.attachments;
        loaded.sort_by_key(|it| it.key.clone());
        assert_eq!(loaded, [full("new"), deleting]);
    });
}

#[test]
fn a_del_that_finds_the_disk_full_says_so_and_loses_no_earlier_one() {
    with_own_mounts(|path| {
        small_disk(path, "size=64k");
        let spool = Spool::open(&path.join("spool"));
        spool.write(&del("pod", 7)).unwrap();
        fill(path);
        for (container, micros) in [("pod", 8), ("other", 8)] {
            let error = spool.write(&del(container, micros)).unwrap_err().to_string();
            assert!(error.starts_with("cannot write to ") && error.contains("No space left"), "{error}");
        }
        only(spool.dir());
        assert_eq!(spool.load_all().unwrap().dels, [del("pod", 7)]);
        fs::remove_file(path.join("ballast")).unwrap();
        spool.write(&del("other", 8)).unwrap();
        assert!(spool.remove(&key("pod"), at(7)) && spool.len() == 1);
    });
}

#[test]
fn a_disk_without_inodes_still_loads_what_can_be_read() {
    with_own_mounts(|path| {
        small_disk(path, "nr_inodes=4");
        let dir = path.join("attachments");
        let store = Store::open(&dir).unwrap();
        store.put(&full("pod")).unwrap();
        fs::write(dir.join("junk"), "").unwrap();
        assert!(store.put(&full("other")).is_err());
        let loaded = store.load_all().unwrap();
        assert_eq!(loaded.attachments, [full("pod")]);
        let why = &loaded.set_aside[0].1;
        assert!(
            why.contains("is not a file of hostcni's; and it cannot be moved away: No space left"),
            "{why}"
        );
    });
}

#[test]
fn a_file_that_cannot_be_read_or_moved_is_told_and_stops_nothing() {
    with_own_mounts(|path| {
        let (records, dels) = (path.join("attachments"), Spool::open(&path.join("spool")));
        let store = Store::open(&records).unwrap();
        store.put(&full("bad")).unwrap();
        let record = only(&records);
        store.put(&full("pod")).unwrap();
        dels.write(&del("bad", 7)).unwrap();
        let entry = only(dels.dir());
        dels.write(&del("pod", 7)).unwrap();
        // A regular file whose read fails with an I/O error, and a mount point, which no rename moves.
        bind(Path::new("/proc/self/mem"), &record);
        bind(Path::new("/proc/self/mem"), &entry);

        let loaded = store.load_all().unwrap();
        assert_eq!(loaded.attachments, [full("pod")]);
        let (path, why) = &loaded.set_aside[0];
        assert_eq!(path, &records.join(format!("{}.json", key_digits(&key("bad")))));
        assert!(why.starts_with("cannot be read: ") && why.contains("cannot be moved away"), "{why}");
        assert!(store.put(&full("bad")).is_err() && store.remove(&key("bad")).is_err());

        let loaded = dels.load_all().unwrap();
        assert_eq!((loaded.dels, loaded.set_aside.len()), (vec![del("pod", 7)], 1));
        assert!(!dels.remove(&key("bad"), at(7)), "it is still there");
    });
}

#[test]
fn a_read_only_disk_is_an_error_to_writes_and_none_to_loads() {
    with_own_mounts(|path| {
        let dir = path.join("spool");
        let spool = Spool::open(&dir);
        spool.write(&del("pod", 7)).unwrap();
        fs::write(dir.join("junk"), "").unwrap();
        bind(&dir, &dir);
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        mount(None::<&str>, &dir, None::<&str>, flags, None::<&str>).unwrap();
        assert!(spool.write(&del("other", 7)).unwrap_err().to_string().contains("Read-only"));
        let loaded = spool.load_all().unwrap();
        assert_eq!((loaded.dels, loaded.set_aside.len()), (vec![del("pod", 7)], 1));
        let store = Store::open(&dir).unwrap();
        assert!(store.load_all().unwrap().attachments.is_empty());
        assert!(store.put(&full("pod")).is_err());
    });
}
