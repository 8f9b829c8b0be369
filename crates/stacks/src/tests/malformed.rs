//! Malformed ELF files and arbitrary stack contents give errors, never panics.

#[path = "../../tests/stacks/harness/build.rs"]
#[allow(dead_code)]
mod build;

use std::fs;
use std::sync::OnceLock;

use gpuprobe_cuda::Layer;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::elf::Headers;
use crate::elf::sample::{DATA, ElfSample, FUNCTION};
use crate::helper::FileReader;
use crate::untrusted::corpus::replay;
use crate::untrusted::{file_of, try_all, try_lines, try_records, try_tables};
use crate::{AddressSpaces, DEPTH, StackCopy};
use build::{Build, folder};

/// A small program with debug information.
fn program() -> &'static [u8] {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let build = Build {
            source: "shapes.cpp",
            flags: &["-O2", "-g"],
            is_stripped: false,
        };
        let folder = folder();
        fs::read(build.put(folder.path())).unwrap()
    })
}

/// Offsets to damage: anywhere, with a preference for headers and tables.
fn places() -> impl Strategy<Value = usize> {
    let size = program().len();
    let headers = Headers::parse(program()).unwrap();
    let sections: Vec<_> = [
        ".eh_frame",
        ".eh_frame_hdr",
        ".debug_info",
        ".symtab",
        ".debug_abbrev",
    ]
    .iter()
    .filter_map(|name| headers.section(name))
    .map(|s| {
        (
            usize::try_from(s.offset).unwrap(),
            usize::try_from(s.size).unwrap(),
        )
    })
    .collect();
    let in_section = (0..sections.len(), any::<usize>())
        .prop_map(move |(which, at)| sections[which].0 + at % sections[which].1.max(1));
    let in_tables = size - 64 * 48..size;
    prop_oneof![0..64usize, 64..800usize, in_section, in_tables, 0..size]
}

fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0xffu8), Just(0), Just(0x7f), any::<u8>()];
    let changes = vec((places(), byte, 1..9usize), 1..12);
    (changes, any::<Option<u16>>()).prop_map(|(changes, cut)| {
        let mut file = program().to_vec();
        for (at, byte, count) in changes {
            let end = (at + count).min(file.len());
            file[at..end].fill(byte);
        }
        if let Some(cut) = cut {
            file.truncate(usize::from(cut) % file.len());
        }
        file
    })
}

#[test]
fn a_valid_file_has_rules_and_symbols() {
    assert!(try_tables(program()) > 20);
    let answers = try_all(program()).unwrap();
    assert!(answers >= 64, "{answers}");
    let loader = fs::File::open("/lib64/ld-linux-x86-64.so.2").unwrap();
    let found = FileReader::default().rendezvous(&loader, "ld.so".as_ref());
    assert!(found.unwrap().is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_tables_do_not_panic(file in damaged()) {
        try_tables(&file);
    }

    #[test]
    fn damaged_files_do_not_panic(file in damaged()) {
        try_all(&file).unwrap();
    }

    #[test]
    fn arbitrary_stacks_do_not_panic(bytes in vec(any::<u8>(), 0..4096), ip: u64, sp: u64, bp: u64, own: bool) {
        let mut spaces = AddressSpaces::default();
        let pid = std::process::id();
        // In code of this program, or anywhere.
        let ip = if own { try_tables as *const () as u64 + ip % 4096 } else { ip };
        let copy = StackCopy { ip, sp, bp, bytes: &bytes, replaced: &[(sp, ip)] };
        let unwound = spaces.unwind(pid, &copy);
        prop_assert!(unwound.stack.locations.len() <= DEPTH);
        prop_assert_eq!(unwound.slots.len() + 1, unwound.stack.locations.len());
    }
}

/// A sparse file can contain hundreds of gigabytes of symbols.
#[test]
fn files_above_the_size_limit_are_rejected() {
    const HUGE: u64 = 400 << 30;
    let mut bytes = program().to_vec();
    let number = |bytes: &[u8], at: usize, size: usize| {
        let mut number = [0; 8];
        number[..size].copy_from_slice(&bytes[at..at + size]);
        usize::try_from(u64::from_le_bytes(number)).unwrap()
    };
    let (table, count) = (number(&bytes, 0x28, 8), number(&bytes, 0x3c, 2));
    let symbols = (0..count)
        .map(|index| table + index * 64)
        .find(|&section| number(&bytes, section + 4, 4) == 11);
    let size = symbols.unwrap() + 0x20;
    bytes[size..size + 8].copy_from_slice(&HUGE.to_le_bytes());
    let file = file_of(&bytes).unwrap();
    file.set_len(HUGE + (1 << 30)).unwrap();
    let reader = FileReader::default();
    assert!(
        reader
            .functions(&file, "x".as_ref(), Layer::Driver)
            .is_err()
    );
    assert!(reader.rendezvous(&file, "x".as_ref()).is_err());
}

/// The corpora of the fuzz targets.
#[test]
fn fuzz_corpora_do_not_panic() {
    for target in ["elf", "eh_frame"] {
        replay(target, |file| {
            try_tables(file);
            try_all(file).unwrap();
        });
    }
    replay("python_lines", try_lines);
}

#[test]
fn python_records_of_the_fuzz_corpus_are_decoded() {
    let frames = replay("python_records", try_records);
    assert!(frames.iter().sum::<usize>() > 0);
}

#[test]
fn unwind_rules_of_a_file_are_counted() {
    // A row at every eighth address that is looked at.
    let sample = ElfSample::default()
        .code(0x1000, &[0xc3; 1280])
        .data(0x9000, &[0; 1280])
        .eh_frame(&[(0x1000, 160)]);
    assert_eq!(try_tables(&sample.bytes()), 16);
    let short = ElfSample::default().code(0x1000, &[0xc3; 100]);
    let short = short.eh_frame(&[(0x1000, 100)]).bytes();
    assert_eq!(try_tables(&short), 100);
    assert_eq!(try_tables(b"no ELF file"), 0);
}

#[test]
fn everything_is_asked_about_a_file() {
    // 64 addresses have a symbol, a name and, in the first half, rules; the variable has a size.
    let sample = ElfSample::default()
        .code(0x1000, &[0xc3; 128])
        .symbols(true, &[("table_", 0x2000, 8, DATA)])
        .symbols(
            false,
            &[("f", 0x1000, 128, FUNCTION), ("table_", 0x2000, 8, DATA)],
        )
        .eh_frame(&[(0x1000, 64)]);
    let of_file = try_all(&sample.bytes()).unwrap();
    let none = ElfSample::default().code(0x1000, &[0xc3; 128]);
    let of_none = try_all(&none.bytes()).unwrap();
    assert_eq!((of_file, of_none), (6 + 64 + 32 + 64, 5));
}
