/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: queued whole or not at all, one report each, memory back with it. */
#include "machine.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define BYTES 65536u
#define SECOND 1000000000u

static kvo_queue *queue;

static int setup(void **state)
{
    queue = NULL;
    return fixture_setup(state);
}

/* A store with queues is closed whole. */
static int teardown(void **state) { return fixture_teardown(state); }

#define QUEUE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static void open_queue(const char *tiers)
{
    open_store(tiers);
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
}

/* ---- a batch with memory of its own ---- */

typedef struct batch {
    size_t count, bytes;
    uint8_t *names, *payload;
    kvo_segment *segments; /* three a block, one of them empty */
    uint32_t *counts;
    kvo_answer *answers;
    kvo_names list;
    kvo_memory memory;
} batch;

static batch batch_of(uint64_t first, size_t count, size_t bytes, bool filled)
{
    batch b = {.count = count, .bytes = bytes};
    b.names = malloc(count * NAME_BYTES);
    b.payload = malloc(count * bytes);
    b.segments = calloc(3 * count, sizeof *b.segments);
    b.counts = calloc(count, sizeof *b.counts);
    b.answers = calloc(count, sizeof *b.answers);
    for (size_t i = 0; i < count; i++) {
        uint8_t *at = b.payload + i * bytes;
        name_of(first + i, b.names + i * NAME_BYTES);
        if (filled)
            payload_make(at, bytes, first + i, 0);
        b.segments[3 * i] = (kvo_segment){at, bytes / 3};
        b.segments[3 * i + 1] = (kvo_segment){NULL, 0};
        b.segments[3 * i + 2] = (kvo_segment){at + bytes / 3, bytes - bytes / 3};
        b.counts[i] = 3;
        b.answers[i].status = -1;
    }
    b.list = (kvo_names){.first = b.names, .name_bytes = NAME_BYTES, .count = count, .space = space};
    b.memory = (kvo_memory){.segments = b.segments, .segment_counts = b.counts};
    return b;
}

static void batch_free(batch *b)
{
    free(b->names);
    free(b->payload);
    free(b->segments);
    free(b->counts);
    free(b->answers);
}

/* What was copied at the submit may change at once. */
static void batch_scribble(batch *b)
{
    memset(b->names, 0xee, b->count * NAME_BYTES);
    memset(b->segments, 0xee, 3 * b->count * sizeof *b->segments);
    memset(b->counts, 0xee, b->count * sizeof *b->counts);
}

static kvo_job submit_put(batch *b, const kvo_put_options *o, void *context)
{
    kvo_job job = 0;
    assert_int_equal(kvo_submit_put(queue, &b->list, &b->memory, o, b->answers, context, &job), KVO_OK);
    assert_true(job > 0);
    return job;
}

static kvo_job submit_get(batch *b, const kvo_get_options *o)
{
    kvo_job job = 0;
    assert_int_equal(kvo_submit_get(queue, &b->list, &b->memory, o, b->answers, NULL, &job), KVO_OK);
    return job;
}

static kvo_report take(kvo_queue *from)
{
    kvo_report report;
    size_t count;
    assert_int_equal(kvo_poll(from, &report, 1, 60ull * SECOND, &count), KVO_OK);
    assert_int_equal(count, 1);
    return report;
}

static void check_no_report(kvo_queue *from)
{
    kvo_report report;
    size_t count = 7;
    assert_int_equal(kvo_poll(from, &report, 1, 0, &count), KVO_OK);
    assert_int_equal(count, 0);
}

static uint64_t pending(void)
{
    uint64_t count;
    assert_int_equal(kvo_pending(queue, &count), KVO_OK);
    return count;
}

