//! What is in the package.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::build::{build, directory, packages};
use crate::support::observe::both;

fn query(package: &Path, what: &str) -> String {
    let output = Command::new("rpm").args(["-qp", what]).arg(package).output().expect("rpm is installed");
    assert!(output.status.success(), "{}", both(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn files() {
    let root = tempfile::tempdir().unwrap();
    let output = Command::new("make")
        .args(["--no-print-directory", "-C", env!("CARGO_MANIFEST_DIR"), "install"])
        .arg(format!("DESTDIR={}", root.path().display()))
        .arg(format!("BUILT={}", env!("CARGO_BIN_EXE_hostcni")))
        .output()
        .expect("make is there");
    assert!(output.status.success(), "{}", both(&output));
    let output = Command::new("find")
        .args([root.path().to_str().unwrap(), "!", "-type", "d", "-printf", "/%P\\n"])
        .output()
        .unwrap();
    // rpm compresses manual pages.
    let plain = |name: &str| name.strip_suffix(".gz").unwrap_or(name).to_owned();
    let installed: BTreeSet<String> = String::from_utf8_lossy(&output.stdout).lines().map(plain).collect();
    let all = query(&packages()[0], "-l");
    let own = |name: &str| {
        ["/usr/lib/.build-id", "/usr/share/licenses/hostcni"].iter().any(|start| name.starts_with(start))
            || (name.starts_with("/usr/share/doc/hostcni") && !name.contains("/examples/"))
    };
    let directories =
        ["/etc/hostcni", "/etc/hostcni/config.d", "/usr/lib/hostcni", "/usr/libexec/cni"].iter().chain(&[
            "/usr/lib/NetworkManager",
            "/usr/lib/NetworkManager/conf.d",
            "/usr/share/doc/hostcni/examples",
            "/usr/share/hostcni",
            "/usr/share/hostcni/monitoring",
        ]);
    let directories: BTreeSet<&str> = directories.copied().collect();
    let packed: BTreeSet<String> =
        all.lines().filter(|name| !own(name) && !directories.contains(name)).map(plain).collect();
    assert_eq!(packed, installed);
    for name in all.lines() {
        // What an ostree system would not carry, or would share between deployments.
        for place in ["/opt", "/usr/local", "/var", "/run", "/home"] {
            assert!(!name.starts_with(place), "{name}");
        }
    }
    let config = query(&packages()[0], "--configfiles");
    assert_eq!(config.trim(), "/etc/hostcni/config.toml");
}

pub fn golden() {
    for what in ["scripts", "requires", "provides"] {
        // Versions of the C library are the building machine's.
        let machine =
            |line: &&str| ["lib", "ld-", "rtld", "rpmlib"].iter().all(|start| !line.starts_with(start));
        let said = query(&packages()[0], &format!("--{what}"));
        let said = said.lines().filter(machine).map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/rpm").join(what);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &said).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), said, "{what}");
    }
}

pub fn reproducible() {
    let again = directory("package-again");
    let _ = fs::remove_dir_all(&again);
    fs::create_dir_all(&again).unwrap();
    let second = build(&again, "1");
    let first = &packages()[0];
    let home = directory("package");
    for name in ["hostcni-0.1.0.tar.gz", "hostcni-0.1.0-vendor.tar.gz"] {
        assert!(fs::read(home.join(name)).unwrap() == fs::read(again.join(name)).unwrap(), "{name} differs");
    }
    let binary = |package: &Path| {
        let output = Command::new("/bin/sh")
            .args(["-c", "rpm2cpio \"$0\" | cpio -i --quiet --to-stdout ./usr/bin/hostcni"])
            .arg(package)
            .output()
            .unwrap();
        assert!(output.status.success() && output.stdout.len() > 1 << 20, "{}", output.status);
        output.stdout
    };
    assert!(binary(first) == binary(&second), "the binaries differ");
    assert!(fs::read(first).unwrap() == fs::read(&second).unwrap(), "the packages differ");
    let _ = fs::remove_dir_all(&again);
}

pub fn lint() {
    let filters = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/rpm/hostcni.rpmlintrc");
    let output = Command::new("rpmlint").arg("--rpmlintrc").arg(filters).arg(&packages()[0]).output();
    let output = output.expect("rpmlint is installed");
    assert!(output.status.success() && both(&output).contains("0 errors, 0 warnings"), "{}", both(&output));
}
