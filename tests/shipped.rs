//! What is shipped beside the binary and made from it: manual pages and completions are those of this command line.
//! `UPDATE_GOLDEN=1` writes them anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap_complete::Shell;

/// Every generated file, by its path below `packaging/usr/share`.
fn generated() -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut command = hostcni::cli::command();
    command.build();
    pages(&command, "hostcni", &mut files);
    for (shell, path) in [
        (Shell::Bash, "bash-completion/completions/hostcni"),
        (Shell::Zsh, "zsh/site-functions/_hostcni"),
        (Shell::Fish, "fish/vendor_completions.d/hostcni.fish"),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut hostcni::cli::command(), "hostcni", &mut text);
        files.insert(path.into(), text);
    }
    files.insert("man/man5/hostcni.toml.5".into(), options().into_bytes());
    files
}

/// A page for the command and each below it: hostcni(8), hostcni-conf-place(8).
fn pages(command: &clap::Command, name: &str, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let words = name.replace('-', " ");
    let still: &'static str = name.to_owned().leak();
    let named = command.clone().name(still).bin_name(words).display_name(still);
    let mut text = Vec::new();
    clap_mangen::Man::new(named).section("8").date("").render(&mut text).expect("memory takes it");
    files.insert(format!("man/man8/{name}.8").into(), text);
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, &format!("{name}-{}", below.get_name()), files);
    }
}

/// hostcni.toml(5): the shipped file, in which every option stands with its default and what it does.
fn options() -> String {
    let shipped = include_str!("../packaging/usr/lib/hostcni/config.toml");
    let shipped = shipped.replace('\\', "\\e").replace('-', "\\-").replace("\n.", "\n\\&.");
    let shipped: String = shipped
        .lines()
        .map(|line| line.replacen('\'', "\\(aq", usize::from(line.starts_with('\''))) + "\n")
        .collect();
    format!(
        ".TH HOSTCNI.TOML 5 \"\" \"hostcni\" \"hostcni\"\n.SH NAME\nhostcni.toml \\- configuration of hostcni\n\
         .SH SYNOPSIS\n.nf\n/usr/lib/hostcni/config.toml\n/etc/hostcni/config.toml\n/etc/hostcni/config.d/*.toml\n.fi\n\
         .SH DESCRIPTION\nLater files override earlier ones key by key, networks by their name. A file in\n\
         .I /etc/hostcni/config.d\nthat is a link to\n.I /dev/null\nmasks one of the same name in\n.IR /usr/lib/hostcni/config.d .\n\
         .B hostcni config check\ntells what is wrong with file, line and key;\n.B hostcni config show\n\
         prints what holds, and where each value comes from.\n.SH OPTIONS\n.nf\n{shipped}.fi\n.SH SEE ALSO\n\
         .BR hostcni (8),\n.BR hostcni\\-cni (7)\n"
    )
}

#[test]
fn manual_pages_and_completions_are_those_of_this_command_line() {
    let share = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/usr/share");
    let generated = generated();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        for (path, content) in &generated {
            fs::write(share.join(path), content).expect("it can be written");
        }
    }
    let wrong: Vec<_> = generated
        .iter()
        .filter(|(path, content)| fs::read(share.join(path)).ok().as_ref() != Some(content))
        .collect();
    let names: Vec<_> = wrong.iter().map(|(path, _)| path).collect();
    assert!(names.is_empty(), "not those of this command line; UPDATE_GOLDEN=1 makes them anew: {names:?}");
    // None is left of a verb that is gone.
    let pages = fs::read_dir(share.join("man/man8")).expect("it is there");
    for page in pages {
        let path = Path::new("man/man8").join(page.expect("it is readable").file_name());
        assert!(generated.contains_key(&path), "{} is of no verb", path.display());
    }
}

/// `man` finds nothing to complain about.
#[test]
fn manual_pages_are_well_formed() {
    let share = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/usr/share/man");
    for section in ["man5", "man7", "man8"] {
        for page in fs::read_dir(share.join(section)).expect("it is there") {
            let page = page.expect("it is readable").path();
            let output = std::process::Command::new("groff")
                .args(["-man", "-Tutf8", "-ww", "-z"])
                .arg(&page)
                .output()
                .expect("groff is installed");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{}: {said}", page.display());
        }
    }
}

/// LICENSE.dependencies lists the crates in the binary and their licences, as the RPM's rules want it.
#[test]
fn the_licences_of_the_crates_are_listed() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let tree = std::process::Command::new(cargo)
        .args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--no-dedupe"])
        .args(["--target", "x86_64-unknown-linux-gnu", "--format", "{l}: {p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8_lossy(&tree.stdout).replace(" (proc-macro)", "");
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.contains(": hostcni v")).collect();
    lines.sort_unstable();
    lines.dedup();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("LICENSE.dependencies");
    let text = lines.join("\n") + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).expect("it can be written");
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "UPDATE_GOLDEN=1 makes it anew");
}

/// The MachineConfig says what the Butane file says, and hostcni takes it.
#[test]
fn the_machine_config_is_made_of_the_butane_file_and_right() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/rhcos");
    let read = |name: &str| fs::read_to_string(directory.join(name)).expect("it is there");
    let (butane, machine) = (read("99-worker-hostcni.bu"), read("99-worker-hostcni.yaml"));
    let block = |text: &str, start: &str| -> String {
        let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("no {start:?}"));
        let indent = rest.len() - rest.trim_start_matches(' ').len();
        let lines = rest.lines().take_while(|line| line.len() > indent && line[..indent].trim().is_empty());
        lines.map(|line| format!("{}\n", &line[indent..])).fold(String::new(), |text, line| text + &line)
    };
    let inline = block(&butane, "inline: |\n");
    let (_, encoded) = machine.split_once("base64,").expect("the file is encoded");
    let encoded = encoded.lines().next().unwrap_or_default();
    let output = std::process::Command::new("/bin/sh")
        .args(["-c", "echo \"$0\" | base64 -d", encoded])
        .output()
        .expect("base64 is there");
    assert_eq!(String::from_utf8_lossy(&output.stdout), inline);
    assert_eq!(block(&machine, "contents: |\n"), block(&butane, "contents: |\n"));

    let root = tempfile::tempdir().expect("a directory can be made");
    let config = root.path().join("etc/hostcni/config.d");
    fs::create_dir_all(&config).expect("below a directory of our own");
    fs::write(config.join("50-openshift.toml"), inline).expect("below a directory of our own");
    let node = "[[network]]\nname = \"openshift-sdn\"\nsubnets = [\"10.129.2.0/23\"]\n";
    fs::write(config.join("60-node.toml"), node).expect("below a directory of our own");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_hostcni"))
        .args(["config", "check", "--root"])
        .arg(root.path())
        .output()
        .expect("hostcni runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
