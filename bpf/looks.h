/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What stacks look like whose call paths are not known yet. */
#ifndef GPUPROBE_LOOKS_H
#define GPUPROBE_LOOKS_H

/* All ones if `word` may be an address of code: where the process is known to
 * have some; if that is not known, near the function that is called, where
 * libraries are, or in the program's own code. Without branches, of which the
 * verifier would follow each. */
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

/* Mixes into the thread's looks what may be return addresses among the words from
 * `sp` to the end of its page. Gives how many bytes these are, 0 at the end of the
 * stack. A global function: the verifier follows its loop once, not in every place
 * that it is called from. */
__noinline __u32 gp_look_at_page(__u32 tid, __u32 code_of, __u64 sp)
{
	__u32 bytes = GP_PAGE - (sp & (GP_PAGE - 1));
	struct gp_walk *walk;
	struct gp_code *code;
	struct gp_look look;

	/* In other modes the maps are not there. */
	if (stack_mode != GP_STACKS_AUTO)
		return 0;
	walk = bpf_map_lookup_elem(&walks, &tid);
	code = bpf_map_lookup_elem(&code_maps, &code_of);
	if (!walk || !code || bytes > sizeof(walk->words))
		return 0;
	/* What is not read of a page that begins before `sp` counts as zeros. */
	if (bpf_probe_read_kernel(walk->words, sizeof(walk->words), no_walks.words) ||
	    bpf_probe_read_user(walk->words, bytes, (void *)sp))
		return 0;
	look = walk->look;
	for (__u32 i = 0; i < GP_PATH_WORDS; i++) {
		__u64 word = walk->words[i];

		look.hash = gp_mix(look.hash, word & gp_code_mask(word, &look, code));
	}
	walk->look.hash = look.hash;
	return bytes;
}

/* What a stack looks like: all that may be return addresses in the part of it
 * that is next. Data that looks like them makes two stacks of what is one, which
 * costs a copy. Only what parts further out looks the same, until user space has
 * learnt one of the paths. */
static __always_inline __u64 gp_looks(struct gp_walk *walk, struct gp_taken *taken, __u64 hash)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct gp_code *code = bpf_map_lookup_elem(&code_maps, &taken->tgid);
	__u64 sp = taken->sp;

	taken->is_stale = !code || code->exec_pages != BPF_CORE_READ(task, mm, exec_vm);
	walk->look.hash = gp_mix(hash, sp);
	walk->look.ip = taken->ip;
	walk->look.program = BPF_CORE_READ(task, mm, start_code);
	walk->look.program_bytes = BPF_CORE_READ(task, mm, end_code) - walk->look.program;
	walk->look.is_stale = taken->is_stale;
	for (__u32 i = 0; i < GP_LOOK_PAGES; i++) {
		__u32 bytes = gp_look_at_page(taken->tid, taken->is_stale ? 0 : taken->tgid, sp);

		if (!bytes)
			break;
		sp += bytes;
	}
	return walk->look.hash;
}

#endif /* GPUPROBE_LOOKS_H */
