//! Records in files that are used again.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use proptest::prelude::*;

use super::*;
use crate::attachment::store::Loaded;

fn slots() -> (tempfile::TempDir, Slots) {
    let directory = tempfile::tempdir().unwrap();
    let slots = Slots::new(&below(&directory));
    (directory, slots)
}

fn below(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("lib/delegated")
}

/// The next process, with what it found.
fn restarted(directory: &tempfile::TempDir) -> Slots {
    let slots = Slots::new(&below(directory));
    slots.load_all().unwrap();
    slots
}

/// What the next process finds.
fn found(directory: &tempfile::TempDir) -> Loaded {
    Slots::new(&below(directory)).load_all().unwrap()
}

fn deleting(container: &str) -> Attachment {
    Attachment { state: State::Deleting, ..full(container) }
}

#[test]
fn what_is_put_and_amended_is_found_and_what_is_removed_is_not() {
    let (directory, slots) = slots();
    assert!(slots.load_all().unwrap().attachments.is_empty());
    let older = Attachment { created: at(5), ..full("older") };
    slots.put(&Attachment::new(key("pod"))).unwrap();
    slots.put(&older).unwrap();
    slots.amend(&full("pod")).unwrap();
    slots.sync(&key("pod")).unwrap();
    assert_eq!(found(&directory).attachments, [older.clone(), full("pod")], "oldest first");
    slots.amend(&deleting("pod")).unwrap();
    assert_eq!(found(&directory).attachments, [older.clone(), deleting("pod")]);
    slots.put(&full("pod")).unwrap();
    assert_eq!(found(&directory).attachments, [older, full("pod")], "in place of the earlier one");

    for container in ["pod", "pod", "never", "older"] {
        slots.remove(&key(container)).unwrap();
    }
    slots.sync(&key("pod")).unwrap();
    let loaded = found(&directory);
    assert_eq!((loaded.attachments, loaded.set_aside), (Vec::new(), Vec::new()));
    slots.amend(&full("pod")).unwrap();
    assert_eq!(found(&directory).attachments, [full("pod")], "without a record it is put");
}

#[test]
fn a_file_is_used_again_and_says_nothing_of_its_earlier_use() {
    let (directory, slots) = slots();
    let long = |container: &str| Attachment { netns: Some("x".repeat(2000)), ..full(container) };
    slots.put(&long("first")).unwrap();
    let file = only(&below(&directory));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&below(&directory)), mode(&file)), (0o700, 0o600));
    let (inode, length) = (fs::metadata(&file).unwrap().ino(), fs::metadata(&file).unwrap().len());
    for round in 0..20 {
        let container = format!("c{round}");
        slots.remove(&key(if round == 0 { "first" } else { "last" })).unwrap();
        slots.put(&long(&container)).unwrap();
        slots.amend(&long(&container)).unwrap();
        slots.remove(&key(&container)).unwrap();
        slots.put(&Attachment::new(key("last"))).unwrap();
        assert_eq!(
            found(&directory).attachments,
            [Attachment::new(key("last"))]
                .map(|it| Attachment { created: found(&directory).attachments[0].created, ..it })
        );
    }
    let there = fs::metadata(only(&below(&directory))).unwrap();
    assert_eq!((there.ino(), there.len()), (inode, length), "nothing new for the file system to note");

    // Another process goes on with it, too.
    let next = restarted(&directory);
    next.remove(&key("last")).unwrap();
    next.put(&full("pod")).unwrap();
    assert_eq!(fs::metadata(only(&below(&directory))).unwrap().ino(), inode);
    assert_eq!(found(&directory).attachments, [full("pod")]);
}

#[test]
fn a_power_cut_in_an_amendment_leaves_the_record_as_it_was() {
    let (directory, slots) = slots();
    slots.put(&full("pod")).unwrap();
    let file = only(&below(&directory));
    let put = fs::read(&file).unwrap();
    slots.amend(&deleting("pod")).unwrap();
    let whole = fs::read(&file).unwrap();
    let begin = put.iter().position(|byte| *byte == 0).unwrap();
    let end = whole.iter().position(|byte| *byte == 0).unwrap();
    for cut in begin..end {
        for rest in [0, b'x'] {
            let torn = [&whole[..cut], &vec![rest; whole.len() - cut]].concat();
            fs::write(&file, torn).unwrap();
            assert_eq!(found(&directory).attachments, [full("pod")], "{cut}");
        }
    }
    // And what comes next is written over the rest of it.
    let next = restarted(&directory);
    next.amend(&deleting("pod")).unwrap();
    assert_eq!(found(&directory).attachments, [deleting("pod")]);
}

