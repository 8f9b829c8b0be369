//! What the tests stand on: the stand-in, traced programs, gpuprobe, and its reports.

pub(crate) mod breakpoints;
pub(crate) mod cgroup;
pub(crate) mod child;
pub(crate) mod family;
pub(crate) mod gpuprobe;
pub(crate) mod nvml;
pub(crate) mod objects;
pub(crate) mod report;
mod root;
pub(crate) mod standin;
pub(crate) mod talk;
pub(crate) mod transcript;
pub(crate) mod truth;
mod turns;
mod work;

use std::process;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use cgroup::Cgroup;
pub(crate) use family::{Family, Member};
pub(crate) use gpuprobe::{Gpuprobe, Setup};
pub(crate) use nvml::Nvml;
pub(crate) use objects::Objects;
pub(crate) use report::Report;
pub(crate) use root::Root;
pub(crate) use standin::{Backend, OwnCopy, copy_program, standin};
pub(crate) use talk::{Workload, said};
pub(crate) use truth::Truth;
pub(crate) use turns::{alone, system_wide};

/// After this long, what a test waits for will not come any more.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// How many times longer everything may take: in an emulated machine, more than once.
fn patience() -> u32 {
    let times = std::env::var("GPUPROBE_PATIENCE").ok();
    times.and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Waits until `done` gives a value.
///
/// # Panics
/// At the deadline, naming `what`.
pub(crate) fn wait_for<T>(what: &str, done: impl FnMut() -> Option<T>) -> T {
    wait_within(DEADLINE * patience(), what, done)
}

/// Waits until `done` gives a value, for `limit`.
///
/// # Panics
/// At the end of `limit`, naming `what`.
pub(crate) fn wait_within<T>(
    limit: Duration,
    what: &str,
    mut done: impl FnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < end, "timed out waiting for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Fails the test where nothing can be traced, before it begins anything. None is skipped: that would
/// look like one that passed.
///
/// # Panics
/// With what there is to do: "needs root: ..." for another user.
pub(crate) fn require_bpf() {
    static CHECKED: OnceLock<Result<(), String>> = OnceLock::new();
    if let Err(problem) = CHECKED.get_or_init(check_bpf) {
        panic!("{problem}");
    }
}

/// What there is to do before anything can be traced.
fn check_bpf() -> Result<(), String> {
    // Whoever says so has asked it already: it takes a while in an emulated machine.
    if std::env::var_os("GPUPROBE_DOCTOR_IS_CONTENT").is_some() {
        return Ok(());
    }
    if !nix::unistd::Uid::effective().is_root() {
        let how = "scripts/test.sh, or sudo -E \"$(command -v cargo)\" test --test e2e";
        return Err(format!("needs root, to load BPF programs: {how}"));
    }
    let doctor = process::Command::new(gpuprobe::BINARY)
        .arg("doctor")
        .output()
        .expect("gpuprobe can be run");
    if doctor.status.success() {
        return Ok(());
    }
    let report = String::from_utf8_lossy(&doctor.stdout);
    Err(format!(
        "needs a kernel where BPF can be used; `gpuprobe doctor` says:\n{report}"
    ))
}
