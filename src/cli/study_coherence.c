/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment 4: how old is the policy that placement acts on. Blocks stream through a small store; a scheduler turns
 * their policies over, from "goes first" to "goes last" and back, at a given rate, and those of blocks that are no
 * longer among the newest back to "goes first": so there is always one that goes first. The store's events say which
 * block was brought down or left memory, and when: its policy then is so old, and if it says "goes last" by now, the
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

#define PART_TEXT 96

enum { DEMOTED, DISCARDED, KINDS };
static const char *const kind_names[] = {"brought down", "left memory"};

typedef struct planes {
    bench_store store;
    kvo_handle *handles;
    _Atomic uint64_t *changed_ns;   /* when the policy that holds now was there for all to see */
    _Atomic unsigned char *last;    /* it says: goes last */
    _Atomic uint32_t blocks;        /* put so far */
    uint32_t returned;              /* blocks before this one have left the newest: they go first again */
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

/* ---- What placement does ---- */

static void decided(planes *p, int kind, uint32_t block)
{
    struct decisions *d = &p->kinds[kind];
    uint64_t changed = atomic_load(&p->changed_ns[block]), now = cli_now_ns();
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
        atomic_store(&p->changed_ns[block], cli_now_ns());
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

static int tell(planes *p, uint32_t block, unsigned char last)
{
    kvo_target target = {.by = KVO_BY_HANDLES, .handles = &p->handles[block], .handle_count = 1};
    kvo_policy policy = KVO_POLICY_INIT;
    policy.qos = last ? 3 : 0;
    int status = kvo_policy_set(p->store.store, &target, &policy, KVO_POLICY_ALL, NULL, NULL);
    atomic_store(&p->changed_ns[block], cli_now_ns());
    atomic_store(&p->last[block], last);
    return status == KVO_OK ? 0 : bench_refused("policy", status);
}

/* Of the blocks that memory holds, or held just now. */
static int turn_over(planes *p, uint64_t *random)
{
    const uint32_t blocks = atomic_load(&p->blocks);
    const uint32_t block = blocks - 1 - (uint32_t)(cli_random(random) % MEMORY_BLOCKS);
    return tell(p, block, !atomic_load(&p->last[block]));
}

/* Or memory would fill with blocks that go last, and some of them would have to go, their policy well known. */
static int return_policies(planes *p)
{
    int code = 0;
    for (; code == 0 && p->returned + MEMORY_BLOCKS < atomic_load(&p->blocks); p->returned++) {
        code = atomic_load(&p->last[p->returned]) ? tell(p, p->returned, 0) : 0;
    }
    return code;
}

static void turn_policies(study_worker *worker)
{
    planes *p = worker->context;
    const struct timespec pause = {0, 50000};
    const double begin = bench_now();
    uint64_t random = worker->index + 11;
    while (!study_over(worker) && worker->code == 0) {
        worker->code = return_policies(p);
        double due = p->rate > 0.0 ? (bench_now() - begin) * p->rate : INFINITY;
        if ((double)worker->operations >= due) {
            (void)nanosleep(&pause, NULL);
            continue;
        }
        worker->code = worker->code != 0 ? worker->code : turn_over(p, &random);
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
    row.oversubscribed = s->cores < 2;
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
    double took = seconds;
    int code = planes_open(s, p, rate);
    atomic_store(&p->counts, 1);
    code = code != 0 ? code : study_run_workers(workers, 2, seconds, &took);
    atomic_store(&p->counts, 0);
    const double updates = (double)workers[1].operations / took, asked = rate > 0.0 ? rate : updates;
    if (code == 0) {
        study_row row = study_row_of("updates", NULL, "updates/s");
        study_parameter_add(&row, "updates_per_s", asked);
        row.operations = workers[1].operations;
        study_add_one(s, row, updates);
    }
    for (int kind = 0; code == 0 && kind < KINDS; kind++) {
        add_kind(s, p, kind, asked);
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

static int topology_of(int processor, const char *what)
{
    char path[128];
    int number = -1;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", processor, what);
    FILE *file = fopen(path, "r");
    number = file != NULL && fscanf(file, "%d", &number) == 1 ? number : -1;
    if (file != NULL) {
        (void)fclose(file);
    }
    return number;
}

enum { SAME_CORE, OTHER_CORE, OTHER_PACKAGE, UNKNOWN_PLACE, PLACES };
static const char *const place_names[] = {"a thread of the same core", "another core", "another package",
                                          "another processor"};

/* As the kernel tells it; a virtual machine's need not be the truth. */
static const char *place_of(int a, int b)
{
    const int core = topology_of(a, "core_id"), package = topology_of(a, "physical_package_id");
    return place_names[core < 0 || package < 0                            ? UNKNOWN_PLACE
                       : package != topology_of(b, "physical_package_id") ? OTHER_PACKAGE
                       : core != topology_of(b, "core_id")                ? OTHER_CORE
                                                                          : SAME_CORE];
}

/* From the first processor to the n-th. */
static int line_transfer(study *s, unsigned n)
{
    ball b = {0};
    study_worker workers[] = {{.run = play, .context = &b, .index = 0, .processor = 0},
                              {.run = play, .context = &b, .index = 1, .processor = n}};
    study_row row = study_row_of("line_transfer", place_of(study_processor(0), study_processor(n)), "ns");
    study_parameter_add(&row, "from", study_processor(0));
    study_parameter_add(&row, "to", study_processor(n));
    workers[0].sample_room = 100000;
    workers[0].samples = cli_alloc(workers[0].sample_room, sizeof(double));
    int code = study_run_workers(workers, 2, study_pick(s, 1.0, 0.3, 0.05), NULL);
    row.operations = workers[0].operations + workers[1].operations;
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
    const unsigned others[] = {1, s->cores / 2, s->cores - 1};
    int code = 0;
    for (size_t i = 0; code == 0 && s->cores > 1 && i < sizeof others / sizeof others[0]; i++) {
        code = i == 0 || others[i] > others[i - 1] ? line_transfer(s, others[i]) : 0;
    }
    if (s->cores < 2) {
        study_add_missing(s, study_row_of("line_transfer", NULL, "ns"),
                          "there is one processor: a line has nowhere to go");
    }
    for (size_t i = 0; code == 0 && i < sizeof rates / sizeof rates[0]; i++) {
        code = run_planes(s, rates[i]);
    }
    return code;
}

/* "2.39 % of 11,257", or "none of 11,056 (...)": then it is below 3 of them, with 95 % confidence. */
static const char *part_text(const study_row *row, char text[PART_TEXT])
{
    char count[CLI_COUNT_TEXT];
    (void)cli_count_text(row->operations, count);
    if (row->p50 > 0.0) {
        (void)snprintf(text, PART_TEXT, "%.3g %% of %s", row->p50, count);
    } else {
        (void)snprintf(text, PART_TEXT, "none of %s (95 %% sure: below %.2g %%)", count,
                       300.0 / (double)row->operations);
    }
    return text;
}

static void say_lines(study *s)
{
    char text[CLI_COUNT_TEXT];
    for (int place = 0; place < PLACES; place++) {
        const study_row *line = study_find(s, "line_transfer", place_names[place], NULL);
        if (line != NULL) {
            study_say(s,
                      " A cache line goes from a processor of this machine to %s in %.0f ns (a quarter of %s samples "
                      "is below %.0f, a quarter above %.0f).",
                      place_names[place], line->p50, cli_count_text(line->sample_count, text), line->p25, line->p75);
        }
    }
}

void study_coherence_read(study *s)
{
    const study_row *age = study_find(s, "policy_age", kind_names[DEMOTED], "updates_per_s", 1e4, NULL);
    const study_row *down = study_find(s, "replaced", kind_names[DEMOTED], "updates_per_s", 1e4, NULL);
    const study_row *left = study_find(s, "replaced", kind_names[DISCARDED], "updates_per_s", 1e4, NULL);
    const study_row *made = study_find(s, "updates", NULL, "updates_per_s", 1e4, NULL);
    const study_row *far = study_find(s, "replaced_over_link", kind_names[DISCARDED], "link_us", 10.0,
                                      "updates_per_s", 1e4, NULL);
    char text[PART_TEXT], other[PART_TEXT], count[CLI_COUNT_TEXT];
    char blocks[CLI_COUNT_TEXT];
    (void)cli_count_text(MEMORY_BLOCKS, blocks);
    if (age != NULL && down != NULL && left != NULL && made != NULL) {
        study_say(
            s,
            "At %s updates a second over %s blocks%s, the policy of a block that is brought down is %.1f ms old "
            "(median); %s of those blocks had been told to go last before their write ended, and %s that left memory.",
            cli_count_text((uint64_t)(made->p50 + 0.5), count), blocks,
            age->oversubscribed ? " (scheduler and source take turns on one processor)" : "", age->p50 * 1e3,
            part_text(down, text), part_text(left, other));
    }
    if (far != NULL) {
        study_say(s,
                  " Evictions that would have been made without an update on its way through a link of 10 us "
                  "(simulated from the same ages): %s.",
                  part_text(far, text));
    }
    say_lines(s);
}
