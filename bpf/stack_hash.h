/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Hashes of stacks without a cached call path. */
#pragma once

/* All ones if `word` may be a code address: in the map of executable ranges; if that is
 * out of date, near the probed function, where libraries are, or in the program's own
 * code. Branch-free, because the verifier would follow each branch. */
static __always_inline __u64 gp_code_mask(__u64 word, struct gp_look *look, struct gp_code *code)
{
	__u64 part = word >> GP_CODE_SHIFT;
	__u64 is_known = code->bits[part / 64 & (GP_CODE_WORDS - 1)] >> (part & 63);
	__u64 far = (word - look->ip + (1ULL << 31)) >> 32;
	__u64 in_program = word - look->program;
	__u64 is_near = 1 ^ ((far | -far) >> 63);
	__u64 is_own = (in_program - look->program_bytes) >> 63 & ~(in_program >> 63);

	return -((is_known & 1) | ((is_near | is_own) & look->is_stale));
}

#define GP_HASHED_AT_ONCE 8

/* Mixes possible return addresses among GP_HASHED_AT_ONCE words of the walk into its hash;
 * false if there is no map. */
__noinline __u32 gp_hash_words(struct gp_walk *walk, struct gp_code *code, __u64 first)
{
	struct gp_look look;

	if (!walk || !code || first > GP_PATH_WORDS - GP_HASHED_AT_ONCE)
		return 0;
	look = walk->look;
	for (__u64 i = 0; i < GP_HASHED_AT_ONCE; i++) {
		__u64 word = walk->python.words[first + i];

		look.hash = gp_mix(look.hash, word & gp_code_mask(word, &look, code));
	}
	walk->look.hash = look.hash;
	return 1;
}

/* Mixes possible return addresses among the words from `sp` to the end of its page into
 * the walk's hash. Returns the number of bytes; 0 at the end of the stack. */
__noinline __u32 gp_hash_stack_page(struct gp_walk *walk, struct gp_code *code, __u64 sp)
{
	__u32 bytes = GP_PAGE - (sp & (GP_PAGE - 1));

	if (!walk || bytes > sizeof(walk->python.words))
		return 0;
	/* Bytes of a page below `sp` count as zeros. */
	if (bpf_probe_read_kernel(walk->python.words, sizeof(walk->python.words),
				  (const void *)no_words) ||
	    bpf_probe_read_user(walk->python.words, bytes, (void *)sp))
		return 0;
	for (__u64 first = 0; first < GP_PATH_WORDS; first += GP_HASHED_AT_ONCE)
		if (!gp_hash_words(walk, code, first))
			return 0;
	return bytes;
}

/* Hash of the possible return addresses in the innermost part of a stack. Data that
 * resembles return addresses makes two hashes of one path, which costs a copy. Stacks
 * that differ only further out have equal hashes until user space has cached one of
 * their paths. */
static __always_inline __u64 gp_stack_hash(struct gp_walk *walk, __u64 hash)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u64 sp = walk->record.sp;
	__u32 code_of = walk->record.tgid;
	struct gp_code *code = bpf_map_lookup_elem(&code_maps, &code_of);
	bool is_stale = !code || code->exec_pages != BPF_CORE_READ(task, mm, exec_vm);

	if (is_stale) {
		code_of = 0;
		code = bpf_map_lookup_elem(&code_maps, &code_of);
	}
	walk->record.is_stale = is_stale;
	walk->look.hash = gp_mix(hash, sp);
	walk->look.ip = walk->record.ip;
	walk->look.program = BPF_CORE_READ(task, mm, start_code);
	walk->look.program_bytes = BPF_CORE_READ(task, mm, end_code) - walk->look.program;
	walk->look.is_stale = is_stale;
	for (__u32 i = 0; i < GP_LOOK_PAGES; i++) {
		__u32 bytes = gp_hash_stack_page(walk, code, sp);

		if (!bytes)
			break;
		sp += bytes;
	}
	return walk->look.hash;
}
