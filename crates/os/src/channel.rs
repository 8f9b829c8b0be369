//! Messages between two processes of gpuprobe: bytes, and optionally an open file.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Maximum size of a message, bytes.
const LIMIT: usize = 8 << 20;
/// Interval at which a blocked receiver checks whether to continue.
const SLICE: Duration = Duration::from_millis(20);
/// Size of the length prefix of a message, bytes.
const LENGTH: usize = 4;

/// One end of a connection between two processes.
#[derive(Debug)]
pub struct Channel(UnixStream);

/// A message from the other process.
#[derive(Debug)]
pub struct ChannelMessage {
    /// Content of the message.
    pub bytes: Vec<u8>,
    /// File that was sent with the message.
    pub file: Option<File>,
}

impl From<OwnedFd> for Channel {
    fn from(end: OwnedFd) -> Self {
        Self(end.into())
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0.into()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
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

    /// Limits the time for which sending may wait for the other end.
    ///
    /// # Errors
    /// Returns the system's error; none is expected.
    pub fn limit_sending(&self, time: Duration) -> io::Result<()> {
        self.0.set_write_timeout(Some(time))
    }

    /// Ends the connection, also for who waits for a message.
    pub fn shut_down(&self) {
        // Fails only if the other end has done it.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// Sends `bytes`, and `file` with them.
    ///
    /// # Errors
    /// Returns the system's error if the other end is closed, or `InvalidInput` if the message is
    /// too large.
    pub fn send(&self, bytes: &[u8], file: Option<&File>) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).ok();
        let length = length.filter(|_| bytes.len() <= LIMIT);
        let length = length.ok_or(ErrorKind::InvalidInput)?.to_le_bytes();
        let files: Vec<_> = file.iter().map(|file| file.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&files)];
        let rights = if files.is_empty() { &[] } else { &rights[..] };
        let flags = MsgFlags::MSG_NOSIGNAL;
        let parts = [IoSlice::new(&length), IoSlice::new(bytes)];
        let sent = sendmsg::<()>(self.0.as_raw_fd(), &parts, rights, flags, None)?;
        let rest = bytes.get(sent.saturating_sub(LENGTH)..).unwrap_or_default();
        if sent < LENGTH {
            return Err(ErrorKind::BrokenPipe.into());
        }
        (&self.0).write_all(rest)
    }

    /// Waits for a message. A file is accepted only with `takes_files`; otherwise the kernel
    /// refuses it. The wait continues as long as `goes_on` returns true, or forever without it.
    ///
    /// # Errors
    /// Returns `UnexpectedEof` if the other end is closed, `TimedOut` if `goes_on` returned false,
    /// or `InvalidData` if the message is malformed.
    pub fn receive(
        &self,
        takes_files: bool,
        goes_on: &mut Option<&mut dyn FnMut() -> bool>,
    ) -> io::Result<ChannelMessage> {
        let mut length = [0; LENGTH];
        self.wait(goes_on)?;
        let file = self.begin(&mut length, takes_files)?;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > LIMIT {
            return Err(ErrorKind::InvalidData.into());
        }
        // Memory is allocated only for bytes that have arrived.
        let mut bytes = Vec::new();
        let mut part = [0; 64 << 10];
        while bytes.len() < length {
            self.wait(goes_on)?;
            let wanted = part.len().min(length - bytes.len());
            let read = (&self.0).read(&mut part[..wanted])?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            bytes.extend_from_slice(&part[..read]);
        }
        Ok(ChannelMessage { bytes, file })
    }

    /// Reads the length, and the file that is sent with it.
    fn begin(&self, length: &mut [u8; LENGTH], takes_files: bool) -> io::Result<Option<File>> {
        let mut space = takes_files.then(|| nix::cmsg_space!(std::os::fd::RawFd));
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_WAITALL;
        let mut parts = [IoSliceMut::new(length)];
        let received = recvmsg::<()>(self.0.as_raw_fd(), &mut parts, space.as_deref_mut(), flags)?;
        let mut file = None;
        if takes_files {
            for message in received.cmsgs()? {
                if let ControlMessageOwned::ScmRights(numbers) = message {
                    for number in numbers {
                        // SAFETY: the kernel has just created the descriptor for this process
                        // alone.
                        #[allow(unsafe_code)]
                        let fd = unsafe { OwnedFd::from_raw_fd(number) };
                        file = Some(File::from(fd));
                    }
                }
            }
        }
        match received.bytes {
            LENGTH => Ok(file),
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// Waits until the socket is readable.
    fn wait(&self, goes_on: &mut Option<&mut dyn FnMut() -> bool>) -> io::Result<()> {
        loop {
            let mut ends = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            let at_most = match goes_on {
                Some(_) => PollTimeout::try_from(SLICE).unwrap_or(PollTimeout::ZERO),
                None => PollTimeout::NONE,
            };
            match poll(&mut ends, at_most) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if let Some(goes_on) = goes_on
                && !goes_on()
            {
                return Err(ErrorKind::TimedOut.into());
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
        one.send(b"first", Some(&file)).unwrap();
        one.send(b"", Some(&file)).unwrap();
        let long = vec![7; 1 << 20];
        let sent = long.clone();
        let sender = std::thread::spawn(move || one.send(&sent, None));
        let first = other.receive(true, &mut None).unwrap();
        assert_eq!(first.bytes, b"first");
        assert_eq!(read_to_string(first.file.unwrap()).unwrap(), "inside");
        let second = other.receive(false, &mut None).unwrap();
        assert!(second.bytes.is_empty() && second.file.is_none());
        assert_eq!(other.receive(true, &mut None).unwrap().bytes, long);
        sender.join().unwrap().unwrap();
        let ended = other.receive(true, &mut None).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_silent_peer_times_out() {
        let (one, other) = Channel::pair().unwrap();
        let mut asked = 0;
        let mut goes_on = || {
            asked += 1;
            asked < 3
        };
        let waited = other.receive(true, &mut Some(&mut goes_on)).unwrap_err();
        assert_eq!(waited.kind(), ErrorKind::TimedOut);
        (&one.0).write_all(&u32::MAX.to_le_bytes()).unwrap();
        let refused = other.receive(true, &mut None).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
        assert!(one.send(&vec![0; LIMIT + 1], None).is_err());
    }
}
