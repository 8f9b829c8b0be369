/*
 * Calls functions that are named like CUDA's with arguments that no program means.
 *
 *     hostile LIBRARY... < NAMES
 *
 * Reads the names of functions, one a line, and calls each in whichever library has it. At "done",
 * it launches a kernel whose name no compiler gives, and says so; it ends when its input does.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { VALUES = 24, ROUNDS = 24, ARGUMENTS = 14 };

typedef int function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                     uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static uint64_t values[VALUES];
/* A pattern that is valid as anything: pointers to itself, sizes of 2^64 - 1, counts of 2^32 -
 * 1. */
static uint64_t maze[512];

/* A page of text without a terminator, before an unmapped page. */
static char *endless(void)
{
    long page = sysconf(_SC_PAGESIZE);
    char *text = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (text == MAP_FAILED)
        return NULL;
    munmap(text + page, page);
    memset(text, 0x9b, page);
    memcpy(text, "\x1b[31m\xff\xfe\xc0\x80\n\t;\"<&\x7f", 17);
    return text + page;
}

static void fill(void)
{
    char *end = endless();
    for (int i = 0; i < 512; i++)
        maze[i] = i % 3 == 0   ? UINT64_MAX
                  : i % 3 == 1 ? (uint64_t)&maze[i / 2]
                               : (uint64_t)end - 16;
    const uint64_t all[VALUES] = {
        0,
        1,
        4095,
        UINT64_MAX,
        UINT64_MAX - 1,
        INT64_MAX,
        1ull << 63,
        1ull << 62,
        UINT32_MAX,
        INT32_MAX,
        1ull << 31,
        0x7ffffffff000,
        0x800000000000,
        0xffff888000000000,
        0xffffffff81000000,
        0xdeadbeefdeadbeef,
        (uint64_t)maze,
        (uint64_t)maze + 3,
        (uint64_t)&maze[511],
        (uint64_t)end - 4096,
        (uint64_t)end - 8,
        (uint64_t)end - 1,
        (uint64_t)end,
        (uint64_t) "\x1b]0;title\x07\r\nname \xe2\x80\xae\xf0\x9f\x92\xa9",
    };
    memcpy(values, all, sizeof values);
}

static uint64_t any(void)
{
    static uint64_t state = 88172645463325252ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return values[state % VALUES];
}

/* None of these calls fails; this kernel is launched more often than any other. */
static void launch_named(void *library)
{
    static uint64_t kernel = 0x5eed5eed;
    function *name = (function *)dlsym(library, "cuModuleGetFunction");
    function *launch = (function *)dlsym(library, "cuLaunchKernel");
    uint64_t its_name = (uint64_t) "\x1b]0;kernel\x07\x1b[2J\r\n\x7f\xc2\x9b";
    for (int i = 0; name && launch && i < 1000; i++) {
        name((uint64_t)&kernel, 1, its_name, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        launch(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0);
    }
}

int main(int count, char **paths)
{
    static char name[256];
    void *libraries[8] = { 0 };
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < count && i < 8; i++)
        if (!(libraries[i] = dlopen(paths[i], RTLD_NOW)))
            return 2;
    prctl(PR_SET_NAME, "\x1b[2J;\xff\"<&>\n\\");
    fill();
    puts("ready");
    unsigned long calls = 0;
    while (fgets(name, sizeof name, stdin)) {
        name[strcspn(name, "\n")] = 0;
        if (!strcmp(name, "done")) {
            launch_named(libraries[1]);
            printf("done %lu\n", calls);
            continue;
        }
        function *called = NULL;
        for (int i = 1; i < count && i < 8 && !called; i++)
            called = (function *)dlsym(libraries[i], name);
        for (int round = 0; called && round < ROUNDS; round++, calls++)
            called(any(), any(), any(), any(), any(), any(), any(), any(), any(), any(), any(),
                   any(), any(), any());
    }
    return 0;
}
