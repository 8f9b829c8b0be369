/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Cached call paths, recognised by the return addresses on the stack, without
 * unwinding. */
#pragma once

/* Mirrors crates/stacks/src/paths.rs. */
static __always_inline __u64 gp_mix(__u64 state, __u64 word)
{
	state = (state ^ word) * ((__u64)GP_MIX_HIGH << 32 | GP_MIX_LOW);
	return state ^ state >> 32;
}

/* Initial hash state of a call, before its callers. It contains the lower bits of the
 * stack pointer, because functions that align their frames depend on these. */
static __always_inline __u64 gp_path_root(__u32 process, __u64 ip, __u64 return_address, __u64 sp)
{
	__u64 root = gp_mix((__u64)process << 32 | (sp & 63), ip);

	return gp_mix(root, return_address);
}

/* Reads `count` words of the stack at `sp`, after the first `begin`. */
static __always_inline bool gp_read_words(struct gp_walk *walk, __u64 sp, __u32 begin, __u64 count)
{
	barrier_var(count);
	walk->count = 0;
	if (count > GP_PATH_WORDS || bpf_probe_read_user(walk->python.words, count * sizeof(__u64),
							 (void *)(sp + 8ULL * begin)))
		return false;
	walk->begin = begin;
	walk->count = count;
	return true;
}

/* The return address at `sp`. The words behind it that the last path took are read with it: each
 * read costs as much as many words. */
static __always_inline __u64 gp_return_address(struct gp_thread *thread, struct gp_walk *walk,
					       __u64 sp)
{
	if (!gp_read_words(walk, sp, 0, thread->reach ?: 1) && !gp_read_words(walk, sp, 0, 1))
		return 0;
	return walk->python.words[0];
}

/* Follows one part of a path from `state`. Returns the next state, 0 if it is not
 * cached, and sets the stack of the walk if a path ends there. */
__noinline __u64 gp_follow_path(struct gp_thread *thread, struct gp_walk *walk, __u64 state,
				__u64 sp)
{
	struct gp_path *path;
	__u32 count, last, first;

	/* In other modes the map does not exist. */
	if (!thread || !walk || stack_mode != GP_STACKS_AUTO)
		return 0;
	path = bpf_map_lookup_elem(&paths, &state);
	if (!path)
		return 0;
	count = path->count;
	first = path->offsets[0];
	if (count) {
		last = count - 1;
		/* Older kernels do not derive that it is not negative. */
		barrier_var(last);
		if (last >= GP_PATH_STEPS)
			return 0;
		last = path->offsets[last];
		if (last < GP_PATH_WORDS)
			thread->reach = last + 1;
		if ((first < walk->begin || last >= walk->begin + walk->count) &&
		    !gp_read_words(walk, sp, first, last - first + 1))
			return 0;
	}
	for (__u32 i = 0; i < GP_PATH_STEPS && i < count; i++) {
		__u32 at = path->offsets[i] - walk->begin;

		if (at >= GP_PATH_WORDS)
			return 0;
		state = gp_mix(state, walk->python.words[at]);
	}
	walk->stack = state == path->end ? path->stack : 0;
	return state;
}

/* The stack id of the cached path from `state`, or 0. */
static __always_inline __u64 gp_cached_path(struct gp_thread *thread, struct gp_walk *walk,
					    __u64 state, __u64 sp)
{
	for (int level = 0; level < GP_PATH_LEVELS; level++) {
		state = gp_follow_path(thread, walk, state, sp);
		if (!state)
			return 0;
		if (walk->stack)
			return walk->stack;
	}
	return 0;
}
