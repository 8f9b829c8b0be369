/*
 * Part of cudart_abi.h, which includes it: stream-ordered memory and its pools,
 * memory of other processes and of other APIs, and the memory nodes of graphs.
 */
#ifndef STANDIN_CUDART_ABI_POOLS_H
#define STANDIN_CUDART_ABI_POOLS_H

typedef struct CUmemPoolHandle_st *cudaMemPool_t;
typedef struct CUextMemory_st *cudaExternalMemory_t;
typedef int cudaMemPoolAttr;

struct cudaMemLocation {
    int type, id;
};

struct cudaMemPoolProps {
    int allocType, handleTypes;
    struct cudaMemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
};

struct cudaMemAllocNodeParams {
    struct cudaMemPoolProps poolProps;
    const void *accessDescs;
    size_t accessDescCount;
    size_t bytesize;
    void *dptr; /* out */
};

/* As in CUDA 12; CUDA 13 added reserved words at the end of these two. */
struct cudaExternalMemoryHandleDesc {
    int type;
    union {
        int fd;
        struct {
            void *handle;
            const void *name;
        } win32;
    } handle;
    unsigned long long size;
    unsigned int flags;
};

struct cudaExternalMemoryBufferDesc {
    unsigned long long offset, size;
    unsigned int flags;
};

typedef struct {
    char reserved[64];
} cudaIpcMemHandle_t;

_Static_assert(sizeof(struct cudaMemPoolProps) == 88, "cudaMemPoolProps");
_Static_assert(sizeof(struct cudaMemAllocNodeParams) == 120, "cudaMemAllocNodeParams");
_Static_assert(sizeof(struct cudaExternalMemoryHandleDesc) == 40, "external memory");
_Static_assert(sizeof(struct cudaExternalMemoryBufferDesc) == 24, "external buffer");

TWINS(cudaMallocAsync, _ptsz, (void **address, size_t bytes, cudaStream_t stream));
TWINS(cudaMallocFromPoolAsync, _ptsz,
      (void **address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream));
TWINS(cudaFreeAsync, _ptsz, (void *address, cudaStream_t stream));
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t kept_bytes);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool);

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *address);
cudaError_t cudaIpcOpenMemHandle(void **address, cudaIpcMemHandle_t handle, unsigned int flags);
cudaError_t cudaIpcCloseMemHandle(void *address);

cudaError_t cudaImportExternalMemory(cudaExternalMemory_t *memory,
                                     const struct cudaExternalMemoryHandleDesc *description);
cudaError_t
cudaExternalMemoryGetMappedBuffer(void **address, cudaExternalMemory_t memory,
                                  const struct cudaExternalMemoryBufferDesc *description);
cudaError_t cudaDestroyExternalMemory(cudaExternalMemory_t memory);

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags);
cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                     const cudaGraphNode_t *dependencies, size_t dependency_count,
                                     struct cudaMemAllocNodeParams *params);
cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                    const cudaGraphNode_t *dependencies, size_t dependency_count,
                                    void *address);
cudaError_t cudaDeviceGraphMemTrim(int device);

#endif
