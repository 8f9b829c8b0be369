//! Hostile programs that look like Python, with arbitrary data behind every frame pointer.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::harness::child::{Guarded, raw};
use crate::harness::report::{list, number};
use crate::harness::talk::Talk;
use crate::harness::{Gpuprobe, Report, Setup, alone, standin};
use crate::python::{DEPTH, LOST_CUT, LOST_UNREADABLE, python_frames};

/// Bytes of each allocation.
const BYTES: u64 = 4096;
/// Limit of the memory of gpuprobe.
const MOST_BYTES: u64 = 256 << 20;

/// Kinds of frames, and the allocations with each. The first is valid.
const MODES: [(&str, u64); 13] = [
    ("good", 10),
    ("cycle", 20),
    ("cycle_of_marks", 20),
    ("long", 20),
    ("nowhere", 80),
    ("huge_table", 20),
    ("end_of_memory", 20),
    ("endless_names", 96),
    ("odd_names", 5),
    ("no_thread", 20),
    ("no_key", 20),
    ("many_places", 20_000),
    ("many_codes", 20_000),
];

/// A program with an interpreter's name.
struct HostileProgram {
    child: Guarded,
    talk: Talk,
    _folder: TempDir,
}

impl HostileProgram {
    fn start(flags: &[String]) -> Self {
        let folder = TempDir::new().unwrap();
        let program = build(folder.path(), flags);
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Guarded::spawn(&mut command).unwrap();
        let mut talk = Talk::new(&mut child);
        assert_eq!(talk.ready(), child.pid());
        Self {
            child,
            talk,
            _folder: folder,
        }
    }

    fn go(&mut self, mode: &str, count: u64) {
        self.talk.send(&format!("{mode} {count}"));
        assert_eq!(self.talk.hear(), "done", "{mode}");
    }
}

fn build(folder: &Path, flags: &[String]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs/hostile_python.c");
    let program = folder.join("python3.12");
    let runtime = PathBuf::from(standin().runtime());
    let rpath = format!("-Wl,-rpath,{}", runtime.parent().unwrap().display());
    let mut command = Command::new("cc");
    command.args([
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O0",
        "-rdynamic",
    ]);
    command.args(flags).arg("-o").arg(&program).arg(source);
    let made = command.arg(runtime).args([&rpath, "-pthread"]).output();
    let made = made.expect("cc can be run");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
    program
}

/// gpuprobe's peak memory so far.
fn peak_bytes(gpuprobe: &Gpuprobe) -> u64 {
    let process = procfs::process::Process::new(raw(gpuprobe.child.pid()).as_raw()).unwrap();
    process.status().unwrap().vmhwm.unwrap() * 1024
}

/// Asserts that all memory is reported and that gpuprobe has not grown.
fn check(gpuprobe: &mut Gpuprobe, calls: u64) -> Report {
    let peak = peak_bytes(gpuprobe);
    let report = gpuprobe.stop();
    let totals = report.totals();
    assert_eq!(
        (totals.alloc_calls, totals.live_bytes),
        (calls, calls * BYTES)
    );
    assert_eq!(report.lost("memory"), 0);
    assert_eq!(report.lost("undecodable"), 0);
    assert!(peak < MOST_BYTES, "{} MiB", peak >> 20);
    report
}

#[test]
fn root_hostile_python_frames_do_no_harm() {
    let _alone = alone();
    let mut program = HostileProgram::start(&[]);
    let mut gpuprobe = Setup::pid(program.child.pid())
        .args(["--group", "native-stack", "--full-stacks"])
        .start();
    for (mode, count) in MODES {
        program.go(mode, count);
    }
    program.go("good", 1);
    let calls = MODES.iter().map(|(_, count)| count).sum::<u64>() + 1;
    let report = check(&mut gpuprobe, calls);
    // A stack is counted when it is first seen: an endless chain of frames looks like a deep one.
    assert!(report.lost(LOST_CUT) >= 2, "{}", report.lost(LOST_CUT));
    assert!(
        report.lost(LOST_UNREADABLE) > 100,
        "{}",
        report.lost(LOST_UNREADABLE)
    );
    let mut good = 0;
    for site in list(report.process(program.child.pid()), "sites") {
        let (frames, _) = python_frames(list(site, "stack"));
        assert!(frames.len() <= DEPTH);
        for frame in &frames {
            let is_odd = frame.file == "../../../etc/shadow";
            let is_good = frame.function == "good" && frame.file == "good.py";
            assert!(is_odd || is_good, "{frame:?}");
            assert!(matches!(frame.line, None | Some(0..=20_000)), "{frame:?}");
        }
        let is_whole = frames.len() == 3 && frames.iter().all(|frame| frame.line == Some(7));
        if is_whole && site["complete"] == true {
            good += number(site, "live_allocations");
        }
    }
    assert!(good >= 1, "after all that, good frames are known");
}

