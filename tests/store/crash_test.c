/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills a process in the middle of its work, again and again on one directory, and compares what is
 * found with what it had been told. A name's versions differ in bytes and length, so that an older
 * one that comes back shows. KVO_TEST_ROUNDS: how often, 6 unless given; KVO_TEST_SEED.
 */
#include "fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NAMES = 160, THREADS = 2, ABSENT = 0, WRITTEN = 1, UNSURE = 2 };

/* What the process knows of a name, in memory that outlives it. UNSURE: any version from
   `oldest` to `newest`, or none. `evicted`: it may be missing, for lack of room, or what an earlier
   life left may be back, but nothing from before the last remove or rewrite (`floor`). */
typedef struct entry {
    _Atomic uint32_t floor, oldest, newest, state, evicted;
} entry;

typedef struct shared {
    entry names[NAMES];
    _Atomic uint32_t wrong; /* a line of this file */
    _Atomic uint32_t steps;
} shared;

static shared *known;
static uint64_t seed;
static const char *tiers;

static uint32_t draw(uint64_t *random)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33);
}

static size_t length_of(uint64_t number, uint32_t version)
{
    static const size_t lengths[] = {65536, 60000, 5000, 65536, 1, 20000};
    return lengths[(number + version) % 6];
}

static void settle(entry *e, uint32_t version)
{
    e->oldest = e->newest = version;
    e->state = WRITTEN;
}

/* ---- the process that is killed ---- */

static void on_event(void *context, const kvo_event *event)
{
    (void)context;
    uint8_t name[NAME_BYTES];
    if (event->type != KVO_EVENT_END || event->cause == KVO_CAUSE_REMOVE)
        return;
    for (uint64_t i = 0; i < NAMES; i++) {
        name_of(i, name);
        if (memcmp(name, event->name, NAME_BYTES) == 0)
            known->names[i].evicted = 1;
    }
}

static int put_version(uint64_t n, uint32_t version, int rewriting)
{
    static _Thread_local uint8_t bytes[65536];
    size_t length = length_of(n, version);
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer a;
    kvo_names names = names_of(n, 1);
    kvo_segment segment = {bytes, length};
    kvo_memory memory = {&segment, NULL};
    payload_make(bytes, length, n, version);
    o.level = KVO_WRITTEN;
    o.deadline_ns = 1000000000u;
    if (rewriting)
        kvo_rewrite(store, &names, &memory, version % 16, &o, &a);
    else
        kvo_put(store, &names, &memory, &o, &a);
    return a.status;
}

static void step_put(uint64_t n, entry *e)
{
    uint32_t version = e->newest;
    int missing = exists(n, NULL) == KVO_MISS;
    if (missing || e->state == UNSURE) {
        e->state = UNSURE;
        e->newest = version = version + 1;
        e->evicted = 0;
    }
    int status = put_version(n, version, 0);
    if (status == KVO_STORED)
        settle(e, version);
}

static void step_rewrite(uint64_t n, entry *e)
{
    uint32_t before = e->state, version = e->newest + 1;
    e->newest = version;
    e->state = UNSURE;
    int status = put_version(n, version, 1);
    if (status == KVO_STORED) {
        e->floor = version;
        settle(e, version);
    } else if (before == WRITTEN && status != KVO_SHORT) {
        e->newest = version - 1;
        e->state = WRITTEN;
    }
}

static void step_remove(uint64_t n, entry *e)
{
    e->state = UNSURE;
    int status = drop(n, KVO_WRITTEN);
    if (status == KVO_OK || status == KVO_MISS) {
        e->state = ABSENT;
        e->floor = e->newest + 1;
    }
}

static void step_look(uint64_t n, entry *e)
{
    kvo_answer a;
    if (exists(n, &a) == KVO_MISS && e->state == WRITTEN && !e->evicted)
        known->wrong = __LINE__;
    uint64_t range = n / 8 * 8;
    kvo_target target = target_of(range, 8);
    kvo_answer answers[8];
    kvo_touch(store, &target, answers);
}

static void *work(void *context)
{
    uint64_t thread = (uint64_t)(uintptr_t)context, random = seed * 31 + thread + known->steps;
    for (;;) {
        uint64_t n = draw(&random) % (NAMES / THREADS) * THREADS + thread;
        entry *e = &known->names[n];
        switch (draw(&random) % 10) {
        case 0:
            step_remove(n, e);
            break;
        case 1:
            step_rewrite(n, e);
            break;
        case 2:
            step_look(n, e);
            break;
        case 3:
            kvo_write_out(store);
            break;
        default:
            step_put(n, e);
        }
        known->steps++;
    }
    return NULL;
}

static void run_until_killed(void)
{
    pthread_t threads[THREADS];
    options.on_event = on_event;
    options.write_out_ns = 3000000;
    open_store(tiers);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    pthread_join(threads[0], NULL);
}

