//! Python interpreters, their frames and code objects.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Maximum number of Python frames per stack (`GP_PYTHON_DEPTH`).
pub const PYTHON_DEPTH: usize = 128;
/// Exclusive upper limit of [`RawPython::together`].
pub const PYTHON_TOGETHER: u16 = 1024;
/// Bytes of a Python qualified name that are sent, from its beginning.
pub const PYTHON_NAME_BYTES: usize = 512;
/// Bytes of a Python file name that are sent, from its end.
pub const PYTHON_FILE_BYTES: usize = 1024;
/// [`RawPython`]: offset of a member that this version of the interpreter does not have.
pub const PYTHON_NONE: u16 = 0xffff;
/// [`RawPythonStack::flags`]: the stack has more frames than were sent.
pub const PYTHON_CUT: u32 = 1;
/// [`RawPythonStack::flags`]: the next frame could not be read.
pub const PYTHON_UNREADABLE: u32 = 2;

/// [`RawPythonStack::flags`]: the thread runs no Python code; the frames are those of the main
/// thread, which is blocked.
pub const PYTHON_WAITS: u32 = 4;

/// `enum gp_python_entry`: how an interpreter frame marks an entry from C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PythonEntry {
    /// Every frame is an entry.
    Each = 0,
    /// The frame has a non-zero entry flag.
    Flag = 1,
    /// The calling frame is owned by the C stack.
    Owner = 2,
}

/// `struct gp_python`: the interpreter of a process: addresses, and offsets in bytes of members of
/// `CPython`'s structures.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct RawPython {
    /// Address of `_PyRuntime` in the process.
    pub runtime: u64,
    /// Address of `PyCode_Type` in the process.
    pub code_type: u64,
    /// Offset in `_PyRuntime`: `autoTSSkey`.
    pub key: u32,
    /// Offset from the thread pointer to thread-specific storage: in glibc, to the first 32
    /// entries; in musl, to a pointer to all entries.
    pub tls: u32,
    /// Offset from the thread pointer to the pointers to the other entries in glibc; 0 for musl.
    pub tls_rest: u32,
    /// Offset in `PyThreadState`: the result of `pthread_self`.
    pub thread_id: u16,
    /// Offset in `PyThreadState`: the innermost frame, or the `_PyCFrame` that points to it.
    pub current: u16,
    /// Offset in `_PyCFrame`: the innermost frame; or [`PYTHON_NONE`].
    pub cframe: u16,
    /// Bytes of a frame that are read.
    pub frame_bytes: u16,
    /// Offset in a frame: the code object.
    pub code: u16,
    /// Offset in a frame: the calling frame.
    pub previous: u16,
    /// Offset in a frame: the current instruction.
    pub instruction: u16,
    /// Offset in a frame: the flag or owner that [`PythonEntry`] names.
    pub entry: u16,
    /// Calling frames within this many bytes below a frame are read in one go.
    pub together: u16,
    /// Offset in every object: its type.
    pub object_type: u16,
    /// Bytes of a code object that are read, from its type on.
    pub code_bytes: u16,
    /// Offset in a code object: `co_firstlineno`.
    pub first_line: u16,
    /// Offset in a code object: `co_version`; or [`PYTHON_NONE`].
    pub version: u16,
    /// Offset in a code object: `co_filename`.
    pub file: u16,
    /// Offset in a code object: `co_qualname`, or `co_name`.
    pub name: u16,
    /// Offset in a code object: `co_linetable`.
    pub line_table: u16,
    /// Offset in a code object: the first instruction.
    pub instructions: u16,
    /// Offset in a code object: `_co_firsttraceable`; or [`PYTHON_NONE`].
    pub first_traceable: u16,
    /// Offset in `str`: the length in characters.
    pub text_length: u16,
    /// Offset in `str`: the state.
    pub text_state: u16,
    /// Offset in `str`: the characters of an ASCII string.
    pub text_ascii: u16,
    /// Offset in `str`: the characters of any other string.
    pub text_wide: u16,
    /// Offset in `bytes`: the length.
    pub bytes_size: u16,
    /// Offset in `bytes`: the data.
    pub bytes_data: u16,
    /// Shift to the kind in the state of a `str`.
    pub text_kind_shift: u8,
    /// Tag bits of pointers in frames, to be masked off.
    pub tag_mask: u8,
    /// 1 if the instruction is a 4-byte index from the first instruction.
    pub is_index: u8,
    /// The [`PythonEntry`] of the interpreter.
    pub entry_rule: u8,
    /// Bytes of a `PyThreadState` that are read, from its first member needed on.
    pub thread_bytes: u16,
    /// Used by the BPF side; 0.
    pub has_slot: u16,
    /// Used by the BPF side; 0.
    pub slot: u32,
    /// Used by the BPF side; 0.
    pub slot_behind: u32,
    /// Padding; always written as zero.
    pub reserved: u32,
    /// Used by the BPF side; 0.
    pub main_state: u64,
    /// Used by the BPF side; 0.
    pub main_id: u64,
    /// Count of freed code objects, from a unique starting number; 0 if frees of code objects are
    /// not traced.
    pub generation: u64,
}

