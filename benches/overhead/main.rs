//! What tracing costs, on the stand-in CUDA libraries: `sudo cargo bench --bench overhead`.
//!
//! Everything that is compared alternates within one run, and ratios are reported: absolute times
//! depend on the machine. Prints a table, and one line of JSON at the end.

#![allow(missing_docs, clippy::print_stdout)]

mod floor;
mod programs;

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use gpuprobe::api::Layer;

use floor::{Floor, FloorKind};
use programs::{Gpuprobe, Workload, field};

const ROUNDS: usize = 7;
const PAIRS: u64 = 200_000;
const LIVE: u64 = 1_000_000;

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() -> Result<()> {
    // `cargo bench -- --quick` for a look at the small version.
    let quick = std::env::args().any(|a| a == "--quick");
    let standin = programs::build_standin()?;
    let workload = standin.join("workload");
    let libraries = [
        (standin.join("libcudart.so.12"), Layer::Runtime),
        (standin.join("libcuda.so.1"), Layer::Driver),
    ];
    let libraries: Vec<_> = libraries.iter().map(|(p, l)| (p.as_path(), *l)).collect();

    let mut json = serde_json::Map::new();
    let mut figure = |name: &str, value: f64, goal: &str| {
        println!("{name:<52} {value:>12.3}   {goal}");
        json.insert(name.to_owned(), serde_json::json!(value));
    };
    println!("{:<52} {:>12}   goal", "figure", "value");

    let (rounds, pairs) = if quick { (3, 20_000) } else { (ROUNDS, PAIRS) };
    let mut target = Workload::start(&workload)?;
    let pid = target.pid();
    target.time_pairs(pairs)?;
    let mut times = [const { Vec::new() }; 5];
    let mut attach_ms = Vec::new();
    for _ in 0..rounds {
        times[0].push(target.time_pairs(pairs)?);
        for (slot, kind) in [(1, FloorKind::Session), (3, FloorKind::Multi)] {
            let floor = Floor::attach(kind, &libraries, pid)?;
            times[slot].push(target.time_pairs(pairs)?);
            drop(floor);
        }
        for (slot, kind) in [(2, "session"), (4, "multi")] {
            let tracer = Gpuprobe::attach(pid, &["--attach", kind])?;
            attach_ms.push(tracer.attach_time.as_secs_f64() * 1e3);
            times[slot].push(target.time_pairs(pairs)?);
        }
    }
    let [untraced, floor, traced, multi_floor, multi_traced] = times.map(median);
    figure("pair, untraced (ns)", untraced, "");
    figure(
        "pair, added by empty session programs (ns)",
        floor - untraced,
        "",
    );
    figure(
        "pair, added by gpuprobe with session (ns)",
        traced - untraced,
        "",
    );
    figure(
        "pair, gpuprobe over empty, session",
        (traced - untraced) / (floor - untraced),
        "<= 1.25",
    );
    figure(
        "pair, added by empty multi programs (ns)",
        multi_floor - untraced,
        "",
    );
    figure(
        "pair, added by gpuprobe with multi (ns)",
        multi_traced - untraced,
        "",
    );
    let ratio = (multi_traced - untraced) / (multi_floor - untraced);
    figure("pair, gpuprobe over empty, multi", ratio, "<= 1.25");
    figure("start to attached (ms)", median(attach_ms), "< 200");
    drop(target);
    measure_stacks(&standin, rounds, pairs / 2, &mut figure)?;
    measure_launches(&workload, &libraries, rounds, pairs, &mut figure)?;

    let seconds = if quick { 3.0 } else { 12.0 };
    for (rate, goal, stacks) in [
        (4_000, "< 0.5", "off"),
        (200_000, "< 5", "off"),
        (200_000, "", "auto"),
    ] {
        let mut target = Workload::start(&workload)?;
        target.time_pairs(1)?;
        let tracer = Gpuprobe::attach(target.pid(), &["--interval", "2s", "--stacks", stacks])?;
        let before = tracer.cpu_seconds()?;
        let reply = target.run(&format!("pace {rate} {seconds} 4096"))?;
        let used = tracer.cpu_seconds()? - before;
        let achieved = field(&reply, "rate")?;
        figure(
            &format!("events per second, {rate} asked for"),
            achieved,
            "",
        );
        figure(
            &format!("CPU at {rate} events/s, stacks {stacks} (% of a core)"),
            used / seconds * 100.0,
            goal,
        );
    }

    let mut target = Workload::start(&workload)?;
    target.time_pairs(1)?;
    let tracer = Gpuprobe::attach(target.pid(), &["--interval", "1h"])?;
    let (idle, idle_own) = tracer.resident_bytes()?;
    figure("resident memory, idle (MB)", idle / 1e6, "< 20");
    target.run(&format!("alloc 512 {LIVE}"))?;
    // The ring is read at least every 100 ms; nothing else can be waited for from outside.
    thread::sleep(Duration::from_secs(1));
    let (_, full_own) = tracer.resident_bytes()?;
    figure(
        "memory per live allocation (bytes)",
        (full_own - idle_own) / LIVE as f64,
        "< 100",
    );
    println!("{}", serde_json::Value::Object(json));
    Ok(())
}