static bool readable(void)
{
    struct pollfd p = {.fd = kvo_queue_event(queue), .events = POLLIN};
    assert_true(p.fd >= 0);
    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

static void check_payloads(const batch *b, uint64_t first)
{
    for (size_t i = 0; i < b->count; i++)
        assert_true(payload_is(b->payload + i * b->bytes, b->bytes, first + i, 0));
}

/* ---- tests ---- */

static void test_put_and_get(void **state)
{
    (void)state;
    open_queue("dram:200blk,disk:@0:400blk");
    int mark;
    batch b = batch_of(1, 150, BYTES, true), c = batch_of(1, 150, BYTES, false);
    kvo_job put_job = submit_put(&b, NULL, &mark);
    batch_scribble(&b);
    assert_int_equal(kvo_drain(queue, 60ull * SECOND), KVO_OK);
    assert_true(readable());
    assert_int_equal(pending(), 1);
    kvo_report r = take(queue);
    assert_true(r.job == put_job && r.context == &mark && r.answers == b.answers);
    assert_true(r.status == KVO_OK && r.count == 150 && r.ok_count == 150 && r.taken_ns >= r.waited_ns);
    assert_false(readable());
    assert_int_equal(pending(), 0);
    for (size_t i = 0; i < b.count; i++)
        assert_int_equal(b.answers[i].status, KVO_STORED);
    kvo_job get_job = submit_get(&c, NULL);
    assert_true(get_job > put_job);
    batch_scribble(&c);
    r = take(queue);
    assert_true(r.job == get_job && r.ok_count == 150);
    check_payloads(&c, 1);
    check_no_report(queue);
    batch_free(&b);
    batch_free(&c);
    assert_int_equal(kvo_queue_close(queue, 0), KVO_OK);
    close_store();
}

static void test_each_job_is_reported_once(void **state)
{
    (void)state;
    enum { JOBS = 8 };
    batch b[JOBS];
    kvo_job jobs[JOBS];
    kvo_report reports[2 * JOBS];
    size_t count;
    open_queue("dram:200blk,disk:@0:400blk");
    for (unsigned i = 0; i < JOBS; i++) {
        b[i] = batch_of(10 * i, 3, BYTES, true);
        jobs[i] = submit_put(&b[i], NULL, NULL);
    }
    assert_int_equal(kvo_drain(queue, 60ull * SECOND), KVO_OK);
    assert_int_equal(kvo_poll(queue, reports, 2 * JOBS, 0, &count), KVO_OK);
    assert_int_equal(count, JOBS);
    for (unsigned i = 0; i < JOBS; i++) {
        unsigned times = 0;
        for (unsigned k = 0; k < JOBS; k++)
            times += reports[k].job == jobs[i];
        assert_int_equal(times, 1);
        batch_free(&b[i]);
    }
    check_no_report(queue);
    close_store();
}

/* Parents and positions follow a block into whatever slice it comes. */
static void test_slices_keep_chains(void **state)
{
    (void)state;
    options.workers = 2;
    open_queue("dram:200blk");
    batch b = batch_of(1, 100, 4096, true);
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.chained = 1;
    o.position = 160;
    submit_put(&b, &o, NULL);
    o.position = 7; /* copied */
    assert_int_equal(take(queue).ok_count, 100);
    for (uint64_t i = 1; i <= 100; i++) {
        kvo_block_info info = info_of(i);
        assert_int_equal(info.position, 160 + 16 * (i - 1));
        assert_int_equal(info.has_parent, i > 1);
        if (i > 1)
            assert_true(info.parent == info_of(i - 1).handle);
    }
    batch_free(&b);
    close_store();
}

/* The same for names and parents that lie apart, and positions of their own. */
static void test_slices_keep_strides_parents_and_positions(void **state)
{
    (void)state;
    enum { COUNT = 100, NAMES = 40, PARENTS = 48 };
    static uint8_t names[COUNT * NAMES], parents[COUNT * PARENTS];
    uint32_t positions[COUNT];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    open_queue("dram:256blk");
    batch b = batch_of(1, COUNT, BYTES, true);
    memset(parents, 0, sizeof parents); /* the first one has none */
    for (size_t i = 0; i < COUNT; i++) {
        memcpy(names + i * NAMES, b.names + i * NAME_BYTES, NAME_BYTES);
        if (i)
            memcpy(parents + i * PARENTS, b.names + (i - 1) * NAME_BYTES, NAME_BYTES);
        positions[i] = (uint32_t)(1000 + 7 * i);
    }
    b.list.first = names;
    b.list.stride_bytes = NAMES;
    o.parents = parents;
    o.parents_stride_bytes = PARENTS;
    o.positions = positions;
    assert_int_equal(kvo_submit_put(queue, &b.list, &b.memory, &o, b.answers, NULL, NULL), KVO_OK);
    memset(names, 0xee, sizeof names); /* the job has copies */
    memset(parents, 0xee, sizeof parents);
    memset(positions, 0xee, sizeof positions);
    assert_int_equal(take(queue).ok_count, COUNT);
    kvo_block_info before = info_of(1);
    assert_true(before.position == 1000 && !before.has_parent);
    for (uint64_t i = 1; i < COUNT; i++) {
        kvo_block_info info = info_of(1 + i);
        assert_int_equal(info.position, 1000 + 7 * i);
        assert_true(info.has_parent && info.parent == before.handle);
        before = info;
    }
    batch_free(&b);
    close_store();
}

static void test_queues_are_apart(void **state)
{
    (void)state;
    open_queue("dram:200blk");
    kvo_queue *first = queue, *second;
    assert_int_equal(kvo_queue_open(store, NULL, &second), KVO_OK);
    batch a = batch_of(1, 3, BYTES, true), b = batch_of(10, 5, BYTES, true);
    kvo_job in_first = submit_put(&a, NULL, NULL);
    queue = second;
    kvo_job in_second = submit_put(&b, NULL, NULL);
    assert_true(in_first == 1 && in_second == 1);
    assert_int_equal(kvo_drain(first, KVO_FOREVER), KVO_OK);
    assert_int_equal(kvo_drain(second, KVO_FOREVER), KVO_OK);
    assert_int_equal(take(second).count, 5);
    check_no_report(second);
    assert_int_equal(take(first).count, 3);
    check_no_report(first);
    assert_true(kvo_queue_event(first) != kvo_queue_event(second));
    batch_free(&a);
    batch_free(&b);
    assert_int_equal(kvo_queue_close(first, 0), KVO_OK);
    close_store(); /* closes the other */
}

static void test_busy_is_for_the_whole_batch(void **state)
{
    (void)state;
    open_store("dram:200blk");
    kvo_queue_options o = KVO_QUEUE_OPTIONS_INIT;
    o.jobs_max = 2;
    assert_int_equal(kvo_queue_open(store, &o, &queue), KVO_OK);
    batch b = batch_of(1, 10, 4096, true);
    batch c = batch_of(20, 10, 4096, true), d = batch_of(40, 10, 4096, true);
    kvo_job job = 99;
    submit_put(&b, NULL, NULL);
    submit_put(&c, NULL, NULL);
    assert_int_equal(kvo_drain(queue, KVO_FOREVER), KVO_OK); /* reports count until they are taken */
    assert_int_equal(kvo_submit_put(queue, &d.list, &d.memory, NULL, d.answers, NULL, &job), KVO_BUSY);
    assert_int_equal(job, 99);
    assert_int_equal(d.answers[0].status, -1);
    assert_int_equal(exists(40, NULL), KVO_MISS);
    take(queue);
    assert_int_equal(submit_put(&d, NULL, NULL), 3);
    take(queue);
    take(queue);
    assert_int_equal(pending(), 0);
    batch_free(&b);
    batch_free(&c);
    batch_free(&d);
    close_store();
}

/* All memory pinned: puts wait, reads go on, and a cancelled put says which blocks it left. */
static void test_blocked_puts_block_nobody(void **state)
{
    (void)state;
    options.workers = 2;
    open_queue("dram:8blk");
    kvo_pin pins[8];
    for (uint64_t i = 0; i < 8; i++) {
        assert_int_equal(put(i + 1, BYTES), KVO_STORED);
        assert_int_equal(pin(i + 1, &pins[i]), KVO_OK);
    }
    batch puts[5];
    kvo_job jobs[5];
    kvo_put_options forever = KVO_PUT_OPTIONS_INIT;
    forever.deadline_ns = KVO_FOREVER;
    for (uint64_t k = 0; k < 5; k++) {
        puts[k] = batch_of(100 + 10 * k, 3, BYTES, true);
        jobs[k] = submit_put(&puts[k], &forever, NULL);
    }
    for (unsigned round = 0; round < 20; round++) {
        batch g = batch_of(1, 8, BYTES, false);
        kvo_job job = submit_get(&g, NULL);
        kvo_report r = take(queue);
        assert_true(r.job == job && r.ok_count == 8);
        check_payloads(&g, 1);
        batch_free(&g);
    }
    check_no_report(queue);
    assert_int_equal(kvo_cancel(queue, 12345), KVO_GONE);
    assert_int_equal(kvo_cancel(queue, jobs[0]), KVO_OK);
    kvo_report r = take(queue);
    assert_true(r.job == jobs[0] && r.status == KVO_CANCELLED);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(puts[0].answers[i].status, KVO_CANCELLED);
    assert_int_equal(kvo_cancel(queue, jobs[0]), KVO_GONE);
    assert_int_equal(kvo_unpin(store, pins, 8), KVO_OK);
    for (unsigned k = 1; k < 5; k++)
        assert_true((r = take(queue)).status == KVO_OK && r.ok_count == 3);
    check_no_report(queue);
    for (unsigned k = 0; k < 5; k++)
        batch_free(&puts[k]);
    close_store();
}

static void test_deadlines(void **state)
{
    (void)state;
    open_queue("dram:4blk");
    kvo_pin pins[4];
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(put(i + 1, BYTES), KVO_STORED);
        assert_int_equal(pin(i + 1, &pins[i]), KVO_OK);
    }
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    static const uint64_t deadlines[] = {0, 1, 30000000u};
    kvo_stat before = store_stat();
    for (size_t k = 0; k < 3; k++) {
        batch b = batch_of(100, 3, BYTES, true);
        o.deadline_ns = deadlines[k];
        submit_put(&b, &o, NULL);
        kvo_report r = take(queue);
        assert_true(r.status == KVO_OK && r.ok_count == 0 && r.taken_ns >= deadlines[k]);
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(b.answers[i].status, KVO_BUSY);
        batch_free(&b);
    }
    /* However often a block was tried, it is one put. */
    assert_int_equal(store_stat().puts - before.puts, 9);
    assert_int_equal(store_stat().put_busy - before.put_busy, 9);
    assert_int_equal(kvo_unpin(store, pins, 4), KVO_OK);
    close_store();
}

