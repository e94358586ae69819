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

static double clock_cost; /* seconds that taking the time adds to a sample */

static void learn_clock_cost(void)
{
    double least = 1.0;
    for (int i = 0; i < 10000; i++) {
        double begin = bench_now(), took = bench_now() - begin;
        least = took < least && took > 0.0 ? took : least;
    }
    clock_cost = least < 1e-6 ? least : 0.0;
}

static double net_ns(double begin)
{
    double seconds = bench_now() - begin - clock_cost;
    return seconds > 0.0 ? seconds * 1e9 : 0.0;
}

/* One row of all workers' samples. */
static void add_workers(study *s, study_row row, study_worker *workers, unsigned count)
{
    double *all = NULL;
    size_t n = 0;
    for (unsigned i = 0; i < count; i++) {
        all = cli_resize(all, n + workers[i].sample_count + 1, sizeof *all);
        memcpy(all + n, workers[i].samples, workers[i].sample_count * sizeof *all);
        n += workers[i].sample_count;
        row.operations += workers[i].operations;
    }
    study_add(s, row, all, n);
}

#define SAMPLES 50000u /* a worker */

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
    uint64_t next_name;
} updates;

static void set_policies(study_worker *worker)
{
    updates *u = worker->context;
    uint64_t random = worker->index + 1;
    while (!study_over(worker) && worker->code == 0) {
        uint64_t draw = cli_random(&random), changed = 0;
        kvo_target target = {.by = KVO_BY_HANDLES, .handles = u->handles + draw % u->set, .handle_count = 1};
        kvo_policy policy = KVO_POLICY_INIT;
        policy.priority = (uint8_t)(51 + (draw >> 32) % 50); /* worth more than what the mover's source puts */
        double begin = bench_now();
        int status = kvo_policy_set(u->store.store, &target, &policy, KVO_POLICY_ALL, NULL, &changed);
        study_sample(worker, net_ns(begin));
        worker->operations += changed;
        worker->code = status == KVO_OK ? 0 : bench_refused("policy", status);
    }
}

static int open_updates(study *s, updates *u)
{
    kvo_options options = KVO_OPTIONS_INIT;
    char tiers[96];
    uint8_t *names = cli_alloc(u->blocks, BENCH_NAME_BYTES);
    kvo_answer *answers = cli_alloc(u->blocks, sizeof *answers);
    options.block_bytes = BLOCK_BYTES;
    (void)snprintf(tiers, sizeof tiers, "dram:%zublk,disk:@:%zublk", u->memory_blocks,
                   u->blocks + 4 * u->memory_blocks);
    int code = bench_open(&s->bench, "updates", tiers, &options, &u->store);
    if (code == 0) {
        u->memory = bench_map(16 * BLOCK_BYTES);
        code = bench_fill(&u->store, 0, u->blocks, 16, BLOCK_BYTES, u->memory);
    }
    if (code == 0) {
        bench_names(names, 0, u->blocks);
        kvo_names batch = bench_batch(&u->store, names, u->blocks);
        int status = kvo_exists(u->store.store, &batch, answers);
        code = status == KVO_OK ? 0 : bench_refused("exists", status);
    }
    u->handles = cli_alloc(u->blocks, sizeof *u->handles);
    for (size_t i = 0; code == 0 && i < u->blocks; i++) {
        u->handles[i] = answers[i].handle;
    }
    free(answers);
    free(names);
    return code;
}

