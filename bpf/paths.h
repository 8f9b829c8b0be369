/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Call paths that are known: they are recognised by the return addresses on the
 * stack, without unwinding. */
#ifndef GPUPROBE_PATHS_H
#define GPUPROBE_PATHS_H

/* As in src/stacks/paths.rs. */
static __always_inline __u64 gp_mix(__u64 state, __u64 word)
{
	state = (state ^ word) * 0x9e3779b97f4a7c15ULL;
	return state ^ state >> 32;
}

/* What the call that is about to begin is told apart by, before its callers
 * are looked at. Functions that align their frames lay them out by the stack
 * pointer's lower bits. */
static __always_inline __u64 gp_path_root(__u32 process, __u64 ip, __u64 return_address, __u64 sp)
{
	__u64 root = gp_mix((__u64)process << 32 | (sp & 63), ip);

	return gp_mix(root, return_address);
}

/* The state after the return addresses that `path` lists. */
static __always_inline __u64 gp_follow_path(struct gp_path *path, struct gp_walk *walk, __u64 state,
					    __u64 sp)
{
	__u32 last = path->count - 1;
	__u32 first_word = path->offsets[0], words;

	if (last >= GP_PATH_STEPS)
		return 0;
	words = path->offsets[last] - first_word + 1;
	if (words > GP_PATH_WORDS || bpf_probe_read_user(walk->words, words * sizeof(__u64),
							 (void *)(sp + 8ULL * first_word)))
		return 0;
	for (__u32 i = 0; i < GP_PATH_STEPS && i <= last; i++) {
		__u32 at = path->offsets[i] - first_word;

		if (at >= GP_PATH_WORDS)
			return 0;
		state = gp_mix(state, walk->words[at]);
	}
	return state;
}

/* The stack that the path from `state` on is known to be, or 0. */
static __always_inline __u64 gp_known_path(struct gp_walk *walk, __u64 state, __u64 sp)
{
	for (int level = 0; level < GP_PATH_LEVELS; level++) {
		struct gp_path *path = bpf_map_lookup_elem(&paths, &state);

		if (!path)
			return 0;
		if (path->count)
			state = gp_follow_path(path, walk, state, sp);
		if (state == path->end)
			return path->stack;
	}
	return 0;
}

#endif /* GPUPROBE_PATHS_H */
