//! Notes.

use super::{ReadAt, Segment, u32_at};

/// Bytes of a segment of notes; longer ones are not looked at.
const LIMIT: u64 = 64 << 10;
/// Bytes of a build id; SHA-1 has 20.
const ID_LIMIT: usize = 64;

/// The GNU build id among the notes.
pub(super) fn build_id<'a>(
    file: &dyn ReadAt,
    mut segments: impl Iterator<Item = &'a Segment>,
) -> Option<Vec<u8>> {
    segments.find_map(|segment| {
        let size = usize::try_from(segment.file_size.min(LIMIT)).ok()?;
        in_notes(&file.read_at(segment.offset, size)?)
    })
}

fn in_notes(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let name_size = usize::try_from(u32_at(notes, 0)?).ok()?;
        let size = usize::try_from(u32_at(notes, 4)?).ok()?;
        let kind = u32_at(notes, 8)?;
        let start = 12usize.checked_add(name_size.checked_next_multiple_of(4)?)?;
        let value = notes.get(start..start.checked_add(size)?)?;
        let name = notes.get(12..12usize.checked_add(name_size)?)?;
        if kind == object::elf::NT_GNU_BUILD_ID.0 && name == b"GNU\0" {
            let is_sane = !value.is_empty() && value.len() <= ID_LIMIT;
            return is_sane.then(|| value.to_vec());
        }
        notes = notes.get(start.checked_add(size.checked_next_multiple_of(4)?)?..)?;
    }
}
