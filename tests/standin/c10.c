/*
 * Stand-in libc10.so: the functions by which PyTorch's allocators tell a
 * profiler of their blocks. While none runs PyTorch's do nothing; these remember
 * what they were told.
 */
#include "c10_abi.h"

#include <stdatomic.h>

static _Atomic uint64_t calls, out_of_memory, last_allocated, last_reserved;
static _Atomic int64_t bytes_sum;

static void add(int64_t bytes)
{
    atomic_fetch_add(&calls, 1);
    atomic_fetch_add(&bytes_sum, bytes);
}

void standin_c10_told(struct c10_told *told)
{
    *told = (struct c10_told){ calls, out_of_memory, bytes_sum, last_allocated, last_reserved };
}

#ifdef C10_REPORT_MEMORY

void c10_report_memory(void *address, int64_t bytes, uint64_t allocated, uint64_t reserved,
                       struct c10_device device)
{
    (void)address, (void)device;
    add(bytes);
    last_allocated = allocated;
    last_reserved = reserved;
}

void c10_report_out_of_memory(int64_t requested, uint64_t allocated, uint64_t reserved,
                              struct c10_device device)
{
    (void)requested, (void)device;
    atomic_fetch_add(&out_of_memory, 1);
    last_allocated = allocated;
    last_reserved = reserved;
}

#else

void c10_report_block(void *block, int64_t bytes, struct c10_device device)
{
    (void)block, (void)device;
    add(bytes);
}

#endif
