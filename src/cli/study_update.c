/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment 2: policies set one by one by several schedulers, while blocks move. First through the store; then on bare
 * tables that hold nothing but the words in question, so that forms can be compared: a record in one cache line,
 * policy and mechanism in tables of their own, plain fields behind one lock.
 */
#include "study.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 65536u
#define HOT 64u
#define NEVER_USED ((uint64_t)1 << 40)

static uint64_t clock_ns; /* that reading the clock adds to a sample: the least that was seen */

static double net_ns(uint64_t begin)
{
    uint64_t took = cli_now_ns() - begin;
    return took > clock_ns ? (double)(took - clock_ns) : 0.0;
}

typedef struct samples {
    double *values;
    size_t count;
    uint64_t operations;
} samples;

/*
 * Adds what workers measured: of each one the same part of its updates, or a slow one's would weigh more than a fast
 * one's. Returns the median of what was added, 0 if nothing was.
 */
static double add_samples(samples *all, const study_worker *workers, unsigned count)
{
    double part = 1.0;
    const size_t before = all->count;
    for (unsigned i = 0; i < count; i++) {
        if (workers[i].offered != 0 && (double)workers[i].sample_count < part * (double)workers[i].offered) {
            part = (double)workers[i].sample_count / (double)workers[i].offered;
        }
        all->operations += workers[i].operations;
    }
    for (unsigned i = 0; i < count; i++) {
        size_t n = (size_t)(part * (double)workers[i].offered + 0.5);
        n = n < workers[i].sample_count ? n : workers[i].sample_count;
        all->values = cli_resize(all->values, all->count + n + 1, sizeof *all->values);
        memcpy(all->values + all->count, workers[i].samples, n * sizeof *all->values);
        all->count += n;
    }
    return study_median(all->values + before, all->count - before);
}

#define SAMPLES 50000u /* of a worker, at most */

static study_worker *new_workers(unsigned count, void (*run)(study_worker *), void *context)
{
    study_worker *workers = cli_alloc(count, sizeof *workers);
    for (unsigned i = 0; i < count; i++) {
        workers[i] = (study_worker){.run = run, .context = context, .index = i, .processor = i};
        workers[i].random = i + 1;
        workers[i].sample_room = SAMPLES;
        workers[i].samples = cli_alloc(SAMPLES, sizeof(double));
    }
    return workers;
}

static void free_workers(study_worker *workers, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        free(workers[i].samples);
    }
    free(workers);
}

/* ---- Through the store ---- */

typedef struct updates {
    bench_store store;
    size_t memory_blocks, blocks; /* whose policies are set; most are on disk alone */
    kvo_handle *handles;
    uint8_t *memory;
    size_t set; /* blocks whose policies are set now, from the first */
    const char *series;
    uint64_t next_name;
} updates;

static const char HOT_SET[] = "hot", COLD_SET[] = "cold", GHOST_SET[] = "cold, no payloads";

static void set_policies(study_worker *worker)
{
    updates *u = worker->context;
    uint64_t random = worker->index + 1;
    while (!study_over(worker) && worker->code == 0) {
        uint64_t draw = cli_random(&random), changed = 0;
        kvo_target target = {.by = KVO_BY_HANDLES, .handles = u->handles + draw % u->set, .handle_count = 1};
        kvo_policy policy = KVO_POLICY_INIT;
        policy.priority = (uint8_t)(51 + (draw >> 32) % 50); /* worth more than what the mover's source puts */
        uint64_t begin = cli_now_ns();
        int status = kvo_policy_set(u->store.store, &target, &policy, KVO_POLICY_ALL, NULL, &changed);
        study_sample(worker, net_ns(begin));
        worker->operations += changed;
        worker->code = status == KVO_OK ? 0 : bench_refused("policy", status);
    }
}

static int find_handles(updates *u)
{
    uint8_t *names = cli_alloc(u->blocks, BENCH_NAME_BYTES);
    kvo_answer *answers = cli_alloc(u->blocks, sizeof *answers);
    bench_names(names, 0, u->blocks);
    kvo_names batch = bench_batch(&u->store, names, u->blocks);
    int status = kvo_exists(u->store.store, &batch, answers);
    u->handles = cli_alloc(u->blocks, sizeof *u->handles);
    for (size_t i = 0; status == KVO_OK && i < u->blocks; i++) {
        u->handles[i] = answers[i].handle;
    }
    free(answers);
    free(names);
    return status == KVO_OK ? 0 : bench_refused("exists", status);
}

