/* Loads the library given as argument, which calls back. */
#include "stop.h"
#include <dlfcn.h>
#define KEEP __attribute__((noipa))
volatile int sink;
KEEP static int called_back(int n) {
    stop_now();
    return n + sink;
}
int main(int argc, char **argv) {
    void *library = dlopen(argv[argc - 1], RTLD_NOW);
    int (*run)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "plugin_run");
    return run(called_back, 1) & sink;
}
