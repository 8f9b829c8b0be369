//! The harness: the stand-in, traced programs, gpuprobe, and its reports.

pub(crate) mod breakpoints;
pub(crate) mod cgroup;
pub(crate) mod child;
pub(crate) mod family;
pub(crate) mod gpuprobe;
pub(crate) mod nvml;
pub(crate) mod objects;
pub(crate) mod prometheus;
pub(crate) mod promises;
pub(crate) mod report;
mod root;
mod schedule;
pub(crate) mod served;
pub(crate) mod session;
pub(crate) mod standin;
pub(crate) mod talk;
pub(crate) mod transcript;
pub(crate) mod truth;
mod work;

use std::fmt::Debug;
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
pub(crate) use schedule::{alone, host_wide};
pub(crate) use session::Session;
pub(crate) use standin::{Backend, OwnCopy, copy_program, standin};
pub(crate) use talk::{Workload, said};
pub(crate) use truth::Truth;

/// Timeout of every wait.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Factor for all time limits, above one in an emulated machine.
fn patience() -> u32 {
    let times = std::env::var("GPUPROBE_PATIENCE").ok();
    times.and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Polls until `done` returns a value.
///
/// # Panics
///
/// At the timeout; the message has `what`.
pub(crate) fn wait_for<T>(what: &str, done: impl FnMut() -> Option<T>) -> T {
    wait_within(DEADLINE * patience(), what, done)
}

/// Polls until `done` returns a value, for at most `limit`.
///
/// # Panics
///
/// After `limit`; the message has `what`.
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

/// Polls until `wanted` accepts what `look` returns.
///
/// # Panics
///
/// At the timeout; the message has `what`, and what was seen last.
pub(crate) fn wait_until<T: Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    wanted: impl Fn(&T) -> bool,
) -> T {
    let end = Instant::now() + DEADLINE * patience();
    loop {
        let seen = look();
        if wanted(&seen) {
            return seen;
        }
        assert!(
            Instant::now() < end,
            "timed out waiting for {what}: {seen:#?}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// Fails the test if this machine cannot trace. No test is skipped, because a skipped test looks
/// like one that passed.
///
/// # Panics
///
/// With the remedy, e.g. "needs root: ...".
pub(crate) fn require_bpf() {
    static CHECKED: OnceLock<Result<(), String>> = OnceLock::new();
    if let Err(problem) = CHECKED.get_or_init(check_bpf) {
        panic!("{problem}");
    }
}

/// The remedy if this machine cannot trace.
fn check_bpf() -> Result<(), String> {
    // The caller of the tests has already checked: the check takes a while in an emulated machine.
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
