/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that were reported in public of systems like this one, by their ids: each test is of the kind of a report,
 * with what is left of it here, and a sibling.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "nth.h"

enum { BYTES = 65536 };

static void put_at(uint64_t number, uint32_t version, int level, int expected)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = level;
    o.deadline_ns = 0;
    assert_int_equal(put_as(number, BYTES, version, &o, NULL), expected);
}

static uint64_t slot_of(uint64_t number) { return info_of(number).copies[0].offset_bytes; }

/* ---- bytes ---- */

static void swap_payloads(uint64_t a, uint64_t b)
{
    char path[128];
    static uint8_t one[BYTES], two[BYTES];
    snprintf(path, sizeof path, "%s/data", fixture_path(0));
    int file = open(path, O_RDWR);
    off_t at_a = (off_t)slot_of(a) + 4096, at_b = (off_t)slot_of(b) + 4096;
    assert_int_equal(pread(file, one, BYTES, at_a), BYTES);
    assert_int_equal(pread(file, two, BYTES, at_b), BYTES);
    assert_int_equal(pwrite(file, two, BYTES, at_a), BYTES);
    assert_int_equal(pwrite(file, one, BYTES, at_b), BYTES);
    close(file);
}

static void B006_bytes_of_the_right_length_that_are_not_the_blocks_are_a_miss(void **state)
{
    (void)state;
    nth_open_store("disk:@0:64blk");
    for (uint64_t i = 0; i < 6; i++)
        put_at(i, 0, KVO_WRITTEN, KVO_STORED);
    swap_payloads(1, 2);
    nth_flip(0, "data", (slot_of(3) + 4096 + 100) * 8);
    for (uint64_t i = 1; i < 4; i++)
        assert_int_equal(get(i, BYTES), KVO_MISS);
    assert_int_equal(store_stat().digest_misses, 3);
    assert_int_equal(get(0, BYTES), KVO_OK);
    for (uint64_t i = 1; i < 4; i++)
        put_at(i, 1, KVO_WRITTEN, KVO_STORED);
    /* A sibling: while nobody has it open. */
    uint64_t at = slot_of(4) + 4096;
    close_store();
    nth_flip(0, "data", at * 8 + 1);
    nth_open_store("disk:@0:64blk");
    assert_int_equal(get(4, BYTES), KVO_MISS);
    for (uint64_t i = 1; i < 4; i++)
        assert_int_equal(get_as(i, BYTES, 1, NULL, NULL), KVO_OK);
    assert_int_equal(get(5, BYTES), KVO_OK);
    close_store();
}

static void fails_once_then_misses(uint64_t number)
{
    int failures = 0;
    for (int i = 0; i < 5; i++) {
        if (exists(number, NULL) != KVO_OK)
            continue;
        assert_int_not_equal(get(number, BYTES), KVO_OK);
        failures++;
    }
    assert_int_equal(failures, 1);
    put_at(number, 1, KVO_WRITTEN, KVO_STORED);
    for (int i = 0; i < 3; i++) { /* no miss is remembered over a put */
        assert_int_equal(exists(number, NULL), KVO_OK);
        assert_int_equal(get_as(number, BYTES, 1, NULL, NULL), KVO_OK);
    }
}

static void B055_a_failed_load_is_a_miss_the_second_time(void **state)
{
    (void)state;
    nth_open_store("disk:@0:64blk");
    for (uint64_t i = 0; i < 4; i++)
        put_at(i, 0, KVO_WRITTEN, KVO_STORED);
    nth_flip(0, "data", (slot_of(1) + 4096) * 8);
    fails_once_then_misses(1);
    /* A sibling: a sector that cannot be read. */
    nth_bad_page("data", slot_of(2) / 4096 + 3);
    fails_once_then_misses(2);
    nth_bad_page(NULL, 0);
    assert_int_equal(get(0, BYTES), KVO_OK);
    close_store();
}

static void B067_damage_in_the_middle_costs_what_it_hit_and_nothing_behind_it(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    kvo_policy policy = KVO_POLICY_INIT;
    policy.priority = 70;
    nth_open_store("disk:@0:64blk");
    for (uint64_t i = 0; i < COUNT; i++) {
        put_at(i, 0, KVO_WRITTEN, KVO_STORED);
        assert_int_equal(set_policy(i, &policy, KVO_POLICY_PRIORITY), KVO_OK);
    }
    uint64_t at = slot_of(20);
    close_store();
    nth_flip(0, "data", at * 8 + 900);             /* which also makes the checkpoint old */
    nth_flip(0, "checkpoint", 4096 * 8 * 2 + 900); /* its pages are checked one by one too */
    nth_open_store("disk:@0:64blk");
    assert_int_equal(store_stat().damaged_slots, 1);
    assert_true(store_stat().headers_read >= COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_int_equal(get(i, BYTES), i == 20 ? KVO_MISS : KVO_OK);
        if (i != 20)
            assert_int_equal(policy_of(i).priority, 70);
    }
    close_store();
}

