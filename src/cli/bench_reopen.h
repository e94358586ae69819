/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_REOPEN_H
#define CLI_BENCH_REOPEN_H

#include "bench.h"

#define BENCH_REOPEN_BYTES 65536u

/* A closed store, and the rows that opening it again adds. */
typedef struct bench_reopening {
    const char *store;
    const char *tiers;
    size_t count;      /* blocks */
    uint64_t *offsets; /* of their slots in `data` */
    const char *scan_row, *checkpoint_row;
    const char *resident_row; /* NULL: none */
    double checkpoint_limit_s; /* NAN: none */
} bench_reopening;

int bench_reopen_measure(bench *b, const bench_reopening *what);

#endif
