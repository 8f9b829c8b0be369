/*
 * Maps files as code, and calls CUDA, as it is told on standard input, a word a line:
 *
 *     map FILE     maps all of it
 *     look         tells debuggers of new libraries: whoever traces looks at what is mapped
 *     load FILE    opens a library
 *     call         allocates, with the library that was loaded
 *
 * It says "ready" first, then "done" after each. It ends when its input does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &status))
        return 0;
    size_t size = status.st_size < 1 << 20 ? status.st_size : 1 << 20;
    void *at = mmap(NULL, size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    close(fd);
    return at != MAP_FAILED;
}

/* The tests make this function's DWARF and unwind tables hostile. */
__attribute__((noinline)) int call_it(int (*function)(void **, size_t))
{
    void *at;
    return function(&at, 4096);
}

int main(void)
{
    static char line[4096];
    void *library = NULL;
    void (*tell)(void);
    *(void **)&tell = dlsym(RTLD_DEFAULT, "_dl_debug_state");
    if (!tell)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        int is_done = 1;
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "map ", 4)) {
            is_done = map(line + 4);
        } else if (!strcmp(line, "look")) {
            tell();
        } else if (!strncmp(line, "load ", 5)) {
            library = dlopen(line + 5, RTLD_NOW);
            is_done = library != NULL;
        } else if (!strcmp(line, "call")) {
            is_done = library && !call_it((int (*)(void **, size_t))dlsym(library, "cudaMalloc"));
        }
        puts(is_done ? "done" : "failed");
    }
    return 0;
}
