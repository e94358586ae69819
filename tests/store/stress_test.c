/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight threads submit, cancel, hold, remove, rewrite and set policies as fast as they can, over queues that
 * two of them share, beside the mover. Every byte that a get calls right is checked, every job is
 * reported once (report B141), and when the store is closed memory and descriptors are back at their level.
 *
 *     store_stress_test [io_uring|threads]
 *     KVO_TEST_SECONDS: in all, 4 unless given; KVO_TEST_SEED
 */
#include "fixture.h"

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define THREADS 8u
#define QUEUES 4u
#define SLOTS 12u /* jobs of a thread at a time */
#define BLOCKS 6u /* of a job */
#define NUMBERS 300u
#define BYTES_MAX 65536u
#define VERSIONS 3u
#define LIVES 4u

#define MUST(what)                                                                                  \
    do {                                                                                            \
        if (!(what)) {                                                                              \
            fprintf(stderr, "%s:%d: %s, KVO_TEST_SEED=%llu\n", __FILE__, __LINE__, #what, seed_given); \
            abort();                                                                                \
        }                                                                                           \
    } while (0)

static unsigned long long seed_given = 1;
static kvo_queue *queues[QUEUES];
static atomic_bool stop;
static bool memory_first;
static int engine;
static char spec[256];
static _Atomic uint64_t jobs_done, blocks_read, jobs_cancelled, blocks_stored;

typedef enum job_kind { PUT, GET, PREFETCH, SYNC, REMOVE } job_kind;

typedef struct job_slot {
    _Atomic unsigned reported; /* 0: on its way or free, 1: its report came */
    bool busy;
    job_kind kind;
    kvo_job number;
    kvo_queue *queue;
    size_t count;
    uint64_t numbers[BLOCKS];
    uint8_t *payload;
    kvo_answer answers[BLOCKS];
} job_slot;

typedef struct worker {
    unsigned number;
    uint64_t random;
    job_slot slots[SLOTS];
    uint8_t *memory;
    uint64_t holds[4];
} worker;

static uint64_t draw(worker *w, uint64_t below)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (w->random >> 33) % below;
}

static size_t length_of(uint64_t number)
{
    static const size_t lengths[] = {BYTES_MAX, 4096, 50000, 65535, 1, 8192};
    return lengths[number % 6];
}

static bool right(const void *memory, uint64_t number)
{
    for (uint32_t v = 0; v < VERSIONS; v++)
        if (payload_is(memory, length_of(number), number, v))
            return true;
    return false;
}

/* ---- reports ---- */

static void check_report(const kvo_report *r)
{
    job_slot *slot = r->context;
    MUST(r->job == slot->number && r->answers == slot->answers && r->count == slot->count);
    for (size_t i = 0; i < slot->count; i++) {
        int status = slot->answers[i].status;
        MUST(status >= 0 && status < KVO_E_ARGUMENT);
        MUST(status != KVO_CANCELLED || r->status == KVO_CANCELLED);
        if (slot->kind == GET && status == KVO_OK) {
            MUST(right(slot->payload + i * BYTES_MAX, slot->numbers[i]));
            atomic_fetch_add(&blocks_read, 1);
        }
        if (slot->kind == PUT && status == KVO_STORED)
            atomic_fetch_add(&blocks_stored, 1);
    }
    atomic_fetch_add(&jobs_cancelled, r->status == KVO_CANCELLED);
    atomic_fetch_add(&jobs_done, 1);
    MUST(atomic_exchange(&slot->reported, 1) == 0); /* once */
}

static void take_reports(kvo_queue *queue, uint64_t timeout_ns)
{
    kvo_report reports[8];
    size_t count;
    MUST(kvo_poll(queue, reports, 8, timeout_ns, &count) == KVO_OK);
    for (size_t i = 0; i < count; i++) {
        MUST(((job_slot *)reports[i].context)->queue == queue); /* nobody else's */
        check_report(&reports[i]);
    }
}

/* ---- jobs ---- */

static job_slot *free_slot(worker *w)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        job_slot *slot = &w->slots[i];
        if (slot->busy && atomic_load(&slot->reported))
            slot->busy = false;
        if (!slot->busy)
            return slot;
    }
    return NULL;
}

static uint64_t deadline_of(worker *w)
{
    static const uint64_t deadlines[] = {0, 1000, 1000000, 50000000, 1000000000};
    return deadlines[draw(w, 5)];
}