static int time_updates(study *s, updates *u, unsigned threads, int movers)
{
    kvo_put_options put = KVO_PUT_OPTIONS_INIT;
    study_row row = study_row_of("policy_update", u->set == HOT ? "hot" : "cold", "ns");
    bench_writer *writer = NULL;
    int code = 0;
    put.policy.qos = 0;
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
        add_workers(s, row, workers, threads);
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
        for (int movers = 0; movers < 2; movers++) {
            for (unsigned threads = 1; code == 0 && threads <= 4 * s->cores; threads *= 2) {
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

#define STEPS 32 /* of one sample: short against the clock otherwise */

static void work_on_tables(study_worker *worker)
{
    tables *t = worker->context;
    uint64_t random = worker->index + 1, seen = 0;
    int schedules = worker->index < t->schedulers;
    while (!study_over(worker)) {
        double begin = bench_now();
        for (int k = 0; k < STEPS; k++) {
            uint64_t draw = cli_random(&random);
            if (schedules) {
                scheduler_step(t, draw % t->set, draw >> 1);
            } else {
                seen += mover_step(t, draw % t->set);
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

static int time_form(study *s, tables *t, form f, unsigned schedulers, unsigned movers)
{
    study_row row = study_row_of(t->set == HOT ? "table_update_hot" : "table_update", form_names[f], "ns");
    study_worker *workers = new_workers(schedulers + movers, work_on_tables, t);
    t->form = f;
    t->schedulers = schedulers;
    study_parameter_add(&row, "schedulers", schedulers);
    study_parameter_add(&row, "movers", movers);
    study_parameter_add(&row, "blocks", (double)t->set);
    int code = study_run_workers(workers, schedulers + movers, study_pick(s, 0.5, 0.15, 0.01), NULL);
    if (code == 0) {
        add_workers(s, row, workers, schedulers);
    }
    free_workers(workers, schedulers + movers);
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
        for (unsigned threads = 1; threads <= 2 * s->cores; threads *= 2) {
            for (int f = 0; code == 0 && f < FORMS; f++) {
                code = time_form(s, &t, (form)f, threads, 0);
                code = code != 0 ? code : time_form(s, &t, (form)f, threads, 1);
            }
        }
    }
    (void)pthread_mutex_destroy(&t.lock);
    free(t.copies);
    free(t.policies);
    free(t.other_lines);
    free(t.lines);
    return code;
}

int study_update(study *s)
{
    learn_clock_cost();
    int code = through_store(s);
    return code != 0 ? code : bare_tables(s);
}

void study_update_read(study *s)
{
    const study_row *alone = study_find(s, "policy_update", "cold", "schedulers", 1.0, "movers", 0.0, NULL);
    const study_row *moved = study_find(s, "policy_update", "cold", "schedulers", 1.0, "movers", 1.0, NULL);
    const double cores = s->cores, all = study_pick(s, 1e6, 1e5, 1e4);
    const study_row *forms[FORMS];
    char count[CLI_COUNT_TEXT];
    int found = 1;
    for (int f = 0; f < FORMS; f++) {
        forms[f] = study_find(s, "table_update", form_names[f], "schedulers", cores, "movers", 1.0, "blocks", all, NULL);
        found = found && forms[f] != NULL;
    }
    if (alone != NULL && moved != NULL) {
        study_say(s, "A call that sets one policy takes %.0f ns (p99.9 %.0f ns) with one scheduler, and %.0f ns (p99.9 "
                     "%.0f ns) while the mover brings blocks down and another thread puts new ones. ",
                  alone->p50, alone->p999, moved->p50, moved->p999);
    }
    if (found) {
        const double one = forms[FUSED]->p50, two = forms[SPLIT]->p50, packed = forms[PACKED]->p50;
        study_say(s, "%u schedulers and a mover on the same %s blocks: an update of a bare table takes %.0f ns where a "
                     "block's policy and mechanism share a line, %.0f ns where each has a line of its own, %.0f ns where words are "
                     "packed eight to a line, and %.0f ns behind one lock (p99.9 %.0f us). ",
                  s->cores, cli_count_text((uint64_t)all, count), one, two, packed, forms[LOCKED]->p50, forms[LOCKED]->p999 / 1e3);
        study_say(s, "%s, %s. ", one < two ? "One line beats two" : "One line does not beat two here",
                  packed < one ? "and packed words beat both on this set: what counts is how many lines there are in all, more than which "
                                 "words meet in one"
                               : "and packed words do not beat it");
    }
    study_say(s, "More schedulers than the %u processors of this machine take turns: their p99.9 is the length of a turn, "
                 "not the cost of an update.",
              s->cores);
}
