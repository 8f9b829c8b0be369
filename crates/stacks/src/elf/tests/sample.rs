//! ELF files that are written for tests.

use object::elf;

use crate::elf_file::ElfFile;

/// File offset of what follows the program headers.
const BODY: u64 = 0x4000;
const HEADER_BYTES: u16 = 64;
const SEGMENT_BYTES: u16 = 56;
const SECTION_BYTES: u16 = 64;

/// A symbol: name, address, size, and type (`STT_*`). At address 0 it is not defined.
pub(crate) type SampleSymbol = (&'static str, u64, u64, u8);

/// Type of the symbols of functions, and of variables.
pub(crate) const FUNCTION: u8 = 2;
pub(crate) const DATA: u8 = 1;

/// Addresses of `.eh_frame`, and of its index.
pub(crate) const TABLE: u64 = 0x80_0000;
const INDEX: u64 = 0x90_0000;

/// An ELF file for x86-64.
#[derive(Default)]
pub(crate) struct ElfSample {
    body: Vec<u8>,
    /// Type, flags, file offset, address and size of each segment.
    segments: Vec<(u32, u32, [u64; 3])>,
    /// Name, type, linked section, address, file offset and size of each section.
    sections: Vec<(&'static str, u32, u32, [u64; 3])>,
}

impl ElfSample {
    fn put(&mut self, bytes: &[u8]) -> (u64, u64) {
        let offset = BODY + self.body.len() as u64;
        self.body.extend(bytes);
        (offset, bytes.len() as u64)
    }

    /// With a segment of type `kind` and these flags.
    pub(crate) fn segment(mut self, kind: u32, flags: u32, address: u64, bytes: &[u8]) -> Self {
        let (offset, size) = self.put(bytes);
        self.segments.push((kind, flags, [offset, address, size]));
        self
    }

    /// With code at `address`.
    pub(crate) fn code(self, address: u64, bytes: &[u8]) -> Self {
        self.segment(elf::PT_LOAD.0, elf::PF_R.0 | elf::PF_X.0, address, bytes)
    }

    /// With data at `address`.
    pub(crate) fn data(self, address: u64, bytes: &[u8]) -> Self {
        self.segment(elf::PT_LOAD.0, elf::PF_R.0, address, bytes)
    }

    /// With a section that is not loaded.
    pub(crate) fn section(mut self, name: &'static str, address: u64, bytes: &[u8]) -> Self {
        let (offset, size) = self.put(bytes);
        let place = [address, offset, size];
        self.sections.push((name, elf::SHT_PROGBITS.0, 0, place));
        self
    }

    /// With a GNU build id.
    pub(crate) fn build_id(self, id: &[u8]) -> Self {
        let mut note = Vec::new();
        for word in [4, id.len() as u32, elf::NT_GNU_BUILD_ID.0] {
            note.extend(word.to_le_bytes());
        }
        note.extend(b"GNU\0");
        note.extend(id);
        note.resize(note.len().next_multiple_of(4), 0);
        self.segment(elf::PT_NOTE.0, elf::PF_R.0, 0, &note)
    }

    /// With unwind tables of functions, each from its address of a size.
    pub(crate) fn eh_frame(self, functions: &[(u64, u64)]) -> Self {
        self.tables(&eh_frame(functions), &eh_frame_hdr(functions))
    }

    /// With this `.eh_frame` and its index.
    pub(crate) fn tables(self, eh_frame: &[u8], eh_frame_hdr: &[u8]) -> Self {
        let kind = elf::PT_GNU_EH_FRAME.0;
        let sample = self.data(TABLE, eh_frame);
        sample.segment(kind, elf::PF_R.0, INDEX, eh_frame_hdr)
    }

    /// With a table of symbols.
    pub(crate) fn symbols(mut self, is_dynamic: bool, symbols: &[SampleSymbol]) -> Self {
        let mut names = vec![0];
        let mut table = vec![0; 24];
        for (name, address, size, kind) in symbols {
            let defined = u16::from(*address != 0);
            table.extend((names.len() as u32).to_le_bytes());
            table.extend([1 << 4 | kind, 0]);
            table.extend(defined.to_le_bytes());
            table.extend(address.to_le_bytes());
            table.extend(size.to_le_bytes());
            names.extend(name.as_bytes());
            names.push(0);
        }
        let (name, kind) = match is_dynamic {
            true => (".dynsym", elf::SHT_DYNSYM.0),
            false => (".symtab", elf::SHT_SYMTAB.0),
        };
        let (offset, size) = self.put(&table);
        let link = self.sections.len() as u32 + 2;
        self.sections.push((name, kind, link, [0, offset, size]));
        let (offset, size) = self.put(&names);
        let place = [0, offset, size];
        self.sections.push((".strtab", elf::SHT_STRTAB.0, 0, place));
        self
    }

    /// With pointers that the loader relocates, and to where they point.
    pub(crate) fn pointers(mut self, pointers: &[(u64, u64)]) -> Self {
        let relocation = |(at, to): &(u64, u64)| [*at, 8, *to].map(u64::to_le_bytes).concat();
        let (offset, size) = self.put(&pointers.iter().flat_map(relocation).collect::<Vec<_>>());
        let place = [0, offset, size];
        self.sections.push((".rela.dyn", elf::SHT_RELA.0, 0, place));
        self
    }

    /// The bytes of the file.
    pub(crate) fn bytes(mut self) -> Vec<u8> {
        let mut names = vec![0];
        let mut headers = vec![0; usize::from(SECTION_BYTES)];
        self.sections
            .push((".shstrtab", elf::SHT_STRTAB.0, 0, [0; 3]));
        let mut of_names = Vec::new();
        for (name, ..) in &self.sections {
            of_names.push(names.len() as u32);
            names.extend(name.as_bytes());
            names.push(0);
        }
        let (offset, size) = self.put(&names);
        if let Some((.., place)) = self.sections.last_mut() {
            *place = [0, offset, size];
        }
        for (name, (_, kind, link, [address, offset, size])) in of_names.iter().zip(&self.sections)
        {
            headers.extend([*name, *kind].map(u32::to_le_bytes).concat());
            let words = [0, *address, *offset, *size].map(u64::to_le_bytes);
            headers.extend(words.concat());
            let first_global = u32::from(*link != 0);
            headers.extend([*link, first_global].map(u32::to_le_bytes).concat());
            headers.extend([8, 24u64].map(u64::to_le_bytes).concat());
        }
        let (at, _) = self.put(&headers);
        let mut file = self.header(at);
        for (kind, flags, [offset, address, size]) in &self.segments {
            file.extend([*kind, *flags].map(u32::to_le_bytes).concat());
            let words = [*offset, *address, *address, *size, *size, 1].map(u64::to_le_bytes);
            file.extend(words.concat());
        }
        file.resize(BODY as usize, 0);
        file.extend(self.body);
        file
    }

    /// The file, which is in memory.
    pub(crate) fn file(self) -> std::fs::File {
        crate::untrusted::file_of(&self.bytes()).unwrap()
    }

    /// The file, as it is parsed.
    pub(crate) fn parsed(self) -> ElfFile {
        ElfFile::of(&self.file())
    }

    /// The header of the file, with the section headers at `sections`.
    fn header(&self, sections: u64) -> Vec<u8> {
        let mut header = b"\x7fELF\x02\x01\x01".to_vec();
        header.resize(16, 0);
        header.extend(
            [elf::ET_DYN.0, elf::EM_X86_64.0]
                .map(u16::to_le_bytes)
                .concat(),
        );
        header.extend(1u32.to_le_bytes());
        let places = [0, u64::from(HEADER_BYTES), sections].map(u64::to_le_bytes);
        header.extend(places.concat());
        header.extend(0u32.to_le_bytes());
        let (segments, count) = (self.segments.len() as u16, self.sections.len() as u16);
        let sizes = [
            HEADER_BYTES,
            SEGMENT_BYTES,
            segments,
            SECTION_BYTES,
            count + 1,
            count,
        ];
        header.extend(sizes.map(u16::to_le_bytes).concat());
        header
    }
}

/// The contents of `.eh_frame` for functions without frames.
pub(crate) fn eh_frame(functions: &[(u64, u64)]) -> Vec<u8> {
    let plain = |&(address, size): &(u64, u64)| (address, size, Vec::new());
    eh_frame_of(&functions.iter().map(plain).collect::<Vec<_>>())
}

/// The contents of `.eh_frame` for functions, each with its address, size and instructions.
pub(crate) fn eh_frame_of(functions: &[(u64, u64, Vec<u8>)]) -> Vec<u8> {
    // Version 1, pointers of 8 bytes; the CFA is 8 bytes above the stack pointer, the return address below it.
    let mut common = vec![0, 0, 0, 0, 1];
    common.extend(b"zR\0\x01\x78\x10\x01\x00\x0c\x07\x08\x90\x01");
    common.resize(20, 0);
    let mut table = 20u32.to_le_bytes().to_vec();
    table.extend(common);
    for (address, size, instructions) in functions {
        let to_common = table.len() as u32 + 4;
        let length = (21 + instructions.len()).next_multiple_of(4);
        table.extend([length as u32, to_common].map(u32::to_le_bytes).concat());
        table.extend([*address, *size].map(u64::to_le_bytes).concat());
        table.push(0);
        table.extend(instructions);
        table.resize(table.len() + length - 21 - instructions.len(), 0);
    }
    table.extend([0; 4]);
    table
}

/// The contents of `.eh_frame_hdr` for functions without instructions to unwind.
pub(crate) fn eh_frame_hdr(functions: &[(u64, u64)]) -> Vec<u8> {
    let from = |start: u64, address: u64| address.wrapping_sub(start) as i32;
    let mut bytes = vec![1, 0x1b, 0x03, 0x3b];
    bytes.extend(from(INDEX + 4, TABLE).to_le_bytes());
    bytes.extend((functions.len() as u32).to_le_bytes());
    for (n, (address, _)) in (0u64..).zip(functions) {
        let entry = from(INDEX, TABLE + 24 + 28 * n);
        bytes.extend(
            [from(INDEX, *address), entry]
                .map(i32::to_le_bytes)
                .concat(),
        );
    }
    bytes
}
