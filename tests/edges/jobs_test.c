/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs where the device fails, a block is hidden, a deadline passes, a slice is full. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "faulty.h"
#include "machine.h"

#define BYTES 65536u
#define SECOND 1000000000ull

static kvo_queue *queue;

static void begin(void)
{
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
}

static kvo_report take(void)
{
    kvo_report report;
    size_t count;
    assert_int_equal(kvo_poll(queue, &report, 1, 60 * SECOND, &count), KVO_OK);
    assert_int_equal(count, 1);
    return report;
}

static void check_unfinished(void)
{
    kvo_report report;
    size_t count;
    assert_int_equal(kvo_poll(queue, &report, 1, 20000000u, &count), KVO_OK);
    assert_int_equal(count, 0);
}

/* One segment a block; all of one size. */
typedef struct batch {
    kvo_names names;
    kvo_memory memory;
    kvo_segment *segments;
    uint8_t *list, *payload;
    kvo_answer *answers;
    size_t count, bytes;
} batch;

static batch batch_of(uint64_t first, size_t count, size_t bytes)
{
    batch b = {.names = names_of(first, count), .count = count, .bytes = bytes};
    b.list = malloc(count * NAME_BYTES);
    memcpy(b.list, b.names.first, count * NAME_BYTES);
    b.names.first = b.list;
    b.payload = aligned_alloc(4096, (count * bytes + 4095) / 4096 * 4096);
    b.segments = calloc(count, sizeof *b.segments);
    b.answers = calloc(count, sizeof *b.answers);
    for (size_t i = 0; i < count; i++) {
        b.segments[i] = (kvo_segment){b.payload + i * bytes, bytes};
        payload_make(b.segments[i].base, bytes, first + i, 0);
    }
    b.memory = (kvo_memory){b.segments, NULL};
    return b;
}

static void batch_free(batch *b)
{
    free(b->list);
    free(b->payload);
    free(b->segments);
    free(b->answers);
}

static void submit_put(batch *b, int level, uint64_t deadline_ns)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = level;
    o.deadline_ns = deadline_ns;
    assert_int_equal(kvo_submit_put(queue, &b->names, &b->memory, &o, b->answers, NULL, NULL), KVO_OK);
}

static void submit_get(batch *b)
{
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = KVO_FOREVER;
    memset(b->payload, 0, b->count * b->bytes);
    assert_int_equal(kvo_submit_get(queue, &b->names, &b->memory, &o, b->answers, NULL, NULL), KVO_OK);
}

static void check_payloads(const batch *b, uint64_t first)
{
    for (size_t i = 0; i < b->count; i++)
        assert_true(payload_is(b->segments[i].base, b->bytes, first + i, 0));
}

/* ---- a device that fails ---- */

