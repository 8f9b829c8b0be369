//! The skeleton that libbpf-cargo generated from `bpf/gpuprobe.bpf.c`.

#![allow(unsafe_code, missing_docs, unreachable_pub, unused_qualifications)]
#![allow(clippy::all, clippy::pedantic, clippy::restriction)]

include!(concat!(env!("OUT_DIR"), "/gpuprobe.skel.rs"));

#[cfg(test)]
mod tests {
    use object::{Object, ObjectSection, SectionKind};

    /// The object as it is in the skeleton.
    fn object_file() -> Vec<u8> {
        let text = include_str!(concat!(env!("OUT_DIR"), "/gpuprobe.skel.rs"));
        let (_, data) = text.split_once("static DATA: [u8;").unwrap();
        let (_, data) = data.split_once("= [").unwrap();
        let (data, _) = data.split_once(']').unwrap();
        let bytes = data.split(',').map(str::trim).filter(|b| !b.is_empty());
        bytes.map(|byte| byte.parse().unwrap()).collect()
    }

    /// Numbers of `enum bpf_func_id` that write to memory of a process, or override what it runs.
    const WRITE_USER: i32 = 36;
    const OVERRIDE_RETURN: i32 = 58;

    /// The helpers that the programs of an object call, by number.
    fn helpers(object: &[u8]) -> Vec<i32> {
        let file = object::File::parse(object).unwrap();
        let mut calls = Vec::new();
        for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
            for instruction in section.data().unwrap().chunks_exact(8) {
                let (code, registers) = (instruction[0], instruction[1]);
                let number = i32::from_le_bytes(instruction[4..8].try_into().unwrap());
                // A call of a helper: neither of a function of ours nor of the kernel's.
                if code == 0x85 && registers >> 4 == 0 {
                    calls.push(number);
                }
            }
        }
        calls
    }

    #[test]
    fn no_program_writes_into_a_process() {
        let without_types = include_bytes!(concat!(env!("OUT_DIR"), "/without_types.bpf.o"));
        for (name, object) in [
            ("with types", object_file()),
            ("without types", without_types.to_vec()),
        ] {
            let calls = helpers(&object);
            // Reading is among them (bpf_probe_read_user), so that this does look at calls.
            assert!(calls.contains(&112), "{name}: {calls:?}");
            for number in [WRITE_USER, OVERRIDE_RETURN] {
                assert!(!calls.contains(&number), "{name}: {number}");
            }
        }
    }

    #[test]
    fn nothing_of_ours_writes_into_a_process() {
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
                // It opens for reading: `File::open` does, and there is no other way there.
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