static void submit(worker *w)
{
    job_slot *slot = free_slot(w);
    if (slot == NULL) {
        take_reports(queues[w->number % QUEUES], 1000000);
        return;
    }
    uint8_t names[BLOCKS * NAME_BYTES];
    kvo_segment segments[BLOCKS];
    slot->kind = (job_kind)draw(w, 20) < 8 ? PUT : draw(w, 10) < 6 ? GET : (job_kind)draw(w, 5);
    if (slot->kind == PREFETCH && !memory_first)
        slot->kind = GET;
    slot->queue = queues[w->number % QUEUES];
    slot->count = 1 + draw(w, BLOCKS);
    for (size_t i = 0; i < slot->count; i++) {
        uint64_t number = slot->numbers[i] = draw(w, NUMBERS);
        uint8_t *at = slot->payload + i * BYTES_MAX;
        name_of(number, names + i * NAME_BYTES);
        segments[i] = (kvo_segment){at, length_of(number)};
        if (slot->kind == PUT)
            payload_make(at, length_of(number), number, 0);
    }
    kvo_names list = {.first = names, .name_bytes = NAME_BYTES, .count = slot->count, .space = space};
    kvo_memory memory = {.segments = segments};
    kvo_target target = {.by = KVO_BY_NAMES, .names = list};
    kvo_put_options put = KVO_PUT_OPTIONS_INIT;
    kvo_get_options get = KVO_GET_OPTIONS_INIT;
    put.deadline_ns = get.deadline_ns = deadline_of(w);
    put.level = draw(w, 12) == 0 ? KVO_SAFE : draw(w, 6) == 0 ? KVO_WRITTEN : KVO_SEALED;
    put.policy.tenant = (uint16_t)draw(w, 4);
    get.no_promote = draw(w, 4) == 0;
    atomic_store(&slot->reported, 0);
    slot->busy = true;
    int r = KVO_OK;
    if (slot->kind == PUT)
        r = kvo_submit_put(slot->queue, &list, &memory, &put, slot->answers, slot, &slot->number);
    else if (slot->kind == GET)
        r = kvo_submit_get(slot->queue, &list, &memory, &get, slot->answers, slot, &slot->number);
    else if (slot->kind == PREFETCH)
        r = kvo_submit_prefetch(slot->queue, &list, &get, slot->answers, slot, &slot->number);
    else if (slot->kind == SYNC)
        r = kvo_submit_sync(slot->queue, &target, draw(w, 8) ? KVO_WRITTEN : KVO_SAFE, deadline_of(w), slot->answers,
                            slot, &slot->number);
    else
        r = kvo_submit_remove(slot->queue, &target, KVO_SEALED + (int)draw(w, 2), deadline_of(w), slot->answers, slot,
                              &slot->number);
    if (r != KVO_OK)
        slot->busy = false;
    MUST(r == KVO_OK || r == KVO_BUSY);
}

static void cancel(worker *w)
{
    job_slot *slot = &w->slots[draw(w, SLOTS)];
    if (slot->busy) {
        int r = kvo_cancel(slot->queue, slot->number);
        MUST(r == KVO_OK || r == KVO_GONE);
    }
}

/* ---- blocking calls beside them ---- */

static kvo_names some(worker *w, uint8_t *names, uint64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        numbers[i] = draw(w, NUMBERS);
        name_of(numbers[i], names + i * NAME_BYTES);
    }
    return (kvo_names){.first = names, .name_bytes = NAME_BYTES, .count = count, .space = space};
}

