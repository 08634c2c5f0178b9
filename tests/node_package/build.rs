//! Building the packages, once a run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::observe::both;

/// The package of the release 1, and the same sources as release 2.
pub fn packages() -> &'static [PathBuf; 2] {
    static BUILT: OnceLock<[PathBuf; 2]> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = directory("package");
        ["1", "2"].map(|release| build(&directory, release))
    })
}

/// Builds the package of a release into `directory`, from the commit that is checked out. The compiler's profile is
/// that of the tests: a release takes minutes of optimizing, and nothing here is about speed.
pub fn build(directory: &Path, release: &str) -> PathBuf {
    let target = directory.join("target");
    let flags = format!(
        "--without=check --define 'hostcni_profile dev' --define 'hostcni_target {}' --define 'hostcni_release {release}'",
        target.display()
    );
    let output = Command::new("make")
        .args(["--no-print-directory", "-C", env!("CARGO_MANIFEST_DIR"), "rpm"])
        .arg(format!("dist={}", directory.display()))
        .arg(format!("RPMFLAGS={flags}"))
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .output()
        .expect("make is there");
    assert!(output.status.success(), "make rpm: {}", both(&output));
    let architecture = std::env::consts::ARCH;
    let package = directory.join(format!("RPMS/{architecture}/hostcni-0.1.0-{release}.{architecture}.rpm"));
    assert!(package.exists(), "{} was not built: {}", package.display(), both(&output));
    package
}

/// A directory below cargo's target for this; kept between runs, so that crates are not compiled again.
pub fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("below cargo's target");
    directory
}
