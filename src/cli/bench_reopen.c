/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 200,000 slots of 64 KiB: what they cost in memory, and how long a store takes to find them again,
 * beside reading the same header pages without a store.
 */
#include "bench.h"
#include "bench_reopen.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STORE "reopen"
#define BLOCKS 200000u
#define FILL_BATCH 256u
#define HEADER_BYTES 4096u
#define ROUNDS 3u
#define MOVER_S 40.0 /* at the end, for the policies beside a mover */

typedef struct reopen {
    bench *b;
    const bench_reopening *what;
    kvo_options options;
    bench_raw *raw;
    int file;
    bench_block *headers; /* in order of place */
    uint8_t *pages;
    double resident_bytes; /* what the last opening added to the process */
} reopen;

/* ---- The directory ---- */

/* Each file of the store. */
static void each_file(const reopen *r, void (*visit)(int directory, const char *name))
{
    char path[sizeof r->b->directory + 64];
    (void)snprintf(path, sizeof path, "%s/%s", r->b->directory, r->what->store);
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.') {
            visit(dirfd(directory), entry->d_name);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

static void remove_checkpoint(int directory, const char *name)
{
    if (strncmp(name, "checkpoint", strlen("checkpoint")) == 0) {
        (void)unlinkat(directory, name, 0);
    }
}

/* So that it comes from the disk, as after a restart of the machine. */
static void forget_cached(int directory, const char *name)
{
    int file = openat(directory, name, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        (void)close(file);
    }
}

static double resident_now(void)
{
    unsigned long long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        (void)fscanf(file, "%llu %llu", &all, &resident);
        (void)fclose(file);
    }
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

/* ---- Samples ---- */

static int open_once(reopen *r, bench_sample *sample)
{
    bench_store store;
    kvo_stat stat = KVO_STAT_INIT;
    each_file(r, forget_cached);
    double resident = resident_now();
    double begin = bench_now();
    int code = bench_open(r->b, r->what->store, r->what->tiers, &r->options, &store);
    sample->seconds = bench_now() - begin;
    r->resident_bytes = resident_now() - resident;
    if (code != 0) {
        return code;
    }
    int status = kvo_stat_store(store.store, &stat);
    code = status != KVO_OK ? bench_refused("stat", status) : 0;
    if (code == 0 && stat.blocks != r->what->count) {
        code = cli_fail("reopen: %llu blocks of %zu were found", (unsigned long long)stat.blocks, r->what->count);
    }
    int closed = bench_close(&store, KVO_FOREVER);
    return code != 0 ? code : closed;
}

static int measure_scan(void *context, unsigned round, bench_sample *sample)
{
    reopen *r = context;
    (void)round;
    each_file(r, remove_checkpoint);
    return open_once(r, sample);
}

static int measure_checkpoint(void *context, unsigned round, bench_sample *sample)
{
    (void)round;
    return open_once(context, sample);
}

static int measure_headers(void *context, unsigned round, bench_sample *sample)
{
    reopen *r = context;
    (void)round;
    double begin = bench_now();
    int code = bench_raw_run(r->raw, r->file, 0, r->headers, r->what->count);
    sample->seconds = bench_now() - begin;
    return code;
}

/* ---- Both ways of opening ---- */

static int by_place(const void *a, const void *b)
{
    const bench_block *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void list_headers(reopen *r)
{
    for (size_t i = 0; i < r->what->count; i++) {
        r->headers[i] = (bench_block){.piece_count = 1, .offset = r->what->offsets[i]};
    }
    qsort(r->headers, r->what->count, sizeof *r->headers, by_place);
    for (size_t i = 0; i < r->what->count; i++) {
        uint8_t *page = r->pages + i % BENCH_FLAT_DEPTH * HEADER_BYTES;
        r->headers[i].pieces[0] = (struct iovec){page, HEADER_BYTES};
    }
}

static int measure_both(reopen *r)
{
    const bench_reopening *w = r->what;
    const bench_comparison scan = {w->scan_row, BENCH_REOPEN_BYTES, "s", 0.0, measure_scan, measure_headers, NAN, r,
                                   ROUNDS, NULL, 0.0};
    const bench_comparison checkpoint = {w->checkpoint_row, BENCH_REOPEN_BYTES, "s", 0.0, measure_checkpoint, NULL,
                                         w->checkpoint_limit_s, r, ROUNDS, NULL, 0.0};
    int code = bench_compare(r->b, &scan);
    if (code == 0 && w->resident_row != NULL) {
        bench_count(r->b, w->resident_row, BENCH_REOPEN_BYTES, "bytes/block", r->resident_bytes / (double)w->count,
                    NAN);
    }
    return code != 0 ? code : bench_compare(r->b, &checkpoint);
}

int bench_reopen_measure(bench *b, const bench_reopening *what)
{
    reopen r = {.b = b, .what = what, .options = KVO_OPTIONS_INIT, .file = -1};
    r.options.block_bytes = BENCH_REOPEN_BYTES;
    r.headers = cli_alloc(what->count, sizeof *r.headers);
    r.pages = bench_map((size_t)BENCH_FLAT_DEPTH * HEADER_BYTES);
    list_headers(&r);
    r.raw = bench_raw_open(b, BENCH_FLAT_DEPTH);
    r.file = r.raw != NULL ? bench_raw_file(b, what->store, 0) : -1;
    int code = r.file < 0 ? CLI_FAIL : measure_both(&r);
    if (r.file >= 0) {
        (void)close(r.file);
    }
    bench_raw_close(r.raw);
    bench_unmap(r.pages, (size_t)BENCH_FLAT_DEPTH * HEADER_BYTES);
    free(r.headers);
    return code;
}

/* ---- The store of 200,000 blocks ---- */

static int memory_rows(bench *b, const bench_store *store)
{
    kvo_stat stat = KVO_STAT_INIT;
    int status = kvo_stat_store(store->store, &stat);
    if (status != KVO_OK) {
        return bench_refused("stat", status);
    }
    bench_count(b, "metadata_bytes_per_block", BENCH_REOPEN_BYTES, "bytes/block",
                (double)stat.control_bytes / (double)stat.blocks, 256.0);
    bench_count(b, "control_record_bytes", 0, "bytes", (double)stat.record_bytes, 64.0);
    return 0;
}

static int fill(bench *b, const bench_reopening *what)
{
    bench_store store;
    kvo_options options = KVO_OPTIONS_INIT;
    options.block_bytes = BENCH_REOPEN_BYTES;
    int code = bench_open(b, STORE, what->tiers, &options, &store);
    if (code != 0) {
        return code;
    }
    uint8_t *memory = bench_map((size_t)FILL_BATCH * BENCH_REOPEN_BYTES);
    uint8_t *names = cli_alloc(what->count, BENCH_NAME_BYTES);
    bench_names(names, 0, what->count);
    code = bench_fill(&store, 0, what->count, FILL_BATCH, BENCH_REOPEN_BYTES, memory);
    code = code != 0 ? code : bench_offsets(&store, names, what->count, what->offsets);
    code = code != 0 ? code : memory_rows(b, &store);
    free(names);
    bench_unmap(memory, (size_t)FILL_BATCH * BENCH_REOPEN_BYTES);
    int closed = bench_close(&store, KVO_FOREVER);
    return code != 0 ? code : closed;
}

int bench_reopen(bench *b)
{
    char tiers[64];
    bench_reopening what = {.store = STORE,
                            .tiers = tiers,
                            .count = b->quick ? BLOCKS / 100 : BLOCKS,
                            .scan_row = "reopen_scan",
                            .checkpoint_row = "reopen_checkpoint",
                            .resident_row = "metadata_resident_bytes_per_block",
                            .checkpoint_limit_s = 1.0};
    (void)snprintf(tiers, sizeof tiers, "disk:@:%zublk", what.count);
    what.offsets = cli_alloc(what.count, sizeof *what.offsets);
    int code = fill(b, &what);
    b->deadline_s -= MOVER_S;
    code = code != 0 ? code : bench_reopen_measure(b, &what);
    b->deadline_s += MOVER_S;
    code = code != 0 ? code : bench_mover(b, STORE, what.count, BENCH_REOPEN_BYTES);
    free(what.offsets);
    bench_place_clear(b, STORE);
    return code;
}
