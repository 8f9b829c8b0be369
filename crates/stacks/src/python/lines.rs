//! CPython's line tables.
//!
//! A table is a list of instruction ranges, each with its line as the difference to that of the
//! range before. Both formats are read as CPython reads them (`PyCode_Addr2Line` in
//! `Objects/codeobject.c`). Damaged tables, which CPython never has but a traced process may send,
//! give [`LineEntry::Beyond`], never a wrong line. Nothing is allocated, and no byte is read more than
//! twice.

/// Format of a line table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineTableFormat {
    /// `co_linetable` of 3.10 (PEP 626): pairs of a length and a line increment.
    Pep626,
    /// `co_linetable` from 3.11 on, with columns: entries whose first byte has the highest bit set, with
    /// a code that determines the rest.
    Locations,
}

/// The line of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEntry {
    /// The number of the line.
    At(u32),
    /// The instruction was generated for no source line.
    None,
    /// Unknown: the available part of the table ends before, or is damaged.
    Beyond,
}

/// The line table of a code object, or a part from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct LineTable<'a> {
    /// Format of the table.
    pub form: LineTableFormat,
    /// Bytes of the table, from its beginning.
    pub bytes: &'a [u8],
    /// `co_firstlineno` of the code object.
    pub first_line: u32,
}

/// Line increment in [`LineTableFormat::Pep626`] of a range without a line.
const NO_LINE: i8 = -128;
/// Bytes per instruction, since 3.6.
const INSTRUCTION: u64 = 2;
/// Maximum number of 6-bit groups in a 32-bit number.
const LONGEST_NUMBER: usize = 6;

impl LineTable<'_> {
    /// The line of the instruction `at` bytes from the beginning of the code.
    ///
    /// A frame that has not begun (`f_lasti` below zero) has no instruction; its line is
    /// `first_line`.
    pub fn line_at(&self, at: u32) -> LineEntry {
        let at = u64::from(at);
        match self.form {
            LineTableFormat::Pep626 => self.of_pairs(at),
            LineTableFormat::Locations => self.of_locations(at),
        }
    }

    fn of_pairs(&self, at: u64) -> LineEntry {
        let (mut end, mut line) = (0, i64::from(self.first_line));
        for pair in self.bytes.chunks_exact(2) {
            let delta = pair[1].cast_signed();
            end += u64::from(pair[0]);
            if delta != NO_LINE {
                line += i64::from(delta);
            }
            if end > at {
                return if delta == NO_LINE {
                    LineEntry::None
                } else {
                    known(line)
                };
            }
        }
        LineEntry::Beyond
    }

    fn of_locations(&self, at: u64) -> LineEntry {
        let (mut end, mut line) = (0, i64::from(self.first_line));
        let mut rest = self.bytes;
        while let Some((&first, after)) = rest.split_first() {
            let (code, length) = (first >> 3 & 15, first & 7);
            let delta = match code {
                _ if !begins_range(first) => None,
                // Line increment of 0 to 2, columns follow.
                10..=12 => Some(i64::from(code) - 10),
                // Without columns, and the long form.
                13 | 14 => signed(after),
                // 0 to 9: the same line; 15: no line.
                _ => Some(0),
            };
            let Some(delta) = delta else { break };
            line += delta;
            end += INSTRUCTION * (u64::from(length) + 1);
            if end > at {
                return if code == 15 {
                    LineEntry::None
                } else {
                    known(line)
                };
            }
            let next = after.iter().position(|byte| begins_range(*byte));
            rest = &after[next.unwrap_or(after.len())..];
        }
        LineEntry::Beyond
    }
}

fn begins_range(byte: u8) -> bool {
    byte & 0x80 != 0
}

/// A number with its sign in the lowest bit, in groups of six bits, of which all but the last have
/// the seventh bit set. `None` if it does not end within `bytes`, or is longer than any that CPython
/// writes.
fn signed(bytes: &[u8]) -> Option<i64> {
    let mut number = 0i64;
    for (group, byte) in bytes.iter().take(LONGEST_NUMBER).enumerate() {
        if begins_range(*byte) {
            return None;
        }
        number |= i64::from(byte & 0x3f) << (6 * group);
        if byte & 0x40 == 0 {
            let size = number >> 1;
            return Some(if number & 1 == 0 { size } else { -size });
        }
    }
    None
}

/// The line; CPython has none below zero and returns `None`.
fn known(line: i64) -> LineEntry {
    u32::try_from(line).map_or(LineEntry::None, LineEntry::At)
}