static void control(worker *w)
{
    uint8_t bytes[8 * NAME_BYTES];
    uint64_t numbers[8];
    kvo_answer answers[8];
    size_t matched;
    kvo_names names = some(w, bytes, numbers, 8);
    kvo_target target = {.by = KVO_BY_NAMES, .names = names};
    kvo_policy policy = KVO_POLICY_INIT;
    switch (draw(w, 6)) {
    case 0:
        MUST(kvo_match(store, &names, answers, &matched) == KVO_OK);
        break;
    case 1:
        MUST(kvo_touch(store, &target, answers) == KVO_OK);
        break;
    case 2:
        policy.priority = (uint8_t)draw(w, 101);
        policy.intent = (uint8_t)draw(w, 5);
        policy.intent_ns = 1000000000u * draw(w, 3);
        MUST(kvo_policy_set(store, &target, &policy, (uint32_t)draw(w, 32), answers, NULL) == KVO_OK);
        break;
    case 3:
        target = (kvo_target){.by = KVO_BY_TENANT, .tenant = (uint32_t)draw(w, 4)};
        policy.qos = (uint8_t)draw(w, 4);
        MUST(kvo_policy_set(store, &target, &policy, KVO_POLICY_QOS, NULL, NULL) == KVO_OK);
        break;
    case 4: {
        uint64_t *hold = &w->holds[draw(w, 4)];
        kvo_release(store, *hold);
        names.count = 3;
        MUST(kvo_hold(store, &names, 1 + 1000000 * draw(w, 200), hold, answers) == KVO_OK);
        break;
    }
    default: {
        kvo_pin pins[3];
        kvo_get_options now = KVO_GET_OPTIONS_INIT;
        now.deadline_ns = 1000000;
        names.count = 3;
        if (!memory_first)
            break;
        MUST(kvo_pin_blocks(store, &names, &now, pins, answers) == KVO_OK);
        for (size_t i = 0; i < 3; i++)
            MUST(answers[i].status != KVO_OK || right(pins[i].memory, numbers[i]));
        kvo_unpin(store, pins, 3);
    }
    }
}

static void rewrite_one(worker *w)
{
    uint8_t bytes[NAME_BYTES];
    uint64_t number;
    kvo_answer answer;
    kvo_names names = some(w, bytes, &number, 1);
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    payload_make(w->memory, length_of(number), number, 1 + (uint32_t)draw(w, VERSIONS - 1));
    kvo_segment segment = {w->memory, length_of(number)};
    kvo_memory memory = {.segments = &segment};
    o.deadline_ns = 1000000;
    MUST(kvo_rewrite(store, &names, &memory, 0, &o, &answer) == KVO_OK);
}

static void *work(void *argument)
{
    worker *w = argument;
    while (!atomic_load(&stop)) {
        uint64_t what = draw(w, 100);
        if (what < 45)
            submit(w);
        else if (what < 49)
            cancel(w);
        else if (what < 70)
            take_reports(queues[w->number % QUEUES], 0);
        else if (what < 97)
            control(w);
        else
            rewrite_one(w);
    }
    return NULL;
}

/* ---- levels ---- */

