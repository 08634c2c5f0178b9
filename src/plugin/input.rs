//! Standard input: bounded in size and in time.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cni::{Error, ErrorCode, MAX_CONFIG};

/// Reads the network configuration. A runtime that never closes its end cannot hold the plugin for ever.
pub fn read(deadline: Instant) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(8 << 10);
    let mut input = std::io::stdin().lock();
    let mut chunk = [0; 16 << 10];
    loop {
        wait(&input, deadline)?;
        match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::new(ErrorCode::Io, format!("standard input: {error}"))),
        }
        if bytes.len() > MAX_CONFIG {
            let text =
                format!("the network configuration on standard input is larger than {MAX_CONFIG} bytes");
            return Err(Error::new(ErrorCode::Decoding, text));
        }
    }
    String::from_utf8(bytes).map_err(|_| {
        Error::new(ErrorCode::Decoding, "the network configuration on standard input is not UTF-8")
    })
}

fn wait(input: &impl AsFd, deadline: Instant) -> Result<(), Error> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => {
                let text = "the network configuration on standard input did not end in time";
                return Err(Error::new(ErrorCode::Io, text));
            }
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new(ErrorCode::Io, format!("standard input: {errno}"))),
        }
    }
}
