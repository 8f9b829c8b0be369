//! Size limits of recordings.

use std::fs;
use std::process::{Command, Stdio};

use crate::harness::child::{Guarded, state_of};
use crate::harness::gpuprobe::BINARY;
use crate::harness::transcript::Transcript;
use crate::harness::{Backend, Setup, Workload, wait_for};
use crate::recording::{Recording, is_sound, written};

const MIB: u64 = 1 << 20;
/// Tolerance of the file size: a transaction, and the queued rows.
const MORE: u64 = 12 * MIB;

#[test]
fn root_full_recording_stops_and_tracing_goes_on() {
    let recording = Recording::new();
    let mut workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid(workload.pid)
        .args(["--record", &recording.text(), "--max-file-size", "4M"])
        .start();
    let mut allocations = 0;
    wait_for("the recording to be full", || {
        workload.say("alloc 64 2000");
        allocations += 2000;
        let said = gpuprobe.stderr.so_far();
        let stopped = said
            .iter()
            .filter(|line| line.contains("recording has stopped"));
        let stopped: Vec<_> = stopped.collect();
        assert!(stopped.len() < 2, "{stopped:?}");
        stopped
            .first()
            .map(|line| assert!(line.contains("its --max-file-size"), "{line}"))
    });
    workload.say("alloc 64 1000");
    let last = gpuprobe.stop();
    last.assert_nothing_lost();
    last.assert_holds(workload.pid, (allocations + 1000) * 64, allocations + 1000);
    let stopped = last["recording_stopped"].as_str().unwrap();
    assert!(stopped.contains("its --max-file-size"), "{stopped}");
    assert!(is_sound(&recording.file));
    let bytes = fs::metadata(&recording.file).unwrap().len();
    assert!((4 * MIB..4 * MIB + MORE).contains(&bytes), "{bytes}");
    let text = written(&["report", &recording.text()]);
    let expected = "stopped before the run did: it has reached its --max-file-size";
    assert!(text.contains(expected), "{text}");
    workload.say("exit");
}

#[test]
fn root_record_alone_ends_with_status_1_when_the_file_is_full() {
    let recording = Recording::new();
    let mut workload = Workload::start(Backend::Shared);
    let mut command = Command::new(BINARY);
    command
        .args(["record", "--max-file-size", "1M", "--stacks", "off"])
        .args(["-o", &recording.text(), "--pid", &workload.pid.to_string()])
        .stderr(Stdio::piped());
    let mut gpuprobe = Guarded::spawn(&mut command).unwrap();
    let stderr = Transcript::of(gpuprobe.streams().stderr.take().unwrap());
    wait_for("gpuprobe to end", || {
        workload.say("alloc 64 2000");
        state_of(gpuprobe.pid())
            .is_none_or(|state| state == 'Z')
            .then_some(())
    });
    assert_eq!(gpuprobe.wait().code(), Some(1));
    let said = stderr.to_end();
    let last = said.last().expect("a message");
    assert!(
        last.starts_with("gpuprobe: recording has stopped: "),
        "{said:?}"
    );
    assert!(last.contains("its --max-file-size"), "{said:?}");
    assert!(is_sound(&recording.file));
    // The program goes on.
    workload.say("exit");
}