/* A sync that cannot get on keeps no worker from what others asked for, and can be cancelled. */
static void test_a_sync_that_waits_blocks_nobody(void **state)
{
    (void)state;
    options.workers = 2;
    open_queue("dram:16blk,disk:@0:4blk");
    uint64_t hold;
    kvo_answer answers[4];
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(put(i, BYTES), KVO_STORED);
    kvo_names four = names_of(0, 4);
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    assert_int_equal(kvo_hold(store, &four, KVO_FOREVER, &hold, answers), KVO_OK);
    for (uint64_t i = 10; i < 14; i++) /* for these there is no room below, while those are held */
        assert_int_equal(put(i, BYTES), KVO_STORED);
    kvo_job jobs[4];
    for (unsigned k = 0; k < 4; k++)
        assert_int_equal(kvo_submit_sync(queue, NULL, KVO_WRITTEN, KVO_FOREVER, NULL, NULL, &jobs[k]), KVO_OK);
    kvo_target target = target_of(12, 1);
    kvo_job job;
    assert_int_equal(kvo_submit_remove(queue, &target, KVO_WRITTEN, SECOND, NULL, NULL, &job), KVO_OK);
    bool removed = false;
    for (unsigned taken = 0; !removed; taken++) {
        kvo_report r = take(queue);
        assert_true(taken < 5);
        removed = r.job == job && r.status == KVO_OK && r.removed == 1 && r.answers == NULL && r.count == 0;
    }
    for (unsigned k = 0; k < 4; k++) {
        int r = kvo_cancel(queue, jobs[k]);
        assert_true(r == KVO_OK || r == KVO_GONE);
    }
    assert_int_equal(kvo_drain(queue, 10ull * SECOND), KVO_OK);
    assert_int_equal(kvo_release(store, hold), KVO_OK);
    assert_int_equal(kvo_queue_close(queue, 0), KVO_OK);
    int r = kvo_close(store, KVO_FOREVER);
    store = NULL;
    assert_int_equal(r, KVO_SHORT); /* the disk is too small for all */
}

