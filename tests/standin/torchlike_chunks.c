/* TensorFlow's allocator: a region from CUDA, and chunks of it. */
#include "torchlike.h"

#include <dlfcn.h>
#include <string.h>

#include "cudart_abi.h"

static const char symbol[] =
    "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvll";

typedef void told(void *allocator, size_t length, const char *name, const void *chunk,
                  long requested, long bytes);

/* Loaded at its first use, as Python loads it. */
static told *add_trace_me(struct reply *reply)
{
    static told *found;
    if (!found) {
        void *library = dlopen("libtensorflow_framework.so.2", RTLD_NOW);
        found = library ? (told *)dlsym(library, symbol) : NULL;
        if (!found)
            reply_add(reply, "%s", dlerror());
    }
    return found;
}

CALL_SITE bool run_tregion(struct words *words, struct reply *reply)
{
    uint64_t bytes;
    void *address = NULL;
    if (!parse_u64(words->word[1], SIZE_MAX, &bytes, reply) || !add_trace_me(reply))
        return false;
    int error = cudaMalloc(&address, bytes);
    reply_add(reply, "%p", address);
    return error == 0;
}

CALL_SITE bool run_tchunk(struct words *words, struct reply *reply)
{
    uint64_t address, bytes;
    told *tell = add_trace_me(reply);
    const char *name = words->word[1];
    if (!tell || !parse_u64(words->word[2], UINT64_MAX, &address, reply) ||
        !parse_u64(words->word[3], INT64_MAX, &bytes, reply))
        return false;
    tell(NULL, strlen(name), name, (const void *)address, (long)bytes, (long)bytes);
    return true;
}
