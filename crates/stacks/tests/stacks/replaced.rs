//! Processes that have ended, and files that have changed, before they are read.

use std::fs;
use std::sync::mpsc;

use gpuprobe_stacks::elf::Refusal;
use gpuprobe_stacks::helper::{FileReader, ProcessReader};
use gpuprobe_stacks::symbols::{Service, SymbolMessage, SymbolRequest};

use crate::harness::{Build, Stopped, World, folder};

const NAMES: [&str; 5] = ["leaf", "inner", "middle", "outer", "main"];

fn chain(folder: &std::path::Path) -> std::path::PathBuf {
    let build = Build {
        source: "chain.c",
        flags: &["-O2"],
        is_stripped: false,
    };
    build.put(folder)
}

#[test]
fn a_process_that_ends_before_its_symbols_are_read() {
    let folder = folder();
    let program = chain(folder.path());
    let mut process = Stopped::start(&program, &[]);
    let mut world = World::new();
    let registers = process.registers();
    let bytes = process.stack(registers.rsp, 1 << 16);
    world.spaces.refresh(process.pid());
    process.kill();
    fs::remove_file(&program).unwrap();
    let copy = gpuprobe_stacks::StackCopy {
        ip: registers.rip,
        sp: registers.rsp,
        bp: registers.rbp,
        bytes: &bytes,
        replaced: &[],
    };
    let unwound = world.spaces.unwind(process.pid(), &copy);
    assert!(unwound.stack.is_complete);
    let (sender, answers) = mpsc::channel();
    let readers = (FileReader::default(), ProcessReader::default());
    let service = Service::start(&readers.0, &readers.1, sender).unwrap();
    for (index, location) in unwound.stack.locations.iter().enumerate() {
        let request = SymbolRequest {
            pid: process.pid(),
            location: *location,
            is_innermost: index == 0,
        };
        let module = location.module.and_then(|id| world.spaces.module(id));
        service.send(SymbolMessage::Find(request, module));
    }
    drop(service);
    let answers: Vec<_> = answers.iter().collect();
    let names: Vec<_> = answers
        .iter()
        .flat_map(|a| &a.frames)
        .map(|f| &*f.function)
        .collect();
    let own = names.iter().position(|name| *name == "leaf").unwrap();
    assert_eq!(names[own..own + 5], NAMES);
    world.spaces.forget(process.pid());
    assert_eq!(
        world.spaces.locate(process.pid(), registers.rip).module,
        None
    );
    assert!(
        world
            .spaces
            .module(unwound.stack.locations[0].module.unwrap())
            .is_some()
    );
}

/// A 32-bit program without libraries: a header and `jmp .`.
fn tiny_32_bit() -> Vec<u8> {
    let mut file = vec![
        0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0,
    ];
    let entry = 0x0804_8000 + 84u32;
    for word in [1, entry, 52, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    for half in [52u16, 32, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // PT_LOAD of the whole file, readable and executable.
    for word in [1, 0, 0x0804_8000, 0x0804_8000, 86, 86, 5, 4096u32] {
        file.extend(word.to_le_bytes());
    }
    file.extend([0xeb, 0xfe]);
    file
}

#[test]
fn a_32_bit_program_is_rejected() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let program = folder.path().join("tiny");
    fs::write(&program, tiny_32_bit()).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let headers = gpuprobe_stacks::elf::Headers::parse(&tiny_32_bit());
    assert_eq!(headers, Err(Refusal::Is32Bit));
    // Kernels without 32-bit emulation cannot run it; then only its header is checked.
    let Ok(mut child) = std::process::Command::new(&program).spawn() else {
        return;
    };
    let mut world = World::new();
    // The process exists before its program is mapped.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let mut refusal = None;
    while refusal.is_none() && std::time::Instant::now() < end {
        world.spaces.refresh(child.id());
        refusal = world.spaces.refusal(child.id()).cloned();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(refusal, Some(Refusal::Is32Bit));
}
