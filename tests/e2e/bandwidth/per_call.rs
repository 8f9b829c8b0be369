//! `--per-call`: one line for each copy.

use chrono::DateTime;

use super::{COPIES, copies_of};
use crate::harness::{Backend, Setup, Workload};

#[test]
fn root_json_has_one_object_per_copy_with_the_documented_keys() {
    let settings = [("STANDIN_COPY_GBPS", "0.1")];
    let mut workload = Workload::spawn(&mut Workload::command(Backend::Driver, &settings));
    workload.say("freenull");
    let mut gpuprobe = Setup::pid(workload.pid)
        .modes(COPIES)
        .args(["--per-call"])
        .start();
    let tid = workload.ask("thread copier");
    let device = workload.say("alloc 1048576");
    workload.say(&format!("copy h2d 1048576 dst={device} src=0x7000"));
    workload.say(&format!("@copier copy d2h 512 dst=0x7000 src={device}"));
    workload.say(&format!("copy d2d 2048 dst={device} src={device}"));
    workload.say("set 1024");
    gpuprobe.stop().assert_nothing_lost();
    let copies = copies_of(&gpuprobe);
    let pid = workload.pid;
    let expected = [
        ("cuMemcpyHtoD_v2", pid, device.as_str(), Some("0x7000")),
        ("cuMemcpyDtoH_v2", tid, "0x7000", Some(device.as_str())),
        (
            "cuMemcpyDtoD_v2",
            pid,
            device.as_str(),
            Some(device.as_str()),
        ),
        ("cuMemsetD8_v2", pid, "", None),
    ];
    assert_eq!(copies.len(), expected.len());
    for (copy, (api, tid, destination, source)) in copies.iter().zip(expected) {
        let keys: Vec<_> = copy.as_object().unwrap().keys().collect();
        for key in "time pid tid api direction mode bytes seconds bytes_per_second \
                    destination source"
            .split(' ')
        {
            assert!(keys.contains(&&key.to_owned()), "no {key} in {copy}");
        }
        assert_eq!(copy["pid"], pid);
        assert_eq!(copy["tid"], tid);
        assert_eq!(copy["api"], api);
        if !destination.is_empty() {
            assert_eq!(copy["destination"], destination);
        }
        assert_eq!(copy["source"].as_str(), source);
        let made = DateTime::parse_from_rfc3339(copy["time"].as_str().unwrap()).unwrap();
        let age = chrono::Local::now().signed_duration_since(made);
        assert!((0..60).contains(&age.num_seconds()), "made {age} ago");
        let is_sync = copy["mode"] == "sync";
        assert_eq!(copy["bytes_per_second"].is_f64(), is_sync, "{copy}");
    }
    let seconds = copies[0]["seconds"].as_f64().unwrap();
    assert!(
        (0.010_485..1.0).contains(&seconds),
        "a transfer of 10.5 ms: {seconds}"
    );
    let speed = copies[0]["bytes_per_second"].as_f64().unwrap();
    assert!((speed * seconds / 1_048_576.0 - 1.0).abs() < 1e-9);
}
