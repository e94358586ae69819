/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvonce study: five costs of a cache of KV blocks, measured on this machine with the store's own code.
 * An experiment adds rows; a row is one quantity under some parameters, with its raw samples. Plots and
 * the reading of an experiment are made of its rows alone.
 */
#ifndef CLI_STUDY_H
#define CLI_STUDY_H

#include <stddef.h>
#include <stdint.h>

#include "bench.h"
#include "trace.h"

#define STUDY_PARAMETERS_MAX 4
#define STUDY_RAW_MAX 1000 /* samples that are handed on: of more, evenly spaced ones in order of size */

typedef struct study_parameter {
    const char *name; /* "blocks" */
    double value;
} study_parameter;

typedef struct study_row {
    const char *name;   /* the quantity: "match" */
    const char *series; /* one of several kinds of it: "fused"; NULL = there is one */
    const char *unit;
    study_parameter parameters[STUDY_PARAMETERS_MAX];
    unsigned parameter_count;
    double *samples;     /* sorted; raw_count of the sample_count that were taken */
    size_t raw_count, sample_count;
    uint64_t operations; /* that all samples together rest on; 0 = one each */
    double p50;          /* all of these over all samples, also those that are not handed on */
    double least, most, p25, p75;
    double p99, p999;   /* NAN where samples are too few to tell: below 100, below 1,000 */
    int computed;       /* from a formula, not measured */
    int oversubscribed; /* more threads than processors: they take turns */
    char *missing;      /* why there is no figure; then no samples. The row's own */
} study_row;

typedef struct study_plot {
    const char *title;
    const char *row; /* rows of this name, a line a series */
    const char *x;   /* a parameter */
    const char *split;  /* another one, whose values make lines too; NULL = none */
    const char *only;   /* rows where this parameter has only_value; NULL = all */
    double only_value;
    int log_x, log_y;
} study_plot;
#define STUDY_PLOTS_MAX 4

typedef struct study study;
typedef struct study_experiment {
    const char *name, *title, *method;
    int (*run)(study *s);
    void (*read)(study *s); /* makes the reading, of rows */
    study_plot plots[STUDY_PLOTS_MAX];
} study_experiment;

struct study {
    bench bench; /* work directory, machine */
    int tiny;    /* with bench.quick: to see that all works */
    const char *trace; /* a file, or NULL: one is made */
    cli_trace loaded;  /* what is in it */
    const char *program; /* of this process, for counting under callgrind */
    unsigned cores;
    char options[600]; /* that change figures, as they were given */
    struct study_result {
        study_row *rows;
        size_t row_count, row_room;
        char reading[4096];
        size_t reading_length;
    } results[5], *now; /* now: of the experiment that runs */
};

/* study_rows.c. Texts of a row must be constants, but for why it is missing, which is copied. */
study_row study_row_of(const char *name, const char *series, const char *unit);
void study_parameter_add(study_row *row, const char *name, double value);
/* Takes the samples, which the caller gave up; prints the row. */
void study_add(study *s, study_row row, double *samples, size_t count);
void study_add_one(study *s, study_row row, double value);
void study_add_missing(study *s, study_row row, const char *why);
/* The row of the running experiment with these parameters (name, value, ..., NULL), or NULL. */
const study_row *study_find(const study *s, const char *name, const char *series, ...);
double study_median(const double *values, size_t count);           /* 0 of none */
double study_parameter_of(const study_row *row, const char *name); /* NAN if it has none */
/* " (p99.9 422 ns)", or "" where the samples are too few to tell. Returns `text`. */
#define STUDY_TAIL_TEXT 64
const char *study_tail(const study_row *row, char text[STUDY_TAIL_TEXT]);
/* Adds words to the reading of the running experiment. */
void study_say(study *s, const char *format, ...) CLI_PRINTF(2, 3);

/* The amount for a full run, for a quick one, for one that shows that all works. */
double study_pick(const study *s, double full, double quick, double tiny);
/* After so many threads, how many next: twice as many, but never past the number of processors without a stop there. */
unsigned study_more_threads(const study *s, unsigned threads);

/* study_report.c */
extern const study_experiment study_experiments[5];
/* At once, for what is found out at the end otherwise: whether a file can be written. *made: it is there now, empty. */
int study_try_output(const char *option, const char *path, int *made);
int study_write_json(const study *s, const char *path);
int study_write_html(const study *s, const char *path);
void study_print_row(const study *s, const study_row *row);

/* The experiments. */
int study_lookup(study *s);
void study_lookup_read(study *s);
int study_update(study *s);
void study_update_read(study *s);
int study_sram(study *s);
void study_sram_read(study *s);
int study_sram_load(study *s); /* the trace, before anything is measured: it may be no trace */
int study_coherence(study *s);
void study_coherence_read(study *s);
int study_link(study *s);
void study_link_read(study *s);
/* A store without payloads, and blocks for it: names from number 0 on, in chains of 128. study_lookup.c */
int study_open_ghosts(study *s, const char *name, uint64_t count, bench_store *store);
int study_put_ghosts(bench_store *store, uint64_t count);
/* The part of the first one that runs under callgrind. */
int study_counted_lookups(study *s, uint64_t blocks);

/* Threads that begin together and end when told. study_threads.c */
typedef struct study_worker {
    void (*run)(struct study_worker *worker); /* until study_over() */
    void *context;
    unsigned index;
    unsigned processor; /* runs there, if the machine lets us */
    uint64_t operations;
    double *samples;
    size_t sample_count, sample_room;
    uint64_t offered, random;
    int code;
    struct study_crew *crew;
} study_worker;
/* Runs all of them for so many seconds; *took (may be NULL): how long it was, from the start to the last one's end. */
int study_run_workers(study_worker *workers, size_t count, double seconds, double *took);
int study_over(const study_worker *worker);
/* The number of the n-th that we may use, round and round; negative: not to be known. */
int study_processor(unsigned n);
/* Beyond its room: each value that was offered has the same chance to be among the samples. */
void study_sample(study_worker *worker, double value);

#endif
