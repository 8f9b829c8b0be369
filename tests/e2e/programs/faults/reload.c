/*
 * Maps a library, calls it, and unmaps it, again and again: `reload LIBRARY TIMES`.
 * Every second time something else is put where it was.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static int fail(const char *what)
{
    fprintf(stderr, "reload: %s\n", what);
    return 1;
}

int main(int count, char **arguments)
{
    size_t page = 4096, places = 0;
    void *last = NULL;
    if (count != 3)
        return fail("LIBRARY TIMES");
    for (int i = 0; i < atoi(arguments[2]); i++) {
        int (*allocate)(void **, size_t);
        int (*release)(void *);
        void *blocks[3];
        struct link_map *map;
        void *library = dlopen(arguments[1], RTLD_NOW);
        if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map))
            return fail(dlerror());
        *(void **)&allocate = dlsym(library, "cudaMalloc");
        *(void **)&release = dlsym(library, "cudaFree");
        for (int block = 0; block < 3; block++)
            allocate(&blocks[block], 4096);
        for (int block = 0; block < 3; block++)
            release(blocks[block]);
        void *place = (void *)map->l_addr;
        places += place != last;
        last = place;
        dlclose(library);
        if (dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD))
            return fail("it is still mapped");
        if (i % 2)
            mmap(place, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    }
    printf("places %zu\n", places);
    return 0;
}
