//! Addresses to listen on.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

/// Permissions of a Unix socket: its owner and its group may connect.
const SOCKET_MODE: u32 = 0o660;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl Default for Listen {
    fn default() -> Self {
        Self::Ip(SocketAddr::from(([127, 0, 0, 1], 9477)))
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Self::Unix(path.into())),
                false => Err(format!("'{path}' is not an absolute path")),
            };
        }
        text.parse().map(Self::Ip).map_err(|_| {
            format!("'{text}' is neither ADDRESS:PORT ([ADDRESS]:PORT for IPv6) nor unix:/PATH")
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Listen {
    /// Whether only this host can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Ip(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Opens the listening socket, non-blocking.
    ///
    /// # Errors
    /// Returns an error if the address is in use, or the system refuses it.
    pub fn bind(&self) -> Result<BoundSocket> {
        let bound = match self {
            Self::Ip(address) => StdTcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok((Self::Ip(listener.local_addr()?), OwnedFd::from(listener)))
            }),
            Self::Unix(path) => bind_path(path).map(|socket| (self.clone(), socket)),
        };
        let (address, socket) = bound.with_context(|| format!("cannot listen on {self}"))?;
        Ok(BoundSocket { socket, address })
    }
}

fn bind_path(path: &Path) -> io::Result<OwnedFd> {
    remove_stale(path)?;
    let listener = StdUnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    listener.set_nonblocking(true)?;
    Ok(listener.into())
}

/// Removes a socket that nobody listens on any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).is_err_and(refused) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// A listening socket. The file of a Unix socket is removed when this is dropped.
#[derive(Debug)]
pub struct BoundSocket {
    socket: OwnedFd,
    /// Its address, with the port that was chosen.
    pub address: Listen,
}

impl BoundSocket {
    /// The same socket in the event loop that runs here; dropping it does not remove the file.
    ///
    /// # Errors
    /// Returns the system's error if too many files are open.
    pub(super) fn listener(&self) -> io::Result<Listener> {
        let socket = self.socket.try_clone()?;
        Ok(match self.address {
            Listen::Ip(_) => Listener::Ip(TcpListener::from_std(socket.into())?),
            Listen::Unix(_) => Listener::Unix(UnixListener::from_std(socket.into())?),
        })
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if let Listen::Unix(path) = &self.address {
            let _ = fs::remove_file(path);
        }
    }
}

/// Bytes in both directions.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// A listening socket in the event loop.
pub(super) enum Listener {
    /// Of an IP address.
    Ip(TcpListener),
    /// Of a path.
    Unix(UnixListener),
}

impl Listener {
    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<Box<dyn ByteStream>> {
        Ok(match self {
            Self::Ip(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Checks that only who may read the answers can connect: from other hosts with TLS, and a token or a
/// certificate.
///
/// # Errors
/// Returns what is missing.
pub(crate) fn check_access(
    listen: &Listen,
    has_tls: bool,
    has_proof: bool,
    insecure: bool,
) -> Result<()> {
    if listen.is_local() || insecure || (has_tls && has_proof) {
        return Ok(());
    }
    bail!(
        "{listen} can be reached from other hosts: give --tls-cert and --tls-key, and --token-file or \
         --client-ca; or --insecure-listen, for everybody who can reach it"
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        for (text, is_local) in [
            ("127.0.0.1:9477", true),
            ("[::1]:0", true),
            ("unix:/run/gpuprobe.sock", true),
            ("0.0.0.0:9477", false),
            ("[::]:9477", false),
            ("10.0.0.1:80", false),
        ] {
            let listen: Listen = text.parse().unwrap();
            assert_eq!(listen.to_string(), text);
            assert_eq!(listen.is_local(), is_local, "{text}");
        }
        for wrong in [
            "",
            "9477",
            "localhost:9477",
            "unix:x",
            "1.2.3.4",
            "::1:80:x",
        ] {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
        assert_eq!(Listen::default().to_string(), "127.0.0.1:9477");
    }

    #[test]
    fn other_hosts_need_tls_and_a_proof() {
        let everywhere: Listen = "0.0.0.0:9477".parse().unwrap();
        for (tls, proof, insecure, is_allowed) in [
            (false, false, false, false),
            (true, false, false, false),
            (false, true, false, false),
            (true, true, false, true),
            (false, false, true, true),
        ] {
            let checked = check_access(&everywhere, tls, proof, insecure);
            assert_eq!(checked.is_ok(), is_allowed, "{tls} {proof} {insecure}");
        }
        assert!(check_access(&Listen::default(), false, false, false).is_ok());
    }

    #[test]
    fn a_socket_is_removed_when_nobody_listens() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("socket");
        let listen = Listen::Unix(path.clone());
        let bound = listen.bind().unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, SOCKET_MODE);
        // In use.
        assert!(listen.bind().is_err());
        drop(bound);
        assert!(!path.exists());
        drop(StdUnixListener::bind(&path).unwrap());
        drop(listen.bind().unwrap());
        // Not ours to remove.
        fs::write(&path, "").unwrap();
        assert!(listen.bind().is_err());
        assert!(path.exists());
    }
}
