//! The whole memory API by kind: bytes and allocations equal the program's own.

mod arrays;
mod attach;
mod contexts;
mod failures;
mod filters;
mod formats;
mod frees;
mod graphs;
mod handles;
mod layers;
mod mappings;
mod pools;
mod random;
mod sharing;
mod variables;

use serde_json::Value;

use crate::harness::{Backend, Gpuprobe, Report, Setup, Truth, standin};

const MIB: u64 = 1 << 20;
/// Granularity of physical memory.
pub(crate) const STEP: u64 = 2 * MIB;

/// A program that allocates memory of every kind, frees some of it, and exits.
pub(crate) const EVERY_KIND: &str = "alloc 1000 3; free 0; pitched 100 10 2; pitched3d 600 4 3; \
     managed 1000 2; pinned 4096 2; hostalloc 100; register 8192 2; array 64 32 0 4 8; \
     array 32 32 4 1 float; mipmap 64 64 0 3 4 8; kfree 0; kfree 3; kfree 5; kfree 8; kfree 10; \
     module one v=100; symbol v; symbol standin_table; async 4096 3; pool create; \
     poolalloc 0 512 2; afree 15; afree 18 1 plain; vcreate 2097152 2; vcreate 4194304 host; \
     vrelease 20; gnew; galloc 0 8192; galloc 0 1024; gfree 0 $galloc; glaunch 0; \
     extimport 65536; vexport 21; vimport $vexport 2097152; vreserve 4194304; vmap 25 0";

/// The part of it that the runtime supports.
const RUNTIME_KINDS: &str = "alloc 1000 3; free 0; pitched 100 10 2; pitched3d 600 4 3; \
     managed 1000 2; pinned 4096 2; hostalloc 100; register 8192 2; array 64 32 0 4 8; \
     array 32 32 4 1 float; mipmap 64 64 0 3 4 8; kfree 0; kfree 3; kfree 5; kfree 8; kfree 10; \
     async 4096 3; afree 13; afree 14 1 plain; extimport 65536; freenull";

/// gpuprobe with a command that is a workload, traced from its first call.
pub(crate) struct ScriptRun {
    pub(crate) gpuprobe: Gpuprobe,
    pub(crate) pid: u32,
}

impl ScriptRun {
    pub(crate) fn start(backend: Backend, arguments: &[&str]) -> Self {
        let setup = Setup::command([standin().program_text(backend)]);
        Self::of(setup.args(arguments.iter().copied()))
    }

    /// A workload as the command of `setup`.
    fn of(setup: Setup) -> Self {
        let mut gpuprobe = setup.start();
        let pid = gpuprobe.talk.ready();
        Self { gpuprobe, pid }
    }

    pub(crate) fn play(mut self, script: &str) -> Self {
        self.gpuprobe.talk.play(script);
        self
    }

    fn say(&mut self, command: &str) -> String {
        self.gpuprobe.talk.say(command)
    }

    pub(crate) fn end(mut self) -> (Report, Truth) {
        let truth = self.gpuprobe.talk.done();
        (self.gpuprobe.final_report(), truth)
    }
}

/// Runs `script` under a tracer that was attached from the start, without call stacks: none of the
/// hundreds of scripts needs them, and the kernel loads the programs in half the time.
fn traced(backend: Backend, script: &str) -> (Report, Truth, u32) {
    let run = ScriptRun::start(backend, &["--stacks", "off"]).play(script);
    let pid = run.pid;
    let (report, truth) = run.end();
    (report, truth, pid)
}

/// A script, and the expected live memory after it: kinds with bytes and allocations.
type MemoryRow<'a> = (&'a str, &'a [(&'a str, u64, u64)]);

/// Runs each script on each backend.
fn check_rows(backends: &[Backend], rows: &[MemoryRow<'_>]) {
    for (script, expected) in rows {
        for &backend in backends {
            let (report, truth, _) = traced(backend, script);
            check(&report, truth, expected, &format!("{backend:?}: {script}"));
        }
    }
}

/// [`check`] with `before` run first.
fn check_after(backends: &[Backend], before: &str, rows: &[MemoryRow<'_>]) {
    for (script, expected) in rows {
        check_rows(backends, &[(&format!("{before}; {script}"), expected)]);
    }
}

pub(crate) fn check(report: &Report, truth: Truth, expected: &[(&str, u64, u64)], what: &str) {
    let held = |(kind, bytes, allocations): &(&str, u64, u64)| {
        let total = serde_json::json!({"bytes": bytes, "allocations": allocations});
        ((*kind).to_owned(), total)
    };
    let expected: Value = expected.iter().map(held).collect();
    assert_eq!(report["memleak"]["kinds"], expected, "{what}");
    assert_eq!(truth.kinds(), expected, "{what}");
    report.assert_kinds(truth);
}

/// The only live allocation of a kind.
fn only<'a>(report: &'a Report, pid: u32, kind: &str) -> &'a Value {
    let all = of_kind(report, pid, kind);
    assert_eq!(all.len(), 1, "{kind} in {all:#?}");
    all[0]
}

fn of_kind<'a>(report: &'a Report, pid: u32, kind: &str) -> Vec<&'a Value> {
    let all = report.allocations(pid).into_iter();
    all.filter(|a| a["kind"] == kind).collect()
}
