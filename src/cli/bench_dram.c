/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies to and from a store's memory beside memcpy from and to a region as large, touched before.
 * Store, region and the caller's memory are each larger than the last cache.
 */
#include "bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 2

/* What one thread does of a sample: some of the blocks, from its own names to its own memory. */
typedef struct share {
    struct dram *dram;
    const uint8_t *names;
    size_t first, count; /* blocks of the sample */
    int code;
} share;

typedef struct dram {
    bench_store store;
    uint64_t block_bytes;
    size_t blocks; /* in the store, and in the region */
    size_t batch;  /* blocks of a sample */
    unsigned threads;
    uint8_t *region, *memory;
    size_t region_bytes, memory_bytes;
    kvo_segment *segments;
    uint8_t *names;      /* of a sample */
    uint64_t next_name;  /* of puts */
    uint64_t next_place; /* where in store and region the next sample works */
} dram;

static void *run_get(void *argument)
{
    share *s = argument;
    s->code = bench_get(&s->dram->store, s->names, s->count, s->dram->segments + s->first, NULL);
    return NULL;
}

static void *run_put(void *argument)
{
    share *s = argument;
    s->code = bench_put(&s->dram->store, s->names, s->count, s->dram->segments + s->first, NULL);
    return NULL;
}

static uint8_t *region_at(const dram *d, size_t block)
{
    return d->region + (d->next_place + block) % d->blocks * d->block_bytes;
}

static void *run_copy_out(void *argument)
{
    share *s = argument;
    for (size_t i = s->first; i < s->first + s->count; i++) {
        memcpy(s->dram->segments[i].base, region_at(s->dram, i), s->dram->block_bytes);
    }
    return NULL;
}

static void *run_copy_in(void *argument)
{
    share *s = argument;
    for (size_t i = s->first; i < s->first + s->count; i++) {
        memcpy(region_at(s->dram, i), s->dram->segments[i].base, s->dram->block_bytes);
    }
    return NULL;
}

/* The batch in equal shares; the caller's thread takes the first. */
static int run_shares(dram *d, void *(*run)(void *), bench_sample *sample)
{
    share shares[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    size_t each = d->batch / d->threads;
    int code = 0;
    double begin = bench_now();
    for (unsigned t = d->threads; t-- > 0;) {
        shares[t] = (share){d, d->names + t * each * BENCH_NAME_BYTES, t * each, each, 0};
        if (t == 0) {
            (void)run(&shares[0]);
        } else if (pthread_create(&threads[t], NULL, run, &shares[t]) != 0) {
            exit(cli_fail("cannot start a thread"));
        }
    }
    for (unsigned t = 0; t < d->threads; t++) {
        if (t > 0) {
            (void)pthread_join(threads[t], NULL);
        }
        code = code != 0 ? code : shares[t].code;
    }
    sample->seconds = bench_now() - begin;
    d->next_place += d->batch;
    return code;
}

static int measure_get(void *context, unsigned round, bench_sample *sample)
{
    dram *d = context;
    (void)round;
    /* The oldest batch is left alone: it may be on its way out. */
    size_t recent = d->blocks - d->batch;
    for (size_t i = 0; i < d->batch; i++) {
        bench_names(d->names + i * BENCH_NAME_BYTES, d->next_name - recent + (d->next_place + i) % recent, 1);
    }
    return run_shares(d, run_get, sample);
}

static int measure_put(void *context, unsigned round, bench_sample *sample)
{
    dram *d = context;
    (void)round;
    bench_names(d->names, d->next_name, d->batch);
    d->next_name += d->batch;
    return run_shares(d, run_put, sample);
}

static int measure_copy_out(void *context, unsigned round, bench_sample *sample)
{
    (void)round;
    return run_shares(context, run_copy_out, sample);
}

static int measure_copy_in(void *context, unsigned round, bench_sample *sample)
{
    (void)round;
    return run_shares(context, run_copy_in, sample);
}

static int compare(bench *b, dram *d, const char *name, bench_measure kvonce, bench_measure limit, unsigned threads)
{
    const bench_comparison c = {.name = name,
                                .block_bytes = d->block_bytes,
                                .unit = "bytes/s",
                                .work = (double)(d->batch * d->block_bytes),
                                .kvonce = kvonce,
                                .limit = limit,
                                .context = d,
                                .rounds = bench_rounds(b, d->block_bytes == BENCH_BIG && threads == 1)};
    d->threads = threads;
    return bench_compare(b, &c);
}

/* What the last get brought must be what was put: payloads repeat with every batch. */
static int check(dram *d)
{
    bench_names(d->names, d->next_name - d->batch, d->batch);
    return bench_check(&d->store, "dram", d->names, d->batch, d->segments, d->memory, d->batch * d->block_bytes);
}

static int measure_all(bench *b, dram *d)
{
    int code = compare(b, d, "dram_put", measure_put, measure_copy_in, 1);
    code = code != 0 ? code : compare(b, d, "dram_put_2t", measure_put, measure_copy_in, 2);
    code = code != 0 ? code : check(d);
    code = code != 0 ? code : compare(b, d, "dram_get", measure_get, measure_copy_out, 1);
    return code != 0 ? code : compare(b, d, "dram_get_2t", measure_get, measure_copy_out, 2);
}

/* Several times the last cache, as far as that is within reason. */
static size_t working_set(const bench *b)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = cache > 0 ? 8 * (size_t)cache : 0;
    size_t least = b->quick ? (size_t)64 << 20 : (size_t)512 << 20;
    size_t most = b->quick ? least : (size_t)1 << 30;
    return bytes < least ? least : bytes > most ? most : bytes;
}

static int one_size(bench *b, uint64_t block_bytes)
{
    dram d = {.block_bytes = block_bytes};
    kvo_options options = KVO_OPTIONS_INIT;
    char tiers[64];
    d.batch = working_set(b) / block_bytes / 4 / THREADS_MAX * THREADS_MAX;
    d.blocks = 4 * d.batch;
    d.region_bytes = d.blocks * block_bytes;
    d.memory_bytes = d.batch * block_bytes;
    (void)snprintf(tiers, sizeof tiers, "dram:%zublk", d.blocks);
    options.block_bytes = block_bytes;
    int code = bench_open(b, "dram", tiers, &options, &d.store);
    if (code != 0) {
        return code;
    }
    d.region = bench_map(d.region_bytes);
    d.memory = bench_map(d.memory_bytes);
    d.segments = bench_segments(d.memory, block_bytes, d.batch);
    d.names = cli_alloc(d.batch, BENCH_NAME_BYTES);
    code = bench_fill(&d.store, 0, d.blocks, d.batch, block_bytes, d.memory);
    d.next_name = d.blocks;
    code = code != 0 ? code : measure_all(b, &d);
    free(d.segments);
    free(d.names);
    bench_unmap(d.memory, d.memory_bytes);
    bench_unmap(d.region, d.region_bytes);
    int closed = bench_close(&d.store, 0);
    return code != 0 ? code : closed;
}

int bench_dram(bench *b)
{
    static const uint64_t sizes[] = {64 << 10, 1 << 20, BENCH_BIG};
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof sizes / sizeof sizes[0]; i++) {
        code = one_size(b, sizes[i]);
    }
    return code;
}
