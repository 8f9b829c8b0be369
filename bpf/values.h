/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Reading of arguments by recipe. */
#ifndef GPUPROBE_VALUES_H
#define GPUPROBE_VALUES_H

#if defined(__TARGET_ARCH_x86)
#define GP_SIXTH_ARGUMENT(ctx) ((ctx)->r9)
#else
#define GP_SIXTH_ARGUMENT(ctx) PT_REGS_PARM6(ctx)
#endif

/* Otherwise the compiler selects an address and loads through it, which the verifier
 * refuses for a context pointer; the barrier keeps the loads apart. */
#define GP_ARGUMENT_CASE(number, expression)                                                       \
	case number:                                                                               \
		value = (expression);                                                              \
		barrier_var(value);                                                                \
		return value

/* Integer argument `index` at function entry. */
static __always_inline __u64 gp_argument(struct pt_regs *ctx, __u8 index)
{
	__u64 value;

	switch (index) {
		GP_ARGUMENT_CASE(0, PT_REGS_PARM1(ctx));
		GP_ARGUMENT_CASE(1, PT_REGS_PARM2(ctx));
		GP_ARGUMENT_CASE(2, PT_REGS_PARM3(ctx));
		GP_ARGUMENT_CASE(3, PT_REGS_PARM4(ctx));
		GP_ARGUMENT_CASE(4, PT_REGS_PARM5(ctx));
		GP_ARGUMENT_CASE(5, GP_SIXTH_ARGUMENT(ctx));
	}
	return 0;
}

/* On x86 the return address lies between the stack pointer and the first
 * stack argument. */
#if defined(__TARGET_ARCH_x86)
#define GP_RETURN_ADDRESS_BYTES 8
#else
#define GP_RETURN_ADDRESS_BYTES 0
#endif

/* The stack pointer at function entry, computed at return. */
static __always_inline __u64 gp_entry_sp(struct pt_regs *ctx)
{
	return PT_REGS_SP(ctx) - GP_RETURN_ADDRESS_BYTES;
}

/* The value described by `v`, at function entry. An unreadable pointer yields 0: the
 * function itself will fault on it or reject it. */
static __always_inline __u64 gp_value_of(struct pt_regs *ctx, const volatile struct gp_value *v)
{
	__u64 value = 0;

	if (v->place == GP_PLACE_ARGUMENT) {
		value = gp_argument(ctx, v->index);
	} else if (v->place == GP_PLACE_STACK) {
		__u64 slot = PT_REGS_SP(ctx) + GP_RETURN_ADDRESS_BYTES + 8ULL * v->index;

		bpf_probe_read_user(&value, sizeof(value), (void *)slot);
	} else {
		return 0;
	}
	if (v->access != GP_ACCESS_PLAIN)
		value += v->offset;
	if (v->access == GP_ACCESS_BEHIND) {
		__u64 pointer = value;

		value = 0;
		bpf_probe_read_user(&value, sizeof(value), (void *)pointer);
	}
	/* Without a branch, which the verifier would follow for each value that is read. */
	return value & ~0ULL >> ((64 - v->bits) & 63);
}

#endif /* GPUPROBE_VALUES_H */
