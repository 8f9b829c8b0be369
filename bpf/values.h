/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Reading of arguments by recipe. */
#pragma once

#if defined(__TARGET_ARCH_x86)
#define GP_SIXTH_ARGUMENT(ctx) ((ctx)->r9)
#else
#define GP_SIXTH_ARGUMENT(ctx) PT_REGS_PARM6(ctx)
#endif

/* On x86 the return address lies between the stack pointer and the first
 * stack argument. */
#if defined(__TARGET_ARCH_x86)
#define GP_RETURN_ADDRESS_BYTES 8
#else
#define GP_RETURN_ADDRESS_BYTES 0
#endif

/* The integer arguments of a call. In memory: to choose among registers is a branch for each,
 * of which the verifier would follow all for each value. */
struct gp_arguments {
	__u64 registers[8]; /* the first six */
	__u64 stack;        /* address of the others */
};

static __always_inline void gp_read_arguments(struct pt_regs *ctx, struct gp_arguments *arguments)
{
	arguments->registers[0] = PT_REGS_PARM1(ctx);
	arguments->registers[1] = PT_REGS_PARM2(ctx);
	arguments->registers[2] = PT_REGS_PARM3(ctx);
	arguments->registers[3] = PT_REGS_PARM4(ctx);
	arguments->registers[4] = PT_REGS_PARM5(ctx);
	arguments->registers[5] = GP_SIXTH_ARGUMENT(ctx);
	arguments->registers[6] = arguments->registers[7] = 0;
	arguments->stack = PT_REGS_SP(ctx) + GP_RETURN_ADDRESS_BYTES;
}

/* The lower `bits` of `value`. */
static __always_inline __u64 gp_lower_bits(__u64 value, __u32 bits)
{
	/* Without a branch, which the verifier would follow for each value that is read. */
	return value & ~0ULL >> ((64 - bits) & 63);
}

/* The value described by the gp_value in `word`, from memory. A global function, as others below:
 * the verifier checks it once, not for each value. */
__noinline __u64 gp_read_value(struct gp_arguments *arguments, __u64 word)
{
	struct gp_value v;
	__u64 value, pointer;

	__builtin_memcpy(&v, &word, sizeof(v));
	if (!arguments)
		return 0;
	value = arguments->registers[v.index & 7];
	if (v.place == GP_PLACE_STACK) {
		pointer = arguments->stack + 8ULL * v.index;
		bpf_probe_read_user(&value, sizeof(value), (void *)pointer);
	}
	if (v.access == GP_ACCESS_TWICE) {
		pointer = value + (v.offset & 0xffff);
		bpf_probe_read_user(&value, sizeof(value), (void *)pointer);
		v.offset >>= 16;
	}
	if (v.access != GP_ACCESS_PLAIN)
		value += v.offset;
	if (v.access == GP_ACCESS_BEHIND || v.access == GP_ACCESS_TWICE) {
		pointer = value;
		bpf_probe_read_user(&value, sizeof(value), (void *)pointer);
	}
	return gp_lower_bits(value, v.bits);
}

/* A gp_value that is not an argument as it is: its place is the stack, or its access not plain. */
#define GP_IN_MEMORY (GP_PLACE_STACK | 0xffULL << 24)

/* The value described by `v`, at function entry. An unreadable pointer yields 0: the function
 * itself will fault on it or reject it. */
static __always_inline __u64 gp_value_of(struct gp_arguments *arguments,
					 const volatile struct gp_value *v)
{
	__u64 word = *(const volatile __u64 *)v;
	__u64 is_given = word & GP_PLACE_ARGUMENT;

	if (word & GP_IN_MEMORY)
		return gp_read_value(arguments, word);
	return gp_lower_bits(arguments->registers[word >> 8 & 7], word >> 16) & -is_given;
}
