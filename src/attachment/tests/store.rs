//! The store.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::stat::Mode;

use super::*;

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("run/attachments")).unwrap();
    (directory, store)
}

fn below(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("run/attachments")
}

#[test]
fn what_is_put_is_loaded_and_what_is_removed_is_not() {
    let (directory, store) = store();
    assert!(store.load_all().unwrap().attachments.is_empty());
    let older = Attachment { created: at(5), ..full("older") };
    store.put(&full("pod")).unwrap();
    store.put(&older).unwrap();
    store.put(&Attachment { state: State::Deleting, ..full("pod") }).unwrap();
    let loaded = Store::open(&below(&directory)).unwrap().load_all().unwrap();
    assert_eq!(loaded.attachments, [older, Attachment { state: State::Deleting, ..full("pod") }]);
    assert!(loaded.set_aside.is_empty());

    store.remove(&key("pod")).unwrap();
    store.remove(&key("pod")).unwrap();
    store.remove(&key("never")).unwrap();
    store.remove(&key("older")).unwrap();
    assert_eq!(names(&below(&directory)), Vec::<String>::new());
}

#[test]
fn files_are_roots_alone() {
    let (directory, store) = store();
    store.put(&full("pod")).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&below(&directory)), 0o700);
    assert_eq!(mode(&directory.path().join("run")), 0o700);
    assert_eq!(mode(&only(&below(&directory))), 0o600);
}

#[test]
fn a_put_replaces_the_file_and_never_writes_into_it() {
    let (directory, store) = store();
    store.put(&full("pod")).unwrap();
    let path = only(&below(&directory));
    let before = fs::metadata(&path).unwrap().ino();
    let victim = directory.path().join("victim");
    fs::hard_link(&path, &victim).unwrap();
    store.put(&Attachment { mtu: Some(9000), ..full("pod") }).unwrap();
    assert_ne!(fs::metadata(&path).unwrap().ino(), before);
    assert_eq!(Attachment::parse(&fs::read(victim).unwrap()).unwrap(), full("pod"));
}

#[test]
fn a_link_in_a_records_place_is_replaced_and_not_followed() {
    let (directory, store) = store();
    store.put(&full("pod")).unwrap();
    let path = only(&below(&directory));
    let victim = directory.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&victim, &path).unwrap();
    store.put(&full("pod")).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    fs::remove_file(&path).unwrap();
    symlink(&victim, &path).unwrap();
    store.remove(&key("pod")).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(names(&below(&directory)), Vec::<String>::new());
}

#[test]
fn a_directory_in_a_records_place_is_set_aside() {
    let (directory, store) = store();
    store.put(&full("pod")).unwrap();
    let path = only(&below(&directory));
    for _ in 0..2 {
        fs::remove_file(&path).unwrap();
        fs::create_dir_all(path.join("deep")).unwrap();
        store.put(&full("pod")).unwrap();
        assert_eq!(store.load_all().unwrap().attachments, [full("pod")]);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir_all(path.join("deep")).unwrap();
    store.remove(&key("pod")).unwrap();
    assert!(!path.exists());
    assert_eq!(names(&below(&directory).join(".corrupt")).len(), 3);
}

#[test]
fn a_directory_that_somebody_removed_is_made_again() {
    let (directory, store) = store();
    fs::remove_dir_all(directory.path().join("run")).unwrap();
    assert!(store.load_all().unwrap().attachments.is_empty());
    store.remove(&key("pod")).unwrap();
    store.put(&full("pod")).unwrap();
    assert_eq!(store.load_all().unwrap().attachments, [full("pod")]);
}

#[test]
fn a_path_that_is_no_directory_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("attachments");
    fs::write(&path, "").unwrap();
    for path in [path.clone(), path.join("below")] {
        let error = Store::open(&path).unwrap_err().to_string();
        assert!(error.starts_with("cannot make directory ") && error.contains("/attachments"), "{error}");
    }
}

#[test]
fn writes_that_a_crash_left_unfinished_are_removed_at_the_next_start() {
    let (directory, store) = store();
    store.put(&full("pod")).unwrap();
    fs::write(below(&directory).join(".tmp-17-0-99"), "{\"half").unwrap();
    assert_eq!(store.load_all().unwrap().set_aside, []);
    let store = Store::open(&below(&directory)).unwrap();
    only(&below(&directory));
    assert_eq!(store.load_all().unwrap().attachments, [full("pod")]);
}

