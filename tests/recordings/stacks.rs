//! Recorded call stacks.

use std::fs;
use std::path::Path;

use gpuprobe_model::abi::{RawCall, record};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Frame, Location, ModuleId, bare_frame};
use gpuprobe_recording::Player;
use gpuprobe_recording::log::LogNote;
use gpuprobe_report::label::shortened;
use rusqlite::Connection;
use zerocopy::IntoBytes;

use crate::scene::{MEMORY, MIB, PID, SECOND, begin, call, mark, task};
use crate::{Folder, gpuprobe, html, report, report_json, sites};

fn location(address: u64) -> Location {
    Location {
        address,
        module: Some(ModuleId(u32::try_from(address >> 12).unwrap())),
        offset: address & 0xfff,
    }
}

fn stack(addresses: &[u64], is_complete: bool) -> CallStack {
    CallStack {
        locations: addresses.iter().copied().map(location).collect(),
        is_complete,
    }
}

/// `cudaMalloc` in `0x1000`, called by `load` in `main`, and elsewhere by unknown code.
fn learn(recorder: &mut Player) {
    let frame = |address, function: &str, module: &str, source: Option<(&str, u32)>| Frame {
        function: function.to_owned(),
        file: source.map(|(file, _)| file.to_owned()),
        line: source.map(|(_, line)| line),
        module: module.to_owned(),
        ..bare_frame(&location(address))
    };
    let train = "/opt/train";
    let inlined = Frame {
        inlined: true,
        ..frame(
            0x2010,
            "grow<float>(unsigned long)",
            train,
            Some(("/src/pool.h", 17)),
        )
    };
    let load = frame(
        0x2010,
        "load(char const*)",
        train,
        Some(("/src/load.cc", 42)),
    );
    let libc = "/lib/x86_64-linux-gnu/libc.so.6";
    for frames in [
        vec![frame(
            0x1000,
            "cudaMalloc",
            "/usr/lib/libcudart.so.12",
            None,
        )],
        vec![inlined, load],
        vec![frame(0x2020, "main", train, Some(("/src/main.cc", 7)))],
        vec![frame(0x3030, "__libc_start_main", libc, None)],
        vec![frame(0x4040, "evil\u{1b}[2J;\nname", "/opt/a\tb.so", None)],
    ] {
        let address = frames[0].address;
        recorder.note(LogNote::Frames(
            PID,
            location(address),
            address == 0x1000,
            frames,
        ));
    }
}

/// 20 and 4 MiB from one site, of which 4 are freed; 8 from another; 1 without a stack; 5 MiB of
/// host memory.
pub(crate) fn record(path: &Path) {
    let mut recorder = begin(path, MEMORY);
    let identity = Identity {
        single_gpu: true,
        ..Identity::default()
    };
    // Stacks may be recorded before any other event.
    let known = stack(&[0x1000, 0x2010, 0x2020, 0x3030], true);
    recorder.note(LogNote::Stack(PID, 11, known.clone()));
    recorder.note(LogNote::Identity(PID, identity));
    recorder.record(task(record::PROCESS, "python", 1_000).as_bytes());
    recorder.record(task(record::THREAD, "python", 1_000).as_bytes());
    let at_stack = |recorder: &mut Player, stack, call: RawCall| {
        recorder.record(RawCall { stack, ..call }.as_bytes());
    };
    at_stack(
        &mut recorder,
        11,
        call("cudaMalloc", 0x10_0000, 20 * MIB, 2_000),
    );
    recorder.note(LogNote::Stack(PID, 12, known));
    at_stack(
        &mut recorder,
        12,
        call("cudaMalloc", 0x20_0000, 4 * MIB, SECOND),
    );
    learn(&mut recorder);
    recorder.note(mark(32, false, false, Default::default()));
    recorder.record(call("cudaFree", 0x20_0000, 0, 2_100_000_000).as_bytes());
    recorder.note(LogNote::Stack(PID, 13, stack(&[0x1000, 0x4040], false)));
    for (id, symbol, address, bytes, start_ns) in [
        (13, "cudaMalloc", 0x30_0000, 8 * MIB, 2_200_000_000),
        (99, "cudaMalloc", 0x40_0000, MIB, 2_300_000_000),
        (11, "cudaMallocHost", 0x50_0000, 5 * MIB, 2_400_000_000),
    ] {
        at_stack(&mut recorder, id, call(symbol, address, bytes, start_ns));
    }
    recorder.note(mark(34, false, true, Default::default()));
    recorder.finish();
}

