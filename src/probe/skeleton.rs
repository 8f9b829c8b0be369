//! The skeleton that libbpf-cargo generated from `bpf/gpuprobe.bpf.c`.

#![allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    unused_imports,
    unused_qualifications
)]
#![allow(clippy::all, clippy::pedantic, clippy::restriction)]

use anyhow::{Context, Result};
use libbpf_rs::btf::Btf;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{AsRawLibbpf, MapCore, MapHandle, libbpf_sys};
use nix::fcntl::OFlag;
use nix::unistd::dup3_raw;

include!(concat!(env!("OUT_DIR"), "/gpuprobe.skel.rs"));

/// BTF of the programs.
pub(super) fn types_of<'a>(open: &'a OpenGpuprobeSkel<'_>) -> Result<Btf<'a>> {
    let object = open.open_object().as_libbpf_object();
    // SAFETY: libbpf's object is that of the skeleton, which is borrowed as long.
    let types = Btf::from_bpf_object(unsafe { object.as_ref() })?;
    types.context("the BPF object has no BTF")
}

/// Does all that comes before the programs are loaded.
pub(super) fn prepare(open: &mut OpenGpuprobeSkel<'_>) -> Result<()> {
    let object = open.open_object_mut().as_libbpf_object();
    // SAFETY: libbpf's object is that of the skeleton.
    match unsafe { libbpf_sys::bpf_object__prepare(object.as_ptr()) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(-error).into()),
    }
}

/// Puts these maps in the place of those with the same names, of which libbpf knows the descriptors.
pub(super) fn replace_maps(open: &mut OpenGpuprobeSkel<'_>, maps: &[MapHandle]) -> Result<()> {
    for replaced in open.open_object_mut().maps_mut() {
        if let Some(map) = maps.iter().find(|map| map.name() == replaced.name()) {
            // SAFETY: libbpf's map is that of the skeleton, and its descriptor remains libbpf's.
            unsafe {
                let place = libbpf_sys::bpf_map__fd(replaced.as_libbpf_object().as_ptr());
                std::mem::forget(dup3_raw(map, place, OFlag::O_CLOEXEC)?);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use object::{Object, ObjectSection, SectionKind};

    /// Helpers of `enum bpf_func_id` that write to user memory, or override a function's result.
    const WRITE_USER: i32 = 36;
    const OVERRIDE_RETURN: i32 = 58;

    /// The numbers of the helpers called by the programs of an object.
    fn helpers(object: &[u8]) -> Vec<i32> {
        let file = object::File::parse(object).unwrap();
        let mut calls = Vec::new();
        for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
            for instruction in section.data().unwrap().chunks_exact(8) {
                let (code, registers) = (instruction[0], instruction[1]);
                let number = i32::from_le_bytes(instruction[4..8].try_into().unwrap());
                // A call of a helper, not of a BPF function or a kfunc.
                if code == 0x85 && registers >> 4 == 0 {
                    calls.push(number);
                }
            }
        }
        calls
    }

    #[test]
    fn no_program_writes_to_user_memory() {
        let calls = helpers(include_bytes!(concat!(env!("OUT_DIR"), "/gpuprobe.bpf.o")));
        // bpf_probe_read_user is found, so the search works.
        assert!(calls.contains(&112), "{calls:?}");
        for number in [WRITE_USER, OVERRIDE_RETURN] {
            assert!(!calls.contains(&number), "{number}");
        }
    }

    #[test]
    fn no_source_file_writes_to_another_process() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let crates = std::fs::read_dir(root.join("crates")).unwrap();
        let mut folders: Vec<_> = crates
            .map(|entry| entry.unwrap().path().join("src"))
            .chain([root.join("src")])
            .collect();
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let Ok(text) = std::fs::read_to_string(&path) else {
                    continue;
                };
                files += 1;
                let is_this = path.ends_with("probe/skeleton.rs");
                // This file opens /proc/PID/mem with `File::open`, for reading only.
                let reads = path.ends_with("os/src/memory.rs");
                assert!(
                    !(reads && text.contains("OpenOptions")),
                    "memory is only read"
                );
                for way in ["process_vm_writev", "ptrace::", "PTRACE_", "/mem\""] {
                    let is_allowed = is_this || (reads && way == "/mem\"");
                    let found = text.contains(way) && !is_allowed;
                    assert!(!found, "{} has {way}", path.display());
                }
            }
        }
        assert!(files > 200, "{files}");
    }
}
