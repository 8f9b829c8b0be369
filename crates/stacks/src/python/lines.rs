//! CPython's line tables.
//!
//! A table is a list of instruction ranges, each with its line as the difference to that of the
//! range before. It is read as CPython does since 3.11 (`PyCode_Addr2Line` in
//! `Objects/codeobject.c`). Damaged tables, which CPython never has but a traced process may send,
//! give [`LineEntry::Beyond`], never a wrong line. Nothing is allocated, and no byte is read more than
//! twice.

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

/// Bytes per instruction.
pub(super) const INSTRUCTION: i64 = 2;
/// Maximum number of 6-bit groups in a 32-bit number.
const LONGEST_NUMBER: usize = 6;

/// The line of the instruction `at` bytes from the beginning of the code of an object whose line table begins with
/// `table`: entries whose first byte has the highest bit set, with a code that determines the rest.
pub fn line_at(table: &[u8], first_line: u32, at: u32) -> LineEntry {
    let (mut end, mut line) = (0, i64::from(first_line));
    let mut rest = table;
    while let Some((&first, after)) = rest.split_first() {
        let next = after.iter().position(|byte| begins_range(*byte));
        let (entry, after) = after.split_at(next.unwrap_or(after.len()));
        let (code, length) = (first >> 3 & 15, first & 7);
        let delta = match code {
            _ if !begins_range(first) => None,
            // Line increment of 0 to 2, columns follow.
            10..=12 => Some(i64::from(code) - 10),
            // Without columns, and the long form.
            13 | 14 => signed(entry),
            // 0 to 9: the same line; 15: no line.
            _ => Some(0),
        };
        let Some(delta) = delta else { break };
        line += delta;
        end += INSTRUCTION * (i64::from(length) + 1);
        if end > i64::from(at) {
            // CPython has no line below zero and returns `None`.
            let number = u32::try_from(line).ok().filter(|_| code != 15);
            return number.map_or(LineEntry::None, LineEntry::At);
        }
        rest = after;
    }
    LineEntry::Beyond
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
        number |= i64::from(byte & 0x3f) << (6 * group);
        if byte & 0x40 == 0 {
            let size = number >> 1;
            return Some(if number & 1 == 0 { size } else { -size });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The line of each instruction; the last is behind the table.
    fn lines(table: &[u8], count: u32) -> Vec<LineEntry> {
        let indexes = 0..count;
        indexes
            .map(|index| line_at(table, 100, 2 * index))
            .collect()
    }

    fn at(lines: &[u32]) -> Vec<LineEntry> {
        lines.iter().copied().map(LineEntry::At).collect()
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
        assert_eq!(lines(&bytes, 9), expected);
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
            assert_eq!(line_at(bytes, 100, 0), LineEntry::Beyond);
        }
    }

    #[test]
    fn lines_out_of_range_are_none() {
        let far = [0xe8, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f];
        let line = line_at(&far, 100, 0);
        assert_eq!(line, LineEntry::None, "beyond 32 bits");
        let back = [0xe8, 0x53, 0x06];
        assert_eq!(signed(&back[1..]), Some(-201));
        assert_eq!(line_at(&back, 100, 0), LineEntry::None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_or_contradict_their_part(
            table in vec(any::<u8>(), 0..300), first_line: u32,
            at in prop_oneof![0..600u32, any::<u32>()], cut: usize,
        ) {
            let line = line_at(&table, first_line, at);
            let of_part = line_at(&table[..cut % (table.len() + 1)], first_line, at);
            prop_assert!(of_part == LineEntry::Beyond || of_part == line, "{of_part:?} is not {line:?}");
        }

        /// Bytes behind an instruction's range are not read.
        #[test]
        fn later_instructions_need_more_of_the_table(
            table in vec(any::<u8>(), 0..300), at in 0..600u32, before in 0..600u32,
        ) {
            let needed = |at| (0..=table.len())
                .find(|length| line_at(&table[..*length], 1, at) != LineEntry::Beyond);
            let (earlier, later) = (needed(at.min(before)), needed(at.max(before)));
            prop_assert!(later.is_none() || earlier.is_some_and(|bytes| Some(bytes) <= later));
        }
    }
}
