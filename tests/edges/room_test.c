/* SPDX-License-Identifier: Apache-2.0 */
/* Room: victims that change while they wait in a queue, orphans, sizes that mix without memory, intents of many blocks
   of many kinds. */
#include <stdlib.h>
#include <unistd.h>

#include "faulty.h"

#define BYTES 65536u

static unsigned mask_of(uint64_t number)
{
    kvo_answer answer;
    return exists(number, &answer) == KVO_OK ? answer.tier_mask : 0;
}

static uint64_t number_of(uint32_t record, uint64_t first, uint64_t end)
{
    for (; first < end; first++)
        if (mask_of(first) && handle_record(info_of(first).handle) == record)
            return first;
    fail_msg("nobody has record %u", record);
    return 0;
}

/* ---- victims ---- */

static void a_victim_that_is_removed_while_it_is_read_is_passed_by(void **state)
{
    (void)state;
    kvo_pin p;
    open_store("dram:128blk");
    assert_int_equal(fill_with(0, 129, BYTES), 129); /* the queue has the next victims */
    assert_true(store->tiers[0].queue_count > 0);
    uint64_t next = number_of(store->tiers[0].queue[store->tiers[0].queue_first].record, 0, 129);
    assert_int_equal(pin(next, &p), KVO_OK);
    assert_int_equal(drop(next, KVO_SEALED), KVO_OK);
    assert_int_equal(fill_with(1000, 3, BYTES), 3);
    check_valid();
    assert_int_equal(kvo_unpin(store, &p, 1), KVO_OK);
    check_valid();
    close_store();
}

