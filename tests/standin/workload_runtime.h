/* The runtime as its two backends share it: linked, or opened later. */
#ifndef STANDIN_WORKLOAD_RUNTIME_H
#define STANDIN_WORKLOAD_RUNTIME_H

#include "cudart_abi.h"
#include "workload_backend.h"

/* clang-format off */
#define RUNTIME_POOL_FUNCTIONS(FUNCTION) \
    TWINS(FUNCTION, cudaMallocAsync, _ptsz) \
    TWINS(FUNCTION, cudaMallocFromPoolAsync, _ptsz) \
    TWINS(FUNCTION, cudaFreeAsync, _ptsz) \
    FUNCTION(cudaMemPoolCreate) \
    FUNCTION(cudaMemPoolDestroy) \
    FUNCTION(cudaMemPoolTrimTo) \
    FUNCTION(cudaMemPoolGetAttribute) \
    FUNCTION(cudaMemPoolSetAttribute) \
    FUNCTION(cudaDeviceGetDefaultMemPool) \
    FUNCTION(cudaDeviceSetMemPool) \
    FUNCTION(cudaIpcGetMemHandle) \
    FUNCTION(cudaIpcOpenMemHandle) \
    FUNCTION(cudaIpcCloseMemHandle) \
    FUNCTION(cudaImportExternalMemory) \
    FUNCTION(cudaExternalMemoryGetMappedBuffer) \
    FUNCTION(cudaDestroyExternalMemory) \
    FUNCTION(cudaGraphCreate) \
    FUNCTION(cudaGraphAddMemAllocNode) \
    FUNCTION(cudaGraphAddMemFreeNode) \
    FUNCTION(cudaDeviceGraphMemTrim)
/* clang-format on */

/* clang-format off */
#define RUNTIME_FUNCTIONS(FUNCTION) \
    RUNTIME_POOL_FUNCTIONS(FUNCTION) \
    RUNTIME_MEMORY_FUNCTIONS(FUNCTION) \
    FUNCTION(cudaMallocHost) \
    FUNCTION(cudaFreeHost) \
    FUNCTION(__cudaRegisterFatBinary) \
    FUNCTION(__cudaRegisterFatBinaryEnd) \
    FUNCTION(__cudaRegisterFunction) \
    FUNCTION(__cudaGetKernel) \
    FUNCTION(cudaLibraryLoadData) \
    FUNCTION(cudaLibraryUnload) \
    FUNCTION(cudaLibraryGetKernel) \
    TWINS( FUNCTION, cudaLaunchKernel, _ptsz) \
    TWINS(FUNCTION, cudaLaunchKernelExC, _ptsz) \
    TWINS(FUNCTION, cudaLaunchCooperativeKernel, _ptsz) \
    TWINS(FUNCTION, __cudaLaunchKernel, _ptsz) \
    FUNCTION(cudaStreamCreate) \
    FUNCTION( cudaStreamDestroy) \
    FUNCTION(cudaStreamSynchronize) \
    FUNCTION(cudaStreamWaitEvent) \
    FUNCTION(cudaStreamBeginCapture) \
    FUNCTION( cudaStreamEndCapture) \
    FUNCTION(cudaEventCreate) \
    FUNCTION(cudaEventDestroy) \
    FUNCTION(cudaEventRecord) \
    FUNCTION(cudaGraphGetNodes) \
    FUNCTION( cudaGraphInstantiate) \
    FUNCTION(cudaGraphLaunch) \
    FUNCTION(cudaGraphExecDestroy) \
    FUNCTION(cudaGraphDestroy) \
    TWINS( FUNCTION, cudaMemcpy, _ptds) \
    TWINS(FUNCTION, cudaMemcpyAsync, _ptsz) \
    FUNCTION(cudaMemcpyPeer) \
    FUNCTION(cudaMemcpyPeerAsync) \
    TWINS(FUNCTION, cudaMemcpy2D, _ptds) \
    TWINS(FUNCTION, cudaMemcpy2DAsync, _ptsz) \
    TWINS(FUNCTION, cudaMemcpy3D, _ptds) \
    TWINS(FUNCTION, cudaMemcpy3DAsync, _ptsz) \
    TWINS(FUNCTION, cudaMemcpyToArray, _ptds) \
    TWINS(FUNCTION, cudaMemcpyFromArray, _ptds) \
    TWINS(FUNCTION, cudaMemcpyArrayToArray, _ptds) \
    TWINS(FUNCTION, cudaMemcpyBatchAsync, _ptsz) \
    TWINS(FUNCTION, cudaMemset, _ptds) \
    TWINS( FUNCTION, cudaMemsetAsync, _ptsz)
/* clang-format on */

/* clang-format off */
#define RUNTIME_MEMORY_FUNCTIONS(FUNCTION) \
    FUNCTION(cudaMallocPitch) \
    FUNCTION(cudaMalloc3D) \
    FUNCTION(cudaMallocManaged) \
    FUNCTION(cudaHostAlloc) \
    FUNCTION(cudaHostRegister) \
    FUNCTION(cudaHostUnregister) \
    FUNCTION(cudaMallocArray) \
    FUNCTION(cudaMalloc3DArray) \
    FUNCTION(cudaMallocMipmappedArray) \
    FUNCTION(cudaFreeArray) \
    FUNCTION(cudaFreeMipmappedArray) \
    FUNCTION(__cudaRegisterVar) \
    FUNCTION(cudaGetSymbolAddress) \
    FUNCTION(cudaLibraryGetGlobal) \
    FUNCTION(cudaLibraryGetManaged)
/* clang-format on */

#define TWINS(FUNCTION, symbol, suffix) FUNCTION(symbol) FUNCTION(symbol##suffix)

/* The runtime's functions under their own names. */
struct runtime {
#define FUNCTION(symbol) __typeof__(&symbol) symbol;
    RUNTIME_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

extern struct runtime runtime;
extern const struct work_api runtime_work;
extern const struct memory_api runtime_memory;
/* The program's pointers to builtin_variables. */
extern const void *const runtime_host_variables[BUILTIN_VARIABLES];
extern const struct pool_api runtime_pools;
extern const struct copy_method runtime_copies[];
extern const struct set_method runtime_sets[];

#endif
