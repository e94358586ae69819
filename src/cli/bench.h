/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvonce bench: what the store does, beside what the machine can do, measured in one run.
 * Each part (dram, disk, control, latency, reopen) opens stores of its own in the work
 * directory and adds rows. Functions that return an int return an exit code, 0 for well.
 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common.h"
#include "kvonce.h"

#define BENCH_NAME_BYTES 32
#define BENCH_BIG (5u << 20) /* the block that the bars speak of */
#define BENCH_DEPTH 16       /* transfers at a time, on both sides of a comparison */
#define BENCH_FLAT_DEPTH 64  /* the same for headers alone */

/* NAN stands for what does not apply. value / limit is the ratio, by which is better. */
typedef struct bench_row {
    const char *name;
    uint64_t block_bytes; /* 0: it has none */
    const char *unit;
    double value, limit, ratio;
    double control; /* the limit against itself */
    unsigned rounds;
    int noisy;
} bench_row;

typedef struct bench {
    int full, quick, json;
    char directory[2048]; /* ours: made for this run, removed at its end */
    bench_row *rows;
    size_t row_count, row_room;
    double deadline_s; /* of bench_now(): until then noisy rows are repeated */
    int io_engine, io_registered, direct_io; /* of the last store with a disk */
    const char *raw_engine;
    const char *command; /* "bench" */
    const char *more;    /* its options as they were given; NULL: by the flags above */
} bench;

/* bench_report.c. bench_add() prints the row at once unless it is for JSON. */
void bench_add(bench *b, const bench_row *row);
void bench_heading(const bench *b);
void bench_missed(const bench *b); /* the last line of the table: which bars were missed */
void bench_json(const bench *b);

/* bench_machine.c: each fact as a name and a text or a number. */
typedef struct bench_fact {
    const char *name;
    int is_number;
    uint64_t number;
    char text[512];
} bench_fact;
#define BENCH_FACTS_MAX 24
size_t bench_machine(const bench *b, bench_fact facts[BENCH_FACTS_MAX]);

/* ---- bench_compare.c ---- */

typedef struct bench_sample {
    double seconds;
    double processor_seconds; /* of the process; for comparisons that ask for it */
} bench_sample;

typedef int (*bench_measure)(void *context, unsigned round, bench_sample *sample);

/*
 * Rounds in the order kvonce, limit, limit, kvonce, so that what drifts meets both alike. The row's
 * ratio is the median of the rounds' ratios, its control that of first and second limit. A row whose
 * control is not within 0.95 to 1.05 is repeated while there is time, and else called noisy.
 */
typedef struct bench_comparison {
    const char *name;
    uint64_t block_bytes;
    const char *unit;
    double work;        /* units that one sample does; 0: seconds themselves are the value */
    bench_measure kvonce;
    bench_measure limit; /* NULL: not measured; fixed_limit then */
    double fixed_limit;
    void *context;
    unsigned rounds;
    const char *processor_name; /* a second row, of processor time a block; NULL: none */
    double blocks;              /* of one sample */
} bench_comparison;
int bench_compare(bench *b, const bench_comparison *comparison);

/* Seconds of single operations, and of the limit at the same moments. */
typedef struct bench_times {
    double *values, *limits;
    size_t count, room;
} bench_times;
void bench_times_add(bench_times *times, double value, double limit);

typedef struct bench_timing {
    const char *p50, *p99; /* names of the two rows */
    uint64_t block_bytes;
    int (*measure)(void *context, bench_times *times);
    void *context;
} bench_timing;
/* Rounds of the rows are single operations; the control is every second limit against the others. */
int bench_percentiles(bench *b, const bench_timing *timing);

/* A row that is counted or computed, not timed. */
void bench_count(bench *b, const char *name, uint64_t block_bytes, const char *unit, double value, double limit);

unsigned bench_rounds(const bench *b, int with_bar);
double bench_now(void);           /* seconds */
double bench_processor_now(void); /* of all threads of the process */
double bench_thread_now(void);    /* processor time of this thread */

/* ---- bench_place.c: the work directory, stopping ---- */

/* Makes a directory in `parent` (NULL: $TMPDIR or /var/tmp); it goes at exit, whatever happens. */
int bench_place_make(bench *b, const char *parent);
/* Removes one store's directory below it, files and all. */
void bench_place_clear(const bench *b, const char *store);
/* Bytes that may still be had, also by the limit of our control group (version 2); UINT64_MAX: nobody says. */
uint64_t bench_memory_available(void);
int bench_place_has(const bench *b, uint64_t disk_bytes, uint64_t memory_bytes);
void bench_catch_signals(void);
/* CLI_STOPPED once somebody pressed ctrl-C, or bench_stop() was called, else 0. */
int bench_stopped(void);
void bench_stop(void);

