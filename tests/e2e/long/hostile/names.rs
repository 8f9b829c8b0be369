//! Programs with unreadable DWARF and unwind tables.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::Value;
use tempfile::TempDir;

use super::files::{header_of, set};
use super::watch::Watched;
use super::{Attacker, cc, program, source};
use crate::harness::{Backend, Report, Setup, Workload, alone, standin};

/// Whether a call of the process has `function` on its stack.
fn has_frame(report: &Report, pid: u32, function: &str) -> bool {
    let processes = report["memleak"]["processes"].as_array();
    let its = processes.into_iter().flatten().filter(|p| p["pid"] == pid);
    let sites = its
        .filter_map(|process| process["sites"].as_array())
        .flatten();
    let frames = sites.filter_map(|site| site["stack"].as_array()).flatten();
    let mut names = frames.map(|frame: &Value| &frame["function"]);
    names.any(|name| name == function)
}

/// Traces every process while this program calls through the hostile function; returns the
/// messages.
fn trace(program: &Path, is_named: bool) -> Vec<String> {
    let victim = Workload::start(Backend::Shared);
    let mut attacker = Attacker::start(&mut Command::new(program));
    attacker.say(&format!("load {}", standin().runtime()));
    let setup = Setup::everything().args(["--stacks", "dwarf"]);
    let mut watched = Watched::start(setup, victim);
    watched.go_on();
    attacker.say("call");
    let pid = attacker.child.pid();
    let gpuprobe = &watched.gpuprobe;
    gpuprobe.report_where("the call", |report| !report.entries(pid).is_empty());
    if is_named {
        // From the symbol table, which is valid.
        gpuprobe.report_where("its name", |report| has_frame(report, pid, "call_it"));
    }
    watched.go_on();
    watched.end().1
}

#[test]
fn root_functions_inlined_250_000_deep_do_not_crash_gpuprobe() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let sources = [source("maps.c"), source("nested.s")];
    let program = program(
        folder.path(),
        "nested",
        &sources.each_ref().map(PathBuf::as_path),
    );
    let said = trace(&program, true);
    let is_told = |line: &String| line.contains("cannot read its debug information");
    assert!(said.iter().any(is_told), "{said:#?}");
}

/// Sets the uncompressed size of a program's debug sections.
fn compress(program: &Path, size: u64) {
    let mut bytes = fs::read(program).unwrap();
    let header = header_of(&bytes, ".debug_info");
    // ELFCOMPRESS_ZLIB, size, and alignment.
    let mut section = [1u64, size, 1].map(u64::to_le_bytes).concat();
    let mut encoder = ZlibEncoder::new(&mut section, Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..size >> 20 {
        encoder.write_all(&zeros).unwrap();
    }
    encoder.finish().unwrap();
    let flags = u64::from_le_bytes(bytes[header + 8..header + 16].try_into().unwrap());
    set(&mut bytes, header + 8, flags | 0x800);
    let end = bytes.len() as u64;
    set(&mut bytes, header + 0x18, end);
    set(&mut bytes, header + 0x20, section.len() as u64);
    bytes.extend(section);
    fs::write(program, bytes).unwrap();
}

#[test]
fn root_a_gigabyte_of_dwarf_takes_no_memory() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("bomb");
    let words = ["-g".as_ref(), "-o".as_ref(), program.as_os_str()];
    cc(&[&words[..], &[source("maps.c").as_ref(), "-ldl".as_ref()]].concat());
    compress(&program, 1 << 30);
    let said = trace(&program, true);
    let is_told = |line: &String| line.contains("cannot read its debug information");
    assert!(said.iter().any(is_told), "{said:#?}");
}

#[test]
fn root_16_megabytes_of_cfi_delay_no_other_process() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("unwinding");
    let words = ["-fno-asynchronous-unwind-tables", "-o"].map(AsRef::as_ref);
    let sources = [source("maps.c"), source("unwinding.s")];
    let sources = sources.each_ref().map(|source| source.as_os_str());
    cc(&[
        &words[..],
        &[program.as_os_str()],
        &sources[..],
        &["-ldl".as_ref()],
    ]
    .concat());
    assert!(fs::metadata(&program).unwrap().len() > 16 << 20);
    trace(&program, false);
}
