/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that does not answer (public report B006): calls keep their deadlines, memory goes on serving, what the
 * device may still write is not freed, and all works again when it answers.
 */
#include "store/machine.h"

#include <pthread.h>
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

static int teardown(void **state)
{
    machine_go_on();
    return fixture_teardown(state);
}

/* The first block from `first` on that memory has, or has not. */
static uint64_t find(uint64_t first, bool in_memory)
{
    kvo_answer answer;
    while (exists(first, &answer) != KVO_OK || ((answer.tier_mask & 1) != 0) != in_memory)
        first++;
    return first;
}

/* ---- jobs ---- */

typedef struct reading {
    kvo_queue *queue;
    uint8_t memory[65536];
    kvo_segment segment;
    kvo_answer answer;
    kvo_report report;
} reading;

static void submit_get(reading *r, uint64_t number, uint64_t deadline_ns)
{
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_names names = names_of(number, 1);
    r->segment = (kvo_segment){r->memory, bytes};
    kvo_memory memory = {&r->segment, NULL};
    o.deadline_ns = deadline_ns;
    assert_int_equal(kvo_submit_get(r->queue, &names, &memory, &o, &r->answer, NULL, &r->report.job), KVO_OK);
}

static size_t poll_for(reading *r, uint64_t timeout_ns)
{
    size_t count = 0;
    assert_int_equal(kvo_poll(r->queue, &r->report, 1, timeout_ns, &count), KVO_OK);
    return count;
}

static void memory_serves(const uint64_t *numbers, size_t count)
{
    kvo_pin held;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(get(numbers[i], bytes), KVO_OK);
        assert_int_equal(pin(numbers[i], &held), KVO_OK);
        assert_true(payload_is(held.memory, bytes, numbers[i], 0));
        assert_int_equal(kvo_unpin(store, &held, 1), KVO_OK);
        assert_int_equal(touch(numbers[i]), KVO_OK);
    }
    store_stat();
    tier_stat(1);
}

static void b006_a_read_that_hangs_keeps_nobody(void **state)
{
    (void)state;
    static reading r;
    uint64_t above[4];
    machine_open("dram:16blk,disk:@0:64blk", false);
    for (uint64_t i = 0; i < 40; i++)
        assert_int_equal(put_at(i, KVO_WRITTEN, KVO_FOREVER), KVO_STORED);
    uint64_t below = find(0, false);
    assert_int_equal(kvo_queue_open(store, NULL, &r.queue), KVO_OK);
    machine_stop();
    submit_get(&r, below, 20 * MS);
    machine_wait(1);
    assert_int_equal(poll_for(&r, 100 * MS), 0); /* its memory is the device's */
    for (uint64_t i = 0, next = 0; i < 4; i++, next = above[i - 1] + 1)
        above[i] = find(next, true);
    memory_serves(above, 4);
    kvo_policy policy = KVO_POLICY_INIT;
    policy.priority = 99;
    assert_int_equal(set_policy(below, &policy, KVO_POLICY_PRIORITY), KVO_OK);
    /* Others wait for that transfer no longer than they said. */
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = 20 * MS;
    assert_int_equal(get_as(below, bytes, 0, &o, NULL), KVO_BUSY);
    kvo_cancel(r.queue, r.report.job);
    assert_int_equal(kvo_queue_close(r.queue, 20 * MS), KVO_BUSY);
    assert_int_equal(kvo_close(store, 20 * MS), KVO_BUSY);
    memory_serves(above, 4); /* the store stays open */
    machine_go_on();
    assert_int_equal(poll_for(&r, KVO_FOREVER), 1);
    assert_int_equal(r.answer.status, KVO_OK);
    assert_true(payload_is(r.memory, bytes, below, 0));
    assert_int_equal(kvo_queue_close(r.queue, KVO_FOREVER), KVO_OK);
    assert_int_equal(get(below, bytes), KVO_OK);
    assert_int_equal(put_at(1000, KVO_SAFE, KVO_FOREVER), KVO_STORED);
    close_store();
}

/* ---- room ---- */

static void *put_and_wait(void *context)
{
    (void)context;
    static uint8_t memory[65536];
    kvo_answer answer = {0};
    kvo_segment segment = {memory, bytes};
    kvo_memory list = {&segment, NULL};
    for (uint64_t i = 0; i < 64 && !machine.waiting; i++) {
        kvo_names names = names_of(5000 + i, 1);
        payload_make(memory, bytes, 5000 + i, 0);
        kvo_put(store, &names, &list, NULL, &answer);
    }
    return NULL;
}

static void b006_room_that_hangs_is_busy_in_time(void **state)
{
    (void)state;
    pthread_t first;
    uint64_t above[1];
    with_mover = true;
    machine_open("dram:16blk,disk:@0:64blk", false);
    assert_int_equal(put_at(1, KVO_WRITTEN, KVO_FOREVER), KVO_STORED);
    machine_stop();
    assert_int_equal(pthread_create(&first, NULL, put_and_wait, NULL), 0);
    machine_wait(1);
    /* Memory is full of what cannot get down: each put says so when its time is over. */
    unsigned busy = 0;
    for (uint64_t i = 0; i < 20; i++)
        busy += put_at(2000 + i, KVO_SEALED, 5 * MS) == KVO_BUSY;
    assert_true(busy > 0);
    assert_true(store_stat().put_busy >= busy);
    above[0] = find(1, true);
    memory_serves(above, 1);
    machine_go_on();
    pthread_join(first, NULL);
    for (uint64_t i = 0; i < 40; i++)
        assert_int_equal(put_at(3000 + i, KVO_WRITTEN, KVO_FOREVER), KVO_STORED);
    close_store();
}

