//! Location of thread-specific values (`pthread_getspecific`), from the thread pointer.

use object::{Object, ObjectSymbol};
use serde::{Deserialize, Serialize};

use crate::elf_file::ElfFile;

/// Offsets from the thread pointer, by C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Storage {
    /// glibc: offset of the first 32 entries. musl: offset of the pointer to all values.
    pub first: u32,
    /// glibc: offset of the pointers to the other entries. 0 for musl.
    pub rest: u32,
}

/// The offsets of all versions of glibc for x86-64 since 2.3.4; the default.
pub(crate) const GLIBC: Storage = Storage {
    first: 784,
    rest: 784 + FIRST_BYTES,
};
/// Size of the 32 entries of 16 bytes before the pointers to the others.
const FIRST_BYTES: u32 = 32 * 16;
/// glibc's symbol for debuggers: three words with bits, number of elements, and offset.
const SPECIFIC: &str = "_thread_db_pthread_specific";

impl Storage {
    /// The offsets of a C library, from its symbol for debuggers or its code.
    pub(crate) fn of(file: &ElfFile) -> Option<Self> {
        let image = file.image().ok()?;
        let find = |name: &str| {
            let found = |symbol: &object::read::elf::ElfSymbol64<'_, '_, _>| {
                symbol.is_definition() && symbol.name() == Ok(name)
            };
            let symbol = image.file.dynamic_symbols().find(found)?;
            image.bytes(symbol.address(), 64)
        };
        if let Some(bytes) = find(SPECIFIC) {
            let rest = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
            let first = rest.checked_sub(FIRST_BYTES)?;
            return Some(Self { first, rest });
        }
        let first = musl_values(find("pthread_getspecific")?)?;
        Some(Self { first, rest: 0 })
    }
}

/// The offset in `mov %fs:0,%rax; mov OFFSET(%rax),%rax`.
fn musl_values(code: &[u8]) -> Option<u32> {
    const SELF: [u8; 9] = [0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0];
    let at = code.windows(SELF.len()).position(|some| some == SELF)?;
    match code.get(at + SELF.len()..)? {
        [0x48, 0x8b, 0x80, rest @ ..] => Some(u32::from_le_bytes(*rest.first_chunk()?)),
        [0x48, 0x8b, 0x40, offset, ..] => Some(u32::from(*offset)),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use gpuprobe_os::proc::Mappings;

    #[test]
    fn glibc_offsets_are_read_from_its_debug_symbol() {
        let own = Mappings::of(std::process::id()).unwrap();
        let is_libc = |path: &&std::path::Path| path.to_string_lossy().contains("/libc.so");
        let libc = own.iter().filter_map(|map| map.path()).find(is_libc);
        let file = std::fs::File::open(libc.unwrap()).unwrap();
        assert_eq!(Storage::of(&ElfFile::of(&file)), Some(GLIBC));
    }

    #[test]
    fn musl_offsets_are_read_from_its_code() {
        let begin = [0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0];
        let long = [&begin[..], &[0x48, 0x8b, 0x80, 0x80, 0, 0, 0, 0x89, 0xff]].concat();
        assert_eq!(musl_values(&long), Some(128));
        let short = [&begin[..], &[0x48, 0x8b, 0x40, 0x78, 0x89]].concat();
        assert_eq!(musl_values(&short), Some(120));
        assert_eq!(musl_values(&begin), None);
        assert_eq!(musl_values(&[]), None);
    }

    #[test]
    fn offsets_are_read_from_the_symbols_of_a_library() {
        use crate::elf::sample::{DATA, ElfSample, FUNCTION};
        let of = |name, code: &[u8], address| {
            let bytes = ElfSample::default()
                .code(0x1000, code)
                .symbols(
                    true,
                    &[("other", 0x1004, 8, DATA), (name, address, 8, FUNCTION)],
                )
                .bytes();
            Storage::of(&ElfFile::of(
                &gpuprobe_os::bounded::file_of(&bytes).unwrap(),
            ))
        };
        let musl = [
            0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x48, 0x8b, 0x40, 0x78, 0x89,
        ];
        let expected = Some(Storage {
            first: 0x78,
            rest: 0,
        });
        assert_eq!(of("pthread_getspecific", &musl, 0x1000), expected);
        assert_eq!(of("pthread_getspecific", &musl, 0), None, "not defined");
        let words = [64u32, 32, 1296].map(u32::to_le_bytes).concat();
        assert_eq!(of(SPECIFIC, &words, 0x1000), Some(GLIBC));
        assert_eq!((GLIBC.first, GLIBC.rest), (784, 1296));
        let below = [64u32, 32, 511].map(u32::to_le_bytes).concat();
        assert_eq!(of(SPECIFIC, &below, 0x1000), None);
    }
}
