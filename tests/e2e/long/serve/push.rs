//! Profiles that are pushed, as a Pyroscope server gets them, against the totals of the workload.

use std::fs;

use gpuprobe_report::profile::pprof::proto::Proto;
use gpuprobe_report::profile::pprof::unpack;
use tempfile::TempDir;

use crate::harness::receiver::{Received, Receiver};
use crate::harness::served::Served;
use crate::harness::{Backend, Workload};
use crate::serve::access::{assert_no_rights, helper_process};
use crate::serve::documents::{labels, sum, text};

const WORK: &str = "alloc 1048576 3; alloc 4096; launch 0 100; launch 1 20; free 0";

fn serve(workload: &Workload, receiver: &Receiver, more: &[&str]) -> Served {
    let pid = workload.pid.to_string();
    let url = format!("http://{}/prefix/", receiver.address);
    let words = ["--pid", &pid, "--push-pyroscope", &url, "--push-interval"];
    Served::start(&[&words[..], &["200ms"], more].concat())
}

/// The profiles with a type, in order.
fn profiles(received: &[Received], kind: &str) -> Vec<Proto> {
    let taken = received.iter().filter(|one| one.status == 200);
    let all = taken.map(|one| unpack(&one.body).unwrap());
    let has_type = |profile: &Proto| {
        let mut types = profile.sample_type.iter();
        types.any(|one| text(profile, one.kind) == kind)
    };
    all.filter(has_type).collect()
}

/// Sum of the values of a type over all pushes, as Pyroscope makes it.
fn total(received: &[Received], kind: &str) -> u64 {
    let profiles = profiles(received, kind);
    profiles.iter().map(|profile| sum(profile, kind)).sum()
}

#[test]
fn root_pushed_profiles_add_up_to_the_totals() {
    let folder = TempDir::new().unwrap();
    let headers = folder.path().join("headers");
    fs::write(&headers, "X-Scope-OrgID: tenant\n").unwrap();
    let receiver = Receiver::start(200);
    let mut workload = Workload::start(Backend::Driver);
    let served = serve(
        &workload,
        &receiver,
        &[
            "--push-headers",
            headers.to_str().unwrap(),
            "--push-host=node-1",
        ],
    );
    workload.play(WORK);
    let launches = workload.status().launches;
    receiver.wait_for("the launches", |all| {
        (total(all, "launches") == launches).then_some(())
    });
    workload.play("alloc 4096; launch 0 7");
    let truth = workload.status();
    let all = receiver.wait_for("all of it", |all| {
        let last = profiles(all, "inuse_space").pop()?;
        let is_all = sum(&last, "inuse_objects") == truth.live
            && total(all, "launches") == truth.launches
            && total(all, "alloc_objects") == truth.allocs;
        is_all.then(|| all.to_vec())
    });
    let last = profiles(&all, "inuse_space").pop().unwrap();
    assert_eq!(sum(&last, "inuse_space"), truth.bytes);
    assert_eq!(total(&all, "alloc_space"), (3 << 20) + 2 * 4096);
    let period = last.period_type.unwrap();
    assert_eq!(text(&last, period.kind), "space");
    let comm = ("comm".to_owned(), "workload_driver".to_owned());
    assert!(labels(&last, 0).contains(&comm));
    let first = &all[0];
    let path = "POST /prefix/ingest?name=gpuprobe%7Bhostname%3Dnode-1%7D&from=";
    assert!(first.line.starts_with(path), "{first:?}");
    assert!(first.line.contains("&format=pprof"), "{first:?}");
    let has = |header: &str| first.headers.iter().any(|line| line == header);
    assert!(has("x-scope-orgid: tenant") && has("content-type: application/octet-stream"));
    served.metrics().assert_nothing_lost();
}

#[test]
fn root_a_server_that_fails_disturbs_nothing_and_misses_nothing() {
    let receiver = Receiver::start(500);
    let mut workload = Workload::start(Backend::Driver);
    let served = serve(&workload, &receiver, &[]);
    workload.play(WORK);
    receiver.wait_for("some tries", |all| (all.len() >= 5).then_some(()));
    served.metrics().assert_nothing_lost();
    let line = served.stderr.line_starting("gpuprobe: cannot push");
    assert!(line.contains("500") && line.contains("go away"), "{line}");
    receiver.set_status(200);
    let truth = workload.status();
    receiver.wait_for("all of it", |all| {
        (total(all, "launches") == truth.launches).then_some(())
    });
    served
        .stderr
        .line_starting("gpuprobe: pushing profiles to http://");
    let said = served.stderr.so_far();
    let said: Vec<_> = said.iter().filter(|line| line.contains("push")).collect();
    assert_eq!(said.len(), 2, "{said:?}");
}

#[test]
fn root_a_server_that_comes_later_is_found() {
    let free = Receiver::start(200).address;
    // Nobody listens on another loopback address with its port.
    let address = std::net::SocketAddr::from(([127, 9, 9, 9], free.port()));
    let mut workload = Workload::start(Backend::Driver);
    let url = format!("http://{address}");
    let pid = workload.pid.to_string();
    let served = Served::start(&[
        "--pid",
        &pid,
        "--push-pyroscope",
        &url,
        "--push-interval=100ms",
    ]);
    workload.play(WORK);
    served.stderr.line_starting("gpuprobe: cannot push");
    let before = helper_process(served.child.pid(), "__push").expect("a pushing process");
    crate::harness::wait_for("another process, which looks the host up", || {
        helper_process(served.child.pid(), "__push").filter(|other| *other != before)
    });
    let receiver = Receiver::on(address, 200);
    let truth = workload.status();
    receiver.wait_for("what is in use", |all| {
        let last = profiles(all, "inuse_space").pop()?;
        (sum(&last, "inuse_space") == truth.bytes).then_some(())
    });
}

#[test]
fn root_the_pushing_process_has_no_rights() {
    let receiver = Receiver::start(200);
    let mut workload = Workload::start(Backend::Driver);
    let served = serve(&workload, &receiver, &[]);
    workload.play(WORK);
    receiver.wait_for("a push", |all| (!all.is_empty()).then_some(()));
    let pid = helper_process(served.child.pid(), "__push").expect("a pushing process");
    assert_no_rights(pid);
}