#[test]
fn whatever_is_wrong_with_a_file_it_is_set_aside_and_the_others_are_loaded() {
    let (directory, store) = store();
    let below = below(&directory);
    let mut wrong = foreign(&below);
    let damaged = |container: &str| {
        store.put(&full(container)).unwrap();
        below.join(format!("{}.json", crate::attachment::names::key_digits(&key(container))))
    };
    let mut replace = |container: &str, why: &'static str, with: &dyn Fn(&Path)| {
        let path = damaged(container);
        with(&path);
        wrong.push((path.file_name().unwrap().to_owned(), why));
    };
    replace("empty", "is empty", &|path| fs::write(path, "").unwrap());
    replace("half", "is no attachment", &|path| {
        let whole = fs::read(path).unwrap();
        fs::write(path, &whole[..whole.len() / 2]).unwrap();
    });
    replace("zeros", "is no attachment", &|path| fs::write(path, [0; 512]).unwrap());
    replace("twice", "is no attachment", &|path| fs::write(path, fs::read(path).unwrap().repeat(2)).unwrap());
    replace("list", "is no attachment", &|path| fs::write(path, "[]").unwrap());
    replace("deep", "is no attachment", &|path| fs::write(path, "[".repeat(100_000)).unwrap());
    replace("huge", "more than", &|path| fs::File::create(path).unwrap().set_len(1 << 40).unwrap());
    replace("link", "is a symbolic link", &|path| {
        let target = directory.path().join("target");
        fs::rename(path, &target).unwrap();
        symlink(target, path).unwrap();
    });
    replace("folder", "is a directory", &|path| {
        fs::remove_file(path).unwrap();
        fs::create_dir_all(path.join("deep")).unwrap();
    });
    replace("fifo", "is a fifo", &|path| {
        fs::remove_file(path).unwrap();
        nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap();
    });
    replace("socket", "is a socket", &|path| {
        fs::remove_file(path).unwrap();
        UnixListener::bind(path).unwrap();
    });
    replace("renamed", "is the record of openshift-sdn/other/eth0 under another's name", &|path| {
        fs::write(path, serde_json::to_vec(&full("other")).unwrap()).unwrap();
    });
    store.put(&full("pod")).unwrap();

    let loaded = store.load_all().unwrap();
    assert_eq!(loaded.attachments, [full("pod")]);
    told(&loaded.set_aside, wrong);
    assert_eq!(names(&below).len(), 2, "the record and the corner: {:?}", names(&below));
    assert_eq!(fs::read_dir(below.join(".corrupt")).unwrap().count(), loaded.set_aside.len());
    assert!(store.load_all().unwrap().set_aside.is_empty(), "told once");
}

#[test]
fn the_corner_keeps_the_newest_and_is_bounded() {
    let (directory, store) = store();
    for number in 0..150 {
        fs::write(below(&directory).join(format!("junk-{number:03}")), "x").unwrap();
    }
    assert_eq!(store.load_all().unwrap().set_aside.len(), 150);
    assert_eq!(names(&below(&directory).join(".corrupt")).len(), 64);
    for number in 150..160 {
        fs::write(below(&directory).join(format!("junk-{number}")), "x").unwrap();
        store.load_all().unwrap();
    }
    let kept = names(&below(&directory).join(".corrupt"));
    assert_eq!(kept.len(), 64);
    assert!(kept.last().unwrap().ends_with("-junk-159"), "{kept:?}");
}

#[test]
fn a_file_in_the_corners_place_gives_way() {
    let (directory, store) = store();
    for round in 0..2 {
        let corner = below(&directory).join(".corrupt");
        let _ = fs::remove_dir_all(&corner);
        if round == 0 {
            fs::write(&corner, "x").unwrap();
        } else {
            symlink("/etc", &corner).unwrap();
        }
        fs::write(below(&directory).join("junk"), "x").unwrap();
        store.load_all().unwrap();
        assert!(store.load_all().unwrap().set_aside.is_empty());
        assert!(!Path::new("/etc").join("junk").exists());
        assert!(names(&corner).iter().any(|name| name.ends_with("-junk")));
    }
}

#[test]
fn many_writers_of_one_record_leave_one_whole_record() {
    let (directory, store) = store();
    store.put(&full("pod")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u32)
            .map(|number| {
                let store = &store;
                scope.spawn(move || {
                    for turn in 0..250 {
                        // Records of many sizes: a mixture of two would not parse.
                        let netns = Some("x".repeat(usize::try_from(number * 1000 + turn).unwrap()));
                        store.put(&Attachment { mtu: Some(number), netns, ..full("pod") }).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let loaded = store.load_all().unwrap();
                assert_eq!(
                    (loaded.attachments.len(), loaded.set_aside.len()),
                    (1, 0),
                    "{:?}",
                    loaded.set_aside
                );
            }
        });
        let outcomes: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        assert!(outcomes.iter().all(Result::is_ok));
    });
    only(&below(&directory));
}