static void test_what_is_late_is_not_begun(void **state)
{
    (void)state;
    open_queue("dram:16blk,disk:@0:40blk");
    batch b = batch_of(0, 4, BYTES, true);
    submit_put(&b, NULL, NULL);
    assert_int_equal(take(queue).ok_count, 4);
    kvo_target target = target_of(0, 4);
    assert_int_equal(kvo_submit_remove(queue, &target, KVO_WRITTEN, 1, b.answers, NULL, NULL), KVO_OK);
    kvo_report r = take(queue);
    assert_true(r.status == KVO_BUSY && r.removed == 0 && r.ok_count == 0);
    assert_int_equal(b.answers[3].status, KVO_BUSY);
    assert_int_equal(kvo_submit_sync(queue, &target, KVO_WRITTEN, 1, b.answers, NULL, NULL), KVO_OK);
    r = take(queue);
    assert_true(r.status == KVO_BUSY && r.ok_count == 0);
    assert_int_equal(exists(0, NULL), KVO_OK);
    batch_free(&b);
    close_store();
}

/* One job is one use of each block, however often it is tried, and its first name the most recent. */
static void test_a_job_is_one_use(void **state)
{
    (void)state;
    open_queue("dram:200blk");
    kvo_reservation reservation;
    uint32_t bytes = BYTES;
    kvo_answer answer;
    batch b = batch_of(0, 96, BYTES, true), one = batch_of(500, 1, BYTES, false);
    submit_put(&b, NULL, NULL);
    assert_int_equal(take(queue).ok_count, 96);
    uint64_t references = store_stat().references, gets = store_stat().gets;
    submit_get(&b, NULL);
    assert_int_equal(take(queue).ok_count, 96);
    assert_int_equal(store_stat().references, references + 96);
    for (uint64_t i = 0; i < 96; i++) {
        assert_int_equal(info_of(i).uses, 2);
        assert_true(i == 0 || info_of(i).last_use < info_of(i - 1).last_use);
    }
    assert_int_equal(kvo_reserve(store, &one.list, &bytes, NULL, &reservation, &answer), KVO_OK);
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = 300000000u;
    references = store_stat().references;
    submit_get(&one, &o);
    assert_int_equal(take(queue).ok_count, 0);
    assert_int_equal(one.answers[0].status, KVO_BUSY);
    assert_int_equal(one.answers[0].reserved, 0);
    assert_int_equal(store_stat().references, references + 1);
    assert_int_equal(store_stat().gets, gets + 97);
    o.deadline_ns = 60ull * SECOND;
    submit_get(&one, &o);
    usleep(20000);
    payload_make(reservation.memory, BYTES, 500, 0);
    assert_int_equal(kvo_seal(store, &reservation, 1, KVO_SEALED, 0, &answer), KVO_OK);
    assert_int_equal(take(queue).ok_count, 1);
    check_payloads(&one, 500);
    assert_int_equal(info_of(500).uses, 2); /* its put, and one get */
    batch_free(&b);
    batch_free(&one);
    close_store();
}

