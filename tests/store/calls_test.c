/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of the header, where it cannot be carried out: without a store, in a child, on a store that is only read,
   and with arguments that mean nothing. Each says so and changes nothing. */
#include <stdlib.h>
#include <unistd.h>

#include "fixture.h"

/* Arguments that are fine. */
static struct {
    kvo_names names;
    kvo_target target;
    kvo_answer answer;
    uint8_t bytes[65536];
    uint32_t length;
    kvo_segment segment;
    kvo_memory memory;
    kvo_reservation reservation;
    kvo_pin pin;
    kvo_policy policy;
    kvo_space_config config;
    kvo_space space;
    kvo_queue *queue;
    kvo_stat stat;
    kvo_tier_stat tier;
    kvo_space_stat spaces[4];
    kvo_tenant_stat tenants[4];
    kvo_ledger_row rows[64];
    kvo_block_info info;
    kvo_verify_result verified;
    kvo_put_options put;
    uint64_t number, cursor;
    size_t count;
} a;

static void begin(void)
{
    memset(&a, 0, sizeof a);
    a.names = names_of(1, 1);
    a.target = target_of(1, 1);
    a.length = 100;
    a.segment = (kvo_segment){a.bytes, sizeof a.bytes};
    a.memory = (kvo_memory){&a.segment, NULL};
    a.policy = (kvo_policy)KVO_POLICY_INIT;
    a.config = (kvo_space_config)KVO_SPACE_CONFIG_INIT;
    a.config.label = "calls";
    a.put = (kvo_put_options)KVO_PUT_OPTIONS_INIT;
    a.stat = (kvo_stat)KVO_STAT_INIT;
}

/* How many calls, of those that only read and of those that write, answer something else. */
static int reading_calls(kvo_store *s, int want)
{
    int others = 0;
    begin();
    others += kvo_policy_get(s, &a.target, &a.policy, &a.answer) != want;
    others += kvo_match(s, &a.names, &a.answer, &a.count) != want;
    others += kvo_exists(s, &a.names, &a.answer) != want;
    others += kvo_get(s, &a.names, &a.memory, NULL, &a.answer) != want;
    others += kvo_pin_blocks(s, &a.names, NULL, &a.pin, &a.answer) != want;
    others += kvo_unpin(s, &a.pin, a.pin.token != 0) != want;
    others += kvo_stat_store(s, &a.stat) != want;
    others += kvo_stat_tier(s, 0, &a.tier) != want;
    others += kvo_stat_spaces(s, a.spaces, 4, &a.count) != want;
    others += kvo_stat_tenants(s, a.tenants, 4, &a.count) != want;
    others += kvo_ledger(s, a.rows, 64, &a.count) != want;
    others += kvo_walk(s, NULL, &a.cursor, &a.info, 1, &a.count) != want;
    others += kvo_verify(s, NULL, NULL, &a.verified) != want;
    return others;
}

static int writing_calls(kvo_store *s, int want)
{
    int others = 0;
    begin();
    others += kvo_policy_set(s, &a.target, &a.policy, KVO_POLICY_PRIORITY, NULL, NULL) != want;
    others += kvo_put(s, &a.names, &a.memory, NULL, &a.answer) != want;
    others += kvo_reserve(s, &a.names, &a.length, NULL, &a.reservation, &a.answer) != want;
    others += kvo_remove(s, &a.target, KVO_SEALED, 0, NULL, NULL) != want;
    others += kvo_rewrite(s, &a.names, &a.memory, 0, NULL, &a.answer) != want;
    return others;
}

/* Calls of which a store that is only read has nothing to do, and says so each in its way. */
static int other_calls(kvo_store *s, int want)
{
    int others = 0;
    begin();
    others += kvo_space_open(s, &a.config, &a.space, NULL) != want;
    others += kvo_touch(s, &a.target, NULL) != want;
    others += kvo_fill(s, &a.reservation, 0, a.bytes, 1) != want;
    others += kvo_seal(s, &a.reservation, 1, KVO_SEALED, 0, &a.answer) != want;
    others += kvo_abort(s, &a.reservation, 1, &a.answer) != want;
    others += kvo_prefetch(s, &a.names, NULL, &a.answer) != want;
    others += kvo_hold(s, &a.names, 1, &a.number, &a.answer) != want;
    others += kvo_release(s, a.number) != want;
    others += kvo_sync(s, NULL, KVO_WRITTEN, 0, NULL) != want;
    others += kvo_queue_open(s, NULL, &a.queue) != want;
    others += kvo_write_out(s) != want;
    others += kvo_repair(s, NULL, NULL, &a.verified) != want;
    return others;
}