static int reserve_for(uint64_t number, uint64_t deadline_ns)
{
    kvo_names names = names_of(number, 1);
    uint32_t length = (uint32_t)bytes;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_reservation reservation;
    kvo_answer answer = {0}, aborted;
    o.deadline_ns = deadline_ns;
    assert_int_equal(kvo_reserve(store, &names, &length, &o, &reservation, &answer), KVO_OK);
    if (answer.status == KVO_OK)
        assert_int_equal(kvo_abort(store, &reservation, 1, &aborted), KVO_OK);
    return answer.status;
}

/* Nobody else is there to wait for the device: whoever needs room would have to make it. */
static void each_is_busy_in_time(size_t of_bytes, uint64_t deadline_ns)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    unsigned busy = 0, tries = 0;
    o.deadline_ns = deadline_ns;
    for (; busy < 20 && tries < 1000; tries++)
        busy += put_as(2000 + tries, of_bytes, 0, &o, NULL) == KVO_BUSY;
    assert_int_equal(busy, 20);
    assert_int_equal(reserve_for(4000, deadline_ns), KVO_BUSY);
    machine_wait(1);
    machine_go_on();
    for (uint64_t i = 0; i < 40; i++)
        assert_int_equal(put_as(3000 + i, of_bytes, 0, NULL, NULL), KVO_STORED);
    close_store();
}

static void stopped_then_each_is_busy(size_t fill_bytes, size_t of_bytes, uint64_t deadline_ns)
{
    with_mover = true;
    machine_open("dram:16blk,disk:@0:64blk", false);
    assert_int_equal(fill_with(0, 4, fill_bytes), 4);
    machine_stop();
    each_is_busy_in_time(of_bytes, deadline_ns);
}

static void b006_room_that_a_call_needs_alone_is_busy_in_time(void **state)
{
    (void)state;
    stopped_then_each_is_busy(bytes, bytes, 5 * MS);
}

static void b006_a_call_that_does_not_wait_does_not_make_room(void **state)
{
    (void)state;
    stopped_then_each_is_busy(bytes, 4096, 0);
}

/* A segment has to change its slot size, and what lies in it has to get down. */
static void b006_room_of_another_size_is_busy_in_time(void **state)
{
    (void)state;
    stopped_then_each_is_busy(bytes, 4096, 5 * MS);
}

/* ---- closing ---- */

static void closes_busy_and_again(int times)
{
    kvo_answer answer;
    kvo_names names = names_of(1, 1);
    machine.clock_rate = 1000; /* its 10 s are 10 ms */
    for (int i = 0; i < times; i++) {
        assert_int_equal(kvo_close(store, 0), KVO_BUSY);
        assert_int_equal(kvo_exists(store, &names, &answer), KVO_E_STATE);
        assert_int_equal(kvo_unpin(store, NULL, 0), KVO_E_STATE);
    }
    machine.clock_rate = 1;
    machine_go_on();
    assert_int_equal(kvo_close(store, KVO_FOREVER), KVO_OK);
    store = NULL;
}

static void finds_all(uint64_t count)
{
    open_store("dram:16blk,disk:@0:64blk");
    assert_int_equal(store_stat().unfinished_slots, 0);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(get(i, bytes), KVO_OK);
    close_store();
}

static void b006_a_close_whose_writes_hang_is_busy(void **state)
{
    (void)state;
    machine_open("dram:16blk,disk:@0:64blk", false);
    assert_int_equal(fill_with(0, 12, bytes), 12);
    machine_stop();
    closes_busy_and_again(3);
    finds_all(12);
}

static void b006_a_close_whose_mover_hangs_is_busy(void **state)
{
    (void)state;
    with_mover = true;
    machine_open("dram:16blk,disk:@0:64blk", false);
    machine_stop();
    uint64_t count = 0;
    while (!machine.waiting) { /* it begins before memory is full */
        assert_int_equal(put(count++, bytes), KVO_STORED);
        rest_ms(20);
    }
    closes_busy_and_again(2);
    finds_all(count);
}

static void b006_a_close_whose_keeper_hangs_is_busy(void **state)
{
    (void)state;
    options.write_out_ns = 1 * MS;
    machine_open("dram:16blk,disk:@0:64blk", false);
    machine_stop();
    assert_int_equal(put(0, bytes), KVO_STORED);
    machine_wait(1);
    closes_busy_and_again(2);
    finds_all(1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fixture_setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(b006_a_read_that_hangs_keeps_nobody),
        TEST(b006_room_that_hangs_is_busy_in_time),
        TEST(b006_room_that_a_call_needs_alone_is_busy_in_time),
        TEST(b006_a_call_that_does_not_wait_does_not_make_room),
        TEST(b006_room_of_another_size_is_busy_in_time),
        TEST(b006_a_close_whose_writes_hang_is_busy),
        TEST(b006_a_close_whose_mover_hangs_is_busy),
        TEST(b006_a_close_whose_keeper_hangs_is_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
