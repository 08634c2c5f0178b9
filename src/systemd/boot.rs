//! The id of this boot: what was written under another one describes a kernel that is gone.

use std::io;

/// The kernel's boot id, 32 lower-case hex digits as `journalctl --list-boots` prints it.
pub fn id() -> io::Result<String> {
    libsystemd::id128::get_boot()
        .map(|id| id.lower_hex())
        .map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_boot_id_is_the_kernels() {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(super::id().unwrap(), kernel.trim().replace('-', ""));
    }
}
