/* A library of CUDA's name, if LIBRARY is defined, with calls that cannot be followed, and the
 * program that makes them: `lost LIBRARY HOW COUNT`. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef unsigned long long address_t;

#ifdef LIBRARY

/* Calls itself until so many calls are open. */
int cuMemAlloc_v2(address_t *address, size_t calls)
{
    int result = calls > 1 ? cuMemAlloc_v2(address, calls - 1) : 0;

    *address = 0x10000 * calls;
    return result;
}

/* Succeeds, and takes away the memory that its result would be in. */
int cuMemAllocManaged(address_t *address, size_t size, unsigned flags)
{
    return munmap(address, 4096);
}

#else

typedef int (*allocate_t)(address_t *, size_t);
typedef int (*managed_t)(address_t *, size_t, unsigned);
typedef void (*batch_t)(const void *, size_t);

static void *find(const char *library, const char *name)
{
    void *handle = library ? dlopen(library, RTLD_NOW) : NULL;
    void *symbol = handle ? dlsym(handle, name) : NULL;

    if (!symbol) {
        fprintf(stderr, "no %s in %s\n", name, library ? library : "nothing");
        exit(2);
    }
    return symbol;
}

int main(int argc, char **argv)
{
    const char *how = argv[2];
    int count = atoi(argv[3]);
    allocate_t allocate = (allocate_t)find(argv[1], "cuMemAlloc_v2");
    managed_t managed = (managed_t)find(argv[1], "cuMemAllocManaged");
    char batch[256];
    address_t address;

    if (!strcmp(how, "deep"))
        return allocate(&address, count);
    if (!strcmp(how, "batch")) {
        batch_t hand = (batch_t)find(getenv("CUDA_INJECTION64_PATH"), "gpuprobe_activity_batch");

        allocate(&address, 1);
        memset(batch, 0x5a, sizeof(batch));
        for (int i = 0; i < count; i++)
            hand(batch, sizeof(batch));
        return 0;
    }
    for (int i = 0; i < count; i++) {
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (managed(page, 64, 1))
            return 3;
    }
    return 0;
}

#endif
