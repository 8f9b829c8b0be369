/* Commands that share physical memory and pools through file descriptors. */
#include <stdio.h>
#include <string.h>

#include "workload_async.h"
#include "workload_vmm.h"

#define FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

CALL_SITE static bool run_vexport(struct words *words, struct reply *reply)
{
    int fd;
    const struct kslot *slot = kslot_named(words->word[1], reply);
    if (!slot || !vmm_load(reply))
        return false;
    int error = vmm.cuMemExportToShareableHandle(&fd, slot->handle, FD, 0);
    if (!error)
        reply_add(reply, "%d", fd);
    return reply_error(reply, error);
}

/* Importers get the size by other means. */
CALL_SITE static bool run_vimport(struct words *words, struct reply *reply)
{
    uint64_t fd, bytes;
    CUmemGenericAllocationHandle handle;
    if (!vmm_load(reply) || !parse_u64(words->word[1], INT32_MAX, &fd, reply) ||
        !parse_u64(words->word[2], INT64_MAX, &bytes, reply))
        return false;
    struct tally tally = { 0 };
    if (tally_result(&tally,
                     vmm.cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd, FD))) {
        kslot_add(&tally, vmm_slot(KIND_IMPORTED, handle, bytes, false));
        reply_handle(reply, 0, handle);
    }
    return reply_done(reply, &tally);
}

/* Pools are named by their handles here, as the pool command shows them. */
CALL_SITE static bool run_poolexport(struct words *words, struct reply *reply)
{
    int fd;
    uint64_t pool;
    if (!vmm_load(reply) || !parse_u64(words->word[1], UINTPTR_MAX, &pool, reply))
        return false;
    int error = vmm.cuMemPoolExportToShareableHandle(&fd, (CUmemoryPool)(uintptr_t)pool, FD, 0);
    if (!error)
        reply_add(reply, "%d", fd);
    return reply_error(reply, error);
}

CALL_SITE static bool run_poolimport(struct words *words, struct reply *reply)
{
    uint64_t fd;
    CUmemoryPool pool;
    if (!vmm_load(reply) || !parse_u64(words->word[1], INT32_MAX, &fd, reply))
        return false;
    int error = vmm.cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd, FD, 0);
    if (!error)
        reply_handle(reply, 0, (uintptr_t)pool);
    return reply_error(reply, error);
}

CALL_SITE static bool run_ptrexport(struct words *words, struct reply *reply)
{
    CUmemPoolPtrExportData data;
    const struct kslot *slot = kslot_named(words->word[1], reply);
    if (!slot || !vmm_load(reply))
        return false;
    int error = vmm.cuMemPoolExportPointer(&data, slot->handle);
    for (size_t i = 0; !error && i < sizeof data; i++)
        reply_add(reply, "%02x", data.reserved[i]);
    return reply_error(reply, error);
}

CALL_SITE static bool run_ptrimport(struct words *words, struct reply *reply)
{
    CUmemPoolPtrExportData data;
    CUdeviceptr address;
    uint64_t pool, bytes;
    const char *hex = words->word[2];
    if (!vmm_load(reply) || !parse_u64(words->word[1], UINTPTR_MAX, &pool, reply) ||
        !parse_u64(words->word[3], INT64_MAX, &bytes, reply))
        return false;
    for (size_t i = 0; i < sizeof data; i++)
        if (strlen(hex) != 2 * sizeof data ||
            sscanf(hex + 2 * i, "%2hhx", &data.reserved[i]) != 1) {
            reply_add(reply, "expected %zu bytes in hexadecimal digits", sizeof data);
            return false;
        }
    struct tally tally = { 0 };
    if (tally_result(&tally,
                     vmm.cuMemPoolImportPointer(&address, (CUmemoryPool)(uintptr_t)pool, &data))) {
        kslot_add(&tally, async_slot(KIND_IMPORTED, (void *)(uintptr_t)address, bytes, NULL));
        reply_handle(reply, 0, address);
    }
    return reply_done(reply, &tally);
}

const struct command vmm_share_commands[] = {
    { "vexport", "vexport KSLOT", 1, 1, NEEDS_API, run_vexport },
    { "vimport", "vimport FD SIZE", 2, 2, NEEDS_API, run_vimport },
    { "poolexport", "poolexport HANDLE", 1, 1, NEEDS_API, run_poolexport },
    { "poolimport", "poolimport FD", 1, 1, NEEDS_API, run_poolimport },
    { "ptrexport", "ptrexport KSLOT", 1, 1, NEEDS_API, run_ptrexport },
    { "ptrimport", "ptrimport POOLHANDLE HEX SIZE", 3, 3, NEEDS_API, run_ptrimport },
    { .name = NULL },
};
