//! Whether the runtimes that are installed look where hostcni's plugin and conf are.

use std::path::{Path, PathBuf};

use super::Findings;
use super::scene::{Scene, files};

/// Where a runtime looks.
struct Looks {
    runtime: &'static str,
    /// Where that is said.
    said: String,
    plugins: Vec<PathBuf>,
    confs: Option<PathBuf>,
}

/// The plugin is in a directory that the runtime searches, and the conf in the one that it reads.
pub fn check(scene: &Scene, found: &mut Findings) {
    let installed =
        |name: &str| ["/usr/bin", "/usr/local/bin"].iter().any(|dir| Path::new(dir).join(name).exists());
    let mut all = Vec::new();
    if installed("crio") {
        all.push(crio());
    }
    if installed("containerd") {
        all.push(containerd());
    }
    if all.is_empty() {
        found.warning(
            "neither CRI-O nor containerd is installed",
            "install a runtime, or look at its settings by hand",
        );
    }
    for looks in all {
        if !looks.plugins.iter().any(|directory| directory.join("hostcni").exists()) {
            let searched: Vec<String> = looks.plugins.iter().map(|path| path.display().to_string()).collect();
            let reason =
                format!("{} looks for plugins in {} ({})", looks.runtime, searched.join(", "), looks.said);
            let remedy = format!(
                "ln -s /usr/bin/hostcni {}/hostcni",
                searched.first().map_or("/opt/cni/bin", String::as_str)
            );
            found.error(format!("{reason}, and hostcni is not there"), remedy);
        }
        let Some(confs) = &looks.confs else { continue };
        // Under Multus the runtime reads Multus' own conf.
        let elsewhere =
            scene.networks().iter().all(|network| network.conf.path.parent() != Some(confs.as_path()));
        if elsewhere && !scene.networks().is_empty() && !multus(confs) {
            let reason = format!("{} reads confs in {} ({})", looks.runtime, confs.display(), looks.said);
            found.error(format!("{reason}, and hostcni places none there"), "set network.conf.path");
        }
    }
}

fn multus(directory: &Path) -> bool {
    files(directory, &["conf", "conflist"])
        .iter()
        .any(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains("\"multus")))
}

fn table(path: &Path) -> Option<toml::Table> {
    std::fs::read_to_string(path).ok()?.parse().ok()
}

fn paths(value: Option<&toml::Value>) -> Option<Vec<PathBuf>> {
    let texts: Vec<PathBuf> = match value? {
        toml::Value::String(text) => vec![text.into()],
        toml::Value::Array(list) => list.iter().filter_map(|it| it.as_str().map(PathBuf::from)).collect(),
        _ => return None,
    };
    Some(texts).filter(|texts| !texts.is_empty())
}

/// crio.conf(5): later files override, key by key.
fn crio() -> Looks {
    let mut looks = Looks {
        runtime: "CRI-O",
        said: "its default".to_owned(),
        plugins: vec!["/opt/cni/bin".into(), "/usr/libexec/cni".into()],
        confs: Some("/etc/cni/net.d".into()),
    };
    let drop_ins = ["/usr/lib/crio/crio.conf.d", "/etc/crio/crio.conf.d"].map(Path::new);
    let all = std::iter::once(PathBuf::from("/etc/crio/crio.conf"))
        .chain(drop_ins.into_iter().flat_map(|directory| files(directory, &["conf"])));
    for path in all {
        let Some(network) = table(&path).and_then(|table| table.get("crio")?.get("network").cloned()) else {
            continue;
        };
        if let Some(plugins) = paths(network.get("plugin_dirs")) {
            looks.plugins = plugins;
            looks.said = path.display().to_string();
        }
        if let Some(directory) = network.get("network_dir").and_then(toml::Value::as_str) {
            looks.confs = Some(directory.into());
        }
    }
    looks
}

/// containerd's config.toml, of version 2 (CRI as one plugin) or 3 (split in two).
fn containerd() -> Looks {
    let path = Path::new("/etc/containerd/config.toml");
    let mut looks = Looks {
        runtime: "containerd",
        said: "its default".to_owned(),
        plugins: vec!["/opt/cni/bin".into()],
        confs: Some("/etc/cni/net.d".into()),
    };
    let plugins = table(path).and_then(|table| table.get("plugins").cloned());
    let names = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "cri"];
    let cni =
        plugins.and_then(|plugins| names.iter().find_map(|name| plugins.get(name)?.get("cni").cloned()));
    if let Some(cni) = cni {
        if let Some(directories) = paths(cni.get("bin_dirs").or(cni.get("bin_dir"))) {
            looks.plugins = directories;
            looks.said = path.display().to_string();
        }
        if let Some(directory) = cni.get("conf_dir").and_then(toml::Value::as_str) {
            looks.confs = Some(directory.into());
        }
    }
    looks
}