#[test]
fn root_python_frames_changing_during_the_read_do_no_harm() {
    let _alone = alone();
    let mut program = HostileProgram::start(&[]);
    let mut gpuprobe = Setup::pid(program.child.pid()).start();
    program.go("mutating", 50_000);
    let report = check(&mut gpuprobe, 50_000);
    assert!(report.lost(LOST_UNREADABLE) > 0);
}

#[test]
fn root_python_names_are_sanitised() {
    let mut program = HostileProgram::start(&[]);
    let mut gpuprobe = Setup::pid(program.child.pid())
        .format("text")
        .args(["--full-stacks"])
        .start();
    program.go("odd_names", 20);
    program.go("good", 1);
    gpuprobe.interrupt();
    assert_eq!(gpuprobe.exit_code(), 0);
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    assert!(text.contains("shadow:7"), "{text}");
    let bad = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(bad, None, "{text:?}");
}

/// Bytes as C initialisers.
fn stated(bytes: &[u8]) -> String {
    let mut text = "-DSTATED=".to_owned();
    for byte in bytes {
        write!(text, "{byte},").unwrap();
    }
    text
}

/// Variants of the debug offsets at the start of `_PyRuntime`.
fn statements() -> Vec<Vec<u8>> {
    let mut random = random_from(88_172_645_463_325_252);
    let begins = |version: u64, is_free_threaded: u64| {
        let words = [version.to_le_bytes(), is_free_threaded.to_le_bytes()];
        [b"xdebugpy".to_vec(), words.concat()].concat()
    };
    let offsets = |begin: Vec<u8>, mut offset: Box<dyn FnMut() -> u64>| {
        let words = (0..120).flat_map(|_| offset().to_le_bytes());
        begin.into_iter().chain(words).collect::<Vec<u8>>()
    };
    let garbage: Vec<u8> = (0..600).flat_map(|_| random().to_le_bytes()).collect();
    let mut statements = vec![garbage, b"xdebugpy".to_vec()];
    for version in [0x030d_05f0, 0x030e_0af0, 0x030f_00f0] {
        for is_free_threaded in [0, 1] {
            let begin = begins(version, is_free_threaded);
            statements.push(offsets(begin.clone(), Box::new(|| u64::MAX)));
            statements.push(offsets(begin.clone(), Box::new(|| 0)));
            statements.push(offsets(begin.clone(), Box::new(|| 255)));
            statements.push(offsets(begin.clone(), Box::new(|| 0x8000_0000_0000)));
            let random = random.clone();
            statements.push(offsets(begin.clone(), Box::new(random)));
            let mut random = random_from(u64::from(is_free_threaded == 1) + version % 97 + 1);
            statements.push(offsets(begin, Box::new(move || random() % 256)));
        }
    }
    statements
}

fn random_from(mut seed: u64) -> impl FnMut() -> u64 + Clone {
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    }
}

#[test]
fn root_hostile_python_debug_offsets_do_no_harm() {
    for (index, bytes) in statements().into_iter().enumerate() {
        let mut program = HostileProgram::start(&[stated(&bytes)]);
        let mut gpuprobe = Setup::pid(program.child.pid()).start();
        program.go("good", 50);
        program.go("cycle", 50);
        let report = check(&mut gpuprobe, 100);
        for site in list(report.process(program.child.pid()), "sites") {
            let (frames, _) = python_frames(list(site, "stack"));
            assert_eq!(frames, [], "{index}");
        }
    }
}
