//! Layouts that interpreters describe themselves, from 3.13 on.

use gpuprobe_model::abi::RawPython;

use super::{
    COMMON, InterpreterLayout, PythonVersion, TRACEABLE_BEFORE_CODE, VERSION_AFTER_LINE, with_sizes,
};

/// Number of bytes of `_Py_DebugOffsets` to read.
pub(in crate::python) const DEBUG_OFFSETS_BYTES: usize = 1024;
pub(super) const COOKIE: &[u8; 8] = b"xdebugpy";

/// Index of the first word of a group of `_Py_DebugOffsets`: the size of the structure, after which its offsets are.
struct GroupStarts {
    thread: usize,
    frame: usize,
    code: usize,
    object: usize,
    bytes: usize,
    text: usize,
}

const RUNTIME: usize = 0;
const INTERPRETER: usize = 3;
const STARTS_3_13: GroupStarts = GroupStarts {
    thread: 16,
    frame: 25,
    code: 31,
    object: 41,
    bytes: 61,
    text: 64,
};
const STARTS_3_14: GroupStarts = GroupStarts {
    thread: 19,
    frame: 28,
    code: 36,
    object: 47,
    bytes: 71,
    text: 74,
};

impl GroupStarts {
    fn raw(&self, words: &[u64], version: PythonVersion, key: u32) -> Option<RawPython> {
        let at = |start: usize, index: usize| u16::try_from(*words.get(start + index)?).ok();
        // Free-threaded 3.14 has a pointer to instruction copies before the instructions, and a whole byte
        // for the interned state.
        let has_copies = version.is_free_threaded && version.minor >= 14;
        let text_ascii = at(self.text, 3)?;
        let first_line = at(self.code, 5)?;
        let instructions = at(self.code, 9)?;
        Some(RawPython {
            key,
            thread_id: at(self.thread, 5)?,
            current: at(self.thread, 4)?,
            // The owner may be the last member.
            frame_bytes: at(self.frame, 5)?.checked_add(8)? & !7,
            code: at(self.frame, 2)?,
            previous: at(self.frame, 1)?,
            instruction: at(self.frame, 3)?,
            entry: at(self.frame, 5)?,
            object_type: at(self.object, 1)?,
            first_line,
            version: first_line.checked_add(VERSION_AFTER_LINE)?,
            file: at(self.code, 1)?,
            name: at(self.code, 3)?,
            line_table: at(self.code, 4)?,
            instructions,
            first_traceable: instructions.checked_sub(match has_copies {
                true => TRACEABLE_BEFORE_CODE + 8,
                false => TRACEABLE_BEFORE_CODE,
            })?,
            text_length: at(self.text, 2)?,
            text_state: at(self.text, 1)?,
            text_ascii,
            text_wide: text_ascii.checked_add(16)?,
            bytes_size: at(self.bytes, 1)?,
            bytes_data: at(self.bytes, 2)?,
            text_kind_shift: if has_copies { 8 } else { 2 },
            tag_mask: if version.minor >= 14 { 3 } else { 0 },
            ..COMMON
        })
    }
}

/// The layout in `_Py_DebugOffsets`, at the beginning of `_PyRuntime`; `None` if there is none, or its
/// version is not supported.
pub(in crate::python) fn of_debug_offsets(bytes: &[u8]) -> Option<InterpreterLayout> {
    let bytes = bytes.strip_prefix(COOKIE)?;
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)))
        .collect();
    let (hex_version, rest) = words.split_first()?;
    let (free_threaded, words) = rest.split_first()?;
    // PY_VERSION_HEX
    let [.., major, minor, _, _] = (*hex_version).to_be_bytes();
    let (starts, key) = match (major, minor) {
        (3, 13) => (STARTS_3_13, 2160),
        (3, 14) => (STARTS_3_14, 2336),
        _ => return None,
    };
    let version = PythonVersion {
        minor,
        is_free_threaded: *free_threaded != 0,
    };
    Some(InterpreterLayout {
        version,
        raw: with_sizes(starts.raw(words, version, key)?)?,
        interpreters: *words.get(RUNTIME + 2)?,
        threads: *words.get(INTERPRETER + 3)?,
        native_thread_id: Some(*words.get(starts.thread + 6)?),
        next_thread: *words.get(starts.thread + 2)?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Words of a version in which the first of each group is at these indices, each offset 100 more than its
    /// index.
    fn stated(version: u64, is_free_threaded: u64, object: usize, count: u64) -> Vec<u8> {
        let mut words: Vec<u64> = (100..100 + count).collect();
        words[object + 1] = 3;
        words.splice(0..0, [version, is_free_threaded]);
        let bytes = words.into_iter().flat_map(u64::to_le_bytes);
        COOKIE.iter().copied().chain(bytes).collect()
    }

    #[test]
    fn each_offset_is_that_of_its_member() {
        for (version, free, key, [thread, frame, code, object, bytes, text]) in [
            (0x030d_00f0, 0, 2160, [16, 25, 31, 41, 61, 64]),
            (0x030d_00f0, 1, 2160, [16, 25, 31, 41, 61, 64]),
            (0x030e_00f0, 0, 2336, [19, 28, 36, 47, 71, 74]),
            (0x030e_00f0, 1, 2336, [19, 28, 36, 47, 71, 74]),
        ] {
            let count = text + 4;
            let stated = stated(version, free, usize::from(object), u64::from(count));
            let layout = of_debug_offsets(&stated).unwrap();
            let is_3_14 = version >> 16 == 0x30e;
            let has_copies = is_3_14 && free == 1;
            assert_eq!(layout.version.is_free_threaded, free == 1);
            let at = |word: u16| 100 + word;
            let raw = RawPython {
                key,
                thread_id: at(thread + 5),
                current: at(thread + 4),
                frame_bytes: at(frame + 5) / 8 * 8 + 8,
                code: at(frame + 2),
                previous: at(frame + 1),
                instruction: at(frame + 3),
                entry: at(frame + 5),
                object_type: 3,
                first_line: at(code + 5),
                version: at(code + 5) + 24,
                file: at(code + 1),
                name: at(code + 3),
                line_table: at(code + 4),
                instructions: at(code + 9),
                first_traceable: at(code + 9) - if has_copies { 24 } else { 16 },
                text_length: at(text + 2),
                text_state: at(text + 1),
                text_ascii: at(text + 3),
                text_wide: at(text + 3) + 16,
                bytes_size: at(bytes + 1),
                bytes_data: at(bytes + 2),
                text_kind_shift: if has_copies { 8 } else { 2 },
                tag_mask: if is_3_14 { 3 } else { 0 },
                code_bytes: at(code + 5) + 8 - 3,
                thread_bytes: 9,
                ..COMMON
            };
            assert_eq!(layout.raw, raw, "{version:#x} {free}");
            assert_eq!((layout.interpreters, layout.threads), (102, 106));
            let of_thread = (layout.native_thread_id, layout.next_thread);
            let expected = (Some(at(thread + 6).into()), at(thread + 2).into());
            assert_eq!(of_thread, expected);
            assert_eq!(of_debug_offsets(&stated[..stated.len() - 1]), None);
        }
    }
}
