//! Speed of unwinding and symbolising.
//!
//!     cargo bench --package gpuprobe-benches --bench stacks [-- FILE]
//!
//! 10,000 distinct stacks of 32 frames through FILE, a large library with `.eh_frame_hdr` (default:
//! this toolchain's `librustc_driver`). The stacks are synthetic: return addresses at function
//! entries, placed according to the unwind tables of the file.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, clippy::panic)]

use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gpuprobe_stacks::ElfFile;
use gpuprobe_stacks::helper::{FileReader, ProcessReader};
use gpuprobe_stacks::symbols::{Service, SymbolMessage, SymbolRequest};
use gpuprobe_stacks::{AddressSpaces, StackCopy};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};

const STACKS: usize = 10_000;
const FRAMES: usize = 32;
const BASE: u64 = 0x7ffd_0000_0000;

fn main() {
    let given = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let path = given.map_or_else(large_library, PathBuf::from);
    let size = fs::metadata(&path).unwrap().len();
    println!("{}: {} MB", path.display(), size >> 20);

    let (start, functions) = map(&path);
    let pid = std::process::id();
    let mut spaces = AddressSpaces::new(FileReader::default(), ProcessReader::default());
    spaces.refresh(pid);
    let before = resident_mb();
    let begin = Instant::now();
    let id = spaces.locate(pid, start).module.unwrap();
    let module = spaces.module(id).unwrap();
    let file = ElfFile::of(module.file().unwrap());
    println!("tables: {:.0} ms", milliseconds(begin.elapsed()));

    // Function entries: there the return address is on top of the stack, and one unwinding step
    // moves up one word.
    let headers = module.headers().unwrap();
    let mut state = 1u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 33
    };
    let mut entries = Vec::new();
    while entries.len() < 200_000 {
        let offset = functions.0 + random() % (functions.1 - functions.0);
        let address = headers.segments.address_of(offset).unwrap();
        let entry = file.function(address).map(|function| function.start);
        if let Some((offset, _)) = entry.and_then(|entry| headers.segments.offset_of(entry)) {
            entries.push(start + (offset - functions.0));
        }
    }
    let stacks: Vec<(u64, Vec<u8>)> = (0..STACKS)
        .map(|_| {
            let mut pick = || entries[usize::try_from(random()).unwrap() % entries.len()];
            let ip = pick();
            let words = (1..FRAMES).map(|_| pick() + 1);
            (ip, words.flat_map(u64::to_le_bytes).collect())
        })
        .collect();

    let begin = Instant::now();
    let mut unwound = Vec::new();
    for (ip, bytes) in &stacks {
        let copy = StackCopy {
            ip: *ip,
            sp: BASE,
            bp: 0,
            bytes,
            replaced: &[],
        };
        unwound.push(spaces.unwind(pid, &copy).stack);
    }
    let unwinding = begin.elapsed();
    let frames: usize = unwound.iter().map(|stack| stack.locations.len()).sum();
    println!(
        "unwinding: {:.0} ms, {frames} frames",
        milliseconds(unwinding)
    );

    let begin = Instant::now();
    let (sender, answers) = mpsc::channel();
    let (files, processes) = (FileReader::default(), ProcessReader::default());
    let service = Service::start(&files, &processes, sender).unwrap();
    for stack in &unwound {
        for (index, location) in stack.locations.iter().enumerate() {
            let request = SymbolRequest {
                pid,
                location: *location,
                is_innermost: index == 0,
            };
            service.send(SymbolMessage::Find(request, Some(module.clone())));
        }
    }
    drop(service);
    let answers: Vec<_> = answers.iter().collect();
    let naming = begin.elapsed();
    let named = answers
        .iter()
        .filter(|a| !a.frames[0].function.contains("+0x"))
        .count();
    println!(
        "naming: {:.0} ms, {named} of {} have names",
        milliseconds(naming),
        answers.len()
    );
    println!(
        "both: {:.2} s (goal: 2)",
        (unwinding + naming).as_secs_f64()
    );
    println!(
        "memory: {} MB more than before",
        resident_mb().saturating_sub(before)
    );
}

/// Maps the code of the file; returns its address, and its range in the file.
fn map(path: &std::path::Path) -> (u64, (u64, u64)) {
    let file = fs::File::open(path).unwrap();
    let elf = ElfFile::of(&file);
    let headers = elf.headers().unwrap();
    let code = headers.segments.code().max_by_key(|s| s.file_size);
    let code = code.unwrap();
    let offset = code.offset & !4095;
    let size = code.file_size + (code.offset - offset);
    let length = NonZeroUsize::new(usize::try_from(size).unwrap()).unwrap();
    // SAFETY: a new mapping, at an address that the kernel chooses; nothing reads it.
    #[allow(unsafe_code)]
    let mapped = unsafe {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
        let offset = i64::try_from(offset).unwrap();
        mmap(
            None,
            length,
            protection,
            MapFlags::MAP_PRIVATE,
            &file,
            offset,
        )
        .unwrap()
    };
    (mapped.as_ptr() as u64, (offset, offset + size))
}

fn large_library() -> PathBuf {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .unwrap();
    let root = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()).join("lib");
    let is_it = |path: &PathBuf| path.to_string_lossy().contains("librustc_driver");
    let mut files = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files.find(is_it).unwrap()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn resident_mb() -> u64 {
    let status = procfs::process::Process::myself()
        .unwrap()
        .status()
        .unwrap();
    status.vmrss.unwrap_or(0) >> 10
}
