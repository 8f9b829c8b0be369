//! Offsets of members of `CPython`'s structures, by version.
//!
//! From 3.13 on the interpreter has them itself (`_Py_DebugOffsets`, the beginning of `_PyRuntime`), all
//! but the key of its thread-specific storage. For earlier versions they are those of the default x86-64
//! build, read from running interpreters. The kernel side checks what is there in every version: that a
//! thread's state has its thread's id, and that code objects have the type `PyCode_Type`. In builds that
//! differ (`Py_TRACE_REFS`), frames are unreadable.

use gpuprobe_model::abi::{PYTHON_NONE, PythonEntry, RawPython};

use super::Refused;

/// Number of bytes of `_Py_DebugOffsets` to read.
pub(super) const DEBUG_OFFSETS_BYTES: u64 = 1024;
const COOKIE: &[u8; 8] = b"xdebugpy";

/// Values shared by all builds without free threading.
const COMMON: RawPython = RawPython {
    cframe: PYTHON_NONE,
    frame_bytes: 72,
    previous: 8,
    instruction: 56,
    entry: 70,
    object_type: 8,
    first_line: 68,
    version: PYTHON_NONE,
    file: 112,
    name: 128,
    line_table: 136,
    text_length: 16,
    text_state: 32,
    text_ascii: 48,
    text_wide: 72,
    bytes_size: 16,
    bytes_data: 32,
    text_kind_shift: 2,
    entry_rule: PythonEntry::Owner as u8,
    ..zerocopy::transmute!([0u8; size_of::<RawPython>()])
};

/// Distance from `co_firstlineno` to `co_version`, from 3.12 on.
const VERSION_AFTER_LINE: u16 = 24;
/// Distance from `_co_firsttraceable` to the instructions.
const TRACEABLE_BEFORE_CODE: u16 = 16;

const RAW_3_11: RawPython = RawPython {
    key: 592,
    thread_id: 152,
    current: 56,
    cframe: 8,
    code: 32,
    previous: 48,
    entry: 68,
    entry_rule: PythonEntry::Flag as u8,
    first_line: 72,
    instructions: 184,
    first_traceable: 184 - TRACEABLE_BEFORE_CODE,
    ..COMMON
};
const RAW_3_12: RawPython = RawPython {
    key: 1544,
    thread_id: 136,
    current: 56,
    cframe: 0,
    version: 68 + VERSION_AFTER_LINE,
    instructions: 192,
    first_traceable: 192 - TRACEABLE_BEFORE_CODE,
    text_ascii: 40,
    text_wide: 56,
    ..COMMON
};

/// The layout of CPython 3.`minor`, whose `_PyRuntime` begins with the bytes `stated`, without addresses.
pub(super) fn layout(minor: u8, stated: &[u8]) -> Result<RawPython, Refused> {
    let raw = match minor {
        ..=10 => return Err("CPython before 3.11 is not supported".to_owned()),
        11 => Some(RAW_3_11),
        12 => Some(RAW_3_12),
        13 | 14 => debug_offsets(minor, stated),
        _ => {
            let why = "is not supported by this version of gpuprobe";
            return Err(format!("CPython 3.{minor} {why}"));
        }
    };
    raw.and_then(with_sizes)
        .ok_or_else(|| format!("this build of CPython 3.{minor} has no _Py_DebugOffsets"))
}

