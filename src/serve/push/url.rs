//! Addresses of servers that documents are pushed to.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use hyper::Uri;
use serde::{Deserialize, Serialize};

/// Address of a server: `http` or `https`, a host, a port and the beginning of paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushUrl {
    pub(super) has_tls: bool,
    /// Name or address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Path without a slash at its end.
    pub(super) path: String,
}

impl FromStr for PushUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("'{text}' is no URL of a server: {why}");
        let uri: Uri = text.parse().map_err(|error| wrong(&format!("{error}")))?;
        let has_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("it begins with neither http:// nor https://")),
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(wrong("give names and passwords with --push-headers"));
        }
        if uri.query().is_some() {
            return Err(wrong("it has a query"));
        }
        let host = uri.host().unwrap_or_default();
        if authority != host && uri.port_u16().is_none() {
            return Err(wrong("its port is not one"));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        Ok(Self {
            has_tls,
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(if has_tls { 443 } else { 80 }),
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for PushUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.has_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl PushUrl {
    /// Host and port, as in `Host`.
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The path of `resource`, which the address may already end with.
    pub(super) fn path_of(&self, resource: &str) -> String {
        match self.path.ends_with(resource) {
            true => self.path.clone(),
            false => format!("{}{resource}", self.path),
        }
    }

    /// All addresses of the host.
    ///
    /// # Errors
    /// Returns the system's error if the name is not known.
    pub(super) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let addresses = (self.host.as_str(), self.port).to_socket_addrs()?;
        Ok(addresses.collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_scheme_a_host_a_port_and_a_path() {
        for (text, shown, ingest) in [
            ("http://a", "http://a:80", "/ingest"),
            ("https://a.b/", "https://a.b:443", "/ingest"),
            ("http://[::1]:4040/x/", "http://[::1]:4040/x", "/x/ingest"),
            ("http://a:1/ingest", "http://a:1/ingest", "/ingest"),
        ] {
            let url: PushUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(url.path_of("/ingest"), ingest);
        }
        for wrong in [
            "",
            "a:4040",
            "/a",
            "ftp://a",
            "http://",
            "http://user:secret@a",
            "http://a/?b=c",
            "http://a:99999",
        ] {
            let said = wrong.parse::<PushUrl>().unwrap_err();
            assert!(said.contains("is no URL"), "{wrong}: {said}");
        }
        let loopback: PushUrl = "http://[::1]:4040".parse().unwrap();
        assert_eq!(loopback.resolve().unwrap(), ["[::1]:4040".parse().unwrap()]);
    }
}
