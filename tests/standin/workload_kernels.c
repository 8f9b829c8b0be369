/* The kernels and variables that every program has. */
#include "workload_image.h"
#include "workload_backend.h"

const char *const builtin_kernels[BUILTIN_KERNELS] = { VEC_ADD, ELEMENTWISE, GEMM, FUSED_ADD };

const struct builtin_variable builtin_variables[BUILTIN_VARIABLES] = {
    { COUNTER, COUNTER_BYTES },
    { TABLE, TABLE_BYTES },
};
