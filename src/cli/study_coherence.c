/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment 4: how old is the policy that placement acts on. Blocks stream through a small store; a scheduler turns their policies
 * over, from "goes first" to "goes last" and back, at a given rate. The store's events say which block was brought down or
 * left memory, and when: its policy then is so old, and if it says "goes last" by now while others say "goes first", the
 * decision was made on a policy that has been replaced.
 */
#include "study.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCK_BYTES 65536u
#define MEMORY_BLOCKS 1024u
#define DISK_BLOCKS 8192u
#define ROOM (1u << 20) /* blocks that one run may put */
#define CALL 8
#define AGES 20000u

static const double links_us[] = {0.2, 0.5, 1.0, 2.0, 5.0, 10.0};
enum { LINKS = sizeof links_us / sizeof links_us[0] };

enum { DEMOTED, DISCARDED, KINDS };
static const char *const kind_names[] = {"brought down", "left memory"};

typedef struct planes {
    bench_store store;
    kvo_handle *handles;
    _Atomic uint64_t *changed_ns;   /* when the policy that holds now was there for all to see */
    _Atomic unsigned char *last;    /* it says: goes last */
    _Atomic uint32_t blocks;        /* put so far */
    double rate;                    /* updates a second; 0 = as many as can be */
    atomic_int counts;              /* events are counted now */
    uint8_t *memory;
    kvo_segment *segments;
    struct decisions {
        double *ages;
        size_t age_count;
        uint64_t random, count, replaced, within[LINKS];
    } kinds[KINDS]; /* by events alone, one at a time */
} planes;

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- What placement does ---- */

static void decided(planes *p, int kind, uint32_t block)
{
    struct decisions *d = &p->kinds[kind];
    uint64_t changed = atomic_load(&p->changed_ns[block]), now = now_ns();
    uint64_t age = now > changed ? now - changed : 0;
    d->count++;
    d->replaced += atomic_load(&p->last[block]);
    for (int i = 0; i < LINKS; i++) {
        d->within[i] += (double)age < links_us[i] * 1e3;
    }
    uint64_t place = d->age_count < AGES ? d->age_count++ : cli_random(&d->random) % d->count;
    if (place < AGES) {
        d->ages[place] = (double)age * 1e-9;
    }
}

static void on_event(void *context, const kvo_event *event)
{
    planes *p = context;
    uint32_t block;
    if (!atomic_load_explicit(&p->counts, memory_order_relaxed) || event->name_bytes < sizeof block) {
        return;
    }
    memcpy(&block, event->name, sizeof block);
    if (event->type == KVO_EVENT_WRITE && event->tier == 1) {
        decided(p, DEMOTED, block);
    } else if ((event->type == KVO_EVENT_DISCARD || event->type == KVO_EVENT_DROP) && event->tier == 0) {
        decided(p, DISCARDED, block);
    }
}

/* ---- What schedulers and engines do ---- */

static int put_some(planes *p)
{
    uint8_t names[CALL * BENCH_NAME_BYTES];
    kvo_answer answers[CALL];
    kvo_put_options options = KVO_PUT_OPTIONS_INIT;
    const uint32_t first = atomic_load(&p->blocks);
    kvo_memory memory = {p->segments, NULL};
    options.trust_name = 1;
    bench_names(names, first, CALL);
    for (uint32_t i = 0; i < CALL; i++) {
        const uint32_t block = first + i;
        memcpy(names + i * BENCH_NAME_BYTES, &block, sizeof block);
        atomic_store(&p->changed_ns[block], now_ns());
        atomic_store(&p->last[block], 0);
    }
    kvo_names batch = bench_batch(&p->store, names, CALL);
    int status = kvo_put(p->store.store, &batch, &memory, &options, answers);
    for (uint32_t i = 0; status == KVO_OK && i < CALL; i++) {
        p->handles[first + i] = answers[i].handle;
        status = answers[i].status == KVO_STORED ? KVO_OK : answers[i].status;
    }
    atomic_store(&p->blocks, first + CALL);
    return status == KVO_OK ? 0 : bench_refused("put", status);
}

static void put_blocks(study_worker *worker)
{
    planes *p = worker->context;
    while (!study_over(worker) && worker->code == 0 && atomic_load(&p->blocks) + CALL <= ROOM) {
        worker->code = put_some(p);
        worker->operations += CALL;
    }
}

