/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Full is a state: memory that is all pinned, readers that hold what everybody wants, a disk slower than those who
 * produce. Each after a public report, whose id it has.
 */
#include "store/machine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MS 1000000u

static const size_t bytes = 65536;

static void rest_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static int put_at(uint64_t number, int level, uint64_t deadline_ns)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = level;
    o.deadline_ns = deadline_ns;
    return put_as(number, bytes, 0, &o, NULL);
}

static bool is_memory(const kvo_pin *pin, uint64_t number) { return payload_is(pin->memory, bytes, number, 0); }

/* Pins until memory has no room; returns how many. */
static size_t pin_all(uint64_t first, size_t count, kvo_pin *pins, uint64_t *numbers)
{
    size_t n = 0;
    for (uint64_t i = first; i < first + count; i++)
        if (pin(i, &pins[n]) == KVO_OK)
            numbers[n++] = i;
    return n;
}

/* ---- memory is all pinned ---- */

static void b062_all_memory_pinned_still_reads_the_disk(void **state)
{
    (void)state;
    kvo_pin pins[40], one;
    uint64_t numbers[40], deadline = 20 * MS;
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_answer answer;
    with_mover = true;
    open_store("dram:8blk,disk:@0:64blk");
    for (uint64_t i = 0; i < 32; i++)
        assert_int_equal(put_at(i, KVO_WRITTEN, KVO_FOREVER), KVO_STORED);
    size_t pinned = pin_all(0, 32, pins, numbers);
    assert_true(pinned >= 8);
    assert_int_equal(store_stat().pinned_blocks, pinned);
    o.deadline_ns = deadline;
    for (uint64_t i = 0; i < 32; i++) {
        assert_int_equal(get_as(i, bytes, 0, &o, &answer), KVO_OK);
        exists(i, &answer);
        if (!(answer.tier_mask & 1))
            assert_int_equal(pin(i, &one), KVO_BUSY);
    }
    assert_int_equal(put_at(100, KVO_SEALED, deadline), KVO_BUSY);
    assert_true(store_stat().put_busy == 1);
    uint64_t below = 0;
    while (exists(below, &answer) != KVO_OK || (answer.tier_mask & 1))
        below++;
    assert_int_equal(drop(below, KVO_WRITTEN), KVO_OK);
    assert_int_equal(exists(below, NULL), KVO_MISS);
    for (size_t i = 0; i < pinned; i++)
        assert_true(is_memory(&pins[i], numbers[i]));
    assert_int_equal(kvo_unpin(store, pins, pinned), KVO_OK);
    assert_int_equal(put_at(100, KVO_WRITTEN, KVO_FOREVER), KVO_STORED);
    assert_int_equal(store_stat().pinned_blocks, 0);
    close_store();
}

/* ---- a reader that stops with a pin ---- */

typedef struct reader {
    pthread_t thread;
    _Atomic int pinned, release;
    bool same;
} reader;

static void *read_and_rest(void *context)
{
    reader *r = context;
    kvo_pin held;
    r->same = pin(7, &held) == KVO_OK;
    r->pinned = 1;
    while (!r->release)
        rest_ms(1);
    r->same = r->same && is_memory(&held, 7);
    kvo_unpin(store, &held, 1);
    return NULL;
}

static void b003_a_pin_outlasts_the_whole_memory_many_times(void **state)
{
    (void)state;
    reader r = {.pinned = 0};
    with_mover = true;
    machine_open("dram:16blk,disk:@0:64blk", false);
    assert_int_equal(put(7, bytes), KVO_STORED);
    assert_int_equal(pthread_create(&r.thread, NULL, read_and_rest, &r), 0);
    while (!r.pinned)
        rest_ms(1);
    uint64_t begin = store->env->now_ns(store->env);
    for (uint64_t i = 0; i < 100 * 16; i++) {
        if (i % 16 == 0) /* 16 minutes in sum */
            machine_pass_time(10000 * (uint64_t)MS);
        assert_int_equal(put_at(1000 + i, KVO_SEALED, KVO_FOREVER), KVO_STORED);
    }
    assert_true(store->env->now_ns(store->env) - begin >= 1000000 * (uint64_t)MS);
    assert_int_equal(store_stat().pinned_blocks, 1);
    /* Nor does it stay reachable only: a remove hides it, and its memory waits for the pin. */
    assert_int_equal(get(7, bytes), KVO_OK);
    assert_int_equal(drop(7, KVO_WRITTEN), KVO_OK);
    assert_int_equal(exists(7, NULL), KVO_MISS);
    machine_pass_time(600000 * (uint64_t)MS);
    for (uint64_t i = 0; i < 10 * 16; i++)
        assert_int_equal(put_at(5000 + i, KVO_SEALED, KVO_FOREVER), KVO_STORED);
    r.release = 1;
    pthread_join(r.thread, NULL);
    assert_true(r.same);
    assert_int_equal(store_stat().pinned_blocks, 0);
    close_store();
}

