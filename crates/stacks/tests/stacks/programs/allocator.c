/* A library that allocates for its callers. */
#include <stddef.h>
int cudaMalloc(void **address, size_t bytes);
__attribute__((noipa)) int gpu_alloc(size_t bytes) {
    void *address = NULL;
    return cudaMalloc(&address, bytes) + (address == NULL);
}