#[test]
fn no_mixture_of_two_uses_is_ever_a_record_of_either() {
    let (directory, slots) = slots();
    // Of one length, so that each byte has its like at the same place.
    let (one, other) = (full("pod-1"), Attachment { mtu: Some(9000), ..full("pod-2") });
    slots.put(&one).unwrap();
    slots.amend(&one).unwrap();
    let file = only(&below(&directory));
    let before = fs::read(&file).unwrap();
    slots.remove(&key("pod-1")).unwrap();
    slots.put(&other).unwrap();
    let after = fs::read(&file).unwrap();
    let length = after.iter().position(|byte| *byte == b'\n').unwrap();
    let places: Vec<usize> = (0..=length).filter(|at| before[*at] != after[*at]).collect();
    for (from, to) in places.iter().flat_map(|from| places.iter().map(move |to| (*from, *to))) {
        // The disk had taken this part of the new content, and no more.
        let mixed = [&before[..from], &after[from..to.max(from)], &before[to.max(from)..]].concat();
        fs::write(&file, &mixed).unwrap();
        let loaded = found(&directory);
        let known = [one.clone(), other.clone()];
        assert!(loaded.attachments.iter().all(|it| known.contains(it)), "{from}..{to}");
        for (name, _) in &loaded.set_aside {
            assert_eq!(name, &file);
        }
    }
}

#[test]
fn of_two_records_of_one_attachment_the_newer_counts() {
    let (directory, slots) = slots();
    slots.put(&full("pod")).unwrap();
    slots.put(&full("other")).unwrap();
    let first = below(&directory).join(&names(&below(&directory))[0]);
    let old = fs::read(&first).unwrap();
    slots.remove(&key("pod")).unwrap();
    slots.put(&full("third")).unwrap();
    slots.put(&deleting("pod")).unwrap();
    // The removal, and what came into its place, never reached the disk.
    fs::write(&first, &old).unwrap();
    let loaded = found(&directory);
    assert_eq!(loaded.attachments, [full("other"), deleting("pod")]);
    assert!(loaded.set_aside.is_empty());
    assert_eq!(found(&directory).attachments.len(), 2);
    assert_eq!(fs::read(&first).unwrap()[0], 0, "it is free");
}

#[test]
fn what_somebody_put_in_a_files_place_is_not_written_to() {
    let (directory, slots) = slots();
    let victim = directory.path().join("victim");
    let broken: [&dyn Fn(&Path); 4] = [
        &|path| fs::hard_link(path, &victim).unwrap(),
        &|path| symlink(&victim, path).unwrap(),
        &|path| fs::create_dir_all(path.join("deep")).unwrap(),
        &|_| (),
    ];
    for (number, with) in broken.iter().enumerate() {
        slots.put(&full("pod")).unwrap();
        let file = below(&directory).join(names(&below(&directory)).last().unwrap());
        if number > 0 {
            fs::remove_file(&file).unwrap();
        }
        with(&file);
        let before = fs::read(&victim).unwrap();
        slots.amend(&deleting("pod")).unwrap();
        slots.put(&full("pod")).unwrap();
        slots.remove(&key("pod")).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), before, "{number}");
        assert!(found(&directory).attachments.iter().all(|it| *it == full("pod") || *it == deleting("pod")));
        slots.load_all().unwrap();
        slots.remove(&key("pod")).unwrap();
    }
    fs::remove_dir_all(below(&directory)).unwrap();
    slots.remove(&key("pod")).unwrap();
    slots.put(&full("pod")).unwrap();
    assert_eq!(
        found(&directory).attachments,
        [full("pod")],
        "a directory that somebody removed is made again"
    );
    fs::remove_dir_all(directory.path().join("lib")).unwrap();
    slots.amend(&deleting("pod")).unwrap();
    assert_eq!(found(&directory).attachments, [deleting("pod")]);
}