static void every_call_asks_for_a_store(void **state)
{
    (void)state;
    open_store("dram:16blk");
    assert_int_equal(reading_calls(NULL, KVO_E_ARGUMENT), 0);
    assert_int_equal(writing_calls(NULL, KVO_E_ARGUMENT), 0);
    assert_int_equal(other_calls(NULL, KVO_E_ARGUMENT), 0);
    close_store();
}

static void calls_in_a_child(void *context)
{
    (void)context;
    _exit(reading_calls(store, KVO_E_FORKED) + writing_calls(store, KVO_E_FORKED) + other_calls(store, KVO_E_FORKED));
}

static void every_call_is_refused_in_a_child(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:16blk");
    assert_int_equal(put(1, 100), KVO_STORED);
    assert_child_ok(in_child(calls_in_a_child, NULL));
    assert_int_equal(get(1, 100), KVO_OK);
    check_valid();
    close_store();
}

static void a_store_that_is_only_read_answers_what_reads(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:16blk");
    assert_int_equal(put(1, 65536), KVO_STORED);
    close_store();
    options.flags = KVO_OPEN_READ_ONLY;
    open_store("dram:16blk,disk:@0:16blk");
    assert_int_equal(reading_calls(store, KVO_OK), 0);
    assert_int_equal(a.answer.status, KVO_OK);
    assert_int_equal(writing_calls(store, KVO_E_STATE), 0);
    begin();
    assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, 0, NULL), KVO_E_STATE);
    assert_int_equal(kvo_write_out(store), KVO_E_STATE);
    assert_int_equal(get(1, 65536), KVO_OK);
    close_store();
}

static void what_a_kind_of_store_cannot_do_is_said(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:16blk");
    begin();
    assert_int_equal(kvo_repair(store, NULL, NULL, &a.verified), KVO_E_UNSUPPORTED);
    assert_int_equal(kvo_verify(store, NULL, NULL, &a.verified), KVO_E_STATE);
    close_store();
    options.flags = KVO_OPEN_READ_ONLY;
    open_store("disk:@0:16blk");
    assert_int_equal(kvo_repair(store, NULL, NULL, &a.verified), KVO_E_STATE);
    assert_int_equal(kvo_repair(store, NULL, NULL, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_pin_blocks(store, &a.names, NULL, &a.pin, &a.answer), KVO_E_UNSUPPORTED);
    close_store();
    options.flags = KVO_OPEN_GHOST;
    open_store("dram:16blk,disk:@0:16blk");
    begin();
    assert_int_equal(kvo_verify(store, NULL, NULL, &a.verified), KVO_E_UNSUPPORTED);
    assert_int_equal(kvo_repair(store, NULL, NULL, &a.verified), KVO_E_UNSUPPORTED);
    assert_int_equal(kvo_pin_blocks(store, &a.names, NULL, &a.pin, &a.answer), KVO_E_UNSUPPORTED);
    close_store();
    options.flags = 0;
    open_store("dram:16blk");
    assert_int_equal(kvo_verify(store, NULL, NULL, &a.verified), KVO_E_UNSUPPORTED);
    a.put.level = KVO_WRITTEN;
    assert_int_equal(kvo_put(store, &a.names, &a.memory, &a.put, &a.answer), KVO_E_UNSUPPORTED);
    assert_int_equal(kvo_seal(store, &a.reservation, 1, KVO_SAFE, 0, &a.answer), KVO_E_UNSUPPORTED);
    assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, 0, NULL), KVO_E_UNSUPPORTED);
    close_store();
}

/* ---- arguments ---- */