/// Fuzzing entry point. Looks up an instruction in arbitrary bytes: one byte with the format, four with the
/// instruction's offset, four with the first line, then the table.
#[doc(hidden)]
pub fn try_lines(bytes: &[u8]) -> Option<LineEntry> {
    let (kind, bytes) = bytes.split_first()?;
    let (at, bytes) = bytes.split_first_chunk()?;
    let (first_line, bytes) = bytes.split_first_chunk()?;
    let form = match kind % 2 {
        0 => LineTableFormat::Pep626,
        _ => LineTableFormat::Locations,
    };
    let table = LineTable {
        form,
        bytes,
        first_line: u32::from_le_bytes(*first_line),
    };
    let at = u32::from_le_bytes(*at);
    let line = table.line_at(at);
    // A result for a part of the table holds for the whole.
    let part = LineTable {
        bytes: &bytes[..bytes.len() / 2],
        ..table
    };
    let of_part = part.line_at(at);
    assert!(of_part == LineEntry::Beyond || of_part == line);
    Some(line)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn table(form: LineTableFormat, bytes: &[u8]) -> LineTable<'_> {
        LineTable {
            form,
            bytes,
            first_line: 100,
        }
    }

    /// The line of each instruction; the last is behind the table.
    fn lines(form: LineTableFormat, bytes: &[u8], count: u32) -> Vec<LineEntry> {
        let table = table(form, bytes);
        (0..count).map(|index| table.line_at(2 * index)).collect()
    }

    fn at(lines: &[u32]) -> Vec<LineEntry> {
        lines.iter().copied().map(LineEntry::At).collect()
    }

    #[test]
    fn pep626_ranges_may_have_no_line() {
        // 2 bytes of 100, 2 of none, an empty range, 4 of 98.
        let bytes = [2, 0, 2, 0x80, 0, 127, 4, 0x7f, 2, 0x81];
        let mut expected = at(&[100, 0, 354, 354, 227]);
        expected[1] = LineEntry::None;
        expected.push(LineEntry::Beyond);
        assert_eq!(lines(LineTableFormat::Pep626, &bytes, 6), expected);
        // An incomplete pair is ignored.
        assert_eq!(
            table(LineTableFormat::Pep626, &[2]).line_at(0),
            LineEntry::Beyond
        );
    }

    #[test]
    fn location_codes_are_decoded() {
        let bytes = [
            // One instruction, its columns in one byte.
            &[0x80, 0x12][..],
            // On the next line, two instructions, two columns.
            &[0xd9, 0x01, 0x05],
            // Two lines on.
            &[0xe0, 0x01, 0x05],
            // Without columns: 66 lines back.
            &[0xe8, 0x45, 0x02],
            // With everything: 5 lines on, ends 1 later, from column 70.
            &[0xf0, 0x0a, 0x01, 0x46, 0x01, 0x08],
            // None, and then the line as it was before.
            &[0xf8],
            &[0xd0, 0x00, 0x01],
        ]
        .concat();
        let mut expected = at(&[100, 101, 101, 103, 37, 42, 0, 42]);
        assert_eq!(signed(&[0x45, 0x02]), Some(-66));
        expected[6] = LineEntry::None;
        expected.push(LineEntry::Beyond);
        assert_eq!(lines(LineTableFormat::Locations, &bytes, 9), expected);
    }

    #[test]
    fn damaged_locations_have_no_line() {
        for bytes in [
            // Not the beginning of a range.
            &[0x12, 0x80, 0x12][..],
            // A number that does not end, by the table's end, the next range, or its length.
            &[0xe8, 0x45],
            &[0xe8, 0x45, 0x80, 0x12],
            &[0xe8, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x01],
            &[0xe8],
            &[],
        ] {
            assert_eq!(
                table(LineTableFormat::Locations, bytes).line_at(0),
                LineEntry::Beyond
            );
        }
    }

    #[test]
    fn lines_out_of_range_are_none() {
        let far = [0xe8, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f];
        let line = table(LineTableFormat::Locations, &far).line_at(0);
        assert_eq!(line, LineEntry::None, "beyond 32 bits");
        let back = [0xe8, 0x53, 0x06];
        assert_eq!(signed(&back[1..]), Some(-201));
        assert_eq!(
            table(LineTableFormat::Locations, &back).line_at(0),
            LineEntry::None
        );
    }

    #[test]
    fn a_byte_tells_the_format_of_the_table_behind_it() {
        let line = |kind: u8, at: u32, table: &[u8]| {
            let numbers = [at, 100].map(u32::to_le_bytes).concat();
            try_lines(&[&[kind], &numbers[..], table].concat())
        };
        let pairs = [2, 1, 2, 3, 2, 0x80];
        for (kind, at, expected) in [
            (0, 2, LineEntry::At(104)),
            (0, 4, LineEntry::None),
            (4, 0, LineEntry::At(101)),
        ] {
            assert_eq!(line(kind, at, &pairs), Some(expected), "{kind} {at}");
        }
        let located = [0x80, 0, 0xd8, 0, 1];
        assert_eq!(line(1, 2, &located), Some(LineEntry::At(101)));
        assert_eq!(line(5, 4, &located), Some(LineEntry::Beyond));
        assert_eq!(try_lines(&[1, 2, 3]), None);
    }

    fn form() -> impl Strategy<Value = LineTableFormat> {
        prop_oneof![
            Just(LineTableFormat::Pep626),
            Just(LineTableFormat::Locations)
        ]
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_or_contradict_their_part(
            form in form(), bytes in vec(any::<u8>(), 0..300), first_line: u32,
            at in prop_oneof![0..600u32, any::<u32>()], cut: usize,
        ) {
            let table = LineTable { form, bytes: &bytes, first_line };
            let line = table.line_at(at);
            let part = LineTable { bytes: &bytes[..cut % (bytes.len() + 1)], ..table };
            let of_part = part.line_at(at);
            prop_assert!(of_part == LineEntry::Beyond || of_part == line, "{of_part:?} is not {line:?}");
        }

        /// Bytes behind an instruction's range are not read.
        #[test]
        fn later_instructions_need_more_of_the_table(
            form in form(), bytes in vec(any::<u8>(), 0..300), at in 0..600u32, before in 0..600u32,
        ) {
            let needed = |at| (0..=bytes.len()).find(|length| {
                let table = LineTable { form, bytes: &bytes[..*length], first_line: 1 };
                table.line_at(at) != LineEntry::Beyond
            });
            let (earlier, later) = (needed(at.min(before)), needed(at.max(before)));
            prop_assert!(later.is_none() || earlier.is_some_and(|bytes| Some(bytes) <= later));
        }
    }
}
