/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Reading of arguments by recipe. */
#pragma once

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

/* Stores the arguments that are in registers. */
static __always_inline void gp_keep_arguments(struct pt_regs *ctx, __u64 *arguments)
{
	arguments[0] = PT_REGS_PARM1(ctx);
	arguments[1] = PT_REGS_PARM2(ctx);
	arguments[2] = PT_REGS_PARM3(ctx);
	arguments[3] = PT_REGS_PARM4(ctx);
	arguments[4] = PT_REGS_PARM5(ctx);
	arguments[5] = GP_SIXTH_ARGUMENT(ctx);
}

/* On x86 the return address lies between the stack pointer and the first
 * stack argument. */
#if defined(__TARGET_ARCH_x86)
#define GP_RETURN_ADDRESS_BYTES 8
#else
#define GP_RETURN_ADDRESS_BYTES 0
#endif

/* The stack pointer. The barrier keeps the compiler from sharing the address of the
 * register, which the verifier refuses for a context pointer. */
static __always_inline __u64 gp_stack_pointer(struct pt_regs *ctx)
{
	struct pt_regs *registers = ctx;

	barrier_var(registers);
	return PT_REGS_SP(registers);
}

/* The stack pointer at function entry, computed at return. */
static __always_inline __u64 gp_entry_sp(struct pt_regs *ctx)
{
	return PT_REGS_SP(ctx) - GP_RETURN_ADDRESS_BYTES;
}

/* The lower `bits` of `value`. */
static __always_inline __u64 gp_lower_bits(__u64 value, __u32 bits)
{
	/* Without a branch, which the verifier would follow for each value that is read. */
	return value & ~0ULL >> ((64 - bits) & 63);
}

/* A value that may have to be computed or read: from the stack slot at `value`, `offset` from
 * it, or behind the pointer there. A global function: the verifier checks it once, not for
 * each value. */
__noinline __u64 gp_read_value(__u64 value, __u32 place, __u32 access, __u64 offset, __u32 bits)
{
	__u64 pointer = value;

	if (place == GP_PLACE_NONE)
		return 0;
	if (place == GP_PLACE_STACK) {
		value = 0;
		bpf_probe_read_user(&value, sizeof(value), (void *)pointer);
	}
	if (access != GP_ACCESS_PLAIN)
		value += offset;
	if (access == GP_ACCESS_BEHIND) {
		pointer = value;
		value = 0;
		bpf_probe_read_user(&value, sizeof(value), (void *)pointer);
	}
	return gp_lower_bits(value, bits);
}

/* The value described by `v`, at function entry. An unreadable pointer yields 0: the
 * function itself will fault on it or reject it. */
static __always_inline __u64 gp_value_of(struct pt_regs *ctx, const volatile struct gp_value *v)
{
	__u64 value;

	if (v->place == GP_PLACE_ARGUMENT) {
		value = gp_argument(ctx, v->index);
		if (v->access == GP_ACCESS_PLAIN)
			return gp_lower_bits(value, v->bits);
	} else if (v->place == GP_PLACE_STACK) {
		value = gp_stack_pointer(ctx) + GP_RETURN_ADDRESS_BYTES + 8ULL * v->index;
	} else {
		return 0;
	}
	return gp_read_value(value, v->place, v->access, v->offset, v->bits);
}
