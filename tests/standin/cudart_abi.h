/*
 * The runtime API as the stand-in libcudart exports it. cudaError_t is an enum
 * in CUDA's own header; see cuda_abi.h for why it is an int here.
 */
#ifndef STANDIN_CUDART_ABI_H
#define STANDIN_CUDART_ABI_H

#include <stddef.h>

typedef int cudaError_t;
typedef int cudaMemcpyKind;
typedef int cudaStreamCaptureMode;
typedef int cudaJitOption;
typedef int cudaLibraryOption;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct CUkern_st *cudaKernel_t;
typedef struct CUlib_st *cudaLibrary_t;
typedef struct cudaArray *cudaArray_t;
typedef const struct cudaArray *cudaArray_const_t;
typedef struct cudaLaunchAttribute_st cudaLaunchAttribute;
typedef struct CUmemcpyAttributes_st cudaMemcpyAttributes;
struct cudaMemcpy3DBatchOp;
struct cudaMemLocation;

enum {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

typedef struct {
    unsigned int x, y, z;
} dim3;

typedef struct {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned int numAttrs;
} cudaLaunchConfig_t;

struct cudaPos {
    size_t x, y, z;
};
struct cudaExtent {
    size_t width, height, depth;
};
struct cudaPitchedPtr {
    void *ptr;
    size_t pitch, xsize, ysize;
};

struct cudaMemcpy3DParms {
    cudaArray_t srcArray;
    struct cudaPos srcPos;
    struct cudaPitchedPtr srcPtr;
    cudaArray_t dstArray;
    struct cudaPos dstPos;
    struct cudaPitchedPtr dstPtr;
    struct cudaExtent extent;
    cudaMemcpyKind kind;
};

/* The argument that nvcc passes to __cudaRegisterFatBinary; `data` is a module's image. */
struct fat_binary_wrapper {
    int magic, version;
    const void *data;
    void *unused;
};

_Static_assert(sizeof(cudaLaunchConfig_t) == 56, "cudaLaunchConfig_t");
_Static_assert(offsetof(cudaLaunchConfig_t, stream) == 32, "cudaLaunchConfig_t");
_Static_assert(sizeof(struct cudaMemcpy3DParms) == 160, "cudaMemcpy3DParms");
_Static_assert(offsetof(struct cudaMemcpy3DParms, extent) == 128, "cudaMemcpy3DParms");

enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorInvalidDevice = 101,
};

/* The static library keeps its functions out of the dynamic symbol table of
 * the program that it is linked into, as the real one does. */
#ifdef CUDART_STATIC
#pragma GCC visibility push(hidden)
#else
#pragma GCC visibility push(default)
#endif

cudaError_t cudaMalloc(void **address, size_t bytes);
cudaError_t cudaFree(void *address);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);

/* A function and its variant for per-thread default streams; see cuda_abi.h. */
#define TWINS(symbol, suffix, parameters) \
    cudaError_t symbol parameters;        \
    cudaError_t symbol##suffix parameters

typedef struct cudaMipmappedArray *cudaMipmappedArray_t;

enum {
    cudaErrorInvalidChannelDescriptor = 20,
    cudaErrorInvalidSymbol = 13,
};

struct cudaChannelFormatDesc {
    int x, y, z, w; /* bits */
    enum {
        cudaChannelFormatKindSigned,
        cudaChannelFormatKindUnsigned,
        cudaChannelFormatKindFloat
    } f;
};

_Static_assert(sizeof(struct cudaChannelFormatDesc) == 20, "cudaChannelFormatDesc");
_Static_assert(sizeof(struct cudaExtent) == 24, "cudaExtent");
_Static_assert(sizeof(struct cudaPitchedPtr) == 32, "cudaPitchedPtr");

cudaError_t cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height);
cudaError_t cudaMalloc3D(struct cudaPitchedPtr *rows, struct cudaExtent extent);
cudaError_t cudaMallocManaged(void **address, size_t bytes, unsigned int flags);
cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned int flags);
cudaError_t cudaMallocHost(void **address, size_t bytes);
cudaError_t cudaFreeHost(void *address);
cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned int flags);
cudaError_t cudaHostUnregister(void *address);

cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *channels,
                            size_t width, size_t height, unsigned int flags);
cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *channels,
                              struct cudaExtent extent, unsigned int flags);
cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t *array,
                                     const struct cudaChannelFormatDesc *channels,
                                     struct cudaExtent extent, unsigned int levels,
                                     unsigned int flags);
cudaError_t cudaFreeArray(cudaArray_t array);
cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array);

void __cudaRegisterVar(void **handle, char *host_variable, char *device_address,
                       const char *device_name, int external, size_t bytes, int constant,
                       int global);
cudaError_t cudaGetSymbolAddress(void **address, const void *symbol);
cudaError_t cudaLibraryGetGlobal(void **address, size_t *bytes, cudaLibrary_t library,
                                 const char *name);
cudaError_t cudaLibraryGetManaged(void **address, size_t *bytes, cudaLibrary_t library,
                                  const char *name);