static void B133_a_batch_with_a_bad_one_in_it_says_which_and_leaves_nothing_behind(void **state)
{
    (void)state;
    enum { COUNT = 10 };
    static uint8_t memory[COUNT][BYTES];
    kvo_answer answers[COUNT];
    kvo_segment segments[COUNT];
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_pin pins[COUNT];
    o.deadline_ns = 0;
    nth_open_store("dram:16blk,disk:@0:64blk");
    for (uint64_t i = 0; i < COUNT; i++)
        put_at(i, 0, KVO_WRITTEN, KVO_STORED);
    fill_with(1000, 30, BYTES);
    nth_flip(0, "data", (slot_of(4) + 4096) * 8); /* below only, by now */
    assert_int_equal(drop(6, KVO_WRITTEN), KVO_OK);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < COUNT; i++)
            segments[i] = (kvo_segment){memory[i], BYTES};
        kvo_memory to = {segments, NULL};
        kvo_names names = names_of(0, COUNT);
        assert_int_equal(kvo_get(store, &names, &to, &o, answers), KVO_OK);
        for (uint64_t i = 0; i < COUNT; i++) {
            bool good = round == 1 || (i != 4 && i != 6);
            assert_int_equal(answers[i].status, good ? KVO_OK : KVO_MISS);
            if (good)
                assert_true(payload_is(memory[i], BYTES, i, 0));
        }
        assert_int_equal(kvo_pin_blocks(store, &names, &o, pins, answers), KVO_OK);
        for (uint64_t i = 0; i < COUNT; i++)
            assert_int_equal(answers[i].status, round == 1 || (i != 4 && i != 6) ? KVO_OK : KVO_MISS);
        for (uint64_t i = 0; i < COUNT; i++)
            if (pins[i].token)
                assert_int_equal(kvo_unpin(store, &pins[i], 1), KVO_OK);
        assert_int_equal(store_stat().pinned_blocks, 0);
        check_valid();
        for (uint64_t i = 4; round == 0 && i <= 6; i += 2)
            put_at(i, 0, KVO_SEALED, KVO_STORED);
    }
    close_store();
}

/* ---- room ---- */

static void full_and_freed(const char *tiers)
{
    nth_open_store(tiers);
    for (uint64_t i = 0; i < 8; i++)
        put_at(i, 0, KVO_WRITTEN, KVO_STORED);
    for (uint64_t round = 0; round < 20; round++) {
        kvo_put_options o = KVO_PUT_OPTIONS_INIT;
        o.level = KVO_WRITTEN;
        o.deadline_ns = 0;
        uint64_t before = tier_stat(store_stat().present_tier_count - 1).io_errors;
        nth_arm(1, 1L << 40, NTH_IN_PART); /* whatever is asked for: no space */
        for (uint64_t i = 0; i < 3; i++)
            assert_int_not_equal(put_as(100 + round * 3 + i, BYTES, 0, &o, NULL), KVO_STORED);
        nth_disarm();
        assert_true(tier_stat(store_stat().present_tier_count - 1).io_errors > before);
        assert_int_equal(get(round % 8, BYTES), KVO_OK);
        kvo_answer answer;
        int status = put_as(100 + round * 3, BYTES, 0, &o, &answer); /* at once, without an opening */
        assert_true(status == KVO_STORED || status == KVO_EXISTS);
        assert_int_equal(answer.level, KVO_WRITTEN);
        check_valid();
    }
    close_store();
}

static void B018_puts_go_on_when_space_is_back(void **state)
{
    (void)state;
    full_and_freed("disk:@0:128blk");
    fixture_remove(0);
    full_and_freed("dram:32blk,disk:@0:128blk");
}

/* Ten below, a hundred above: what is evicted below is still there above, and nobody says that it is safe. */
static void B081_what_the_lower_tier_dropped_is_not_called_written(void **state)
{
    (void)state;
    nth_open_store("dram:100blk,disk:@0:10blk");
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(put(i, BYTES), KVO_STORED);
    kvo_sync(store, NULL, KVO_WRITTEN, 0, NULL);
    for (uint64_t i = 0; i < 30; i++)
        assert_int_equal(put(200 + i, BYTES), KVO_STORED);
    check_valid();
    uint64_t written = 0;
    for (uint64_t i = 0; i < 230; i++) {
        kvo_answer answer;
        int there = exists(i, &answer);
        bool below = there == KVO_OK && (answer.tier_mask & 2);
        kvo_block_info info = info_of(i);
        bool copied = false;
        for (uint32_t k = 0; k < info.copy_count; k++)
            copied |= info.copies[k].tier == 1;
        assert_int_equal(below, copied);
        assert_int_equal(there == KVO_OK && answer.level >= KVO_WRITTEN, below);
        assert_int_equal(get(i, BYTES), there);
        written += below;
    }
    assert_true(written > 0 && written <= 10);
    kvo_close(store, 0); /* memory has more than the disk takes */
    store = NULL;
    nth_open_store("dram:100blk,disk:@0:10blk");
    assert_true(store_stat().blocks <= 10);
    close_store();
}

