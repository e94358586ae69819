/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane alone: a ghost store of 200,000 blocks, records and decisions without a byte. */
#include "bench.h"
#include "bench_policy.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS 200000u
#define MATCH_BAR 10e6
#define WORD_BAR 30e6

/* Names that are not stored, and stored ones in no order. */
typedef struct singles {
    bench_store *store;
    size_t count;
    uint8_t *absent, *shuffled;
    kvo_answer answers[BENCH_CHAIN];
} singles;

static int put_chains(bench_chains *c, uint64_t block_bytes)
{
    kvo_put_options options = KVO_PUT_OPTIONS_INIT;
    kvo_segment segments[BENCH_CHAIN];
    options.chained = 1;
    for (size_t i = 0; i < BENCH_CHAIN; i++) {
        segments[i] = (kvo_segment){NULL, (size_t)block_bytes};
    }
    for (size_t i = 0; i < c->count; i += BENCH_CHAIN) {
        size_t n = c->count - i < BENCH_CHAIN ? c->count - i : BENCH_CHAIN;
        int code = bench_stopped();
        code = code != 0 ? code : bench_put(c->store, c->names + i * BENCH_NAME_BYTES, n, segments, &options);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

static singles singles_make(const bench_chains *c)
{
    singles s = {.store = c->store, .count = c->count};
    uint64_t random = 2;
    uint8_t name[BENCH_NAME_BYTES];
    s.absent = cli_alloc(c->count, BENCH_NAME_BYTES);
    s.shuffled = cli_alloc(c->count, BENCH_NAME_BYTES);
    bench_names(s.absent, (uint64_t)1 << 40, c->count);
    memcpy(s.shuffled, c->names, c->count * BENCH_NAME_BYTES);
    for (size_t i = c->count; i-- > 1;) {
        uint8_t *a = s.shuffled + i * BENCH_NAME_BYTES;
        uint8_t *b = s.shuffled + cli_random(&random) % (i + 1) * BENCH_NAME_BYTES;
        memcpy(name, a, sizeof name);
        memcpy(a, b, sizeof name);
        memcpy(b, name, sizeof name);
    }
    return s;
}

/* A look-up a name: of chains that begin with it, `length` names each. */
static int match_each(singles *s, const uint8_t *names, size_t length, size_t wanted, bench_sample *sample)
{
    size_t all = 0;
    int status = KVO_OK;
    double begin = bench_now();
    for (size_t i = 0; status == KVO_OK && i < s->count; i++) {
        size_t matched = 0, left = s->count - i;
        kvo_names batch = bench_batch(s->store, names + i * BENCH_NAME_BYTES, left < length ? left : length);
        status = kvo_match(s->store->store, &batch, s->answers, &matched);
        all += matched;
    }
    sample->seconds = bench_now() - begin;
    if (status == KVO_OK && all != wanted) {
        (void)cli_fail("match: %zu blocks were found, and %zu are there", all, wanted);
        return CLI_BAD;
    }
    return status == KVO_OK ? 0 : bench_refused("match", status);
}

/* A chain whose first name is not there ends at once: one name is looked up. */
static int match_miss(void *context, unsigned round, bench_sample *sample)
{
    singles *s = context;
    (void)round;
    return match_each(s, s->absent, BENCH_CHAIN, 0, sample);
}

static int match_single(void *context, unsigned round, bench_sample *sample)
{
    singles *s = context;
    (void)round;
    return match_each(s, s->shuffled, 1, s->count, sample);
}

static int exists(singles *s, const uint8_t *names, int wanted, bench_sample *sample)
{
    int status = KVO_OK;
    size_t wrong = 0;
    double begin = bench_now();
    for (size_t i = 0; status == KVO_OK && i < s->count; i += BENCH_CHAIN) {
        size_t n = s->count - i < BENCH_CHAIN ? s->count - i : BENCH_CHAIN;
        kvo_names batch = bench_batch(s->store, names + i * BENCH_NAME_BYTES, n);
        status = kvo_exists(s->store->store, &batch, s->answers);
        wrong += s->answers[n - 1].status != wanted;
    }
    sample->seconds = bench_now() - begin;
    if (status == KVO_OK && wrong != 0) {
        (void)cli_fail("exists: wrong answers");
        return CLI_BAD;
    }
    return status == KVO_OK ? 0 : bench_refused("exists", status);
}

static int exists_random(void *context, unsigned round, bench_sample *sample)
{
    singles *s = context;
    (void)round;
    return exists(s, s->shuffled, KVO_OK, sample);
}

static int exists_miss(void *context, unsigned round, bench_sample *sample)
{
    singles *s = context;
    (void)round;
    return exists(s, s->absent, KVO_MISS, sample);
}

static int measure_all(bench *b, bench_chains *c, singles *s)
{
    const double names = (double)c->count;
    const unsigned rounds = bench_rounds(b, 1);
    const bench_comparison comparisons[] = {
        {"match", 0, "names/s", names, bench_match, NULL, MATCH_BAR, c, rounds, NULL, 0.0},
        {"match_miss", 0, "names/s", names, match_miss, NULL, NAN, s, rounds, NULL, 0.0},
        {"match_single", 0, "names/s", names, match_single, NULL, NAN, s, rounds, NULL, 0.0},
        {"exists_random", 0, "names/s", names, exists_random, NULL, NAN, s, rounds, NULL, 0.0},
        {"exists_miss", 0, "names/s", names, exists_miss, NULL, NAN, s, rounds, NULL, 0.0},
        {"policy_word", 0, "updates/s", names, bench_policy_word, NULL, WORD_BAR, c, rounds, NULL, 0.0},
        {"policy_masked", 0, "updates/s", names, bench_policy_masked, bench_match, NAN, c, rounds, NULL, 0.0},
    };
    int code = bench_chains_handles(c);
    for (size_t i = 0; code == 0 && i < sizeof comparisons / sizeof comparisons[0]; i++) {
        code = bench_compare(b, &comparisons[i]);
    }
    return code;
}

int bench_control(bench *b)
{
    bench_store store;
    bench_chains chains;
    kvo_options options = KVO_OPTIONS_INIT;
    char tiers[64];
    size_t count = b->quick ? BLOCKS / 20 : BLOCKS;
    options.flags = KVO_OPEN_GHOST;
    options.block_bytes = BENCH_BIG;
    (void)snprintf(tiers, sizeof tiers, "dram:%zublk", count);
    int code = bench_open(b, "ghost", tiers, &options, &store);
    if (code != 0) {
        return code;
    }
    bench_chains_make(&chains, &store, count);
    singles s = singles_make(&chains);
    code = put_chains(&chains, options.block_bytes);
    code = code != 0 ? code : measure_all(b, &chains, &s);
    free(s.absent);
    free(s.shuffled);
    bench_chains_free(&chains);
    int closed = bench_close(&store, 0);
    return code != 0 ? code : closed;
}
