/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 200,000 slots of 64 KiB: what they cost in memory, and how long a store takes to find them again,
 * beside reading the same header pages without a store.
 */
#include "bench.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STORE "reopen"
#define BLOCKS 200000u
#define BLOCK_BYTES 65536u
#define FILL_BATCH 256u
#define HEADER_BYTES 4096u
#define ROUNDS 3u

typedef struct reopen {
    bench *b;
    kvo_options options;
    size_t blocks;
    char tiers[64];
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
    (void)snprintf(path, sizeof path, "%s/%s", r->b->directory, STORE);
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
    int code = bench_open(r->b, STORE, r->tiers, &r->options, &store);
    sample->seconds = bench_now() - begin;
    r->resident_bytes = resident_now() - resident;
    if (code != 0) {
        return code;
    }
    int status = kvo_stat_store(store.store, &stat);
    code = status != KVO_OK ? bench_refused("stat", status) : 0;
    if (code == 0 && stat.blocks != r->blocks) {
        code = cli_fail("reopen: %llu blocks of %zu were found", (unsigned long long)stat.blocks, r->blocks);
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
    int code = bench_raw_run(r->raw, r->file, 0, r->headers, r->blocks);
    sample->seconds = bench_now() - begin;
    return code;
}

/* ---- The store ---- */

static int by_place(const void *a, const void *b)
{
    const bench_block *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int find_headers(reopen *r, bench_store *store)
{
    uint8_t *names = cli_alloc(r->blocks, BENCH_NAME_BYTES);
    uint64_t *offsets = cli_alloc(r->blocks, sizeof *offsets);
    bench_names(names, 0, r->blocks);
    int code = bench_offsets(store, names, r->blocks, offsets);
    for (size_t i = 0; i < r->blocks; i++) {
        r->headers[i] = (bench_block){.pieces = {{NULL, HEADER_BYTES}}, .piece_count = 1, .offset = offsets[i]};
    }
    qsort(r->headers, r->blocks, sizeof *r->headers, by_place);
    for (size_t i = 0; i < r->blocks; i++) {
        r->headers[i].pieces[0].iov_base = r->pages + i % BENCH_FLAT_DEPTH * HEADER_BYTES;
    }
    free(offsets);
    free(names);
    return code;
}

static int memory_rows(reopen *r, const bench_store *store)
{
    kvo_stat stat = KVO_STAT_INIT;
    int status = kvo_stat_store(store->store, &stat);
    if (status != KVO_OK) {
        return bench_refused("stat", status);
    }
    bench_count(r->b, "metadata_bytes_per_block", BLOCK_BYTES, "bytes/block",
                (double)stat.control_bytes / (double)stat.blocks, 256.0);
    bench_count(r->b, "control_record_bytes", 0, "bytes", (double)stat.record_bytes, 64.0);
    return 0;
}

static int fill(reopen *r)
{
    bench_store store;
    uint8_t *memory = bench_map((size_t)FILL_BATCH * BLOCK_BYTES);
    int code = bench_open(r->b, STORE, r->tiers, &r->options, &store);
    if (code == 0) {
        code = bench_fill(&store, 0, r->blocks, FILL_BATCH, BLOCK_BYTES, memory);
        code = code != 0 ? code : find_headers(r, &store);
        code = code != 0 ? code : memory_rows(r, &store);
        int closed = bench_close(&store, KVO_FOREVER);
        code = code != 0 ? code : closed;
    }
    bench_unmap(memory, (size_t)FILL_BATCH * BLOCK_BYTES);
    return code;
}

static int measure_all(reopen *r)
{
    const bench_comparison scan = {"reopen_scan", BLOCK_BYTES, "s", 0.0, measure_scan, measure_headers, NAN, r, ROUNDS,
                                   NULL, 0.0};
    const bench_comparison checkpoint = {"reopen_checkpoint", BLOCK_BYTES, "s", 0.0, measure_checkpoint, NULL, 1.0, r,
                                         ROUNDS, NULL, 0.0};
    int code = bench_compare(r->b, &scan);
    if (code == 0) {
        bench_count(r->b, "metadata_resident_bytes_per_block", BLOCK_BYTES, "bytes/block",
                    r->resident_bytes / (double)r->blocks, NAN);
    }
    return code != 0 ? code : bench_compare(r->b, &checkpoint);
}

int bench_reopen(bench *b)
{
    reopen r = {.b = b, .options = KVO_OPTIONS_INIT, .blocks = b->quick ? BLOCKS / 100 : BLOCKS, .file = -1};
    r.options.block_bytes = BLOCK_BYTES;
    (void)snprintf(r.tiers, sizeof r.tiers, "disk:@:%zublk", r.blocks);
    r.headers = cli_alloc(r.blocks, sizeof *r.headers);
    r.pages = bench_map((size_t)BENCH_FLAT_DEPTH * HEADER_BYTES);
    int code = fill(&r);
    r.raw = code == 0 ? bench_raw_open(b, BENCH_FLAT_DEPTH) : NULL;
    r.file = r.raw != NULL ? bench_raw_file(b, STORE, 0) : -1;
    code = code == 0 && r.file < 0 ? CLI_FAIL : code;
    code = code != 0 ? code : measure_all(&r);
    if (r.file >= 0) {
        (void)close(r.file);
    }
    bench_raw_close(r.raw);
    code = code != 0 ? code : bench_mover(b, STORE, r.blocks, BLOCK_BYTES);
    bench_place_clear(b, STORE);
    bench_unmap(r.pages, (size_t)BENCH_FLAT_DEPTH * HEADER_BYTES);
    free(r.headers);
    return code;
}