/* ---- bench_store.c: stores and memory to measure on ---- */

typedef struct bench_store {
    kvo_store *store;
    kvo_space space;
} bench_store;

/* `tiers` with @ for this store's directory. options->block_bytes is its largest block. */
int bench_open(bench *b, const char *name, const char *tiers, const kvo_options *options, bench_store *out);
/* The same, but a refusal is the caller's to report: `why` has it in words. */
int bench_try_open(bench *b, const char *name, const char *tiers, const kvo_options *options, bench_store *out,
                   kvo_error *why);
/* A small store tells what a disk tier uses here, and whether it can be had at all. */
int bench_probe(bench *b);
int bench_close(bench_store *store, uint64_t deadline_ns); /* what memory holds goes down if there is time */
int bench_refused(const char *what, int status); /* a call's status that is not KVO_OK */

/* Names number `first` and on; the same number is the same name. */
void bench_names(uint8_t *names, uint64_t first, size_t count);
kvo_names bench_batch(const bench_store *store, const uint8_t *names, size_t count);
/* All blocks must be stored, or be there and arrive; in calls of 512. */
int bench_put(bench_store *store, const uint8_t *names, size_t count, const kvo_segment *segments,
              const kvo_put_options *options);
int bench_get(bench_store *store, const uint8_t *names, size_t count, const kvo_segment *segments,
              const kvo_get_options *options);
/* What lies in memory was put under these names: it must come back. */
int bench_check(bench_store *store, const char *what, const uint8_t *names, size_t count, const kvo_segment *segments,
                uint8_t *memory, size_t bytes);
/* Puts `count` new blocks from name number `first` on, in calls of `batch`, payloads from `memory`. */
int bench_fill(bench_store *store, uint64_t first, size_t count, size_t batch, uint64_t block_bytes,
               uint8_t *memory);
/* Where the blocks lie in the first disk tier's file `data`; all must be there. */
int bench_offsets(bench_store *store, const uint8_t *names, size_t count, uint64_t *offsets);

/* Memory on huge pages where the kernel has them, filled with what does not compress. */
void *bench_map(size_t bytes);
void bench_unmap(void *memory, size_t bytes);
/* count segments of block_bytes, one after the other from `memory`. The caller frees. */
kvo_segment *bench_segments(void *memory, uint64_t block_bytes, size_t count);

/* ---- bench_raw.c: what the device does without a store ---- */

typedef struct bench_block {
    struct iovec pieces[2];
    int piece_count;
    uint64_t offset;
} bench_block;

typedef struct bench_raw bench_raw;
/* io_uring where the kernel allows it, else a thread a transfer. NULL: reported. */
bench_raw *bench_raw_open(bench *b, unsigned depth);
void bench_raw_close(bench_raw *raw);
/* Each block in one vectored request, `depth` of them at a time. */
int bench_raw_run(bench_raw *raw, int file, int write, const bench_block *blocks, size_t count);
/* The file `data` of a store, in the mode that the store has it. Negative: reported. */
int bench_raw_file(const bench *b, const char *store, int write);

/* ---- bench_writer.c: a thread that puts new blocks as fast as the store takes them ---- */

typedef struct bench_writer bench_writer;
/* Names from number `first` on. NULL: reported. */
bench_writer *bench_writer_start(bench_store *store, uint64_t first, uint64_t block_bytes,
                                 const kvo_put_options *options);
uint64_t bench_writer_blocks(const bench_writer *writer); /* put so far */
int bench_writer_wait(const bench_writer *writer, uint64_t blocks); /* until so many are put */
/* Waits for it; *next (may be NULL) is the first name number that it did not use. */
int bench_writer_stop(bench_writer *writer, uint64_t *next);
/* Waits until the store has nothing more to bring down. */
int bench_settle(bench_store *store);

/* ---- The parts ---- */

int bench_dram(bench *b);
int bench_disk(bench *b);
int bench_control(bench *b);
int bench_latency(bench *b);
int bench_reopen(bench *b);
/* On the store of bench_reopen(), grown by some slots: policies while its mover runs. */
int bench_mover(bench *b, const char *name, uint64_t blocks, uint64_t block_bytes);
/* With --full: headers alone in a sparse file. */
int bench_growth(bench *b);

#endif
