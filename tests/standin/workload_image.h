/* The images of modules, as the CUDA that the program is linked with wants them: text for the
 * stand-in (workload_image.c), PTX for the real driver (workload_image_ptx.c). */
#ifndef STANDIN_WORKLOAD_IMAGE_H
#define STANDIN_WORKLOAD_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* An image is a text that ends with a NUL: what begins it, then its kernels and variables. */
void image_begin(FILE *image);
void image_add_kernel(FILE *image, const char *name);
void image_add_variable(FILE *image, const char *name, size_t bytes, bool managed);

/* The kernels that every program has, by the names of real ones: a CUDA sample, PyTorch, cuBLAS,
 * Triton. */
#define VEC_ADD "_Z6vecAddPKfS0_Pfi"
#define ELEMENTWISE                                     \
    "_ZN2at6native29vectorized_elementwise_kernelILi4E" \
    "NS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"
#define GEMM                                                    \
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_" \
    "warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
#define FUSED_ADD "triton_poi_fused_add_0"

/* ... and the variables, the second a managed one on the stand-in. */
#define COUNTER "standin_counter"
#define COUNTER_BYTES 4096
#define TABLE "standin_table"
#define TABLE_BYTES 65536

#endif
