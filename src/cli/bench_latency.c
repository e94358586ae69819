/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long one block takes in a store of memory and disk that writes: a put that returns once it is
 * sealed, a get from memory, a get from disk. Each beside a plain copy, or a raw read of the same slot,
 * at the same moments.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STORE "latency"
#define HELD 16u            /* blocks that are read, in each tier */
#define PERIOD_S 3.0        /* of one measurement */
#define OPERATIONS_MIN 4u
#define OPERATIONS_MAX 10000u
#define WRITER_FIRST ((uint64_t)1 << 32)

typedef struct latency {
    bench *b;
    bench_store store;
    uint64_t block_bytes;
    size_t blocks; /* that memory has room for; the disk has four times as many */
    uint8_t *memory, *other; /* a block of the caller's; as many as are held */
    kvo_segment segment;
    bench_raw *raw;
    int file;
    uint64_t next_name;
    uint64_t held[2][HELD]; /* numbers of names that stay in memory, or on disk alone */
    bench_block slots[HELD];
    uint8_t *header;
    double pace_bytes_s; /* 0: puts one after the other */
    double rate_bytes_s; /* of the last puts */
} latency;

static int goes_on(const latency *l, double begin, const bench_times *times)
{
    double period = l->b->quick ? PERIOD_S / 10.0 : PERIOD_S;
    int long_enough = bench_now() - begin >= period && times->count >= OPERATIONS_MIN;
    return bench_stopped() == 0 && !long_enough && times->count < OPERATIONS_MAX;
}

/* The copy that a put, or a get, cannot do without: the store's side of it moves on. */
static double copy_once(latency *l, int out, size_t which)
{
    uint8_t *stored = l->other + which % HELD * l->block_bytes;
    double begin = bench_now();
    memcpy(out ? l->memory : stored, out ? stored : l->memory, l->block_bytes);
    return bench_now() - begin;
}

static void sleep_until(double when)
{
    double left = when - bench_now();
    if (left > 0.0) {
        struct timespec pause = {(time_t)left, (long)((left - floor(left)) * 1e9)};
        (void)nanosleep(&pause, NULL);
    }
}

/* ---- Puts ---- */

static int measure_put(void *context, bench_times *times)
{
    latency *l = context;
    uint8_t name[BENCH_NAME_BYTES];
    double begin = bench_now();
    int code = 0;
    while (code == 0 && goes_on(l, begin, times)) {
        if (l->pace_bytes_s > 0.0) {
            sleep_until(begin + (double)(times->count * l->block_bytes) / l->pace_bytes_s);
        }
        bench_names(name, l->next_name++, 1);
        double copy = copy_once(l, 0, times->count);
        double start = bench_now();
        code = bench_put(&l->store, name, 1, &l->segment, NULL);
        bench_times_add(times, bench_now() - start, copy);
    }
    l->rate_bytes_s = (double)(times->count * l->block_bytes) / (bench_now() - begin);
    return code != 0 ? code : bench_stopped();
}

/* As fast as the store takes them, which the disk decides; then half as fast, which leaves the mover
   time to be ahead. */
static int measure_puts(latency *l)
{
    const bench_timing flat_out = {"put_sealed_full_p50", "put_sealed_full_p99", l->block_bytes, measure_put, l};
    const bench_timing paced = {"put_sealed_p50", "put_sealed_p99", l->block_bytes, measure_put, l};
    int code = bench_percentiles(l->b, &flat_out);
    l->pace_bytes_s = l->rate_bytes_s / 2.0;
    code = code != 0 ? code : bench_settle(&l->store);
    return code != 0 ? code : bench_percentiles(l->b, &paced);
}

/* ---- Gets ---- */

/* Holds blocks of the last puts that are, or are not, in memory. */
static int hold_some(latency *l, int on_disk)
{
    uint8_t name[BENCH_NAME_BYTES];
    unsigned found = 0;
    for (uint64_t back = 1; found < HELD && back < 3 * l->blocks && back < l->next_name; back++) {
        kvo_answer answer;
        uint64_t hold;
        bench_names(name, l->next_name - back, 1);
        kvo_names batch = bench_batch(&l->store, name, 1);
        int status = kvo_exists(l->store.store, &batch, &answer);
        if (status == KVO_OK && answer.status == KVO_OK && (answer.tier != 0) == on_disk) {
            status = kvo_hold(l->store.store, &batch, KVO_FOREVER, &hold, &answer);
            l->held[on_disk][found] = l->next_name - back;
            found += status == KVO_OK && answer.status == KVO_OK;
        }
        if (status != KVO_OK) {
            return bench_refused("hold", status);
        }
    }
    return found == HELD ? 0 : cli_fail("latency: too few blocks %s", on_disk ? "on disk alone" : "in memory");
}

