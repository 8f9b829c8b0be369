/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Call stacks, Python frames and losses, between the BPF programs and user space. */
#pragma once

enum gp_stack_usize {
	/* Maximum number of return addresses in a frame-pointer walk; the kernel's own
	 * limit is 127. */
	GP_MAX_DEPTH = 128,
	/* Maximum number of return addresses on one stack that are replaced by
	 * uretprobes. */
	GP_MAX_REPLACED = 8,
	GP_PATH_STEPS = 59,   /* return addresses per part of a call path */
	GP_PATH_WORDS = 512,  /* stack words that a part spans */
	GP_PATH_LEVELS = 32,  /* maximum number of parts of a path */
	GP_CODE_WORDS = 2048, /* of gp_code.bits; bits are modulo their number */
	/* Maximum number of Python frames per stack. */
	GP_PYTHON_DEPTH = 128,
	GP_PYTHON_NAME_BYTES = 512,  /* of a qualified name, from its beginning */
	GP_PYTHON_FILE_BYTES = 1024, /* of a file name, from its end */
};

enum gp_stack_u16 {
	/* Exclusive upper limit of the bytes below a frame that are read with it. */
	GP_PYTHON_TOGETHER = 4096,
	/* gp_python: offset of a member that this version does not have. */
	GP_PYTHON_NONE = 0xffff,
};

enum gp_stack_u32 {
	GP_CODE_SHIFT = 16, /* from an address to its bit in gp_code.bits */
	/* gp_python_stack.flags: there are more frames than were sent. */
	GP_PYTHON_CUT = 1,
	/* gp_python_stack.flags: the next frame could not be read. */
	GP_PYTHON_UNREADABLE = 2,
	/* gp_python_stack.flags: the thread runs no Python code; the frames are those
	 * of the main thread, which is blocked. */
	GP_PYTHON_WAITS = 4,
};

/* Factor of gp_mix, in two halves: 64-bit enums are not supported by every kernel's
 * BTF. */
enum gp_stack_u64 {
	GP_MIX_LOW = 0x7f4a7c15,
	GP_MIX_HIGH = 0x9e3779b9,
};

/* Source of call stacks. */
enum gp_stacks_u32 {
	GP_STACKS_OFF = 0,
	GP_STACKS_FRAME_POINTERS = 1, /* the kernel's frame-pointer walk */
	GP_STACKS_COPY = 2,           /* a copy of every stack */
	GP_STACKS_AUTO = 3,           /* a copy of every stack without a cached call path */
};

/* A return address replaced by a uretprobe. */
struct gp_replaced {
	__u64 at; /* address of its slot on the stack */
	__u64 original;
};

/* A call stack: the frame-pointer walk, and the registers for unwinding. The copied
 * bytes, from `sp` upwards, follow. */
struct gp_stack {
	__u16 type;
	__u16 count; /* number of addresses */
	__u32 tgid;
	__u64 id;             /* gp_call.stack */
	__u64 root;           /* hash state at the start of the path */
	__u64 return_address; /* of the probed function, at whose entry the registers were */
	__u64 ip;
	__u64 sp;
	__u64 fp;
	__u32 process; /* as in gp_task */
	__u16 replaced_count;
	__u16 is_stale; /* the map of executable ranges was out of date */
	__u64 copied;   /* bytes of the stack that follow */
	__u64 copy_key; /* hash of the stack, the key in sent_copies */
	struct gp_replaced replaced[GP_MAX_REPLACED];
	__u64 addresses[GP_MAX_DEPTH]; /* `ip` first */
};

/* A part of a cached call path: positions of the next return addresses. The key is the
 * hash state after all previous ones. */
struct gp_path {
	__u64 end;   /* the state after these, if the path ends here */
	__u64 stack; /* stack id of the path that ends here */
	__u16 count;
	__u16 offsets[GP_PATH_STEPS]; /* from the stack pointer, in words */
};

/* Map of the executable ranges of a process. */
struct gp_code {
	__u64 exec_pages; /* the kernel's count of executable pages at that time */
	__u64 bits[GP_CODE_WORDS];
};

/* How an interpreter frame marks an entry from C. */
enum gp_python_entry {
	GP_PYTHON_ENTRY_FLAG,  /* a non-zero flag in the frame */
	GP_PYTHON_ENTRY_OWNER, /* the calling frame is owned by the C stack */
};

/* Frames with this owner or a higher one are no Python frames but mark an entry into
 * the interpreter: FRAME_OWNED_BY_CSTACK, FRAME_OWNED_BY_INTERPRETER. */
#define GP_PYTHON_OWNER_C 3

/* The interpreter of a process: addresses, and offsets in bytes of members of CPython's
 * structures. */
