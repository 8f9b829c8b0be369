/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Maps of call stacks and Python frames. */
#pragma once

/* Call stacks, before the calls that have them. A large model makes over 1,500 of them,
 * up to 64 KiB each, in its first 200 ms under trace. Full: losses.stacks or
 * losses.stack_copies. */
GP_RING(stack_ring, 32 * 1024 * 1024);

/* Activity batches of collectors; created on request only. Full: losses.activity. */
GP_RING(batch_ring, 32 * 1024 * 1024);

/* Hash state -> next part of the call path; written by user space and removed at
 * process exit. Full: user space starts over. */
GP_MAP(paths, HASH, 16384, __u64, struct gp_path);

/* tgid -> executable ranges; written by user space and removed at process exit. The
 * entry of process 0 always exists and matches no address. Preallocated: kernels before 6.1
 * warn about maps that allocate in probes.
 * Full: more stacks than needed are copied. */
GP_MAP(code_maps, HASH, 128, __u32, struct gp_code);

struct gp_sent {
	__u64 time_ns;
	__u64 id;
};

/* Hash of a stack -> its last copy. LRU; an evicted entry costs another copy. */
GP_MAP(sent_copies, LRU_HASH, 16384, __u64, struct gp_sent);

/* Walks that were sent. LRU; an evicted entry costs another record. */
GP_MAP(sent_walks, LRU_HASH, 65536, __u64, __u32);

/* Parameters and state of a stack's hash. */
struct gp_look {
	__u64 hash;
	__u64 ip;
	__u64 program; /* start of the program's own code */
	__u64 program_bytes;
	__u64 is_stale; /* the map of executable ranges is out of date: 0 or 1 */
};

/* Largest offset of a member that is read together with its object. */
#define GP_PYTHON_MASK 0xff
#define GP_PYTHON_CONTENT_WORDS 8

/* The Python frames of a stack, and a buffer for one. */
struct gp_python_walk {
	struct gp_last now; /* of the frames so far */
	__u64 next;         /* the next frame of the walk */
	__u64 key;          /* in known_python */
	__u64 generation;   /* gp_python.generation at the start of the walk */
	__u64 lowest;       /* that of the thread's walk before */
	__u64 from;         /* address and size of the window's content */
	__u64 bytes;
	__u8 code[GP_PYTHON_MASK + 9];
	union {
		__u8 window[GP_PYTHON_TOGETHER + GP_PYTHON_MASK + 9];
		__u64 words[GP_PATH_WORDS]; /* of the native stack, before that */
	};
	__u64 content[GP_PYTHON_CONTENT_WORDS];
	__u64 codes[GP_PYTHON_DEPTH]; /* addresses of the frames' code objects */
	struct gp_python_frame frames[GP_PYTHON_DEPTH];
};

/* A stack that is being captured. What is needed of known ones comes first. */
struct gp_walk {
	__u64 is_used;
	__u64 stack; /* stack id of the path that ends here, or 0 */
	__u32 begin; /* words of the stack before the first of `python.words` */
	__u32 count; /* how many of them there are */
	struct gp_python_walk python;
	struct gp_stack record; /* `count` and `addresses` are the kernel's walk */
	__u64 room;             /* bytes to the base of the main thread's stack */
	struct gp_look look;
};
const volatile __u8 no_words[GP_PATH_WORDS * sizeof(__u64)];

/* A thread that takes a stack may lose its processor to another that does. */
#define GP_WALKS_AT_ONCE 4

/* Buffers of each processor. All in use: losses.stacks. */
GP_MAP(walks, PERCPU_ARRAY, GP_WALKS_AT_ONCE, __u32, struct gp_walk);

/* tgid -> interpreter; written by user space and removed at process exit. Full: its
 * stacks have no Python frames, which user space reports. */
GP_MAP(pythons, HASH, 1024, __u32, struct gp_python);

/* A stack with Python frames: equal addresses mean the same stack as long as no code
 * object was freed since. */
struct gp_python_known {
	__u64 id;
	__u64 generation; /* gp_python.generation */
};

/* Hash of the addresses in a walk -> stack. LRU; an evicted entry costs a look at its
 * code objects. */
GP_MAP(known_python, LRU_HASH, 32768, __u64, struct gp_python_known);

/* Ids of stacks with Python frames, and of code objects, that were sent. LRU; an
 * evicted entry costs another record. */
GP_MAP(sent_python, LRU_HASH, 131072, __u64, __u32);
