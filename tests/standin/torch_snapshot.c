/* Stand-in libc10_cuda: exact state of segments and blocks, as JSON. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "torch_internal.h"

static void print_block(FILE *out, const struct block *block)
{
    fprintf(out, "{\"address\":%zu,\"size\":%zu,\"requested_size\":%zu,\"state\":\"%s\"}",
            block->address, block->bytes, block->allocated ? block->requested : 0,
            block->allocated ? "active_allocated" : "inactive");
}

/* The mapped blocks from `first` on, as one segment. */
static const struct block *print_run(FILE *out, const struct block *first)
{
    const struct segment *segment = first->segment;
    const struct block *end = first;
    size_t bytes = 0;
    for (; end && end->mapped; end = end->next)
        bytes += end->bytes;
    fprintf(out,
            "{\"address\":%zu,\"total_size\":%zu,\"stream\":%llu,\"segment_type\":\"%s\","
            "\"is_expandable\":%s,\"blocks\":[",
            first->address, bytes, (unsigned long long)segment->stream,
            segment->pool->is_small ? "small" : "large", segment->pieces ? "true" : "false");
    for (const struct block *block = first; block != end; block = block->next) {
        if (block != first)
            fputc(',', out);
        print_block(out, block);
    }
    fputs("]}", out);
    return end;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t left = (*(struct segment *const *)a)->address;
    uintptr_t right = (*(struct segment *const *)b)->address;
    return left < right ? -1 : left > right;
}

/* Sorts the device's list. */
static void sort_segments(struct device *device)
{
    size_t count = 0, i = 0;
    for (struct segment *s = device->segments; s; s = s->next)
        count++;
    struct segment **all = calloc(count + 1, sizeof *all);
    if (!all)
        abort();
    for (struct segment *s = device->segments; s; s = s->next)
        all[i++] = s;
    qsort(all, count, sizeof *all, by_address);
    for (i = 0; i < count; i++)
        all[i]->next = all[i + 1];
    device->segments = all[0];
    free(all);
}

static void print_device(FILE *out, struct device *device)
{
    const struct gp_torch_stats *stats = &device->stats;
    const char *comma = "";
    fprintf(out,
            "{\"device\":%d,\"allocated\":%llu,\"reserved\":%llu,\"requested\":%llu,"
            "\"mallocs\":%llu,\"frees\":%llu,\"out_of_memory\":%llu,\"segments\":[",
            device->index, (unsigned long long)stats->allocated,
            (unsigned long long)stats->reserved, (unsigned long long)stats->requested,
            (unsigned long long)stats->mallocs, (unsigned long long)stats->frees,
            (unsigned long long)stats->out_of_memory);
    sort_segments(device);
    for (struct segment *s = device->segments; s; s = s->next) {
        for (const struct block *block = s->first; block;) {
            if (!block->mapped) {
                block = block->next;
                continue;
            }
            fputs(comma, out);
            comma = ",";
            block = print_run(out, block);
        }
    }
    fputs("]}", out);
}

char *gp_torch_snapshot(void)
{
    char *text = NULL;
    size_t length;
    const char *comma = "";
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return NULL;
    fputc('[', out);
    for (int i = 0; i < MAX_TORCH_DEVICES; i++) {
        struct device *device = &torch_devices[i];
        pthread_mutex_lock(&device->lock);
        if (device->stats.mallocs || device->stats.out_of_memory) {
            fputs(comma, out);
            comma = ",";
            print_device(out, device);
        }
        pthread_mutex_unlock(&device->lock);
    }
    fputc(']', out);
    fclose(out);
    return text;
}
