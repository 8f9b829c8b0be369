/* Stand-in libcufft: plans, which are numbers. One makes another of its exports make them, as the
 * real one may. */
#include <stdatomic.h>

#define EXPORT __attribute__((visibility("default")))

typedef int cufftHandle;

static atomic_int last;

EXPORT int cufftCreate(cufftHandle *plan)
{
    *plan = atomic_fetch_add(&last, 1) + 1;
    return 0;
}

EXPORT int cufftPlan1d(cufftHandle *plan, int size, int type, int batch)
{
    (void)type;
    return size > 0 && batch > 0 ? cufftCreate(plan) : 8;
}

EXPORT int cufftDestroy(cufftHandle plan)
{
    return plan > 0 && plan <= atomic_load(&last) ? 0 : 1;
}
