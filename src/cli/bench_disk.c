/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A `disk:` store beside the bare device: the same slots of the same preallocated file, header page and
 * payload in one request a block, as many at a time. Raw reads take the blocks that the gets take. Raw
 * writes write again, to slots of earlier puts, what lies there: nothing is lost by that. Both sides take
 * slots in turn, so that none meets what the device has just seen.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STORE "disk"
#define HEADER_BYTES 4096u
#define SETS 6 /* a store holds so many samples' blocks */

typedef struct disk {
    bench *b;
    bench_store store;
    uint64_t block_bytes;
    size_t batch; /* blocks of a sample */
    bench_raw *raw;
    int file;
    uint8_t *memory, *headers, *cold; /* cold: what processor time is compared with a copy from */
    kvo_segment *segments;
    uint8_t *names;
    bench_block *blocks;
    uint64_t *offsets;
    uint64_t next_name;
    size_t raw_writes;
    /* What the store counted while puts, or gets, were measured. */
    uint64_t transfers, submissions, copies, extra_bytes, measured;
} disk;

/* ---- What the store counts ---- */

typedef struct counts {
    uint64_t transfers, submissions, copies, extra_bytes;
} counts;

/* Metadata and padding that crossed the boundary in a direction: 0 read, 1 written. */
static int extra_bytes(const bench_store *s, int direction, uint64_t *bytes)
{
    kvo_ledger_row rows[64];
    size_t count = 0;
    int status = kvo_ledger(s->store, rows, 64, &count);
    *bytes = 0;
    for (size_t i = 0; status == KVO_OK && i < count && i < 64; i++) {
        int extra = rows[i].cause == KVO_CAUSE_METADATA || rows[i].cause == KVO_CAUSE_PADDING;
        *bytes += extra && rows[i].direction == direction ? rows[i].bytes : 0;
    }
    return status == KVO_OK ? 0 : bench_refused("ledger", status);
}

static int take_counts(const bench_store *s, int direction, counts *out)
{
    kvo_stat stat = KVO_STAT_INIT;
    int status = kvo_stat_store(s->store, &stat);
    if (status != KVO_OK) {
        return bench_refused("stat", status);
    }
    *out = (counts){stat.transfers, stat.submissions, stat.payload_copies, 0};
    return extra_bytes(s, direction, &out->extra_bytes);
}

static int count_since(disk *d, int direction, const counts *before)
{
    counts now;
    int code = take_counts(&d->store, direction, &now);
    if (code == 0) {
        d->transfers += now.transfers - before->transfers;
        d->submissions += now.submissions - before->submissions;
        d->copies += now.copies - before->copies;
        d->extra_bytes += now.extra_bytes - before->extra_bytes;
        d->measured += d->batch;
    }
    return code;
}

static void forget_counts(disk *d)
{
    d->transfers = d->submissions = d->copies = d->extra_bytes = d->measured = 0;
}

/* ---- Samples ---- */

/* Names of the sample's blocks; each round has another set of those that are stored. */
static void name_set(disk *d, unsigned round)
{
    uint64_t set = round % (SETS - 1) + 1;
    bench_names(d->names, d->next_name - set * d->batch, d->batch);
}

static int measure_get(void *context, unsigned round, bench_sample *sample)
{
    disk *d = context;
    counts before;
    name_set(d, round);
    int code = take_counts(&d->store, 0, &before);
    double begin = bench_now(), processor = bench_processor_now();
    code = code != 0 ? code : bench_get(&d->store, d->names, d->batch, d->segments, NULL);
    sample->seconds = bench_now() - begin;
    sample->processor_seconds = bench_processor_now() - processor;
    return code != 0 ? code : count_since(d, 0, &before);
}

static int measure_put(void *context, unsigned round, bench_sample *sample)
{
    disk *d = context;
    counts before;
    (void)round;
    bench_names(d->names, d->next_name, d->batch);
    d->next_name += d->batch;
    int code = take_counts(&d->store, 1, &before);
    double begin = bench_now(), processor = bench_processor_now();
    code = code != 0 ? code : bench_put(&d->store, d->names, d->batch, d->segments, NULL);
    sample->seconds = bench_now() - begin;
    sample->processor_seconds = bench_processor_now() - processor;
    return code != 0 ? code : count_since(d, 1, &before);
}

