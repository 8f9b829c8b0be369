//! Messages between the tracing process and the HTTP process.

use std::io::{self, ErrorKind};

use gpuprobe_os::channel::Channel;
use serde::{Deserialize, Serialize};

/// A document that the HTTP process asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum ServedDocument {
    /// The state of the session, as [`SessionStatus`].
    Status,
    /// Metrics, in the text format of `OpenMetrics`.
    Metrics,
    /// The live report, JSON.
    Report,
    /// The live explanation, JSON.
    Explain,
    /// Profile of live memory, pprof.
    InUse,
    /// Profile of all memory ever allocated, pprof.
    Allocated,
    /// Profile of launches by kernel, pprof.
    Launches,
}

impl ServedDocument {
    /// All documents.
    pub(crate) const ALL: [Self; 7] = [
        Self::Status,
        Self::Metrics,
        Self::Report,
        Self::Explain,
        Self::InUse,
        Self::Allocated,
        Self::Launches,
    ];
}

/// State of a session, for the status page.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SessionStatus {
    /// Version of gpuprobe, as `--version` has it.
    pub version: String,
    /// Id of the tracing process.
    pub pid: u32,
    /// Time since tracing began, seconds.
    pub seconds: u64,
    /// The traced modes, in words.
    pub modes: Vec<String>,
    /// The processes that are traced, in words.
    pub target: String,
    /// Kind of attachment, as `doctor` names it.
    pub attached: String,
    /// Number of probed CUDA libraries.
    pub libraries: usize,
    /// Number of probed functions in them.
    pub functions: usize,
    /// Number of live traced processes.
    pub processes: usize,
    /// Lost events, by what they were about, without those that none was lost of.
    pub lost: Vec<(String, u64)>,
    /// Whether a part of the kernel's side is behind.
    pub is_behind: bool,
}

/// Certificates and keys, PEM.
#[derive(Clone, Serialize, Deserialize)]
pub struct TlsMaterial {
    /// The certificate chain, the server's own first.
    pub certificate: String,
    /// The private key of the first certificate.
    pub key: String,
    /// Certificates of the authorities of clients, if clients need a certificate.
    pub client_authorities: Option<String>,
}

/// Settings of the HTTP process, sent with the listening socket.
#[derive(Clone, Serialize, Deserialize)]
pub struct ServerSettings {
    /// The socket is a Unix socket.
    pub is_unix: bool,
    /// Only names of this host are accepted as `Host`.
    pub is_loopback: bool,
    /// The bearer token that requests need, if any.
    pub token: Option<String>,
    /// Certificates and keys, if connections use TLS.
    pub tls: Option<TlsMaterial>,
}

/// First byte of a part of an answer: more parts follow.
pub(crate) const MORE: u8 = 0;
/// First byte of the last part.
pub(crate) const LAST: u8 = 1;
/// First byte of an answer that is the reason why there is none.
pub(crate) const FAILED: u8 = 2;

/// Bytes of a part.
const PART: usize = 1 << 20;

/// Sends an answer, in parts.
///
/// # Errors
/// Returns the system's error if the other end is closed.
pub(crate) fn answer(channel: &Channel, answer: &Result<Vec<u8>, String>) -> io::Result<()> {
    let (last, bytes) = match answer {
        Ok(bytes) => (LAST, bytes.as_slice()),
        Err(why) => (FAILED, why.as_bytes()),
    };
    let mut rest = bytes;
    while rest.len() > PART {
        let (part, after) = rest.split_at(PART);
        channel.send(&[&[MORE], part].concat(), None)?;
        rest = after;
    }
    channel.send(&[&[last], rest].concat(), None)
}

/// The document that a message asks for.
///
/// # Errors
/// Returns `InvalidData` if it is none.
pub(crate) fn asked(message: &[u8]) -> io::Result<ServedDocument> {
    serde_json::from_slice(message).map_err(|_| ErrorKind::InvalidData.into())
}
