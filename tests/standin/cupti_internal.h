/* What the files of the stand-in libcupti share; none of it is exported. */
#ifndef STANDIN_CUPTI_INTERNAL_H
#define STANDIN_CUPTI_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_activity.h"

typedef int CUptiResult;

enum {
    CUPTI_SUCCESS = 0,
    CUPTI_ERROR_INVALID_PARAMETER = 1,
    CUPTI_ERROR_INVALID_OPERATION = 7,
    CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
    CUPTI_ERROR_NOT_INITIALIZED = 15,
    CUPTI_ERROR_INVALID_KIND = 21,
    CUPTI_ERROR_NOT_SUPPORTED = 27,
    CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39,
};

/* Kinds that no driver reports, in addition to those of cuda_activity.h. */
enum {
    KIND_SERIAL_KERNEL = 3,
    KIND_NAME = 11,
    KIND_MARKER = 12,
    KIND_OVERHEAD = 17,
    KIND_EXTERNAL_CORRELATION = 39,
    KIND_JIT = 52,
    KIND_COUNT = 64,
};

/* STANDIN_CUPTI_VERSION: the release whose records are written. */
enum release { V11_8, V12_1, V12_4, V12_8, V13_0, V13_5, RELEASES };

/* STANDIN_CUPTI_FAULTS: words with commas between them, each perhaps with =NUMBER. */
struct faults {
    bool in_use;            /* another subscriber exists */
    bool not_initialized;   /* as without a driver, or with one that is too old */
    bool no_callbacks;      /* registering them fails */
    unsigned int refused;   /* this kind cannot be enabled */
    bool held;              /* buffers come back only when forced: at the exit */
    bool threads;           /* buffers come back in threads of their own, all at once */
    unsigned int dropped;   /* every Nth record is dropped */
    unsigned int invalid;   /* every Nth has kind 0: no later one can be found */
    unsigned int unknown;   /* every Nth is followed by one of an unknown kind */
    unsigned int truncated; /* every Nth buffer ends within its last record */
    bool null_names;
    bool wild_names; /* that point to unmapped memory */
    bool huge_names;
    bool zero_times;
    bool strange_version; /* an unknown future one */
    bool old_version;     /* one that is no longer supported */
    bool extras;          /* also records that only a program with NVTX would see */
};

extern struct faults faults;
extern enum release release;

void faults_setup(void);

#define RECORD_MAX 512

/* Writes the record of `activity` and returns its bytes; 0 if there is none. */
size_t record_write(uint8_t record[RECORD_MAX], const struct activity *activity, uint32_t kind,
                    uint64_t end_ns);
/* The bytes of a record that was written; 0 if its kind is none. */
size_t record_bytes(const uint8_t *record);
/* The records of a program with NVTX and another profiler, one of each. */
size_t record_write_extra(uint8_t record[RECORD_MAX], uint32_t kind, uint64_t now_ns);

/* Callback ids of functions, and back. */
uint32_t cbid_of(int layer, const char *function);
const char *cbid_name(int layer, uint32_t cbid);

#endif
