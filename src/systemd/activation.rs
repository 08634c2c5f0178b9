//! Taking the listening sockets that systemd passed.
//!
//! Promises that what comes back is a listening stream socket of the kind asked for with close-on-exec set, and
//! that every passed descriptor that is not taken is closed. Must run before the first thread: the environment is
//! cleaned, so that no child believes the descriptors are its own.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

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
    /// A socket that is for this machine only is open to others, or is no listening stream socket at all.
    #[error(
        "the socket named {name} listens on {address}: use ListenStream= with a path, 127.0.0.1:PORT or [::1]:PORT"
    )]
    NotLocal {
        /// The `FileDescriptorName=` looked for.
        name: String,
        /// Where it listens, as far as can be told.
        address: String,
    },
    /// The environment variables of the activation protocol make no sense.
    #[error("the environment of socket activation is damaged: {0}")]
    Damaged(String),
}

/// A listener that only this machine can reach.
#[derive(Debug)]
pub enum Local {
    /// On a path.
    Unix(OwnedFd),
    /// On a port of the loopback interface.
    Tcp(OwnedFd),
}

/// The sockets that systemd passed, by their `FileDescriptorName=`; dropped, it closes what was not taken.
#[derive(Debug)]
pub struct Passed(Vec<(OwnedFd, String)>);

/// What systemd passed.
///
/// Call it once, before any thread is started; a second call finds nothing.
pub fn receive() -> Result<Passed, ActivationError> {
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
    Ok(Passed(passed))
}

impl Passed {
    /// Takes the one socket called `name`, which has to be there and a unix socket.
    pub fn take(&mut self, name: &str) -> Result<OwnedFd, ActivationError> {
        let names = self.0.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ");
        match self.find(name)? {
            Some(socket) if listens(&socket) && is_unix(&socket) => Ok(socket),
            Some(_) => Err(ActivationError::WrongKind { name: name.to_owned() }),
            None if names.is_empty() => Err(ActivationError::NotPassed { name: name.to_owned() }),
            None => Err(ActivationError::OtherNames { name: name.to_owned(), passed: names }),
        }
    }

    /// Takes the one socket called `name`, if it was passed: nothing but this machine may reach it.
    pub fn take_local(&mut self, name: &str) -> Result<Option<Local>, ActivationError> {
        let Some(socket) = self.find(name)? else { return Ok(None) };
        match address(&socket) {
            _ if listens(&socket) && is_unix(&socket) => Ok(Some(Local::Unix(socket))),
            Some(address) if listens(&socket) && is_loopback(&address) => Ok(Some(Local::Tcp(socket))),
            address => {
                let address = address.map_or_else(|| "nothing".to_owned(), |address| address.to_string());
                Err(ActivationError::NotLocal { name: name.to_owned(), address })
            }
        }
    }

    fn find(&mut self, name: &str) -> Result<Option<OwnedFd>, ActivationError> {
        let (mut found, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|(_, its_name)| its_name == name);
        self.0 = others;
        match found.len() {
            0 | 1 => Ok(found.pop().map(|(socket, _)| socket)),
            count => Err(ActivationError::Several { name: name.to_owned(), count }),
        }
    }
}

fn address(socket: &OwnedFd) -> Option<SockaddrStorage> {
    getsockname::<SockaddrStorage>(socket.as_raw_fd()).ok()
}

fn is_unix(socket: &OwnedFd) -> bool {
    address(socket).is_some_and(|address| address.family() == Some(AddressFamily::Unix))
}

fn is_loopback(address: &SockaddrStorage) -> bool {
    let four = address.as_sockaddr_in().is_some_and(|address| address.ip().is_loopback());
    four || address.as_sockaddr_in6().is_some_and(|address| address.ip().is_loopback())
}

fn listens(socket: &OwnedFd) -> bool {
    getsockopt(socket, sockopt::SockType).is_ok_and(|kind| kind == SockType::Stream)
        && getsockopt(socket, sockopt::AcceptConn).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    fn select(name: &str, passed: Vec<(OwnedFd, String)>) -> Result<OwnedFd, ActivationError> {
        Passed(passed).take(name)
    }

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

    #[test]
    fn the_socket_for_this_machine_only_may_lack_and_leaves_the_other_alone() {
        let dir = tempfile::tempdir().unwrap();
        let cni = || (listener(&dir, "cni"), "cni".to_owned());
        let mut passed = Passed(vec![cni()]);
        assert!(passed.take_local("metrics").unwrap().is_none());
        passed.take("cni").unwrap();
        std::fs::remove_file(dir.path().join("cni")).unwrap();
        let mut passed = Passed(vec![(listener(&dir, "m"), "metrics".to_owned()), cni()]);
        assert!(matches!(passed.take_local("metrics"), Ok(Some(Local::Unix(_)))));
        passed.take("cni").unwrap();
        let mut passed = Passed(vec![
            (listener(&dir, "n"), "metrics".to_owned()),
            (listener(&dir, "o"), "metrics".to_owned()),
        ]);
        assert!(matches!(passed.take_local("metrics"), Err(ActivationError::Several { count: 2, .. })));
    }

    #[test]
    fn a_port_is_taken_on_the_loopback_interface_and_refused_elsewhere() {
        let take = |socket: OwnedFd| Passed(vec![(socket, "metrics".to_owned())]).take_local("metrics");
        for address in ["127.0.0.1:0", "127.8.0.1:0", "[::1]:0"] {
            let taken = take(TcpListener::bind(address).unwrap().into());
            assert!(matches!(taken, Ok(Some(Local::Tcp(_)))), "{address}: {taken:?}");
        }
        for address in ["0.0.0.0:0", "[::]:0"] {
            let socket = TcpListener::bind(address).unwrap();
            let port = socket.local_addr().unwrap().port();
            let text = take(socket.into()).unwrap_err().to_string();
            assert!(text.starts_with("the socket named metrics listens on "), "{text}");
            assert!(text.contains(&format!(":{port}: use ListenStream= with a path")), "{text}");
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(matches!(take(socket.into()), Err(ActivationError::NotLocal { .. })));
    }
}