#[test]
fn a_start_sets_aside_what_is_no_record_and_leaves_few_free_files() {
    let (directory, slots) = slots();
    for number in 0..100 {
        slots.put(&full(&format!("c{number}"))).unwrap();
    }
    slots.put(&Attachment { netns: Some("x".repeat(200_000)), ..full("huge") }).unwrap();
    slots.put(&full("pod")).unwrap();
    (0..100).for_each(|number| slots.remove(&key(&format!("c{number}"))).unwrap());
    slots.remove(&key("huge")).unwrap();
    assert_eq!(names(&below(&directory)).len(), 101, "the large one is not kept");
    let mut wrong = foreign(&below(&directory));
    for (name, content, why) in [
        ("record-000200", "", "is empty"),
        ("record-000201", "hello\n", "is no attachment"),
        ("record-000202", "[]", "is no attachment"),
        ("record-000203", "{\"key\": 1}", "is no attachment"),
        ("record-1", "\0", "is not a file of hostcni's"),
    ] {
        fs::write(below(&directory).join(name), content).unwrap();
        wrong.push((name.into(), why));
    }
    let next = Slots::new(&below(&directory));
    let loaded = next.load_all().unwrap();
    assert_eq!(loaded.attachments, [full("pod")]);
    told(&loaded.set_aside, wrong);
    assert_eq!(names(&below(&directory)).len(), 64 + 1 + 1, "and the corner");
    // One that was written by hand is one, and can be amended.
    fs::write(below(&directory).join("record-000300"), serde_json::to_string(&full("mended")).unwrap())
        .unwrap();
    next.load_all().unwrap();
    next.amend(&deleting("mended")).unwrap();
    assert!(found(&directory).attachments.contains(&deleting("mended")));
    assert!(found(&directory).set_aside.is_empty());
}

#[test]
fn many_threads_put_amend_and_remove_each_its_own() {
    let (directory, slots) = slots();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let slots = &slots;
            scope.spawn(move || {
                for turn in 0..50 {
                    let container = format!("t{thread}-{turn}");
                    slots.put(&Attachment::new(key(&container))).unwrap();
                    slots.amend(&full(&container)).unwrap();
                    if turn % 5 > 0 {
                        slots.remove(&key(&container)).unwrap();
                    }
                }
            });
        }
    });
    let mut loaded = found(&directory).attachments;
    loaded.sort_by_key(|it| it.key.clone());
    let mut expected: Vec<Attachment> =
        (0..8).flat_map(|thread| (0..10).map(move |it| full(&format!("t{thread}-{}", 5 * it)))).collect();
    expected.sort_by_key(|it| it.key.clone());
    assert_eq!(loaded, expected);
}

#[test]
fn what_a_file_held_before_a_restart_says_nothing_of_its_next_record() {
    let (directory, slots) = slots();
    slots.put(&full("pod-1")).unwrap();
    slots.amend(&deleting("pod-1")).unwrap();
    slots.remove(&key("pod-1")).unwrap();
    let next = restarted(&directory);
    // Of one length: what was added to the one stands right behind the other.
    next.put(&full("pod-2")).unwrap();
    assert_eq!(found(&directory).attachments, [full("pod-2")]);
}

#[test]
fn what_is_put_after_a_restart_is_newer_than_what_comes_back_with_a_power_cut() {
    let (directory, slots) = slots();
    slots.put(&full("other")).unwrap();
    slots.remove(&key("other")).unwrap();
    slots.put(&full("pod")).unwrap();
    let first = only(&below(&directory));
    let old = fs::read(&first).unwrap();
    slots.put(&full("other")).unwrap();
    slots.remove(&key("other")).unwrap();
    slots.remove(&key("pod")).unwrap();
    let next = restarted(&directory);
    next.put(&deleting("pod")).unwrap();
    assert_eq!(fs::read(&first).unwrap()[0], 0, "the other file was used");
    fs::write(&first, &old).unwrap();
    assert_eq!(found(&directory).attachments, [deleting("pod")]);
}

#[test]
fn of_two_files_of_one_use_the_one_that_was_added_to_counts() {
    let (directory, slots) = slots();
    slots.put(&full("other")).unwrap();
    slots.put(&full("pod")).unwrap();
    slots.remove(&key("other")).unwrap();
    // As when a flush failed, and then the removal of the file, too.
    let [first, second] = [0, 1].map(|at| below(&directory).join(&names(&below(&directory))[at]));
    fs::write(&first, fs::read(second).unwrap()).unwrap();
    slots.amend(&deleting("pod")).unwrap();
    assert_eq!(found(&directory).attachments, [deleting("pod")]);
}

