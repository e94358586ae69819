/* SPDX-License-Identifier: Apache-2.0 */
/* Tiers in unusual orders, of unusual sizes, and what one directory says of another store's tiers. */
#include <stdio.h>
#include <stdlib.h>

#include "faulty.h"

#define BYTES 65536u

static unsigned mask_of(uint64_t number)
{
    kvo_answer answer;
    assert_int_equal(exists(number, &answer), KVO_OK);
    return answer.tier_mask;
}

/* ---- memory below a disk ---- */

static void check_ten(void)
{
    for (uint64_t i = 1; i <= 10; i++)
        assert_int_equal(get(i, BYTES), KVO_OK);
}

/* No medium below takes what only that memory holds: it is short at once, whatever the deadline, and a close ends. */
static void what_lies_in_memory_below_all_disks_is_short(void **state)
{
    (void)state;
    kvo_answer answers[10];
    open_store("disk:@0:4blk,dram:64blk");
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    assert_true(mask_of(1) == 2 && mask_of(10) == 1);
    kvo_target target = target_of(1, 10);
    assert_int_equal(kvo_sync(store, &target, KVO_SAFE, KVO_FOREVER, answers), KVO_SHORT);
    for (int i = 0; i < 10; i++) {
        bool below = answers[i].tier_mask == 2 || answers[i].status == KVO_SHORT;
        assert_int_equal(answers[i].status, below ? KVO_SHORT : KVO_OK);
        assert_int_equal(mask_of((uint64_t)i + 1) == 2, below);
    }
    check_ten();
    check_valid();
    int r = kvo_close(store, KVO_FOREVER);
    store = NULL;
    assert_int_equal(r, KVO_SHORT);
}

static void what_lies_between_two_disks_goes_to_the_lower_one(void **state)
{
    (void)state;
    kvo_answer answer;
    open_store("disk:@0:4blk,dram:64blk,disk:@1:64blk");
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    assert_int_equal(mask_of(1), 2);
    assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
    for (uint64_t i = 1; i <= 10; i++) {
        assert_int_equal(exists(i, &answer), KVO_OK);
        assert_int_equal(answer.level, KVO_SAFE);
    }
    assert_int_equal(mask_of(1), 6);
    close_store();
    open_store("disk:@0:4blk,dram:64blk,disk:@1:64blk");
    check_ten();
    close_store();
}

/* The second memory is no place for what must survive, but the disk below it is. */
static void a_full_disk_leaves_it_to_the_next_one(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:4blk,dram:16blk,disk:@1:64blk");
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
    unsigned lower = 0;
    for (uint64_t i = 1; i <= 10; i++) {
        assert_int_equal(mask_of(i) & 4, 0);
        lower += (mask_of(i) & 8) != 0;
    }
    assert_int_equal(lower, 6);
    close_store();
}

/* ---- transfers one at a time ---- */

static void a_stream_that_is_full_lets_one_through(void **state)
{
    (void)state;
    kvo_policy policy = KVO_POLICY_INIT;
    kvo_target all = {.by = KVO_BY_ALL};
    options.flight_bytes = 1;
    open_store("dram:16blk,disk:@0:64blk");
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
    assert_int_equal(mask_of(1), 3);
    close_store();
    open_store("disk:@0:64blk,disk:@1:64blk");
    policy.intent = KVO_INTENT_DEMOTE;
    assert_int_equal(kvo_policy_set(store, &all, &policy, KVO_POLICY_INTENT, NULL, NULL), KVO_OK);
    for (uint64_t i = 1; i <= 10; i++)
        while (mask_of(i) != 3) {}
    check_ten();
    close_store();
}

/* ---- memory that fails ---- */

static char last_line[512];
static void keep_line(void *context, const char *line)
{
    (void)context;
    if (strstr(line, "failed"))
        snprintf(last_line, sizeof last_line, "%s", line);
}

static void a_second_memory_may_fail_like_a_disk(void **state)
{
    (void)state;
    options.on_log = keep_line;
    open_store("dram:4blk,fault:write=eio@..1:read=eio@..2+dram:64blk");
    assert_int_equal(fill_with(1, 4, BYTES), 4);
    assert_int_equal(put(5, BYTES), KVO_FULL); /* what must go is not taken below */
    assert_non_null(strstr(last_line, "dram2: writing a block failed"));
    assert_int_equal(fill_with(5, 6, BYTES), 6);
    assert_int_equal(mask_of(1), 2);
    assert_int_equal(get(1, BYTES), KVO_BUSY); /* it has nothing else that could be asked whether it answers */
    assert_int_equal(get(1, BYTES), KVO_OK);
    check_ten();
    close_store();
}

