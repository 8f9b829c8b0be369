/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What stacks look like whose call paths are not known yet. */
#ifndef GPUPROBE_LOOKS_H
#define GPUPROBE_LOOKS_H

/* All ones if `word` may be an address of code: where the process is known to
 * have some; if that is not known, near the function that is called, where
 * libraries are, or in the program's own code. Without branches, of which the
 * verifier would follow each. */
static __always_inline __u64 gp_code_mask(__u64 word, struct gp_taken *taken)
{
	__u64 part = word >> GP_CODE_SHIFT;
	__u64 is_known = taken->code_map->bits[part / 64 & (GP_CODE_WORDS - 1)] >> (part & 63);
	__u64 far = (word - taken->ip + (1ULL << 31)) >> 32;
	__u64 in_program = word - taken->code;
	__u64 is_near = 1 ^ ((far | -far) >> 63);
	__u64 is_own = (in_program - taken->code_bytes) >> 63 & ~(in_program >> 63);

	return -((is_known & 1) | ((is_near | is_own) & taken->is_stale));
}

/* Finds out where the process has code; false if nothing says so, not even that
 * it is not known. */
static __always_inline bool gp_find_code(struct gp_taken *taken)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u32 none = 0;

	taken->code = BPF_CORE_READ(task, mm, start_code);
	taken->code_bytes = BPF_CORE_READ(task, mm, end_code) - taken->code;
	taken->code_map = bpf_map_lookup_elem(&code_maps, &taken->tgid);
	taken->is_stale =
		!taken->code_map || taken->code_map->exec_pages != BPF_CORE_READ(task, mm, exec_vm);
	if (taken->is_stale)
		taken->code_map = bpf_map_lookup_elem(&code_maps, &none);
	return taken->code_map;
}

/* Mixes in what may be return addresses among the words from `sp` on. The
 * main thread's first functions have little above them. False at the end of
 * the stack. */
static __always_inline bool gp_look_at(struct gp_walk *walk, struct gp_taken *taken, __u64 sp,
				       __u64 *hash)
{
	__u32 words = GP_PATH_WORDS;
	__u64 state = *hash;

	for (int i = 0; i < 6; i++) {
		if (!bpf_probe_read_user(walk->words, words * sizeof(__u64), (void *)sp))
			break;
		words /= 2;
	}
	if (words < GP_PATH_WORDS / 32)
		return false;
	for (__u32 i = 0; i < GP_PATH_WORDS && i < words; i++)
		state = gp_mix(state, walk->words[i] & gp_code_mask(walk->words[i], taken));
	*hash = state;
	return words == GP_PATH_WORDS;
}

/* What a stack looks like: all that may be return addresses in the part of it
 * that is next. Data that looks like them makes two stacks of what is one, which
 * costs a copy. Only what parts further out looks the same, until user space has
 * learnt one of the paths. */
static __always_inline __u64 gp_looks(struct gp_walk *walk, struct gp_taken *taken, __u64 hash)
{
	hash = gp_mix(hash, taken->sp);
	if (!gp_find_code(taken))
		return hash;
	for (__u32 i = 0; i < GP_LOOK_PAGES; i++)
		if (!gp_look_at(walk, taken, taken->sp + i * sizeof(walk->words), &hash))
			break;
	return hash;
}

#endif /* GPUPROBE_LOOKS_H */
