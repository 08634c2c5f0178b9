//! The spool.

use std::os::unix::fs::PermissionsExt;

use nix::sys::stat::Mode;

use super::*;
use crate::attachment::names::key_digits;

fn spool() -> (tempfile::TempDir, Spool) {
    let directory = tempfile::tempdir().unwrap();
    let spool = Spool::open(&directory.path().join("hostcni/spool"));
    (directory, spool)
}

fn file_of(spool: &Spool, del: &SpooledDel) -> PathBuf {
    let micros = del.at.duration_since(UNIX_EPOCH).unwrap().as_micros();
    spool.dir().join(format!("{}-{micros:020}.json", key_digits(&del.key)))
}

#[test]
fn a_del_that_was_written_down_is_loaded_as_it_was() {
    let (directory, spool) = spool();
    assert!(spool.is_empty());
    assert!(spool.load_all().unwrap().dels.is_empty(), "a spool that nobody wrote to is empty");
    assert!(!directory.path().join("hostcni").exists(), "and looking at it makes nothing");
    spool.write(&del("b", 20)).unwrap();
    spool.write(&del("a", 30)).unwrap();
    spool.write(&del("c", 10)).unwrap();
    assert_eq!(spool.len(), 3);
    assert_eq!(spool.load_all().unwrap().dels, [del("c", 10), del("b", 20), del("a", 30)], "oldest first");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(spool.dir()), mode(&directory.path().join("hostcni"))), (0o700, 0o700));
    assert_eq!(mode(&file_of(&spool, &del("a", 30))), 0o600);
    for name in ["a", "b", "c", "never"] {
        assert!(spool.remove(&key(name), at(30)));
    }
    assert_eq!(names(spool.dir()), Vec::<String>::new());
}

#[test]
fn the_latest_del_of_an_attachment_stands_for_all_of_its_dels() {
    let (_directory, spool) = spool();
    spool.write(&del("pod", 10)).unwrap();
    spool.write(&del("pod", 20)).unwrap();
    assert_eq!(spool.len(), 1);
    // A plugin that was held up writes the DEL that came first last.
    spool.write(&del("pod", 5)).unwrap();
    spool.write(&del("pod", 20)).unwrap();
    assert_eq!(spool.load_all().unwrap().dels, [del("pod", 20)]);
    assert!(spool.remove(&key("pod"), at(20)));
    assert!(spool.is_empty());
}

#[test]
fn a_del_that_comes_while_an_earlier_one_is_carried_out_stays() {
    let (_directory, spool) = spool();
    spool.write(&del("pod", 10)).unwrap();
    let loaded = spool.load_all().unwrap().dels;
    spool.write(&del("pod", 20)).unwrap();
    assert!(spool.remove(&key("pod"), loaded[0].at));
    assert_eq!(spool.load_all().unwrap().dels, [del("pod", 20)]);
}

#[test]
fn an_add_later_than_a_spooled_del_is_not_meant_by_it_also_after_both_were_on_disk() {
    let (directory, spool) = spool();
    let store = Store::open(&directory.path().join("attachments")).unwrap();
    let moment = at(1_764_569_485_123_456);
    // Nanoseconds are dropped on both sides alike, so the order of two moments is never turned around.
    for (created, deleted, meant) in [
        (moment, moment + Duration::from_micros(1), true),
        (moment + Duration::from_nanos(900), moment + Duration::from_nanos(900), true),
        (moment + Duration::from_micros(1), moment, false),
        (moment + Duration::from_secs(9), moment, false),
    ] {
        store.put(&Attachment { created, ..full("pod") }).unwrap();
        spool.write(&SpooledDel { at: deleted, ..del("pod", 0) }).unwrap();
        let (attachments, dels) = (store.load_all().unwrap().attachments, spool.load_all().unwrap().dels);
        assert_eq!(attachments[0].created <= dels[0].at, meant, "{created:?} {deleted:?}");
        assert!(spool.remove(&key("pod"), dels[0].at) && spool.is_empty());
    }
}

#[test]
fn many_plugins_write_at_once_and_no_del_is_lost() {
    let (_directory, spool) = spool();
    std::thread::scope(|scope| {
        for writer in 0..8_u64 {
            let spool = Spool::open(spool.dir());
            scope.spawn(move || {
                for turn in 0..20 {
                    spool.write(&del("shared", 1 + turn * 8 + writer)).unwrap();
                    spool.write(&del(&format!("own-{writer}"), 1 + turn)).unwrap();
                }
            });
        }
        // A server that looks and carries out meanwhile.
        scope.spawn(|| {
            for _ in 0..20 {
                let loaded = spool.load_all().unwrap();
                assert!(loaded.set_aside.is_empty(), "{:?}", loaded.set_aside);
                for del in loaded.dels.iter().filter(|del| del.key == key("shared")) {
                    assert!(spool.remove(&del.key, del.at));
                }
            }
        });
    });
    let dels = spool.load_all().unwrap().dels;
    let last = |name: &str| dels.iter().find(|del| del.key == key(name)).map(|del| del.at);
    assert!(last("shared").is_none_or(|last| last == at(160)), "{:?}", last("shared"));
    for writer in 0..8 {
        assert_eq!(last(&format!("own-{writer}")), Some(at(20)));
    }
    assert!(
        names(spool.dir()).iter().all(|name| Path::new(name).extension().is_some_and(|it| it == "json")),
        "{:?}",
        names(spool.dir())
    );
}

