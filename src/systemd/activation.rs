//! Taking the listening socket that systemd passed.
//!
//! Promises that what comes back is a listening unix stream socket with close-on-exec set, and that every
//! other passed descriptor is closed. Must run before the first thread: the environment is cleaned, so that
//! no child believes the descriptors are its own.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, SockType, SockaddrLike, SockaddrStorage, getsockname, getsockopt, sockopt,
};

/// Why no socket could be taken.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// systemd passed nothing at all: started by hand, or the socket unit is down.
    #[error(
        "no socket named {name} was passed: start hostcni by its socket unit (systemctl start hostcni.socket), \
         or use --listen"
    )]
    NotPassed {
        /// The `FileDescriptorName=` looked for.
        name: String,
    },
    /// systemd passed sockets, but none of that name.
    #[error(
        "no socket named {name} was passed, only {passed}: set FileDescriptorName={name} in the socket unit, or \
         use --listen"
    )]
    OtherNames {
        /// The `FileDescriptorName=` looked for.
        name: String,
        /// The names that were passed.
        passed: String,
    },
    /// Serving only one of several would let the clients of the others hang.
    #[error("{count} sockets named {name} were passed: leave one ListenStream= in the socket unit")]
    Several {
        /// The `FileDescriptorName=` looked for.
        name: String,
        /// How many carry it.
        count: usize,
    },
    /// The descriptor is something else.
    #[error("the socket named {name} is not a listening unix stream socket: use ListenStream= with a path")]
    WrongKind {
        /// The `FileDescriptorName=` looked for.
        name: String,
    },
    /// The environment variables of the activation protocol make no sense.
    #[error("the environment of socket activation is damaged: {0}")]
    Damaged(String),
}

/// Takes the one passed socket called `name` (`FileDescriptorName=`).
///
/// Call it once, before any thread is started; a second call finds nothing.
pub fn take(name: &str) -> Result<OwnedFd, ActivationError> {
    let passed = libsystemd::activation::receive_descriptors_with_names(true)
        .map_err(|error| ActivationError::Damaged(error.to_string()))?;
    let passed = passed
        .into_iter()
        .map(|(descriptor, name)| {
            // SAFETY: systemd passed this descriptor to this process (LISTEN_PID was checked) and the library
            // does not close it; the variables are unset now, so nobody else takes ownership of it again.
            (unsafe { OwnedFd::from_raw_fd(descriptor.into_raw_fd()) }, name)
        })
        .collect();
    select(name, passed)
}

/// Picks the socket called `name`; dropping the rest closes it.
fn select(name: &str, passed: Vec<(OwnedFd, String)>) -> Result<OwnedFd, ActivationError> {
    let names = passed.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ");
    let mut found: Vec<OwnedFd> = passed
        .into_iter()
        .filter_map(|(descriptor, its_name)| (its_name == name).then_some(descriptor))
        .collect();
    let name = name.to_owned();
    match (found.len(), found.pop()) {
        (1, Some(socket)) if is_listening_unix_stream(&socket) => Ok(socket),
        (1, Some(_)) => Err(ActivationError::WrongKind { name }),
        (0, _) if names.is_empty() => Err(ActivationError::NotPassed { name }),
        (0, _) => Err(ActivationError::OtherNames { name, passed: names }),
        (count, _) => Err(ActivationError::Several { name, count }),
    }
}

fn is_listening_unix_stream(socket: &OwnedFd) -> bool {
    use std::os::fd::AsRawFd;
    let unix = getsockname::<SockaddrStorage>(socket.as_raw_fd())
        .is_ok_and(|address| address.family() == Some(AddressFamily::Unix));
    unix && getsockopt(socket, sockopt::SockType).is_ok_and(|kind| kind == SockType::Stream)
        && getsockopt(socket, sockopt::AcceptConn).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    fn listener(dir: &tempfile::TempDir, name: &str) -> OwnedFd {
        UnixListener::bind(dir.path().join(name)).unwrap().into()
    }

    #[test]
    fn the_socket_is_found_by_its_name_among_others() {
        let dir = tempfile::tempdir().unwrap();
        let other = UnixDatagram::unbound().unwrap().into();
        let passed = vec![(other, "varlink".to_owned()), (listener(&dir, "a"), "cni".to_owned())];
        select("cni", passed).unwrap();
    }

    #[test]
    fn a_start_by_hand_says_how_to_start_it() {
        let text = select("cni", vec![]).unwrap_err().to_string();
        assert!(
            text.starts_with("no socket named cni was passed: start hostcni by its socket unit"),
            "{text}"
        );
        assert!(text.ends_with("use --listen"), "{text}");
    }

    #[test]
    fn wrong_names_several_and_wrong_kinds_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let error = select("cni", vec![(listener(&dir, "a"), "unknown".to_owned())]).unwrap_err();
        assert!(matches!(error, ActivationError::OtherNames { passed, .. } if passed == "unknown"));
        let two = vec![(listener(&dir, "b"), "cni".to_owned()), (listener(&dir, "c"), "cni".to_owned())];
        assert!(matches!(select("cni", two), Err(ActivationError::Several { count: 2, .. })));
        let (connected, _peer) = UnixStream::pair().unwrap();
        let error = select("cni", vec![(connected.into(), "cni".to_owned())]).unwrap_err();
        assert!(matches!(error, ActivationError::WrongKind { .. }));
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = select("cni", vec![(file.into(), "cni".to_owned())]).unwrap_err();
        assert!(matches!(error, ActivationError::WrongKind { .. }));
    }
}
