//! `gpuprobe serve`, and requests to it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::child::Guarded;
use super::gpuprobe::BINARY;
use super::transcript::Transcript;
use super::{require_bpf, wait_until};

/// Timeout of a request.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A running `gpuprobe serve`.
pub(crate) struct Served {
    pub(crate) child: Guarded,
    /// Read for as long as it runs.
    _stderr: Transcript,
    /// `http://127.0.0.1:PORT/`, or the path of a Unix socket.
    pub(crate) url: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// Reads an answer up to the end of the connection.
    pub(crate) fn read(stream: &mut impl Read) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("an answer");
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(&bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Self {
            status: status.expect("a status"),
            head,
            body: bytes[end + 4..].to_vec(),
        }
    }
}

impl Served {
    /// Starts it on a free port of 127.0.0.1, unless the arguments say where.
    pub(crate) fn start<S: AsRef<str>>(arguments: &[S]) -> Self {
        require_bpf();
        let arguments: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
        let mut command = Command::new(BINARY);
        command.arg("serve");
        if !arguments.iter().any(|word| word.starts_with("--listen")) {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        Self::spawn(command.args(arguments))
    }

    /// Runs a command that becomes one.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        command
            .env_remove("GPUPROBE_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = Guarded::spawn(command).expect("gpuprobe starts");
        let stderr = Transcript::of(child.streams().stderr.take().expect("a pipe"));
        let line = stderr.line_starting("gpuprobe: serving on ");
        let url = line.rsplit_once(' ').unwrap().1.to_owned();
        Self {
            child,
            _stderr: stderr,
            url,
        }
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> &str {
        let address = self.url.split("//").nth(1).expect("an IP address");
        address.trim_end_matches('/')
    }

    /// A connection.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
        stream
    }

    /// The answer to a request with these lines after the first.
    pub(crate) fn request(&self, line: &str, headers: &[&str]) -> Answer {
        let head = request(line, headers);
        if let Some(path) = self.url.strip_prefix("unix:") {
            let mut stream = UnixStream::connect(path).expect("it listens");
            stream.write_all(head.as_bytes()).unwrap();
            return Answer::read(&mut stream);
        }
        let mut stream = self.connect();
        stream.write_all(head.as_bytes()).unwrap();
        Answer::read(&mut stream)
    }

    /// The answer to a GET.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request(&format!("GET {path}"), &[])
    }

    /// The metrics now.
    pub(crate) fn metrics(&self) -> Metrics {
        let answer = self.get("/metrics");
        assert_eq!(answer.status, 200, "{answer:?}");
        Metrics::parse(answer.text())
    }

    /// Waits for metrics that satisfy `wanted`.
    pub(crate) fn metrics_where(&self, what: &str, wanted: impl Fn(&Metrics) -> bool) -> Metrics {
        wait_until(what, || self.metrics(), wanted)
    }
}

/// The head of a request.
pub(crate) fn request(line: &str, headers: &[&str]) -> String {
    let mut head = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|header| header.starts_with("Host:")) {
        head += "Host: localhost\r\n";
    }
    for header in headers {
        head += header;
        head += "\r\n";
    }
    head + "\r\n"
}

/// Values by the name of the metric and its labels, as they are written.
#[derive(Debug, Default)]
pub(crate) struct Metrics(pub(crate) BTreeMap<String, f64>);

impl Metrics {
    /// Parses a text in either format.
    ///
    /// # Panics
    ///
    /// If a line has no value, or a series is there twice.
    pub(crate) fn parse(text: &str) -> Self {
        let mut series = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(series.insert(name.to_owned(), value).is_none(), "{line}");
        }
        Self(series)
    }

    /// The series of a metric with all of these labels.
    pub(crate) fn series(&self, metric: &str, labels: &[(&str, &str)]) -> Vec<(&str, f64)> {
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .collect();
        let is_of = |name: &str| {
            let rest = name.strip_prefix(metric);
            let is_it = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
            is_it && labels.iter().all(|label| name.contains(label))
        };
        let all = self.0.iter().filter(|(name, _)| is_of(name));
        all.map(|(name, value)| (name.as_str(), *value)).collect()
    }

    /// Their sum.
    pub(crate) fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> u64 {
        let series = self.series(metric, labels);
        series.iter().map(|(_, value)| *value as u64).sum()
    }

    pub(crate) fn assert_nothing_lost(&self) {
        let losses = self.series("gpuprobe_lost_events_total", &[]);
        assert!(!losses.is_empty());
        assert!(
            losses.iter().all(|(_, events)| *events == 0.0),
            "{losses:?}"
        );
    }
}
