/* Export of memory to other processes: a file descriptor that carries its description. It can be
 * inherited, or sent through a socket. */
#ifndef STANDIN_CUDA_SHARE_H
#define STANDIN_CUDA_SHARE_H

#include <stdbool.h>
#include <stdint.h>

enum share_kind { SHARE_MEMORY = 1, SHARE_POOL };

struct share {
    uint32_t kind;
    int32_t location_type, location_id;
    int32_t pid; /* the exporter's */
    uint64_t bytes;
    uint64_t handle; /* the exporter's */
};

/* A new file descriptor, or -1. */
int share_export(const struct share *share);
/* Whether `fd` carries an object of `kind`; it stays open. */
bool share_import(int fd, enum share_kind kind, struct share *share);

#endif
