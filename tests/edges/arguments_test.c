/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of nothing, which need no arrays, and tokens, handles and options that nobody gave out. */
#include <stdlib.h>

#include "faulty.h"
#include "move/move.h"

static kvo_answer answer;
static kvo_reservation reservation;

/* ---- nothing ---- */

static void check_calls_of_nothing(const kvo_names *none)
{
    const kvo_memory memory = {NULL, NULL};
    const kvo_target target = {.by = KVO_BY_NAMES, .names = *none}, handles = {.by = KVO_BY_HANDLES};
    uint64_t token = 5, removed = 5;
    size_t matched = 5;
    assert_int_equal(kvo_put(store, none, &memory, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_get(store, none, &memory, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_rewrite(store, none, &memory, 0, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_pin_blocks(store, none, NULL, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_unpin(store, NULL, 0), KVO_OK);
    assert_int_equal(kvo_prefetch(store, none, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_exists(store, none, NULL), KVO_OK);
    assert_int_equal(kvo_match(store, none, NULL, &matched), KVO_OK);
    assert_int_equal(matched, 0);
    assert_int_equal(kvo_hold(store, none, 1, &token, NULL), KVO_OK);
    assert_int_equal(token, 0);
    assert_int_equal(kvo_reserve(store, none, NULL, NULL, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_seal(store, NULL, 0, KVO_SAFE, 0, NULL), KVO_OK);
    assert_int_equal(kvo_abort(store, NULL, 0, NULL), KVO_OK);
    assert_int_equal(kvo_touch(store, &handles, NULL), KVO_OK);
    assert_int_equal(kvo_sync(store, &target, KVO_SAFE, 0, NULL), KVO_OK);
    assert_int_equal(kvo_remove(store, &target, KVO_SAFE, 0, NULL, &removed), KVO_OK);
    assert_int_equal(removed, 0);
}

static void check_jobs_of_nothing(kvo_queue *queue, const kvo_names *none)
{
    const kvo_memory memory = {NULL, NULL};
    const kvo_target handles = {.by = KVO_BY_HANDLES, .handles = (kvo_handle[]){7}};
    kvo_put_options put = KVO_PUT_OPTIONS_INIT;
    uint32_t position = 0;
    kvo_report reports[8];
    size_t count;
    put.positions = &position;
    put.parents = "a name that nobody has";
    put.level = KVO_WRITTEN;
    assert_int_equal(kvo_submit_put(queue, none, &memory, &put, NULL, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_submit_get(queue, none, &memory, NULL, NULL, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_submit_prefetch(queue, none, NULL, NULL, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_submit_exists(queue, none, 0, NULL, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_submit_remove(queue, &handles, KVO_SAFE, 0, NULL, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_drain(queue, KVO_FOREVER), KVO_OK);
    assert_int_equal(kvo_poll(queue, NULL, 0, KVO_FOREVER, &count), KVO_OK); /* room for none: nothing to wait for */
    assert_int_equal(count, 0);
    assert_int_equal(kvo_poll(queue, reports, 8, 0, &count), KVO_OK);
    assert_int_equal(count, 5);
    for (size_t i = 0; i < count; i++)
        assert_true(reports[i].status == KVO_OK && reports[i].count == 0 && reports[i].ok_count == 0);
}

static void a_batch_of_nothing_needs_no_arrays(void **state)
{
    (void)state;
    kvo_queue *queue;
    open_store("dram:16blk,disk:@0:16blk");
    assert_int_equal(put(1, 100), KVO_STORED);
    const kvo_names none = {.name_bytes = NAME_BYTES, .space = space};
    uint64_t clock = store_stat().references;
    check_calls_of_nothing(&none);
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    check_jobs_of_nothing(queue, &none);
    assert_int_equal(store_stat().references, clock);
    assert_int_equal(store_stat().blocks, 1);
    close_store();
}

static void a_place_for_no_answers_says_how_many_there_are(void **state)
{
    (void)state;
    size_t count = 0;
    open_store("dram:16blk");
    assert_int_equal(put(1, 100), KVO_STORED);
    assert_int_equal(kvo_stat_tenants(store, NULL, 0, &count), KVO_OK);
    assert_int_equal(count, 1);
    close_store();
}

/* ---- what is missing ---- */

static void memory_and_answers_that_are_missing_are_refused(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:16blk");
    assert_int_equal(put(1, 100), KVO_STORED);
    kvo_names names = names_of(1, 1);
    kvo_report report;
    kvo_queue *queue = NULL;
    assert_int_equal(kvo_put(store, &names, NULL, NULL, &answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_get(store, &names, NULL, NULL, &answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_unpin(store, NULL, 1), KVO_E_ARGUMENT);
    assert_int_equal(kvo_fill(store, NULL, 0, &report, 1), KVO_E_ARGUMENT);
    assert_int_equal(kvo_fill(store, &reservation, 0, NULL, 1), KVO_E_ARGUMENT);
    assert_int_equal(kvo_queue_open(store, NULL, NULL), KVO_E_ARGUMENT);
    kvo_queue_options sizeless = {0};
    assert_int_equal(kvo_queue_open(store, &sizeless, &queue), KVO_E_ARGUMENT);
    assert_null(queue);
    assert_int_equal(get(1, 100), KVO_OK);
    close_store();
}

/* ---- what is not so ---- */

static void what_nobody_gave_out_is_gone(void **state)
{
    (void)state;
    kvo_answer answers[3];
    kvo_pin forged = {.token = 1ull << 32 | 0xfffffff0u};
    const kvo_handle handles[3] = {0, handle_make(12345, 1), handle_make(0, 99)};
    const kvo_target target = {.by = KVO_BY_HANDLES, .handles = handles, .handle_count = 3};
    open_store("dram:16blk,disk:@0:16blk");
    assert_int_equal(put(1, 100), KVO_STORED);
    assert_int_equal(kvo_unpin(store, &forged, 1), KVO_GONE);
    assert_int_equal(kvo_remove(store, &target, KVO_WRITTEN, 0, answers, NULL), KVO_OK);
    for (int i = 0; i < 3; i++) {
        reservation = (kvo_reservation){.handle = handles[i], .payload_bytes = 100};
        assert_int_equal(answers[i].status, KVO_GONE);
        assert_int_equal(kvo_fill(store, &reservation, 0, &forged, 8), KVO_GONE);
        assert_int_equal(kvo_seal(store, &reservation, 1, KVO_WRITTEN, 0, &answer), KVO_OK);
        assert_int_equal(answer.status, KVO_GONE);
        assert_int_equal(kvo_abort(store, &reservation, 1, &answer), KVO_OK);
        assert_int_equal(answer.status, KVO_GONE);
    }
    assert_int_equal(get(1, 100), KVO_OK);
    close_store();
}

static void a_list_is_not_said_by_tenant_and_a_filter_is_checked(void **state)
{
    (void)state;
    kvo_block_info info;
    uint64_t cursor = 0;
    size_t count;
    const kvo_target tenant = {.by = KVO_BY_TENANT}, nothing = {.by = 99};
    open_store("dram:16blk");
    assert_int_equal(put(1, 100), KVO_STORED);
    assert_int_equal(kvo_touch(store, &tenant, &answer), KVO_E_ARGUMENT);
    assert_int_equal(kvo_walk(store, &nothing, &cursor, &info, 1, &count), KVO_E_ARGUMENT);
    close_store();
}

static void structs_without_a_size_are_refused(void **state)
{
    (void)state;
    kvo_error error = {{0}};
    kvo_tier_config config = KVO_TIER_CONFIG_INIT;
    kvo_store *s = NULL;
    config.kind = KVO_TIER_DRAM;
    config.capacity_blocks = 16;
    options.size = 0;
    assert_int_equal(kvo_open_tiers(&config, 1, &options, &s, &error), KVO_E_ARGUMENT);
    assert_non_null(strstr(error.text, "options.size"));
    options.size = sizeof options;
    config.size = 0;
    assert_int_equal(kvo_open_tiers(&config, 1, &options, &s, &error), KVO_E_ARGUMENT);
    assert_non_null(strstr(error.text, "tier 0"));
    config.size = sizeof config;
    config.wrappers = "fault+nonsense:x=1";
    assert_int_equal(kvo_open_tiers(&config, 1, &options, &s, &error), KVO_E_ARGUMENT);
    assert_non_null(strstr(error.text, "nonsense"));
    config.wrappers = NULL;
    options.io_engine = MOVE_SIMULATED; /* for tests' machines alone */
    assert_int_equal(kvo_open_tiers(&config, 1, &options, &s, &error), KVO_E_RANGE);
    assert_non_null(strstr(error.text, "io_engine"));
    assert_null(s);
}

/* ---- another process ---- */

static base_env elsewhere;
static int64_t process_now = 1;
static int64_t process_of(base_env *env)
{
    (void)env;
    return process_now;
}

static void a_child_closes_neither_queue_nor_store(void **state)
{
    (void)state;
    kvo_tier_config config = KVO_TIER_CONFIG_INIT;
    kvo_queue *queue;
    elsewhere = *base_env_posix();
    elsewhere.process = process_of;
    config.kind = KVO_TIER_DRAM;
    config.capacity_blocks = 16;
    assert_int_equal(store_open(&elsewhere, &config, 1, &options, &store, NULL), KVO_OK);
    space = open_space("a", 65536);
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    assert_int_equal(put(1, 100), KVO_STORED);
    process_now = 2;
    assert_int_equal(kvo_queue_close(queue, 0), KVO_E_FORKED);
    assert_int_equal(kvo_close(store, 0), KVO_E_FORKED);
    process_now = 1;
    assert_int_equal(get(1, 100), KVO_OK);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_batch_of_nothing_needs_no_arrays),
        FIXTURE_TEST(a_place_for_no_answers_says_how_many_there_are),
        FIXTURE_TEST(memory_and_answers_that_are_missing_are_refused),
        FIXTURE_TEST(what_nobody_gave_out_is_gone),
        FIXTURE_TEST(a_list_is_not_said_by_tenant_and_a_filter_is_checked),
        FIXTURE_TEST(structs_without_a_size_are_refused),
        FIXTURE_TEST(a_child_closes_neither_queue_nor_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
