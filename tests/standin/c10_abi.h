/*
 * What the stand-in libc10.so exports, under PyTorch's names. C10_VERSION is
 * 100 times PyTorch's major version plus its minor one.
 *
 * The allocator calls c10::reportMemoryUsageToProfiler for every block that it
 * gives out or takes back. Its parameters and so its mangled name changed:
 * 1.9 passes no sums, and its first argument is the allocator's own record of
 * the block; 1.10 to 1.13 have the address and signed sums; 2 has unsigned ones.
 */
#ifndef STANDIN_C10_ABI_H
#define STANDIN_C10_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifndef C10_VERSION
#define C10_VERSION 201
#endif

#if C10_VERSION >= 200
#define C10_REPORT_MEMORY "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define C10_REPORT_OUT_OF_MEMORY "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"
#elif C10_VERSION >= 110
#define C10_REPORT_MEMORY "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE"
#define C10_REPORT_OUT_OF_MEMORY "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE"
#else
#define C10_REPORT_BLOCK "_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE"
#endif

enum { C10_CPU = 0, C10_CUDA = 1 };

struct c10_device {
    int8_t type, index;
};

#pragma GCC visibility push(default)

/* `bytes` is negative for a free; the sums are those after the call. */
#ifdef C10_REPORT_MEMORY
void c10_report_memory(void *address, int64_t bytes, uint64_t allocated, uint64_t reserved,
                       struct c10_device device) __asm__(C10_REPORT_MEMORY);
void c10_report_out_of_memory(int64_t requested, uint64_t allocated, uint64_t reserved,
                              struct c10_device device) __asm__(C10_REPORT_OUT_OF_MEMORY);
#else
void c10_report_block(void *block, int64_t bytes,
                      struct c10_device device) __asm__(C10_REPORT_BLOCK);
#endif

/* Of the stand-in only: totals of all reports, and the last one's sums. */
struct c10_told {
    uint64_t calls, out_of_memory;
    int64_t bytes;
    uint64_t allocated, reserved;
};
void standin_c10_told(struct c10_told *told);

#pragma GCC visibility pop

#endif
