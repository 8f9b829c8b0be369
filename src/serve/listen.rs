//! Addresses to listen on.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail};
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
    /// Listens in the event loop of this thread. Returns the address, too, with the port that was chosen.
    pub(super) fn bind(listen: &Listen) -> io::Result<(Self, Listen)> {
        Ok(match listen {
            Listen::Ip(address) => {
                let listener = StdTcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = Listen::Ip(listener.local_addr()?);
                (Self::Ip(TcpListener::from_std(listener)?), address)
            }
            Listen::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
                (Self::Unix(listener), listen.clone())
            }
        })
    }

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
        let here: Listen = "127.0.0.1:9477".parse().unwrap();
        assert!(check_access(&here, false, false, false).is_ok());
    }

    #[tokio::test]
    async fn a_socket_is_removed_when_nobody_listens() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("socket");
        let listen = Listen::Unix(path.clone());
        let bound = Listener::bind(&listen).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, SOCKET_MODE);
        // In use.
        assert!(Listener::bind(&listen).is_err());
        drop(bound);
        drop(Listener::bind(&listen).unwrap());
        // Not ours to remove.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(Listener::bind(&listen).is_err());
        assert!(path.exists());
    }
}