static unsigned descriptors(void)
{
    unsigned count = 0;
    DIR *d = opendir("/proc/self/fd");
    MUST(d != NULL);
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

/* Pages in memory. (Address space says less: libc keeps some stacks of threads that have ended.) */
static unsigned long pages(void)
{
    unsigned long all, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    MUST(f != NULL && fscanf(f, "%lu %lu", &all, &resident) == 2);
    fclose(f);
    return resident;
}

/* Exactly, where an environment can count: not with io_uring, which wants the real one. */
static base_env counting;
static _Atomic int64_t allocated;

static void *count_alloc(base_env *env, size_t bytes)
{
    void *memory = base_env_posix()->alloc(base_env_posix(), bytes);
    (void)env;
    if (memory)
        atomic_fetch_add(&allocated, (int64_t)bytes);
    return memory;
}

static void count_free(base_env *env, void *memory, size_t bytes)
{
    (void)env;
    if (memory)
        atomic_fetch_sub(&allocated, (int64_t)bytes);
    base_env_posix()->free(base_env_posix(), memory, bytes);
}

static int count_map(base_env *env, size_t bytes, void **writable, const void **readable)
{
    (void)env;
    int r = base_env_posix()->map_arena(base_env_posix(), bytes, writable, readable);
    if (r == 0)
        atomic_fetch_add(&allocated, (int64_t)bytes);
    return r;
}

static void count_unmap(base_env *env, size_t bytes, void *writable, const void *readable)
{
    (void)env;
    atomic_fetch_sub(&allocated, (int64_t)bytes);
    base_env_posix()->unmap_arena(base_env_posix(), bytes, writable, readable);
}

static void open_life(const char *text)
{
    kvo_tier_config tiers[KVO_TIERS_MAX];
    uint32_t count;
    char paths[256];
    if (engine != KVO_IO_THREADS) {
        open_store(text);
        return;
    }
    const char *at = strchr(text, '@');
    snprintf(spec, sizeof spec, "%.*s%s%s", (int)(at - text), text, fixture_path(at[1] - '0'), at + 2);
    counting = *base_env_posix();
    counting.alloc = count_alloc;
    counting.free = count_free;
    counting.map_arena = count_map;
    counting.unmap_arena = count_unmap;
    MUST(kvo_parse_tiers(spec, tiers, &count, paths, sizeof paths, NULL) == KVO_OK);
    MUST(store_open(&counting, tiers, count, &options, &store, NULL) == KVO_OK);
    space = open_space("a", BYTES_MAX);
}

/* ---- a life of the store ---- */

static void one_life(unsigned life, unsigned milliseconds)
{
    static worker workers[THREADS];
    pthread_t threads[THREADS];
    kvo_queue_options o = KVO_QUEUE_OPTIONS_INIT;
    o.jobs_max = 20; /* fewer than two threads may want */
    with_mover = true;
    memory_first = life % 2 == 0;
    open_life(life % 2 ? "disk:@1:120blk" : "dram:40blk,disk:@0:150blk");
    for (unsigned i = 0; i < QUEUES; i++)
        MUST(kvo_queue_open(store, &o, &queues[i]) == KVO_OK);
    atomic_store(&stop, false);
    for (unsigned i = 0; i < THREADS; i++) {
        worker *w = &workers[i];
        w->number = i;
        w->random = seed_given * 1000003 + life * 101 + i;
        memset(w->holds, 0, sizeof w->holds);
        for (unsigned k = 0; k < SLOTS; k++)
            w->slots[k].busy = false;
        for (unsigned k = 0; k < SLOTS; k++)
            if (w->slots[k].payload == NULL)
                w->slots[k].payload = aligned_alloc(4096, BLOCKS * BYTES_MAX);
        if (w->memory == NULL)
            w->memory = malloc(BYTES_MAX);
        MUST(pthread_create(&threads[i], NULL, work, w) == 0);
    }
    usleep(milliseconds * 1000);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < QUEUES; i++) {
        uint64_t left;
        MUST(kvo_drain(queues[i], 120000000000u) == KVO_OK);
        while (kvo_pending(queues[i], &left) == KVO_OK && left)
            take_reports(queues[i], 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        for (unsigned k = 0; k < SLOTS; k++)
            MUST(!workers[i].slots[k].busy || atomic_load(&workers[i].slots[k].reported) == 1);
    kvo_stat s = store_stat();
    MUST(s.reserved_blocks == 0 && s.pinned_blocks == 0 && s.digest_misses == 0);
    for (uint32_t t = 1; t < s.present_tier_count; t++)
        MUST(tier_stat(t).max_delta <= 1);
    check_valid();
    MUST(kvo_queue_close(queues[0], KVO_FOREVER) == KVO_OK); /* close takes the others */
    close_store();
}

static void nothing_wrong_nothing_twice_nothing_left(void **state)
{
    (void)state;
    const char *given = getenv("KVO_TEST_SECONDS"), *seed = getenv("KVO_TEST_SEED");
    unsigned seconds = given ? (unsigned)atoi(given) : 4;
    seed_given = seed ? strtoull(seed, NULL, 10) : (unsigned long long)time(NULL);
    unsigned files = 0;
    unsigned long level = 0;
    for (unsigned life = 0; life < LIVES; life++) {
        one_life(life, seconds * 1000 / LIVES);
        if (life == 1) { /* both shapes have been: what libc keeps for threads is there */
            files = descriptors();
            level = pages();
        }
    }
    assert_int_equal(descriptors(), files);
    assert_int_equal(atomic_load(&allocated), 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
    assert_true(pages() <= level + 1024); /* 4 MiB */
#endif
    (void)level;
    print_message("%llu jobs, %llu of them cancelled; %llu blocks stored, %llu read and compared: 0 wrong\n",
                  (unsigned long long)jobs_done, (unsigned long long)jobs_cancelled, (unsigned long long)blocks_stored,
                  (unsigned long long)blocks_read);
    assert_true(jobs_done > 100 && blocks_read > 10 && blocks_stored > 10 && jobs_cancelled > 0);
}

static int setup(void **state)
{
    int r = fixture_setup(state);
    options.io_engine = engine;
    options.write_out_ns = 20000000;
    return r;
}

int main(int argc, char **argv)
{
    mallopt(M_ARENA_MAX, 1); /* or what libc keeps for threads would hide what we look for */
    engine = argc > 1 && strcmp(argv[1], "threads") == 0    ? KVO_IO_THREADS
             : argc > 1 && strcmp(argv[1], "io_uring") == 0 ? KVO_IO_URING
                                                            : KVO_IO_AUTO;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_wrong_nothing_twice_nothing_left, setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
