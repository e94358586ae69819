/* SPDX-License-Identifier: Apache-2.0 */
#include "study.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

study_row study_row_of(const char *name, const char *series, const char *unit)
{
    study_row row = {.name = name, .series = series, .unit = unit, .p50 = NAN, .p99 = NAN, .p999 = NAN};
    row.least = row.most = row.p25 = row.p75 = NAN;
    return row;
}

double study_pick(const study *s, double full, double quick, double tiny)
{
    return s->tiny ? tiny : s->bench.quick ? quick : full;
}

unsigned study_more_threads(const study *s, unsigned threads)
{
    return threads < s->cores && 2 * threads > s->cores ? s->cores : 2 * threads;
}

void study_parameter_add(study_row *row, const char *name, double value)
{
    if (row->parameter_count < STUDY_PARAMETERS_MAX) {
        row->parameters[row->parameter_count++] = (study_parameter){name, value};
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of sorted values, with a straight line between neighbours. */
static double quantile(const double *values, size_t count, double part)
{
    double at = part * (double)(count - 1);
    size_t low = (size_t)at;
    size_t high = low + 1 < count ? low + 1 : low;
    return values[low] + (at - (double)low) * (values[high] - values[low]);
}

double study_median(const double *values, size_t count)
{
    double *sorted = cli_alloc(count, sizeof *sorted), median = 0.0;
    if (count != 0) {
        memcpy(sorted, values, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, by_size);
        median = quantile(sorted, count, 0.5);
    }
    free(sorted);
    return median;
}

static void summarise(study_row *row, const double *sorted, size_t count)
{
    row->least = sorted[0];
    row->p25 = quantile(sorted, count, 0.25);
    row->p50 = quantile(sorted, count, 0.5);
    row->p75 = quantile(sorted, count, 0.75);
    row->p99 = count >= 100 ? quantile(sorted, count, 0.99) : NAN;
    row->p999 = count >= 1000 ? quantile(sorted, count, 0.999) : NAN;
    row->most = sorted[count - 1];
}

static void keep(study *s, const study_row *row)
{
    struct study_result *result = s->now;
    result->rows = cli_grow(result->rows, result->row_count, &result->row_room, sizeof *result->rows);
    result->rows[result->row_count++] = *row;
    study_print_row(s, row);
}

void study_add(study *s, study_row row, double *samples, size_t count)
{
    if (count == 0) {
        free(samples);
        study_add_missing(s, row, "no sample was taken in the time there was");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(samples[i])) {
            free(samples);
            study_add_missing(s, row, "what was counted gives no number: it was divided by nothing");
            return;
        }
    }
    qsort(samples, count, sizeof *samples, by_size);
    summarise(&row, samples, count);
    row.sample_count = count;
    row.raw_count = count < STUDY_RAW_MAX ? count : STUDY_RAW_MAX;
    row.samples = cli_alloc(row.raw_count, sizeof *row.samples);
    for (size_t i = 0; i < row.raw_count; i++) {
        size_t at = row.raw_count > 1 ? i * (count - 1) / (row.raw_count - 1) : 0;
        row.samples[i] = samples[at];
    }
    free(samples);
    keep(s, &row);
}

void study_add_one(study *s, study_row row, double value)
{
    double *sample = cli_alloc(1, sizeof *sample);
    *sample = value;
    study_add(s, row, sample, 1);
}

void study_add_missing(study *s, study_row row, const char *why)
{
    row.missing = cli_alloc(strlen(why) + 1, 1);
    memcpy(row.missing, why, strlen(why));
    keep(s, &row);
}

double study_parameter_of(const study_row *row, const char *name)
{
    for (unsigned i = 0; i < row->parameter_count; i++) {
        if (strcmp(row->parameters[i].name, name) == 0) {
            return row->parameters[i].value;
        }
    }
    return NAN;
}

const char *study_tail(const study_row *row, char text[STUDY_TAIL_TEXT])
{
    text[0] = 0;
    if (!isnan(row->p999)) {
        (void)snprintf(text, STUDY_TAIL_TEXT, " (p99.9 %.0f %s)", row->p999, row->unit);
    }
    return text;
}

static int has_parameters(const study_row *row, va_list list)
{
    const char *name;
    while ((name = va_arg(list, const char *)) != NULL) {
        double value = va_arg(list, double);
        double has = study_parameter_of(row, name);
        if (isnan(has) || isnan(value) || has < value || has > value) {
            return 0;
        }
    }
    return 1;
}

const study_row *study_find(const study *s, const char *name, const char *series, ...)
{
    const study_row *found = NULL;
    for (size_t i = 0; i < s->now->row_count && found == NULL; i++) {
        const study_row *row = &s->now->rows[i];
        if (row->missing != NULL || strcmp(row->name, name) != 0 ||
            (series != NULL && (row->series == NULL || strcmp(row->series, series) != 0))) {
            continue;
        }
        va_list list;
        va_start(list, series);
        found = has_parameters(row, list) ? row : NULL;
        va_end(list);
    }
    return found;
}

void study_say(study *s, const char *format, ...)
{
    struct study_result *result = s->now;
    size_t left = sizeof result->reading - result->reading_length;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(result->reading + result->reading_length, left, format, arguments);
    va_end(arguments);
    result->reading_length += n > 0 ? ((size_t)n < left ? (size_t)n : left - 1) : 0;
}
