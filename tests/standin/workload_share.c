/* Commands about memory of other processes (IPC) and of other APIs. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "workload.h"

static void reply_hex(struct reply *reply, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        reply_add(reply, "%02x", bytes[i]);
}

static bool parse_hex(const char *text, unsigned char *bytes, size_t count, struct reply *reply)
{
    for (size_t i = 0; i < count; i++)
        if (sscanf(text + 2 * i, "%2hhx", &bytes[i]) != 1 || !text[2 * i + 1]) {
            reply_add(reply, "expected %zu bytes in hexadecimal digits", count);
            return false;
        }
    return true;
}

/* ---- other processes --------------------------------------------------- */

/* The offset of the size in the real driver's handle. */
#define HANDLE_SIZE_OFFSET 16

CALL_SITE static bool run_ipcget(struct words *words, struct reply *reply)
{
    uint64_t number, offset = 0;
    CUipcMemHandle handle;
    if (!parse_u64(words->word[1], SIZE_MAX, &number, reply) ||
        !parse_optional(words, 2, SIZE_MAX, &offset, reply))
        return false;
    const struct slot *slot = slot_at(number);
    if (!slot) {
        reply_add(reply, "no slot %s", words->word[1]);
        return false;
    }
    int error = api.pools->ipc_get(&handle, (char *)slot->address + offset);
    if (!error)
        reply_hex(reply, (unsigned char *)&handle, sizeof handle);
    return reply_error(reply, error);
}

/* `more[0]` of the slot is its open count: it has one address, and takes as many closes. */
static int release_ipc(struct kslot *slot)
{
    int error = api.pools->ipc_close((void *)(uintptr_t)slot->handle);
    if (!error)
        slot->kept = --slot->more[0] > 0;
    return error;
}

static struct kslot *find_open(uint64_t address)
{
    for (size_t i = 0; i < kslot_count(); i++) {
        struct kslot *slot = kslot_at(i);
        if (slot->live && slot->release == release_ipc && slot->handle == address)
            return slot;
    }
    return NULL;
}

CALL_SITE static bool run_ipcopen(struct words *words, struct reply *reply)
{
    CUipcMemHandle handle;
    void *address;
    if (!parse_hex(words->word[1], (unsigned char *)&handle, sizeof handle, reply))
        return false;
    struct tally tally = { 0 };
    if (tally_result(&tally,
                     api.pools->ipc_open(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))) {
        struct kslot *open = find_open((uintptr_t)address);
        struct kslot slot = { .kind = KIND_IMPORTED,
                              .handle = (uintptr_t)address,
                              .with_context = true,
                              .release = release_ipc,
                              .more = { 1 } };
        uint64_t bytes;
        memcpy(&bytes, handle.reserved + HANDLE_SIZE_OFFSET, sizeof bytes);
        slot.bytes = bytes;
        if (open) {
            open->more[0]++;
            tally.allocs++;
        } else {
            kslot_add(&tally, slot);
        }
        reply_handle(reply, 0, slot.handle);
    }
    return reply_done(reply, &tally);
}

/* Frees a kslot of any kind. */
CALL_SITE static bool close_slot(struct words *words, struct reply *reply)
{
    struct kslot *slot = kslot_named(words->word[1], reply);
    if (!slot || !slot->release)
        return false;
    struct tally tally = { 0 };
    kslot_release(&tally, slot);
    reply_add(reply, "frees=%lu live=%d", tally.frees, slot->live);
    return reply_done(reply, &tally);
}

/* ---- other APIs -------------------------------------------------------- */

static int release_external(struct kslot *slot)
{
    return api.pools->external_destroy((void *)(uintptr_t)slot->handle);
}

/* The file is one that another API would export; the driver owns it on success. */
CALL_SITE static bool run_extimport(struct words *words, struct reply *reply)
{
    uint64_t bytes;
    void *memory;
    if (!parse_u64(words->word[1], INT64_MAX, &bytes, reply))
        return false;
    int fd = memfd_create("external", 0);
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = bytes
    };
    struct tally tally = { 0 };
    if (tally_result(&tally, api.pools->external_import(&memory, &description))) {
        struct kslot slot = { .kind = KIND_IMPORTED,
                              .handle = (uintptr_t)memory,
                              .bytes = bytes,
                              .release = release_external };
        kslot_add(&tally, slot);
        reply_handle(reply, 0, slot.handle);
    } else {
        close(fd);
    }
    return reply_done(reply, &tally);
}

/* Addresses of imported memory: like mapping and unmapping, it is neither
 * counted as an allocation nor its end as a free. */
CALL_SITE static bool run_extmap(struct words *words, struct reply *reply)
{
    uint64_t offset = 0, bytes = 0;
    void *address;
    struct kslot *slot = kslot_named(words->word[1], reply);
    if (!slot || !parse_optional(words, 2, INT64_MAX, &offset, reply) ||
        !parse_optional(words, 3, INT64_MAX, &bytes, reply))
        return false;
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC description = { .offset = offset,
                                                     .size = bytes ? bytes : slot->bytes - offset };
    int error = api.pools->external_map(&address, (void *)(uintptr_t)slot->handle, &description);
    if (!error)
        reply_handle(reply, 0, (uintptr_t)address);
    return reply_error(reply, error);
}

CALL_SITE static bool run_extunmap(struct words *words, struct reply *reply)
{
    uint64_t address;
    return parse_u64(words->word[1], UINTPTR_MAX, &address, reply) &&
           reply_error(reply, api.release((void *)address));
}

const struct command share_commands[] = {
    { "ipcget", "ipcget SLOT [OFFSET]", 1, 2, NEEDS_API, run_ipcget },
    { "ipcopen", "ipcopen HEX", 1, 1, NEEDS_API, run_ipcopen },
    { "ipcclose", "ipcclose KSLOT", 1, 1, NEEDS_API, close_slot },
    { "extimport", "extimport SIZE", 1, 1, NEEDS_API, run_extimport },
    { "extmap", "extmap KSLOT [OFFSET [SIZE]]", 1, 3, NEEDS_API, run_extmap },
    { "extunmap", "extunmap ADDRESS", 1, 1, NEEDS_API, run_extunmap },
    { "extdestroy", "extdestroy KSLOT", 1, 1, NEEDS_API, close_slot },
    { .name = NULL },
};