/// `struct gp_python_frame`: one frame of a Python stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonFrame {
    /// Id of the code object, see [`RawPythonCode::id`].
    pub code: u64,
    /// Bytes from the first instruction, or the interpreter's index; `i32::MIN` if the instruction
    /// is outside the code object.
    pub instruction: i32,
    /// The interpreter's `owner` field of the frame, if it has one.
    pub owner: u8,
    /// 1 if the interpreter was entered from C to run the frame.
    pub is_entry: u8,
    /// Padding; always written as zero.
    pub reserved: u16,
}

/// `struct gp_python_stack`: the Python frames of a call stack, innermost first.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonStack {
    /// Record type, always [`record::PYTHON`].
    pub record_type: u16,
    /// Number of valid entries in `frames`.
    pub count: u16,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Stack id, see [`RawCall::stack`].
    pub id: u64,
    /// Stack id of the native call stack.
    pub native: u64,
    /// The process, see [`RawTask::process`].
    pub process: u32,
    /// Bit set of [`PYTHON_CUT`], [`PYTHON_UNREADABLE`] and [`PYTHON_WAITS`].
    pub flags: u32,
    /// Python frames, innermost first.
    pub frames: [RawPythonFrame; PYTHON_DEPTH],
}

/// `struct gp_python_text`: length and encoding of a string that was read.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonText {
    /// Bytes that were read.
    pub bytes: u32,
    /// Bytes per character; 0 if the string could not be read.
    pub kind: u32,
    /// 1 if the string was truncated.
    pub is_cut: u32,
}

/// `struct gp_python_code`: a code object, sent before the first stack that refers to it. The
/// beginning of its line table follows in the record.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonCode {
    /// Record type, always [`record::PYTHON_CODE`].
    pub record_type: u16,
    /// Padding; always written as zero.
    pub reserved: u16,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Id that [`RawPythonFrame::code`] refers to.
    pub id: u64,
    /// The process, see [`RawTask::process`].
    pub process: u32,
    /// First source line (`co_firstlineno`).
    pub first_line: u32,
    /// `_co_firsttraceable`, in units of 2 bytes: a frame before this instruction has not started.
    pub first_traceable: i32,
    /// Length of the line table, bytes.
    pub table_bytes: u32,
    /// Bytes of the line table that follow.
    pub table_copied: u32,
    /// Length and encoding of `name`.
    pub name_text: RawPythonText,
    /// Length and encoding of `file`.
    pub file_text: RawPythonText,
    /// Padding; always written as zero.
    pub reserved2: u32,
    /// Qualified name, or the name.
    pub name: [u8; PYTHON_NAME_BYTES],
    /// File name, from its end if it is truncated.
    pub file: [u8; PYTHON_FILE_BYTES],
}