/// The cost of taking call stacks, over tracing without: of a pair of calls, of which one has its
/// stack taken.
fn measure_stacks(
    standin: &Path,
    rounds: usize,
    pairs: u64,
    figure: &mut impl FnMut(&str, f64, &str),
) -> Result<()> {
    const MODES: [&str; 4] = ["off", "fp", "auto", "dwarf"];
    for (program, what) in [("paths", "frame pointers"), ("paths_bare", "none")] {
        for depth in [10, 50, 100] {
            let mut target = Workload::start(&standin.join(program))?;
            let untraced = target.time_path(depth, pairs)?;
            let mut times = [const { Vec::new() }; MODES.len()];
            for _ in 0..rounds {
                for (mode, times) in MODES.iter().zip(&mut times) {
                    let _tracer = Gpuprobe::attach(target.pid(), &["--stacks", mode])?;
                    target.time_path(depth, 1_000)?;
                    // A copy for every call: as many as there is room for.
                    let pairs = if *mode == "dwarf" { 200 } else { pairs };
                    times.push(target.time_path(depth, pairs)?);
                }
            }
            let [off, others @ ..] = times.map(median);
            for (mode, time) in MODES[1..].iter().zip(others) {
                let name = format!("pair, {depth} deep, {what}: {mode} over off");
                let goal = if *mode == "auto" { "<= 1.5" } else { "" };
                figure(&name, (time - untraced) / (off - untraced), goal);
            }
        }
    }
    Ok(())
}

/// The cost of counting a launch, over an empty entry probe on the same functions.
fn measure_launches(
    workload: &Path,
    libraries: &[(&Path, Layer)],
    rounds: usize,
    launches: u64,
    figure: &mut impl FnMut(&str, f64, &str),
) -> Result<()> {
    let mut target = Workload::start(workload)?;
    let pid = target.pid();
    target.time_launches(launches)?;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        times[0].push(target.time_launches(launches)?);
        let floor = Floor::attach(FloorKind::Launches, libraries, pid)?;
        times[1].push(target.time_launches(launches)?);
        drop(floor);
        let _tracer = Gpuprobe::attach_modes(pid, &["--cudatrace"])?;
        times[2].push(target.time_launches(launches)?);
    }
    let [untraced, floor, traced] = times.map(median);
    figure("launch, untraced (ns)", untraced, "");
    figure(
        "launch, added by an empty entry program (ns)",
        floor - untraced,
        "",
    );
    figure(
        "launch, added by gpuprobe --cudatrace (ns)",
        traced - untraced,
        "",
    );
    let ratio = (traced - untraced) / (floor - untraced);
    figure("launch, gpuprobe over empty", ratio, "<= 1.15");
    Ok(())
}