static int open_updates(study *s, updates *u)
{
    kvo_options options = KVO_OPTIONS_INIT;
    char tiers[96];
    options.block_bytes = BLOCK_BYTES;
    (void)snprintf(tiers, sizeof tiers, "dram:%zublk,disk:@:%zublk", u->memory_blocks,
                   u->blocks + 4 * u->memory_blocks);
    int code = bench_open(&s->bench, "updates", tiers, &options, &u->store);
    if (code == 0) {
        u->memory = bench_map(16 * BLOCK_BYTES);
        code = bench_fill(&u->store, 0, u->blocks, 16, BLOCK_BYTES, u->memory);
    }
    return code != 0 ? code : find_handles(u);
}

static int time_updates(study *s, updates *u, unsigned threads, int movers)
{
    kvo_put_options put = KVO_PUT_OPTIONS_INIT;
    study_row row = study_row_of("policy_update", u->series, "ns");
    bench_writer *writer = NULL;
    int code = 0;
    put.policy.qos = 0;
    row.oversubscribed = threads + 2 * (unsigned)movers > s->cores; /* the one that puts, and the store's own */
    study_parameter_add(&row, "schedulers", threads);
    study_parameter_add(&row, "movers", movers);
    study_parameter_add(&row, "blocks", (double)u->set);
    if (movers) {
        writer = bench_writer_start(&u->store, u->next_name, BLOCK_BYTES, &put);
        code = writer != NULL ? bench_writer_wait(writer, u->memory_blocks) : CLI_FAIL;
    }
    study_worker *workers = new_workers(threads, set_policies, u);
    code = code != 0 ? code : study_run_workers(workers, threads, study_pick(s, 1.0, 0.3, 0.02), NULL);
    int stopped = writer != NULL ? bench_writer_stop(writer, &u->next_name) : 0;
    code = code != 0 ? code : stopped;
    if (code == 0) {
        samples all = {0};
        (void)add_samples(&all, workers, threads);
        row.operations = all.operations;
        study_add(s, row, all.values, all.count);
    }
    free_workers(workers, threads);
    return code != 0 ? code : bench_settle(&u->store);
}

static int through_store(study *s)
{
    updates u = {.next_name = NEVER_USED};
    u.blocks = (size_t)study_pick(s, 8192, 8192, 1024);
    u.memory_blocks = u.blocks / 8;
    const size_t sets[] = {HOT, u.blocks};
    int code = open_updates(s, &u);
    for (size_t i = 0; code == 0 && i < 2; i++) {
        u.set = sets[i];
        u.series = i == 0 ? HOT_SET : COLD_SET;
        for (int movers = 0; movers < 2; movers++) {
            for (unsigned threads = 1; code == 0 && threads <= 4 * s->cores; threads = study_more_threads(s, threads)) {
                code = time_updates(s, &u, threads, movers);
            }
        }
    }
    int closed = u.store.store != NULL ? bench_close(&u.store, 0) : 0;
    bench_unmap(u.memory, 16 * BLOCK_BYTES);
    free(u.handles);
    bench_place_clear(&s->bench, "updates");
    return code != 0 ? code : closed;
}

/* Many more than caches hold the records of: without payloads, and so without a mover. */
static int through_large_store(study *s)
{
    updates u = {.series = GHOST_SET, .set = (size_t)study_pick(s, 1e6, 1e6, 1e4)};
    u.blocks = u.set;
    int code = study_open_ghosts(s, "ghosts", u.blocks, &u.store);
    if (code != 0) {
        return code;
    }
    code = study_put_ghosts(&u.store, u.blocks);
    code = code != 0 ? code : find_handles(&u);
    for (unsigned threads = 1; code == 0 && threads <= 2 * s->cores; threads = study_more_threads(s, threads)) {
        code = time_updates(s, &u, threads, 0);
    }
    int closed = bench_close(&u.store, 0);
    free(u.handles);
    return code != 0 ? code : closed;
}

/* ---- Bare tables ---- */

typedef enum form { FUSED, SPLIT, PACKED, LOCKED, FORMS } form;
static const char *const form_names[] = {"one line a block", "two lines a block", "packed words", "one lock"};

typedef struct line {
    _Alignas(64) _Atomic uint64_t policy;
    _Atomic uint64_t touch, life, tree;
    _Atomic uint64_t copy[4];
} line;

typedef struct tables {
    form form;
    size_t count;
    line *lines, *other_lines;           /* the others: mechanism, where it has a line of its own */
    _Atomic uint64_t *policies, *copies; /* packed */
    pthread_mutex_t lock;
    unsigned schedulers; /* workers before this one set policies, the others move */
    size_t set;
} tables;

