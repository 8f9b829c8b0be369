/* The stressor's last line, with the names that the programs of scripts/stress use. */
#include <signal.h>

#include "stressor.h"

static void add(struct account *total, const struct account *part)
{
    total->allocs += part->allocs;
    total->alloc_bytes += part->alloc_bytes;
    total->frees += part->frees;
    total->freed_bytes += part->freed_bytes;
    total->failed += part->failed;
    if (part->seconds > total->seconds)
        total->seconds = part->seconds;
    if (part->ending > total->ending)
        total->ending = part->ending;
}

static struct account total_of(const struct plan *plan, const struct process *process)
{
    struct account total = { 0 };
    for (uint64_t i = 0; i < plan->threads; i++)
        add(&total, &process->threads[i]);
    return total;
}

static uint64_t calls_of(const struct account *account)
{
    return account->allocs + account->frees + account->failed;
}

static void print_number(FILE *out, const char *name, uint64_t value)
{
    fprintf(out, ", \"%s\": %lu", name, value);
}

static void print_counts(FILE *out, const struct account *account)
{
    print_number(out, "allocs", account->allocs);
    print_number(out, "alloc_bytes", account->alloc_bytes);
    print_number(out, "frees", account->frees);
    print_number(out, "freed_bytes", account->freed_bytes);
    print_number(out, "failed", account->failed);
    print_number(out, "calls", calls_of(account));
    print_number(out, "live", account->allocs - account->frees);
    print_number(out, "live_bytes", account->alloc_bytes - account->freed_bytes);
}

static void print_process(FILE *out, const struct plan *plan, const struct process *process)
{
    struct account total = total_of(plan, process);
    fprintf(out, "{\"pid\": %d", process->pid);
    print_counts(out, &total);
    fputs(", \"threads\": [", out);
    for (uint64_t i = 0; i < plan->threads; i++) {
        const struct account *thread = &process->threads[i];
        fprintf(out, "%s{\"tid\": %d, \"name\": \"%s\"", i ? ", " : "", thread->tid, thread->name);
        print_counts(out, thread);
        fputc('}', out);
    }
    fputs("]}", out);
}

static void print_anomaly(FILE *out, const struct account *account)
{
    fputs(", \"anomaly\": ", out);
    if (account->anomaly_bytes)
        fprintf(out, "{\"tid\": %d, \"bytes\": %lu}", account->tid, account->anomaly_bytes);
    else
        fputs("null", out);
}

static const char *ending_of(const struct account *total, int signal)
{
    if (total->ending == ENDED_SIGNAL || signal)
        return signal == SIGINT ? "SIGINT" : "SIGTERM";
    return total->ending == ENDED_DURATION ? "duration" : "done";
}

void statement_print(FILE *out, const struct plan *plan, void *all, int signal)
{
    struct account total = { 0 };
    for (uint64_t i = 0; i < plan->procs; i++) {
        struct account of_process = total_of(plan, process_at(all, plan, i));
        add(&total, &of_process);
    }
    double rate = total.seconds > 0 ? (double)calls_of(&total) / total.seconds : 0;
    fputs("{\"program\": \"stressor\", \"backend\": \"stand-in\", \"function\": \"cudaMalloc\"",
          out);
    print_number(out, "seed", plan->seed);
    fprintf(out, ", \"ended_by\": \"%s\", \"throughput\": %.3f", ending_of(&total, signal),
            plan->throughput);
    print_anomaly(out, &process_at(all, plan, 0)->threads[plan->anomaly_thread]);
    fprintf(out, ", \"seconds\": %.6f, \"calls_per_second\": %.3f", total.seconds, rate);
    print_counts(out, &total);
    fputs(", \"processes\": [", out);
    for (uint64_t i = 0; i < plan->procs; i++) {
        fputs(i ? ", " : "", out);
        print_process(out, plan, process_at(all, plan, i));
    }
    fputs("]}\n", out);
}
