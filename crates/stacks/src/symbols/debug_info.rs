//! Functions and lines from the debugging information of a file.

use std::io;
use std::ops::{Deref, Range};
use std::rc::Rc;

use addr2line::{Context, Frame};
use gimli::{CloneStableDeref, Dwarf, EndianReader, LittleEndian, StableDeref};
use object::{CompressionFormat, Object, ObjectSection};

use super::demangle::{NAME_LIMIT, beginning, function_name};
use crate::elf_file::ElfFile;
use crate::helper::SymbolName;

/// Functions that can be inlined at one place.
const INLINED_LIMIT: usize = 256;

type SectionReader = EndianReader<LittleEndian, SectionBytes>;

/// The contents of a section.
#[derive(Clone, Debug)]
enum SectionBytes {
    InFile(Rc<ElfFile>, Range<usize>),
    Decompressed(Rc<[u8]>),
}

impl Deref for SectionBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::InFile(file, range) => file.get(range.clone()).unwrap_or_default(),
            Self::Decompressed(bytes) => bytes,
        }
    }
}

// SAFETY: the mapping of a file and the contents of an `Rc` stay where they are when this is moved or cloned.
#[allow(unsafe_code)]
unsafe impl StableDeref for SectionBytes {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl CloneStableDeref for SectionBytes {}

/// The debugging information of a file, of which what was read is kept.
pub(crate) struct DebugInfo(Context<SectionReader>);

impl DebugInfo {
    /// The debugging information in `file`, which may refer to that in `supplement`; `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if a section cannot be decompressed, for example as it is too large.
    pub(crate) fn of(
        file: &Rc<ElfFile>,
        supplement: Option<&Rc<ElfFile>>,
    ) -> io::Result<Option<Self>> {
        let mut dwarf = Dwarf::load(|id| section(file, id.name()))?;
        if let Some(supplement) = supplement {
            dwarf.load_sup(|id| section(supplement, id.name()))?;
        }
        Ok(Context::from_dwarf(dwarf).ok().map(Self))
    }

    /// The functions at `address`, innermost first. The outermost may have no name.
    fn frames(&self, address: u64) -> Result<Vec<SymbolName>, gimli::Error> {
        let mut found = self.0.find_frames(address).skip_all_loads()?;
        let (mut inlined, mut last) = (Vec::new(), None);
        while let Some(frame) = found.next()? {
            inlined.extend(last.replace(frame));
        }
        inlined.truncate(INLINED_LIMIT);
        let inlined = inlined.iter().map(|frame| named(frame, true));
        let outermost = last.iter().map(|frame| named(frame, false));
        Ok(inlined.chain(outermost).collect())
    }
}

fn section(file: &Rc<ElfFile>, name: &str) -> io::Result<SectionReader> {
    let bytes = || {
        let image = file.image().ok()?;
        let section = image.file.section_by_name(name)?;
        let place = section.compressed_file_range().ok()?;
        if place.format != CompressionFormat::None {
            let bytes = section.uncompressed_data().map_err(io::Error::other);
            return Some(bytes.map(|bytes| SectionBytes::Decompressed(bytes.into())));
        }
        let begin = usize::try_from(place.offset).ok()?;
        let end = begin.checked_add(usize::try_from(place.uncompressed_size).ok()?)?;
        Some(Ok(SectionBytes::InFile(file.clone(), begin..end)))
    };
    let bytes = bytes().unwrap_or_else(|| Ok(SectionBytes::Decompressed(Rc::new([]))));
    Ok(EndianReader::new(bytes?, LittleEndian))
}

fn named(frame: &Frame<'_, SectionReader>, inlined: bool) -> SymbolName {
    let function = frame.function.as_ref();
    let function = function.and_then(|name| name.raw_name().ok());
    let location = frame.location.as_ref();
    SymbolName {
        function: function.map_or_else(String::new, |name| function_name(&name, NAME_LIMIT)),
        file: location.and_then(|at| Some(beginning(at.file?, NAME_LIMIT))),
        line: location.and_then(|at| at.line).filter(|&line| line > 0),
        inlined,
    }
}

/// The functions at `address` of `module`, innermost first, after the symbols in `file` and debugging information.
pub(crate) fn names_at(
    file: &ElfFile,
    debug_info: Option<&DebugInfo>,
    module: &ElfFile,
    address: u64,
) -> Option<Vec<SymbolName>> {
    let symbol = file.symbol(address, module);
    let frames = debug_info.and_then(|info| info.frames(address).ok());
    let mut frames = frames.unwrap_or_default();
    if frames.is_empty() {
        frames.push(SymbolName::default());
    }
    // Symbols have the whole name; debugging information may have `operator()` alone.
    if let (Some(symbol), Some(outer)) = (symbol, frames.last_mut()) {
        outer.function = function_name(&symbol, NAME_LIMIT);
    }
    let is_named = |frame: &SymbolName| !frame.function.is_empty();
    frames.last().is_some_and(is_named).then_some(())?;
    // What is inlined may have its name in a file that is not there.
    frames.retain(is_named);
    Some(frames)
}
