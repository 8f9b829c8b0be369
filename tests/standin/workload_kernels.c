/* The kernels and variables that every program has, the kernels by the names of real ones: a CUDA
 * sample, PyTorch, cuBLAS, Triton. */
#include "workload_backend.h"

#define VEC_ADD "_Z6vecAddPKfS0_Pfi"
#define ELEMENTWISE                                     \
    "_ZN2at6native29vectorized_elementwise_kernelILi4E" \
    "NS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"
#define GEMM                                                    \
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_" \
    "warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
#define FUSED_ADD "triton_poi_fused_add_0"

const char *const builtin_kernels[BUILTIN_KERNELS] = { VEC_ADD, ELEMENTWISE, GEMM, FUSED_ADD };

const char builtin_image[] =
    STANDIN_IMAGE_MAGIC VEC_ADD "\n" ELEMENTWISE "\n" GEMM "\n" FUSED_ADD "\n"
                                "standin_counter=4096\nstandin_table=m65536\n";

const struct builtin_variable builtin_variables[BUILTIN_VARIABLES] = {
    { "standin_counter", 4096 },
    { "standin_table", 65536 },
};
