/* Copies from four lines: a burst at the start, then reads of a result, batches from pageable and from pinned memory. */
#include <stdlib.h>
#define KEEP __attribute__((noipa))
int cudaMalloc(void **address, size_t bytes);
int cudaMallocHost(void **address, size_t bytes);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream);
enum { TO_DEVICE = 1, TO_HOST = 2, BATCH = 1 << 20 };
static void *device, *pinned;
static char *pageable;
KEEP static void read_result(void) {
    cudaMemcpy(pageable, device, 4, TO_HOST);
}
KEEP static void send_pageable(void) {
    cudaMemcpyAsync(device, pageable, BATCH, TO_DEVICE, NULL);
}
KEEP static void send_pinned(void) {
    cudaMemcpyAsync(device, (char *)pinned + 4096, BATCH / 2, TO_DEVICE, NULL);
}
KEEP static void load_weights(void) {
    cudaMemcpy(device, pageable, 4096, TO_DEVICE);
}
int main(void) {
    pageable = calloc(1, BATCH);
    if (cudaMalloc(&device, BATCH) || cudaMallocHost(&pinned, BATCH))
        return 1;
    for (int i = 0; i < 12; i++)
        load_weights();
    for (int i = 0; i < 10; i++) {
        for (int j = 0; j < 20; j++)
            read_result();
        for (int j = 0; j < 3; j++)
            send_pageable();
        for (int j = 0; j < 2; j++)
            send_pinned();
    }
    return 0;
}
