/*
 * Stand-in libc10_cuda.so: an allocator that makes the calls of PyTorch's. It takes segments of
 * PyTorch's sizes from CUDA, or maps pieces into an address range with
 * PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; reports each block under a lock, with the
 * totals after it; and returns its cache before it is out of memory. A block is at the lowest
 * address with room.
 */
#define _GNU_SOURCE
#include "torch.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"
#include "cudart_abi.h"
#include "torch_blocks.h"

/* PyTorch's constants (c10/cuda/CUDACachingAllocator.cpp). */
#define MIB ((size_t)1 << 20)
#define BLOCK_ROUND ((size_t)512)
#define SMALL_REQUEST MIB /* the largest that goes to a small segment */
#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)
#define LARGE_REQUEST (10 * MIB) /* from here on a segment has the request's size */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct device devices[16]; /* under `lock` */

#define DEVICES_END (devices + sizeof devices / sizeof *devices)

static size_t rounded(size_t bytes, size_t step)
{
    return (bytes + step - 1) / step * step;
}

static void require(bool is_good, const char *what)
{
    if (is_good)
        return;
    fprintf(stderr, "stand-in PyTorch: %s failed\n", what);
    abort();
}

/* ---- memory from CUDA ------------------------------------------------------ */

static struct range *range_new(struct device *device, size_t bytes, uint64_t stream)
{
    const char *settings = getenv("PYTORCH_CUDA_ALLOC_CONF");
    struct range *range = calloc(1, sizeof *range);
    range->stream = stream;
    range->is_small = bytes <= SMALL_REQUEST;
    range->piece_bytes = range->is_small ? SMALL_SEGMENT : LARGE_SEGMENT;
    range->is_expandable = settings && strstr(settings, "expandable_segments:True");
    if (range->is_expandable) {
        size_t free_bytes, total;
        CUdeviceptr address;
        require(!cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
        range->bytes = rounded(total + total / 8, range->piece_bytes);
        require(!cuMemAddressReserve(&address, range->bytes, 0, 0, 0), "cuMemAddressReserve");
        range->start.address = address;
    } else {
        if (bytes >= LARGE_REQUEST)
            range->piece_bytes = rounded(bytes, SMALL_SEGMENT);
        range->bytes = range->piece_bytes;
        if (cudaMalloc((void **)&range->start.address, range->bytes)) {
            free(range);
            return NULL;
        }
        device->reserved += range->bytes;
    }
    range->pieces = calloc(range->bytes / range->piece_bytes, sizeof *range->pieces);
    range->pieces[0] = !range->is_expandable;
    range->packed = &range->start;
    range->next = device->ranges;
    device->ranges = range;
    return range;
}

/* Maps what is not mapped yet; false if the device has no more memory. */
static bool map_pieces(struct device *device, struct range *range, size_t offset, size_t bytes)
{
    size_t piece = range->piece_bytes;
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = { CU_MEM_LOCATION_TYPE_DEVICE, { (int)(device - devices) } },
    };
    for (size_t i = offset / piece; i * piece < offset + bytes; i++) {
        CUmemGenericAllocationHandle handle;
        if (range->pieces[i])
            continue;
        if (cuMemCreate(&handle, piece, &properties, 0))
            return false;
        require(!cuMemMap(range->start.address + i * piece, piece, 0, handle, 0), "cuMemMap");
        range->pieces[i] = handle;
        device->reserved += piece;
    }
    return true;
}

static bool is_in_use(const struct range *range, uintptr_t start)
{
    const struct block *block = range->start.next;
    while (block && block->address + block->bytes <= start)
        block = block->next;
    return block && block->address < start + range->piece_bytes;
}

static void release_pieces(struct device *device, struct range *range)
{
    for (size_t i = 0; i < range->bytes / range->piece_bytes; i++) {
        uintptr_t address = range->start.address + i * range->piece_bytes;
        if (!range->pieces[i] || is_in_use(range, address))
            continue;
        if (!range->is_expandable)
            require(!cudaFree((void *)address), "cudaFree");
        else
            require(!cuMemUnmap(address, range->piece_bytes) && !cuMemRelease(range->pieces[i]),
                    "cuMemUnmap");
        range->pieces[i] = 0;
        device->reserved -= range->piece_bytes;
    }
}

