//! TLS with a token or certificates of clients, as curl sees it.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::harness::served::Served;
use crate::harness::{Backend, Workload};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Runs a program in `folder`; returns its output.
fn run(folder: &Path, line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .current_dir(folder)
        .output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", words[0]));
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A folder with an authority, a certificate for 127.0.0.1, one for a client, and a token.
fn keys() -> TempDir {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=";
    run(
        at,
        &format!("{new}authority -x509 -days 2 -keyout ca.key -out ca.pem"),
    );
    std::fs::write(at.join("server.ext"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    std::fs::write(at.join("client.ext"), "extendedKeyUsage=clientAuth\n").unwrap();
    for name in ["server", "client"] {
        run(
            at,
            &format!("{new}{name} -keyout {name}.key -out {name}.csr"),
        );
        run(
            at,
            &format!(
                "openssl x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile {name}.ext -out {name}.pem"
            ),
        );
    }
    std::fs::write(at.join("token"), format!("{TOKEN}\n")).unwrap();
    folder
}

/// curl's exit status and the status of the answer.
fn curl(folder: &Path, url: &str, options: &[&str]) -> (i32, String) {
    let mut curl = Command::new("curl");
    curl.args([
        "-sS",
        "--max-time",
        "20",
        "--cacert",
        "ca.pem",
        "-o",
        "/dev/null",
    ]);
    curl.args(["-w", "%{http_code}"])
        .args(options)
        .arg(url)
        .current_dir(folder);
    let output = curl.output().expect("curl can be run");
    let status = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), status)
}

#[test]
fn root_tls_with_a_token_or_certificates_of_clients() {
    let folder = keys();
    let at = folder.path();
    let file = |name: &str| at.join(name).to_str().unwrap().to_owned();
    let workload = Workload::start(Backend::Shared);
    let start = |proof: [&str; 2]| {
        let pid = workload.pid.to_string();
        let words = [
            "--pid",
            &pid,
            "--listen",
            "0.0.0.0:0",
            proof[0],
            &file(proof[1]),
        ];
        let (certificate, key) = (file("server.pem"), file("server.key"));
        let tls = ["--tls-cert", &certificate, "--tls-key", &key];
        Served::start(&[&words[..], &tls].concat())
    };
    let local = |served: &Served| served.url.replace("0.0.0.0", "127.0.0.1") + "metrics";
    let served = start(["--token-file", "token"]);
    let url = local(&served);
    assert!(url.starts_with("https://"), "{url}");
    let bearer = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(curl(at, &url, &["-H", &bearer]), (0, "200".to_owned()));
    assert_eq!(curl(at, &url, &[]), (0, "401".to_owned()));
    // Neither text nor another authority.
    assert_ne!(curl(at, &url.replace("https", "http"), &[]).0, 0);
    assert_ne!(curl(at, &url, &["--cacert", "client.pem"]).0, 0);
    drop(served);
    let served = start(["--client-ca", "ca.pem"]);
    let url = local(&served);
    let ours = ["--cert", "client.pem", "--key", "client.key"];
    assert_eq!(curl(at, &url, &ours), (0, "200".to_owned()));
    assert_ne!(curl(at, &url, &[]).0, 0);
}
