/* Part of cudart_abi.h, which includes it: rows, arrays, managed and host memory,
 * and the variables of programs. */
#ifndef STANDIN_CUDART_ABI_MEMORY_H
#define STANDIN_CUDART_ABI_MEMORY_H

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

#endif