/* How a program compiled by nvcc registers its kernels, and finds them. */
void **__cudaRegisterFatBinary(void *fat_binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function,
                            const char *device_name, int thread_limit, void *tid, void *bid,
                            dim3 *block, dim3 *grid, int *warp_size);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host_function);

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                cudaJitOption *jit_options, void **jit_values,
                                unsigned int jit_count, cudaLibraryOption *options, void **values,
                                unsigned int count);
cudaError_t cudaLibraryUnload(cudaLibrary_t library);
cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name);

/* `function` is the address that was registered, or a cudaKernel_t. */
TWINS(cudaLaunchKernel, _ptsz,
      (const void *function, dim3 grid, dim3 block, void **params, size_t shared_bytes,
       cudaStream_t stream));
TWINS(cudaLaunchCooperativeKernel, _ptsz,
      (const void *function, dim3 grid, dim3 block, void **params, size_t shared_bytes,
       cudaStream_t stream));
TWINS(cudaLaunchKernelExC, _ptsz,
      (const cudaLaunchConfig_t *config, const void *function, void **params));
TWINS(__cudaLaunchKernel, _ptsz,
      (cudaKernel_t kernel, dim3 grid, dim3 block, void **params, size_t shared_bytes,
       cudaStream_t stream));

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
TWINS(cudaStreamSynchronize, _ptsz, (cudaStream_t stream));
TWINS(cudaStreamWaitEvent, _ptsz, (cudaStream_t stream, cudaEvent_t event, unsigned int flags));
TWINS(cudaStreamBeginCapture, _ptsz, (cudaStream_t stream, cudaStreamCaptureMode mode));
TWINS(cudaStreamEndCapture, _ptsz, (cudaStream_t stream, cudaGraph_t *graph));
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
TWINS(cudaEventRecord, _ptsz, (cudaEvent_t event, cudaStream_t stream));
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags);
TWINS(cudaGraphLaunch, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream));
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

TWINS(cudaMemcpy, _ptds, (void *dst, const void *src, size_t bytes, cudaMemcpyKind kind));
TWINS(cudaMemcpyAsync, _ptsz,
      (void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream));
cudaError_t cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device,
                           size_t bytes);
cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
                                size_t bytes, cudaStream_t stream);
TWINS(cudaMemcpy2D, _ptds,
      (void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height,
       cudaMemcpyKind kind));
TWINS(cudaMemcpy2DAsync, _ptsz,
      (void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height,
       cudaMemcpyKind kind, cudaStream_t stream));
TWINS(cudaMemcpy3D, _ptds, (const struct cudaMemcpy3DParms *params));
TWINS(cudaMemcpy3DAsync, _ptsz, (const struct cudaMemcpy3DParms *params, cudaStream_t stream));
TWINS(cudaMemcpyToArray, _ptds,
      (cudaArray_t dst, size_t x, size_t y, const void *src, size_t bytes, cudaMemcpyKind kind));
TWINS(cudaMemcpyFromArray, _ptds,
      (void *dst, cudaArray_const_t src, size_t x, size_t y, size_t bytes, cudaMemcpyKind kind));
TWINS(cudaMemcpyArrayToArray, _ptds,
      (cudaArray_t dst, size_t dst_x, size_t dst_y, cudaArray_const_t src, size_t src_x,
       size_t src_y, size_t bytes, cudaMemcpyKind kind));
/* The structures are the driver's under other names. */
TWINS(cudaMemcpyWithAttributesAsync, _ptsz,
      (void *dst, const void *src, size_t bytes, cudaMemcpyAttributes *attributes,
       cudaStream_t stream));
TWINS(cudaMemcpy3DWithAttributesAsync, _ptsz,
      (struct cudaMemcpy3DBatchOp * cuboid, unsigned long long flags, cudaStream_t stream));
TWINS(cudaMemPrefetchBatchAsync, _ptsz,
      (void **addresses, size_t *sizes, size_t count, struct cudaMemLocation *locations,
       size_t *location_indexes, size_t location_count, unsigned long long flags,
       cudaStream_t stream));
TWINS(cudaMemDiscardAndPrefetchBatchAsync, _ptsz,
      (void **addresses, size_t *sizes, size_t count, struct cudaMemLocation *locations,
       size_t *location_indexes, size_t location_count, unsigned long long flags,
       cudaStream_t stream));
/* As CUDA 12 has it; CUDA 13 took the failing index away. */
TWINS(cudaMemcpyBatchAsync, _ptsz,
      (void **dsts, void **srcs, size_t *sizes, size_t count, cudaMemcpyAttributes *attributes,
       size_t *attribute_indexes, size_t attribute_count, size_t *failed_index,
       cudaStream_t stream));
TWINS(cudaMemset, _ptds, (void *dst, int value, size_t bytes));
TWINS(cudaMemsetAsync, _ptsz, (void *dst, int value, size_t bytes, cudaStream_t stream));

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

#undef TWINS

#pragma GCC visibility pop

#endif
