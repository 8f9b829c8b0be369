/* Stand-in libcuda: launches. A kernel takes no time and does nothing. */
#include "cuda_internal.h"

#define MAX_BLOCK_THREADS 1024u
#define MAX_SHARED_BYTES (227u * 1024)

struct size {
    unsigned int x, y, z;
};

static bool is_grid(struct size grid)
{
    return grid.x && grid.y && grid.z && grid.x <= INT32_MAX && grid.y <= UINT16_MAX &&
           grid.z <= UINT16_MAX;
}

static bool is_block(struct size block)
{
    return block.x && block.y && block.z && block.x <= MAX_BLOCK_THREADS &&
           block.y <= MAX_BLOCK_THREADS && block.z <= 64 &&
           (uint64_t)block.x * block.y * block.z <= MAX_BLOCK_THREADS;
}

static CUresult launch(CUfunction function, struct size grid, struct size block,
                       unsigned int shared_bytes, CUstream stream, CUstream null_stream)
{
    if (!handle_is(function, HANDLE_FUNCTION) && !handle_is(function, HANDLE_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!is_grid(grid) || !is_block(block) || shared_bytes > MAX_SHARED_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUstream_st *resolved;
    CUresult error = stream_resolve(stream, null_stream, &resolved);
    if (error)
        return error;
    const char *name = ((const struct kernel *)function)->name;
    CUcontext context;
    if (stream_capture_kernel(resolved, name) || !activity_is_wanted() || context_current(&context))
        return CUDA_SUCCESS;
    activity_tell((struct activity){ .kind = ACTIVITY_KERNEL,
                                     .device = (uint32_t)context->device,
                                     .context = context->number,
                                     .stream = stream_number(resolved),
                                     .name = activity_keep(name),
                                     .grid = { grid.x, grid.y, grid.z },
                                     .block = { block.x, block.y, block.z },
                                     .shared_bytes = shared_bytes });
    return CUDA_SUCCESS;
}

static CUresult launch_configured(const CUlaunchConfig *config, CUfunction function,
                                  CUstream null_stream)
{
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    struct size grid = { config->gridDimX, config->gridDimY, config->gridDimZ };
    struct size block = { config->blockDimX, config->blockDimY, config->blockDimZ };
    return launch(function, grid, block, config->sharedMemBytes, config->hStream, null_stream);
}

#define GRID ((struct size){ grid_x, grid_y, grid_z })
#define BLOCK ((struct size){ block_x, block_y, block_z })

DEFINE_TWINS(cuLaunchKernel, _ptsz,
             (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
              unsigned int block_x, unsigned int block_y, unsigned int block_z,
              unsigned int shared_bytes, CUstream stream, void **params, void **extra),
             params &&extra ? CUDA_ERROR_INVALID_VALUE
                            : launch(function, GRID, BLOCK, shared_bytes, stream, null_stream))

DEFINE_TWINS(cuLaunchKernelEx, _ptsz,
             (const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
             params &&extra ? CUDA_ERROR_INVALID_VALUE
                            : launch_configured(config, function, null_stream))

DEFINE_TWINS(cuLaunchCooperativeKernel, _ptsz,
             (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
              unsigned int block_x, unsigned int block_y, unsigned int block_z,
              unsigned int shared_bytes, CUstream stream, void **params),
             ((void)params, launch(function, GRID, BLOCK, shared_bytes, stream, null_stream)))