static int find_slots(disk *d)
{
    int code = bench_offsets(&d->store, d->names, d->batch, d->offsets);
    for (size_t i = 0; code == 0 && i < d->batch; i++) {
        d->blocks[i] = (bench_block){.pieces = {{d->headers + i * HEADER_BYTES, HEADER_BYTES},
                                                {d->segments[i].base, d->block_bytes}},
                                     .piece_count = 2,
                                     .offset = d->offsets[i]};
    }
    return code;
}

/* Processor time of a plain copy of the sample's bytes, from and to memory that is in no cache. */
static double copy_seconds(disk *d)
{
    double begin = bench_thread_now();
    for (size_t i = 0; i < d->batch; i++) {
        memcpy(d->cold + i * d->block_bytes, d->segments[i].base, d->block_bytes);
    }
    return bench_thread_now() - begin;
}

static int run_raw(disk *d, int write, bench_sample *sample)
{
    double begin = bench_now();
    int code = bench_raw_run(d->raw, d->file, write, d->blocks, d->batch);
    sample->seconds = bench_now() - begin;
    sample->processor_seconds = copy_seconds(d);
    return code;
}

static int measure_raw_read(void *context, unsigned round, bench_sample *sample)
{
    disk *d = context;
    name_set(d, round);
    int code = find_slots(d);
    return code != 0 ? code : run_raw(d, 0, sample);
}

static int measure_raw_write(void *context, unsigned round, bench_sample *sample)
{
    disk *d = context;
    (void)round;
    d->raw_writes++;
    bench_names(d->names, d->next_name - (2 + d->raw_writes % (SETS - 2)) * d->batch, d->batch);
    int code = find_slots(d);
    for (size_t i = 0; i < d->batch; i++) {
        d->blocks[i].piece_count = 1;
    }
    code = code != 0 ? code : bench_raw_run(d->raw, d->file, 0, d->blocks, d->batch);
    for (size_t i = 0; i < d->batch; i++) {
        d->blocks[i].piece_count = 2;
    }
    return code != 0 ? code : run_raw(d, 1, sample);
}

/* ---- Rows ---- */

static double each(uint64_t total, uint64_t count)
{
    return count != 0 ? (double)total / (double)count : NAN;
}

static void count_rows(disk *d, const char *submissions, const char *copies, const char *extra)
{
    bench_count(d->b, submissions, d->block_bytes, "submissions/block", each(d->submissions, d->transfers), 1.0);
    bench_count(d->b, copies, d->block_bytes, "copies/block", each(d->copies, d->measured), 0.0);
    bench_count(d->b, extra, d->block_bytes, "bytes/block", each(d->extra_bytes, d->measured), HEADER_BYTES);
}

static int compare(disk *d, const char *name, const char *processor_name, bench_measure kvonce, bench_measure limit)
{
    const bench_comparison c = {.name = name,
                                .block_bytes = d->block_bytes,
                                .unit = "bytes/s",
                                .work = (double)(d->batch * d->block_bytes),
                                .kvonce = kvonce,
                                .limit = limit,
                                .context = d,
                                .rounds = bench_rounds(d->b, d->block_bytes == BENCH_BIG),
                                .processor_name = processor_name,
                                .blocks = (double)d->batch};
    forget_counts(d);
    return bench_compare(d->b, &c);
}

/* Memory that no device can reach directly costs a copy, not more. */
static int unaligned(disk *d)
{
    bench_sample sample;
    for (size_t i = 0; i < d->batch; i++) {
        d->segments[i].base = (uint8_t *)d->segments[i].base + 8;
    }
    forget_counts(d);
    int code = measure_put(d, 0, &sample);
    if (code == 0) {
        bench_count(d->b, "disk_put_copies_unaligned", d->block_bytes, "copies/block", each(d->copies, d->measured),
                    1.0);
    }
    forget_counts(d);
    code = code != 0 ? code : measure_get(d, 0, &sample);
    if (code == 0) {
        bench_count(d->b, "disk_get_copies_unaligned", d->block_bytes, "copies/block", each(d->copies, d->measured),
                    1.0);
    }
    return code;
}