/* Brought up for a use to come, which is no use yet: it is an anchor, and stays. */
static void a_victim_that_is_brought_up_is_passed_by(void **state)
{
    (void)state;
    uint64_t number = 0;
    kvo_answer answer;
    open_store("dram:8blk,disk:@0:128blk");
    const store_tier *disk = &store->tiers[1];
    do { /* nothing in memory has to be written to give its place */
        assert_int_equal(put(number++, BYTES), KVO_STORED);
        assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
        assert_true(number < 1000);
    } while (disk->queue_count < 2);
    uint64_t next = number_of(disk->queue[disk->queue_first].record, 0, number);
    kvo_names names = names_of(next, 1);
    assert_int_equal(kvo_prefetch(store, &names, NULL, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_OK);
    assert_int_equal(mask_of(next), 3);
    uint64_t copy;
    uint32_t record = handle_record(info_of(next).handle);
    assert_true(block_pin(&store->records[record], 0, &copy)); /* as a reader who has not counted its use yet */
    assert_int_equal(put(number++, BYTES), KVO_STORED);
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    assert_int_equal(mask_of(next), 3);
    store_unpin(store, record, 0);
    check_valid();
    close_store();
}

/* All that may go is a parent whose child is read, and below there are anchors alone. */
static void a_parent_goes_without_its_child_where_nothing_else_can(void **state)
{
    (void)state;
    kvo_pin pins[3];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    uint8_t parent[NAME_BYTES];
    open_store("dram:4blk,disk:@0:2blk");
    assert_int_equal(fill_with(1, 2, BYTES), 2);
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    assert_int_equal(pin(1, &pins[0]), KVO_OK);
    assert_int_equal(pin(2, &pins[1]), KVO_OK);
    assert_int_equal(put(3, BYTES), KVO_STORED);
    name_of(3, parent);
    o.chained = 1;
    o.parent = parent;
    assert_int_equal(put_as(4, BYTES, 0, &o, NULL), KVO_STORED);
    assert_int_equal(pin(4, &pins[2]), KVO_OK);
    assert_int_equal(put(5, BYTES), KVO_STORED);
    assert_int_equal(mask_of(3), 0);
    assert_true(tier_stat(0).orphans == 1 && tier_stat(0).anchor_yields == 1);
    check_valid();
    assert_int_equal(kvo_unpin(store, pins, 3), KVO_OK);
    assert_int_equal(get(4, BYTES), KVO_OK);
    int r = kvo_close(store, KVO_FOREVER);
    store = NULL;
    assert_int_equal(r, KVO_SHORT); /* the disk is too small for all */
}

/* ---- sizes ---- */

static void another_size_without_memory_to_choose_by_is_busy_at_most(void **state)
{
    (void)state;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.deadline_ns = 0;
    faulty_open("dram:256blk");
    assert_int_equal(fill_with(0, 256, BYTES), 256);
    unsigned busy = 0;
    int left = 0;
    for (int n = 1; left == 0; n++) {
        atomic_store(&faulty.allocs_until, n);
        int status = put_as(10000 + (uint64_t)n, 4096, 0, &o, NULL);
        left = atomic_exchange(&faulty.allocs_until, 0);
        assert_true(status == KVO_STORED || status == KVO_BUSY);
        busy += status == KVO_BUSY;
        check_valid();
        assert_true(n < 100);
    }
    assert_int_equal(put_as(20000, 4096, 0, &o, NULL), KVO_STORED);
    assert_int_equal(get(20000, 4096), KVO_OK);
    print_message("%u puts were busy\n", busy);
    close_store();
}

/* Each size has a queue of victims, and there are more sizes than places for queues. */
static void more_sizes_than_queues_find_their_victims(void **state)
{
    (void)state;
    enum { SIZES = 48, EACH = 64 };
    options.flags = KVO_OPEN_GHOST;
    options.block_bytes = 4096 * SIZES;
    open_more("dram:1500blk");
    for (uint64_t round = 0; round < 4; round++)
        for (uint64_t i = 0; i < EACH; i++)
            for (uint64_t size = 1; size <= SIZES; size++)
                assert_int_equal(put(((round * EACH + i) << 8) + size, 4096 * size), KVO_STORED);
    check_valid();
    close_store();
}

static void blocks_of_tens_of_mebibytes_are_moved_one_by_one(void **state)
{
    (void)state;
    enum { LARGE = 33 << 20 };
    uint8_t *memory = aligned_alloc(4096, LARGE);
    kvo_segment segment = {memory, LARGE};
    kvo_memory where = {&segment, NULL};
    kvo_answer answer;
    with_mover = true;
    options.block_bytes = LARGE;
    open_more("dram:2blk,disk:@0:4blk");
    for (uint64_t i = 1; i <= 4; i++) {
        kvo_names names = names_of(i, 1);
        payload_make(memory, LARGE, i, 0);
        assert_int_equal(kvo_put(store, &names, &where, NULL, &answer), KVO_OK);
        assert_int_equal(answer.status, KVO_STORED);
    }
    for (uint64_t i = 1; i <= 4; i++) {
        kvo_names names = names_of(i, 1);
        memset(memory, 0, LARGE);
        assert_int_equal(kvo_get(store, &names, &where, NULL, &answer), KVO_OK);
        assert_int_equal(answer.status, KVO_OK);
        assert_true(payload_is(memory, LARGE, i, 0));
    }
    free(memory);
    close_store();
}

/* The records run out before the slots: with a deadline too the worst block of all ends. */
static void records_that_run_out_are_taken_from_the_lowest_tier(void **state)
{
    (void)state;
    with_mover = true;
    options.block_bytes = 4096;
    options.blocks_max = 1;
    open_more("dram:600blk,disk:@0:1200blk");
    assert_int_equal(fill_with(0, 1400, 4096), 1400);
    assert_true(store_stat().blocks <= store_stat().blocks_max);
    assert_int_equal(get(1399, 4096), KVO_OK);
    check_valid();
    close_store();
}

/* ---- intents ---- */

static void set_intent(kvo_target target, int intent)
{
    kvo_policy policy = KVO_POLICY_INIT;
    policy.intent = (uint8_t)intent;
    assert_int_equal(kvo_policy_set(store, &target, &policy, KVO_POLICY_INTENT, NULL, NULL), KVO_OK);
}

static void wait_for_mask(uint64_t number, unsigned tiers)
{
    while ((mask_of(number) & tiers) != tiers) {
        assert_int_equal(exists(number, NULL), KVO_OK);
        usleep(1000);
    }
}

/* More than one round carries out. */
static void intents_of_many_blocks_are_all_carried_out(void **state)
{
    (void)state;
    options.block_bytes = 4096;
    options.write_out_ns = 10000000;
    open_more("dram:200blk,disk:@0:1000blk");
    assert_int_equal(fill_with(0, 190, 4096), 190);
    set_intent(target_of(0, 190), KVO_INTENT_DEMOTE);
    for (uint64_t i = 0; i < 190; i++)
        wait_for_mask(i, 2);
    assert_int_equal(fill_with(1000, 200, 4096), 200);
    for (uint64_t i = 0; i < 190; i++)
        assert_int_equal(mask_of(i), 2);
    set_intent(target_of(0, 190), KVO_INTENT_PREFETCH);
    for (uint64_t i = 0; i < 190; i++)
        wait_for_mask(i, 1);
    check_valid();
    close_store();
}

enum { KINDS = 7 };

static kvo_names of_kind(int kind, uint8_t name[KVO_NAME_BYTES_MAX], const kvo_space spaces[2])
{
    memset(name, 0x40, KVO_NAME_BYTES_MAX);
    kvo_names names = {.first = name, .name_bytes = kind == 1 ? 40 : 32, .count = 1, .space = spaces[kind == 2]};
    names.kind = kind == 3 ? KVO_KIND_STATE : 0;
    names.layer_first = (uint16_t)(kind == 4);
    names.layer_count = (uint16_t)(kind == 5);
    names.head_group = kind == 6;
    return names;
}

/* They go up as one batch where they are alike, and these are not. */
static void blocks_of_all_kinds_are_brought_up(void **state)
{
    (void)state;
    static uint8_t names[2 * KINDS][KVO_NAME_BYTES_MAX], payload[BYTES];
    kvo_segment segment = {payload, BYTES};
    kvo_memory memory = {&segment, NULL};
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer;
    open_store("dram:32blk,disk:@0:128blk");
    const kvo_space spaces[2] = {space, open_space("another", BYTES)};
    o.policy.tenant = 5;
    for (int i = 0; i < 2 * KINDS; i++) { /* a usual one between any two others */
        kvo_names list = of_kind(i % 2 ? i / 2 : 0, names[i], spaces);
        names[i][0] = (uint8_t)i;
        assert_int_equal(kvo_put(store, &list, &memory, &o, &answer), KVO_OK);
        assert_int_equal(answer.status, KVO_STORED);
    }
    assert_int_equal(fill_with(1000, 40, BYTES), 40);
    set_intent((kvo_target){.by = KVO_BY_TENANT, .tenant = 5}, KVO_INTENT_PREFETCH);
    for (int i = 0; i < 2 * KINDS; i++) {
        kvo_names list = of_kind(i % 2 ? i / 2 : 0, names[i], spaces);
        names[i][0] = (uint8_t)i;
        do {
            assert_int_equal(kvo_exists(store, &list, &answer), KVO_OK);
            assert_int_equal(answer.status, KVO_OK);
        } while (!(answer.tier_mask & 1));
    }
    check_valid();
    close_store();
}

/* Into a first tier that is a disk nothing is brought. */
static void a_disk_is_no_place_to_be_brought_up_to(void **state)
{
    (void)state;
    open_store("disk:@0:4blk,disk:@1:64blk");
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    assert_int_equal(mask_of(1), 2);
    set_intent(target_of(1, 1), KVO_INTENT_PREFETCH);
    while (atomic_load(&store->intents))
        usleep(1000);
    assert_int_equal(mask_of(1), 2);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_victim_that_is_removed_while_it_is_read_is_passed_by),
        FIXTURE_TEST(a_victim_that_is_brought_up_is_passed_by),
        FIXTURE_TEST(a_parent_goes_without_its_child_where_nothing_else_can),
        FIXTURE_TEST(another_size_without_memory_to_choose_by_is_busy_at_most),
        FIXTURE_TEST(more_sizes_than_queues_find_their_victims),
        FIXTURE_TEST(blocks_of_tens_of_mebibytes_are_moved_one_by_one),
        FIXTURE_TEST(records_that_run_out_are_taken_from_the_lowest_tier),
        FIXTURE_TEST(intents_of_many_blocks_are_all_carried_out),
        FIXTURE_TEST(blocks_of_all_kinds_are_brought_up),
        FIXTURE_TEST(a_disk_is_no_place_to_be_brought_up_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
