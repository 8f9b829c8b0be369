/* Stops the process without a call, so that the stack ends in the program's own code. */
#pragma once
static inline __attribute__((always_inline)) void stop_now(void) {
    long result;
    register long r_pid __asm__("rdi");
    __asm__ volatile("syscall" : "=a"(result) : "0"(39L) : "rcx", "r11", "memory"); /* getpid */
    r_pid = result;
    __asm__ volatile("syscall" /* kill(pid, SIGSTOP) */
                     : "=a"(result)
                     : "0"(62L), "r"(r_pid), "S"(19L)
                     : "rcx", "r11", "memory");
}
