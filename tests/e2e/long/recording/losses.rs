//! Events lost to full rings or a slow disk are counted in recordings.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use crate::harness::{Backend, Gpuprobe, Setup, Workload, alone, said};
use crate::losses::{lost_in_csv, lost_in_text, pause};
use crate::recording::launches::calls_are_sound;
use crate::recording::{Recording, count, is_sound, open, written};

/// Records the launches of a process.
fn recorded(pid: u32, recording: &Recording) -> Setup {
    let record = ["--record".to_owned(), recording.text()];
    Setup::pid(pid).modes(["--cudatrace"]).args(record)
}

/// More launches than the ring holds.
fn too_many(workload: &mut Workload) {
    let reply = workload.say("launchstorm 2 150000");
    assert_eq!(said(&reply, "launches"), "300000");
}

#[test]
fn root_lost_single_launches_are_counted_exactly_and_shown() {
    const SHOWN: &str = "single launches of a recording";
    let _alone = alone();
    let mut workload = Workload::start(Backend::Driver);
    let recordings = [Recording::new(), Recording::new(), Recording::new()];
    let start = |format: &str, recording| recorded(workload.pid, recording).format(format).start();
    let mut json = start("json", &recordings[0]);
    let mut text = start("text", &recordings[1]);
    let mut csv = start("csv", &recordings[2]);
    workload.say("launch 0 10");
    [&json, &text, &csv].into_iter().for_each(pause);
    too_many(&mut workload);
    for gpuprobe in [&json, &text, &csv] {
        gpuprobe.child.signal(Signal::SIGCONT);
    }
    let last = json.stop();
    text.interrupt();
    csv.interrupt();
    let lost = last.lost("single_launches");
    assert!(lost > 100_000, "{lost} lost");
    // The counts have all of them.
    assert_eq!(last.launches(), [300_010, 0, 0]);
    assert_eq!(last.lost("launches"), 0);
    let of_text = lost_in_text(&mut text, SHOWN);
    let of_csv = lost_in_csv(&mut csv, SHOWN);
    for (recording, lost) in recordings.iter().zip([lost, of_text, of_csv]) {
        calls_are_sound(recording, 300_010 - lost);
        has_noted(recording, lost);
    }
    workload.say("exit");
}

fn has_noted(recording: &Recording, lost: u64) {
    let noted = format!("GPUPROBE_LOST WHERE what = 'single_launches' AND count = {lost}");
    assert_eq!(count(&recording.file, &noted), 1);
}

#[test]
fn root_single_launches_after_a_loss_are_recorded() {
    let _alone = alone();
    let recording = Recording::new();
    let mut workload = Workload::start(Backend::Driver);
    let mut gpuprobe: Gpuprobe = recorded(workload.pid, &recording).interval("50ms").start();
    pause(&gpuprobe);
    too_many(&mut workload);
    gpuprobe.child.signal(Signal::SIGCONT);
    let is_lost = |report: &crate::harness::Report| report.lost("single_launches") > 0;
    let lost = gpuprobe.report_where("the loss", is_lost);
    let lost = lost.lost("single_launches");
    workload.say("launch 0 1000 grid=80,2,3 block=128,4,1");
    let last = gpuprobe.stop();
    assert_eq!(last.lost("single_launches"), lost, "nothing more was lost");
    assert_eq!(last.launches(), [301_000, 0, 0]);
    calls_are_sound(&recording, 301_000 - lost);
    let shaped = "GPUPROBE_LAUNCHES WHERE gridX = 80 AND gridY = 2 AND blockX = 128";
    assert_eq!(count(&recording.file, shaped), 1000);
    has_noted(&recording, lost);
    workload.say("exit");
}

/// Builds the library that makes disk writes wait.
fn slow_disk(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs/slow_disk.c");
    let library = folder.join("slow_disk.so");
    let made = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            "-o",
        ])
        .args([&library, &source])
        .output()
        .expect("cc can be run");
    assert!(made.status.success(), "{made:?}");
    library
}

#[test]
fn root_rows_dropped_for_a_slow_disk_are_counted_and_reported() {
    const SAID: &str =
        "gpuprobe: recording is incomplete: the disk is too slow; events are dropped";
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let library = slow_disk(folder.path());
    let disk = folder.path().join("disk");
    let recording = Recording::new();
    let mut workload = Workload::start(Backend::Driver);
    let mut gpuprobe = Setup::pid(workload.pid)
        .args(["--stacks", "off", "--record", &recording.text()])
        .interval("200ms")
        .env("LD_PRELOAD", library.to_str().unwrap())
        .env("SLOW_DISK", disk.to_str().unwrap())
        .start();
    let has_said = |gpuprobe: &Gpuprobe| {
        let said = gpuprobe.stderr.so_far();
        said.iter().filter(|line| *line == SAID).count()
    };
    mkfifo(&disk, Mode::S_IRWXU).unwrap();
    let mut rounds = 0;
    while has_said(&gpuprobe) == 0 {
        assert!(rounds < 100, "8 million calls are all kept in memory");
        // No more at a time than the ring holds.
        workload.say("race 2 20000 4096");
        rounds += 1;
    }
    // Tracing has not waited.
    workload.say("alloc 12345 7");
    let truth = workload.status();
    gpuprobe.report_where("what comes meanwhile", |report| {
        report.totals().live_allocations == truth.live
    });
    let _writer = File::options().read(true).write(true).open(&disk).unwrap();
    let last = gpuprobe.stop();
    let totals = last.totals();
    let seen = totals.alloc_calls + totals.free_calls;
    assert_eq!(seen + last.lost("memory"), truth.allocs + truth.frees);
    assert_eq!(has_said(&gpuprobe), 1);
    assert!(is_sound(&recording.file));
    let rows = "CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId \
        WHERE r.eventClass = 1 AND (s.value LIKE 'cuMemAlloc%' OR s.value LIKE 'cuMemFree%')";
    let recorded = count(&recording.file, rows).cast_unsigned();
    let sql = "SELECT count FROM GPUPROBE_LOST WHERE what = 'recording'";
    let left_out: i64 = open(&recording.file)
        .query_row(sql, [], |row| row.get(0))
        .unwrap();
    assert!(left_out > 0 && recorded < seen, "{left_out} left out");
    // The dropped events may have the names and exits of the threads that made the calls.
    let accounted = recorded + left_out.cast_unsigned();
    let most = seen + rounds * 2 * 2;
    assert!(
        (seen..=most).contains(&accounted),
        "{accounted}, not {seen}"
    );
    let page = written(&["report", &recording.text()]);
    let shown = format!("{left_out} records of the recording");
    assert!(page.contains(&shown), "{page}");
}
