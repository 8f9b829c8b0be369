/*
 * Lets whoever reads its memory, or walks through its root, wait for ever:
 *
 *     hidden LIBRARY
 *
 * It looks like an interpreter of Python, opens LIBRARY, says "ready", and does what it is told on
 * standard input, a word a line:
 *
 *     type FILE    `PyCode_Type` is in a mapping of this file
 *     root FOLDER  its root is there
 *     user UID     it is another user's
 *     call         allocates
 *
 * It says "done" after each, and ends when its input does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* Not zero, so that it is in the file. */
uint8_t _PyRuntime[65536] = { 1 };
const uint32_t Py_Version = 0x030c01f0;
uint8_t PyCode_Type[2 * PAGE] __attribute__((aligned(PAGE))) = { 1 };

static int map_type(const char *path)
{
    int file = open(path, O_RDONLY);
    int flags = MAP_PRIVATE | MAP_FIXED;

    return file >= 0 && mmap(PyCode_Type, PAGE, PROT_READ, flags, file, 0) != MAP_FAILED;
}

int main(int count, char **words)
{
    static char line[4096];

    if (count != 2)
        return 2;
    void *library = dlopen(words[1], RTLD_NOW);
    int (*allocate)(void **, size_t) = library ? dlsym(library, "cudaMalloc") : NULL;
    void *at;
    /* The library opens its files at the first call. */
    if (!allocate || allocate(&at, 4096))
        return 3;
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        int is_done = 0;
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "type ", 5))
            is_done = map_type(line + 5);
        else if (!strncmp(line, "root ", 5))
            is_done = !chroot(line + 5);
        else if (!strncmp(line, "user ", 5))
            is_done = !setuid(atoi(line + 5));
        else if (!strcmp(line, "call"))
            is_done = !allocate(&at, 4096);
        puts(is_done ? "done" : "failed");
    }
    _exit(0);
}
