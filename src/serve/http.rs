//! Requests and answers. The interface only reads.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::timeout;

use super::documents::{Documents, ServedDocument};
use super::{Listen, ServeConfig};
use gpuprobe_views::metrics::{OPENMETRICS, PROMETHEUS};

/// Maximum time of a document; later, the client is told to come again.
const DOCUMENT_WITHIN: Duration = Duration::from_secs(8);
/// Maximum time of an answer to whether tracing goes on.
const READY_WITHIN: Duration = Duration::from_secs(2);

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const PPROF: &str = "application/octet-stream";

/// A resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    Alive,
    Ready,
    Of(ServedDocument, &'static str),
}

/// Resources by path.
const RESOURCES: &[(&str, Resource)] = &[
    ("/", Resource::Of(ServedDocument::Page, HTML)),
    ("/healthz", Resource::Alive),
    ("/readyz", Resource::Ready),
    (
        "/metrics",
        Resource::Of(ServedDocument::Metrics, OPENMETRICS),
    ),
    ("/api/v1/report", Resource::Of(ServedDocument::Report, JSON)),
    (
        "/api/v1/explain",
        Resource::Of(ServedDocument::Explain, JSON),
    ),
    (
        "/debug/pprof/gpu_inuse",
        Resource::Of(ServedDocument::InUse, PPROF),
    ),
    (
        "/debug/pprof/gpu_alloc",
        Resource::Of(ServedDocument::Allocated, PPROF),
    ),
    (
        "/debug/pprof/gpu_launches",
        Resource::Of(ServedDocument::Launches, PPROF),
    ),
];

/// The answers to all requests.
pub(super) struct Site {
    documents: Arc<Documents>,
    token: Option<String>,
    is_loopback: bool,
}

impl Site {
    pub(super) fn new(config: &ServeConfig, documents: Documents) -> Self {
        let is_open = config.token.is_none() && config.tls.is_none();
        let is_ip = matches!(config.listen, Listen::Ip(_));
        Self {
            documents: Arc::new(documents),
            token: config.token.clone(),
            is_loopback: is_ip && is_open && config.listen.is_local(),
        }
    }

    /// The answer to a request, whose body is not read.
    pub(super) async fn answer<B: Body>(&self, request: Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let found = RESOURCES.iter().find(|(known, _)| *known == path);
        let mut response = match self.refusal(&request, found.map(|(_, resource)| *resource)) {
            Some(status) => refused(status),
            None => match found {
                Some((_, resource)) => self.resource(*resource, &request).await,
                None => refused(StatusCode::NOT_FOUND),
            },
        };
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (
                header::CONTENT_SECURITY_POLICY,
                "default-src 'none'; style-src 'unsafe-inline'",
            ),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        // The rest of a body would be taken for the next request.
        if !request.body().is_end_stream() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Why a request is refused, if it is.
    fn refusal<B>(&self, request: &Request<B>, resource: Option<Resource>) -> Option<StatusCode> {
        if self.is_loopback && !names_this_host(request) {
            return Some(StatusCode::MISDIRECTED_REQUEST);
        }
        // Whether it is alive is asked by whoever has no token.
        let is_open = resource == Some(Resource::Alive);
        if let Some(token) = self.token.as_deref().filter(|_| !is_open)
            && !bears(request, token)
        {
            return Some(StatusCode::UNAUTHORIZED);
        }
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        (!is_read && resource.is_some()).then_some(StatusCode::METHOD_NOT_ALLOWED)
    }

    async fn resource<B>(&self, resource: Resource, request: &Request<B>) -> Response<Full<Bytes>> {
        match resource {
            Resource::Alive => plain(StatusCode::OK, TEXT, Bytes::from_static(b"alive\n")),
            Resource::Ready => {
                let status = self.documents.get(ServedDocument::Ready, false);
                match timeout(READY_WITHIN, status).await {
                    Ok(Ok(_)) => plain(StatusCode::OK, TEXT, Bytes::from_static(b"ready\n")),
                    _ => refused(StatusCode::SERVICE_UNAVAILABLE),
                }
            }
            Resource::Of(ServedDocument::Metrics, _) if !takes_openmetrics(request) => {
                let metrics = self.document(ServedDocument::Metrics, true).await;
                metrics.map_or_else(|no| *no, |bytes| plain(StatusCode::OK, PROMETHEUS, bytes))
            }
            Resource::Of(document, content) => {
                let document = self.document(document, false).await;
                document.map_or_else(|no| *no, |bytes| plain(StatusCode::OK, content, bytes))
            }
        }
    }

    async fn document(
        &self,
        document: ServedDocument,
        older: bool,
    ) -> Result<Bytes, Box<Response<Full<Bytes>>>> {
        let got = timeout(DOCUMENT_WITHIN, self.documents.get(document, older)).await;
        Err(Box::new(match got {
            Ok(Ok(bytes)) => return Ok(bytes),
            Ok(Err(why)) => {
                let why = format!("{why}\n");
                plain(StatusCode::SERVICE_UNAVAILABLE, TEXT, why.into())
            }
            Err(_) => refused(StatusCode::SERVICE_UNAVAILABLE),
        }))
    }
}

fn plain(status: StatusCode, content: &'static str, bytes: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(bytes));
    *response.status_mut() = status;
    let content = HeaderValue::from_static(content);
    response.headers_mut().insert(header::CONTENT_TYPE, content);
    response
}

fn refused(status: StatusCode) -> Response<Full<Bytes>> {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut response = plain(status, TEXT, format!("{reason}\n").into());
    let further = match status {
        StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
        StatusCode::METHOD_NOT_ALLOWED => Some((header::ALLOW, "GET, HEAD")),
        StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, "1")),
        _ => None,
    };
    if let Some((name, value)) = further {
        let headers = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
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
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
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