/* ---- unpins that are not one's own ---- */

static void b045_an_unpin_too_many_takes_nobodys_pin(void **state)
{
    (void)state;
    kvo_pin mine, theirs, copy, other;
    open_store("dram:4blk,disk:@0:64blk");
    put(1, bytes);
    put(2, bytes);
    assert_int_equal(pin(1, &mine), KVO_OK);
    assert_int_equal(pin(1, &theirs), KVO_OK);
    copy = mine;
    assert_int_equal(kvo_unpin(store, &mine, 1), KVO_OK);
    for (int i = 0; i < 3; i++) {
        kvo_pin again = copy;
        assert_int_equal(kvo_unpin(store, &again, 1), KVO_GONE);
    }
    /* The place in the table has a new owner: the old token is not that one's. */
    assert_int_equal(pin(2, &other), KVO_OK);
    kvo_pin stale = copy;
    assert_int_equal(kvo_unpin(store, &stale, 1), KVO_GONE);
    assert_int_equal(store_stat().pinned_blocks, 2);
    assert_int_equal(info_of(1).copies[0].pins, 1);
    for (uint64_t i = 0; i < 40; i++)
        assert_int_equal(put_at(100 + i, KVO_SEALED, KVO_FOREVER), KVO_STORED);
    assert_true(is_memory(&theirs, 1) && is_memory(&other, 2));
    kvo_pin both[2] = {theirs, other};
    assert_int_equal(kvo_unpin(store, both, 2), KVO_OK);
    assert_int_equal(store_stat().pinned_blocks, 0);
    close_store();
    open_store("dram:4blk,disk:@0:64blk");
    assert_int_equal(kvo_unpin(store, &copy, 1), KVO_GONE);
    close_store();
}

/* ---- batched eviction under readers ---- */

enum { READERS = 3, RESIDENT = 128 };

typedef struct crowd {
    pthread_t threads[READERS];
    _Atomic int stop;
    _Atomic uint64_t newest, checked, wrong;
} crowd;

static void *pin_some(void *context)
{
    crowd *c = context;
    uint64_t random = (uint64_t)(uintptr_t)&random;
    while (!c->stop) {
        kvo_pin pins[4] = {{0}};
        uint64_t numbers[4];
        size_t n = 0;
        for (int i = 0; i < 4; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            uint64_t newest = c->newest, back = (random >> 33) % RESIDENT;
            numbers[n] = newest > back ? newest - back : 0;
            n += pin(numbers[n], &pins[n]) == KVO_OK;
        }
        rest_ms(2);
        for (size_t i = 0; i < n; i++)
            c->wrong += !is_memory(&pins[i], numbers[i]);
        c->checked += n;
        if (n && kvo_unpin(store, pins, n) != KVO_OK)
            c->wrong++;
    }
    return NULL;
}

static void b046_batches_of_victims_pass_pins_by(void **state)
{
    (void)state;
    crowd c = {.stop = 0};
    with_mover = true;
    options.block_bytes = bytes;
    open_store("dram:128blk,disk:@0:512blk");
    assert_int_equal(put(0, bytes), KVO_STORED);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&c.threads[i], NULL, pin_some, &c), 0);
    for (uint64_t i = 1; i < 20 * RESIDENT; i++) {
        assert_int_equal(put_at(i, KVO_SEALED, KVO_FOREVER), KVO_STORED);
        c.newest = i;
    }
    c.stop = 1;
    for (int i = 0; i < READERS; i++)
        pthread_join(c.threads[i], NULL);
    printf("counted: %llu payloads compared, %llu wrong bytes\n", (unsigned long long)c.checked,
           (unsigned long long)c.wrong);
    assert_true(c.checked > 0);
    assert_int_equal(c.wrong, 0);
    assert_int_equal(store_stat().pinned_blocks, 0);
    close_store();
}

/* ---- the last partial batch ---- */

