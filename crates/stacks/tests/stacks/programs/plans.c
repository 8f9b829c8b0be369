/* A library as vendors ship them: built with -s, only what it exports has a name. */
#include <stdlib.h>
#define KEEP __attribute__((noipa))
int cudaMalloc(void **address, size_t bytes);
int cudaFree(void *address);
volatile int plans_sink;
KEEP static void *workspace(size_t bytes) {
    void *address = 0;
    return cudaMalloc(&address, bytes + plans_sink) ? abort(), NULL : address;
}
KEEP static void *choose(size_t bytes) { return (char *)workspace(bytes) + plans_sink; }
__attribute__((visibility("default"))) void *plan_make(size_t bytes) {
    return (char *)choose(bytes) + plans_sink;
}
__attribute__((visibility("default"))) void plan_destroy(void *plan) { cudaFree(plan); }
