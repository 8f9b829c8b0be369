/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* What gpuprobe costs a program: hits, and the time of some of them. */
#pragma once

/* Counts a hit. Returns its start if it is timed, or 0. */
static __always_inline __u64 gp_begin_hit(struct gp_thread *thread)
{
	return ++thread->cost.untimed < GP_TIMED_EVERY ? 0 : bpf_ktime_get_ns();
}

static __always_inline void gp_end_hit(struct gp_thread *thread, __u64 start_ns)
{
	if (!start_ns)
		return;
	thread->cost.untimed = 0;
	thread->cost.timed++;
	thread->cost.timed_ns += bpf_ktime_get_ns() - start_ns;
}

/* Removes the state of a thread that has ended; its cost is its process's. */
static __always_inline void gp_end_thread(struct gp_thread *thread, __u32 tid)
{
	struct gp_process *process = gp_find_process(thread->tgid);

	if (process) {
		__sync_fetch_and_add(&process->cost.untimed, thread->cost.untimed);
		__sync_fetch_and_add(&process->cost.timed, thread->cost.timed);
		__sync_fetch_and_add(&process->cost.timed_ns, thread->cost.timed_ns);
	}
	bpf_map_delete_elem(&threads, &tid);
}
