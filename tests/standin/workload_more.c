/* A workload without further commands. */
#include "workload.h"

const struct command more_commands[] = {
    { .name = NULL },
};