static _Atomic uint64_t *policy_of(tables *t, size_t i)
{
    return t->form == PACKED ? &t->policies[i] : &t->lines[i].policy;
}

static _Atomic uint64_t *copy_of(tables *t, size_t i)
{
    return t->form == PACKED ? &t->copies[i] : t->form == SPLIT ? &t->other_lines[i].copy[0] : &t->lines[i].copy[0];
}

/* Mechanism is read first, as the store does: whether the block is there, and in which incarnation. */
static void scheduler_step(tables *t, size_t i, uint64_t value)
{
    _Atomic uint64_t *policy = policy_of(t, i), *copy = copy_of(t, i);
    if (t->form == LOCKED) {
        (void)pthread_mutex_lock(&t->lock);
        if (atomic_load_explicit(copy, memory_order_relaxed) != UINT64_MAX) {
            atomic_store_explicit(policy, value, memory_order_relaxed);
        }
        (void)pthread_mutex_unlock(&t->lock);
        return;
    }
    uint64_t old = atomic_load_explicit(policy, memory_order_acquire);
    if (atomic_load_explicit(copy, memory_order_acquire) != UINT64_MAX) {
        while (!atomic_compare_exchange_weak(policy, &old, value)) {
            continue;
        }
    }
}

/* Reads the policy to decide, then pins the copy and lets it go. */
static uint64_t mover_step(tables *t, size_t i)
{
    _Atomic uint64_t *policy = policy_of(t, i), *copy = copy_of(t, i);
    if (t->form == LOCKED) {
        (void)pthread_mutex_lock(&t->lock);
        uint64_t seen = atomic_load_explicit(policy, memory_order_relaxed);
        atomic_store_explicit(copy, atomic_load_explicit(copy, memory_order_relaxed) + 2, memory_order_relaxed);
        (void)pthread_mutex_unlock(&t->lock);
        return seen;
    }
    uint64_t seen = atomic_load_explicit(policy, memory_order_acquire);
    (void)atomic_fetch_add(copy, 1);
    (void)atomic_fetch_add(copy, 1);
    return seen;
}

#define ROUNDS_MAX 5
#define STEPS 32 /* of one sample: short against the clock otherwise */

/* One of so many, without a division. */
static size_t draw_below(uint64_t draw, size_t count)
{
    return (size_t)((draw >> 32) * count >> 32);
}

static void work_on_tables(study_worker *worker)
{
    tables *t = worker->context;
    uint64_t random = worker->index + 1, seen = 0;
    int schedules = worker->index < t->schedulers;
    while (!study_over(worker)) {
        uint64_t begin = cli_now_ns();
        for (int k = 0; k < STEPS; k++) {
            uint64_t draw = cli_random(&random);
            if (schedules) {
                scheduler_step(t, draw_below(draw, t->set), draw >> 1);
            } else {
                seen += mover_step(t, draw_below(draw, t->set));
            }
        }
        double ns = net_ns(begin) / STEPS;
        if (schedules) {
            study_sample(worker, ns);
        }
        worker->operations += STEPS;
    }
    worker->operations += seen == 1; /* or the loads might be left out */
}

/* What the forms took in all rounds together, and the median of each round. */
typedef struct form_times {
    samples all;
    double medians[ROUNDS_MAX];
} form_times;

static int time_form(tables *t, form f, unsigned schedulers, unsigned movers, double seconds, form_times *times,
                     unsigned round)
{
    study_worker *workers = new_workers(schedulers + movers, work_on_tables, t);
    t->form = f;
    t->schedulers = schedulers;
    int code = study_run_workers(workers, schedulers + movers, seconds, NULL);
    if (code == 0) {
        times->medians[round] = add_samples(&times->all, workers, schedulers);
    }
    free_workers(workers, schedulers + movers);
    return code;
}

static study_row form_row(const study *s, const tables *t, const char *name, form f, unsigned schedulers,
                          unsigned movers)
{
    study_row row = study_row_of(name, form_names[f], "ns");
    row.oversubscribed = schedulers + movers > s->cores;
    study_parameter_add(&row, "schedulers", schedulers);
    study_parameter_add(&row, "movers", movers);
    study_parameter_add(&row, "blocks", (double)t->set);
    return row;
}