static void b084_the_last_blocks_get_down_however_few(void **state)
{
    (void)state;
    with_mover = true;
    machine_open("dram:80blk,disk:@0:320blk", false);
    machine.write_us = 300;
    for (uint64_t n = 1, first = 0; n <= 65; first += n++) {
        kvo_policy policy = KVO_POLICY_INIT;
        policy.intent = KVO_INTENT_DEMOTE;
        kvo_answer answers[65];
        assert_int_equal(fill_with(first, n, bytes), n);
        kvo_target target = target_of(first, n);
        assert_int_equal(kvo_policy_set(store, &target, &policy, KVO_POLICY_INTENT, answers, NULL), KVO_OK);
        /* No more calls that would push them: each of them comes down by itself. */
        kvo_names names = names_of(first, n);
        size_t down = 0;
        for (int tries = 0; down < n && tries < 20000; tries++) {
            down = 0;
            assert_int_equal(kvo_exists(store, &names, answers), KVO_OK);
            for (size_t i = 0; i < n; i++)
                down += answers[i].status == KVO_OK && answers[i].level >= KVO_WRITTEN;
            rest_ms(down < n);
        }
        assert_int_equal(down, n);
        assert_int_equal(kvo_remove(store, &target, KVO_SEALED, KVO_FOREVER, answers, NULL), KVO_OK);
    }
    close_store();
}

static void b084_what_was_written_through_is_never_between_two_tiers(void **state)
{
    (void)state;
    with_mover = true;
    machine_open("dram:8blk,disk:@0:512blk", false);
    machine.write_us = 500;
    for (uint64_t i = 0; i < 300; i++) {
        assert_int_equal(put_at(i, i % 2 ? KVO_WRITTEN : KVO_SEALED, KVO_FOREVER), KVO_STORED);
        for (uint64_t back = 0; back < 24 && back <= i; back++)
            assert_int_equal(exists(i - back, NULL), KVO_OK);
    }
    for (uint64_t i = 0; i < 300; i++)
        assert_int_equal(get(i, bytes), KVO_OK);
    assert_int_equal(store_stat().get_misses, 0);
    close_store();
}

/* ---- a disk slower than those who produce ---- */

static void *read_one(void *context)
{
    _Atomic int *stop = context;
    uint64_t served = 0;
    kvo_pin held;
    while (!*stop)
        if (pin(1, &held) == KVO_OK) {
            served += is_memory(&held, 1);
            kvo_unpin(store, &held, 1);
        }
    return (void *)(uintptr_t)served;
}

static void b117_a_slow_disk_bounds_memory_and_slows_producers(void **state)
{
    (void)state;
    _Atomic int stop = 0;
    pthread_t thread;
    void *served;
    kvo_policy keep = KVO_POLICY_INIT;
    with_mover = true;
    options.flight_bytes = 1u << 20;
    machine_open("dram:16blk,disk:@0:2048blk", false);
    assert_int_equal(put(1, bytes), KVO_STORED);
    keep.intent = KVO_INTENT_KEEP;
    assert_int_equal(set_policy(1, &keep, KVO_POLICY_INTENT), KVO_OK);
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    machine.write_us = 1000;
    assert_int_equal(pthread_create(&thread, NULL, read_one, &stop), 0);
    long before = 0;
    for (uint64_t i = 0; i < 1500; i++) {
        if (i == 100) /* what its threads have taken once, they keep */
            before = machine.most;
        assert_int_equal(put_at(1000 + i, KVO_SEALED, KVO_FOREVER), KVO_STORED);
    }
    stop = 1;
    pthread_join(thread, &served);
    assert_true((uintptr_t)served > 0);
    assert_true(store_stat().put_waits > 0);
    /* 1,400 blocks are 87 MiB: not one of them waits anywhere but in the arena. */
    assert_true(machine.most < before + 2 * (long)options.flight_bytes);
    machine.write_us = 0;
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    for (uint64_t i = 0; i < 1500; i += 7)
        assert_int_equal(get(1000 + i, bytes), KVO_OK);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(b062_all_memory_pinned_still_reads_the_disk),
        FIXTURE_TEST(b003_a_pin_outlasts_the_whole_memory_many_times),
        FIXTURE_TEST(b045_an_unpin_too_many_takes_nobodys_pin),
        FIXTURE_TEST(b046_batches_of_victims_pass_pins_by),
        FIXTURE_TEST(b084_the_last_blocks_get_down_however_few),
        FIXTURE_TEST(b084_what_was_written_through_is_never_between_two_tiers),
        FIXTURE_TEST(b117_a_slow_disk_bounds_memory_and_slows_producers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