static void arrays_that_are_missing_are_refused(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:16blk");
    assert_int_equal(put(1, 100), KVO_STORED);
    begin();
    kvo_memory none = {NULL, NULL};
    kvo_names *n = &a.names;
    assert_int_equal(kvo_put(store, n, &none, NULL, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_put(store, n, &a.memory, NULL, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_get(store, n, &none, NULL, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_get(store, n, &a.memory, NULL, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_rewrite(store, n, NULL, 0, NULL, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_rewrite(store, n, &none, 0, NULL, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_rewrite(store, n, &a.memory, 0, NULL, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_prefetch(store, n, NULL, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_reserve(store, n, NULL, NULL, &a.reservation, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_reserve(store, n, &a.length, NULL, NULL, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_reserve(store, n, &a.length, NULL, &a.reservation, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_seal(store, NULL, 1, KVO_SEALED, 0, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_seal(store, &a.reservation, 1, KVO_SEALED, 0, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_abort(store, NULL, 1, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_abort(store, &a.reservation, 1, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_pin_blocks(store, n, NULL, NULL, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_pin_blocks(store, n, NULL, &a.pin, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_hold(store, n, 1, NULL, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_hold(store, n, 1, &a.number, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_policy_set(store, NULL, &a.policy, KVO_POLICY_QOS, NULL, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_policy_set(store, &a.target, NULL, KVO_POLICY_QOS, NULL, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_policy_get(store, NULL, &a.policy, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_policy_get(store, &a.target, NULL, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_policy_get(store, &a.target, &a.policy, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_space_open(store, NULL, &a.space, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_space_open(store, &a.config, NULL, NULL), KVO_E_ARGUMENT);
    assert_int_equal(get(1, 100), KVO_OK);
    check_valid();
    close_store();
}

static void answers_without_a_place_are_refused(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:16blk");
    begin();
    assert_int_equal(kvo_stat_tier(store, 0, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_stat_spaces(store, a.spaces, 4, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_stat_spaces(store, NULL, 4, &a.count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_stat_tenants(store, a.tenants, 4, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_stat_tenants(store, NULL, 4, &a.count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_ledger(store, a.rows, 64, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_ledger(store, NULL, 64, &a.count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_walk(store, NULL, &a.cursor, &a.info, 0, &a.count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_walk(store, NULL, &a.cursor, NULL, 1, &a.count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_walk(store, NULL, &a.cursor, &a.info, 1, NULL), KVO_E_ARGUMENT);
    a.cursor = 1ull << 33;
    assert_int_equal(kvo_walk(store, NULL, &a.cursor, &a.info, 1, &a.count), KVO_E_ARGUMENT);
    a.stat.size = 4;
    assert_int_equal(kvo_stat_store(store, &a.stat), KVO_E_ARGUMENT);
    /* Nothing to fill is not wrong: it says how many there are. */
    assert_int_equal(kvo_stat_spaces(store, NULL, 0, &a.count), KVO_OK);
    assert_int_equal(kvo_ledger(store, NULL, 0, &a.count), KVO_OK);
    close_store();
}

static void numbers_out_of_their_range_are_refused(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:16blk");
    assert_int_equal(put(1, 100), KVO_STORED);
    begin();
    for (int level = -1; level <= 9; level += 10) {
        assert_int_equal(kvo_seal(store, &a.reservation, 1, level, 0, &a.answer), KVO_E_RANGE);
        assert_int_equal(kvo_sync(store, NULL, level, 0, NULL), KVO_E_RANGE);
        assert_int_equal(kvo_remove(store, &a.target, level, 0, NULL, NULL), KVO_E_RANGE);
        a.put.level = level;
        assert_int_equal(kvo_put(store, &a.names, &a.memory, &a.put, &a.answer), KVO_E_RANGE);
    }
    assert_int_equal(kvo_rewrite(store, &a.names, &a.memory, 16, NULL, &a.answer), KVO_E_RANGE);
    a.put = (kvo_put_options)KVO_PUT_OPTIONS_INIT;
    a.put.parents = a.bytes;
    a.put.parents_stride_bytes = NAME_BYTES - 1;
    assert_int_equal(kvo_put(store, &a.names, &a.memory, &a.put, &a.answer), KVO_E_ARGUMENT);
    kvo_target t = {.by = KVO_BY_HANDLES, .handles = NULL, .handle_count = 1};
    assert_int_equal(kvo_remove(store, &t, KVO_SEALED, 0, NULL, NULL), KVO_E_ARGUMENT);
    t = (kvo_target){.by = KVO_BY_HANDLES, .handles = (kvo_handle[]){0}, .handle_count = KVO_BATCH_MAX + 1};
    assert_int_equal(kvo_remove(store, &t, KVO_SEALED, 0, NULL, NULL), KVO_E_ARGUMENT);
    t = (kvo_target){.by = KVO_BY_TENANT, .tenant = 70000};
    assert_int_equal(kvo_remove(store, &t, KVO_SEALED, 0, NULL, NULL), KVO_E_ARGUMENT);
    t = (kvo_target){.by = KVO_BY_ALL};
    assert_int_equal(kvo_policy_get(store, &t, &a.policy, &a.answer), KVO_E_ARGUMENT);
    assert_int_equal(get(1, 100), KVO_OK);
    check_valid();
    close_store();
}

/* ---- what an opening is told ---- */

#define REFUSED(field, value, what)                     \
    do {                                                \
        kvo_options usual = options;                    \
        options.field = value;                          \
        open_is_refused("dram:16blk", KVO_E_RANGE, what);        \
        options = usual;                                \
    } while (0)

static void options_out_of_their_range_are_refused_by_name(void **state)
{
    (void)state;
    REFUSED(placement, 7, "placement");
    REFUSED(hierarchy, 7, "hierarchy");
    REFUSED(block_bytes, (uint64_t)KVO_PAYLOAD_BYTES_MAX + 1, "block_bytes");
    REFUSED(io_threads, 65, "io_threads");
    REFUSED(tenants_max, 4097, "tenants_max");
    REFUSED(blocks_max, UINT32_MAX, "blocks_max");
    REFUSED(pins_max, (1u << 24) + 1, "pins_max");
    REFUSED(holds_max, (1u << 24) + 1, "holds_max");
    REFUSED(write_out_ns, 86400ull * 1000000000u + 1, "write_out_ns");
    REFUSED(workers, 1, "workers");
    REFUSED(workers, 100000, "workers");
    REFUSED(io_engine, 99, "io_engine");
    REFUSED(io_engine, -1, "io_engine");
    options.hierarchy = KVO_EXCLUSIVE;
    open_is_refused("dram:16blk", KVO_E_UNSUPPORTED, "ghost");
}

static void refuse_tier(kvo_tier_config config, int want, const char *what)
{
    kvo_error error = {{0}};
    kvo_store *s = NULL;
    int r = kvo_open_tiers(&config, 1, &options, &s, &error);
    if (r != want || strstr(error.text, what) == NULL)
        fail_msg("%d, \"%s\" lacks \"%s\"", r, error.text, what);
    assert_null(s);
}

static void tiers_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    char deep[256];
    kvo_store *s = NULL;
    kvo_error error = {{0}};
    const kvo_tier_config init = KVO_TIER_CONFIG_INIT;
    kvo_tier_config dram = init, disk = init;
    dram.kind = KVO_TIER_DRAM;
    disk.kind = KVO_TIER_DISK;
    refuse_tier(dram, KVO_E_ARGUMENT, "capacity");
    refuse_tier(disk, KVO_E_ARGUMENT, "path");
    disk.path = "";
    refuse_tier(disk, KVO_E_ARGUMENT, "path");
    memset(deep, 'a', sizeof deep);
    deep[sizeof deep - 1] = 0;
    disk.path = deep;
    refuse_tier(disk, KVO_E_ARGUMENT, "200 bytes");
    dram.capacity_bytes = 1 << 24;
    dram.capacity_blocks = 3;
    refuse_tier(dram, KVO_E_ARGUMENT, "not both");
    dram.capacity_bytes = 0;
    dram.capacity_blocks = KVO_INFINITE;
    refuse_tier(dram, KVO_E_UNSUPPORTED, "ghost");
    options.flags = KVO_OPEN_GHOST;
    refuse_tier(dram, KVO_E_ARGUMENT, "blocks_max");
    options.flags = 0;
    options.block_bytes = 0;
    dram.capacity_blocks = 3;
    refuse_tier(dram, KVO_E_ARGUMENT, "block_bytes");
    dram.kind = 9;
    refuse_tier(dram, KVO_E_ARGUMENT, "kind");
    dram.kind = KVO_TIER_DRAM;
    assert_int_equal(kvo_open_tiers(NULL, 1, NULL, &s, &error), KVO_E_ARGUMENT);
    assert_int_equal(kvo_open_tiers(&dram, 0, NULL, &s, &error), KVO_E_ARGUMENT);
    assert_int_equal(kvo_open_tiers(&dram, KVO_TIERS_MAX + 1, NULL, &s, &error), KVO_E_ARGUMENT);
    assert_int_equal(kvo_open_tiers(&dram, 1, NULL, NULL, &error), KVO_E_ARGUMENT);
    assert_int_equal(kvo_open(NULL, NULL, &s, &error), KVO_E_ARGUMENT);
    assert_int_equal(kvo_open("dram:16M", NULL, NULL, &error), KVO_E_ARGUMENT);
    assert_null(s);
}

/* ---- queues ---- */

static void jobs_with_wrong_arguments_are_not_taken(void **state)
{
    (void)state;
    kvo_queue *q;
    kvo_job job = 5;
    uint64_t pending = 9;
    open_store("dram:16blk");
    assert_int_equal(kvo_queue_open(store, NULL, &q), KVO_OK);
    begin();
    kvo_memory none = {NULL, NULL};
    kvo_names wrong = a.names;
    wrong.name_bytes = 8;
    kvo_target far = {.by = 99};
    assert_int_equal(kvo_submit_put(q, &a.names, &none, NULL, &a.answer, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_get(q, &a.names, &none, NULL, &a.answer, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_get(q, &wrong, &a.memory, NULL, &a.answer, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_get(NULL, &a.names, &a.memory, NULL, &a.answer, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_prefetch(NULL, &a.names, NULL, &a.answer, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_prefetch(q, &wrong, NULL, &a.answer, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_exists(NULL, &a.names, 0, &a.answer, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_exists(q, &wrong, 0, &a.answer, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_exists(q, &a.names, 0, NULL, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_sync(NULL, NULL, KVO_WRITTEN, 0, NULL, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_sync(q, &far, KVO_WRITTEN, 0, NULL, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_remove(NULL, &a.target, KVO_SEALED, 0, NULL, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_remove(q, &far, KVO_SEALED, 0, NULL, NULL, &job), KVO_E_ARGUMENT);
    assert_int_equal(kvo_submit_remove(q, &a.target, 9, 0, NULL, NULL, &job), KVO_E_RANGE);
    assert_int_equal(kvo_poll(q, NULL, 1, 0, &a.count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_poll(q, NULL, 0, 0, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_poll(NULL, NULL, 0, 0, &a.count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_pending(q, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_pending(NULL, &pending), KVO_E_ARGUMENT);
    assert_int_equal(kvo_cancel(NULL, 1), KVO_E_ARGUMENT);
    assert_int_equal(kvo_drain(NULL, 0), KVO_E_ARGUMENT);
    assert_int_equal(kvo_queue_event(NULL), -1);
    assert_int_equal(kvo_pending(q, &pending), KVO_OK);
    assert_true(job == 5 && pending == 0);
    assert_int_equal(kvo_queue_close(q, KVO_FOREVER), KVO_OK);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(every_call_asks_for_a_store),
        FIXTURE_TEST(every_call_is_refused_in_a_child),
        FIXTURE_TEST(a_store_that_is_only_read_answers_what_reads),
        FIXTURE_TEST(what_a_kind_of_store_cannot_do_is_said),
        FIXTURE_TEST(arrays_that_are_missing_are_refused),
        FIXTURE_TEST(answers_without_a_place_are_refused),
        FIXTURE_TEST(numbers_out_of_their_range_are_refused),
        FIXTURE_TEST(options_out_of_their_range_are_refused_by_name),
        FIXTURE_TEST(tiers_that_mean_nothing_are_refused),
        FIXTURE_TEST(jobs_with_wrong_arguments_are_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
