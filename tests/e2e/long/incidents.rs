//! Floods of refused requests.

use crate::harness::Backend::Shared;
use crate::harness::Setup;
use crate::incidents::{counts, incidents, said};

#[test]
fn root_incident_flood_is_rate_limited_and_counted() {
    const CALLS: u64 = 3000;
    let (mut gpuprobe, _) = Setup::workload(Shared).args(["--on-oom", "true"]).started();
    let mut script = format!("alloc 64; fail cudaMalloc {CALLS} 2");
    for size in 1..=CALLS {
        script += &format!("; alloc {}", size * 512);
    }
    gpuprobe.talk.play(&script);
    let truth = gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    assert_eq!(truth.failed, CALLS);
    let [calls, count] = counts(&report);
    assert_eq!(calls, CALLS);
    let all = incidents(&report);
    assert_eq!(all.len() as u64, count);
    // Eight at once, and one more for each second that it took.
    assert!((8..60).contains(&count), "{count} incidents");
    let number = |one: &serde_json::Value, key: &str| one[key].as_u64().unwrap();
    let told: u64 = all
        .iter()
        .map(|one| number(one, "attempts") + number(one, "repeats"))
        .sum();
    assert_eq!(told, CALLS);
    let said = said(&mut gpuprobe);
    assert!(said.len() as u64 <= 8 * count, "{} lines", said.len());
    report.assert_nothing_lost();
}

#[test]
fn root_the_same_request_over_and_over_is_one_incident() {
    let (mut gpuprobe, _) = Setup::workload(Shared).started();
    gpuprobe.talk.play(&["fail cudaMalloc 2000 2"; 1].join(";"));
    for _ in 0..2000 {
        gpuprobe.talk.say("alloc 4096");
    }
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    assert_eq!(counts(&report), [2000, 1]);
    let one = &incidents(&report)[0];
    assert_eq!(
        (&one["attempts"], &one["repeats"]),
        (&2000.into(), &0.into())
    );
    assert_eq!(one["outcome"], "ended");
}
