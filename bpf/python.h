/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The Python frames of a thread. The interpreter keeps them as a list of its own,
 * which the thread's state leads to. CUDA is mostly called with the interpreter's
 * lock released, when the thread is nobody's "current" one; its entry in
 * thread-specific storage (autoTSSkey) stays.
 *
 * A frame is known by its code object and the place in it. Code objects come and
 * go, and addresses are used again, so what tells one apart is read each time:
 * from 3.12 on a number that is unique, before that what its names and line table
 * contain.
 */
#ifndef GPUPROBE_PYTHON_H
#define GPUPROBE_PYTHON_H

/* The word at `offset` of what was read. */
static __always_inline __u64 gp_python_word(const __u8 *bytes, __u16 offset)
{
	return *(const __u64 *)(bytes + (offset & GP_PYTHON_MASK));
}

/* Mixes the 64 bytes at user address `at` into `state`. A global function, as those
 * below: the verifier follows its loop once. */
__noinline __u64 gp_mix_user(__u32 tid, __u64 at, __u64 state)
{
	struct gp_python_walk *walk;

	if (!take_python)
		return 0;
	walk = bpf_map_lookup_elem(&python_walks, &tid);
	if (!walk || bpf_probe_read_user(walk->content, sizeof(walk->content), (void *)at))
		return gp_mix(state, 1);
	for (__u32 i = 0; i < GP_PYTHON_CONTENT_WORDS; i++)
		state = gp_mix(state, walk->content[i]);
	return state;
}

/* What tells the code object that was read apart from others at its address. */
static __always_inline __u64 gp_python_fingerprint(const struct gp_python *python,
						   struct gp_python_walk *walk, __u32 tid)
{
	__u32 first_line = gp_python_word(walk->code, python->first_line - python->type);
	__u64 state = first_line;

	if (python->version != GP_PYTHON_NONE)
		return state << 32 |
		       (__u32)gp_python_word(walk->code, python->version - python->type);
	/* Their lengths, and what follows: hashes, and the first characters. */
	state = gp_mix_user(tid, gp_python_word(walk->code, python->name - python->type) + 16,
			    state);
	state = gp_mix_user(tid, gp_python_word(walk->code, python->file - python->type) + 16,
			    state);
	return gp_mix_user(tid, gp_python_word(walk->code, python->line_table - python->type) + 16,
			   state);
}

/* The state of the current thread; 0 if it has none, with what could not be read
 * noted in the walk. */
static __always_inline __u64 gp_python_thread(const struct gp_python *python,
					      struct gp_python_walk *walk)
{
#if defined(__TARGET_ARCH_x86)
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct {
		__s32 is_made;
		__u32 number;
	} key = {};
	__u64 base, at, state = 0, id = 0;

	if (!bpf_core_field_exists(task->thread.fsbase))
		return 0;
	base = BPF_CORE_READ(task, thread.fsbase);
	if (bpf_probe_read_user(&key, sizeof(key), (void *)(python->runtime + python->key)))
		goto unreadable;
	/* The interpreter has not begun, or has ended. */
	if (!key.is_made)
		return 0;
	if (!python->tls_rest) {
		if (bpf_probe_read_user(&at, sizeof(at), (void *)(base + python->tls)))
			goto unreadable;
		at += 8ULL * key.number;
	} else if (key.number < 32) {
		at = base + python->tls + 16ULL * key.number + 8;
	} else {
		at = base + python->tls_rest + 8ULL * (key.number / 32);
		if (bpf_probe_read_user(&at, sizeof(at), (void *)at))
			goto unreadable;
		/* The thread has never used this part. */
		if (!at)
			return 0;
		at += 16ULL * (key.number % 32) + 8;
	}
	if (bpf_probe_read_user(&state, sizeof(state), (void *)at))
		goto unreadable;
	if (!state)
		return 0;
	/* What is there is this thread's, or the layout is another. */
	if (!bpf_probe_read_user(&id, sizeof(id), (void *)(state + python->thread_id)) &&
	    id == base)
		return state;
unreadable:
	walk->flags |= GP_PYTHON_UNREADABLE;
#endif
	return 0;
}

/* The innermost frame of the current thread; 0 if it has none. */
static __always_inline __u64 gp_python_top(const struct gp_python *python,
					   struct gp_python_walk *walk)
{
	__u64 at = gp_python_thread(python, walk);

	if (!at)
		return 0;
	if (bpf_probe_read_user(&at, sizeof(at), (void *)(at + python->current)))
		goto unreadable;
	if (python->cframe == GP_PYTHON_NONE || !at)
		return at;
	if (!bpf_probe_read_user(&at, sizeof(at), (void *)(at + python->cframe)))
		return at;
unreadable:
	walk->flags |= GP_PYTHON_UNREADABLE;
	return 0;
}

