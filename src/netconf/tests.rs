//! Placing and removing, seen from outside: by the files and by inotify, as runtimes see it.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::*;

const CONTENT: &[u8] = br#"{"io.hostcni.managed": "yes", "type": "hostcni", "version": 2}"#;
const OLDER: &[u8] = br#"{"io.hostcni.managed": "yes", "type": "hostcni", "version": 1}"#;
const FOREIGN: &[u8] = br#"{"type": "calico"}"#;

struct Node {
    root: tempfile::TempDir,
    ledger: Ledger,
    path: PathBuf,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("cni/net.d");
        std::fs::create_dir_all(&directory).unwrap();
        let ledger = Ledger::new(&root.path().join("state"));
        Self { path: directory.join("80-net.conf"), root, ledger }
    }

    fn directory(&self) -> &Path {
        self.path.parent().unwrap()
    }

    fn names(&self) -> Vec<OsString> {
        let mut names: Vec<_> =
            std::fs::read_dir(self.directory()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    fn place(&self) -> Result<Placed, PlaceError> {
        place(&self.path, CONTENT, &self.ledger)
    }

    fn ownership(&self) -> Ownership {
        inspect(&self.path, CONTENT, &self.ledger).unwrap()
    }
}

/// Everything that a runtime could have subscribed to, but for opening and reading, as "WHAT name".
struct Watcher(Inotify);

impl Watcher {
    fn new(directory: &Path) -> Self {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
        let all = AddWatchFlags::IN_ALL_EVENTS
            .difference(AddWatchFlags::IN_OPEN | AddWatchFlags::IN_ACCESS | AddWatchFlags::IN_CLOSE_NOWRITE);
        inotify.add_watch(directory, all).unwrap();
        Self(inotify)
    }

    fn events(&self) -> Vec<String> {
        let mut seen = Vec::new();
        while let Ok(events) = self.0.read_events() {
            seen.extend(events.into_iter().map(|event| {
                let what = event.mask.iter_names().map(|(name, _)| &name[3..]).collect::<Vec<_>>().join("|");
                format!("{what} {}", event.name.unwrap_or_default().to_string_lossy())
            }));
        }
        seen
    }
}

#[test]
fn placing_is_one_creation_of_a_hidden_name_and_one_rename() {
    let node = Node::new();
    let watcher = Watcher::new(node.directory());
    assert_eq!(node.place().unwrap(), Placed::New);
    let expected = ["CREATE .80-net.conf.hostcni", "MOVED_FROM .80-net.conf.hostcni", "MOVED_TO 80-net.conf"];
    assert_eq!(watcher.events(), expected);
    assert_eq!(std::fs::read(&node.path).unwrap(), CONTENT);
    assert_eq!(std::fs::metadata(&node.path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(node.names(), ["80-net.conf"]);
    assert_eq!(node.ledger.entries()[0].path, node.path);
    assert_eq!(node.ownership(), Ownership::Ours { as_rendered: true });
}

#[test]
fn placing_the_same_again_is_no_event_at_all() {
    let node = Node::new();
    node.place().unwrap();
    let watcher = Watcher::new(node.directory());
    assert_eq!(node.place().unwrap(), Placed::Already);
    assert_eq!(watcher.events(), [""; 0]);
}

#[test]
fn a_stale_one_of_ours_is_replaced_with_no_moment_without_a_conf() {
    let node = Node::new();
    place(&node.path, OLDER, &node.ledger).unwrap();
    assert_eq!(node.ownership(), Ownership::Ours { as_rendered: false });
    let watcher = Watcher::new(node.directory());
    assert_eq!(node.place().unwrap(), Placed::Replaced);
    let expected = [
        "CREATE .80-net.conf.hostcni",
        "MOVED_FROM .80-net.conf.hostcni",
        "MOVED_TO 80-net.conf",
        "MOVED_FROM 80-net.conf",
        "MOVED_TO .80-net.conf.hostcni",
        "DELETE .80-net.conf.hostcni",
    ];
    assert_eq!(watcher.events(), expected);
    assert_eq!(std::fs::read(&node.path).unwrap(), CONTENT);
    assert_eq!(node.names(), ["80-net.conf"]);
}

#[test]
fn a_changed_mode_counts_as_stale() {
    let node = Node::new();
    node.place().unwrap();
    std::fs::set_permissions(&node.path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(node.place().unwrap(), Placed::Replaced);
    assert_eq!(std::fs::metadata(&node.path).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn the_leftover_of_an_interrupted_placing_is_replaced_and_never_read() {
    let node = Node::new();
    std::fs::write(node.directory().join(".80-net.conf.hostcni"), "{\"half").unwrap();
    node.place().unwrap();
    assert_eq!(std::fs::read(&node.path).unwrap(), CONTENT);
    assert_eq!(node.names(), ["80-net.conf"]);
}

#[test]
fn what_somebody_else_wrote_is_neither_overwritten_nor_removed() {
    type Make = fn(&Path);
    let foreign: [(&str, Make); 6] = [
        ("its plugin type is calico", |path| std::fs::write(path, FOREIGN).unwrap()),
        ("it is empty", |path| std::fs::write(path, "").unwrap()),
        ("it is not JSON", |path| std::fs::write(path, "#!/bin/sh").unwrap()),
        ("it is a symbolic link", |path| symlink("/dev/null", path).unwrap()),
        ("it is a directory", |path| std::fs::create_dir(path).unwrap()),
        ("it is not a regular file", |path| {
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        }),
    ];
    for (expected, make) in foreign {
        let node = Node::new();
        make(&node.path);
        let before = std::fs::symlink_metadata(&node.path).unwrap();
        let error = node.place().unwrap_err();
        assert!(matches!(&error, PlaceError::Foreign { why, .. } if why == expected), "{error}");
        let removed = remove(&node.path, &node.ledger).unwrap();
        assert!(matches!(&removed, Removed::Foreign { why } if why == expected), "{removed:?}");
        let after = std::fs::symlink_metadata(&node.path).unwrap();
        assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
        assert_eq!(node.names(), ["80-net.conf"]);
        assert_eq!(node.ledger.entries(), []);
    }
}

/// Somebody else's installer writes into our file, in place: same inode, other owner.
#[test]
fn a_file_of_ours_that_somebody_else_wrote_over_is_his() {
    let node = Node::new();
    node.place().unwrap();
    std::fs::write(&node.path, FOREIGN).unwrap();
    assert!(matches!(node.place(), Err(PlaceError::Foreign { .. })));
    assert!(matches!(remove(&node.path, &node.ledger).unwrap(), Removed::Foreign { .. }));
    assert_eq!(std::fs::read(&node.path).unwrap(), FOREIGN);
}

/// Whatever he did to it, unless it became the configuration of another plugin.
#[test]
fn a_file_of_ours_that_somebody_edited_or_truncated_in_place_is_still_ours() {
    let node = Node::new();
    let edits =
        [&CONTENT[..20], b"{", b"not JSON", br#"{"type": "hostcni", "name": "without the mark"}"#, b"{}"];
    for edit in edits {
        node.place().unwrap();
        std::fs::write(&node.path, edit).unwrap();
        assert_eq!(node.ownership(), Ownership::Ours { as_rendered: false });
        assert_eq!(node.place().unwrap(), Placed::Replaced);
        std::fs::write(&node.path, edit).unwrap();
        assert_eq!(remove(&node.path, &node.ledger).unwrap(), Removed::Removed);
    }
}

/// The number of a file that is gone is given again, often at once; its birth is not.
#[test]
fn another_file_with_the_inode_of_ours_is_not_ours() {
    let node = Node::new();
    node.place().unwrap();
    let file = node.root.path().join("state/conf");
    let file = std::fs::read_dir(file).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&node.path, "{").unwrap();
    let entry: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for (born, why) in [(1.into(), "an older file"), (0.into(), "a birth that is not known")] {
        let mut other = entry.clone();
        other["born"] = born;
        std::fs::write(&file, other.to_string()).unwrap();
        assert!(matches!(node.ownership(), Ownership::Foreign { .. }), "{why}");
    }
}

#[test]
fn a_file_whose_content_a_power_cut_took_is_still_ours() {
    let node = Node::new();
    for blank in [&b""[..], &[0; 40]] {
        node.place().unwrap();
        std::fs::write(&node.path, blank).unwrap();
        assert_eq!(node.place().unwrap(), Placed::Replaced);
        std::fs::write(&node.path, blank).unwrap();
        assert_eq!(remove(&node.path, &node.ledger).unwrap(), Removed::Removed);
    }
}

#[test]
fn removing_takes_the_conf_and_leaves_the_directory() {
    let node = Node::new();
    node.place().unwrap();
    let watcher = Watcher::new(node.directory());
    assert_eq!(remove(&node.path, &node.ledger).unwrap(), Removed::Removed);
    assert_eq!(watcher.events(), ["DELETE 80-net.conf"]);
    assert_eq!(remove(&node.path, &node.ledger).unwrap(), Removed::Absent);
    assert_eq!(watcher.events(), [""; 0]);
    assert!(node.directory().is_dir());
    assert_eq!(node.ledger.entries(), []);
    std::fs::remove_dir_all(node.directory()).unwrap();
    assert_eq!(remove(&node.path, &node.ledger).unwrap(), Removed::Absent);
}

#[test]
fn a_ledger_that_cannot_be_used_stops_the_placing_and_not_the_removing() {
    let node = Node::new();
    node.place().unwrap();
    let state = node.root.path().join("state");
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::write(&state, "not a directory").unwrap();
    assert_eq!(remove(&node.path, &node.ledger).unwrap(), Removed::Removed);
    let error = node.place().unwrap_err();
    assert!(matches!(error, PlaceError::Ledger { .. }), "{error}");
    assert_eq!(node.names(), [""; 0]);
}

#[test]
fn removing_all_finds_old_paths_by_the_ledger_and_lost_ones_by_the_marker() {
    let node = Node::new();
    let moved = node.root.path().join("old/net.d/10-old.conflist");
    place(&moved, OLDER, &node.ledger).unwrap();
    let lost = node.directory().join("70-lost.conf");
    std::fs::write(&lost, OLDER).unwrap();
    std::fs::write(node.directory().join("60-foreign.conf"), FOREIGN).unwrap();
    let outcomes = remove_all(&node.ledger, &[node.directory().to_owned()]);
    let removed: Vec<_> =
        outcomes.into_iter().map(|(path, outcome)| (path, outcome.unwrap() == Removed::Removed)).collect();
    assert_eq!(removed, [(lost, true), (moved.clone(), true)]);
    assert_eq!(node.names(), ["60-foreign.conf"]);
    assert!(!moved.exists());
}

#[test]
fn many_who_place_and_remove_at_once_leave_all_or_nothing() {
    let node = Node::new();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let node = &node;
            scope.spawn(move || {
                for _ in 0..25 {
                    if worker == 0 {
                        remove(&node.path, &node.ledger).unwrap();
                    } else {
                        place(&node.path, if worker == 1 { OLDER } else { CONTENT }, &node.ledger).unwrap();
                    }
                    if let Ok(content) = std::fs::read(&node.path) {
                        assert!(content == OLDER || content == CONTENT);
                    }
                }
            });
        }
    });
    remove(&node.path, &node.ledger).unwrap();
    assert_eq!(node.names(), [""; 0]);
}

/// Runs `test` on a thread with mounts of its own. Needs root, and says so.
fn in_mount_namespace(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let run = || {
            unshare(CloneFlags::CLONE_NEWNS).expect("needs root: cannot make a mount namespace");
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
                .unwrap();
            test();
        };
        scope.spawn(run).join().unwrap();
    });
}

fn bind(directory: &Path, more: MsFlags) {
    mount(Some(directory), directory, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    if !more.is_empty() {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | more;
        mount(None::<&str>, directory, None::<&str>, flags, None::<&str>).unwrap();
    }
}

/// As in a service's sandbox with `ReadWritePaths=` of just this directory.
#[test]
fn a_directory_that_is_a_mount_of_its_own_sees_no_write_event_either() {
    let node = Node::new();
    in_mount_namespace(|| {
        bind(node.directory(), MsFlags::empty());
        let watcher = Watcher::new(node.directory());
        assert_eq!(node.place().unwrap(), Placed::New);
        let expected = [
            "CREATE|ISDIR .hostcni",
            "CREATE .80-net.conf.hostcni",
            "MOVED_FROM .80-net.conf.hostcni",
            "MOVED_TO 80-net.conf",
            "DELETE|ISDIR .hostcni",
        ];
        assert_eq!(watcher.events(), expected);
        assert_eq!(node.names(), ["80-net.conf"]);
    });
}

#[test]
fn a_read_only_directory_is_an_error_that_names_the_path() {
    let node = Node::new();
    place(&node.path, OLDER, &node.ledger).unwrap();
    in_mount_namespace(|| {
        bind(node.directory(), MsFlags::MS_RDONLY);
        let error = node.place().unwrap_err().to_string();
        assert!(error.contains("80-net.conf: Read-only file system"), "{error}");
        let error = remove(&node.path, &node.ledger).unwrap_err().to_string();
        assert!(error.contains("80-net.conf: Read-only file system"), "{error}");
        // What is noted stays noted as long as the file is there.
        assert_eq!(node.ledger.entries().len(), 1);
        assert_eq!(place(&node.path, OLDER, &node.ledger).unwrap(), Placed::Already);
    });
}

#[test]
fn removing_nothing_from_a_read_only_directory_is_no_error() {
    let node = Node::new();
    in_mount_namespace(|| {
        bind(node.directory(), MsFlags::MS_RDONLY);
        assert_eq!(remove(&node.path, &node.ledger).unwrap(), Removed::Absent);
    });
}