/* k of sixteen fails: what is given can be used or given back, and then all is as before. */
static void B086_a_reservation_that_fails_half_way_keeps_nothing(void **state)
{
    (void)state;
    enum { COUNT = 16 };
    uint32_t bytes[COUNT];
    kvo_reservation reservations[COUNT];
    kvo_answer answers[COUNT];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.deadline_ns = 0;
    for (int i = 0; i < COUNT; i++)
        bytes[i] = BYTES;
    static const char *const tiers[] = {"dram:7blk", "disk:@0:7blk"};
    for (int t = 0; t < 2; t++)
        for (long k = 1; k <= COUNT + 4; k++) { /* the last ones fail for want of room alone */
            nth_open_store(tiers[t]);
            uint64_t used = tier_stat(0).used_bytes, control = store_stat().control_bytes;
            kvo_names names = names_of(0, COUNT);
            memset(reservations, 0, sizeof reservations);
            nth_arm(k, 1, NTH_NOTHING);
            assert_int_equal(kvo_reserve(store, &names, bytes, &o, reservations, answers), KVO_OK);
            nth_disarm();
            size_t given = 0;
            for (int i = 0; i < COUNT; i++) {
                assert_int_equal(answers[i].status == KVO_OK, reservations[i].handle != 0);
                given += answers[i].status == KVO_OK;
            }
            assert_true(given >= 6 && given < COUNT);
            assert_int_equal(store_stat().reserved_blocks, given);
            for (int i = 0; i < COUNT; i++)
                if (reservations[i].handle)
                    assert_int_equal(kvo_abort(store, &reservations[i], 1, answers), KVO_OK);
            assert_int_equal(tier_stat(0).used_bytes, used);
            assert_int_equal(store_stat().reserved_blocks, 0);
            assert_int_equal(store_stat().control_bytes, control);
            assert_int_equal(put(1, BYTES), KVO_STORED);
            close_store();
            assert_int_equal(atomic_load(&nth.pieces), 0);
            fixture_remove(0);
        }
}

/* ---- commits ---- */

static void B127_a_commit_that_fails_is_no_success(void **state)
{
    (void)state;
    kvo_answer answer;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = KVO_SAFE;
    o.deadline_ns = 0;
    nth_open_store("dram:16blk,disk:@0:64blk");
    nth_flushes_say(-EIO);
    int status = put_as(1, BYTES, 0, &o, &answer);
    assert_true(status != KVO_STORED && answer.level < KVO_SAFE);
    assert_int_not_equal(kvo_sync(store, NULL, KVO_SAFE, 0, NULL), KVO_OK);
    assert_true(exists(1, &answer) == KVO_OK && answer.level < KVO_SAFE);
    nth_flushes_say(0);
    assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
    assert_true(exists(1, &answer) == KVO_OK && answer.level == KVO_SAFE);
    /* Siblings: a remove, and a close. */
    nth_flushes_say(-EIO);
    kvo_target target = target_of(1, 1);
    status = kvo_remove(store, &target, KVO_SAFE, 0, &answer, NULL);
    assert_true(status != KVO_OK || answer.status != KVO_OK);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_not_equal(kvo_close(store, 0), KVO_OK);
    store = NULL;
    nth_flushes_say(0);
    nth_open_store("dram:16blk,disk:@0:64blk");
    close_store();
}

/* ---- direct I/O that is refused ---- */

static _Atomic bool refuses; /* direct reads */
static _Atomic long refusals;

ssize_t preadv64(int file, const struct iovec *iov, int count, off_t offset)
{
    typedef ssize_t (*call)(int, const struct iovec *, int, off_t);
    static _Atomic(call) real;
    if (atomic_load(&real) == NULL)
        atomic_store(&real, (call)(uintptr_t)dlsym(RTLD_NEXT, "preadv64"));
    if (atomic_load(&refuses) && (fcntl(file, F_GETFL) & O_DIRECT)) {
        atomic_fetch_add(&refusals, 1);
        errno = EINVAL;
        return -1;
    }
    return atomic_load(&real)(file, iov, count, offset);
}

enum { READERS = 16, READ_BLOCKS = 32 };

