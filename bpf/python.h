/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Python frames of a thread. The interpreter keeps them as a list, which is reached
 * through the thread's state. CUDA is mostly called with the GIL released, when the
 * thread is not the interpreter's "current" one; its entry in thread-specific storage
 * (autoTSSkey) remains.
 *
 * A frame is identified by its code object and the instruction in it. Code objects are
 * freed and their addresses reused, so an identity has to be read: from 3.12 on a
 * unique number, before that a hash of the names and line table. As long as no code
 * object was freed, which a probe on their destructor counts, addresses are sufficient. */
#pragma once

/* From the thread pointer, in all versions of glibc for x86-64 since 2.3.4: the first 32
 * thread-specific values of 16 bytes, and the array of pointers to the others. */
#define GP_GLIBC_FIRST 784
#define GP_GLIBC_REST (GP_GLIBC_FIRST + 32 * 16)

/* gp_python.slot_behind: the value is at `slot` itself. */
#define GP_PYTHON_HERE 0x7fffffff

/* The word at `offset` of the bytes that were read. */
static __always_inline __u64 gp_python_word(const __u8 *bytes, __u16 offset)
{
	return *(const __u64 *)(bytes + (offset & GP_PYTHON_MASK));
}

/* Mixes 64 bytes at user address `at` into `state`. */
__noinline __u64 gp_mix_user(struct gp_python_walk *walk, __u64 at, __u64 state)
{
	if (!walk || bpf_probe_read_user(walk->content, sizeof(walk->content), (void *)at))
		return gp_mix(state, 1);
	for (__u32 i = 0; i < GP_PYTHON_CONTENT_WORDS; i++)
		state = gp_mix(state, walk->content[i]);
	return state;
}

/* Reads the code object at `code`; false if it is not one. */
static __always_inline bool gp_python_read_code(const struct gp_python *python,
						struct gp_python_walk *walk, __u64 code)
{
	__u32 bytes = python->code_bytes;

	if (bytes > sizeof(walk->code))
		return false;
	return !bpf_probe_read_user(walk->code, bytes, (void *)(code + python->object_type)) &&
	       gp_python_word(walk->code, 0) == python->code_type;
}

/* Mixes a str or bytes object into `state`: its length and beginning; if its characters
 * begin at `data` and are longer, also their end. */
static __always_inline __u64 gp_mix_ends(struct gp_python_walk *walk, __u64 at, __u16 data,
					 __u64 state)
{
	const __u32 begin = 16, seen = GP_PYTHON_CONTENT_WORDS * sizeof(__u64);
	__u64 length = 0;

	state = gp_mix_user(walk, at + begin, state);
	if (!data || bpf_probe_read_user(&length, sizeof(length), (void *)(at + begin)) ||
	    data + length <= begin + seen)
		return state;
	return gp_mix_user(walk, at + data + length - seen, state);
}

/* A hash that distinguishes the code object at `code` from others with the same
 * address. */
static __always_inline __u64 gp_python_fingerprint(const struct gp_python *python,
						   struct gp_python_walk *walk, __u64 code)
{
	__u32 version = 0;
	__u64 state;

	if (python->version != GP_PYTHON_NONE) {
		bpf_probe_read_user(&version, sizeof(version), (void *)(code + python->version));
		return version;
	}
	if (!gp_python_read_code(python, walk, code))
		return 0;
	state = gp_python_word(walk->code, python->first_line - python->object_type);
	state = gp_mix_ends(walk, gp_python_word(walk->code, python->name - python->object_type), 0,
			    state);
	state = gp_mix_ends(walk, gp_python_word(walk->code, python->file - python->object_type),
			    python->text_ascii, state);
	return gp_mix_ends(walk,
			   gp_python_word(walk->code, python->line_table - python->object_type),
			   python->bytes_data, state);
}

/* Finds the location of the threads' states: at `python->slot` from the thread pointer,
 * or through a pointer there. */