/* All forms in turn, and again: what drifts meets all alike, and the rounds say how far medians are to be trusted. */
static int time_forms(study *s, tables *t, unsigned schedulers, unsigned movers)
{
    const unsigned rounds = (unsigned)study_pick(s, ROUNDS_MAX, 3, 2);
    const double seconds = study_pick(s, 0.5, 0.15, 0.01) / rounds;
    form_times *times = cli_alloc(FORMS, sizeof *times);
    int code = 0;
    for (unsigned round = 0; code == 0 && round < rounds; round++) {
        for (unsigned i = 0; code == 0 && i < FORMS; i++) {
            const form f = (form)((i + round) % FORMS);
            code = time_form(t, f, schedulers, movers, seconds, &times[f], round);
        }
    }
    for (unsigned f = 0; f < FORMS; f++) {
        if (code != 0) {
            free(times[f].all.values);
            continue;
        }
        study_row row =
            form_row(s, t, t->set == HOT ? "table_update_hot" : "table_update", (form)f, schedulers, movers);
        row.operations = times[f].all.operations;
        study_add(s, row, times[f].all.values, times[f].all.count);
        double *medians = cli_alloc(rounds, sizeof *medians);
        memcpy(medians, times[f].medians, rounds * sizeof *medians);
        row = form_row(s, t, t->set == HOT ? "table_rounds_hot" : "table_rounds", (form)f, schedulers, movers);
        row.operations = times[f].all.operations;
        study_add(s, row, medians, rounds);
    }
    free(times);
    return code;
}

static line *new_lines(size_t count)
{
    line *lines = aligned_alloc(64, count * sizeof *lines);
    if (lines == NULL) {
        exit(cli_fail("out of memory (%zu bytes)", count * sizeof *lines));
    }
    return memset(lines, 0, count * sizeof *lines);
}

static int bare_tables(study *s)
{
    tables t = {.count = (size_t)study_pick(s, 1e6, 1e5, 1e4)};
    const size_t sets[] = {HOT, t.count};
    int code = 0;
    t.lines = new_lines(t.count);
    t.other_lines = new_lines(t.count);
    t.policies = cli_alloc(t.count, sizeof *t.policies);
    t.copies = cli_alloc(t.count, sizeof *t.copies);
    (void)pthread_mutex_init(&t.lock, NULL);
    for (size_t i = 0; i < 2; i++) {
        t.set = sets[i];
        for (unsigned threads = 1; code == 0 && threads <= 2 * s->cores; threads = study_more_threads(s, threads)) {
            code = time_forms(s, &t, threads, 0);
            code = code != 0 ? code : time_forms(s, &t, threads, 1);
        }
    }
    (void)pthread_mutex_destroy(&t.lock);
    free(t.copies);
    free(t.policies);
    free(t.other_lines);
    free(t.lines);
    return code;
}

/* ---- The instrument ---- */

#define LOOKS 10000

static int measure_instrument(study *s)
{
    study_row row = study_row_of("clock", NULL, "ns");
    double *clock = cli_alloc(LOOKS, sizeof *clock), *steps = cli_alloc(LOOKS, sizeof *steps);
    uint64_t random = 1;
    volatile uint64_t sink = 0; /* or nothing would be drawn */
    clock_ns = UINT64_MAX;
    for (size_t i = 0; i < LOOKS; i++) {
        uint64_t begin = cli_now_ns(), took = cli_now_ns() - begin;
        clock[i] = (double)took;
        clock_ns = took < clock_ns ? took : clock_ns;
    }
    for (size_t i = 0; i < LOOKS; i++) {
        uint64_t begin = cli_now_ns(), sum = 0;
        for (int k = 0; k < STEPS; k++) {
            sum ^= draw_below(cli_random(&random), HOT);
        }
        sink = sum;
        steps[i] = net_ns(begin) / STEPS;
    }
    study_add(s, row, clock, LOOKS);
    row.name = "table_step_alone";
    row.operations = (uint64_t)LOOKS * STEPS;
    study_add(s, row, steps, LOOKS);
    return sink > HOT; /* never */
}

int study_update(study *s)
{
    int code = measure_instrument(s);
    code = code != 0 ? code : through_store(s);
    code = code != 0 ? code : through_large_store(s);
    return code != 0 ? code : bare_tables(s);
}

/* ---- Reading ---- */

/* -1: each round of a was faster than any of b; 1: the other way; 0: neither, rounds differ as much as the forms. */
static int compare_rounds(const study_row *a, const study_row *b)
{
    return a->most < b->least ? -1 : a->least > b->most ? 1 : 0;
}

