//! Clients that are many, slow or hostile disturb neither tracing nor each other.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::served::Served;
use crate::harness::{Backend, Workload, alone};

/// Clients that ask again and again.
const CLIENTS: usize = 100;
/// Connections that send a byte now and then, or never read: more than are kept open.
const SLOW: usize = 150;
/// Allocations of each of two threads, most of them freed again.
const ROUNDS: u64 = 100_000;

#[test]
fn root_a_hundred_clients_lose_no_event() {
    let _turn = alone();
    let mut workload = Workload::start(Backend::Shared);
    let served = Served::start(&["--pid", &workload.pid.to_string()]);
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let paths = ["/metrics", "/api/v1/report", "/", "/debug/pprof/gpu_inuse"];
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (served, is_over, answered) = (&served, &is_over, &answered);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let answer = served.get(paths[client % paths.len()]);
                    assert!([200, 503].contains(&answer.status), "{answer:?}");
                    answered.fetch_add(u64::from(answer.status == 200), Ordering::Relaxed);
                }
            });
        }
        workload.say(&format!("churn 2 {ROUNDS} 4096 1000"));
        is_over.store(true, Ordering::Relaxed);
    });
    let truth = workload.status();
    let metrics = served.metrics_where("all calls", |metrics| {
        metrics.sum("gpuprobe_free_calls_total", &[]) == truth.frees
    });
    assert_eq!(metrics.sum("gpuprobe_alloc_calls_total", &[]), truth.allocs);
    metrics.assert_nothing_lost();
    assert!(answered.load(Ordering::Relaxed) > CLIENTS as u64);
}

#[test]
fn root_slow_clients_keep_nobody_waiting() {
    let workload = Workload::start(Backend::Shared);
    let served = Served::start(&["--pid", &workload.pid.to_string()]);
    let begun = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut slow: Vec<TcpStream> = Vec::new();
    for number in 0..SLOW {
        let mut stream = served.connect();
        // Every second one asks, and does not read; the others never end their request.
        let part = if number % 2 == 0 { begun.len() } else { 7 };
        stream.write_all(&begun.as_bytes()[..part]).unwrap();
        slow.push(stream);
    }
    for _ in 0..5 {
        assert_eq!(served.get("/metrics").status, 200);
        for stream in slow.iter_mut().skip(1).step_by(2) {
            // Closed by now, perhaps.
            let _ = stream.write_all(b"x");
        }
    }
    // The first were closed for the later ones, these because their requests do not end.
    for number in [1, SLOW - 1] {
        let stream = &mut slow[number];
        let within = Some(Duration::from_secs(30));
        stream.set_read_timeout(within).unwrap();
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
    }
    served.metrics().assert_nothing_lost();
}
