/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Call stacks, Python frames and losses, between the BPF programs and user space. */
#ifndef GPUPROBE_ABI_STACKS_H
#define GPUPROBE_ABI_STACKS_H

/* Source of call stacks. Mirrors probe::StackMode. */
enum gp_stack_mode {
	GP_STACKS_OFF,
	GP_STACKS_FRAME_POINTERS, /* the kernel's frame-pointer walk */
	GP_STACKS_COPY,           /* a copy of every stack */
	GP_STACKS_AUTO,           /* a copy of every stack without a cached call path */
	GP_STACKS_COUNT,
};

/* A return address replaced by a uretprobe. */
struct gp_replaced {
	__u64 at;
	__u64 original;
};

/* A call stack: the frame-pointer walk, and the registers for unwinding. The copied
 * bytes, from `sp` upwards, follow. */
struct gp_stack {
	__u16 type;
	__u16 count; /* number of addresses */
	__u32 tgid;
	__u64 id;   /* gp_call.stack */
	__u64 root; /* hash state at the start of the path */
	__u64 return_address;
	__u64 ip;
	__u64 sp;
	__u64 fp;
	__u32 process; /* as in gp_task */
	__u16 replaced_count;
	__u16 is_stale; /* the map of executable ranges was out of date */
	__u64 copied;
	__u64 copy_key; /* hash of the stack, the key in sent_copies */
	struct gp_replaced replaced[GP_MAX_REPLACED];
	__u64 addresses[GP_MAX_DEPTH]; /* `ip` first */
};

struct gp_stack_tiny {
	struct gp_stack stack;
	__u8 bytes[GP_TINY_STACK_BYTES];
};

struct gp_stack_small {
	struct gp_stack stack;
	__u8 bytes[GP_SMALL_STACK_BYTES + 4096];
};

struct gp_stack_medium {
	struct gp_stack stack;
	__u8 bytes[GP_MEDIUM_STACK_BYTES + 4096];
};

struct gp_stack_large {
	struct gp_stack stack;
	__u8 bytes[GP_MAX_STACK_BYTES];
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
	GP_PYTHON_ENTRY_EACH,  /* every frame is an entry */
	GP_PYTHON_ENTRY_FLAG,  /* a non-zero flag in the frame */
	GP_PYTHON_ENTRY_OWNER, /* the calling frame is owned by the C stack */
	GP_PYTHON_ENTRY_COUNT,
};

/* Frames with this owner or a higher one are no Python frames but mark an entry into
 * the interpreter: FRAME_OWNED_BY_CSTACK, FRAME_OWNED_BY_INTERPRETER. */
#define GP_PYTHON_OWNER_C 3

/* The interpreter of a process: addresses, and offsets in bytes. */
struct gp_python {
	__u64 runtime;   /* _PyRuntime */
	__u64 code_type; /* PyCode_Type */
	/* In _PyRuntime: two ints, whether the key of the thread-specific storage
	 * exists, and the key. */
	__u32 key;
	/* From the thread pointer. glibc: the first 32 entries, and the array of
	 * pointers to the others. musl: the pointer to the array of values; `tls_rest`
	 * is 0. */
	__u32 tls;
	__u32 tls_rest;
	/* In PyThreadState. */
	__u16 thread_id;
	__u16 current; /* the innermost frame, or the _PyCFrame that points to it */
	__u16 cframe;  /* in _PyCFrame, or GP_PYTHON_NONE */
	/* In a frame. */
	__u16 frame_bytes;
	__u16 code;
	__u16 previous;
	__u16 instruction;
	__u16 entry;    /* the flag or the owner */
	__u16 together; /* bytes below a frame in which calling frames are read in one go */
	/* In a code object: its type, and the number of bytes from there that are read. */
	__u16 type;
	__u16 code_bytes;
	__u16 first_line;
	__u16 version; /* unique, or GP_PYTHON_NONE */
	__u16 file;
	__u16 name;
	__u16 line_table;
	__u16 instructions;
	__u16 first_traceable; /* or GP_PYTHON_NONE */
	/* In str and bytes. */
	__u16 text_length;
	__u16 text_state;
	__u16 text_ascii; /* the characters of ASCII strings, and of others */
	__u16 text_wide;
	__u16 bytes_size;
	__u16 bytes_data;
	__u8 text_kind_shift; /* shift in the state */
	__u8 tag_mask;        /* tag bits of pointers in frames, to be masked off */
	__u8 is_index;        /* the instruction is a 4-byte index from the first one */
	__u8 entry_rule;      /* GP_PYTHON_ENTRY_* */
	__u16 thread_bytes;   /* of a PyThreadState, from its first member needed */
	__u16 has_slot;       /* written by the BPF side: location of the threads' states */
	__u32 slot;
	__u32 slot_behind;
	__u32 reserved;
	__u64 main_state; /* written by the BPF side: PyThreadState and thread_id of the main thread
			   */
	__u64 main_id;
	/* Count of freed code objects, from a unique starting number; 0 if frees are
	 * not traced. */
	__u64 generation;
};

