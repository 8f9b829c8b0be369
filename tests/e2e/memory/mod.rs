//! The whole memory API by kind: bytes and allocations equal the program's own.

mod arrays;
pub(crate) mod attach;
mod checkpoints;
mod contexts;
mod failures;
mod filters;
mod frees;
mod graphs;
mod handles;
mod layers;
mod mappings;
mod objects;
mod pools;
mod sharing;
mod variables;

use serde_json::Value;

use crate::harness::session::Ended;
use crate::harness::{Backend, Gpuprobe, Member, Report, Session, Setup, Truth};

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
        Self::of(Setup::workload(backend).args(arguments.iter().copied()))
    }

    pub(crate) fn of(setup: Setup) -> Self {
        let (gpuprobe, pid) = setup.started();
        Self { gpuprobe, pid }
    }

    pub(crate) fn play(mut self, script: &str) -> Self {
        self.gpuprobe.talk.play(script);
        self
    }

    pub(crate) fn say(&mut self, command: &str) -> String {
        self.gpuprobe.talk.say(command)
    }

    pub(crate) fn end(mut self) -> (Report, Truth) {
        let truth = self.gpuprobe.talk.done();
        (self.gpuprobe.final_report(), truth)
    }
}

/// A check of a workload's account in the last report.
type Check = Box<dyn FnOnce(&Report, &Ended)>;

/// Scripts that share a gpuprobe, each in a process of its own. No row needs call stacks, and
/// without them the kernel loads the programs in half the time.
struct Rows {
    session: Session,
    checks: Vec<(String, Ended, Check)>,
    /// Failed calls that workloads do not count, since they neither allocate nor free; negative if
    /// they count more than are memory calls.
    uncounted: i64,
}

impl Rows {
    fn start(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().copied();
        Self {
            session: Session::start(|setup| setup.without_stacks().args(arguments)),
            checks: Vec::new(),
            uncounted: 0,
        }
    }

    /// Ends a workload. The last report must have its kinds of memory, and satisfy `check`.
    fn done(&mut self, member: Member, what: &str, check: impl FnOnce(&Report, &Ended) + 'static) {
        let ended = self.session.done(member);
        self.checks.push((what.to_owned(), ended, Box::new(check)));
    }

    /// Runs a script in a workload for [`Self::done`].
    fn play(
        &mut self,
        backend: Backend,
        script: &str,
        check: impl FnOnce(&Report, &Ended) + 'static,
    ) {
        self.play_with("", backend, script, check);
    }

    /// The same with environment variables.
    fn play_with(
        &mut self,
        settings: &str,
        backend: Backend,
        script: &str,
        check: impl FnOnce(&Report, &Ended) + 'static,
    ) {
        let ended = self.session.play(settings, backend, script);
        let what = format!("{backend:?}: {script}");
        self.checks.push((what, ended, Box::new(check)));
    }

    /// Runs scripts, each with the expected live memory after it as in [`kinds`], on each backend:
    /// `SCRIPT => KINDS`, with `before` at the beginning.
    fn after(&mut self, backends: &[Backend], before: &str, rows: &[&str]) {
        for row in rows {
            let (script, expected) = row.split_once(" => ").expect("SCRIPT => KINDS");
            for &backend in backends {
                let script = format!("{before}{script}");
                self.play(backend, &script, left(expected));
            }
        }
    }

    fn table(&mut self, backends: &[Backend], rows: &[&str]) {
        self.after(backends, "", rows);
    }

    /// Stops gpuprobe, checks every row, and returns the report.
    fn end(mut self) -> Report {
        let (report, mut sum) = self.session.end();
        sum.failed = sum.failed.checked_add_signed(self.uncounted).unwrap();
        for (what, row, check) in self.checks {
            assert_eq!(
                report.process(row.pid)["kinds"],
                row.truth.kinds(),
                "{what}"
            );
            report.assert_holds(row.pid, row.truth.bytes, row.truth.live);
            check(&report, &row);
        }
        report.assert_kinds(sum);
        report
    }
}

/// Parses kinds with bytes and allocations, `device 64 in 1, vmm 2097152 in 1` or `nothing`, into what
/// reports have.
fn kinds(expected: &str) -> Value {
    let held = |kind: &str| {
        let words: Vec<_> = kind.split(' ').collect();
        let [kind, bytes, "in", allocations] = words[..] else {
            panic!("'{kind}' in '{expected}'");
        };
        let [bytes, allocations] = [bytes, allocations].map(|n| n.parse::<u64>().unwrap());
        let total = serde_json::json!({"bytes": bytes, "allocations": allocations});
        (kind.to_owned(), total)
    };
    let all = expected.split(", ").filter(|kind| *kind != "nothing");
    all.map(held).collect::<serde_json::Map<_, _>>().into()
}

/// Asserts which kinds of memory a workload had in the end.
fn left(expected: &str) -> impl FnOnce(&Report, &Ended) + 'static {
    let expected = kinds(expected);
    move |_, row| assert_eq!(row.truth.kinds(), expected)
}

pub(crate) fn check(report: &Report, truth: Truth, expected: &str, what: &str) {
    let expected = kinds(expected);
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
