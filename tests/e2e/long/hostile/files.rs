//! Unreadable libraries under the names of CUDA's.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{Uid, chown};
use object::{Object, ObjectSection};
use tempfile::TempDir;

use super::watch::Watched;
use super::{Attacker, USER, program, source};
use crate::harness::{Backend, Setup, Workload, alone, standin};

/// Size of a symbol.
const SYMBOL_BYTES: u64 = 24;

/// Offset in the file of the header of the section of this name.
pub(super) fn header_of(bytes: &[u8], name: &str) -> usize {
    let file = object::File::parse(bytes).unwrap();
    let index = file.section_by_name(name).expect(name).index().0;
    let table = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap());
    usize::try_from(table).unwrap() + index * 64
}

pub(super) fn set(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// A copy of the stand-in's driver with this many symbols in a hole of the file, some of them functions, all with one
/// name of a million letters.
fn library(folder: &Path, number: usize, symbols: u64) -> PathBuf {
    const LETTERS: u64 = 1 << 20;
    let mut bytes = fs::read(standin().path("libcuda.so.1")).unwrap();
    let (table, names) = (header_of(&bytes, ".dynsym"), header_of(&bytes, ".dynstr"));
    let hole = (bytes.len() as u64).next_multiple_of(4096);
    let text = hole + symbols * SYMBOL_BYTES;
    set(&mut bytes, table + 0x18, hole);
    set(&mut bytes, table + 0x20, symbols * SYMBOL_BYTES);
    set(&mut bytes, names + 0x18, text);
    set(&mut bytes, names + 0x20, LETTERS);
    let inside = folder.join(number.to_string());
    fs::create_dir(&inside).unwrap();
    let path = inside.join("libcuda.so.u");
    fs::write(&path, &bytes).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let letters = vec![b'x'; usize::try_from(LETTERS - 1).unwrap()];
    file.write_all_at(&letters, text).unwrap();
    // Others are not looked at.
    let functions = [&[0, 0, 0, 0, 0x12, 0, 1][..], &[0; 17]].concat();
    file.write_all_at(&functions.repeat(20_000), hole).unwrap();
    file.set_len(text + LETTERS).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 < 8 << 20);
    chown(&path, Some(Uid::from_raw(USER)), None).unwrap();
    path
}

/// Programs that map libraries with huge tables of symbols.
pub(super) struct HugeTables {
    folder: PathBuf,
    program: PathBuf,
    attackers: Vec<Attacker>,
}

impl HugeTables {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
            program: program(folder, "maps", &[&source("maps.c")]),
            attackers: Vec::new(),
        }
    }

    /// Another program with another library: a single program is not looked at all the time.
    pub(super) fn add(&mut self, symbols: u64) {
        let path = library(&self.folder, self.attackers.len(), symbols);
        let mut attacker = Attacker::start(&mut Command::new(&self.program));
        attacker.say(&format!("map {}", path.display()));
        attacker.say("look");
        self.attackers.push(attacker);
    }
}

#[test]
fn root_huge_symbol_table_in_a_sparse_file_delays_no_other_process() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let mut tables = HugeTables::new(folder.path());
    // As many symbols as in a known attack, and the smallest plausible number of a library.
    tables.add(21_000_000);
    let victim = Workload::start(Backend::Shared);
    let mut watched = Watched::start(Setup::everything(), victim);
    watched.go_on();
    for number in 1..8 {
        tables.add(2_000_000 + number);
        watched.go_on();
    }
    let (_, said) = watched.end();
    let says = |what: &str| said.iter().any(|line| line.contains(what));
    assert!(says("it has too many symbols"), "{said:#?}");
    for number in 1..8 {
        let file = format!("/{number}/libcuda.so.u, of user {USER}, is not read any more");
        let named = said.iter().filter(|line| line.contains(&file));
        assert_eq!(named.count(), 1, "{file}: {said:#?}");
    }
}
