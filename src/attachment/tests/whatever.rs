//! Whatever bytes lie in the directories: opening and loading never fails or panics, and nothing is ever
//! loaded under a name that is not its key's.

use proptest::prelude::*;

use super::*;
use crate::attachment::names::key_digits;

#[derive(Debug, Clone)]
enum Content {
    Bytes(Vec<u8>),
    /// A valid record or DEL of the numbered key, with one byte changed or its end cut off.
    Record {
        key: usize,
        change: Option<(proptest::sample::Index, u8)>,
        keep: Option<proptest::sample::Index>,
    },
    Folder,
    Link(String),
}

fn content() -> impl Strategy<Value = Content> {
    let index = any::<proptest::sample::Index>;
    let record = (0..4_usize, proptest::option::of((index(), any::<u8>())), proptest::option::of(index()))
        .prop_map(|(key, change, keep)| Content::Record { key, change, keep });
    prop_oneof![
        2 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(Content::Bytes),
        2 => "\\PC{0,60}".prop_map(|text| Content::Bytes(text.into_bytes())),
        8 => record,
        1 => Just(Content::Folder),
        1 => "[a-z/.]{1,20}".prop_map(Content::Link),
    ]
}

/// Names of records and DELs of four keys, of unfinished files, and any other.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let digits = |number: usize| key_digits(&key(&format!("c{number}")));
    prop_oneof![
        4 => (0..4_usize).prop_map(move |number| format!("{}.json", digits(number)).into_bytes()),
        4 => (0..4_usize, 0..3_u64).prop_map(move |(number, at)| format!("{}-{at:020}.json", digits(number)).into_bytes()),
        1 => "[0-9a-f]{31,33}\\.json".prop_map(String::into_bytes),
        1 => "\\.tmp-[0-9]{0,3}".prop_map(String::into_bytes),
        1 => Just(b".corrupt".to_vec()),
        1 => proptest::collection::vec(any::<u8>().prop_filter("a name", |byte| ![0, b'/'].contains(byte)), 1..=255),
    ]
}

fn lay(directory: &Path, name: Vec<u8>, content: Content, whole: &dyn Fn(usize) -> Vec<u8>) {
    let path = directory.join(OsString::from_vec(name));
    if fs::symlink_metadata(&path).is_ok() || path.file_name().is_none() {
        return; // taken already, or `.` and `..`
    }
    match content {
        Content::Bytes(bytes) => fs::write(path, bytes).unwrap(),
        Content::Folder => fs::create_dir(path).unwrap(),
        Content::Link(target) => symlink(target, path).unwrap(),
        Content::Record { key, change, keep } => {
            let mut bytes = whole(key);
            if let Some((index, byte)) = change {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(keep) = keep {
                bytes.truncate(keep.index(bytes.len()));
            }
            fs::write(path, bytes).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_store_loads_what_is_its_own_from_any_directory(
        files in proptest::collection::vec((name(), content()), 0..12),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let whole = |number: usize| serde_json::to_vec(&full(&format!("c{number}"))).unwrap();
        for (name, content) in files {
            lay(directory.path(), name, content, &whole);
        }
        let store = Store::open(directory.path()).unwrap();
        let before: Vec<OsString> = fs::read_dir(directory.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        let loaded = store.load_all().unwrap();
        for attachment in &loaded.attachments {
            let name = OsString::from(format!("{}.json", key_digits(&attachment.key)));
            prop_assert!(before.contains(&name), "{} came out of no file of its own", attachment.key);
            prop_assert_eq!(&attachment.host_link, &host_link_name(&attachment.key));
        }
        let again = store.load_all().unwrap();
        prop_assert_eq!(&again.attachments, &loaded.attachments);
        prop_assert!(again.set_aside.is_empty(), "{:?}", again.set_aside);
        for attachment in &loaded.attachments {
            store.put(attachment).unwrap();
            store.remove(&attachment.key).unwrap();
        }
        for number in 0..4 {
            store.put(&full(&format!("c{number}"))).unwrap();
        }
        prop_assert_eq!(store.load_all().unwrap().attachments.len(), 4);
    }

    #[test]
    fn a_spool_loads_what_is_its_own_from_any_directory(
        files in proptest::collection::vec((name(), content()), 0..12),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let whole = |number: usize| serde_json::to_vec(&del(&format!("c{number}"), 1)).unwrap();
        for (name, content) in files {
            lay(directory.path(), name, content, &whole);
        }
        let spool = Spool::open(directory.path());
        let before: Vec<OsString> = fs::read_dir(directory.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        let loaded = spool.load_all().unwrap();
        for del in &loaded.dels {
            let micros = del.at.duration_since(UNIX_EPOCH).unwrap().as_micros();
            let name = OsString::from(format!("{}-{micros:020}.json", key_digits(&del.key)));
            prop_assert!(before.contains(&name), "{} came out of no file of its own", del.key);
        }
        let again = spool.load_all().unwrap();
        prop_assert_eq!(&again.dels, &loaded.dels);
        prop_assert!(again.set_aside.is_empty(), "{:?}", again.set_aside);
        for del in &loaded.dels {
            prop_assert!(spool.remove(&del.key, del.at));
        }
        prop_assert!(spool.is_empty());
    }
}
