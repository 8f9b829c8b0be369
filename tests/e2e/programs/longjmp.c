/* Leaves an allocation by longjmp, then allocates from deeper on the stack:
 * the call that never returned must not swallow those that follow it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <string.h>

int cudaMalloc(void **address, size_t bytes);

static int allocate_deeper(int levels, size_t bytes)
{
    volatile char room[4096];
    void *address;

    memset((void *)room, 0, sizeof(room));
    if (levels)
        return allocate_deeper(levels - 1, bytes) + room[0];
    return cudaMalloc(&address, bytes) + room[0];
}

int main(void)
{
    void (*arm)(jmp_buf * target);
    jmp_buf target;
    void *address;
    int failed = cudaMalloc(&address, 512);

    *(void **)&arm = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "standin_longjmp_arm");
    if (!setjmp(target)) {
        arm(&target);
        cudaMalloc(&address, 1024);
        return 2;
    }
    arm(NULL);
    for (int i = 0; i < 10; i++)
        failed += allocate_deeper(3, 4096);
    for (int i = 0; i < 5; i++)
        failed += cudaMalloc(&address, 100);
    return failed != 0;
}
