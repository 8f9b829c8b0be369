/*
 * Stand-in libc10_cuda: expandable segments. One range of addresses for each
 * device, pool and stream, larger than the device's memory; physical memory is
 * mapped into it and unmapped from it in pieces of 2 MiB or 20 MiB.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"
#include "cudart_abi.h"
#include "torch_internal.h"

/* PyTorch too asks for the driver's functions at run time. */
static struct {
    __typeof__(&cuMemAddressReserve) address_reserve;
    __typeof__(&cuMemAddressFree) address_free;
    __typeof__(&cuMemCreate) create;
    __typeof__(&cuMemRelease) release;
    __typeof__(&cuMemMap) map;
    __typeof__(&cuMemUnmap) unmap;
    __typeof__(&cuMemSetAccess) set_access;
} driver;

static bool is_on;

static void load(void)
{
    const char *settings = getenv("PYTORCH_CUDA_ALLOC_CONF");
    is_on = settings && strstr(settings, "expandable_segments:True");
    void *library = is_on ? dlopen("libcuda.so.1", RTLD_NOW) : NULL;
    if (!library)
        return;
    *(void **)&driver.address_reserve = dlsym(library, "cuMemAddressReserve");
    *(void **)&driver.address_free = dlsym(library, "cuMemAddressFree");
    *(void **)&driver.create = dlsym(library, "cuMemCreate");
    *(void **)&driver.release = dlsym(library, "cuMemRelease");
    *(void **)&driver.map = dlsym(library, "cuMemMap");
    *(void **)&driver.unmap = dlsym(library, "cuMemUnmap");
    *(void **)&driver.set_access = dlsym(library, "cuMemSetAccess");
}

bool expandable_is_on(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return is_on;
}

static size_t piece_bytes(const struct segment *segment)
{
    return segment->pool->is_small ? SMALL_SEGMENT : LARGE_SEGMENT;
}

size_t expandable_size(const struct block *block)
{
    return block->bytes + (block->next && !block->next->mapped ? block->next->bytes : 0);
}

static void require(CUresult result, const char *what)
{
    if (!result)
        return;
    fprintf(stderr, "stand-in PyTorch: %s: CUDA error %d\n", what, result);
    abort();
}

static bool create_pieces(struct segment *segment, size_t begin, size_t end)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = { CU_MEM_LOCATION_TYPE_DEVICE, segment->pool->device->index },
    };
    for (size_t i = begin; i < end; i++) {
        if (!driver.create(&segment->pieces[i], piece_bytes(segment), &properties, 0))
            continue;
        segment->pieces[i] = 0;
        while (i-- > begin) {
            require(driver.release(segment->pieces[i]), "cuMemRelease");
            segment->pieces[i] = 0;
        }
        return false;
    }
    return true;
}

/* Maps enough for `bytes` at the start of the unmapped block, and joins it with
 * what is free around it. Returns the whole, which is in no set; NULL if the device
 * has no more memory. */
static struct block *map_block(struct block *block, size_t bytes)
{
    struct segment *segment = block->segment;
    size_t piece = piece_bytes(segment);
    size_t begin = (block->address - segment->address) / piece;
    size_t end = begin + (bytes + piece - 1) / piece;
    if (!create_pieces(segment, begin, end))
        return NULL;
    for (size_t i = begin; i < end; i++)
        require(driver.map(segment->address + i * piece, piece, 0, segment->pieces[i], 0),
                "cuMemMap");
    CUmemAccessDesc access = {
        .location = { CU_MEM_LOCATION_TYPE_DEVICE, segment->pool->device->index },
        .flags = 3, /* read and write */
    };
    size_t mapped = (end - begin) * piece;
    require(driver.set_access(block->address, mapped, &access, 1), "cuMemSetAccess");
    segment->pool->device->stats.reserved += mapped;
    if (mapped < block->bytes)
        block_split(block, mapped);
    block->mapped = true;
    return block_join(&segment->pool->free, block);
}

