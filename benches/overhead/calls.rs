//! Cost of tracing per call.

use anyhow::Result;

use super::Bench;
use super::bpftrace::Bpftrace;
use super::floor::{Floor, FloorKind};
use super::programs::{Gpuprobe, Workload};

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Bench {
    fn floor(&self, kind: FloorKind, pid: u32) -> Result<Floor> {
        let libraries: Vec<_> = self
            .libraries
            .iter()
            .map(|(path, layer)| (path.as_path(), *layer))
            .collect();
        Floor::attach(kind, &libraries, pid)
    }

    /// Prints the cost of `traced` over `what`, relative to the cost of an empty program.
    fn compare(&mut self, what: &str, times: [f64; 3], (empty, traced): (&str, &str), goal: &str) {
        let [without, floor, with] = times;
        self.figure(
            &format!("{what}, added by {empty} (ns)"),
            floor - without,
            "",
        );
        self.figure(
            &format!("{what}, added by {traced} (ns)"),
            with - without,
            "",
        );
        let ratio = (with - without) / (floor - without);
        self.figure(&format!("{what}, {traced} over {empty}"), ratio, goal);
    }
}

/// Pairs of an allocation and a free: `--memleak` without stacks.
pub(crate) fn measure_pairs(bench: &mut Bench) -> Result<()> {
    let calls = bench.calls;
    let mut target = Workload::start(&bench.workload())?;
    let pid = target.pid();
    target.time_pairs(calls)?;
    let has_bpftrace = Bpftrace::is_there();
    let mut times = [const { Vec::new() }; 7];
    let mut attach_ms = Vec::new();
    for _ in 0..bench.rounds {
        times[0].push(target.time_pairs(calls)?);
        for (slot, kind) in [(1, FloorKind::Session), (3, FloorKind::Multi)] {
            let floor = bench.floor(kind, pid)?;
            times[slot].push(target.time_pairs(calls)?);
            drop(floor);
        }
        for (slot, kind) in [(2, "session"), (4, "multi")] {
            let tracer = Gpuprobe::attach(pid, &["--attach", kind])?;
            attach_ms.push(tracer.attach_time.as_secs_f64() * 1e3);
            times[slot].push(target.time_pairs(calls)?);
        }
        if has_bpftrace {
            let (library, _) = &bench.libraries[0];
            let script = Bpftrace::attach(library, &mut target)?;
            times[5].push(target.time_pairs(calls)?);
            drop(script);
            // It probes one layer only.
            let _tracer = Gpuprobe::attach(pid, &["--api", "runtime"])?;
            times[6].push(target.time_pairs(calls)?);
        }
    }
    let [
        untraced,
        session,
        by_session,
        multi,
        by_multi,
        by_bpftrace,
        one_layer,
    ] = times.map(median);
    bench.figure("pair, untraced (ns)", untraced, "");
    let names = ("an empty session", "gpuprobe with session");
    bench.compare("pair", [untraced, session, by_session], names, "<= 1.25");
    let names = ("empty multi probes", "gpuprobe with multi");
    bench.compare("pair", [untraced, multi, by_multi], names, "<= 1.25");
    if has_bpftrace {
        let (script, ours) = (by_bpftrace - untraced, one_layer - untraced);
        bench.figure("pair, added by a bpftrace ledger (ns)", script, "");
        bench.figure("pair, added by gpuprobe --api runtime (ns)", ours, "");
        let ratio = script / ours;
        bench.figure("pair, bpftrace over gpuprobe --api runtime", ratio, "");
    }
    bench.figure("start to attached (ms)", median(attach_ms), "< 200");
    Ok(())
}

/// Pairs of a program whose calls are probed in one layer, so that the outer calls are all there is:
/// `--memleak` without stacks and with those of a known path.
pub(crate) fn measure_one_layer(bench: &mut Bench) -> Result<()> {
    const MODES: [&str; 2] = ["off", "auto"];
    let calls = bench.calls;
    let mut target = Workload::start(&bench.standin.join("workload_static"))?;
    let pid = target.pid();
    target.time_pairs(calls)?;
    let (mut untraced, mut floors) = (Vec::new(), Vec::new());
    let mut traced = [const { Vec::new() }; MODES.len()];
    for _ in 0..bench.rounds {
        untraced.push(target.time_pairs(calls)?);
        let floor = bench.floor(FloorKind::Session, pid)?;
        floors.push(target.time_pairs(calls)?);
        drop(floor);
        for (mode, times) in MODES.iter().zip(&mut traced) {
            let _tracer = Gpuprobe::attach(pid, &["--stacks", mode])?;
            target.time_pairs(1_000)?;
            times.push(target.time_pairs(calls)?);
        }
    }
    let (untraced, floor) = (median(untraced), median(floors));
    bench.figure("pair in one layer, untraced (ns)", untraced, "");
    for (mode, (times, goal)) in MODES
        .iter()
        .zip(traced.into_iter().zip(["<= 1.15", "<= 1.25"]))
    {
        let names = ("an empty session", &*format!("gpuprobe --stacks {mode}"));
        bench.compare(
            "pair in one layer",
            [untraced, floor, median(times)],
            names,
            goal,
        );
    }
    Ok(())
}

