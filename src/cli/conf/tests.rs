//! What the helpers leave behind, case by case.

use super::*;

struct Node {
    root: tempfile::TempDir,
    ledger: Ledger,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(&root.path().join("var/lib/hostcni"));
        Self { root, ledger }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("etc/cni/net.d").join(name)
    }

    /// Settings with one network, and `more` lines in its `conf` section.
    fn settings(&self, name: &str, more: &str) -> Settings {
        let file = self.root.path().join("etc/hostcni/config.toml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let path = self.path(name);
        let text = format!("[[network]]\nname = \"pods\"\nconf.path = \"{}\"\n{more}\n", path.display());
        std::fs::write(file, text).unwrap();
        crate::settings::load(self.root.path()).unwrap().settings
    }

    fn remove(&self, settings: Option<&Settings>, pending: PendingJob) -> Outcome {
        self.remove_with(&RemoveArgs { boot: false, force: false }, settings, || pending)
    }

    fn remove_with(
        &self,
        args: &RemoveArgs,
        settings: Option<&Settings>,
        pending: impl FnOnce() -> PendingJob,
    ) -> Outcome {
        remove(args, settings, &self.ledger, &self.path(""), pending)
    }
}

#[test]
fn nothing_is_placed_while_the_server_is_not_ready() {
    let node = Node::new();
    let settings = node.settings("80-pods.conf", "");
    assert_eq!(place(&settings, &node.ledger, Err("not yet".to_owned())), Outcome::NotReady);
    assert!(!node.path("80-pods.conf").exists());
    assert_eq!(place(&settings, &node.ledger, Ok(Lacks::new())), Outcome::Done);
    assert_eq!(place(&settings, &node.ledger, Ok(Lacks::new())), Outcome::Done);
    assert!(node.path("80-pods.conf").exists());
}

#[test]
fn a_network_that_lacks_what_it_stands_on_gets_no_conf() {
    let node = Node::new();
    let settings = node.settings("80-pods.conf", "");
    let lacks = Lacks::from([("pods".to_owned(), "no file /run/x".to_owned())]);
    assert_eq!(place(&settings, &node.ledger, Ok(lacks)), Outcome::Done);
    assert!(!node.path("80-pods.conf").exists());
    let lacks = Lacks::from([("other".to_owned(), "no file /run/x".to_owned())]);
    assert_eq!(place(&settings, &node.ledger, Ok(lacks)), Outcome::Done);
    assert!(node.path("80-pods.conf").exists());
}

#[test]
fn a_planned_restart_keeps_the_conf_and_everything_else_takes_it_away() {
    let others = [
        PendingJob::None,
        PendingJob::Stop,
        PendingJob::Start,
        PendingJob::Other("nop".to_owned()),
        PendingJob::Unknown("no answer".to_owned()),
    ];
    for pending in others {
        let node = Node::new();
        let settings = node.settings("80-pods.conf", "");
        place(&settings, &node.ledger, Ok(Lacks::new()));
        assert_eq!(node.remove(Some(&settings), PendingJob::Restart), Outcome::Done);
        assert!(node.path("80-pods.conf").exists());
        assert_eq!(node.remove(Some(&settings), pending.clone()), Outcome::Done);
        assert!(!node.path("80-pods.conf").exists(), "{pending:?}");
    }
}

#[test]
fn the_strict_reading_removes_it_in_a_restart_too() {
    let node = Node::new();
    let settings = node.settings("80-pods.conf", "conf.restart = \"remove\"");
    place(&settings, &node.ledger, Ok(Lacks::new()));
    let never_asked = || panic!("systemd need not be asked");
    let args = RemoveArgs { boot: false, force: false };
    assert_eq!(node.remove_with(&args, Some(&settings), never_asked), Outcome::Done);
    assert!(!node.path("80-pods.conf").exists());
}

#[test]
fn a_faulty_configuration_removes_by_the_ledger_even_in_a_restart() {
    let node = Node::new();
    place(&node.settings("80-pods.conf", ""), &node.ledger, Ok(Lacks::new()));
    // One that the ledger lost is found by its mark in the default directory.
    std::fs::write(node.path("90-lost.conf"), "{\"io.hostcni.managed\": \"yes\"}").unwrap();
    assert_eq!(node.remove(None, PendingJob::Restart), Outcome::Done);
    assert!(!node.path("80-pods.conf").exists() && !node.path("90-lost.conf").exists());
}

#[test]
fn boot_and_force_remove_without_asking_systemd() {
    for (boot, force) in [(true, false), (false, true)] {
        let node = Node::new();
        let settings = node.settings("80-pods.conf", "");
        place(&settings, &node.ledger, Ok(Lacks::new()));
        let args = RemoveArgs { boot, force };
        let outcome = node.remove_with(&args, Some(&settings), || panic!("systemd need not be asked"));
        assert_eq!(outcome, Outcome::Done);
        assert!(!node.path("80-pods.conf").exists());
    }
}

#[test]
fn a_conf_whose_path_was_changed_goes_once_the_new_one_is_there() {
    let node = Node::new();
    place(&node.settings("70-old.conf", ""), &node.ledger, Ok(Lacks::new()));
    let settings = node.settings("80-new.conflist", "");
    assert_eq!(node.remove(Some(&settings), PendingJob::Restart), Outcome::Done);
    assert!(!node.path("70-old.conf").exists(), "nothing keeps a conf that no network has");
    place(&node.settings("70-old.conf", ""), &node.ledger, Ok(Lacks::new()));
    assert_eq!(place(&node.settings("80-new.conflist", ""), &node.ledger, Ok(Lacks::new())), Outcome::Done);
    assert!(node.path("80-new.conflist").exists() && !node.path("70-old.conf").exists());
}

#[test]
fn a_foreign_file_fails_the_start_or_is_waited_for_and_stays_in_any_case() {
    for (policy, expected) in [("fail", Outcome::Failed), ("wait", Outcome::Done)] {
        let node = Node::new();
        let settings = node.settings("80-pods.conf", &format!("conf.foreign = \"{policy}\""));
        std::fs::create_dir_all(node.path("")).unwrap();
        std::fs::write(node.path("80-pods.conf"), "{\"type\": \"calico\"}").unwrap();
        assert_eq!(place(&settings, &node.ledger, Ok(Lacks::new())), expected);
        for pending in [PendingJob::Restart, PendingJob::Stop] {
            assert_eq!(node.remove(Some(&settings), pending), Outcome::Done);
        }
        assert_eq!(std::fs::read_to_string(node.path("80-pods.conf")).unwrap(), "{\"type\": \"calico\"}");
    }
}

#[test]
fn the_reason_is_the_jobs_or_the_results() {
    assert_eq!(reason(&PendingJob::Stop, Some("success")), "the service stops");
    assert_eq!(reason(&PendingJob::None, Some("watchdog")), "the service failed (watchdog)");
    assert_eq!(reason(&PendingJob::Unknown(String::new()), None), "the service ends");
}
