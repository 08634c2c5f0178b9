//! The shipped units and files, judged by systemd's own tools.

use std::process::Command;

/// The units in a directory, with a binary that is there, since `verify` looks for it.
fn units() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["hostcni.socket", "hostcni-metrics.socket", "hostcni.service", "hostcni-boot.service"] {
        let path = format!("{}/systemd/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap().replace("/usr/bin/hostcni", "/bin/true");
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn analyze(arguments: &[&str], files: &[std::path::PathBuf]) -> (bool, String) {
    let output =
        Command::new("systemd-analyze").args(arguments).args(files).output().expect("needs systemd-analyze");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn systemd_finds_nothing_to_complain_about_in_the_units() {
    let dir = units();
    let files = ["hostcni.socket", "hostcni-metrics.socket", "hostcni.service", "hostcni-boot.service"]
        .map(|name| dir.path().join(name));
    let (fine, said) = analyze(&["verify", "--man=no"], &files);
    assert!(fine && said.is_empty(), "{said}");
}

#[test]
fn the_service_stays_hardened() {
    let dir = units();
    let (fine, said) = analyze(
        &["security", "--offline=yes", "--no-pager", "--threshold=22"],
        &[dir.path().join("hostcni.service")],
    );
    assert!(fine, "the exposure is above 2.2:\n{said}");
}

#[test]
fn tmpfiles_makes_the_directories_and_takes_no_conf_away() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("etc/cni/net.d");
    std::fs::create_dir_all(&directory).unwrap();
    for name in ["80-net.conf", ".80-net.conf.hostcni", ".other"] {
        std::fs::write(directory.join(name), "").unwrap();
    }
    let output = Command::new("systemd-tmpfiles")
        .arg(format!("--root={}", root.path().display()))
        .args(["--create", "--remove", "--boot"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/usr/lib/tmpfiles.d/hostcni.conf"))
        .output()
        .expect("needs systemd-tmpfiles");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let mut names: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".other", "80-net.conf"]);
    for made in ["run/hostcni/attachments", "var/lib/hostcni", "run/varlink/registry"] {
        assert!(root.path().join(made).is_dir(), "{made}");
    }
}