#[test]
fn what_no_start_could_read_is_not_written() {
    let (directory, slots) = slots();
    let huge = |container: &str| Attachment { netns: Some("x".repeat(4 << 20)), ..full(container) };
    slots.put(&full("pod")).unwrap();
    for error in [slots.put(&huge("new")), slots.put(&huge("pod")), slots.amend(&huge("pod"))] {
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("cannot write a record to "), "{error}");
    }
    assert_eq!(names(&below(&directory)).len(), 1);
    let loaded = found(&directory);
    assert_eq!((loaded.attachments, loaded.set_aside), (vec![full("pod")], Vec::new()));
}

#[test]
fn the_last_of_all_numbers_keeps_nobody_from_a_file() {
    let (directory, slots) = slots();
    slots.put(&full("pod")).unwrap();
    for (number, byte) in [(u32::MAX, b'\0'), (u32::MAX - 1, b'x')] {
        fs::write(below(&directory).join(format!("record-{number}")), [byte]).unwrap();
    }
    let next = restarted(&directory);
    for container in ["one", "two", "three"] {
        next.put(&Attachment { created: at(5), ..full(container) }).unwrap();
    }
    assert_eq!(found(&directory).attachments.len(), 4);
}

#[test]
fn a_free_file_that_is_no_good_any_more_is_not_left_behind() {
    let (directory, slots) = slots();
    slots.put(&full("pod")).unwrap();
    slots.remove(&key("pod")).unwrap();
    let file = only(&below(&directory));
    let victim = directory.path().join("victim");
    fs::hard_link(&file, &victim).unwrap();
    let before = fs::read(&victim).unwrap();
    slots.put(&full("pod")).unwrap();
    assert_ne!(only(&below(&directory)), file);
    assert_eq!(fs::read(&victim).unwrap(), before);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever becomes of one byte, or of the end: each record is there as it once was, or not at all.
    #[test]
    fn a_damaged_file_is_an_earlier_state_or_is_set_aside(
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
        keep in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let (directory, slots) = slots();
        slots.put(&full("pod")).unwrap();
        slots.amend(&deleting("pod")).unwrap();
        let file = only(&below(&directory));
        let mut bytes = fs::read(&file).unwrap();
        let length = bytes.iter().position(|byte| *byte == 0).unwrap();
        bytes[at.index(length)] = byte;
        bytes.truncate(keep.map_or(bytes.len(), |keep| keep.index(length)));
        fs::write(&file, bytes).unwrap();
        let slots = Slots::new(&below(&directory));
        let loaded = slots.load_all().unwrap();
        prop_assert!(loaded.attachments.len() + loaded.set_aside.len() <= 1);
        for record in &loaded.attachments {
            prop_assert!(*record == full("pod") || *record == deleting("pod"));
        }
        slots.put(&full("pod")).unwrap();
        prop_assert_eq!(slots.load_all().unwrap().attachments, [full("pod")]);
    }

    /// Whatever is done, and whenever the server starts again: what is found is what was done last.
    #[test]
    fn what_is_found_is_what_was_done_last(
        steps in proptest::collection::vec((0..8_u8, 0..4_u8, proptest::sample::select(vec![0_usize, 0, 1, 3000, 20_000])), 1..40),
    ) {
        let (directory, mut slots) = slots();
        let mut known = std::collections::BTreeMap::new();
        for (what, container, length) in steps {
            let container = format!("c{container}");
            let state = if what % 2 == 0 { State::Ready } else { State::Deleting };
            let record = Attachment { state, netns: Some("x".repeat(length)), ..full(&container) };
            match what {
                0 | 1 => slots.put(&record).unwrap(),
                2 | 3 => slots.amend(&record).unwrap(),
                4 | 5 => slots.remove(&record.key).unwrap(),
                _ => {
                    slots = restarted(&directory);
                    continue;
                }
            }
            known.remove(&record.key);
            if what < 4 {
                known.insert(record.key.clone(), record);
            }
            let loaded = if below(&directory).exists() { found(&directory) } else { Loaded::default() };
            prop_assert!(loaded.set_aside.is_empty());
            prop_assert_eq!(loaded.attachments, known.values().cloned().collect::<Vec<_>>());
        }
    }
}