static void release_cache(struct device *device)
{
    for (struct range **link = &device->ranges, *range; (range = *link);) {
        release_pieces(device, range);
        if (range->start.next) {
            link = &range->next;
            continue;
        }
        if (range->is_expandable)
            require(!cuMemAddressFree(range->start.address, range->bytes), "cuMemAddressFree");
        *link = range->next;
        free(range->pieces);
        free(range);
    }
}

/* ---- blocks ---------------------------------------------------------------- */

/* The block that the lowest room for `bytes` is behind; NULL if there is none. */
static struct block *find_room(struct range *range, size_t bytes)
{
    for (struct block *block = range->packed; block; block = block->next) {
        uintptr_t end = block->next ? block->next->address : range->start.address + range->bytes;
        size_t gap = end - (block->address + block->bytes);
        if (gap >= bytes)
            return block;
        if (!gap && range->packed == block && block->next)
            range->packed = block->next;
    }
    return NULL;
}

void *gp_torch_context;

static struct block *place(struct device *device, size_t requested, uint64_t stream)
{
    size_t bytes = rounded(requested, BLOCK_ROUND);
    bool is_small = bytes <= SMALL_REQUEST;
    struct block *before = NULL;
    struct range *range = device->ranges;
    for (; range; range = range->next)
        if (range->stream == stream && range->is_small == is_small &&
            (before = find_room(range, bytes)))
            break;
    if (!range && (range = range_new(device, bytes, stream)))
        before = &range->start;
    uintptr_t address = before ? before->address + before->bytes : 0;
    if (!range || !map_pieces(device, range, address - range->start.address, bytes))
        return NULL;
    struct block *block = malloc(sizeof *block);
    *block = (struct block){
        .next = before->next,
        .address = address,
        .bytes = bytes,
        .requested = requested,
        .context = gp_torch_context,
    };
    before->next = block;
    return block;
}

static void report(const struct device *device, uintptr_t address, int64_t bytes)
{
    standin_write_blocks(devices, DEVICES_END - devices);
    standin_report_memory((void *)address, bytes, device->allocated, device->reserved,
                          (struct c10_device){ C10_CUDA, (int8_t)(device - devices) });
}

void *gp_torch_raw_malloc(size_t requested, uint64_t stream)
{
    int number;
    require(!cudaGetDevice(&number), "cudaGetDevice");
    struct device *device = &devices[number];
    void *address = NULL;
    pthread_mutex_lock(&lock);
    struct block *block = place(device, requested, stream);
    if (!block) {
        release_cache(device);
        block = place(device, requested, stream);
    }
    if (block) {
        device->allocated += block->bytes;
        device->requested += requested;
        device->mallocs++;
        report(device, block->address, (int64_t)block->bytes);
        address = (void *)block->address;
    } else {
        standin_report_out_of_memory((int64_t)rounded(requested, BLOCK_ROUND), device->allocated,
                                     device->reserved,
                                     (struct c10_device){ C10_CUDA, (int8_t)number });
    }
    pthread_mutex_unlock(&lock);
    return address;
}

static bool free_on(struct device *device, uintptr_t address)
{
    struct range *range = device->ranges;
    while (range && address - range->start.address >= range->bytes)
        range = range->next;
    struct block *before = range ? &range->start : NULL;
    while (before && before->next && before->next->address != address)
        before = before->next;
    if (!before || !before->next)
        return false;
    struct block *freed = before->next, block = *freed;
    if (block.is_pending)
        return false;
    freed->is_pending = block.is_recorded;
    if (!freed->is_pending) {
        before->next = block.next;
        free(freed);
    }
    range->packed = &range->start;
    device->allocated -= block.bytes;
    device->requested -= block.requested;
    device->frees++;
    report(device, address, -(int64_t)block.bytes);
    return true;
}

int gp_torch_free(void *address)
{
    struct device *device = devices;
    pthread_mutex_lock(&lock);
    while (device < DEVICES_END && !free_on(device, (uintptr_t)address))
        device++;
    pthread_mutex_unlock(&lock);
    return device < DEVICES_END ? 0 : -1;
}