/// The layout in `_Py_DebugOffsets`, if these bytes are one.
fn debug_offsets(minor: u8, stated: &[u8]) -> Option<RawPython> {
    let (words, _) = stated.strip_prefix(COOKIE)?.as_chunks();
    let word = |index: usize| Some(u64::from_le_bytes(*words.get(index)?));
    let at = |start: usize, index: usize| u16::try_from(word(start + index)?).ok();
    // The first word of each group is the size of the structure, after which its offsets are.
    let (key, [thread, frame, code, object, bytes, text]) = match minor {
        13 => (2160, [18, 27, 33, 43, 63, 66]),
        _ => (2336, [21, 30, 38, 49, 73, 76]),
    };
    // Free-threaded 3.14 has a pointer to instruction copies before the instructions, and a whole byte
    // for the interned state.
    let has_copies = minor >= 14 && word(1)? != 0;
    let first_line = at(code, 5)?;
    let instructions = at(code, 9)?;
    let copies_bytes = if has_copies { 8 } else { 0 };
    let text_ascii = at(text, 3)?;
    Some(RawPython {
        key,
        thread_id: at(thread, 5)?,
        current: at(thread, 4)?,
        // The owner may be the last member.
        frame_bytes: at(frame, 5)?.checked_add(8)? & !7,
        code: at(frame, 2)?,
        previous: at(frame, 1)?,
        instruction: at(frame, 3)?,
        entry: at(frame, 5)?,
        object_type: at(object, 1)?,
        first_line,
        version: first_line.checked_add(VERSION_AFTER_LINE)?,
        file: at(code, 1)?,
        name: at(code, 3)?,
        line_table: at(code, 4)?,
        instructions,
        first_traceable: instructions.checked_sub(TRACEABLE_BEFORE_CODE + copies_bytes)?,
        text_length: at(text, 2)?,
        text_state: at(text, 1)?,
        text_ascii,
        text_wide: text_ascii.checked_add(16)?,
        bytes_size: at(bytes, 1)?,
        bytes_data: at(bytes, 2)?,
        text_kind_shift: if has_copies { 8 } else { 2 },
        tag_mask: if minor >= 14 { 3 } else { 0 },
        ..COMMON
    })
}

/// Sets the number of bytes to read of each structure. Returns `None` if one exceeds [`READ_LIMIT`].
fn with_sizes(mut raw: RawPython) -> Option<RawPython> {
    const WORD: u16 = 8;
    let of_code = [raw.first_line, raw.file, raw.name, raw.line_table];
    let of_frame = [raw.code, raw.previous, raw.instruction, raw.entry];
    let end = of_code.into_iter().max()?.checked_add(WORD)?;
    // Code objects are read from the type on.
    raw.code_bytes = end.checked_sub(raw.object_type)?;
    raw.thread_bytes = raw.current.abs_diff(raw.thread_id).checked_add(WORD)?;
    let read = [raw.code_bytes, raw.thread_bytes, raw.frame_bytes];
    let fits = read.iter().all(|bytes| *bytes <= READ_LIMIT)
        && of_frame.iter().all(|at| *at < raw.frame_bytes)
        && of_code.iter().all(|at| *at >= raw.object_type);
    fits.then_some(raw)
}