static int find_slots(latency *l)
{
    uint8_t name[BENCH_NAME_BYTES];
    int code = 0;
    for (unsigned i = 0; code == 0 && i < HELD; i++) {
        bench_block *slot = &l->slots[i];
        bench_names(name, l->held[1][i], 1);
        *slot = (bench_block){.pieces = {{l->header, 4096}, {l->other, l->block_bytes}}, .piece_count = 2};
        code = bench_offsets(&l->store, name, 1, &slot->offset);
    }
    return code;
}

static int get_once(latency *l, int on_disk, unsigned which, double *seconds)
{
    uint8_t name[BENCH_NAME_BYTES];
    kvo_get_options options = KVO_GET_OPTIONS_INIT;
    options.no_promote = 1;
    bench_names(name, l->held[on_disk][which], 1);
    double begin = bench_now();
    int code = bench_get(&l->store, name, 1, &l->segment, &options);
    *seconds = bench_now() - begin;
    return code;
}

static int measure_get(latency *l, int on_disk, bench_times *times)
{
    bench_writer *writer = bench_writer_start(&l->store, l->next_name, l->block_bytes, NULL);
    int code = writer != NULL ? bench_writer_wait(writer, l->blocks) : CLI_FAIL;
    double begin = bench_now();
    while (code == 0 && goes_on(l, begin, times)) {
        unsigned which = (unsigned)(times->count % HELD);
        double seconds, limit;
        code = get_once(l, on_disk, which, &seconds);
        if (on_disk) {
            limit = bench_now();
            code = code != 0 ? code : bench_raw_run(l->raw, l->file, 0, &l->slots[which], 1);
            limit = bench_now() - limit;
        } else {
            limit = copy_once(l, 1, which);
        }
        bench_times_add(times, seconds, limit);
    }
    if (writer != NULL) {
        int stopped = bench_writer_stop(writer, &l->next_name);
        code = code != 0 ? code : stopped;
    }
    return code != 0 ? code : bench_stopped();
}

static int measure_dram_get(void *context, bench_times *times)
{
    return measure_get(context, 0, times);
}

static int measure_disk_get(void *context, bench_times *times)
{
    return measure_get(context, 1, times);
}

static int measure_gets(latency *l)
{
    const bench_timing dram = {"latency_dram_get_p50", "latency_dram_get_p99", l->block_bytes, measure_dram_get, l};
    const bench_timing disk = {"latency_disk_get_p50", "latency_disk_get_p99", l->block_bytes, measure_disk_get, l};
    int code = hold_some(l, 0);
    code = code != 0 ? code : hold_some(l, 1);
    code = code != 0 ? code : find_slots(l);
    code = code != 0 ? code : bench_percentiles(l->b, &dram);
    return code != 0 ? code : bench_percentiles(l->b, &disk);
}

/* ---- All ---- */

static int prepare(latency *l)
{
    char tiers[128];
    kvo_options options = KVO_OPTIONS_INIT;
    options.block_bytes = l->block_bytes;
    (void)snprintf(tiers, sizeof tiers, "dram:%zublk,disk:@:%zublk", l->blocks, 4 * l->blocks);
    int code = bench_open(l->b, STORE, tiers, &options, &l->store);
    l->raw = code == 0 ? bench_raw_open(l->b, 1) : NULL;
    l->file = l->raw != NULL ? bench_raw_file(l->b, STORE, 0) : -1;
    if (l->file < 0) {
        return CLI_FAIL;
    }
    /* Beyond what memory holds, so that the mover has begun. */
    l->next_name = 2 * l->blocks;
    return bench_fill(&l->store, 0, 2 * l->blocks, 1, l->block_bytes, l->memory);
}

static int one_size(bench *b, uint64_t block_bytes, size_t blocks)
{
    latency l = {.b = b, .block_bytes = block_bytes, .blocks = blocks, .file = -1};
    l.memory = bench_map(block_bytes);
    l.other = bench_map(HELD * block_bytes);
    l.header = bench_map(4096);
    l.segment = (kvo_segment){l.memory, (size_t)block_bytes};
    int code = prepare(&l);
    code = code != 0 ? code : measure_puts(&l);
    code = code != 0 ? code : measure_gets(&l);
    if (l.file >= 0) {
        (void)close(l.file);
    }
    bench_raw_close(l.raw);
    int closed = bench_close(&l.store, 0);
    bench_place_clear(b, STORE);
    bench_unmap(l.header, 4096);
    bench_unmap(l.other, HELD * block_bytes);
    bench_unmap(l.memory, block_bytes);
    return code != 0 ? code : closed;
}

int bench_latency(bench *b)
{
    static const struct {
        uint64_t block_bytes;
        size_t blocks;
    } sizes[] = {{64 << 10, 1024}, {1 << 20, 256}, {BENCH_BIG, 64}};
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof sizes / sizeof sizes[0]; i++) {
        code = one_size(b, sizes[i].block_bytes, b->quick ? 32 : sizes[i].blocks);
    }
    return code;
}