static void *reads_all(void *argument)
{
    uint8_t *memory = aligned_alloc(4096, BYTES);
    uint64_t first = (uint64_t)(uintptr_t)argument;
    long wrong = 0;
    for (uint64_t k = 0; k < READ_BLOCKS; k++) {
        uint64_t number = (first * 7 + k) % READ_BLOCKS;
        kvo_get_options o = KVO_GET_OPTIONS_INIT;
        kvo_answer answer;
        kvo_names names = names_of(number, 1);
        kvo_segment segment = {memory, BYTES};
        kvo_memory to = {&segment, NULL};
        int r = kvo_get(store, &names, &to, &o, &answer);
        wrong += r != KVO_OK || answer.status != KVO_OK || !payload_is(memory, BYTES, number, 0);
    }
    free(memory);
    return (void *)(intptr_t)wrong;
}

static void B129_a_file_that_refuses_direct_reads_is_read_through_the_cache(void **state)
{
    (void)state;
    pthread_t readers[READERS];
    options.io_engine = KVO_IO_THREADS;
    open_store("disk:@0:64blk");
    bool direct = tier_stat(0).direct_io;
    for (uint64_t i = 0; i < READ_BLOCKS; i++)
        assert_int_equal(put(i, BYTES), KVO_STORED);
    atomic_store(&refuses, true);
    for (uintptr_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, reads_all, (void *)i), 0);
    for (int i = 0; i < READERS; i++) {
        void *wrong;
        pthread_join(readers[i], &wrong);
        assert_null(wrong);
    }
    long once = atomic_load(&refusals);
    assert_true(!direct || (once >= 1 && once <= READERS)); /* each may find it out at the same time, not each time */
    assert_int_equal(get(3, BYTES), KVO_OK);
    assert_int_equal(atomic_load(&refusals), once);
    atomic_store(&refuses, false);
    close_store();
}

/* ---- signals ---- */

static _Atomic long signals;

static void on_alarm(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
}

static void work_under_signals(int engine)
{
    options.io_engine = engine;
    for (int round = 0; round < 3; round++) {
        kvo_error error = {{0}};
        int r = try_open("dram:8blk,disk:@0:64blk", &error);
        if (r == KVO_E_UNSUPPORTED)
            return;
        assert_int_equal(r, KVO_OK);
        space = open_space("a", BYTES);
        for (uint64_t i = 0; i < 40; i++)
            assert_int_equal(put((uint64_t)round * 40 + i, BYTES), KVO_STORED);
        assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
        for (uint64_t i = 0; i < 40; i++)
            assert_int_equal(get((uint64_t)round * 40 + i, BYTES), KVO_OK);
        assert_int_equal(tier_stat(1).io_errors, 0);
        close_store();
    }
}

static void under_signals(int engine, __itimer_which_t which, int signal_number)
{
    struct sigaction action = {.sa_handler = on_alarm}, old; /* without SA_RESTART */
    struct itimerval often = {{0, 200}, {0, 200}}, none = {{0, 0}, {0, 0}};
    long before = atomic_load(&signals);
    assert_int_equal(sigaction(signal_number, &action, &old), 0);
    assert_int_equal(setitimer(which, &often, NULL), 0);
    work_under_signals(engine);
    assert_int_equal(setitimer(which, &none, NULL), 0);
    assert_int_equal(sigaction(signal_number, &old, NULL), 0);
    assert_true(atomic_load(&signals) > before);
}

static void B092_signals_cut_no_call_short(void **state)
{
    (void)state;
    static const int engines[] = {KVO_IO_URING, KVO_IO_THREADS};
    for (int i = 0; i < 2; i++) {
        under_signals(engines[i], ITIMER_REAL, SIGALRM);
        fixture_remove(0);
    }
    under_signals(KVO_IO_AUTO, ITIMER_PROF, SIGPROF); /* a sibling: a profiler's */
}

#define NTH_TEST(f) cmocka_unit_test_setup_teardown(f, nth_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* On the file system of temporary files, before the others turn to one in memory. */
        FIXTURE_TEST(B129_a_file_that_refuses_direct_reads_is_read_through_the_cache),
        FIXTURE_TEST(B092_signals_cut_no_call_short),
        NTH_TEST(B006_bytes_of_the_right_length_that_are_not_the_blocks_are_a_miss),
        NTH_TEST(B055_a_failed_load_is_a_miss_the_second_time),
        NTH_TEST(B067_damage_in_the_middle_costs_what_it_hit_and_nothing_behind_it),
        NTH_TEST(B133_a_batch_with_a_bad_one_in_it_says_which_and_leaves_nothing_behind),
        NTH_TEST(B018_puts_go_on_when_space_is_back),
        NTH_TEST(B081_what_the_lower_tier_dropped_is_not_called_written),
        NTH_TEST(B086_a_reservation_that_fails_half_way_keeps_nothing),
        NTH_TEST(B127_a_commit_that_fails_is_no_success),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
