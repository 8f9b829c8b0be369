//! Requests to a server that documents are pushed to.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::stream::ByteStream;
use super::super::tls::certificates;
use super::url::PushUrl;
use gpuprobe_model::text::printable;

/// Maximum time of a push, from the connection to the end of the answer.
const PUSH_WITHIN: Duration = Duration::from_secs(10);
/// Maximum bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;
/// Maximum characters of an answer that are said.
const SAID: usize = 200;

const AGENT: &str = concat!("gpuprobe/", env!("CARGO_PKG_VERSION"));

/// A document to push.
pub(super) struct PushedDocument {
    /// Path and query.
    pub(super) path: String,
    pub(super) content_type: &'static str,
    /// The body is compressed by gzip, and its headers say so.
    pub(super) is_gzip: bool,
    pub(super) body: Vec<u8>,
}

/// Failure of a push.
pub(super) struct PushError {
    /// There was no connection: the host may have another address by now.
    pub(super) is_unreachable: bool,
    pub(super) why: anyhow::Error,
}

/// A server, with the addresses of its host.
pub(super) struct PushClient {
    pub(super) url: PushUrl,
    addresses: Vec<SocketAddr>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    headers: HeaderMap,
}

impl PushClient {
    /// The client of `url`, whose host is looked up now.
    ///
    /// # Errors
    /// Returns an error if a header or a certificate is not one.
    pub(super) fn new(
        url: PushUrl,
        headers: &[(String, String)],
        authorities: Option<&str>,
    ) -> Result<Self> {
        let tls = match url.has_tls {
            true => Some((
                connector(authorities)?,
                ServerName::try_from(url.host.clone())?,
            )),
            false => None,
        };
        Ok(Self {
            addresses: url.resolve().unwrap_or_default(),
            url,
            tls,
            headers: header_map(headers)?,
        })
    }

    /// Sends `document`.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached, does not answer in time, or refuses.
    pub(super) async fn push(&self, document: PushedDocument) -> Result<(), PushError> {
        let mut is_unreachable = true;
        let pushed = timeout(PUSH_WITHIN, async {
            let stream = self.connect().await?;
            is_unreachable = false;
            self.exchange(stream, document).await
        });
        let pushed = pushed
            .await
            .unwrap_or_else(|_| Err(anyhow!("no answer within {PUSH_WITHIN:?}")));
        pushed.map_err(|why| PushError {
            is_unreachable,
            why,
        })
    }

    async fn connect(&self) -> Result<Box<dyn ByteStream>> {
        ensure!(
            !self.addresses.is_empty(),
            "the host '{}' is not known",
            self.url.host
        );
        let stream = TcpStream::connect(&self.addresses[..]).await?;
        Ok(match &self.tls {
            None => Box::new(stream),
            Some((connector, name)) => Box::new(connector.connect(name.clone(), stream).await?),
        })
    }

    async fn exchange(&self, stream: Box<dyn ByteStream>, document: PushedDocument) -> Result<()> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = self.request(document)?;
        let answered = async {
            let answer = sender.send_request(request).await?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let body = body.map(Collected::to_bytes).unwrap_or_default();
            anyhow::Ok((head.status, body))
        };
        // The answer may still be on its way to us when the connection has ended.
        let connection = async {
            let _ = connection.await;
            pending::<Infallible>().await
        };
        let (status, body) = tokio::select! {
            answered = answered => answered?,
            never = connection => match never {},
        };
        let said: String = String::from_utf8_lossy(&body).chars().take(SAID).collect();
        ensure!(
            status.is_success(),
            "the server answered {status}: {}",
            printable(said.trim())
        );
        Ok(())
    }

    fn request(&self, document: PushedDocument) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::new(Full::new(Bytes::from(document.body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = document.path.parse()?;
        let headers = request.headers_mut();
        let fixed = HeaderValue::from_static;
        headers.insert(header::HOST, HeaderValue::from_str(&self.url.authority())?);
        headers.insert(header::USER_AGENT, fixed(AGENT));
        headers.insert(header::CONTENT_TYPE, fixed(document.content_type));
        headers.insert(header::CONNECTION, fixed("close"));
        if document.is_gzip {
            headers.insert(header::CONTENT_ENCODING, fixed("gzip"));
        }
        headers.extend(self.headers.clone());
        Ok(request)
    }
}

/// Headers by name.
///
/// # Errors
/// Returns an error if one is not valid.
pub(crate) fn header_map(headers: &[(String, String)]) -> Result<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let wrong = || format!("'{name}' is no header");
        let name = HeaderName::from_bytes(name.as_bytes()).with_context(wrong)?;
        let mut value = HeaderValue::from_str(value).with_context(|| format!("value of {name}"))?;
        value.set_sensitive(true);
        map.append(name, value);
    }
    Ok(map)
}

/// TLS with the authorities in a PEM text, or those of the system.
///
/// # Errors
/// Returns an error if there is no certificate.
pub(crate) fn connector(authorities: Option<&str>) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for one in certificates(pem).context("--push-ca")? {
                roots.add(one).context("--push-ca")?;
            }
        }
        None => {
            let of_system = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(of_system.certs);
            ensure!(
                !roots.is_empty(),
                "this host has no certificates of authorities; give --push-ca"
            );
        }
    }
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions()?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