/* What the write-out that follows a sample's puts adds: policy pages, ledger, superblock. */
static int write_out(disk *d)
{
    uint64_t before = 0, after = 0;
    bench_sample sample;
    int code = measure_put(d, 0, &sample);
    code = code != 0 ? code : extra_bytes(&d->store, 1, &before);
    int status = code == 0 ? kvo_write_out(d->store.store) : KVO_OK;
    code = status == KVO_OK ? code : bench_refused("write out", status);
    code = code != 0 ? code : extra_bytes(&d->store, 1, &after);
    if (code == 0) {
        bench_count(d->b, "disk_put_write_out_bytes", d->block_bytes, "bytes/block", each(after - before, d->batch),
                    NAN);
    }
    return code;
}

/* What was put before all the raw writes must come back. */
static int check(disk *d)
{
    bench_names(d->names, d->next_name - d->batch, d->batch);
    return bench_check(&d->store, "disk", d->names, d->batch, d->segments, d->memory, d->batch * d->block_bytes);
}

static int measure_all(disk *d)
{
    int code = bench_fill(&d->store, 0, SETS * d->batch, d->batch, d->block_bytes, d->memory);
    d->next_name = SETS * d->batch;
    code = code != 0 ? code : compare(d, "disk_put", "disk_put_cpu", measure_put, measure_raw_write);
    if (code == 0) {
        count_rows(d, "disk_put_submissions", "disk_put_copies", "disk_put_extra_bytes");
    }
    code = code != 0 ? code : write_out(d);
    code = code != 0 ? code : check(d);
    code = code != 0 ? code : compare(d, "disk_get", "disk_get_cpu", measure_get, measure_raw_read);
    if (code == 0) {
        count_rows(d, "disk_get_submissions", "disk_get_copies", "disk_get_extra_bytes");
    }
    return code != 0 ? code : unaligned(d);
}

static int prepare(disk *d)
{
    char tiers[96];
    kvo_options options = KVO_OPTIONS_INIT;
    options.block_bytes = d->block_bytes;
    options.io_threads = BENCH_DEPTH;
    options.flight_bytes = BENCH_DEPTH * d->block_bytes;
    /* Its own row says what a write-out costs; none shall fall into the others. */
    options.write_out_ns = 3600000000000u;
    (void)snprintf(tiers, sizeof tiers, "disk:@:%zublk", SETS * d->batch);
    int code = bench_open(d->b, STORE, tiers, &options, &d->store);
    d->raw = code == 0 ? bench_raw_open(d->b, BENCH_DEPTH) : NULL;
    d->file = d->raw != NULL ? bench_raw_file(d->b, STORE, 1) : -1;
    return d->file >= 0 ? 0 : CLI_FAIL;
}

static int one_size(bench *b, uint64_t block_bytes, size_t batch)
{
    disk d = {.b = b, .block_bytes = block_bytes, .batch = batch, .file = -1};
    size_t bytes = batch * block_bytes;
    d.memory = bench_map(bytes + 4096);
    d.cold = bench_map(bytes);
    d.headers = bench_map(batch * HEADER_BYTES);
    d.segments = bench_segments(d.memory, block_bytes, batch);
    d.names = cli_alloc(batch, BENCH_NAME_BYTES);
    d.blocks = cli_alloc(batch, sizeof *d.blocks);
    d.offsets = cli_alloc(batch, sizeof *d.offsets);
    int code = prepare(&d);
    code = code != 0 ? code : measure_all(&d);
    if (d.file >= 0) {
        (void)close(d.file);
    }
    bench_raw_close(d.raw);
    int closed = bench_close(&d.store, KVO_FOREVER);
    bench_place_clear(b, STORE);
    free(d.segments);
    free(d.names);
    free(d.blocks);
    free(d.offsets);
    bench_unmap(d.headers, batch * HEADER_BYTES);
    bench_unmap(d.cold, bytes);
    bench_unmap(d.memory, bytes + 4096);
    return code != 0 ? code : closed;
}

int bench_disk(bench *b)
{
    static const struct {
        uint64_t block_bytes;
        size_t batch, quick_batch;
    } sizes[] = {{64 << 10, 512, 32}, {1 << 20, 64, 8}, {BENCH_BIG, 32, 4}};
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof sizes / sizeof sizes[0]; i++) {
        code = one_size(b, sizes[i].block_bytes, b->quick ? sizes[i].quick_batch : sizes[i].batch);
    }
    return code;
}
