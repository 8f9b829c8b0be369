//! Kinds of memory in text and CSV reports.

use std::fs;

use super::ScriptRun;
use crate::harness::{Backend, Setup, standin};

fn text_of(format: &str, commands: &[&str]) -> (u32, Vec<String>, String) {
    let setup = Setup::command([standin().program_text(Backend::Driver)]);
    let mut run = ScriptRun::of(setup.format(format).args(["--group", "thread"]));
    let replies = commands.iter().map(|c| run.say(c)).collect();
    let pid = run.pid;
    let mut gpuprobe = run.gpuprobe;
    gpuprobe.talk.done();
    gpuprobe.wait();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    (pid, replies, text)
}

#[test]
fn root_text_has_kinds_of_memory() {
    let (pid, replies, text) = text_of(
        "text",
        &[
            "alloc 10485760",
            "managed 9437184",
            "pinned 8388608",
            "array 1024 1024 0 4 8",
            "vcreate 2097152",
            "vcreate 4194304",
            "vreserve 4194304",
            "vmap 4 0",
            "module one weights=1048576",
            "symbol weights",
            "pool create",
            "poolalloc 0 524288",
            "pool attr 0",
            "extimport 65536",
            "register 3072",
            "vcreate 6291456 host",
        ],
    );
    let word = |reply: usize, n: usize| replies[reply].split(' ').nth(n).unwrap();
    let lines: Vec<_> = text.lines().skip(1).collect();
    let expected = [
        format!("PID: {pid} / UID: 0 (exited)"),
        format!("  workload_driver:{pid}"),
        format!("    {}:gpu_0: 10.00 MiB", word(0, 0)),
        format!("    {}:gpu_0: 9.00 MiB managed", word(1, 0)),
        format!("    {}:host: 8.00 MiB pinned", word(2, 0)),
        "    0x0:host: 6.00 MiB vmm (not mapped)".to_owned(),
        format!("    {}:gpu_0: 4.00 MiB array (computed)", word(3, 0)),
        format!("    {}:gpu_0: 4.00 MiB vmm", word(7, 0)),
        "    0x0:gpu_0: 2.00 MiB vmm (not mapped)".to_owned(),
        format!("    {}:gpu_0: 1.00 MiB static weights", word(9, 0)),
        format!("    {}:gpu_0: 512.00 KiB async", word(11, 0)),
        "    0x0:gpu_0: 64.00 KiB imported (not mapped)".to_owned(),
        "    ... and 1 more, 3.00 KiB".to_owned(),
        "  by kind: device 10.00 MiB, array 4.00 MiB, managed 9.00 MiB, \
         pinned 8.00 MiB (host), registered 3.00 KiB (host), async 512.00 KiB, \
         vmm 12.00 MiB, static 1.00 MiB, imported 64.00 KiB (not counted)"
            .to_owned(),
        "  address space reserved, no memory: 4.00 MiB".to_owned(),
        format!(
            "  pool {}: used 512.00 KiB, reserved 32.00 MiB",
            word(10, 1)
        ),
        String::new(),
        "TOTAL LEAKED: 30.50 MiB".to_owned(),
        "besides, host memory: 14.00 MiB in 3".to_owned(),
        "besides, memory of others: 64.00 KiB in 1".to_owned(),
    ];
    assert_eq!(lines[..expected.len()], expected, "{text}");
    assert!(
        text.ends_with("\n31981568 bytes leaked from 7 cuda memory allocation(s)\n\n"),
        "{text}"
    );
}

#[test]
fn root_text_has_memory_by_device() {
    let setup = Setup::command([standin().program_text(Backend::Shared)]);
    let setup = setup.env("STANDIN_DEVICES", "2").format("text");
    let mut run =
        ScriptRun::of(setup).play("alloc 1048576; setdevice 1; managed 2097152; async 512");
    run.gpuprobe.talk.done();
    run.gpuprobe.wait();
    let text = fs::read_to_string(&run.gpuprobe.reports).unwrap();
    for line in [
        "by kind: managed 2.00 MiB, device 1.00 MiB, async 512 B",
        "by GPU: GPU 0 1.00 MiB, GPU 1 2.00 MiB",
    ] {
        assert!(text.lines().any(|l| l == line), "no '{line}' in {text}");
    }
}

#[test]
fn root_csv_has_names_and_handles() {
    let (_, replies, text) = text_of(
        "csv",
        &[
            "vcreate 2097152",
            "vreserve 2097152",
            "vmap 0 0",
            "module one weights=100",
            "symbol weights",
            "pinned 64",
            "vcreate 4194304 host",
        ],
    );
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<_> = rows.headers().unwrap().iter().map(str::to_owned).collect();
    let column = |name: &str| header.iter().position(|h| h == name).unwrap();
    let mut found: Vec<_> = rows
        .records()
        .map(|row| {
            let row = row.unwrap();
            ["kind", "bytes", "device", "address", "name", "handle"]
                .map(|name| row[column(name)].to_owned())
        })
        .collect();
    found.sort_unstable();
    let word = |reply: usize| replies[reply].split(' ').next().unwrap();
    let expected = [
        ["pinned", "64", "", word(5), "", ""],
        ["static", "100", "0", word(4), "weights", ""],
        ["vmm", "2097152", "0", word(2), "", word(0)],
        ["vmm", "4194304", "", "0x0", "", word(6)],
    ];
    assert_eq!(found, expected);
}
