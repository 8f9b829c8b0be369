/* A known call path: main, OUTER, INNER (inlined). The build sets both names. */
#include "stop.h"

volatile int sink;

static inline __attribute__((always_inline)) int INNER(int depth) {
    stop_now();
    return depth + sink;
}

__attribute__((noipa)) int OUTER(int depth) {
    return INNER(depth) + 1;
}

int main(void) {
    return OUTER(1) & sink;
}
