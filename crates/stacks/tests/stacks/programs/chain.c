/* A known call path: main, outer, middle, inner, leaf. Frames of different shapes. */
#include "stop.h"
#include <string.h>

#define KEEP __attribute__((noipa))

volatile int sink;

KEEP static int leaf(int depth) {
    stop_now();
    return depth + sink;
}

KEEP int inner(int depth) {
    char variable[depth + 10]; /* of a size unknown at compile time */
    memset(variable, depth, sizeof variable);
    sink = variable[depth];
    return leaf(depth + 1) + variable[1];
}

KEEP static int middle(int a, int b, int c, int d, int e, int f, int g, int h) {
    /* Arguments on the stack, and saved registers. */
    int sum = inner(a + b) * c;
    sum += inner(d) * e;
    return sum + f + g + h;
}

KEEP int outer(int depth) {
    /* Unwinding an aligned stack takes a DWARF expression. */
    _Alignas(64) volatile char aligned[64];
    aligned[depth] = 1;
    return middle(depth, 1, 2, 3, 4, 5, 6, 7) + aligned[depth];
}

int main(void) {
    return outer(1) & sink;
}
