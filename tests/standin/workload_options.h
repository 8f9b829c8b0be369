/* Options after a command's fixed words, in any order. */
#ifndef STANDIN_WORKLOAD_OPTIONS_H
#define STANDIN_WORKLOAD_OPTIONS_H

#include "workload.h"

struct option {
    const char *name; /* NULL: a word that is a number, like COUNT */
    enum {
        OPTION_NUMBER, /* uint64_t: name=N, or N */
        OPTION_TEXT,   /* const char *: name=TEXT */
        OPTION_SIZE,   /* unsigned int[3]: name=X,Y,Z */
        OPTION_FLAG,   /* bool: name */
    } type;
    void *value;
    uint64_t max; /* of a number */
};

/* Reads the words from number `first` on into `count` options; absent ones keep their value. Leaves
 * a reason in `reply` and returns false. */
bool parse_options(const struct words *words, int first, const struct option *options, int count,
                   struct reply *reply);

#endif
