/* Stand-in libc10.so: the hooks, which do nothing while no profiler runs. Their names differ by
 * version in the types of the numbers: 2 has "lmm", 1.10 "lll", and 1.9 "l", with no totals. */
#include "torch.h"

#ifndef C10_NUMBERS
#define C10_NUMBERS "lmm"
#endif

#define NAMED(name, function)                                  \
    extern __typeof__(function) named_##function __asm__(name) \
        __attribute__((alias(#function), visibility("default")))

void standin_report_memory(void *address, int64_t bytes, uint64_t allocated, uint64_t reserved,
                           struct c10_device device)
{
    (void)address, (void)bytes, (void)allocated, (void)reserved, (void)device;
}

void standin_report_out_of_memory(int64_t requested, uint64_t allocated, uint64_t reserved,
                                  struct c10_device device)
{
    (void)requested, (void)allocated, (void)reserved, (void)device;
}

NAMED("_ZN3c1027reportMemoryUsageToProfilerEPv" C10_NUMBERS "NS_6DeviceE", standin_report_memory);
NAMED("_ZN3c1027reportOutOfMemoryToProfilerE" C10_NUMBERS "NS_6DeviceE",
      standin_report_out_of_memory);
