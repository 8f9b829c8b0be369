/* Sharing between processes: the file behind a descriptor has the description. */
#define _GNU_SOURCE
#include "cuda_internal.h"

#include <sys/mman.h>
#include <unistd.h>

struct file {
    char magic[16];
    struct share share;
};

static const char magic[16] = "STANDIN SHARED\n";

int share_export(const struct share *share)
{
    struct file file = { .share = *share };
    __builtin_memcpy(file.magic, magic, sizeof magic);
    /* Not close-on-exec, so that a child can be told its number. */
    int fd = memfd_create("standin-cuda", 0);
    if (fd == -1)
        return -1;
    if (pwrite(fd, &file, sizeof file, 0) == sizeof file)
        return fd;
    close(fd);
    return -1;
}

bool share_import(int fd, enum share_kind kind, struct share *share)
{
    struct file file;
    if (pread(fd, &file, sizeof file, 0) != sizeof file ||
        __builtin_memcmp(file.magic, magic, sizeof magic) || file.share.kind != (uint32_t)kind)
        return false;
    *share = file.share;
    return true;
}
