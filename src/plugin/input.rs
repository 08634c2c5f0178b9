//! Standard input: bounded in size and in time.

use std::os::fd::AsFd;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::buffer::spare_capacity;

use crate::cni::{Error, ErrorCode, MAX_CONFIG};

/// How much is read in one step, at least; a network configuration is smaller as a rule.
const CHUNK: usize = 4 << 10;

/// Reads the network configuration. A runtime that never closes its end cannot hold the plugin for ever.
pub fn read(deadline: Instant) -> Result<String, Error> {
    // Not through std's buffer, and not over the stack: each page that is touched costs more than the reading.
    let mut bytes = Vec::with_capacity(2 * CHUNK);
    let input = rustix::stdio::stdin();
    loop {
        wait(&input, deadline)?;
        bytes.reserve(CHUNK);
        match rustix::io::read(input, spare_capacity(&mut bytes)) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::new(ErrorCode::Io, format!("standard input: {errno}"))),
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