static __always_inline void gp_python_find_slot(struct gp_python *python)
{
	struct {
		__s32 is_made;
		__u32 number;
	} key = {};
	__u32 slot, behind = GP_PYTHON_HERE;

	if (bpf_probe_read_user(&key, sizeof(key), (void *)(python->runtime + python->key)) ||
	    /* The interpreter is not initialised, or was finalised. */
	    !key.is_made) {
		python->has_slot = 0;
		return;
	}
	if (key.number < 32) {
		slot = GP_GLIBC_FIRST + 16 * key.number + 8;
	} else {
		slot = GP_GLIBC_REST + 8 * (key.number / 32);
		behind = 16 * (key.number % 32) + 8;
	}
	python->slot = slot;
	python->slot_behind = behind;
	/* Other threads may read it concurrently. */
	barrier();
	python->has_slot = 1;
}

/* Finds the PyThreadState of the current thread by its entry in thread-specific
 * storage; 0 if it has none. False if it could not be read. */
static __always_inline bool gp_python_state(const struct gp_python *python, __u64 base,
					    __u64 *state)
{
	__u64 at = base + python->slot;

	*state = 0;
	if (python->slot_behind != GP_PYTHON_HERE) {
		if (bpf_probe_read_user(&at, sizeof(at), (void *)at))
			return false;
		/* The thread has never used this part. */
		if (!at)
			return true;
		at += python->slot_behind;
	}
	return !bpf_probe_read_user(state, sizeof(*state), (void *)at);
}

/* Reads the innermost frame from a PyThreadState; false if that does not belong to the
 * thread `id`. */
static __always_inline bool gp_python_innermost(const struct gp_python *python,
						struct gp_python_walk *walk, __u64 state, __u64 id,
						__u64 *frame)
{
	__u32 first = python->thread_id, bytes = python->thread_bytes;

	*frame = 0;
	if (!state)
		return true;
	if (first > python->current)
		first = python->current;
	if (bytes > sizeof(walk->code) ||
	    bpf_probe_read_user(walk->code, bytes, (void *)(state + first)) ||
	    gp_python_word(walk->code, python->thread_id - first) != id)
		return false;
	*frame = gp_python_word(walk->code, python->current - first);
	if (python->cframe == GP_PYTHON_NONE || !*frame)
		return true;
	return !bpf_probe_read_user(frame, sizeof(*frame), (void *)(*frame + python->cframe));
}

/* The innermost frame of the current thread; 0 if it has none; read errors are noted in
 * the walk. */
static __always_inline __u64 gp_python_top(struct gp_python *python, struct gp_python_walk *walk,
					   bool is_main)
{
#if defined(__TARGET_ARCH_x86)
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 base, state, frame;

	if (!bpf_core_field_exists(task->thread.fsbase))
		return 0;
	base = task->thread.fsbase;
	if (!python->has_slot)
		gp_python_find_slot(python);
	for (int i = 0; i < 2 && python->has_slot; i++) {
		if (gp_python_state(python, base, &state) &&
		    gp_python_innermost(python, walk, state, base, &frame)) {
			if (is_main && state != python->main_state) {
				python->main_state = state;
				python->main_id = base;
			}
			return frame;
		}
		/* It may be another interpreter, after the first was finalised. */
		gp_python_find_slot(python);
	}
	if (python->has_slot)
		walk->now.flags |= GP_PYTHON_UNREADABLE;
#endif
	return 0;
}

/* A number that the main thread of the current process has until it runs again, if it is
 * asleep; 0 if not. While it is unchanged, so are its frames: whoever has run leaves its
 * processor before it is off one again, and is counted then. */
static __always_inline __u64 gp_main_sleeps(void)
{
	struct task_struct *leader = bpf_get_current_task_btf()->group_leader;

	if (!leader->__state || leader->on_cpu)
		return 0;
	/* It is counted before it is off its processor. */
	barrier();
	return leader->nvcsw + leader->nivcsw + 1;
}