/* Blocks of a batch that are on their way when the next one finds no room: they land first, and stay. */
static void a_batch_that_fills_the_tier_keeps_what_landed(void **state)
{
    (void)state;
    enum { COUNT = 10 };
    static _Alignas(4096) uint8_t payload[COUNT][BYTES];
    kvo_segment segments[COUNT];
    kvo_answer answers[COUNT];
    kvo_memory memory = {segments, NULL};
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    with_mover = true;
    open_store("disk:@0:4blk,fault:write=enospc+disk:@1:64blk");
    assert_int_equal(fill_with(100, 2, BYTES), 2); /* which would have to go down */
    for (size_t i = 0; i < COUNT; i++) {
        payload_make(payload[i], BYTES, i, 0);
        segments[i] = (kvo_segment){payload[i], BYTES};
    }
    kvo_names names = names_of(0, COUNT);
    o.deadline_ns = 0;
    assert_int_equal(kvo_put(store, &names, &memory, &o, answers), KVO_OK);
    unsigned stored = 0;
    for (size_t i = 0; i < COUNT; i++) {
        bool there = answers[i].status == KVO_STORED;
        assert_true(there || answers[i].status == KVO_FULL || answers[i].status == KVO_BUSY);
        assert_int_equal(get(i, BYTES), there ? KVO_OK : KVO_MISS);
        stored += there;
    }
    assert_int_equal(stored, 2);
    assert_true(get(100, BYTES) == KVO_OK && get(101, BYTES) == KVO_OK);
    close_store();
}

/* ---- sizes ---- */

static void capacities_that_cannot_be_are_said_why(void **state)
{
    (void)state;
    open_is_refused("dram:8K", KVO_E_RANGE, "too small for one block");
    open_is_refused("dram:128K", KVO_E_RANGE, "control records");
    options.flags = KVO_OPEN_GHOST;
    options.blocks_max = 1000;
    open_is_refused("dram:100T", KVO_E_RANGE, "over 16 TiB");
    options.flags = 0;
    options.blocks_max = 0;
    open_store("disk:@0:64M");
    close_store();
    open_is_refused("disk:@0:1M", KVO_E_RANGE, "not even one");
    open_store("disk:@0");
    close_store();
}

/* A space whose blocks are too large for a tier that was not there when it was made: they go past it. */
static void blocks_too_large_for_a_new_tier_go_past_it(void **state)
{
    (void)state;
    enum { LARGE = 1 << 20 };
    options.block_bytes = LARGE;
    open_more("disk:@0:64M");
    assert_int_equal(put(1, LARGE), KVO_STORED);
    close_store();
    options.block_bytes = 4096;
    options.blocks_max = 1000;
    kvo_error error = {{0}};
    if (try_open("dram:20blk,disk:@0", &error) != KVO_OK)
        fail_msg("%s", error.text);
    kvo_space_stat stat;
    size_t count;
    assert_int_equal(kvo_stat_spaces(store, &stat, 1, &count), KVO_OK);
    space = stat.space;
    assert_int_equal(get(1, LARGE), KVO_OK);
    assert_int_equal(mask_of(1), 2);
    assert_int_equal(put(2, LARGE), KVO_REFUSED);
    assert_int_equal(put(3, 4096), KVO_STORED);
    close_store();
}

/* ---- directories of other stores ---- */

static void directories_that_call_other_things_alike_are_not_opened_together(void **state)
{
    (void)state;
    options.block_bytes = 65536;
    open_store("disk:@0:16blk"); /* space "a" of 64 KiB */
    close_store();
    kvo_error error = {{0}};
    assert_int_equal(try_open("disk:@1:16blk", &error), KVO_OK);
    space = open_space("a", 4096);
    close_store();
    open_is_refused("disk:@0:16blk,disk:@1:16blk", KVO_E_MISMATCH, "not written by one store");
    open_store("disk:@0:16blk");
    close_store();
}

static void a_directory_without_spaces_gets_them_unless_it_is_only_read(void **state)
{
    (void)state;
    kvo_error error = {{0}};
    unsigned failed = 0;
    open_store("disk:@0:16blk");
    assert_int_equal(put(1, BYTES), KVO_STORED);
    close_store();
    assert_int_equal(try_open("disk:@1:16blk", &error), KVO_OK);
    close_store();
    options.flags = KVO_OPEN_READ_ONLY;
    open_store("disk:@0,disk:@1");
    assert_int_equal(get(1, BYTES), KVO_OK);
    close_store();
    options.flags = 0;
    bool opened = false;
    for (unsigned n = 1; !opened; n++) { /* one call about small files fails */
        char tiers[128];
        assert_true(n < 1000);
        snprintf(tiers, sizeof tiers, "disk:@0:16blk,fault:meta=eio@%u..%u+disk:@1:16blk", n, n);
        opened = try_open(tiers, &error) == KVO_OK && tier_stat(1).injected == 0;
        failed += !opened && store == NULL;
        if (store)
            assert_int_equal(get(1, BYTES), KVO_OK);
        if (!opened) {
            kvo_close(store, KVO_FOREVER);
            store = NULL;
        }
    }
    assert_true(failed > 0);
    kvo_close(store, KVO_FOREVER); /* whose own calls may fail */
    store = NULL;
    open_store("disk:@1:16blk");
    size_t count;
    assert_int_equal(kvo_stat_spaces(store, NULL, 0, &count), KVO_OK);
    assert_int_equal(count, 1);
    close_store();
}

