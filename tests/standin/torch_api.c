/*
 * Stand-in libc10_cuda: what programs call. The USDT probes are here, outside of
 * the allocator's lock, as in PyTorch: `malloc` after the block was reported,
 * `free` before it is.
 */
#include <stdlib.h>

#include "c10_abi.h"
#include "cudart_abi.h"
#include "torch_internal.h"
#include "torch_sdt.h"

/* PyTorch has them since 2.1. */
#if C10_VERSION >= 201

SDT_DEFINE_SEMAPHORE(malloc);
SDT_DEFINE_SEMAPHORE(free);

/* Two places with operands of different kinds: memory, a register and a constant
 * where the stream is known; else those that a compiler chose for PyTorch 2.11. */
static inline __attribute__((always_inline)) void tell_malloc(void *address, int device,
                                                              size_t bytes, uint64_t stream)
{
    int8_t index = (int8_t)device;
    register size_t requested __asm__("r14") = bytes;
    if (!SDT_IS_ENABLED(malloc))
        return;
    if (stream == 0)
        SDT_PROBE(malloc, "-8@%[address] -1@%[index] -8@%[bytes] -8@%[stream]",
                  [address] "m"(address), [index] "m"(index), [bytes] "c"(bytes), [stream] "n"(0));
    else
        SDT_PROBE(malloc,
                  "-8@%[address] -1@%[index] -8@%[bytes] -8@%[stream]", [address] "a"(address),
                  [index] "d"(index), [bytes] "r"(requested), [stream] "m"(stream));
}

static inline __attribute__((always_inline)) void tell_free(void *address)
{
    if (SDT_IS_ENABLED(free))
        SDT_PROBE(free, "-8@%[address]", [address] "D"(address));
}

static inline __attribute__((always_inline)) void tell_uncached_free(void *address)
{
    if (SDT_IS_ENABLED(free))
        SDT_PROBE(free, "-8@%[address]", [address] "m"(address));
}

#else

#define tell_malloc(address, device, bytes, stream) ((void)(address))
#define tell_free(address) ((void)(address))
#define tell_uncached_free(address) ((void)(address))

#endif

/* PyTorch refuses more before it asks its allocator. */
#define TOO_MANY_BYTES ((size_t)1 << 60)

static bool uncached;

static void read_environment(void)
{
    uncached = getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != NULL;
}

static bool is_uncached(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    return uncached;
}

/* Whether a block can be allocated on the calling thread's device. */
static bool is_request(size_t bytes, int *device)
{
    return bytes > 0 && bytes < TOO_MANY_BYTES && !cudaGetDevice(device) &&
           *device < MAX_TORCH_DEVICES;
}

void *gp_torch_malloc(size_t bytes, uint64_t stream)
{
    void *address = NULL;
    int device;
    if (!is_request(bytes, &device))
        return NULL;
    if (!is_uncached())
        address = torch_malloc(device, bytes, stream);
    else if (cudaMalloc(&address, bytes))
        address = NULL;
    if (address)
        tell_malloc(address, device, bytes, stream);
    return address;
}

int gp_torch_free(void *address)
{
    if (is_uncached()) {
        tell_uncached_free(address);
        return cudaFree(address) ? -1 : 0;
    }
    tell_free(address);
    return torch_free(address) ? 0 : -1;
}

void *gp_torch_raw_malloc(size_t bytes, uint64_t stream)
{
    int device;
    return is_request(bytes, &device) ? torch_malloc(device, bytes, stream) : NULL;
}

int gp_torch_raw_free(void *address)
{
    return torch_free(address) ? 0 : -1;
}