/* ---- what is found ---- */

static void check_name(uint64_t n)
{
    entry *e = &known->names[n];
    kvo_block_info info = info_of(n);
    if (info.handle == 0) {
        if (e->state == WRITTEN && !e->evicted)
            fail_msg("name %llu: version %u was written and is gone (seed %llu)", (unsigned long long)n, e->newest,
                     (unsigned long long)seed);
        e->state = ABSENT;
        return;
    }
    if (e->state == ABSENT)
        fail_msg("name %llu came back after its removal (seed %llu)", (unsigned long long)n, (unsigned long long)seed);
    static uint8_t bytes[65536];
    kvo_answer a;
    kvo_names names = names_of(n, 1);
    kvo_segment segment = {bytes, info.payload_bytes};
    kvo_memory memory = {&segment, NULL};
    kvo_get(store, &names, &memory, NULL, &a);
    assert_int_equal(a.status, KVO_OK);
    uint32_t version = e->evicted ? e->floor : e->oldest;
    while (version <= e->newest && (length_of(n, version) != info.payload_bytes ||
                                    !payload_is(bytes, info.payload_bytes, n, version)))
        version++;
    if (version > e->newest) {
        uint32_t other = 0;
        while (other < 1000 && !payload_is(bytes, info.payload_bytes, n, other))
            other++;
        fail_msg("name %llu: none of its versions %u to %u, but %u (state %u, evicted %u, seed %llu)",
                 (unsigned long long)n, e->oldest, e->newest, other, e->state, e->evicted, (unsigned long long)seed);
    }
    settle(e, version);
}

static void report_bad(void *context, const kvo_bad_slot *bad)
{
    (void)context;
    print_error("%s at %llu: %s\n", bad->file, (unsigned long long)bad->offset_bytes, bad->what);
}

static void check_directory(void)
{
    kvo_verify_result verified;
    options.on_event = NULL;
    options.write_out_ns = 3600000000000u;
    options.flags = KVO_OPEN_READ_ONLY;
    int r = try_open(tiers, NULL);
    assert_true(r == KVO_OK || (r == KVO_E_NOT_FOUND && known->steps == 0)); /* killed too early */
    if (r == KVO_OK) {
        assert_int_equal(kvo_verify(store, report_bad, NULL, &verified), KVO_OK);
        assert_int_equal(verified.bad, 0);
        assert_int_equal(kvo_close(store, KVO_FOREVER), KVO_OK);
    }
    options.flags = 0;
    open_store(tiers);
    check_valid();
    assert_int_equal(store_stat().damaged_slots, 0);
    for (uint64_t n = 0; n < NAMES; n++)
        check_name(n);
    assert_int_equal(store_stat().digest_misses, 0);
    check_valid();
    for (uint64_t n = 0; n < NAMES; n++)
        known->names[n].evicted = 0;
}

static void check_and_leave(void *context)
{
    (void)context;
    check_directory();
}

static void check_and_close(void)
{
    check_directory();
    close_store();
}

static void kill_again_and_again(const char *hierarchy)
{
    const char *given = getenv("KVO_TEST_SEED"), *rounds = getenv("KVO_TEST_ROUNDS");
    int count = rounds ? atoi(rounds) : 6, killed;
    tiers = hierarchy;
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    known = mmap(NULL, sizeof *known, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(known != MAP_FAILED);
    uint64_t random = seed;
    /* On a slow machine a process may be killed before it did anything. */
    for (int round = 0; round < count || (known->steps == 0 && round < 100); round++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            run_until_killed();
            _exit(1);
        }
        uint32_t us = 10000 + draw(&random) % 150000;
        struct timespec pause = {0, us * 1000L};
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &killed, 0), child);
        assert_true(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL);
        if (known->wrong)
            fail_msg("line %u said so before it was killed (seed %llu)", known->wrong, (unsigned long long)seed);
        if (round % 3 == 0)
            check_and_close();
        else
            assert_child_ok(in_child(check_and_leave, NULL));
    }
    assert_true(known->steps > 0);
    munmap(known, sizeof *known);
}

static void nothing_written_is_lost_and_nothing_removed_returns(void **state)
{
    (void)state;
    kill_again_and_again("dram:12blk,disk:@0:48blk");
}

static void nor_on_a_disk_alone(void **state)
{
    (void)state;
    kill_again_and_again("disk:@0:48blk");
}

static void nor_on_two_disks(void **state)
{
    (void)state;
    kill_again_and_again("dram:8blk,disk:@0:20blk,disk:@1:48blk");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(nothing_written_is_lost_and_nothing_removed_returns),
        FIXTURE_TEST(nor_on_a_disk_alone),
        FIXTURE_TEST(nor_on_two_disks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
