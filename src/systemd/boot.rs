//! The id of this boot: what was written under another one describes a kernel, or a container, that is gone.

use std::io;

/// The kernel's boot id, and when process 1 began.
///
/// The second half is for nodes in containers, which boot while their kernel goes on. Neither changes while the node
/// is up: also systemd's own re-execution keeps its process.
pub fn id() -> io::Result<String> {
    let kernel = libsystemd::id128::get_boot().map_err(|error| io::Error::other(error.to_string()))?;
    let stat = std::fs::read_to_string("/proc/1/stat")?;
    // proc_pid_stat(5): the name in parentheses may hold anything; starttime is field 22, so the 20th after it.
    let began = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(19));
    let began = began.ok_or_else(|| io::Error::other("/proc/1/stat has no start time"))?;
    Ok(format!("{}-{began}", kernel.lower_hex()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_boot_id_is_the_kernels_and_that_of_process_1() {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let id = super::id().unwrap();
        let (boot, began) = id.split_once('-').unwrap();
        assert_eq!(boot, kernel.trim().replace('-', ""));
        assert!(began.parse::<u64>().is_ok(), "{id}");
        assert_eq!(super::id().unwrap(), id);
    }
}
