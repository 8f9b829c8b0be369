/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Walk over the Python frames of a thread, from its innermost. */
#pragma once

/* The word at `offset` of the frame at `at` in the window. */
static __always_inline __u64 gp_python_member(const struct gp_python_walk *walk, __u32 at,
					      __u16 offset)
{
	return *(const __u64 *)(walk->window + (at & (GP_PYTHON_TOGETHER - 1)) +
				(offset & GP_PYTHON_MASK));
}

/* Reads the frame at user address `frame` and `together` bytes before it into the window; false if
 * they are unreadable. */
static __always_inline bool gp_python_read_window(const struct gp_python *python,
						  struct gp_python_walk *walk, __u64 frame,
						  __u64 together)
{
	__u64 bytes = python->frame_bytes;

	/* The window has room for a frame behind these. */
	if (together > GP_PYTHON_TOGETHER - 8)
		together = GP_PYTHON_TOGETHER - 8;
	/* Keeps the compiler from merging it with other values that it has bounded. */
	barrier_var(together);
	together &= GP_PYTHON_TOGETHER - 1;
	barrier_var(bytes);
	bytes &= GP_PYTHON_MASK;
	walk->from = frame - together;
	walk->bytes = together + 1;
	return !bpf_probe_read_user(walk->window, together + bytes, (void *)walk->from);
}

/* Has the frame at user address `frame` in the window; false if it is unreadable. Callers lie
 * before it in memory, and are read with it: those that were there at the last walk, or on its
 * page. */
static __always_inline bool gp_python_read_frame(const struct gp_python *python,
						 struct gp_python_walk *walk, __u64 frame)
{
	if (frame - walk->from < walk->bytes)
		return true;
	if (frame - walk->lowest < GP_PYTHON_CHUNK &&
	    gp_python_read_window(python, walk, frame, frame - walk->lowest))
		return true;
	return gp_python_read_window(python, walk, frame, frame & (GP_PAGE - 1));
}

/* The interpreter's mark of the frame at `at` in the window: its owner, or a flag. */
static __always_inline __u8 gp_python_mark(const struct gp_python *python,
					   const struct gp_python_walk *walk, __u32 at)
{
	return gp_python_member(walk, at, python->entry);
}

/* Whether a frame with this mark is none of Python, but the entry from C to the one before. */
static __always_inline bool gp_python_is_entry(const struct gp_python *python, __u8 mark)
{
	return python->entry_rule == GP_PYTHON_ENTRY_OWNER && mark >= GP_PYTHON_OWNER_C;
}

/* Mixes the next frames into the state of the walk; false if there are none. In parts, and a
 * global function, as the next one, to limit the instructions that the verifier checks. */
__noinline __u32 gp_hash_python_part(struct gp_python *python, struct gp_python_walk *walk)
{
	__u64 frame, state;

	if (!python || !walk)
		return 0;
	frame = walk->next;
	state = walk->now.state;
	for (__u32 i = 0; i < GP_PYTHON_AT_ONCE && frame; i++) {
		__u32 at;
		__u8 mark;

		walk->now.lowest = frame;

		if (!gp_python_read_frame(python, walk, frame)) {
			walk->now.flags |= GP_PYTHON_UNREADABLE;
			frame = 0;
			break;
		}
		at = frame - walk->from;
		mark = gp_python_mark(python, walk, at);
		if (!gp_python_is_entry(python, mark) && walk->now.count++ >= GP_PYTHON_DEPTH) {
			walk->now.flags |= GP_PYTHON_CUT;
			frame = 0;
			break;
		}
		state = gp_mix(state, gp_python_member(walk, at, python->code));
		/* An address of user space has no bits there. */
		state = gp_mix(state,
			       gp_python_member(walk, at, python->instruction) ^ (__u64)mark << 56);
		frame = gp_python_member(walk, at, python->previous);
	}
	walk->next = frame;
	walk->now.state = state;
	return frame != 0;
}

/* Instruction of the frame at `at` in the window, relative to its code at `code`. */
static __always_inline __s32 gp_python_instruction(const struct gp_python *python,
						   const struct gp_python_walk *walk, __u32 at,
						   __u64 code)
{
	__u64 word = gp_python_member(walk, at, python->instruction);
	__s64 distance = word - code - python->instructions;

	return distance == (__s32)distance ? distance : 1 << 31;
}

/* Appends the frame at `at` in the window to the walk, or marks the last one as an entry into
 * the interpreter; false if there is no room. */
static __always_inline bool gp_python_append(const struct gp_python *python,
					     struct gp_python_walk *walk, __u32 at)
{
	__u64 code = gp_python_member(walk, at, python->code) & ~(__u64)python->tag_mask;
	__u16 marks = gp_python_member(walk, at, python->entry);
	bool is_entry = gp_python_is_entry(python, marks);
	__u32 count = walk->now.count, index = is_entry ? count - 1 : count;
	struct gp_python_frame *frame;

