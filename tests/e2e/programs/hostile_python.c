/*
 * Looks like an interpreter of Python, and means harm: what its threads are said to run is
 * anything.
 *
 *     python3.12 < COMMANDS
 *
 * A command is "MODE COUNT": so many allocations of 4096 bytes each, while the frames are as MODE
 * says. It answers "done". Built with STATED, `_PyRuntime` begins with that; otherwise it has the
 * layout of CPython 3.12 for x86-64, as far as it goes.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern int cudaMalloc(void **pointer, size_t bytes);

#ifdef STATED
/* Not zero, so that they are in the file. */
uint8_t _PyRuntime[65536] = { STATED };
#else
uint8_t _PyRuntime[65536] = { 1 };
#endif
#ifdef VERSION
const uint32_t Py_Version = VERSION;
#else
const uint32_t Py_Version = 0x030c01f0;
#endif
uint8_t PyCode_Type[512];

enum { KEY = 1544, PAGE = 4096, FRAMES = 100000 };

struct text {
    uint64_t references;
    void *type;
    uint64_t length, hash, state;
    char characters[88];
};

struct bytes {
    uint64_t references;
    void *type;
    uint64_t size, hash;
    uint8_t data[96];
};

struct code {
    uint64_t references;
    void *type;
    uint8_t before_line[52];
    uint32_t first_line;
    uint8_t before_version[20];
    uint32_t version;
    uint8_t before_file[16];
    void *file, *name, *qualified_name, *lines;
    uint8_t before_instructions[48];
    uint8_t instructions[64];
};

struct frame {
    void *code;
    struct frame *previous;
    uint8_t before_instruction[40];
    void *instruction;
    uint8_t before_owner[6];
    uint8_t owner;
    uint8_t after[9];
};

_Static_assert(__builtin_offsetof(struct code, first_line) == 68, "");
_Static_assert(__builtin_offsetof(struct code, version) == 92, "");
_Static_assert(__builtin_offsetof(struct code, file) == 112, "");
_Static_assert(__builtin_offsetof(struct code, lines) == 136, "");
_Static_assert(__builtin_offsetof(struct code, instructions) == 192, "");
_Static_assert(__builtin_offsetof(struct frame, instruction) == 56, "");
_Static_assert(__builtin_offsetof(struct frame, owner) == 70, "");

static struct text name, file;
static struct bytes lines;
static struct code code;
static struct frame *frames;
static struct frame *current;
static uint8_t state[512];
static atomic_int mutates;

/* The last bytes of a page before an unmapped one. */
static void *at_the_end(size_t bytes)
{
    uint8_t *page =
        mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || munmap(page + PAGE, PAGE) != 0)
        abort();
    memset(page, 0xff, PAGE);
    return page + PAGE - bytes;
}

static void set_text(struct text *text, const char *characters)
{
    memset(text, 0, sizeof(*text));
    text->length = strlen(characters);
    text->state = 1 << 2 | 1 << 5 | 1 << 6;
    memcpy((uint8_t *)text + 40, characters, strlen(characters));
}

/* Valid data: three frames. */
static void be_good(void)
{
    /* One range of eight instructions, on the first line. */
    static const uint8_t table[] = { 0x80 | 13 << 3 | 7, 0 };

    set_text(&name, "good");
    set_text(&file, "good.py");
    memset(&lines, 0, sizeof(lines));
    lines.size = sizeof(table);
    memcpy(lines.data, table, sizeof(table));
    memset(&code, 0, sizeof(code));
    code.type = PyCode_Type;
    code.first_line = 7;
    code.version = 1;
    code.file = &file;
    code.name = code.qualified_name = &name;
    code.lines = &lines;
    memset(frames, 0, FRAMES * sizeof(*frames));
    for (int i = 0; i < FRAMES; i++) {
        frames[i].code = &code;
        frames[i].instruction = code.instructions + 4;
        frames[i].previous = i + 1 < 3 ? &frames[i + 1] : NULL;
    }
    current = frames;
    *(void **)(state + 56) = &current;
    *(pthread_t *)(state + 136) = pthread_self();
}