/* Puts that wait do not keep a get from a block that has come. */
static void test_a_get_is_not_behind_parked_puts(void **state)
{
    (void)state;
    open_queue("dram:400blk");
    enum { MANY = 200 };
    kvo_reservation reservations[MANY + 1];
    static uint32_t bytes[MANY + 1];
    static kvo_answer answers[MANY + 1];
    for (size_t i = 0; i <= MANY; i++)
        bytes[i] = 4096;
    kvo_names names = names_of(1000, MANY + 1);
    assert_int_equal(kvo_reserve(store, &names, bytes, NULL, reservations, answers), KVO_OK);
    static batch puts[MANY];
    kvo_put_options forever = KVO_PUT_OPTIONS_INIT;
    forever.deadline_ns = KVO_FOREVER;
    for (uint64_t i = 0; i < MANY; i++) {
        puts[i] = batch_of(1000 + i, 1, 4096, true);
        submit_put(&puts[i], &forever, NULL);
    }
    batch one = batch_of(1000 + MANY, 1, 4096, false);
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = 60ull * SECOND;
    kvo_job job = submit_get(&one, &o);
    usleep(50000);
    payload_make(reservations[MANY].memory, 4096, 1000 + MANY, 0);
    assert_int_equal(kvo_seal(store, &reservations[MANY], 1, KVO_SEALED, 0, &answers[0]), KVO_OK);
    kvo_report r = take(queue);
    assert_true(r.job == job && r.ok_count == 1);
    assert_int_equal(kvo_abort(store, reservations, MANY, answers), KVO_OK);
    for (uint64_t i = 0; i < MANY; i++)
        assert_int_equal(take(queue).ok_count, 1);
    for (uint64_t i = 0; i < MANY; i++)
        batch_free(&puts[i]);
    batch_free(&one);
    close_store();
}