	if (index >= GP_PYTHON_DEPTH)
		return is_entry;
	/* The compiler knows that it is in range, the verifier may not. */
	barrier_var(index);
	index &= GP_PYTHON_DEPTH - 1;
	frame = &walk->frames[index];
	if (is_entry) {
		frame->is_entry = 1;
		return true;
	}
	frame->instruction = gp_python_instruction(python, walk, at, code);
	frame->owner = marks;
	frame->is_entry = 0;
	if (python->entry_rule == GP_PYTHON_ENTRY_FLAG) {
		/* The owner follows the flag. */
		frame->is_entry = (__u8)marks != 0;
		frame->owner = marks >> 8;
	}
	frame->reserved = 0;
	walk->codes[index] = code;
	walk->now.count = count + 1;
	return true;
}

/* Appends the next frames to the walk; false if there are none. */
__noinline __u32 gp_walk_python_part(struct gp_python *python, struct gp_python_walk *walk)
{
	__u64 frame;

	if (!python || !walk)
		return 0;
	frame = walk->next;
	for (__u32 i = 0; i < GP_PYTHON_AT_ONCE && frame; i++) {
		__u32 at;

		if (!gp_python_read_frame(python, walk, frame)) {
			walk->now.flags |= GP_PYTHON_UNREADABLE;
			frame = 0;
			break;
		}
		at = frame - walk->from;
		frame = gp_python_append(python, walk, at)
				? gp_python_member(walk, at, python->previous)
				: 0;
	}
	walk->next = frame;
	return frame != 0;
}

/* Identity of the code object at `code`. */
__noinline __u64 gp_python_identity(struct gp_python *python, struct gp_python_walk *walk,
				    __u64 code)
{
	if (!python || !walk)
		return 0;
	/* Adjacent addresses and numbers must not cancel each other out. */
	return gp_mix(gp_mix(0, code), gp_python_fingerprint(python, walk, code));
}

/* Reads the code objects of the walk and sets the identities of its frames. Returns `state`
 * with all of them mixed in. */
__noinline __u64 gp_identify_python(struct gp_python *python, struct gp_python_walk *walk,
				    __u64 state)
{
	if (!walk)
		return 0;
	for (__u32 i = 0; i < GP_PYTHON_DEPTH && i < walk->now.count; i++) {
		struct gp_python_frame *frame = &walk->frames[i];

		frame->code = gp_python_identity(python, walk, walk->codes[i]);
		state = gp_mix(state, frame->code);
		state = gp_mix(state, (__u32)frame->instruction | (__u64)frame->is_entry << 32);
	}
	return state;
}

/* Whether the main thread, whose frames were walked, has run meanwhile, which
 * invalidates the walk. */
static __always_inline bool gp_python_moved(const struct gp_python_walk *walk)
{
	return walk->now.sleeps && gp_main_sleeps() != walk->now.sleeps;
}

/* Hashes the Python frames of the current thread, or, if it has none, of the main thread if that is
 * asleep: it may wait for this one. */
static __always_inline void gp_hash_python(struct gp_python *python, struct gp_python_walk *walk,
					   struct gp_last *last, bool is_main)
{
	__u64 sleeps = 0, frame;

	walk->now.flags = 0;
	frame = gp_python_top(python, walk, is_main);
	if (!frame && !walk->now.flags && !is_main) {
		sleeps = gp_main_sleeps();
		/* They are hashed already. */
		if (sleeps && sleeps == last->sleeps) {
			walk->now = *last;
			return;
		}
		if (sleeps &&
		    !gp_python_innermost(python, walk, python->main_state, python->main_id, &frame))
			sleeps = 0;
		if (sleeps)
			walk->now.flags = GP_PYTHON_WAITS;
	}
	walk->now.sleeps = sleeps;
	walk->now.count = 0;
	walk->bytes = 0;
	walk->now.state = 0;
	walk->now.lowest = frame;
	walk->now.first = walk->next = frame;
	walk->lowest = last->lowest;
	for (__u32 i = 0; i < GP_PYTHON_PARTS && walk->next; i++)
		gp_hash_python_part(python, walk);
	if (walk->next)
		walk->now.flags |= GP_PYTHON_CUT;
	*last = walk->now;
}

/* Walks the Python frames of the current thread. Returns the id of the combined stack
 * of these and the native stack `native`; `native` if there are none, 0 if their code
 * objects must be read. */
__noinline __u64 gp_walk_python(struct gp_python *python, struct gp_python_walk *walk,
				struct gp_last *last, __u32 is_main, __u64 native)
{
	struct gp_python_known *known;
	__u64 key;

	/* Without Python frames the map does not exist. */
	if (!take_python || !python || !walk || !last)
		return native;
	walk->generation = python->generation;
	gp_hash_python(python, walk, last, is_main);
	if (!walk->now.count && (!walk->now.flags || walk->now.sleeps))
		return native;
	key = gp_mix(gp_mix(walk->now.state, walk->now.flags), native);
	walk->key = key;
	if (walk->generation) {
		known = bpf_map_lookup_elem(&known_python, &key);
		if (known && known->generation == walk->generation)
			return gp_python_moved(walk) ? native : known->id;
	}
	walk->now.count = 0;
	walk->bytes = 0;
	walk->next = walk->now.first;
	for (__u32 i = 0; i < GP_PYTHON_PARTS && walk->next; i++)
		gp_walk_python_part(python, walk);
	return 0;
}

/* A code object of the current process is about to be freed. */
static __always_inline void gp_on_code_freed(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct gp_python *python = bpf_map_lookup_elem(&pythons, &tgid);

	if (python && python->generation)
		__sync_fetch_and_add(&python->generation, 1);
}
