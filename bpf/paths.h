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

/* Follows one part of a path from `state`. Returns the next state, 0 if it is not
 * cached, and sets the stack of the walk if a path ends there. */
__noinline __u64 gp_follow_path(struct gp_walk *walk, __u64 state, __u64 sp)
{
	struct gp_path *path;
	__u32 count, last, first_word, words;

	/* In other modes the map does not exist. */
	if (!walk || stack_mode != GP_STACKS_AUTO)
		return 0;
	path = bpf_map_lookup_elem(&paths, &state);
	if (!path)
		return 0;
	count = path->count;
	first_word = path->offsets[0];
	if (count) {
		last = count - 1;
		/* Older kernels do not derive that it is not negative. */
		barrier_var(last);
		if (last >= GP_PATH_STEPS)
			return 0;
		words = path->offsets[last] - first_word + 1;
		if (words > GP_PATH_WORDS || bpf_probe_read_user(walk->words, words * sizeof(__u64),
								 (void *)(sp + 8ULL * first_word)))
			return 0;
	}
	for (__u32 i = 0; i < GP_PATH_STEPS && i < count; i++) {
		__u32 at = path->offsets[i] - first_word;

		if (at >= GP_PATH_WORDS)
			return 0;
		state = gp_mix(state, walk->words[at]);
	}
	walk->stack = state == path->end ? path->stack : 0;
	return state;
}

/* The stack id of the cached path from `state`, or 0. */
static __always_inline __u64 gp_cached_path(struct gp_walk *walk, __u64 state, __u64 sp)
{
	for (int level = 0; level < GP_PATH_LEVELS; level++) {
		state = gp_follow_path(walk, state, sp);
		if (!state)
			return 0;
		if (walk->stack)
			return walk->stack;
	}
	return 0;
}
