/* Commands about time: calls at a steady rate, and the cost of a call. */
#include "workload.h"

CALL_SITE static void pace_batch(struct tally *tally, uint64_t pairs, size_t bytes)
{
    make_pairs(tally, pairs, bytes);
}

/* Keeps to absolute times, so that a late batch does not delay the next. */
static bool run_pace(struct words *words, struct reply *reply)
{
    uint64_t rate, bytes;
    double seconds;
    if (!parse_u64(words->word[1], 1000000000, &rate, reply) ||
        !parse_double(words->word[2], 86400, &seconds, reply) ||
        !parse_u64(words->word[3], SIZE_MAX, &bytes, reply))
        return false;
    struct tally tally = { 0 };
    uint64_t pairs = (uint64_t)((double)rate * seconds / 2 + 0.5);
    uint64_t batch = rate / 2000 ? rate / 2000 : 1; /* a millisecond's worth */
    uint64_t start = now_ns();
    for (uint64_t done = 0; done < pairs; done += batch) {
        sleep_until_ns(start + (uint64_t)((double)done * 2e9 / (double)rate));
        pace_batch(&tally, pairs - done < batch ? pairs - done : batch, bytes);
    }
    /* The last batch gets its share of the time too. */
    sleep_until_ns(start + (uint64_t)(seconds * 1e9));
    double elapsed = (double)(now_ns() - start) / 1e9;
    truth_add(&tally);
    reply_tally(reply, &tally);
    reply_add(reply, " rate=%.0f seconds=%.3f",
              elapsed > 0 ? (double)(tally.allocs + tally.frees) / elapsed : 0, elapsed);
    return true;
}

CALL_SITE static bool run_timepairs(struct words *words, struct reply *reply)
{
    uint64_t pairs, bytes;
    if (!parse_u64(words->word[1], MAX_CALLS, &pairs, reply) ||
        !parse_u64(words->word[2], SIZE_MAX, &bytes, reply))
        return false;
    struct tally tally = { 0 };
    uint64_t start = now_ns();
    make_pairs(&tally, pairs, bytes);
    uint64_t elapsed = now_ns() - start;
    truth_add(&tally);
    reply_add(reply, "pairs=%lu ns=%lu", pairs, elapsed);
    if (tally.failed)
        reply_add(reply, " failed=%lu", tally.failed);
    return true;
}

const struct command timing_commands[] = {
    { "pace", "pace RATE SECONDS SIZE", 3, 3, NEEDS_API, run_pace },
    { "timepairs", "timepairs PAIRS SIZE", 2, 2, NEEDS_API, run_timepairs },
    { .name = NULL },
};
