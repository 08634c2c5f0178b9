//! What the kernel is made of.

use std::path::Path;

use super::scene::Scene;
use super::{Findings, Verdict};

/// Modules, and what takes them: without the first few there is no network, without the others something is refused.
const NEEDED: &[(&str, Verdict, &str)] = &[
    ("bridge", Verdict::Error, "the bridge of the pods"),
    ("veth", Verdict::Error, "the links of the pods"),
    ("nf_tables", Verdict::Error, "masquerading, host ports and anti-spoofing"),
    ("sch_tbf", Verdict::Warning, "bandwidth limits"),
    ("sch_ingress", Verdict::Warning, "bandwidth limits"),
    ("cls_u32", Verdict::Warning, "bandwidth limits"),
    ("act_mirred", Verdict::Warning, "bandwidth limits"),
    ("ifb", Verdict::Warning, "bandwidth limits"),
];

/// The modules that hostcni's networks take are there, loaded or not.
pub fn check(scene: &Scene, found: &mut Findings) {
    if scene.bridges().next().is_none() {
        return;
    }
    let Ok(release) = std::fs::read_to_string("/proc/sys/kernel/osrelease") else { return };
    let below = Path::new("/lib/modules").join(release.trim());
    let lists = ["modules.builtin", "modules.dep"].map(|name| std::fs::read_to_string(below.join(name)));
    // Without the lists, in a container say, nobody knows.
    let [Ok(builtin), Ok(loadable)] = lists else { return };
    for (name, verdict, what) in NEEDED {
        let is_loaded = Path::new("/sys/module").join(name).exists();
        if !is_loaded && !lists_it(&builtin, name) && !lists_it(&loadable, name) {
            let reason = format!("the kernel {} has no module {name}: no {what}", release.trim());
            let remedy =
                "install the rest of the kernel's modules (kernel-modules-core, kernel-modules-extra)";
            found.0.push((*verdict, reason, remedy.to_owned()));
        }
    }
}

/// Whether one of the lines names the module's file: `kernel/net/sched/sch_tbf.ko.xz: …`.
fn lists_it(list: &str, module: &str) -> bool {
    list.lines().any(|line| {
        let file = line.split(':').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        file.split('.').next().is_some_and(|stem| stem.replace('-', "_") == module)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_by_its_file_however_it_is_packed() {
        let list = "kernel/net/sched/sch_tbf.ko.xz: kernel/lib/x.ko.xz\nkernel/net/act-mirred.ko\n";
        assert!(lists_it(list, "sch_tbf") && lists_it(list, "act_mirred"));
        assert!(!lists_it(list, "x") && !lists_it(list, "sch") && !lists_it("", "sch_tbf"));
    }
}
