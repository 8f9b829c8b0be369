//! Output formats.

mod csv;
mod json;
mod text;

use std::fs;

use crate::harness::{Backend, Setup, standin};

/// Prints only the last report.
pub(crate) const ONCE: &str = "1h";

/// Runs commands on a workload; returns its PID, its replies, and the reports.
pub(crate) fn reports_of(
    format: &str,
    interval: &str,
    arguments: &[&str],
    commands: &[&str],
) -> (u32, Vec<String>, String) {
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Shared)])
        .format(format)
        .interval(interval)
        .args(arguments.iter().copied())
        .start();
    let pid = gpuprobe.talk.ready();
    let replies: Vec<_> = commands.iter().map(|c| gpuprobe.talk.say(c)).collect();
    gpuprobe.talk.done();
    gpuprobe.wait();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    (pid, replies, text)
}
