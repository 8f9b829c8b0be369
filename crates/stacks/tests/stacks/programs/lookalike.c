/* Call paths of the same depth that diverge far out: in the program, beyond a
 * library, beyond a large buffer, or beyond many calls.
 *
 *     lookalike buffer|calls
 *     lookalike LIBRARY        allocates with the gpu_alloc of LIBRARY
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#define KEEP __attribute__((noipa))

int cudaMalloc(void **address, size_t bytes);
volatile int sink;
static int (*in_library)(size_t);
static const char *what;

KEEP static int behind_a_buffer(size_t bytes) {
    char path[8192];
    void *address;
    snprintf(path, sizeof path, "/x/%zu", bytes);
    return cudaMalloc(&address, bytes) + (path[2] == 'y');
}

KEEP static int behind_calls(int depth, size_t bytes) {
    void *address;
    if (!depth)
        return cudaMalloc(&address, bytes);
    return behind_calls(depth - 1, bytes) + sink;
}

KEEP static int allocate(size_t bytes) {
    if (!strcmp(what, "buffer"))
        return behind_a_buffer(bytes) + sink;
    if (!strcmp(what, "calls"))
        return behind_calls(300, bytes) + sink;
    return in_library(bytes) + sink;
}

KEEP static int load_weights(void) { return allocate(1000) + sink; }

KEEP static int load_optimizer(void) { return allocate(2000) + sink + 1; }

int main(int argc, char **argv) {
    int failed = 0;
    what = argv[argc - 1];
    if (strchr(what, '/'))
        in_library = (int (*)(size_t))dlsym(dlopen(what, RTLD_NOW), "gpu_alloc");
    for (int i = 0; i < 3; i++) {
        failed += load_weights();
        failed += load_optimizer() - 1;
    }
    return failed;
}
