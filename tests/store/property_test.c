/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random calls against an oracle (property.h), with store_valid() after each step of one thread and at
 * barriers of several, where the store is also closed and opened again.
 * KVO_TEST_STEPS: of each hierarchy, 400 unless given; KVO_TEST_SEED: printed when something fails.
 */
#include "property.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const char *const hierarchies[] = {
    "dram:24blk,disk:@0:40blk", "dram:40blk,disk:@0:20blk",
    "dram:32blk",               "disk:@0:32blk",
    "dram:16blk,dram:16blk,disk:@0:40blk", "dram:12blk,disk:@0:20blk,disk:@1:40blk",
};
enum { HIERARCHIES = sizeof hierarchies / sizeof *hierarchies };

static property_thread threads[PROPERTY_THREADS_MAX];
static const char *tiers;

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *given = getenv(name);
    return given ? strtoull(given, NULL, 10) : otherwise;
}

static void stuck(int signal)
{
    (void)signal;
    fprintf(stderr, "stuck, KVO_TEST_SEED=%llu, %s:", (unsigned long long)property_seed, tiers);
    for (size_t i = 0; i < PROPERTY_THREADS_MAX; i++)
        fprintf(stderr, " %s", threads[i].doing);
    fprintf(stderr, "\n");
    abort();
}

/* The keeper may be carrying out an intent just now: what is wrong has to stay wrong. */
static void must_be_valid(void)
{
    char why[256];
    struct timespec pause = {0, 1000000};
    for (unsigned tries = 0; !store_valid(store, why, sizeof why); tries++) {
        if (tries == 2000)
            property_fail(__FILE__, __LINE__, why);
        nanosleep(&pause, NULL);
    }
}

static void begin(unsigned count)
{
    property_disk = strstr(tiers, "disk") != NULL;
    options.write_out_ns = 2000000;
    options.placement = property_seed % 3 == 0 ? KVO_PLACE_LRU : KVO_PLACE_CREDIT;
    open_store(tiers);
    for (unsigned i = 0; i < count; i++)
        threads[i] = (property_thread){
            .number = i, .count = count, .random = property_seed * 1000003 + i, .memory = threads[i].memory};
    for (unsigned i = 0; i < PROPERTY_THREADS_MAX; i++)
        if (threads[i].memory == NULL)
            threads[i].memory = malloc(8 * PROPERTY_BYTES_MAX);
    for (size_t i = 0; i < PROPERTY_NAMES; i++)
        property_names[i].floor = property_names[i].newest = 0;
}

/* Everything that was synced is there after a reopening, and nothing else. */
static void reopen(void)
{
    static uint8_t bytes[PROPERTY_BYTES_MAX];
    static kvo_answer before[PROPERTY_NAMES], after[PROPERTY_NAMES];
    kvo_names names = names_of(0, PROPERTY_NAMES);
    bool all = property_disk && kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL) == KVO_OK;
    MUST(kvo_exists(store, &names, before) == KVO_OK);
    must_be_valid();
    int r = kvo_close(store, 1000000000u);
    store = NULL;
    MUST(r == KVO_OK || (r == KVO_SHORT && !all));
    open_store(tiers);
    must_be_valid();
    names.space = space;
    MUST(kvo_exists(store, &names, after) == KVO_OK);
    MUST(store_stat().damaged_slots == 0 && store_stat().unfinished_slots == 0);
    for (uint64_t i = 0; i < PROPERTY_NAMES; i++) {
        if (before[i].status == KVO_OK && before[i].level >= KVO_WRITTEN)
            MUST(after[i].status == KVO_OK && after[i].generation == before[i].generation);
        MUST(before[i].status == KVO_OK || after[i].status == KVO_MISS);
        if (after[i].status != KVO_OK)
            continue;
        kvo_answer a;
        kvo_get_options o = KVO_GET_OPTIONS_INIT;
        o.no_promote = 1;
        kvo_names one = names_of(i, 1);
        kvo_segment segment = {bytes, after[i].payload_bytes};
        kvo_memory memory = {&segment, NULL};
        MUST(kvo_get(store, &one, &memory, &o, &a) == KVO_OK && (a.status == KVO_OK || a.status == KVO_MISS));
        if (a.status == KVO_OK)
            property_version(bytes, after[i].payload_bytes, i, property_names[i].floor, property_names[i].newest);
    }
}

static void finish(void)
{
    kvo_stat stat = store_stat();
    MUST(stat.digest_misses == 0 && stat.reserved_blocks == 0 && stat.pinned_blocks == 0);
    for (uint32_t i = 0; i < stat.present_tier_count; i++)
        MUST(tier_stat(i).max_delta <= 1 && tier_stat(i).io_errors == 0);
    kvo_close(store, 1000000000u);
    store = NULL;
}

static void one_thread(uint64_t steps)
{
    begin(1);
    for (uint64_t i = 0; i < steps; i++) {
        property_step(&threads[0]);
        must_be_valid();
        if (i % 200 == 199) {
            property_let_go(&threads[0]);
            reopen();
        }
    }
    property_let_go(&threads[0]);
    must_be_valid();
    finish();
}

static uint64_t steps_at_once;

static void *run_thread(void *context)
{
    property_thread *t = context;
    for (uint64_t i = 0; i < steps_at_once; i++)
        property_step(t);
    property_let_go(t);
    return NULL;
}

static void several_threads(uint64_t steps)
{
    pthread_t ids[PROPERTY_THREADS_MAX];
    begin(PROPERTY_THREADS_MAX);
    steps_at_once = 100;
    for (uint64_t done = 0; done < steps; done += steps_at_once) {
        for (size_t i = 0; i < PROPERTY_THREADS_MAX; i++)
            MUST(pthread_create(&ids[i], NULL, run_thread, &threads[i]) == 0);
        for (size_t i = 0; i < PROPERTY_THREADS_MAX; i++)
            pthread_join(ids[i], NULL);
        must_be_valid();
        if (done / steps_at_once % 2)
            reopen();
    }
    finish();
}

static void in_each_hierarchy(void (*run)(uint64_t steps))
{
    uint64_t steps = from_environment("KVO_TEST_STEPS", 400);
    property_seed = from_environment("KVO_TEST_SEED", (uint64_t)time(NULL));
    signal(SIGALRM, stuck);
    for (size_t i = 0; i < HIERARCHIES; i++) {
        tiers = hierarchies[i];
        alarm((unsigned)(60 + steps / 5));
        run(steps);
        fixture_remove(0);
        fixture_remove(1);
    }
    alarm(0);
}

static void one_thread_never_sees_a_wrong_answer(void **state)
{
    (void)state;
    in_each_hierarchy(one_thread);
}

static void several_threads_never_see_a_wrong_answer(void **state)
{
    (void)state;
    in_each_hierarchy(several_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(one_thread_never_sees_a_wrong_answer),
        FIXTURE_TEST(several_threads_never_see_a_wrong_answer),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < PROPERTY_THREADS_MAX; i++)
        free(threads[i].memory);
    return failed;
}