struct gp_python {
	__u64 runtime;   /* _PyRuntime */
	__u64 code_type; /* PyCode_Type */
	/* In _PyRuntime: two ints, whether the key of the thread-specific storage
	 * exists, and the key. */
	__u32 key;
	__u16 thread_id;       /* in PyThreadState: the result of pthread_self */
	__u16 current;         /* there: the innermost frame, or the _PyCFrame that points to it */
	__u16 cframe;          /* in _PyCFrame: the innermost frame; or GP_PYTHON_NONE */
	__u16 frame_bytes;     /* of a frame that are read */
	__u16 code;            /* in a frame */
	__u16 previous;        /* in a frame: the calling one */
	__u16 instruction;     /* in a frame */
	__u16 entry;           /* in a frame: the flag or owner of gp_python_entry */
	__u16 object_type;     /* in every object */
	__u16 code_bytes;      /* of a code object that are read, from its type on */
	__u16 first_line;      /* in a code object: co_firstlineno */
	__u16 version;         /* in a code object: co_version, unique; or GP_PYTHON_NONE */
	__u16 file;            /* in a code object: co_filename */
	__u16 name;            /* in a code object: co_qualname, or co_name */
	__u16 line_table;      /* in a code object: co_linetable */
	__u16 instructions;    /* in a code object: the first one */
	__u16 first_traceable; /* in a code object: _co_firsttraceable */
	__u16 text_length;     /* in str: in characters */
	__u16 text_state;      /* in str */
	__u16 text_ascii;      /* in str: the characters of ASCII strings */
	__u16 text_wide;       /* in str: the characters of others */
	__u16 bytes_size;      /* in bytes: the length */
	__u16 bytes_data;      /* in bytes */
	__u8 text_kind_shift;  /* shift in the state */
	__u8 tag_mask;         /* tag bits of pointers in frames, to be masked off */
	__u8 entry_rule;       /* GP_PYTHON_ENTRY_* */
	__u8 has_slot;         /* written by the BPF side: location of the threads' states */
	__u16 thread_bytes;    /* of a PyThreadState, from its first member needed */
	__u32 slot;            /* written by the BPF side */
	__u32 slot_behind;     /* written by the BPF side */
	__u64 main_state;      /* written by the BPF side: PyThreadState of the main thread */
	__u64 main_id;         /* written by the BPF side: its thread_id */
	/* Count of freed code objects, from a unique starting number; 0 if frees are
	 * not traced. */
	__u64 generation;
};

/* A frame of a Python stack. */
struct gp_python_frame {
	__u64 code; /* gp_python_code.id */
	/* Bytes from the first instruction; INT_MIN: out of range. */
	__s32 instruction;
	__u8 owner;    /* the interpreter's `owner` of the frame, if it has one */
	__u8 is_entry; /* the interpreter was entered from C to run the frame */
	__u16 reserved;
};

/* The Python frames of a call stack, innermost first. */
struct gp_python_stack {
	__u16 type;
	__u16 count;
	__u32 tgid;
	__u64 id;     /* gp_call.stack */
	__u64 native; /* stack id of the native stack */
	__u32 process;
	__u32 flags; /* GP_PYTHON_CUT, GP_PYTHON_UNREADABLE, GP_PYTHON_WAITS */
	struct gp_python_frame frames[GP_PYTHON_DEPTH];
};

/* A string that was read. */
struct gp_python_text {
	__u32 bytes;  /* number of bytes read */
	__u32 kind;   /* bytes per character; 0 if it could not be read */
	__u32 is_cut; /* the string was truncated */
};

/* A code object, sent before the first stack that refers to it. The beginning of its
 * line table follows. */
struct gp_python_code {
	__u16 type;
	__u16 reserved;
	__u32 tgid;
	__u64 id;
	__u32 process;
	__u32 first_line;
	/* In units of 2 bytes: a frame before this instruction has not started. */
	__s32 first_traceable;
	__u32 table_bytes;  /* of the line table */
	__u32 table_copied; /* of these, how many follow */
	struct gp_python_text name_text;
	struct gp_python_text file_text;
	__u32 reserved2;
	__u8 name[GP_PYTHON_NAME_BYTES]; /* qualified, if the version has it */
	__u8 file[GP_PYTHON_FILE_BYTES];
};

/* Key of the losses of one kind of a process. */
struct gp_loss_key {
	__u32 tgid;
	__u32 what; /* index in gp_losses */
};

/* Losses of one kind of a process. */
struct gp_loss {
	__u64 count;
	char comm[GP_COMM_LEN]; /* at the first loss, as the user */
	__u32 uid;
	__u32 reserved;
};
