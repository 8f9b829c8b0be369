//! CPU time and memory used by gpuprobe itself.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::programs::{Gpuprobe, Workload, field};

/// Measures CPU time at constant call rates.
pub(crate) fn measure_load(bench: &mut Bench) -> Result<()> {
    for (rate, goal, stacks) in [
        (4_000, "< 0.5", "off"),
        (200_000, "< 4", "off"),
        (200_000, "", "auto"),
    ] {
        let mut target = Workload::start(&bench.workload())?;
        target.time_pairs(1)?;
        let tracer = Gpuprobe::attach(target.pid(), &["--interval", "2s", "--stacks", stacks])?;
        let before = tracer.cpu_seconds()?;
        let seconds = bench.seconds;
        let reply = target.run(&format!("pace {rate} {seconds} 4096"))?;
        let used = tracer.cpu_seconds()? - before;
        let achieved = field(&reply, "rate")?;
        bench.figure(
            &format!("events per second, {rate} asked for"),
            achieved,
            "",
        );
        let name = format!("CPU at {rate} events/s, stacks {stacks} (% of a core)");
        bench.figure(&name, used / seconds * 100.0, goal);
    }
    Ok(())
}

/// Measures resident memory.
pub(crate) fn measure_memory(bench: &mut Bench) -> Result<()> {
    let mut target = Workload::start(&bench.workload())?;
    target.time_pairs(1)?;
    let tracer = Gpuprobe::attach(target.pid(), &["--interval", "1h"])?;
    let (idle, idle_own) = tracer.resident_bytes()?;
    bench.figure("resident memory, idle (MB)", idle / 1e6, "< 20");
    let live = bench.live;
    target.run(&format!("alloc 512 {live}"))?;
    // The ring is read at least every 100 ms; no event signals it to the outside.
    thread::sleep(Duration::from_secs(1));
    let (_, full_own) = tracer.resident_bytes()?;
    let each = (full_own - idle_own) / live as f64;
    bench.figure("memory per live allocation (bytes)", each, "<= 64");
    Ok(())
}