/* Another try would not help: no job waits for a device that is away. */
static void a_device_that_is_away_is_busy_at_once(void **state)
{
    (void)state;
    faulty_open("dram:4blk,disk:@0:64blk");
    assert_int_equal(fill_with(1, 30, BYTES), 30);
    begin();
    batch b = batch_of(1, 3, BYTES);
    atomic_store(&faulty.all_reads, ALWAYS);
    submit_get(&b);
    assert_int_equal(take().ok_count, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(b.answers[i].status, KVO_BUSY);
    kvo_get_options forever = KVO_GET_OPTIONS_INIT;
    forever.deadline_ns = KVO_FOREVER;
    assert_int_equal(kvo_submit_prefetch(queue, &b.names, &forever, b.answers, NULL, NULL), KVO_OK);
    assert_int_equal(take().ok_count, 0);
    assert_int_equal(b.answers[0].status, KVO_BUSY);
    atomic_store(&faulty.all_reads, 0);
    submit_get(&b);
    assert_int_equal(take().ok_count, 3);
    check_payloads(&b, 1);
    batch_free(&b);
    close_store();
}

static int remove_by(kvo_target target, int level, uint64_t deadline_ns)
{
    assert_int_equal(kvo_submit_remove(queue, &target, level, deadline_ns, NULL, NULL, NULL), KVO_OK);
    return take().status;
}

static void a_remove_whose_headers_cannot_be_written_is_short(void **state)
{
    (void)state;
    kvo_answer answer;
    const kvo_target tenant = {.by = KVO_BY_TENANT};
    faulty_open("disk:@0:64blk");
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    begin();
    kvo_target one = target_of(1, 1);
    atomic_store(&faulty.page_writes, ALWAYS);
    assert_int_equal(kvo_submit_remove(queue, &one, KVO_WRITTEN, SECOND, &answer, NULL, NULL), KVO_OK);
    assert_int_equal(take().status, KVO_SHORT);
    assert_int_equal(answer.status, KVO_SHORT);
    assert_int_equal(remove_by(tenant, KVO_WRITTEN, SECOND), KVO_SHORT);
    atomic_store(&faulty.page_writes, 0);
    assert_int_equal(remove_by(tenant, KVO_SAFE, SECOND), KVO_OK);
    assert_int_equal(fill_with(20, 3, BYTES), 3);
    atomic_store(&faulty.flushes, ALWAYS);
    assert_int_equal(remove_by(target_of(20, 1), KVO_SAFE, SECOND), KVO_SHORT);
    assert_int_equal(remove_by(tenant, KVO_SAFE, SECOND), KVO_SHORT);
    atomic_store(&faulty.flushes, 0);
    assert_int_equal(store_stat().blocks, 0);
    close_store();
    open_store("disk:@0:64blk");
    assert_int_equal(store_stat().blocks, 0);
    close_store();
}

static void a_sync_that_cannot_flush_is_short(void **state)
{
    (void)state;
    kvo_answer answers[2];
    kvo_target target = target_of(1, 2);
    faulty_open("dram:16blk,disk:@0:64blk");
    assert_int_equal(fill_with(1, 1, BYTES), 1);
    target.names.space = space;
    assert_int_equal(kvo_sync(store, &target, KVO_WRITTEN, SECOND, answers), KVO_OK);
    atomic_store(&faulty.flushes, ALWAYS);
    assert_int_equal(kvo_sync(store, &target, KVO_SAFE, SECOND, answers), KVO_SHORT);
    assert_true(answers[0].status == KVO_SHORT && answers[0].level == KVO_WRITTEN);
    assert_int_equal(answers[1].status, KVO_MISS);
    atomic_store(&faulty.flushes, 0);
    assert_int_equal(kvo_sync(store, &target, KVO_SAFE, SECOND, answers), KVO_OK);
    assert_true(answers[0].status == KVO_OK && answers[0].level == KVO_SAFE);
    close_store();
}

/* ---- a block that a rewrite hides ---- */

static pthread_t thread;
static kvo_pin reader;

static void *rewrites(void *status)
{
    static uint8_t bytes[BYTES];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer;
    kvo_names names = names_of(1, 1);
    kvo_segment segment = {bytes, BYTES};
    kvo_memory memory = {&segment, NULL};
    o.deadline_ns = KVO_FOREVER;
    payload_make(bytes, BYTES, 1, 1);
    *(int *)status = kvo_rewrite(store, &names, &memory, 0, &o, &answer) == KVO_OK ? answer.status : -1;
    return NULL;
}

static int rewritten;

static void hide(void)
{
    assert_int_equal(pin(1, &reader), KVO_OK);
    assert_int_equal(pthread_create(&thread, NULL, rewrites, &rewritten), 0);
    while (exists(1, NULL) != KVO_PENDING)
        usleep(100);
}

static void show(void)
{
    assert_int_equal(kvo_unpin(store, &reader, 1), KVO_OK);
    pthread_join(thread, NULL);
    assert_int_equal(rewritten, KVO_STORED);
}

/* By name, and by the tenant that all of them have: busy without a deadline, tried until it is there with one. */
static void removes_of_a_hidden_block(bool by_name)
{
    kvo_job job;
    assert_int_equal(put(1, BYTES), KVO_STORED);
    hide();
    kvo_target target = by_name ? target_of(1, 1) : (kvo_target){.by = KVO_BY_TENANT};
    assert_int_equal(remove_by(target, KVO_WRITTEN, 0), KVO_BUSY);
    assert_int_equal(kvo_submit_remove(queue, &target, KVO_WRITTEN, KVO_FOREVER, NULL, NULL, &job), KVO_OK);
    check_unfinished();
    assert_int_equal(kvo_cancel(queue, job), KVO_OK);
    kvo_report r = take();
    assert_int_equal(r.status, KVO_CANCELLED);
    assert_int_equal(r.removed, 0);
    assert_int_equal(kvo_submit_remove(queue, &target, KVO_SAFE, KVO_FOREVER, NULL, NULL, NULL), KVO_OK);
    check_unfinished();
    show();
    r = take();
    assert_int_equal(r.status, KVO_OK);
    assert_int_equal(r.removed, 1);
    assert_int_equal(exists(1, NULL), KVO_MISS);
}

static void a_remove_of_a_hidden_block_is_tried_again(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:64blk");
    begin();
    removes_of_a_hidden_block(true);
    removes_of_a_hidden_block(false);
    close_store();
}

/* ---- levels and deadlines ---- */

static void a_level_that_is_not_reached_in_time_is_short(void **state)
{
    (void)state;
    uint64_t hold;
    kvo_answer answers[4];
    open_store("dram:16blk,disk:@0:4blk");
    assert_int_equal(fill_with(1, 4, BYTES), 4);
    kvo_names four = names_of(1, 4);
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    assert_int_equal(kvo_hold(store, &four, KVO_FOREVER, &hold, answers), KVO_OK);
    begin();
    batch b = batch_of(10, 2, BYTES), c = batch_of(20, 2, BYTES);
    submit_put(&b, KVO_WRITTEN, 300000000u); /* there is no room on the disk */
    assert_int_equal(take().ok_count, 0);
    assert_true(b.answers[0].status == KVO_SHORT && b.answers[1].status == KVO_SHORT);
    assert_int_equal(get(10, BYTES), KVO_OK);
    submit_put(&c, KVO_WRITTEN, KVO_FOREVER);
    check_unfinished();
    kvo_target both = target_of(1, 2); /* at once: one would be an anchor, and in the other's way */
    assert_int_equal(kvo_remove(store, &both, KVO_WRITTEN, KVO_FOREVER, answers, NULL), KVO_OK);
    kvo_report r = take();
    assert_true(r.ok_count == 2 && c.answers[0].level == KVO_WRITTEN && c.answers[1].level == KVO_WRITTEN);
    assert_int_equal(kvo_release(store, hold), KVO_OK);
    batch_free(&b);
    batch_free(&c);
    assert_int_equal(drop(10, KVO_SEALED), KVO_OK);
    assert_int_equal(drop(11, KVO_SEALED), KVO_OK);
    close_store();
}

static void a_sync_without_answers_may_be_late_too(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:64blk");
    assert_int_equal(fill_with(1, 4, BYTES), 4);
    begin();
    kvo_target target = target_of(1, 4);
    assert_int_equal(kvo_submit_sync(queue, &target, KVO_WRITTEN, 1, NULL, NULL, NULL), KVO_OK);
    assert_int_equal(take().status, KVO_BUSY);
    assert_int_equal(info_of(1).copy_count, 1);
    close_store();
}

/* ---- slices ---- */

static void a_reader_has_jobs_too(void **state)
{
    (void)state;
    open_store("disk:@0:64blk");
    assert_int_equal(fill_with(1, 50, BYTES), 50);
    close_store();
    options.flags = KVO_OPEN_READ_ONLY;
    open_store("dram:16blk,disk:@0");
    begin();
    batch b = batch_of(1, 50, BYTES);
    submit_get(&b);
    assert_int_equal(take().ok_count, 50);
    check_payloads(&b, 1);
    memset(b.payload, 0, b.count * BYTES);
    assert_int_equal(kvo_get(store, &b.names, &b.memory, NULL, b.answers), KVO_OK);
    check_payloads(&b, 1);
    assert_int_equal(kvo_prefetch(store, &b.names, NULL, b.answers), KVO_E_STATE);
    for (uint64_t i = 1; i <= 50; i++)
        assert_int_equal(info_of(i).copies[0].tier, 1);
    batch_free(&b);
    close_store();
}

/* 1,000 names are more than the memory that is kept for the next job. */
static void a_long_job_has_memory_of_its_own(void **state)
{
    (void)state;
    options.block_bytes = 4096;
    open_store("dram:2000blk");
    begin();
    batch b = batch_of(1, 1000, 4096);
    submit_put(&b, KVO_SEALED, SECOND);
    assert_int_equal(take().ok_count, 1000);
    submit_get(&b);
    assert_int_equal(take().ok_count, 1000);
    check_payloads(&b, 1);
    batch_free(&b);
    close_store();
}

/* Where nobody says how long a block is, the next one's position is the next. */
static void blocks_of_no_length_follow_each_other(void **state)
{
    (void)state;
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    open_store("dram:100blk");
    begin();
    config.label = "loose";
    config.model = "m";
    config.block_bytes_max = 4096;
    assert_int_equal(kvo_space_open(store, &config, &space, NULL), KVO_OK);
    batch b = batch_of(1, 50, 4096);
    o.position = 1000;
    assert_int_equal(kvo_submit_put(queue, &b.names, &b.memory, &o, b.answers, NULL, NULL), KVO_OK);
    assert_int_equal(take().ok_count, 50);
    for (uint64_t i = 0; i < 50; i++)
        assert_int_equal(info_of(1 + i).position, 1000 + i);
    batch_free(&b);
    close_store();
}

/* Many blocks that found no room at once, or large ones: each round of tries is cut as the first one was. A ghost:
   their bytes are only said. */
static void held_up_and_let_go(size_t bytes)
{
    enum { HELD = 50 };
    static uint8_t byte;
    uint64_t hold;
    kvo_segment segments[HELD];
    kvo_answer answers[HELD];
    kvo_memory memory = {segments, NULL};
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    options.flags = KVO_OPEN_GHOST;
    options.block_bytes = bytes;
    open_more("dram:50blk");
    begin();
    for (size_t i = 0; i < HELD; i++)
        segments[i] = (kvo_segment){&byte, bytes};
    kvo_names names = names_of(1, HELD), more = names_of(501, HELD);
    assert_int_equal(kvo_put(store, &names, &memory, NULL, answers), KVO_OK);
    assert_int_equal(kvo_hold(store, &names, KVO_FOREVER, &hold, answers), KVO_OK);
    o.deadline_ns = KVO_FOREVER;
    assert_int_equal(kvo_submit_put(queue, &more, &memory, &o, answers, NULL, NULL), KVO_OK);
    check_unfinished();
    assert_int_equal(kvo_release(store, hold), KVO_OK);
    assert_int_equal(take().ok_count, HELD);
    for (uint64_t i = 0; i < HELD; i++)
        assert_int_equal(exists(501 + i, NULL), KVO_OK);
    close_store();
}

static void rounds_of_tries_are_slices_too(void **state)
{
    (void)state;
    held_up_and_let_go(4096);
    held_up_and_let_go(40 << 20);
}

/* ---- a close with several queues ---- */

static void a_close_looks_at_all_queues(void **state)
{
    (void)state;
    kvo_queue *idle;
    uint64_t pending;
    with_mover = true;
    machine_open("dram:8blk,disk:@0:16blk", false);
    assert_int_equal(kvo_queue_open(store, NULL, &idle), KVO_OK);
    begin();
    batch b = batch_of(1, 2, BYTES);
    machine_stop();
    submit_put(&b, KVO_WRITTEN, KVO_FOREVER);
    machine_wait(1);
    assert_int_equal(kvo_close(store, 20000000u), KVO_BUSY);
    assert_int_equal(kvo_pending(idle, &pending), KVO_OK);
    assert_int_equal(pending, 0);
    machine_go_on();
    kvo_report r = take();
    assert_int_equal(r.ok_count, 2);
    batch_free(&b);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_device_that_is_away_is_busy_at_once),
        FIXTURE_TEST(a_remove_whose_headers_cannot_be_written_is_short),
        FIXTURE_TEST(a_sync_that_cannot_flush_is_short),
        FIXTURE_TEST(a_remove_of_a_hidden_block_is_tried_again),
        FIXTURE_TEST(a_level_that_is_not_reached_in_time_is_short),
        FIXTURE_TEST(a_sync_without_answers_may_be_late_too),
        FIXTURE_TEST(a_reader_has_jobs_too),
        FIXTURE_TEST(a_long_job_has_memory_of_its_own),
        FIXTURE_TEST(blocks_of_no_length_follow_each_other),
        FIXTURE_TEST(rounds_of_tries_are_slices_too),
        FIXTURE_TEST(a_close_looks_at_all_queues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