#[test]
fn whatever_is_wrong_with_an_entry_it_is_set_aside_and_the_others_are_loaded() {
    let (directory, spool) = spool();
    spool.write(&del("pod", 7)).unwrap();
    let mut wrong = foreign(spool.dir());
    let mut replace = |name: &str, why: &'static str, with: &dyn Fn(&Path)| {
        spool.write(&del(name, 7)).unwrap();
        let path = file_of(&spool, &del(name, 7));
        with(&path);
        wrong.push((path.file_name().unwrap().to_owned(), why));
    };
    replace("empty", "is empty", &|path| fs::write(path, "").unwrap());
    replace("half", "is no DEL", &|path| {
        let whole = fs::read(path).unwrap();
        fs::write(path, &whole[..whole.len() / 2]).unwrap();
    });
    replace("zeros", "is no DEL", &|path| fs::write(path, [0; 512]).unwrap());
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
    replace("renamed", "is a DEL of openshift-sdn/other/eth0 under another's name", &|path| {
        fs::write(path, serde_json::to_vec(&del("other", 7)).unwrap()).unwrap();
    });
    replace("moved", "is a DEL of openshift-sdn/moved/eth0 under another's name", &|path| {
        fs::write(path, serde_json::to_vec(&del("moved", 8)).unwrap()).unwrap();
    });
    fs::write(spool.dir().join(".tmp-1-2-3"), "{\"half").unwrap();

    let loaded = spool.load_all().unwrap();
    assert_eq!(loaded.dels, [del("pod", 7)]);
    told(&loaded.set_aside, wrong);
    assert_eq!(names(spool.dir()).len(), 3, "the DEL, the corner, and what somebody is writing");
    assert!(spool.load_all().unwrap().set_aside.is_empty(), "told once");
    assert_eq!(spool.len(), 1);
}

#[test]
fn an_unfinished_file_is_left_to_its_writer_until_it_cannot_have_one() {
    let (_directory, spool) = spool();
    spool.write(&del("pod", 7)).unwrap();
    let now = SystemTime::now();
    let made = |name: &str, modified: SystemTime| {
        let file = fs::File::create(spool.dir().join(name)).unwrap();
        file.set_modified(modified).unwrap();
    };
    made(".tmp-1-0-0", now);
    made(".tmp-2-0-0", now - Duration::from_secs(3600));
    made(".tmp-3-0-0", now + Duration::from_secs(3600));
    spool.load_all().unwrap();
    assert_eq!(names(spool.dir())[..1], [".tmp-1-0-0"]);
    assert_eq!(names(spool.dir()).len(), 2);
    assert_eq!(spool.len(), 1, "what is not finished is no DEL");
}

#[test]
fn a_directory_that_somebody_removed_is_made_again() {
    let (directory, spool) = spool();
    spool.write(&del("pod", 7)).unwrap();
    fs::remove_dir_all(directory.path().join("hostcni")).unwrap();
    assert!(spool.remove(&key("pod"), at(7)));
    spool.write(&del("pod", 8)).unwrap();
    assert_eq!(spool.load_all().unwrap().dels, [del("pod", 8)]);
}

#[test]
fn a_full_spool_refuses_new_attachments_and_takes_those_it_knows() {
    let (_directory, spool) = spool();
    spool.write(&del("pod", 7)).unwrap();
    for number in 1..MAX_ENTRIES {
        fs::write(spool.dir().join(format!("{number:032x}-{:020}.json", 1)), "").unwrap();
    }
    let error = spool.write(&del("other", 7)).unwrap_err();
    assert!(matches!(error, SpoolError::Full(_)), "{error}");
    assert!(error.to_string().starts_with("10000 DELs wait in /"), "{error}");
    spool.write(&del("pod", 8)).unwrap();
    assert_eq!(spool.len(), MAX_ENTRIES);
}

#[test]
fn the_largest_del_that_a_runtime_can_send_fits() {
    let (_directory, spool) = spool();
    let config = "\"".repeat(crate::cni::MAX_CONFIG);
    // One environment variable has at most 128 KiB.
    let largest = SpooledDel {
        config,
        args: "\u{1}".repeat(128 << 10),
        netns: Some("\u{1}".repeat(128 << 10)),
        ..del("pod", 7)
    };
    spool.write(&largest).unwrap();
    assert_eq!(spool.load_all().unwrap().dels, [largest]);
    let larger = SpooledDel { config: "x".repeat(MAX_ENTRY), ..del("big", 7) };
    assert!(matches!(spool.write(&larger), Err(SpoolError::TooLarge { .. })));
    assert_eq!(spool.len(), 1);
}

#[test]
fn no_error_of_the_spool_reads_like_success() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    symlink("nowhere/at/all", directory.path().join("dangling")).unwrap();
    for path in ["file", "file/below", "dangling", "dangling/below"] {
        let spool = Spool::open(&directory.path().join(path));
        let text = spool.write(&del("pod", 7)).unwrap_err().to_string();
        assert!(text.starts_with("cannot "), "{text}");
        let lower = text.to_lowercase();
        assert!(!lower.contains("not found") && !lower.contains("no such file"), "{path}: {text}");
        assert!(spool.is_empty());
        assert!(spool.remove(&key("pod"), at(7)));
    }
}