static void test_levels_sync_and_remove(void **state)
{
    (void)state;
    open_queue("dram:200blk,disk:@0:400blk");
    batch b = batch_of(1, 40, BYTES, true), c = batch_of(100, 40, BYTES, true);
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = KVO_SAFE;
    submit_put(&b, &o, NULL);
    assert_int_equal(take(queue).ok_count, 40);
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(b.answers[i].level, KVO_SAFE);
    submit_put(&c, NULL, NULL);
    assert_int_equal(take(queue).ok_count, 40);
    assert_int_equal(c.answers[0].level, KVO_SEALED);
    kvo_job job;
    assert_int_equal(kvo_submit_sync(queue, NULL, KVO_WRITTEN, 60ull * SECOND, NULL, NULL, &job), KVO_OK);
    kvo_report r = take(queue);
    assert_true(r.job == job && r.status == KVO_OK && r.count == 0);
    kvo_answer now;
    assert_int_equal(exists(100, &now), KVO_OK);
    assert_int_equal(now.level, KVO_WRITTEN);
    kvo_target target = {.by = KVO_BY_NAMES, .names = b.list};
    assert_int_equal(kvo_submit_remove(queue, &target, KVO_WRITTEN, 60ull * SECOND, b.answers, NULL, NULL), KVO_OK);
    batch_scribble(&b);
    r = take(queue);
    assert_true(r.status == KVO_OK && r.ok_count == 40 && r.removed == 40);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_equal(exists(100, NULL), KVO_OK);
    kvo_target by_handle = {.by = KVO_BY_HANDLES, .handles = &now.handle, .handle_count = 1};
    assert_int_equal(kvo_submit_remove(queue, &by_handle, KVO_SEALED, 0, NULL, NULL, NULL), KVO_OK);
    assert_int_equal(take(queue).removed, 1);
    batch_free(&b);
    batch_free(&c);
    close_store();
}