/* Where in its code the frame that was read is. */
static __always_inline __s32 gp_python_instruction(const struct gp_python *python,
						   struct gp_python_walk *walk, __u64 code)
{
	__u64 at = gp_python_word(walk->frame, python->instruction);
	__s64 distance = at - code - python->instructions;

	if (python->is_index)
		return (__s32)at;
	return distance == (__s32)distance ? distance : 1 << 31;
}

/* Reads so many bytes of the code object at `code`; false if it is none. */
static __always_inline bool gp_python_read_code(const struct gp_python *python,
						struct gp_python_walk *walk, __u64 code,
						__u32 bytes)
{
	if (bytes > sizeof(walk->code))
		return false;
	return !bpf_probe_read_user(walk->code, bytes, (void *)(code + python->type)) &&
	       gp_python_word(walk->code, 0) == python->code_type;
}

/* Appends the frame that was read to the walk; false if it is the last. */
static __always_inline bool gp_python_append(const struct gp_python *python,
					     struct gp_python_walk *walk, __u32 tid)
{
	__u64 code = gp_python_word(walk->frame, python->code) & ~(__u64)python->tag_mask;
	__u32 count = walk->count;
	struct gp_python_frame *frame;

	if (count >= GP_PYTHON_DEPTH) {
		walk->flags |= GP_PYTHON_CUT;
		return false;
	}
	if (!gp_python_read_code(python, walk, code, python->key_bytes)) {
		walk->flags |= GP_PYTHON_UNREADABLE;
		return false;
	}
	/* The compiler knows that it is in range, the verifier may not. */
	barrier_var(count);
	count &= GP_PYTHON_DEPTH - 1;
	frame = &walk->frames[count];
	frame->code = gp_mix(code, gp_python_fingerprint(python, walk, tid));
	frame->instruction = gp_python_instruction(python, walk, code);
	frame->owner = gp_python_word(walk->frame, python->entry);
	frame->is_entry = python->entry_rule == GP_PYTHON_ENTRY_EACH;
	if (python->entry_rule == GP_PYTHON_ENTRY_FLAG) {
		frame->is_entry = frame->owner != 0;
		/* It follows the flag. */
		frame->owner = gp_python_word(walk->frame, python->entry + 1);
	}
	frame->reserved = 0;
	walk->codes[count] = code;
	walk->count = count + 1;
	return true;
}

/* Notes that the interpreter was entered to run the frame that was appended last. */
static __always_inline void gp_python_mark_entry(struct gp_python_walk *walk)
{
	__u32 last = walk->count - 1;

	if (last >= GP_PYTHON_DEPTH)
		return;
	barrier_var(last);
	walk->frames[last & (GP_PYTHON_DEPTH - 1)].is_entry = 1;
}

/* Walks the Python frames of the current thread. False if it has none. */
__noinline __u32 gp_walk_python(__u32 tid, __u32 tgid)
{
	const struct gp_python *python;
	struct gp_python_walk *walk;
	__u32 bytes, i;
	__u64 at;

	if (!take_python)
		return 0;
	python = bpf_map_lookup_elem(&pythons, &tgid);
	walk = bpf_map_lookup_elem(&python_walks, &tid);
	if (!python || !walk)
		return 0;
	bytes = python->frame_bytes;
	if (bytes > sizeof(walk->frame))
		return 0;
	walk->count = 0;
	walk->flags = 0;
	at = gp_python_top(python, walk);
	for (i = 0; i < GP_PYTHON_STEPS && at; i++) {
		if (bpf_probe_read_user(walk->frame, bytes, (void *)at)) {
			walk->flags |= GP_PYTHON_UNREADABLE;
			break;
		}
		at = gp_python_word(walk->frame, python->previous);
		if (python->entry_rule == GP_PYTHON_ENTRY_OWNER &&
		    (__u8)gp_python_word(walk->frame, python->entry) >= GP_PYTHON_OWNER_C)
			gp_python_mark_entry(walk);
		else if (!gp_python_append(python, walk, tid))
			break;
	}
	if (i == GP_PYTHON_STEPS && at)
		walk->flags |= GP_PYTHON_CUT;
	return walk->count || walk->flags;
}

/* What the thread's walk is told apart by from others. */
__noinline __u64 gp_hash_python(__u32 tid, __u64 state)
{
	struct gp_python_walk *walk;

	if (!take_python)
		return 0;
	walk = bpf_map_lookup_elem(&python_walks, &tid);
	if (!walk)
		return 0;
	state = gp_mix(state, walk->flags);
	for (__u32 i = 0; i < GP_PYTHON_DEPTH && i < walk->count; i++) {
		const struct gp_python_frame *frame = &walk->frames[i];

		state = gp_mix(state, frame->code);
		state = gp_mix(state, (__u32)frame->instruction | (__u64)frame->is_entry << 32);
	}
	return state | 1;
}

#endif /* GPUPROBE_PYTHON_H */
