/*
 * Has itself looked at without end: `noisy FILE MAPPINGS` maps a page of FILE so many times, says
 * "ready", and tells debuggers of new libraries, of which there are none, until it is killed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int count, char **arguments)
{
    void (*tell)(void);
    *(void **)&tell = dlsym(RTLD_DEFAULT, "_dl_debug_state");
    int file = count == 3 ? open(arguments[1], O_RDONLY) : -1;
    if (file < 0 || !tell)
        return 1;
    for (int i = 0; i < atoi(arguments[2]); i++)
        if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED)
            return 2;
    puts("ready");
    fflush(stdout);
    for (;;)
        tell();
}