void gp_torch_empty_cache(void)
{
    pthread_mutex_lock(&lock);
    for (struct device *device = devices; device < DEVICES_END; device++)
        release_cache(device);
    standin_write_blocks(devices, DEVICES_END - devices);
    pthread_mutex_unlock(&lock);
}

void gp_torch_record_stream(void *address)
{
    pthread_mutex_lock(&lock);
    for (struct device *device = devices; device < DEVICES_END; device++)
        for (struct range *range = device->ranges; range; range = range->next)
            for (struct block *block = range->start.next; block; block = block->next)
                block->is_recorded |= block->address == (uintptr_t)address;
    pthread_mutex_unlock(&lock);
}

void gp_torch_synchronize(void)
{
    pthread_mutex_lock(&lock);
    for (struct device *device = devices; device < DEVICES_END; device++)
        for (struct range *range = device->ranges; range; range = range->next) {
            for (struct block *before = &range->start, *block; (block = before->next);)
                if (block->is_pending) {
                    before->next = block->next;
                    free(block);
                } else {
                    before = block;
                }
            range->packed = &range->start;
        }
    standin_write_blocks(devices, DEVICES_END - devices);
    pthread_mutex_unlock(&lock);
}

/* ---- the USDT probe -------------------------------------------------------- */

/* A nop, and a note in the form of <sys/sdt.h>: the addresses of the nop, of the link-time base
 * (none) and of the semaphore, in which the kernel counts tracers; provider, name and arguments. */
#define SDT_MALLOC(...)                                                                 \
    __asm__ volatile("1: nop\n"                                                         \
                     ".pushsection .note.stapsdt, \"\", @note\n"                        \
                     ".balign 4\n"                                                      \
                     ".4byte 3f - 2f, 5f - 4f, 3\n"                                     \
                     "2: .asciz \"stapsdt\"\n"                                          \
                     "3: .balign 4\n"                                                   \
                     "4: .8byte 1b, 0, torch_sdt_semaphore\n"                           \
                     ".asciz \"pytorch\", \"malloc\"\n"                                 \
                     ".asciz \"-8@%[address] -1@%[device] -8@%[bytes] -8@%[stream]\"\n" \
                     "5: .balign 4\n"                                                   \
                     ".popsection"                                                      \
                     :                                                                  \
                     : __VA_ARGS__)

volatile unsigned short torch_sdt_semaphore __attribute__((section(".probes"), used));

void *gp_torch_malloc(size_t bytes, uint64_t stream)
{
    void *address = gp_torch_raw_malloc(bytes, stream);
    int8_t device = 0; /* no tracer reads it */
    if (!address || !torch_sdt_semaphore)
        return address;
    /* Operands of all kinds: memory, registers, and a constant where the stream is known. */
    if (stream == 0)
        SDT_MALLOC([address] "m"(address), [device] "m"(device), [bytes] "c"(bytes),
                   [stream] "n"(0));
    else
        SDT_MALLOC([address] "a"(address), [device] "d"(device), [bytes] "m"(bytes),
                   [stream] "r"(stream));
    return address;
}

/* ---- the truth ------------------------------------------------------------- */

static void print_range(FILE *out, const struct range *range)
{
    for (size_t i = 0; i < range->bytes / range->piece_bytes; i++)
        if (range->pieces[i])
            fprintf(out, "piece %zu %zu %lu %d %d;", range->start.address + i * range->piece_bytes,
                    range->piece_bytes, range->stream, range->is_small, range->is_expandable);
    for (const struct block *block = range->start.next; block; block = block->next)
        fprintf(out, "%s %zu %zu %zu;", block->is_pending ? "pending" : "block", block->address,
                block->bytes, block->requested);
}

char *gp_torch_snapshot(void)
{
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    pthread_mutex_lock(&lock);
    for (struct device *device = devices; device < DEVICES_END; device++) {
        if (device->mallocs)
            fprintf(out, "device %td %lu %lu %lu %lu %lu;", device - devices, device->allocated,
                    device->reserved, device->requested, device->mallocs, device->frees);
        for (const struct range *range = device->ranges; range; range = range->next)
            print_range(out, range);
    }
    pthread_mutex_unlock(&lock);
    fclose(out);
    return text;
}