/* Of the blocks that memory holds, or held just now. */
static int turn_over(planes *p, uint64_t *random)
{
    const uint32_t blocks = atomic_load(&p->blocks), window = blocks < MEMORY_BLOCKS ? blocks : MEMORY_BLOCKS;
    const uint32_t block = blocks - 1 - (uint32_t)(cli_random(random) % window);
    const unsigned char last = !atomic_load(&p->last[block]);
    kvo_target target = {.by = KVO_BY_HANDLES, .handles = &p->handles[block], .handle_count = 1};
    kvo_policy policy = KVO_POLICY_INIT;
    policy.qos = last ? 3 : 0;
    int status = kvo_policy_set(p->store.store, &target, &policy, KVO_POLICY_ALL, NULL, NULL);
    atomic_store(&p->changed_ns[block], now_ns());
    atomic_store(&p->last[block], last);
    return status == KVO_OK ? 0 : bench_refused("policy", status);
}

static void turn_policies(study_worker *worker)
{
    planes *p = worker->context;
    const struct timespec pause = {0, 50000};
    const double begin = bench_now();
    uint64_t random = worker->index + 11;
    while (!study_over(worker) && worker->code == 0) {
        double due = p->rate > 0.0 ? (bench_now() - begin) * p->rate : INFINITY;
        if ((double)worker->operations >= due) {
            (void)nanosleep(&pause, NULL);
            continue;
        }
        worker->code = turn_over(p, &random);
        worker->operations++;
    }
}

/* ---- Runs ---- */

static void planes_close(study *s, planes *p, int *code)
{
    int closed = p->store.store != NULL ? bench_close(&p->store, 0) : 0;
    *code = *code != 0 ? *code : closed;
    for (int i = 0; i < KINDS; i++) {
        free(p->kinds[i].ages);
    }
    free(p->segments);
    bench_unmap(p->memory, CALL * BLOCK_BYTES);
    free(p->last);
    free(p->changed_ns);
    free(p->handles);
    bench_place_clear(&s->bench, "planes");
}

static int planes_open(study *s, planes *p, double rate)
{
    kvo_options options = KVO_OPTIONS_INIT;
    char tiers[96];
    memset(p, 0, sizeof *p);
    p->rate = rate;
    p->handles = cli_alloc(ROOM, sizeof *p->handles);
    p->changed_ns = cli_alloc(ROOM, sizeof *p->changed_ns);
    p->last = cli_alloc(ROOM, sizeof *p->last);
    p->memory = bench_map(CALL * BLOCK_BYTES);
    p->segments = bench_segments(p->memory, BLOCK_BYTES, CALL);
    for (int i = 0; i < KINDS; i++) {
        p->kinds[i].ages = cli_alloc(AGES, sizeof(double));
    }
    options.block_bytes = BLOCK_BYTES;
    options.on_event = on_event;
    options.event_context = p;
    (void)snprintf(tiers, sizeof tiers, "dram:%ublk,disk:@:%ublk", MEMORY_BLOCKS, DISK_BLOCKS);
    int code = bench_open(&s->bench, "planes", tiers, &options, &p->store);
    while (code == 0 && atomic_load(&p->blocks) < 2 * MEMORY_BLOCKS) {
        code = put_some(p);
    }
    return code;
}

static void add_kind(study *s, planes *p, int kind, double updates_a_second)
{
    struct decisions *d = &p->kinds[kind];
    study_row row = study_row_of("policy_age", kind_names[kind], "s");
    study_parameter_add(&row, "updates_per_s", updates_a_second);
    row.operations = d->count;
    study_add(s, row, d->ages, d->age_count);
    d->ages = NULL;
    if (d->count == 0) {
        return;
    }
    row = study_row_of("replaced", kind_names[kind], "% of decisions");
    study_parameter_add(&row, "updates_per_s", updates_a_second);
    row.operations = d->count;
    study_add_one(s, row, 100.0 * (double)d->replaced / (double)d->count);
    for (int i = 0; i < LINKS; i++) {
        row = study_row_of("replaced_over_link", kind_names[kind], "% of decisions");
        row.computed = 1;
        study_parameter_add(&row, "link_us", links_us[i]);
        study_parameter_add(&row, "updates_per_s", updates_a_second);
        row.operations = d->count;
        study_add_one(s, row, 100.0 * (double)d->within[i] / (double)d->count);
    }
}