static void say_which(study *s, const study_row *rounds[FORMS])
{
    const int split = compare_rounds(rounds[FUSED], rounds[SPLIT]);
    const int packed = compare_rounds(rounds[PACKED], rounds[FUSED]),
              both = compare_rounds(rounds[PACKED], rounds[SPLIT]);
    study_say(s, "Over %zu rounds ", rounds[FUSED]->sample_count);
    study_say(s, "%s, ",
              split < 0   ? "one line beats two"
              : split > 0 ? "two lines beat one"
                          : "one line and two overlap, so neither beats the other");
    study_say(s, "and packed words %s. ",
              packed < 0 && both < 0   ? "beat both"
              : packed > 0 && both > 0 ? "are slower than both"
              : packed < 0             ? "beat one line, not two"
              : packed > 0             ? "are slower than one line, not than two"
                                       : "are not to be told from one line");
}

static void say_set(study *s, const char *update, const char *round, unsigned schedulers, double set)
{
    const study_row *forms[FORMS], *rounds[FORMS];
    char count[CLI_COUNT_TEXT];
    for (int f = 0; f < FORMS; f++) {
        forms[f] =
            study_find(s, update, form_names[f], "schedulers", (double)schedulers, "movers", 1.0, "blocks", set, NULL);
        rounds[f] =
            study_find(s, round, form_names[f], "schedulers", (double)schedulers, "movers", 1.0, "blocks", set, NULL);
        if (forms[f] == NULL || rounds[f] == NULL) {
            return;
        }
    }
    study_say(s,
              "%u scheduler%s and a mover on the same %s blocks%s: an update of a bare table takes %.1f ns where a "
              "block's policy and mechanism share a line, %.1f ns where each has a line of its own, %.1f ns where "
              "words are packed eight to a line, and %.1f ns behind one lock",
              schedulers, schedulers == 1 ? "" : "s", cli_count_text((uint64_t)set, count),
              forms[FUSED]->oversubscribed ? ", which take turns on one processor" : "", forms[FUSED]->p50,
              forms[SPLIT]->p50, forms[PACKED]->p50, forms[LOCKED]->p50);
    if (!isnan(forms[LOCKED]->p999)) {
        study_say(s, " (p99.9, of means of %d updates: %.0f, %.0f, %.0f and %.0f ns)", STEPS, forms[FUSED]->p999,
                  forms[SPLIT]->p999, forms[PACKED]->p999, forms[LOCKED]->p999);
    }
    study_say(s, ". ");
    say_which(s, rounds);
}

void study_update_read(study *s)
{
    const study_row *alone = study_find(s, "policy_update", "cold", "schedulers", 1.0, "movers", 0.0, NULL);
    const study_row *moved = study_find(s, "policy_update", "cold", "schedulers", 1.0, "movers", 1.0, NULL);
    const study_row *step = study_find(s, "table_step_alone", NULL, NULL);
    const study_row *large = study_find(s, "policy_update", GHOST_SET, "schedulers", 1.0, NULL);
    char one[STUDY_TAIL_TEXT], two[STUDY_TAIL_TEXT], count[CLI_COUNT_TEXT];
    unsigned schedulers = 1; /* as many as have a processor each, and the mover one */
    while (study_more_threads(s, schedulers) + 1 <= s->cores) {
        schedulers = study_more_threads(s, schedulers);
    }
    if (alone != NULL && moved != NULL) {
        study_say(s,
                  "A call that sets one policy takes %.0f ns%s with one scheduler, and %.0f ns%s while the mover "
                  "brings blocks down and another thread puts new ones%s. ",
                  alone->p50, study_tail(alone, one), moved->p50, study_tail(moved, two),
                  moved->oversubscribed ? ", more threads than processors" : "");
    }
    if (large != NULL) {
        (void)cli_count_text((uint64_t)study_parameter_of(large, "blocks"), count);
        study_say(s, "Among %s blocks without payloads, whose records alone are %.1f MiB, it takes %.0f ns%s. ", count,
                  study_parameter_of(large, "blocks") * 64.0 / 1048576.0, large->p50, study_tail(large, one));
    }
    say_set(s, "table_update", "table_rounds", schedulers, study_pick(s, 1e6, 1e5, 1e4));
    say_set(s, "table_update_hot", "table_rounds_hot", schedulers, HOT);
    if (step != NULL) {
        study_say(s, "Of each update of a bare table, %.1f ns are the draw of its block. ", step->p50);
    }
    study_say(s,
              "Where there are more threads than processors (%u here) they take turns: p99.9 then is the length of a "
              "turn, not the cost of an update.",
              s->cores);
}
