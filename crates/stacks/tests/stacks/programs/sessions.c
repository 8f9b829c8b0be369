/* Makes plans of the library given as argument: 3 are never destroyed, 2 are. */
#include <dlfcn.h>
#include <stddef.h>
#define KEEP __attribute__((noipa))
static void *(*plan_make)(size_t);
static void (*plan_destroy)(void *);
KEEP static void *open_session(void) {
    return plan_make(1 << 20);
}
KEEP static void open_and_close_session(void) {
    plan_destroy(plan_make(1 << 20));
}
int main(int argc, char **argv) {
    void *library = dlopen(argv[argc - 1], RTLD_NOW);
    plan_make = (void *(*)(size_t))dlsym(library, "plan_make");
    plan_destroy = (void (*)(void *))dlsym(library, "plan_destroy");
    for (int i = argc; i < 5; i++)
        open_session();
    for (int i = argc; i < 4; i++)
        open_and_close_session();
    return 0;
}
