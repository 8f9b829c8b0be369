/* Functions whose CFA is relative to other registers than the stack and frame
 * pointer, as in functions that align their stack. Callees overwrite these
 * registers, so an unwinder must restore the saved values. */
#include "stop.h"

volatile int sink;

__attribute__((noipa, used)) static void bottom(void) {
  stop_now();
  sink++;
}

__asm__(".text\n"
        /* Saves R12, the base of the caller's CFA, and overwrites it. */
        ".type saver, @function\n"
        "saver:\n"
        ".cfi_startproc\n"
        "push %r12\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %r12, -16\n"
        "xor %r12d, %r12d\n"
        "call bottom\n"
        "pop %r12\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size saver, .-saver\n"
        /* The CFA is R12 + 24; RBX, the base of the caller's CFA, is saved. */
        ".type by_r12, @function\n"
        "by_r12:\n"
        ".cfi_startproc\n"
        "push %r12\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %r12, -16\n"
        "push %rbx\n"
        ".cfi_def_cfa_offset 24\n"
        ".cfi_offset %rbx, -24\n"
        "mov %rsp, %r12\n"
        ".cfi_def_cfa %r12, 24\n"
        "xor %ebx, %ebx\n"
        "sub $1000, %rsp\n"
        "and $-256, %rsp\n"
        "sub $8, %rsp\n"
        "call saver\n"
        "mov %r12, %rsp\n"
        ".cfi_def_cfa %rsp, 24\n"
        "pop %rbx\n"
        ".cfi_def_cfa_offset 16\n"
        "pop %r12\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size by_r12, .-by_r12\n"
        /* The CFA is RBX + 16. */
        ".type by_rbx, @function\n"
        "by_rbx:\n"
        ".cfi_startproc\n"
        "push %rbx\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %rbx, -16\n"
        "mov %rsp, %rbx\n"
        ".cfi_def_cfa %rbx, 16\n"
        "sub $500, %rsp\n"
        "and $-128, %rsp\n"
        "call by_r12\n"
        "mov %rbx, %rsp\n"
        ".cfi_def_cfa %rsp, 16\n"
        "pop %rbx\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size by_rbx, .-by_rbx\n");

extern void by_rbx(void) __attribute__((visibility("hidden")));

int main(void) {
  by_rbx();
  return sink;
}
