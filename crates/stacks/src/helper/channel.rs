//! Messages between two processes of gpuprobe: bytes, and open files.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Maximum size of a message, bytes.
const LIMIT: usize = 8 << 20;
/// Size of the length prefix of a message, bytes.
const LENGTH: usize = 4;
/// Maximum number of files that come with a message.
const MAX_FILES: usize = 3;

/// One end of a connection between two processes.
#[derive(Debug)]
pub struct Channel(pub UnixStream);

/// A message from the other process.
#[derive(Debug)]
pub struct ChannelMessage {
    /// Content of the message.
    pub bytes: Vec<u8>,
    /// Files that were sent with the message.
    pub files: Vec<File>,
}

impl Channel {
    /// Creates a connection and returns both ends.
    ///
    /// # Errors
    /// Returns the system's error if too many files are open.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Self(one), Self(other)))
    }

    /// Sends `bytes`, and up to three `files` with them.
    ///
    /// # Errors
    /// Returns the system's error if the other end is closed, or `InvalidInput` if the message is
    /// too large.
    pub fn send(&self, bytes: &[u8], files: &[&File]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).ok();
        let length = length.filter(|_| bytes.len() <= LIMIT);
        let length = length.ok_or(ErrorKind::InvalidInput)?.to_le_bytes();
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FILES))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(&files));
        }
        let parts = [IoSlice::new(&length), IoSlice::new(bytes)];
        let sent = sendmsg(&self.0, &parts, &mut rights, SendFlags::NOSIGNAL)?;
        let begun = sent.checked_sub(LENGTH).ok_or(ErrorKind::BrokenPipe)?;
        (&self.0).write_all(bytes.get(begun..).unwrap_or_default())
    }

    /// Waits for a message, until `deadline` or for ever. Files are accepted only with `takes_files`; otherwise the
    /// kernel refuses them.
    ///
    /// # Errors
    /// Returns `UnexpectedEof` if the other end is closed, `TimedOut` at the deadline, or `InvalidData` if the
    /// message is malformed.
    pub fn receive(
        &self,
        takes_files: bool,
        deadline: Option<Instant>,
    ) -> io::Result<ChannelMessage> {
        self.wait(deadline)?;
        let mut length = [0; LENGTH];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FILES))];
        let space = if takes_files { &mut space[..] } else { &mut [] };
        let mut rights = RecvAncillaryBuffer::new(space);
        let mut parts = [IoSliceMut::new(&mut length)];
        // The length comes whole from whoever sends as we do.
        match recvmsg(&self.0, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC)?.bytes {
            LENGTH => {}
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
        let files = rights.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let files = files.flatten().map(File::from).collect();
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > LIMIT {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; length];
        let mut rest = &mut bytes[..];
        while !rest.is_empty() {
            self.wait(deadline)?;
            match (&self.0).read(rest)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => rest = &mut rest[read..],
            }
        }
        Ok(ChannelMessage { bytes, files })
    }

    /// Waits until a part of a message is there, or the other end is closed.
    ///
    /// # Errors
    /// Returns `TimedOut` at `deadline`.
    pub fn wait(&self, deadline: Option<Instant>) -> io::Result<()> {
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            // Rounded up to milliseconds.
            let left = left.map(|left| left + Duration::from_millis(1));
            let left = left.map(|left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
            let mut ends = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ends, left.unwrap_or(PollTimeout::NONE)) {
                Ok(0) => return Err(ErrorKind::TimedOut.into()),
                Err(Errno::EINTR) => {}
                polled => return Ok(polled.map(drop)?),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Seek, read_to_string};

    use super::*;

    #[test]
    fn bytes_and_files_arrive() {
        let (one, other) = Channel::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"inside").unwrap();
        file.rewind().unwrap();
        let other_file = tempfile::tempfile().unwrap();
        one.send(b"first", &[&other_file, &file]).unwrap();
        one.send(b"", &[&file]).unwrap();
        let long = vec![7; 1 << 20];
        let sent = long.clone();
        let sender = std::thread::spawn(move || one.send(&sent, &[]));
        let mut first = other.receive(true, None).unwrap();
        assert_eq!((&first.bytes[..], first.files.len()), (&b"first"[..], 2));
        let inside = first.files.pop().unwrap();
        assert_eq!(read_to_string(inside).unwrap(), "inside");
        let second = other.receive(false, None).unwrap();
        assert!(second.bytes.is_empty() && second.files.is_empty());
        assert_eq!(other.receive(true, None).unwrap().bytes, long);
        sender.join().unwrap().unwrap();
        let ended = other.receive(true, None).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_silent_peer_times_out() {
        let (one, other) = Channel::pair().unwrap();
        let soon = Instant::now() + Duration::from_millis(40);
        let waited = other.receive(true, Some(soon)).unwrap_err();
        assert!(Instant::now() >= soon);
        assert_eq!(waited.kind(), ErrorKind::TimedOut);
        (&one.0).write_all(&u32::MAX.to_le_bytes()).unwrap();
        let refused = other.receive(true, None).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
        assert!(one.send(&vec![0; LIMIT + 1], &[]).is_err());
    }
}
