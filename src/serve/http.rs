//! Requests and answers. The interface only reads.

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::timeout;

use super::documents::{Documents, Refusal, ServedDocument};
use super::{Listen, ServeConfig};
use gpuprobe_views::metrics::{OPENMETRICS, PROMETHEUS, prometheus};

/// Maximum time of a document; later, the client is told to come again.
const DOCUMENT_WITHIN: Duration = Duration::from_secs(8);
/// Maximum time of an answer to whether tracing goes on.
const READY_WITHIN: Duration = Duration::from_secs(2);

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

/// The path that is answered to whoever asks, whether or not tracing goes on.
const ALIVE: &str = "/healthz";

/// Paths, their documents, and the types of these.
const DOCUMENTS: &[(&str, ServedDocument, &str)] = &[
    ("/", ServedDocument::Page, HTML),
    ("/readyz", ServedDocument::Ready, TEXT),
    ("/metrics", ServedDocument::Metrics, OPENMETRICS),
    ("/api/v1/report", ServedDocument::Report, JSON),
    ("/api/v1/explain", ServedDocument::Explain, JSON),
    ("/api/v1/snapshot", ServedDocument::Snapshot(0), BYTES),
    ("/debug/pprof/gpu_inuse", ServedDocument::InUse, BYTES),
    ("/debug/pprof/gpu_alloc", ServedDocument::Allocated, BYTES),
    ("/debug/pprof/gpu_launches", ServedDocument::Launches, BYTES),
];

/// The answers to all requests.
pub(super) struct Site {
    documents: Documents,
    token: Option<String>,
    is_loopback: bool,
}

impl Site {
    pub(super) fn new(config: &ServeConfig, documents: Documents) -> Self {
        let is_open = config.token.is_none() && config.tls.is_none();
        let is_ip = matches!(config.listen, Listen::Ip(_));
        Self {
            documents,
            token: config.token.clone(),
            is_loopback: is_ip && is_open && config.listen.is_local(),
        }
    }

    /// The answer to a request, whose body is not read.
    pub(super) async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let (status, content, bytes) = match self.content(request).await {
            Ok((content, bytes)) => (StatusCode::OK, content, bytes),
            Err((status, why)) => {
                let why = why.as_deref().or(status.canonical_reason());
                let text = format!("{}\n", why.unwrap_or_default());
                (status, TEXT, text.into())
            }
        };
        let of_status = match status {
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
            StatusCode::METHOD_NOT_ALLOWED => Some((header::ALLOW, "GET, HEAD")),
            StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, "1")),
            _ => None,
        };
        let policy = "default-src 'none'; style-src 'unsafe-inline'";
        let of_all = [
            (header::CONTENT_TYPE, content),
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::CONTENT_SECURITY_POLICY, policy),
        ];
        let mut response = Response::new(Full::new(bytes));
        *response.status_mut() = status;
        for (name, value) in of_all.into_iter().chain(of_status) {
            let headers = response.headers_mut();
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    /// The document that is asked for, and its type.
    async fn content<B>(&self, request: &Request<B>) -> Result<(&'static str, Bytes), Refusal> {
        let path = request.uri().path();
        if self.is_loopback && !names_this_host(request) {
            return Err((StatusCode::MISDIRECTED_REQUEST, None));
        }
        let token = self.token.as_deref().filter(|_| path != ALIVE);
        if token.is_some_and(|token| !bears(request, token)) {
            return Err((StatusCode::UNAUTHORIZED, None));
        }
        let found = DOCUMENTS.iter().find(|(known, ..)| *known == path);
        if found.is_none() && path != ALIVE {
            return Err((StatusCode::NOT_FOUND, None));
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return Err((StatusCode::METHOD_NOT_ALLOWED, None));
        }
        let Some(&(_, mut document, content)) = found else {
            return Ok((TEXT, Bytes::from_static(b"alive\n")));
        };
        if let ServedDocument::Snapshot(pid) = &mut document {
            let mut pairs = request.uri().query().unwrap_or_default().split('&');
            let given = pairs.find_map(|pair| pair.strip_prefix("pid=")?.parse().ok());
            let why = || (StatusCode::BAD_REQUEST, Some("give ?pid=N".to_owned()));
            *pid = given.ok_or_else(why)?;
        }
        let within = match document {
            ServedDocument::Ready => READY_WITHIN,
            _ => DOCUMENT_WITHIN,
        };
        let got = timeout(within, self.documents.get(document)).await;
        let bytes = got.map_err(|_| (StatusCode::SERVICE_UNAVAILABLE, None))??;
        if document == ServedDocument::Metrics && !takes_openmetrics(request) {
            let older = prometheus(&String::from_utf8_lossy(&bytes));
            return Ok((PROMETHEUS, older.into()));
        }
        Ok((content, bytes))
    }
}

/// Whether the client takes the format of `OpenMetrics`.
fn takes_openmetrics<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get_all(header::ACCEPT).iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("application/openmetrics-text"))
}

/// Whether the request has this bearer token; takes as long wherever they differ.
fn bears<B>(request: &Request<B>, token: &str) -> bool {
    let given = request.headers().get(header::AUTHORIZATION);
    let given = given.and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer "));
    let given = given.unwrap_or_default().as_bytes();
    let differences = given.iter().zip(token.as_bytes());
    let differences = differences.fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == token.len() && differences == 0
}

/// Whether `Host` is an address or `localhost`: a page of another site in a browser on this host can have its
/// name lead here.
fn names_this_host<B>(request: &Request<B>) -> bool {
    let host = request.headers().get(header::HOST);
    let Some(host) = host.and_then(|value| value.to_str().ok()) else {
        return true;
    };
    host.parse::<Authority>().is_ok_and(|authority| {
        let name = authority.host().trim_matches(['[', ']']);
        name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn request(name: &str, value: &str) -> Request<()> {
        Request::builder().header(name, value).body(()).unwrap()
    }

    #[test]
    fn tokens_are_compared_whole() {
        for (value, bears_it) in [
            ("Bearer secret", true),
            ("Bearer secre", false),
            ("Bearer secrets", false),
            ("Bearer ", false),
            ("bearer secret", false),
            ("Basic secret", false),
        ] {
            assert_eq!(bears(&request("authorization", value), "secret"), bears_it);
        }
        assert!(!bears(&request("x", "y"), "secret"));
    }

    #[test]
    fn only_names_of_this_host_are_accepted() {
        for (host, is_ours) in [
            ("127.0.0.1:9477", true),
            ("[::1]:9477", true),
            ("localhost", true),
            ("LOCALHOST:9477", true),
            ("evil.example:9477", false),
            ("localhost.evil.example", false),
            ("", false),
        ] {
            assert_eq!(names_this_host(&request("host", host)), is_ours, "{host}");
        }
    }

    #[test]
    fn the_format_is_negotiated() {
        let of_prometheus = "application/openmetrics-text;version=1.0.0,\
            application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert!(takes_openmetrics(&request("accept", of_prometheus)));
        assert!(!takes_openmetrics(&request("accept", "text/html,*/*")));
        assert!(!takes_openmetrics(&request("x", "y")));
    }
}