/// Bytes of a frame or code object for which the kernel side has room (`GP_PYTHON_MASK`).
const READ_LIMIT: u16 = 256;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// `_Py_DebugOffsets` of `CPython` 3.14.10 of Debian, up to the code objects.
    const STATED: [u64; 48] = [
        0x30e_0af0, 0, 316_616, 784, 808, 225_864, 7280, 7272, 7344, 7360, 7408, 7688, 7672, 7680,
        16, 7784, 0, 7800, 7792, 7992, 0, 832, 0, 8, 16, 72, 152, 160, 232, 32, 88, 8, 0, 56, 80,
        74, 64, 0, 216, 112, 120, 128, 136, 68, 52, 96, 104, 208,
    ];

    fn stated(version: u64) -> Vec<u8> {
        let mut words = STATED.to_vec();
        words[0] = version;
        let others = [0; 4 + 3 + 3 + 4 + 3 + 2 + 3];
        words.extend([0, 16, 8]);
        words.extend(others);
        words.extend([40, 16, 32, 56, 32, 16, 40]);
        let mut bytes = COOKIE.to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    #[test]
    fn offsets_are_read_from_debug_offsets() {
        let raw = layout(14, &stated(0x30e_0af0)).unwrap();
        assert_eq!(
            (raw.thread_id, raw.current, raw.cframe),
            (152, 72, PYTHON_NONE)
        );
        assert_eq!(
            (raw.code, raw.previous, raw.instruction, raw.entry),
            (0, 8, 56, 74)
        );
        assert_eq!((raw.frame_bytes, raw.code_bytes), (80, 136));
        assert_eq!(
            (raw.file, raw.name, raw.line_table, raw.first_line),
            (112, 128, 136, 68)
        );
        assert_eq!(
            (raw.version, raw.instructions, raw.first_traceable),
            (92, 208, 192)
        );
        assert_eq!(
            (raw.text_ascii, raw.text_wide, raw.bytes_data),
            (40, 56, 32)
        );
    }

    /// Words of a version in which the first of each group is at these indices, each offset 100 more than its
    /// index.
    fn numbered(is_free_threaded: u64, object: usize, count: u64) -> Vec<u8> {
        let mut words: Vec<u64> = (100..100 + count).collect();
        words[object + 1] = 3;
        words.splice(0..0, [0, is_free_threaded]);
        let bytes = words.into_iter().flat_map(u64::to_le_bytes);
        COOKIE.iter().copied().chain(bytes).collect()
    }

    #[test]
    fn each_offset_is_that_of_its_member() {
        for (minor, free, key, [thread, frame, code, object, bytes, text]) in [
            (13, 0, 2160, [16, 25, 31, 41, 61, 64]),
            (13, 1, 2160, [16, 25, 31, 41, 61, 64]),
            (14, 0, 2336, [19, 28, 36, 47, 71, 74]),
            (14, 1, 2336, [19, 28, 36, 47, 71, 74]),
        ] {
            let count = text + 4;
            let stated = numbered(free, usize::from(object), u64::from(count));
            let has_copies = minor == 14 && free == 1;
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
                tag_mask: if minor == 14 { 3 } else { 0 },
                code_bytes: at(code + 5) + 8 - 3,
                thread_bytes: 9,
                ..COMMON
            };
            assert_eq!(layout(minor, &stated), Ok(raw), "{minor} {free}");
            assert!(layout(minor, &stated[..stated.len() - 1]).is_err());
        }
    }

    #[test]
    fn earlier_layouts_are_those_of_official_builds() {
        const NONE: u16 = PYTHON_NONE;
        for (minor, key, thread, frame, entry, code, text) in [
            (
                11,
                592,
                [152, 56, 8, 104],
                [72, 32, 48, 56],
                (68, 0),
                [72, NONE, 112, 128, 136, 184, 168, 136],
                [48, 72],
            ),
            (
                12,
                1544,
                [136, 56, 0, 88],
                [72, 0, 8, 56],
                (70, 1),
                [68, 92, 112, 128, 136, 192, 176, 136],
                [40, 56],
            ),
        ] {
            let raw = layout(minor, &[]).unwrap();
            assert_eq!(raw.key, key, "{minor}");
            let of_thread = [raw.thread_id, raw.current, raw.cframe, raw.thread_bytes];
            assert_eq!(of_thread, thread, "{minor}");
            let of_frame = [raw.frame_bytes, raw.code, raw.previous, raw.instruction];
            assert_eq!(of_frame, frame, "{minor}");
            assert_eq!((raw.entry, raw.entry_rule), entry, "{minor}");
            let of_code = [
                raw.first_line,
                raw.version,
                raw.file,
                raw.name,
                raw.line_table,
                raw.instructions,
                raw.first_traceable,
                raw.code_bytes,
            ];
            assert_eq!(of_code, code, "{minor}");
            assert_eq!([raw.text_ascii, raw.text_wide], text, "{minor}");
        }
    }

    #[test]
    fn structures_fit_into_what_is_read() {
        let fits = |change: fn(&mut RawPython)| {
            let mut raw = RAW_3_12;
            change(&mut raw);
            with_sizes(raw).is_some()
        };
        assert!(fits(|raw| raw.frame_bytes = 256) && !fits(|raw| raw.frame_bytes = 257));
        assert!(fits(|raw| raw.entry = 71) && !fits(|raw| raw.entry = 72));
        assert!(fits(|raw| raw.thread_id = 56 + 248) && !fits(|raw| raw.thread_id = 56 + 249));
        assert!(fits(|raw| raw.first_line = 8) && !fits(|raw| raw.first_line = 7));
        assert!(fits(|raw| raw.line_table = 256) && !fits(|raw| raw.line_table = 257));
    }

    #[test]
    fn unknown_layouts_are_rejected() {
        let mut absurd = stated(0x30e_0af0);
        // The owner's offset is 1 GiB.
        absurd[8 + 35 * 8..][..8].copy_from_slice(&(1u64 << 30).to_le_bytes());
        let none = "this build of CPython 3.14 has no _Py_DebugOffsets";
        for bytes in [&b"xdebugpy"[..], &[0; 400], &absurd] {
            assert_eq!(layout(14, bytes).unwrap_err(), none);
        }
        let before = "CPython before 3.11 is not supported";
        assert_eq!(layout(10, &[]).unwrap_err(), before);
        let after = "CPython 3.15 is not supported by this version of gpuprobe";
        assert_eq!(layout(15, &stated(0x30f_00f0)).unwrap_err(), after);
    }
}