/// Memory of a process, each allocation with its own stack, of which the names may be known in the end.
fn record_many(path: &Path, stacks: u64, depth: u64, are_known: bool) {
    let mut recorder = begin(path, MEMORY);
    let at = |number: u64, depth: u64| Location {
        address: depth << 32 | number,
        module: None,
        offset: 0,
    };
    for number in 1..=stacks {
        let stack = CallStack {
            locations: (1..=depth).map(|depth| at(number, depth)).collect(),
            is_complete: true,
        };
        recorder.note(LogNote::Stack(PID, number, stack));
        let call = RawCall {
            stack: number,
            ..call("cudaMalloc", number << 12, 512, number * 100)
        };
        recorder.record(call.as_bytes());
    }
    // Symbols are resolved later.
    recorder.pause();
    for number in (1..=stacks).filter(|_| are_known) {
        for depth in 1..=depth {
            let at = at(number, depth);
            let named = Frame {
                function: format!("f{depth}"),
                module: "/opt/app".to_owned(),
                ..bare_frame(&at)
            };
            recorder.note(LogNote::Frames(PID, at, depth == 1, vec![named]));
        }
    }
    recorder.finish();
}

pub(crate) fn record_without_symbols(path: &Path) {
    record_many(path, 2, 3, false);
}

#[test]
fn more_stacks_than_a_transaction_holds_are_all_written() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    record_many(&file, 700, 30, true);
    let connection = Connection::open(&file).unwrap();
    let number = |sql: &str| -> i64 { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
    let chains = "SELECT count(*) FROM CUDA_CALLCHAINS";
    assert_eq!(number(chains), 21_000);
    assert_eq!(number(&format!("{chains} WHERE unresolved = 1")), 0);
    assert_eq!(number("SELECT count(*) FROM GPUPROBE_STACKS"), 700);
    // As in a live run, each is a site, whatever the names.
    let leakage = ["--analysis", "leakage", "--group"];
    let text = report(&file, &leakage);
    assert!(text.contains(" in 700 allocations"), "{text}");
    let sites = sites(&report_json(&file, &leakage));
    assert_eq!(sites.len(), 700);
    assert_eq!(sites[0]["live_allocations"], 1);
}

#[test]
fn a_site_has_one_label_in_all_outputs() {
    let folder = Folder::new();
    let file = folder.scene("python");
    let leakage = report_json(&file, &["--analysis", "leakage", "--group"]);
    let sites = sites(&leakage);
    let labels = [0, 1].map(|index| sites[index]["label"].as_str().unwrap());
    let page = html::document(&html::html(&file, &[])).to_string();
    let [chart, junit] = ["chart.svg", "junit.xml"].map(|name| folder.path(name));
    let file = file.display();
    let mut outputs = vec![("page".to_owned(), page)];
    for command in [
        format!("report {file} --analysis leakage --group"),
        format!("report {file} --analysis watermark --group --format json"),
        format!("report {file} --diff {file} --format json"),
        format!("explain {file}"),
        format!("explain {file} --format json"),
        format!("replay {file} --last"),
        format!("replay {file} --last --format json"),
        format!("plot {file} --by site -o {}", chart.display()),
        format!(
            "report {file} --fail-on never-freed --junit {}",
            junit.display()
        ),
    ] {
        let output = gpuprobe(&command.split(' ').collect::<Vec<_>>());
        let mut written = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        for file in [&chart, &junit] {
            written += &fs::read_to_string(file).unwrap_or_default();
            let _ = fs::remove_file(file);
        }
        outputs.push((command, written.replace("&lt;", "<").replace("&gt;", ">")));
    }
    for (command, written) in outputs {
        // A comparison does not tell what an allocator took for its pool from the rest of a line.
        let labels = &labels[usize::from(command.contains("--diff"))..];
        for label in labels {
            // Legends are short.
            let is_there = written.contains(*label) || written.contains(&shortened(label));
            assert!(is_there, "{command}: {label}: {written}");
        }
    }
}
