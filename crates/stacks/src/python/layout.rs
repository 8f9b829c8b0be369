//! Offsets of members of `CPython`'s structures, by version.
//!
//! From 3.13 on the interpreter has them itself (`_Py_DebugOffsets`, the beginning of `_PyRuntime`), all
//! but the key of its thread-specific storage. For earlier versions they are those of the default x86-64
//! build, read from running interpreters; builds that differ (`Py_TRACE_REFS`) fail the check that
//! every code object has the type `PyCode_Type`.

use gpuprobe_model::abi::{PYTHON_NONE, PYTHON_TOGETHER, PythonEntry, RawPython};

use super::lines::LineTableFormat;

mod debug_offsets;

pub(super) use debug_offsets::{DEBUG_OFFSETS_BYTES, of_debug_offsets};

/// A supported version of `CPython`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonVersion {
    /// Minor version, after `3.`.
    pub minor: u8,
    /// Build without a global interpreter lock.
    pub is_free_threaded: bool,
}

impl std::fmt::Display for PythonVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let suffix = if self.is_free_threaded { "t" } else { "" };
        write!(f, "CPython 3.{}{suffix}", self.minor)
    }
}

/// Layout of an interpreter's structures, without addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterpreterLayout {
    /// Version of the interpreter.
    pub version: PythonVersion,
    /// Offsets for the kernel side.
    pub raw: RawPython,
    /// Offset in `_PyRuntime` of the pointer to the first interpreter.
    pub interpreters: u64,
    /// Offset in an interpreter of the pointer to its first thread state.
    pub threads: u64,
    /// Offset in a thread state of the thread id, in versions that have it.
    pub native_thread_id: Option<u64>,
    /// Offset in a thread state of the pointer to the next one.
    pub next_thread: u64,
}

/// The supported minor versions.
pub(super) const MINORS: std::ops::RangeInclusive<u8> = 10..=14;

/// Values shared by all builds without free threading.
const COMMON: RawPython = RawPython {
    runtime: 0,
    code_type: 0,
    key: 0,
    tls: 0,
    tls_rest: 0,
    thread_id: 0,
    current: 0,
    cframe: PYTHON_NONE,
    frame_bytes: 72,
    code: 0,
    previous: 8,
    instruction: 56,
    entry: 70,
    together: PYTHON_TOGETHER - 8,
    object_type: 8,
    code_bytes: 0,
    first_line: 68,
    version: PYTHON_NONE,
    file: 112,
    name: 128,
    line_table: 136,
    instructions: 0,
    first_traceable: PYTHON_NONE,
    text_length: 16,
    text_state: 32,
    text_ascii: 48,
    text_wide: 72,
    bytes_size: 16,
    bytes_data: 32,
    text_kind_shift: 2,
    tag_mask: 0,
    is_index: 0,
    entry_rule: PythonEntry::Owner as u8,
    thread_bytes: 0,
    has_slot: 0,
    slot: 0,
    slot_behind: 0,
    reserved: 0,
    main_state: 0,
    main_id: 0,
    generation: 0,
};

/// Distance from `co_firstlineno` to `co_version`, from 3.12 on.
const VERSION_AFTER_LINE: u16 = 24;
/// Distance from `_co_firsttraceable` to the instructions, from 3.11 on.
const TRACEABLE_BEFORE_CODE: u16 = 16;

/// Its frames are objects.
const RAW_3_10: RawPython = RawPython {
    key: 584,
    thread_id: 176,
    current: 24,
    code: 32,
    previous: 24,
    is_index: 1,
    together: 0,
    entry_rule: PythonEntry::Each as u8,
    first_line: 40,
    file: 104,
    name: 112,
    line_table: 120,
    frame_bytes: 104,
    instruction: 96,
    ..COMMON
};
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

/// The layout of a version before 3.13; `None` if it is not supported.
pub(super) fn of_version(minor: u8) -> Option<InterpreterLayout> {
    let (raw, interpreters, threads, native) = match minor {
        10 => (RAW_3_10, 32, 8, None),
        11 => (RAW_3_11, 40, 16, Some(160)),
        12 => (RAW_3_12, 40, 72, Some(144)),
        _ => return None,
    };
    Some(InterpreterLayout {
        version: PythonVersion {
            minor,
            is_free_threaded: false,
        },
        raw: with_sizes(raw)?,
        interpreters,
        threads,
        native_thread_id: native,
        next_thread: 8,
    })
}

/// The line table format of a version.
pub(super) fn form(minor: u8) -> LineTableFormat {
    match minor {
        ..=10 => LineTableFormat::Pep626,
        _ => LineTableFormat::Locations,
    }
}

