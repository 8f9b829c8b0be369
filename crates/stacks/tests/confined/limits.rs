//! Malicious files: truncated while being read, or too large.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use gpuprobe_cuda::Layer;
use gpuprobe_stacks::helper::{FileReader, NotNow};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::PLACE;
use crate::harness::{Build, folder};

/// A library with a few functions.
fn library(folder: &Path) -> Vec<u8> {
    let build = Build {
        source: "chain.c",
        flags: &["-O2"],
        is_stripped: false,
    };
    fs::read(build.put(folder)).unwrap()
}

fn number(bytes: &[u8], at: usize, size: usize) -> usize {
    let mut number = [0; 8];
    number[..size].copy_from_slice(&bytes[at..at + size]);
    usize::try_from(u64::from_le_bytes(number)).unwrap()
}

/// Offset of the section header of this type.
fn section(bytes: &[u8], kind: usize) -> usize {
    let (table, count) = (number(bytes, 0x28, 8), number(bytes, 0x3c, 2));
    let all = (0..count).map(|index| table + index * 64);
    let mut found = all.filter(|&section| number(bytes, section + 4, 4) == kind);
    found.next().unwrap()
}

/// The number of functions that a reader finds.
fn functions(reader: &FileReader, path: &Path) -> anyhow::Result<usize> {
    let file = File::open(path).unwrap();
    loop {
        match reader.functions(&file, path, Layer::Driver) {
            // The next has not begun yet.
            Err(error) if error.is::<NotNow>() => {}
            found => return Ok(found?.len()),
        }
    }
}

/// The file is truncated while it is read, which sends SIGBUS to a process that has it mapped.
pub(crate) fn a_file_that_ends_its_reader_is_bad() {
    let folder = folder();
    let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
    let bytes = library(folder.path());
    fs::write(&good, &bytes).unwrap();
    fs::write(&bad, &bytes).unwrap();
    let reader = FileReader::new(PLACE);
    assert_eq!(functions(&reader, &good).unwrap(), 0);
    let file = File::options().read(true).write(true).open(&bad).unwrap();
    // The symbol table is behind the original end of the file.
    let table = section(&bytes, 11) + 0x18;
    let place = (bytes.len() as u64).next_multiple_of(4096);
    let mut changed = bytes.clone();
    changed[table..table + 8].copy_from_slice(&place.to_le_bytes());
    fs::write(&bad, &changed).unwrap();
    file.set_len(place + (1 << 20)).unwrap();
    assert!(file.metadata().unwrap().len() > place);
    // The file is cut again and again while it is read.
    let cut = file.try_clone().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cutter = scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                cut.set_len(4096).unwrap();
                cut.set_len(place + (1 << 20)).unwrap();
            }
        });
        for _ in 0..50 {
            // Any result is accepted, but other files must still be readable.
            let _ = functions(&reader, &bad);
            assert_eq!(functions(&reader, &good).unwrap(), 0);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        cutter.join().unwrap();
    });
}

/// Symbols in a hole of the file, just within the limits. Some are functions, all with a name of a megabyte.
pub(crate) fn a_file_that_takes_too_long_is_bad() {
    let folder = folder();
    let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
    let bytes = library(folder.path());
    fs::write(&good, &bytes).unwrap();
    let mut changed = bytes.clone();
    let symbols = section(&bytes, 11);
    let names = section(&bytes, 3);
    let hole = (bytes.len() as u64).next_multiple_of(4096);
    let count: u64 = 2_000_000;
    let set = |bytes: &mut Vec<u8>, at: usize, value: u64| {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    set(&mut changed, symbols + 0x18, hole);
    set(&mut changed, symbols + 0x20, count * 24);
    // One long name for all symbols.
    let text = hole + count * 24;
    set(&mut changed, names + 0x18, text);
    set(&mut changed, names + 0x20, 1 << 20);
    fs::write(&bad, &changed).unwrap();
    let file = File::options().write(true).open(&bad).unwrap();
    let symbol = [&[0, 0, 0, 0, 0x12, 0, 1][..], &[0; 17]].concat();
    file.write_all_at(&symbol.repeat(20_000), hole).unwrap();
    file.write_all_at(&vec![b'x'; (1 << 20) - 1], text).unwrap();
    file.set_len(text + (1 << 20)).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 < 4 << 20);
    let reader = FileReader::new(PLACE);
    for round in 0..3 {
        let begin = Instant::now();
        assert!(functions(&reader, &bad).is_err(), "{round}");
        let limit = Duration::from_secs(if round == 0 { 5 } else { 1 });
        assert!(begin.elapsed() < limit, "{round}: {:?}", begin.elapsed());
        assert_eq!(functions(&reader, &good).unwrap(), 0);
    }
}

/// The status of each child of this process.
fn children() -> Vec<(i32, String)> {
    let own = format!("PPid:\t{}\n", std::process::id());
    let all = procfs::process::all_processes().unwrap().flatten();
    let status = |pid| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let all = all.map(|process| (process.pid, status(process.pid)));
    all.filter(|(_, text)| text.contains(&own)).collect()
}

/// The parser has no capabilities, and cannot gain any.
pub(crate) fn parsers_may_do_nothing_else() {
    let _reader = FileReader::new(PLACE);
    let end = Instant::now() + Duration::from_secs(20);
    let is_confined = |(_, text): &(i32, String)| {
        let lines = [
            "CapPrm:\t0000000000000000",
            "CapEff:\t0000000000000000",
            "NoNewPrivs:\t1",
        ];
        lines.iter().all(|line| text.contains(line))
    };
    while !children().iter().any(is_confined) {
        assert!(Instant::now() < end, "it is not confined");
        std::thread::yield_now();
    }
}

/// Whoever kills it: that is no fault of a file's.
pub(crate) fn a_parser_that_is_killed_is_replaced() {
    let folder = folder();
    let good = folder.path().join("good");
    fs::write(&good, library(folder.path())).unwrap();
    let reader = FileReader::new(PLACE);
    for _ in 0..5 {
        assert_eq!(functions(&reader, &good).unwrap(), 0);
        for (pid, _) in children() {
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        }
    }
}
