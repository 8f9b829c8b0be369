//! Who is answered, and with which rights.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::gpuprobe::BINARY;
use crate::harness::served::{Answer, Served};
use crate::harness::{Backend, Workload, require_bpf, wait_for};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Asserts that the HTTP thread has no capability and can gain none.
fn assert_no_rights(pid: u32) {
    // It may have begun just now.
    let status = wait_for("an HTTP thread", || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let statuses = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")));
        let mut settled = statuses
            .flatten()
            .filter(|one| one.contains("NoNewPrivs:\t1"));
        settled.find(|one| one.starts_with("Name:\tgpuprobe-serve\n"))
    });
    for line in [
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapInh:\t0000000000000000",
        "CapAmb:\t0000000000000000",
    ] {
        assert!(status.lines().any(|one| one == line), "{line} in {status}");
    }
}

/// Asserts the status of the answer to each request, as its first line and headers.
fn assert_statuses(served: &Served, requests: &[(&str, &[&str], u16)]) {
    for (line, headers, status) in requests {
        let answer = served.request(line, headers);
        assert_eq!(answer.status, *status, "{line} {headers:?}: {answer:?}");
        let head = &answer.head;
        assert!(head.contains("cache-control: no-store"), "{answer:?}");
    }
}

#[test]
fn root_only_what_reads_is_answered_by_a_thread_without_rights() {
    let workload = Workload::start(Backend::Shared);
    let served = Served::start(&["--pid", &workload.pid.to_string()]);
    assert_no_rights(served.child.pid());
    let long = format!("X: {}", "x".repeat(100_000));
    assert_statuses(
        &served,
        &[
            ("GET /readyz", &[], 200),
            ("GET /healthz", &[], 200),
            ("HEAD /metrics", &[], 200),
            ("GET /metrics?x=1", &[], 200),
            ("POST /metrics", &["Content-Length: 3"], 405),
            ("DELETE /api/v1/report", &[], 405),
            ("GET /nothing", &[], 404),
            ("GET /api/v1/snapshot?pid=1", &[], 404),
            ("GET /../etc/passwd", &[], 404),
            ("GET /metrics", &["Host: evil.example"], 421),
            ("GET /metrics", &["Host: 127.0.0.1:9477"], 200),
        ],
    );
    assert_eq!(served.request("GET /metrics", &[&long]).status, 431);
    nonsense_is_refused(&served);
}

fn nonsense_is_refused(served: &Served) {
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    ] {
        let mut stream = served.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{bytes:?}");
    }
    // A body is not read, and not taken for a request.
    let mut stream = served.connect();
    let head = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 38\r\n\r\n";
    let inner = "GET /healthz HTTP/1.1\r\nHost: x.org\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(inner.as_bytes()).unwrap();
    let answer = Answer::read(&mut stream);
    assert_eq!(answer.status, 405);
    assert!(!answer.text().contains("HTTP/1.1"), "{answer:?}");
    assert_eq!(served.get("/readyz").status, 200);
}

#[test]
fn root_unix_sockets_and_tokens() {
    let folder = TempDir::new().unwrap();
    let [socket, token] = ["socket", "token"].map(|name| folder.path().join(name));
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let workload = Workload::start(Backend::Shared);
    let listen = format!("--listen=unix:{}", socket.display());
    let token = format!("--token-file={}", token.display());
    let pid = format!("--pid={}", workload.pid);
    let served = Served::start(&[&listen, &token, &pid, "--max-series=50"]);
    assert_eq!(served.url, format!("unix:{}", socket.display()));
    let bearer = format!("Authorization: Bearer {TOKEN}");
    assert_statuses(
        &served,
        &[
            ("GET /metrics", &[], 401),
            ("GET /", &[], 401),
            ("GET /nothing", &[], 401),
            ("GET /metrics", &["Authorization: Bearer x"], 401),
            ("GET /metrics", &[&bearer], 200),
            ("GET /healthz", &[], 200),
        ],
    );
}

#[test]
fn root_other_hosts_need_tls_and_a_proof() {
    require_bpf();
    let refused = |arguments: &[&str]| {
        let output = Command::new(BINARY).arg("serve").args(arguments).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&["--listen", "0.0.0.0:0"]);
    assert!(said.contains("--insecure-listen"), "{said}");
    let folder = TempDir::new().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, TOKEN).unwrap();
    let token = token.to_str().unwrap();
    let said = refused(&["--listen", "0.0.0.0:0", "--token-file", token]);
    assert!(said.contains("--tls-cert"), "{said}");
    fs::write(token, "short").unwrap();
    assert!(refused(&["--token-file", token]).contains("shorter than 16"));
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = used.local_addr().unwrap().to_string();
    assert!(refused(&["--listen", &address]).contains("cannot listen on"));
}