/// Cost for a process that is not traced and uses the same libraries as one that is: traced by its id, by two
/// ids, and as a command, whose children cannot be known before.
pub(crate) fn measure_bystanders(bench: &mut Bench) -> Result<()> {
    let calls = bench.calls;
    let program = bench.workload();
    let mut bystander = Workload::start(&program)?;
    bystander.time_pairs(calls)?;
    let traced = [Workload::start(&program)?, Workload::start(&program)?];
    let pids = traced.each_ref().map(|workload| workload.pid().to_string());
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..bench.rounds {
        times[0].push(bystander.time_pairs(calls)?);
        let tracer = Gpuprobe::attach(traced[0].pid(), &[])?;
        times[1].push(bystander.time_pairs(calls)?);
        drop(tracer);
        let tracer = Gpuprobe::attach(traced[0].pid(), &["--pid", &pids[1]])?;
        times[2].push(bystander.time_pairs(calls)?);
        drop(tracer);
        let tracer = Gpuprobe::run(&program)?;
        times[3].push(bystander.time_pairs(calls)?);
        drop(tracer);
    }
    let [untraced, others @ ..] = times.map(median);
    for (what, time) in ["--pid A", "--pid A --pid B", "COMMAND"].iter().zip(others) {
        let name = format!("pair of a bystander, added by {what} (ns)");
        bench.figure(&name, time - untraced, "");
    }
    Ok(())
}

/// Cost of call stacks, relative to tracing without: for a pair of calls, one of which has its
/// stack captured.
pub(crate) fn measure_stacks(bench: &mut Bench) -> Result<()> {
    const MODES: [&str; 4] = ["off", "fp", "auto", "dwarf"];
    let pairs = bench.calls / 2;
    for (program, what) in [("paths", "frame pointers"), ("paths_bare", "none")] {
        for depth in [10, 50, 100] {
            let mut target = Workload::start(&bench.standin.join(program))?;
            let untraced = target.time_path(depth, pairs)?;
            let mut times = [const { Vec::new() }; MODES.len()];
            for _ in 0..bench.rounds {
                for (mode, times) in MODES.iter().zip(&mut times) {
                    let _tracer = Gpuprobe::attach(target.pid(), &["--stacks", mode])?;
                    target.time_path(depth, 1_000)?;
                    // A copy per call, up to the limit.
                    let pairs = if *mode == "dwarf" { 200 } else { pairs };
                    times.push(target.time_path(depth, pairs)?);
                }
            }
            let [off, others @ ..] = times.map(median);
            for (mode, time) in MODES[1..].iter().zip(others) {
                let name = format!("pair, {depth} deep, {what}: {mode} over off");
                let goal = if *mode == "auto" { "<= 1.5" } else { "" };
                bench.figure(&name, (time - untraced) / (off - untraced), goal);
            }
        }
    }
    Ok(())
}

/// Cost of counting a launch, relative to an empty entry probe on the same functions.
pub(crate) fn measure_launches(bench: &mut Bench) -> Result<()> {
    measure_calls(
        bench,
        ("launch", Workload::time_launches),
        (FloorKind::Launches, "an empty entry probe"),
        ("--cudatrace", "<= 1.05"),
    )
}

/// Cost of timing a copy, relative to an empty session on the same functions.
pub(crate) fn measure_copies(bench: &mut Bench) -> Result<()> {
    measure_calls(
        bench,
        ("copy", Workload::time_copies),
        (FloorKind::Copies, "an empty session"),
        ("--bandwidth-util", "<= 1.12"),
    )
}

/// Makes calls and returns the time per call, nanoseconds.
type Timer = fn(&mut Workload, u64) -> Result<f64>;

fn measure_calls(
    bench: &mut Bench,
    (what, time): (&str, Timer),
    (kind, empty): (FloorKind, &str),
    (mode, goal): (&str, &str),
) -> Result<()> {
    let calls = bench.calls;
    let mut target = Workload::start(&bench.workload())?;
    let pid = target.pid();
    time(&mut target, calls)?;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..bench.rounds {
        times[0].push(time(&mut target, calls)?);
        let floor = bench.floor(kind, pid)?;
        times[1].push(time(&mut target, calls)?);
        drop(floor);
        let _tracer = Gpuprobe::attach_modes(pid, &[mode])?;
        times[2].push(time(&mut target, calls)?);
    }
    let times = times.map(median);
    bench.figure(&format!("{what}, untraced (ns)"), times[0], "");
    bench.compare(what, times, (empty, &format!("gpuprobe {mode}")), goal);
    Ok(())
}
