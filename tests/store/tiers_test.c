/* SPDX-License-Identifier: Apache-2.0 */
/* Every hierarchy, every awkward length, mixed sizes in one store; rule 6 all the time. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

static const size_t lengths[] = {1, 4095, 4096, 4097, 65536, 17, 30000};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static size_t length_of(uint64_t number) { return lengths[number % LENGTHS]; }

/* Rule 6, from the store's own counters. */
static void check_written_once(void)
{
    kvo_stat stat = store_stat();
    for (uint32_t i = 0; i < stat.present_tier_count; i++) {
        kvo_tier_stat t = tier_stat(i);
        assert_true(t.max_delta <= 1);
        if (i > 0)
            assert_int_equal(t.written_bytes, t.life_bytes);
    }
}

/* Three times over a set larger than all tiers; whatever is served is right, and most of the last
   ones put are there. */
static void churn(const char *tiers, uint64_t count)
{
    open_store(tiers);
    for (unsigned round = 0; round < 3; round++)
        for (uint64_t i = 0; i < count; i++) {
            int r = put(i, length_of(i));
            assert_true(r == KVO_STORED || r == KVO_EXISTS);
            if (i >= 3)
                get(i - 3, length_of(i - 3));
            if (i >= 40)
                get(i - 40, length_of(i - 40));
            if (i % 16 == 0)
                check_valid();
        }
    check_written_once();
    assert_int_equal(store_stat().digest_misses, 0);
    assert_int_equal(get(count - 1, length_of(count - 1)), KVO_OK);
}

static void churn_and_reopen(const char *tiers, uint64_t count)
{
    size_t here = 0, again = 0;
    churn(tiers, count);
    for (uint64_t i = 0; i < count; i++)
        here += exists(i, NULL) == KVO_OK;
    close_store();
    open_store(tiers);
    check_valid();
    for (uint64_t i = 0; i < count; i++)
        again += get(i, length_of(i)) == KVO_OK;
    check_valid();
    assert_true(again >= 20 && again <= here);
    close_store();
}

static void memory_alone_serves_what_it_has(void **state)
{
    (void)state;
    churn("dram:50blk", 200);
    close_store();
}

static void disk_alone_serves_what_it_has(void **state)
{
    (void)state;
    churn_and_reopen("disk:@0:50blk", 200);
}

static void memory_over_disk(void **state)
{
    (void)state;
    churn_and_reopen("dram:20blk,disk:@0:60blk", 200);
}

/* Slots of another size that only anchors keep are no reason to wait: nothing will change. */
static void anchors_of_another_size_make_a_sync_short(void **state)
{
    (void)state;
    open_store("dram:40blk,disk:@0:4blk");
    fill_with(0, 4, 65536);
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    put(10, 100);
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_SHORT);
    check_valid();
}

/* Close cannot write all that memory holds, and says so. */
static void a_disk_smaller_than_memory(void **state)
{
    (void)state;
    size_t again = 0;
    churn("dram:60blk,disk:@0:40blk", 200);
    assert_int_equal(kvo_close(store, 1000000), KVO_SHORT);
    open_store("dram:60blk,disk:@0:40blk");
    for (uint64_t i = 0; i < 200; i++)
        again += get(i, length_of(i)) == KVO_OK;
    assert_true(again >= 40);
    check_valid();
    close_store();
}

static void two_memories_over_disk(void **state)
{
    (void)state;
    churn_and_reopen("dram:16blk,dram:24blk,disk:@0:60blk", 200);
}

static void memory_over_two_disks(void **state)
{
    (void)state;
    churn_and_reopen("dram:16blk,disk:@0:24blk,disk:@1:60blk", 200);
}

static void two_disks_alone(void **state)
{
    (void)state;
    churn_and_reopen("disk:@0:24blk,disk:@1:60blk", 200);
}

static void four_tiers(void **state)
{
    (void)state;
    churn_and_reopen("dram:12blk,dram:16blk,disk:@0:24blk,disk:@1:60blk", 250);
}

static void a_capacity_in_bytes_includes_the_control_records(void **state)
{
    (void)state;
    churn_and_reopen("dram:5M,disk:@0:12M", 400);
}

/* 64 KiB, then 1 MiB (much larger), then 64 KiB again: each fills most of the store in turn. */
static void each_size_gets_the_room_in_turn(const char *tiers, unsigned disk)
{
    const size_t small = 65536, large = 1 << 20;
    open_more(tiers);
    fill_with(0, 900, small);
    check_valid();
    uint64_t at_first = tier_stat(disk).resident_blocks * small;
    fill_with(10000, 80, large);
    check_valid();
    uint64_t larges = 0;
    for (uint64_t i = 0; i < 80; i++)
        larges += exists(10000 + i, NULL) == KVO_OK;
    assert_int_equal(get(10079, large), KVO_OK);
    assert_true(larges * large * 2 > at_first);
    fill_with(20000, 900, small);
    check_valid();
    uint64_t smalls = 0;
    for (uint64_t i = 0; i < 900; i++)
        smalls += exists(20000 + i, NULL) == KVO_OK;
    assert_int_equal(get(20899, small), KVO_OK);
    assert_true(smalls * small * 2 > at_first);
    check_written_once();
    assert_int_equal(store_stat().digest_misses, 0);
}