/* What an engine asks through its completion loop, and what keeps the answer true until the get. */
static void test_exists(void **state)
{
    (void)state;
    open_queue("dram:8blk");
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(put(i, BYTES), KVO_STORED);
    batch b = batch_of(2, 4, BYTES, false); /* two are there */
    assert_int_equal(kvo_submit_exists(queue, &b.list, 0, b.answers, NULL, NULL), KVO_OK);
    kvo_report r = take(queue);
    assert_true(r.status == KVO_OK && r.count == 4 && r.ok_count == 2 && r.hold == 0);
    assert_int_equal(b.answers[1].payload_bytes, BYTES);
    assert_int_equal(b.answers[2].status, KVO_MISS);
    assert_int_equal(kvo_submit_exists(queue, &b.list, KVO_FOREVER, b.answers, NULL, NULL), KVO_OK);
    r = take(queue);
    assert_true(r.ok_count == 2 && r.hold != 0);
    fill_with(100, 40, BYTES);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_equal(get(2, BYTES), KVO_OK);
    assert_int_equal(get(3, BYTES), KVO_OK);
    assert_int_equal(kvo_release(store, r.hold), KVO_OK);
    fill_with(200, 40, BYTES);
    assert_int_equal(exists(2, NULL), KVO_MISS);
    assert_int_equal(kvo_submit_exists(queue, &b.list, 0, NULL, NULL, NULL), KVO_E_ARGUMENT);
    /* A hold whose token nobody took ends with its queue. */
    batch again = batch_of(238, 2, BYTES, false);
    assert_int_equal(kvo_submit_exists(queue, &again.list, KVO_FOREVER, again.answers, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_drain(queue, KVO_FOREVER), KVO_OK);
    assert_int_equal(store_stat().held_blocks, 2);
    assert_int_equal(kvo_queue_close(queue, 0), KVO_OK);
    assert_int_equal(store_stat().held_blocks, 0);
    batch_free(&again);
    batch_free(&b);
    close_store();
}

static void test_prefetch(void **state)
{
    (void)state;
    open_queue("dram:40blk,disk:@0:400blk");
    for (uint64_t i = 1; i <= 120; i++)
        assert_int_equal(put(i, BYTES), KVO_STORED);
    kvo_answer where;
    assert_int_equal(exists(1, &where), KVO_OK);
    assert_int_equal(where.tier, 1);
    uint32_t uses = info_of(1).uses;
    batch b = batch_of(1, 20, BYTES, false), gone = batch_of(900, 1, BYTES, false);
    assert_int_equal(kvo_submit_prefetch(queue, &b.list, NULL, b.answers, NULL, NULL), KVO_OK);
    assert_int_equal(take(queue).ok_count, 20);
    assert_int_equal(b.answers[0].tier, 1); /* where it came from */
    assert_int_equal(exists(1, &where), KVO_OK);
    assert_int_equal(where.tier, 0);
    assert_int_equal(info_of(1).uses, uses);
    assert_int_equal(kvo_prefetch(store, &gone.list, NULL, gone.answers), KVO_OK);
    assert_int_equal(gone.answers[0].status, KVO_MISS);
    assert_int_equal(get(1, BYTES), KVO_OK);
    batch_free(&b);
    batch_free(&gone);
    close_store();
    open_store("disk:@0:400blk");
    batch d = batch_of(1, 1, BYTES, false);
    assert_int_equal(kvo_prefetch(store, &d.list, NULL, d.answers), KVO_E_UNSUPPORTED);
    batch_free(&d);
    close_store();
}

/* The queue goes with jobs in it; memory is the caller's again when it is closed. */
static void test_close_with_jobs(void **state)
{
    (void)state;
    open_queue("dram:8blk");
    kvo_pin pins[8];
    for (uint64_t i = 0; i < 8; i++) {
        assert_int_equal(put(i + 1, BYTES), KVO_STORED);
        assert_int_equal(pin(i + 1, &pins[i]), KVO_OK);
    }
    kvo_put_options forever = KVO_PUT_OPTIONS_INIT;
    forever.deadline_ns = KVO_FOREVER;
    batch b[3];
    for (uint64_t k = 0; k < 3; k++) {
        b[k] = batch_of(100 + 10 * k, 3, BYTES, true);
        submit_put(&b[k], &forever, NULL);
    }
    assert_int_equal(kvo_queue_close(queue, 60ull * SECOND), KVO_OK);
    for (unsigned k = 0; k < 3; k++)
        batch_free(&b[k]);
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    b[0] = batch_of(100, 3, BYTES, true);
    submit_put(&b[0], &forever, NULL);
    int r = kvo_close(store, 60ull * SECOND);
    store = NULL;
    assert_int_equal(r, KVO_OK);
    batch_free(&b[0]);
}

/* ---- a device that does not come back ---- */

/* Its memory stays the store's until it does: the queue and the store say busy and stay. */
static void test_close_says_busy(void **state)
{
    (void)state;
    with_mover = true;
    machine_open("dram:8blk,disk:@0:16blk", false);
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    batch b = batch_of(1, 3, BYTES, true), c = batch_of(10, 1, BYTES, true);
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = KVO_WRITTEN;
    machine_stop();
    submit_put(&b, &o, NULL);
    machine_wait(1);
    assert_int_equal(get(1, BYTES), KVO_OK); /* reads go on */
    assert_int_equal(kvo_drain(queue, 20000000u), KVO_SHORT);
    assert_int_equal(kvo_queue_close(queue, 20000000u), KVO_BUSY);
    assert_int_equal(kvo_submit_put(queue, &c.list, &c.memory, NULL, c.answers, NULL, NULL), KVO_E_STATE);
    assert_int_equal(kvo_close(store, 20000000u), KVO_BUSY);
    assert_int_equal(pending(), 1);
    machine_go_on();
    kvo_report r = take(queue);
    assert_true(r.answers == b.answers && r.ok_count == 3 && b.answers[0].level == KVO_WRITTEN);
    assert_int_equal(kvo_queue_close(queue, KVO_FOREVER), KVO_OK);
    batch_free(&b);
    batch_free(&c);
    close_store();
}

static void in_fork(void *context)
{
    (void)context;
    batch b = batch_of(500, 1, BYTES, true);
    kvo_report report;
    size_t count;
    kvo_job job;
    bool ok = kvo_submit_put(queue, &b.list, &b.memory, NULL, b.answers, NULL, &job) == KVO_E_FORKED &&
              kvo_poll(queue, &report, 1, 0, &count) == KVO_E_FORKED && kvo_queue_event(queue) == -1 &&
              kvo_queue_close(queue, 0) == KVO_E_FORKED && kvo_drain(queue, 0) == KVO_E_FORKED &&
              kvo_cancel(queue, 1) == KVO_E_FORKED && kvo_pending(queue, &job) == KVO_E_FORKED;
    _exit(ok ? 0 : 1);
}

static void test_fork(void **state)
{
    (void)state;
    open_queue("dram:8blk");
    assert_child_ok(in_child(in_fork, NULL));
    close_store();
}

static void test_misuse(void **state)
{
    (void)state;
    open_queue("dram:8blk");
    batch b = batch_of(1, 2, BYTES, true);
    kvo_job job = 5;
    kvo_names wrong = b.list;
    wrong.name_bytes = 8;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = KVO_SAFE;
    assert_int_equal(kvo_submit_put(NULL, &b.list, &b.memory, NULL, b.answers, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_put(queue, NULL, &b.memory, NULL, b.answers, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_put(queue, &wrong, &b.memory, NULL, b.answers, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_put(queue, &b.list, NULL, NULL, b.answers, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_put(queue, &b.list, &b.memory, NULL, NULL, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_put(queue, &b.list, &b.memory, &o, b.answers, NULL, &job), KVO_E_UNSUPPORTED);
    assert_int_equal(kvo_submit_get(queue, NULL, &b.memory, NULL, b.answers, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_get(queue, &b.list, NULL, NULL, b.answers, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_prefetch(queue, &b.list, NULL, NULL, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_sync(queue, NULL, KVO_SAFE, 0, NULL, NULL, &job), KVO_E_UNSUPPORTED);
    assert_int_equal(kvo_submit_sync(queue, NULL, KVO_SEALED, 0, NULL, NULL, &job), KVO_E_RANGE);
    assert_int_equal(kvo_submit_remove(queue, NULL, KVO_SEALED, 0, NULL, NULL, &job), KVO_E_ARGUMENT);
    kvo_queue_options many = KVO_QUEUE_OPTIONS_INIT;
    many.jobs_max = 65537;
    kvo_queue *none = queue;
    assert_int_equal(kvo_queue_open(store, &many, &none), KVO_E_RANGE);
    assert_null(none);
    assert_int_equal(kvo_queue_open(store, NULL, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_queue_close(NULL, 0), KVO_OK);
    assert_int_equal(job, 5);
    assert_int_equal(pending(), 0);
    kvo_names empty = b.list;
    empty.count = 0;
    kvo_memory no_memory = {0};
    assert_int_equal(kvo_submit_get(queue, &empty, &no_memory, NULL, NULL, NULL, &job), KVO_OK);
    kvo_report r = take(queue);
    assert_true(r.status == KVO_OK && r.count == 0);
    batch_free(&b);
    close_store();
}

static void test_ghost(void **state)
{
    (void)state;
    options.flags = KVO_OPEN_GHOST;
    open_queue("dram:20blk,disk:/nowhere:40blk");
    batch b = batch_of(1, 50, BYTES, false);
    submit_put(&b, NULL, NULL);
    assert_int_equal(take(queue).ok_count, 50);
    assert_int_equal(kvo_submit_prefetch(queue, &b.list, NULL, b.answers, NULL, NULL), KVO_OK);
    assert_true(take(queue).ok_count > 0);
    batch_free(&b);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        QUEUE_TEST(test_put_and_get),
        QUEUE_TEST(test_each_job_is_reported_once),
        QUEUE_TEST(test_slices_keep_chains),
        QUEUE_TEST(test_slices_keep_strides_parents_and_positions),
        QUEUE_TEST(test_queues_are_apart),
        QUEUE_TEST(test_busy_is_for_the_whole_batch),
        QUEUE_TEST(test_blocked_puts_block_nobody),
        QUEUE_TEST(test_deadlines),
        QUEUE_TEST(test_a_sync_that_waits_blocks_nobody),
        QUEUE_TEST(test_what_is_late_is_not_begun),
        QUEUE_TEST(test_a_job_is_one_use),
        QUEUE_TEST(test_a_get_is_not_behind_parked_puts),
        QUEUE_TEST(test_levels_sync_and_remove),
        QUEUE_TEST(test_exists),
        QUEUE_TEST(test_prefetch),
        QUEUE_TEST(test_close_with_jobs),
        QUEUE_TEST(test_close_says_busy),
        QUEUE_TEST(test_fork),
        QUEUE_TEST(test_misuse),
        QUEUE_TEST(test_ghost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