/* One more invalid field each time. */
static void be_bad(const char *mode, unsigned call)
{
    static uint8_t huge[PAGE] __attribute__((aligned(4096)));
    struct text *text;

    if (!strcmp(mode, "cycle")) {
        frames[0].previous = &frames[0];
    } else if (!strcmp(mode, "cycle_of_marks")) {
        frames[1].owner = frames[2].owner = 3;
        frames[2].previous = &frames[1];
    } else if (!strcmp(mode, "long")) {
        for (int i = 0; i + 1 < FRAMES; i++)
            frames[i].previous = &frames[i + 1];
    } else if (!strcmp(mode, "nowhere")) {
        static void *const places[] = { (void *)1, (void *)~0ul, (void *)0xffff888000000000ul,
                                        (void *)0xffffffff81000000ul, (void *)0x7fffffffffff };
        void *place = places[call / 8 % 5];
        void **fields[] = { &code.name,
                            &code.qualified_name,
                            &code.file,
                            &code.lines,
                            &code.type,
                            &frames[1].code,
                            (void **)&frames[1].previous,
                            (void **)&current };
        *fields[call % 8] = place;
        code.version = call + 2;
    } else if (!strcmp(mode, "huge_table")) {
        lines.size = call % 2 ? 4ul << 30 : ~0ul;
        code.version = call + 2;
    } else if (!strcmp(mode, "end_of_memory")) {
        struct bytes *table = at_the_end(32 + 1);
        table->size = 60000;
        code.lines = table;
        code.version = call + 2;
    } else if (!strcmp(mode, "endless_names")) {
        static const uint64_t lengths[] = {
            ~0ul, 1ul << 62, 1ul << 39, 1ul << 32, 100000, 1ul << 63
        };
        text = at_the_end(40 + 8);
        text->length = lengths[call % 6];
        text->state = (call / 6 % 8) << 2 | 1 << 5 | (call / 48 % 2) << 6;
        code.name = code.qualified_name = code.file = text;
        code.version = call + 2;
    } else if (!strcmp(mode, "many_codes")) {
        memset(huge, 0x80 | call, sizeof(huge));
        lines.size = 60000;
        code.version = call + 2;
        code.first_line = call;
    } else if (!strcmp(mode, "many_places")) {
        frames[0].instruction = code.instructions + 2 * call;
    } else if (!strcmp(mode, "odd_names")) {
        set_text(&name, "\x1b[2J;\xff\"<&>\n\t\\ \x9b");
        set_text(&file, "../../../etc/shadow");
        code.version = call + 2;
    } else if (!strcmp(mode, "no_thread")) {
        *(uint64_t *)(state + 136) = call;
    } else if (!strcmp(mode, "no_key")) {
        *(int32_t *)(_PyRuntime + KEY) = call % 2;
        *(uint32_t *)(_PyRuntime + KEY + 4) = call * 2654435761u;
    } else if (strcmp(mode, "good") != 0 && strcmp(mode, "mutating") != 0) {
        abort();
    }
}

/* Changes all fields continuously. */
static void *mutate(void *unused)
{
    uint64_t seed = 88172645463325252u;

    for (; atomic_load(&mutates);) {
        void *places[] = { &name,    &file,     &lines, &code,     frames,
                           &current, (void *)8, NULL,   &code.type };
        void **fields[] = { &code.name,
                            &code.file,
                            &code.lines,
                            &frames[0].code,
                            (void **)&frames[0].previous,
                            (void **)&frames[1].previous };
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        *(void *volatile *)fields[seed % 6] = places[seed / 6 % 9];
        *(volatile uint64_t *)&name.length = seed / 54 % 8 ? 4 : seed;
        *(volatile uint64_t *)&lines.size = seed / 432 % 8 ? 2 : seed;
        *(volatile uint32_t *)&code.version = seed >> 40;
    }
    return unused;
}

/* The name of the interpreter's evaluation function. */
__attribute__((noinline)) void _PyEval_EvalFrameDefault(const char *mode, unsigned count)
{
    for (unsigned call = 0; call < count; call++) {
        void *pointer;

        if (strcmp(mode, "mutating") != 0)
            be_bad(mode, call);
        if (cudaMalloc(&pointer, 4096) != 0)
            abort();
        if (strcmp(mode, "nowhere") == 0)
            be_good();
    }
}

int main(void)
{
    char mode[64];
    unsigned count;
    pthread_key_t key;

    frames = calloc(FRAMES, sizeof(*frames));
    if (!frames || pthread_key_create(&key, NULL) != 0 || pthread_setspecific(key, state) != 0)
        return 1;
#ifndef STATED
    *(int32_t *)(_PyRuntime + KEY) = 1;
    *(uint32_t *)(_PyRuntime + KEY + 4) = key;
#endif
    be_good();
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (scanf("%63s %u", mode, &count) == 2) {
        pthread_t mutator;

        be_good();
        atomic_store(&mutates, !strcmp(mode, "mutating"));
        if (atomic_load(&mutates) && pthread_create(&mutator, NULL, mutate, NULL) != 0)
            return 1;
        _PyEval_EvalFrameDefault(mode, count);
        if (atomic_load(&mutates)) {
            atomic_store(&mutates, 0);
            pthread_join(mutator, NULL);
        }
        be_good();
#ifndef STATED
        *(int32_t *)(_PyRuntime + KEY) = 1;
        *(uint32_t *)(_PyRuntime + KEY + 4) = key;
#endif
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