static void sizes_take_turns_in_memory(void **state)
{
    (void)state;
    options.block_bytes = 1 << 20;
    each_size_gets_the_room_in_turn("dram:32blk", 0);
}

static void sizes_take_turns_on_disk(void **state)
{
    (void)state;
    options.block_bytes = 1 << 20;
    each_size_gets_the_room_in_turn("disk:@0:32blk", 0);
    close_store();
    open_more("disk:@0:32blk");
    check_valid();
    assert_int_equal(get(20899, 65536), KVO_OK);
}

static void sizes_take_turns_in_both(void **state)
{
    (void)state;
    options.block_bytes = 1 << 20;
    each_size_gets_the_room_in_turn("dram:8blk,disk:@0:32blk", 1);
    close_store();
    open_more("dram:8blk,disk:@0:32blk");
    check_valid();
    assert_int_equal(get(20899, 65536), KVO_OK);
}

/* Sizes at random all the time, so that segments change their slot size under load. */
static void sizes_mix(const char *tiers)
{
    uint32_t seed = 12345;
    options.block_bytes = 262144;
    open_more(tiers);
    for (uint64_t i = 0; i < 600; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint64_t n = seed >> 20; /* 0 .. 4095 */
        size_t bytes = 1 + (n * 7919) % 262144;
        int r = put(n, bytes);
        assert_true(r == KVO_STORED || r == KVO_EXISTS);
        assert_int_equal(get(n, bytes), KVO_OK);
        if (i % 8 == 0)
            check_valid();
    }
    check_written_once();
}

static void sizes_at_random_in_memory(void **state)
{
    (void)state;
    sizes_mix("dram:40blk");
}

static void sizes_at_random_in_both(void **state)
{
    (void)state;
    sizes_mix("dram:16blk,disk:@0:40blk");
    close_store();
    open_more("dram:16blk,disk:@0:40blk");
    check_valid();
}

static void as_many_sizes_as_spaces(void **state)
{
    (void)state;
    options.block_bytes = 2 << 20;
    open_more("dram:64blk");
    for (unsigned i = 0; i < 200; i++) {
        char label[8];
        snprintf(label, sizeof label, "s%u", i);
        size_t bytes = (i + 20) * 8192 - 100;
        space = open_space(label, bytes);
        assert_int_equal(put(i, bytes), KVO_STORED);
        assert_int_equal(put(1000 + i, bytes / 2), KVO_STORED);
    }
    check_valid();
}

static void caller_memory_may_lie_anywhere(void **state)
{
    (void)state;
    uint8_t *memory = malloc(70000);
    kvo_answer a;
    open_store("dram:4blk,disk:@0:64blk");
    for (size_t shift = 1; shift < 8; shift += 3) {
        kvo_segment segment = {memory + shift, 60000};
        kvo_memory m = {&segment, NULL};
        kvo_names names = names_of(shift, 1);
        payload_make(memory + shift, 60000, shift, 0);
        assert_int_equal(kvo_put(store, &names, &m, NULL, &a), KVO_OK);
        assert_int_equal(a.status, KVO_STORED);
    }
    fill_with(100, 20, 65536); /* out of memory, onto disk */
    for (size_t shift = 1; shift < 8; shift += 3) {
        kvo_segment segment = {memory + shift + 1, 60000};
        kvo_memory m = {&segment, NULL};
        kvo_names names = names_of(shift, 1);
        assert_int_equal(kvo_get(store, &names, &m, NULL, &a), KVO_OK);
        assert_int_equal(a.status, KVO_OK);
        assert_int_equal(a.tier, 1);
        assert_true(payload_is(memory + shift + 1, 60000, shift, 0));
    }
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(memory_alone_serves_what_it_has),
        FIXTURE_TEST(disk_alone_serves_what_it_has),
        FIXTURE_TEST(memory_over_disk),
        FIXTURE_TEST(a_disk_smaller_than_memory),
        FIXTURE_TEST(anchors_of_another_size_make_a_sync_short),
        FIXTURE_TEST(two_memories_over_disk),
        FIXTURE_TEST(memory_over_two_disks),
        FIXTURE_TEST(two_disks_alone),
        FIXTURE_TEST(four_tiers),
        FIXTURE_TEST(a_capacity_in_bytes_includes_the_control_records),
        FIXTURE_TEST(sizes_take_turns_in_memory),
        FIXTURE_TEST(sizes_take_turns_on_disk),
        FIXTURE_TEST(sizes_take_turns_in_both),
        FIXTURE_TEST(sizes_at_random_in_memory),
        FIXTURE_TEST(sizes_at_random_in_both),
        FIXTURE_TEST(as_many_sizes_as_spaces),
        FIXTURE_TEST(caller_memory_may_lie_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