/// Sets the number of bytes to read of each structure. Returns `None` if one exceeds [`READ_LIMIT`].
fn with_sizes(mut raw: RawPython) -> Option<RawPython> {
    const WORD: u16 = 8;
    let needed = |members: &[u16]| {
        let last = members.iter().copied().filter(|&at| at != PYTHON_NONE);
        let bytes = last
            .max()?
            .checked_add(WORD)?
            .checked_sub(raw.object_type)?;
        (bytes <= READ_LIMIT).then_some(bytes)
    };
    let names = [raw.first_line, raw.file, raw.name, raw.line_table];
    raw.code_bytes = needed(&names)?;
    raw.thread_bytes = raw.current.abs_diff(raw.thread_id).checked_add(WORD)?;
    let frame = [raw.code, raw.previous, raw.instruction, raw.entry];
    let last = frame.into_iter().max()?;
    let fits = raw.frame_bytes.max(raw.thread_bytes) <= READ_LIMIT && last < raw.frame_bytes;
    // Code objects are read from the type on.
    let before = names.iter().any(|&member| member < raw.object_type);
    (fits && !before).then_some(raw)
}

/// Bytes of a frame or code object for which the kernel side has room (`GP_PYTHON_MASK`).
const READ_LIMIT: u16 = 256;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::debug_offsets::COOKIE;
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
        let layout = of_debug_offsets(&stated(0x30e_0af0)).unwrap();
        assert_eq!(layout.version.to_string(), "CPython 3.14");
        let raw = layout.raw;
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
        assert_eq!((layout.interpreters, layout.threads), (808, 7344));
    }

    #[test]
    fn earlier_layouts_are_those_of_official_builds() {
        const NONE: u16 = PYTHON_NONE;
        for (minor, key, thread, frame, entry, code, text) in [
            (
                10,
                584,
                [176, 24, NONE],
                [104, 32, 24, 96],
                (70, 0, 1, 0),
                [40, NONE, 104, 112, 120, 0, NONE],
                [48, 72],
            ),
            (
                11,
                592,
                [152, 56, 8],
                [72, 32, 48, 56],
                (68, 1016, 0, 1),
                [72, NONE, 112, 128, 136, 184, 168],
                [48, 72],
            ),
            (
                12,
                1544,
                [136, 56, 0],
                [72, 0, 8, 56],
                (70, 1016, 0, 2),
                [68, 92, 112, 128, 136, 192, 176],
                [40, 56],
            ),
        ] {
            let raw = of_version(minor).unwrap().raw;
            assert_eq!(raw.key, key, "{minor}");
            assert_eq!([raw.thread_id, raw.current, raw.cframe], thread, "{minor}");
            let of_frame = [raw.frame_bytes, raw.code, raw.previous, raw.instruction];
            assert_eq!(of_frame, frame, "{minor}");
            let of_entry = (raw.entry, raw.together, raw.is_index, raw.entry_rule);
            assert_eq!(of_entry, entry, "{minor}");
            let of_code = [
                raw.first_line,
                raw.version,
                raw.file,
                raw.name,
                raw.line_table,
                raw.instructions,
                raw.first_traceable,
            ];
            assert_eq!(of_code, code, "{minor}");
            assert_eq!([raw.text_ascii, raw.text_wide], text, "{minor}");
        }
    }

    #[test]
    fn earlier_interpreters_have_their_lists_and_tables() {
        use LineTableFormat::{Locations, Pep626};
        for (minor, places, read) in [
            (10, (32, 8, None), (160, 120)),
            (11, (40, 16, Some(160)), (104, 136)),
            (12, (40, 72, Some(144)), (88, 136)),
        ] {
            let layout = of_version(minor).unwrap();
            let (interpreters, threads) = (layout.interpreters, layout.threads);
            assert_eq!((interpreters, threads, layout.native_thread_id), places);
            assert_eq!((layout.raw.thread_bytes, layout.raw.code_bytes), read);
        }
        let forms = [10, 11, 14].map(form);
        assert_eq!(forms, [Pep626, Locations, Locations]);
    }

    #[test]
    fn structures_fit_into_what_is_read() {
        let raw = of_version(12).unwrap().raw;
        let fits = |change: fn(&mut RawPython)| {
            let mut raw = raw;
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
        assert_eq!(of_debug_offsets(&stated(0x30f_00f0)), None);
        assert_eq!(of_debug_offsets(b"xdebugpy"), None);
        assert_eq!(of_debug_offsets(&[0; 400]), None);
        let mut absurd = stated(0x30e_0af0);
        // The owner's offset is 1 GiB.
        absurd[8 + 35 * 8..][..8].copy_from_slice(&(1u64 << 30).to_le_bytes());
        assert_eq!(of_debug_offsets(&absurd), None);
        for minor in 0..=20 {
            assert_eq!(of_version(minor).is_some(), (10..=12).contains(&minor));
        }
    }
}