struct gp_python_frame {
	__u64 code;        /* gp_python_code.id */
	__s32 instruction; /* bytes from the first instruction, or the index; INT_MIN: out of range
			    */
	__u8 owner;        /* the interpreter's `owner` of the frame, if it has one */
	__u8 is_entry;     /* the interpreter was entered from C to run the frame */
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
	__u32 flags; /* GP_PYTHON_CUT, GP_PYTHON_UNREADABLE */
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
	__s32 first_traceable; /* instruction, in units of 2 bytes */
	__u32 table_bytes;
	__u32 table_copied;
	struct gp_python_text name_text;
	struct gp_python_text file_text;
	__u32 reserved2;
	__u8 name[GP_PYTHON_NAME_BYTES];
	__u8 file[GP_PYTHON_FILE_BYTES];
};

struct gp_python_code_small {
	struct gp_python_code code;
	__u8 table[GP_SMALL_TABLE_BYTES];
};

struct gp_python_code_medium {
	struct gp_python_code code;
	__u8 table[GP_MEDIUM_TABLE_BYTES];
};

struct gp_python_code_large {
	struct gp_python_code code;
	__u8 table[GP_MAX_TABLE_BYTES];
};

/* Events that did not reach user space, by cause. */
struct gp_losses {
	__u64 ring_full;    /* memory calls: the ring was full */
	__u64 threads_full; /* memory calls: the map of threads was full */
	__u64 nesting;      /* memory calls: GP_MAX_FRAMES exceeded */
	__u64 unreadable;   /* memory calls: the result could not be read */
	__u64 tasks;        /* process and thread records: the ring was full */
	__u64 notices;      /* discovery notices: the control ring was full */
	__u64 contexts;     /* context-to-device assignments: the map was full */
	__u64 targets;      /* children not followed: the map was full */
	__u64 launches;     /* launches: the map was full */
	__u64 names;        /* kernel names: the ring was full */
	__u64 copies;       /* copies: the ring or the map of threads was full, or the size was
			     * unknown */
	/* Launches that were counted but not sent one by one: the ring or the map of
	 * threads was full, or they never returned. */
	__u64 single_launches;
	__u64 stacks;       /* call stacks: the ring or a map was full */
	__u64 stack_copies; /* copies of stacks: the ring was full; the walk was sent */
	__u64 activity;     /* activity records in batches: the ring was full, or the batch was
			     * unreadable */
	__u64 python;       /* Python frames of a stack: the ring or a map was full */
	__u64 python_cut;   /* stacks with more Python frames than GP_PYTHON_DEPTH */
	/* Stacks with a Python frame, and code objects, that could not be read. */
	__u64 python_unreadable;
	__u64 tensors; /* tensors: the ring was nearly full, or the map of threads was full */
};

/* Losses of one kind of a process. */
struct gp_loss_key {
	__u32 tgid;
	__u32 what; /* index in gp_losses */
};

struct gp_loss {
	__u64 count;
	char comm[GP_COMM_LEN]; /* at the first loss, as the user */
	__u32 uid;
	__u32 reserved;
};

#endif /* GPUPROBE_ABI_STACKS_H */
