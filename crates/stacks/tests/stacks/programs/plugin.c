/* A library that is loaded by dlopen, and calls back. */
#define KEEP __attribute__((noipa))
volatile int plugin_sink;
KEEP static int plugin_hidden(int (*callback)(int), int n) {
    return callback(n) + plugin_sink;
}
KEEP __attribute__((visibility("default"))) int plugin_run(int (*callback)(int), int n) {
    return plugin_hidden(callback, n) + plugin_sink;
}
/* Exported functions around the hidden one, whose names it must not get. */
KEEP __attribute__((visibility("default"))) int plugin_other(int n) { return n + plugin_sink; }
