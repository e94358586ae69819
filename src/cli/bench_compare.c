/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRIES 3
#define QUIET_LOW 0.95
#define QUIET_HIGH 1.05

static double clock_s(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double bench_now(void)
{
    return clock_s(CLOCK_MONOTONIC);
}

double bench_processor_now(void)
{
    return clock_s(CLOCK_PROCESS_CPUTIME_ID);
}

double bench_thread_now(void)
{
    return clock_s(CLOCK_THREAD_CPUTIME_ID);
}

unsigned bench_rounds(const bench *b, int with_bar)
{
    return b->quick ? 3 : with_bar ? 15 : 5;
}

/* ---- Statistics ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static double quantile(double *values, size_t count, double part)
{
    if (count == 0) {
        return NAN;
    }
    qsort(values, count, sizeof *values, by_size);
    double at = part * (double)(count - 1);
    size_t low = (size_t)at;
    size_t high = low + 1 < count ? low + 1 : low;
    return values[low] + (at - (double)low) * (values[high] - values[low]);
}

static int is_quiet(double control)
{
    return isnan(control) || (control >= QUIET_LOW && control <= QUIET_HIGH);
}

static double distance(double control)
{
    return isnan(control) ? 0.0 : fabs(log(control));
}

/* ---- Rounds ---- */

typedef struct series {
    unsigned rounds;
    double *kvonce, *limit; /* two a round */
    double *scratch;
} series;

static series series_new(unsigned rounds)
{
    series s = {rounds, NULL, NULL, NULL};
    s.kvonce = cli_alloc(2 * rounds, sizeof(double));
    s.limit = cli_alloc(2 * rounds, sizeof(double));
    s.scratch = cli_alloc(2 * rounds, sizeof(double));
    return s;
}

static void series_free(series *s)
{
    free(s->kvonce);
    free(s->limit);
    free(s->scratch);
}

static double median_of(const series *s, const double *values)
{
    memcpy(s->scratch, values, 2 * s->rounds * sizeof(double));
    return quantile(s->scratch, 2 * s->rounds, 0.5);
}

/* Of the rounds' quotients: kvonce to limit, or first to second limit. */
static double median_ratio(const series *s)
{
    for (unsigned i = 0; i < s->rounds; i++) {
        s->scratch[i] = (s->kvonce[2 * i] + s->kvonce[2 * i + 1]) / (s->limit[2 * i] + s->limit[2 * i + 1]);
    }
    return quantile(s->scratch, s->rounds, 0.5);
}

static double median_control(const series *s)
{
    for (unsigned i = 0; i < s->rounds; i++) {
        s->scratch[i] = s->limit[2 * i] / s->limit[2 * i + 1];
    }
    return quantile(s->scratch, s->rounds, 0.5);
}

static int run_rounds(const bench_comparison *c, series *seconds, series *processor)
{
    static const int order[] = {0, 1, 1, 0}; /* 1: the limit */
    for (unsigned round = 0; round < c->rounds; round++) {
        size_t done[2] = {0, 0};
        for (int i = 0; i < 4; i++) {
            int side = order[i];
            bench_measure measure = side ? c->limit : c->kvonce;
            bench_sample sample = {0.0, 0.0};
            if (measure == NULL) {
                continue;
            }
            int code = bench_stopped();
            code = code != 0 ? code : measure(c->context, round, &sample);
            if (code != 0) {
                return code;
            }
            size_t at = 2 * round + done[side]++;
            (side ? seconds->limit : seconds->kvonce)[at] = sample.seconds;
            (side ? processor->limit : processor->kvonce)[at] = sample.processor_seconds;
        }
    }
    return 0;
}

/* ---- Rows ---- */

static bench_row seconds_row(const bench_comparison *c, const series *s)
{
    bench_row row = {c->name, c->block_bytes, c->unit, NAN, NAN, NAN, NAN, c->rounds, 0};
    double value = median_of(s, s->kvonce);
    row.value = c->work > 0.0 ? c->work / value : value;
    if (c->limit == NULL) {
        row.limit = c->fixed_limit;
        row.ratio = row.value / row.limit;
        return row;
    }
    double limit = median_of(s, s->limit);
    row.limit = c->work > 0.0 ? c->work / limit : limit;
    row.ratio = c->work > 0.0 ? 1.0 / median_ratio(s) : median_ratio(s);
    row.control = median_control(s);
    row.noisy = !is_quiet(row.control);
    return row;
}

static bench_row processor_row(const bench_comparison *c, const series *s)
{
    bench_row row = {c->processor_name, c->block_bytes, "s", NAN, NAN, NAN, NAN, c->rounds, 0};
    row.value = median_of(s, s->kvonce) / c->blocks;
    row.limit = median_of(s, s->limit) / c->blocks;
    row.ratio = median_ratio(s);
    row.control = median_control(s);
    row.noisy = !is_quiet(row.control);
    return row;
}

/* Of two tries the quieter one, by its control; never by its result. */
static void take_quieter(bench_row *row, const bench_row *again)
{
    if (row->name == NULL || (row->noisy && distance(again->control) < distance(row->control))) {
        *row = *again;
    }
}

/* Whether there is time to do again what took so long. */
static int may_repeat(const bench *b, int try, double took)
{
    return try + 1 < TRIES && bench_now() + took < b->deadline_s;
}

int bench_compare(bench *b, const bench_comparison *c)
{
    bench_row row = {0}, processor_time = {0};
    series seconds = series_new(c->rounds), processor = series_new(c->rounds);
    int code = 0;
    for (int try = 0; code == 0 && try < TRIES; try++) {
        double begin = bench_now();
        code = run_rounds(c, &seconds, &processor);
        if (code != 0) {
            break;
        }
        bench_row again = seconds_row(c, &seconds);
        take_quieter(&row, &again);
        if (c->processor_name != NULL) {
            again = processor_row(c, &processor);
            take_quieter(&processor_time, &again);
        }
        if ((!row.noisy && !processor_time.noisy) || !may_repeat(b, try, bench_now() - begin)) {
            break;
        }
    }
    if (code == 0) {
        bench_add(b, &row);
    }
    if (code == 0 && c->processor_name != NULL) {
        bench_add(b, &processor_time);
    }
    series_free(&seconds);
    series_free(&processor);
    return code;
}

/* ---- Single operations ---- */

void bench_times_add(bench_times *times, double value, double limit)
{
    if (times->count == times->room) {
        times->room = times->room != 0 ? 2 * times->room : 1024;
        times->values = cli_resize(times->values, times->room, sizeof(double));
        times->limits = cli_resize(times->limits, times->room, sizeof(double));
    }
    times->values[times->count] = value;
    times->limits[times->count++] = limit;
}

static double part_of(const double *values, size_t first, size_t step, size_t count, double part)
{
    double *some = cli_alloc(count, sizeof *some);
    size_t n = 0;
    for (size_t i = first; i < count; i += step) {
        some[n++] = values[i];
    }
    double value = quantile(some, n, part);
    free(some);
    return value;
}

static bench_row times_row(const bench_timing *t, const char *name, double part, const bench_times *times)
{
    bench_row row = {name, t->block_bytes, "s", NAN, NAN, NAN, NAN, (unsigned)times->count, 0};
    row.value = part_of(times->values, 0, 1, times->count, part);
    row.limit = part_of(times->limits, 0, 1, times->count, part);
    row.ratio = row.value / row.limit;
    row.control = part_of(times->limits, 0, 2, times->count, part) / part_of(times->limits, 1, 2, times->count, part);
    row.noisy = !is_quiet(row.control);
    return row;
}

int bench_percentiles(bench *b, const bench_timing *t)
{
    bench_row p50 = {0}, p99 = {0};
    int code = 0;
    for (int try = 0; code == 0 && try < TRIES; try++) {
        bench_times times = {0};
        double begin = bench_now();
        code = t->measure(t->context, &times);
        bench_row again = times_row(t, t->p50, 0.5, &times);
        take_quieter(&p50, &again);
        again = times_row(t, t->p99, 0.99, &times);
        take_quieter(&p99, &again);
        free(times.values);
        free(times.limits);
        if ((!p50.noisy && !p99.noisy) || !may_repeat(b, try, bench_now() - begin)) {
            break;
        }
    }
    if (code == 0) {
        bench_add(b, &p50);
        bench_add(b, &p99);
    }
    return code;
}

void bench_count(bench *b, const char *name, uint64_t block_bytes, const char *unit, double value, double limit)
{
    bench_row row = {name, block_bytes, unit, value, limit, limit > 0.0 ? value / limit : NAN, NAN, 1, 0};
    bench_add(b, &row);
}