/* Who opens to write is refused. */
static void blocks_without_their_space_are_counted_for_a_reader(void **state)
{
    (void)state;
    char command[300];
    open_store("disk:@0:64blk");
    assert_int_equal(fill_with(1, 20, BYTES), 20);
    close_store();
    snprintf(command, sizeof command, "cd %s && for f in spaces*; do : > $f; done", fixture_path(0));
    assert_int_equal(system(command), 0);
    open_is_refused("disk:@0:64blk", KVO_E_MISMATCH, "20 blocks of spaces");
    options.flags = KVO_OPEN_READ_ONLY;
    kvo_error error = {{0}};
    assert_int_equal(try_open("disk:@0", &error), KVO_OK);
    assert_true(store_stat().blocks == 0 && store_stat().damaged_slots == 20);
    close_store();
}

/* ---- what earlier tiers did ---- */

static void each_earlier_tier_keeps_its_row(void **state)
{
    (void)state;
    open_store("dram:4blk,dram:8blk,disk:@0:64blk");
    assert_int_equal(fill_with(1, 20, BYTES), 20);
    close_store();
    open_store("disk:@0:64blk");
    assert_int_equal(store_stat().tier_count, 3);
    assert_string_equal(tier_stat(0).name, "disk");
    assert_string_equal(tier_stat(1).name, "dram");
    assert_string_equal(tier_stat(2).name, "dram2");
    kvo_tier_stat stat;
    assert_int_equal(kvo_stat_tier(store, 3, &stat), KVO_E_RANGE);
    close_store();
}

/* ---- spaces ---- */

static void there_are_so_many_spaces_and_no_more(void **state)
{
    (void)state;
    char label[16], many[32];
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_space opened = 5;
    kvo_error error = {{0}};
    config.label = label;
    config.model = "m";
    config.block_bytes_max = 4096;
    open_store("dram:16blk");
    for (int i = 1; i < KVO_SPACES_MAX; i++) {
        snprintf(label, sizeof label, "space-%d", i);
        assert_int_equal(kvo_space_open(store, &config, &opened, &error), KVO_OK);
    }
    assert_int_equal(put(1, 100), KVO_STORED);
    snprintf(label, sizeof label, "one-more");
    assert_int_equal(kvo_space_open(store, &config, &opened, &error), KVO_FULL);
    assert_int_equal(opened, 0);
    snprintf(many, sizeof many, "has %d spaces", KVO_SPACES_MAX);
    assert_non_null(strstr(error.text, many));
    close_store();
}

static void a_reader_makes_no_space(void **state)
{
    (void)state;
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_space opened = 5;
    kvo_error error = {{0}};
    config.label = "new";
    config.model = "m";
    config.block_bytes_max = 4096;
    open_store("disk:@0:16blk");
    close_store();
    options.flags = KVO_OPEN_READ_ONLY;
    open_store("disk:@0");
    assert_int_equal(kvo_space_open(store, &config, &opened, &error), KVO_E_STATE);
    assert_int_equal(opened, 0);
    assert_non_null(strstr(error.text, "open for reading"));
    close_store();
}

static void a_space_that_could_not_be_written_can_be_tried_again(void **state)
{
    (void)state;
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_space opened;
    faulty_open("disk:@0:16blk");
    config.label = "new";
    config.model = "m";
    config.block_bytes_max = 4096;
    atomic_store(&faulty.page_writes, ALWAYS);
    assert_int_equal(kvo_space_open(store, &config, &opened, NULL), KVO_E_IO);
    assert_int_equal(opened, 0);
    atomic_store(&faulty.page_writes, 0);
    assert_int_equal(kvo_space_open(store, &config, &opened, NULL), KVO_OK);
    space = opened;
    assert_int_equal(put(1, 4096), KVO_STORED);
    close_store();
    kvo_error error = {{0}};
    assert_int_equal(try_open("disk:@0:16blk", &error), KVO_OK);
    assert_int_equal(get(1, 4096), KVO_OK);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(what_lies_in_memory_below_all_disks_is_short),
        FIXTURE_TEST(what_lies_between_two_disks_goes_to_the_lower_one),
        FIXTURE_TEST(a_full_disk_leaves_it_to_the_next_one),
        FIXTURE_TEST(a_stream_that_is_full_lets_one_through),
        FIXTURE_TEST(a_second_memory_may_fail_like_a_disk),
        FIXTURE_TEST(a_batch_that_fills_the_tier_keeps_what_landed),
        FIXTURE_TEST(capacities_that_cannot_be_are_said_why),
        FIXTURE_TEST(blocks_too_large_for_a_new_tier_go_past_it),
        FIXTURE_TEST(directories_that_call_other_things_alike_are_not_opened_together),
        FIXTURE_TEST(a_directory_without_spaces_gets_them_unless_it_is_only_read),
        FIXTURE_TEST(blocks_without_their_space_are_counted_for_a_reader),
        FIXTURE_TEST(each_earlier_tier_keeps_its_row),
        FIXTURE_TEST(there_are_so_many_spaces_and_no_more),
        FIXTURE_TEST(a_reader_makes_no_space),
        FIXTURE_TEST(a_space_that_could_not_be_written_can_be_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