/* The lowest place with room for `bytes`: a free block with addresses behind it
 * that can be mapped, or such addresses. NULL if there is none. */
static struct block *find_room(struct segment *segment, size_t bytes)
{
    for (struct block *block = segment->first; block; block = block->next) {
        if (block->mapped && (block->allocated || !block->next || block->next->mapped))
            continue;
        size_t room = 0;
        for (struct block *b = block; b && !b->allocated && room < bytes; b = b->next)
            room += b->bytes;
        if (room >= bytes)
            return block;
    }
    return NULL;
}

static struct segment *reserve(struct pool *pool, uint64_t stream)
{
    size_t free_bytes, total;
    CUdeviceptr address;
    size_t piece = pool->is_small ? SMALL_SEGMENT : LARGE_SEGMENT;
    if (cudaMemGetInfo(&free_bytes, &total))
        return NULL;
    size_t count = (total + total / 8 + piece - 1) / piece;
    if (driver.address_reserve(&address, count * piece, 0, 0, 0))
        return NULL;
    struct segment *segment = segment_add(pool, stream, address, count * piece, false);
    segment->pieces = calloc(count, sizeof *segment->pieces);
    if (!segment->pieces)
        abort();
    return segment;
}

/* Takes `room` (in no set) to at least `bytes` by mapping what follows. Returns
 * what it became, in no set; NULL if the device has no more memory: what is mapped
 * by then is free. */
static struct block *grow(struct block *room, size_t bytes)
{
    while (!room->mapped || room->bytes < bytes) {
        struct block *next = room->mapped ? room->next : room;
        size_t missing = room->mapped ? bytes - room->bytes : bytes;
        struct block *grown = map_block(next, missing < next->bytes ? missing : next->bytes);
        if (!grown) {
            if (room->mapped)
                block_set_add(&room->segment->pool->free, room);
            return NULL;
        }
        room = grown;
    }
    return room;
}

struct block *expandable_new(struct pool *pool, uint64_t stream, size_t bytes)
{
    struct block *room = NULL;
    for (struct segment *s = pool->device->segments; s && !room; s = s->next)
        if (s->pool == pool && s->stream == stream)
            room = find_room(s, bytes);
    if (!room) {
        struct segment *segment = reserve(pool, stream);
        room = segment ? find_room(segment, bytes) : NULL;
    }
    if (!room)
        return NULL;
    if (room->mapped)
        block_set_remove(&pool->free, room);
    return grow(room, bytes);
}

/* Unmaps the whole pieces within a free block of the pool's set. Returns the block
 * from which to go on. */
static struct block *unmap_block(struct block *block)
{
    struct segment *segment = block->segment;
    struct block_set *set = &segment->pool->free;
    size_t piece = piece_bytes(segment);
    size_t offset = block->address - segment->address;
    size_t begin = (offset + piece - 1) / piece, end = (offset + block->bytes) / piece;
    if (begin >= end)
        return block;
    for (size_t i = begin; i < end; i++) {
        require(driver.unmap(segment->address + i * piece, piece), "cuMemUnmap");
        require(driver.release(segment->pieces[i]), "cuMemRelease");
        segment->pieces[i] = 0;
    }
    size_t unmapped = (end - begin) * piece;
    segment->pool->device->stats.reserved -= unmapped;
    block_set_remove(set, block);
    if (begin * piece > offset) {
        struct block *rest = block_split(block, begin * piece - offset);
        block_set_add(set, block);
        block = rest;
    }
    if (block->bytes > unmapped)
        block_set_add(set, block_split(block, unmapped));
    block->mapped = false;
    return block_join(set, block);
}

void expandable_release(struct segment *segment)
{
    for (struct block *block = segment->first; block; block = block->next)
        if (block->mapped && !block->allocated)
            block = unmap_block(block);
    if (segment->first->mapped || segment->first->next)
        return;
    require(driver.address_free(segment->address, segment->bytes), "cuMemAddressFree");
    segment_remove(segment);
}