static int run_planes(study *s, double rate)
{
    planes *p = cli_alloc(1, sizeof *p);
    study_worker workers[] = {{.run = put_blocks, .context = p, .index = 0, .processor = 0},
                              {.run = turn_policies, .context = p, .index = 1, .processor = 1}};
    const double seconds = study_pick(s, 5.0, 1.0, 0.2);
    int code = planes_open(s, p, rate);
    atomic_store(&p->counts, 1);
    code = code != 0 ? code : study_run_workers(workers, 2, seconds, NULL);
    atomic_store(&p->counts, 0);
    double updates = (double)workers[1].operations / seconds;
    for (int kind = 0; code == 0 && kind < KINDS; kind++) {
        add_kind(s, p, kind, rate > 0.0 ? rate : updates);
    }
    planes_close(s, p, &code);
    free(p);
    return code;
}

/* ---- A line between two processors ---- */

typedef struct ball {
    _Alignas(128) _Atomic uint64_t turn;
} ball;

static void play(study_worker *worker)
{
    ball *b = worker->context;
    double begin = bench_now();
    while (!study_over(worker)) {
        if (atomic_load_explicit(&b->turn, memory_order_acquire) % 2 != worker->index) {
            continue;
        }
        atomic_fetch_add_explicit(&b->turn, 1, memory_order_release);
        if (++worker->operations % 1000 == 0) {
            double now = bench_now();
            study_sample(worker, (now - begin) * 1e9 / 2000.0); /* a turn and its return are two transfers */
            begin = now;
        }
    }
}

static int line_transfer(study *s)
{
    ball b = {0};
    study_worker workers[] = {{.run = play, .context = &b, .index = 0, .processor = 0},
                              {.run = play, .context = &b, .index = 1, .processor = 1}};
    study_row row = study_row_of("line_transfer", NULL, "ns");
    if (s->cores < 2) {
        study_add_missing(s, row, "there is one processor: a line has nowhere to go");
        return 0;
    }
    workers[0].sample_room = 100000;
    workers[0].samples = cli_alloc(workers[0].sample_room, sizeof(double));
    int code = study_run_workers(workers, 2, study_pick(s, 1.0, 0.3, 0.05), NULL);
    row.operations = 1000;
    if (code == 0) {
        study_add(s, row, workers[0].samples, workers[0].sample_count);
    } else {
        free(workers[0].samples);
    }
    return code;
}

int study_coherence(study *s)
{
    static const double rates[] = {1e3, 1e4, 1e5, 0.0};
    int code = line_transfer(s);
    for (size_t i = 0; code == 0 && i < sizeof rates / sizeof rates[0]; i++) {
        code = run_planes(s, rates[i]);
    }
    return code;
}

void study_coherence_read(study *s)
{
    const study_row *age = study_find(s, "policy_age", kind_names[DEMOTED], "updates_per_s", 1e4, NULL);
    const study_row *down = study_find(s, "replaced", kind_names[DEMOTED], "updates_per_s", 1e4, NULL);
    const study_row *left = study_find(s, "replaced", kind_names[DISCARDED], "updates_per_s", 1e4, NULL);
    if (age != NULL && down != NULL && left != NULL) {
        study_say(s, "At 10,000 updates a second over %u blocks, the policy of a block that is brought down is %.1f ms old "
                     "(median); %.2f %% of those blocks had been told to go last before their write ended, and %.2f %% of those that "
                     "left memory. ",
                  MEMORY_BLOCKS, age->p50 * 1e3, down->p50, left->p50);
    }
    const study_row *far = study_find(s, "replaced_over_link", kind_names[DISCARDED], "link_us", 10.0, "updates_per_s", 1e4,
                                      NULL);
    if (far != NULL) {
        study_say(s, "A mover that saw policies through a link of 10 us would have made %.3f %% more of its evictions on a "
                     "policy that was replaced within those 10 us (simulated from the same ages). ",
                  far->p50);
    }
    const study_row *line = study_find(s, "line_transfer", NULL, NULL);
    if (line != NULL) {
        study_say(s, "A cache line goes from one processor of this machine to another in %.0f ns.", line->p50);
    }
}
