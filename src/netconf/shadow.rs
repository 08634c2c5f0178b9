//! Which file of a directory a runtime takes first.

use std::path::{Path, PathBuf};

/// The endings that runtimes look for.
const ENDINGS: [&str; 3] = ["conf", "conflist", "json"];

/// The network configurations in `directory`, in the order in which runtimes take them (by name, as libcni's
/// `ConfFiles`). Empty when the directory cannot be read.
pub fn conf_files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let path = entry.path();
            let known = path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
            // libcni leaves out directories, and nothing else.
            let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            (known && !directory).then_some(path)
        })
        .collect();
    paths.sort();
    paths
}

/// The files that a runtime takes before the conf at `path`, first one first.
pub fn shadowing(path: &Path) -> Vec<PathBuf> {
    let Some(directory) = path.parent() else { return Vec::new() };
    conf_files(directory).into_iter().take_while(|other| other.file_name() < path.file_name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_sort_before_ours_shadow_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in
            ["10-a.conflist", "20-b.json", "30-c.txt", ".10-hidden.conf.hostcni", "80-net.conf", "90-d.conf"]
        {
            std::fs::write(dir.path().join(name), "{}").unwrap();
        }
        std::fs::create_dir(dir.path().join("05-dir.conf")).unwrap();
        let found = shadowing(&dir.path().join("80-net.conf"));
        assert_eq!(found, [dir.path().join("10-a.conflist"), dir.path().join("20-b.json")]);
        assert!(shadowing(Path::new("/no/such/directory/80.conf")).is_empty());
    }
}
