/* SPDX-License-Identifier: Apache-2.0 */
/* Narrow counters at their ends: each has an answer, and none of them is a wrong byte. The fields are set from inside, since
   no test has the time to count so far. tests/store has pins of a block, pins_max, holds_max and rewrites. */
#include "store/fixture.h"

static block_record *record_of(uint64_t number)
{
    kvo_answer a;
    assert_int_equal(exists(number, &a), KVO_OK);
    return &store->records[handle_record(a.handle)];
}

static void an_incarnation_comes_round_and_no_handle_of_before_is_good(void **state)
{
    (void)state;
    kvo_answer a;
    kvo_handle seen[6];
    open_store("dram:16blk,disk:@0:32blk");
    assert_int_equal(put(1, 1000), KVO_STORED);
    block_record *r = record_of(1);
    assert_int_equal(drop(1, KVO_SEALED), KVO_OK);
    word_store(&r->life, life_make(UINT32_MAX - 2, 0, NULL, 0));
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(put_as(2, 1000, i, NULL, &a), KVO_STORED);
        assert_ptr_equal(record_of(2), r);
        assert_true(a.handle != 0 && handle_incarnation(a.handle) != 0);
        seen[i] = a.handle;
        for (unsigned k = 0; k < i; k++) {
            kvo_target old = {.by = KVO_BY_HANDLES, .handles = &seen[k], .handle_count = 1};
            assert_int_equal(kvo_touch(store, &old, &a), KVO_OK);
            assert_int_equal(a.status, KVO_GONE);
        }
        assert_int_equal(get_as(2, 1000, i, NULL, &a), KVO_OK);
        assert_int_equal(drop(2, KVO_SEALED), KVO_OK);
    }
    close_store();
}

static void uses_stop_at_their_most(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:32blk");
    put(1, 1000);
    block_record *r = record_of(1);
    word_store(&r->touch, touch_make(touch_recency(word_load(&r->touch)), TOUCH_USES_MAX - 2));
    for (unsigned i = 0; i < 6; i++) {
        uint64_t before = touch_recency(word_load(&r->touch));
        assert_int_equal(touch(1), KVO_OK);
        assert_true(touch_recency(word_load(&r->touch)) > before);
    }
    assert_int_equal(info_of(1).uses, TOUCH_USES_MAX);
    close_store();
    open_store("dram:16blk,disk:@0");
    assert_int_equal(info_of(1).uses, TOUCH_USES_MAX);
    assert_int_equal(get(1, 1000), KVO_OK);
    close_store();
}

/* 48 bits of recency. At the end all blocks are as recent as can be: the order among them is lost, but none that was used
   after looks older than one that was used before. */
static void the_reference_clock_passes_the_end_of_recency(void **state)
{
    (void)state;
    for (unsigned placement = 0; placement < 2; placement++) {
        options.placement = (int)placement;
        open_store("dram:8blk,disk:@0:64blk");
        fill_with(0, 8, 65536);
        atomic_store(&store->clock, TOUCH_RECENCY_MASK - 20);
        uint64_t last = 0;
        for (uint64_t n = 100; n < 160; n++) {
            assert_int_equal(put(n, 65536), KVO_STORED);
            uint64_t recency = touch_recency(word_load(&record_of(n)->touch));
            assert_true(recency >= last);
            last = recency;
            assert_int_equal(get(n, 65536), KVO_OK);
        }
        assert_int_equal(last, TOUCH_RECENCY_MASK);
        assert_true(store_stat().references > TOUCH_RECENCY_MASK);
        close_store();
        open_store("dram:8blk,disk:@0");
        assert_true(store_stat().references > TOUCH_RECENCY_MASK);
        for (uint64_t n = 120; n < 160; n++)
            assert_int_equal(get(n, 65536), KVO_OK);
        assert_int_equal(fill_with(1000, 100, 65536), 100);
        close_store();
        fixture_remove(0);
    }
}

/* The low byte of it is a copy's generation: 300 writes in one slot go round it, and the whole number passes 32 bits. */
static void write_numbers_pass_what_a_copy_keeps_of_them(void **state)
{
    (void)state;
    open_store("disk:@0:8blk");
    atomic_store(&store->write_number, UINT32_MAX - 150);
    for (uint64_t n = 0; n < 300; n++) {
        assert_int_equal(put(n, 65536), KVO_STORED);
        assert_int_equal(get(n, 65536), KVO_OK);
        if (n > 0)
            assert_int_not_equal(get(n - 1 < 20 ? 1000 : n - 20, 65536), KVO_OK);
    }
    close_store();
    open_store("disk:@0");
    assert_true(atomic_load(&store->write_number) > UINT32_MAX);
    assert_int_equal(get(299, 65536), KVO_OK);
    close_store();
}

/* Only the number in use tells a segment's slots from those of earlier strides. */
static void a_segments_epoch_comes_round(void **state)
{
    (void)state;
    static const size_t sizes[] = {60000, 5000, 30000, 100};
    open_store("disk:@0:64blk");
    for (uint32_t i = 0; i < store->tiers[0].space.segment_count; i++)
        store->tiers[0].space.segments[i].epoch = UINT32_MAX - 2;
    uint64_t n = 0;
    for (unsigned round = 0; round < 12; round++) {
        size_t bytes = sizes[round % 4];
        uint64_t first = n;
        for (; n < first + 3000 && n < first + 8 * (4u << 20) / (bytes + 8192); n++)
            assert_int_equal(put(n, bytes), KVO_STORED);
        assert_int_equal(get(n - 1, bytes), KVO_OK);
        uint64_t here = store_stat().blocks;
        close_store();
        open_store("disk:@0");
        assert_int_equal(store_stat().blocks, here);
        assert_int_equal(store_stat().damaged_slots, 0);
        for (uint64_t k = first; k < n; k++)
            get(k, bytes); /* the right bytes, or a miss */
        assert_int_equal(get(n - 1, bytes), KVO_OK);
    }
    bool round = false;
    for (uint32_t i = 0; i < store->tiers[0].space.segment_count; i++)
        round |= store->tiers[0].space.segments[i].epoch < 100;
    assert_true(round);
    close_store();
}

static void a_pins_generation_comes_round(void **state)
{
    (void)state;
    kvo_pin p, old;
    open_store("dram:16blk");
    put(1, 1000);
    for (uint32_t i = 0; i < store->options.pins_max; i++)
        store->pins[i].generation = UINT32_MAX - 1;
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(pin(1, &p), KVO_OK);
        assert_true(p.token != 0);
        old = p;
        assert_int_equal(kvo_unpin(store, &p, 1), KVO_OK);
        assert_int_equal(kvo_unpin(store, &old, 1), KVO_GONE);
    }
    close_store();
}

static void tenants_beyond_the_last_row_share_one(void **state)
{
    (void)state;
    options.tenants_max = 4;
    open_store("dram:64blk");
    for (uint16_t i = 0; i < 20; i++) {
        kvo_put_options o = KVO_PUT_OPTIONS_INIT;
        kvo_answer a;
        o.policy.tenant = (uint16_t)(i * 3449 % 65535);
        assert_int_equal(put_as(i, 1000, 0, &o, &a), KVO_STORED);
        assert_int_equal(policy_of(i).tenant, o.policy.tenant);
    }
    kvo_ledger_row rows[64];
    size_t count;
    uint64_t put_bytes = 0, other_bytes = 0;
    assert_int_equal(kvo_ledger(store, rows, 64, &count), KVO_OK);
    for (size_t i = 0; i < count && i < 64; i++)
        if (rows[i].cause == KVO_CAUSE_PUT) {
            put_bytes += rows[i].bytes;
            other_bytes += rows[i].tenant == KVO_TENANT_OTHER ? rows[i].bytes : 0;
        }
    assert_int_equal(put_bytes, 20000);
    assert_int_equal(other_bytes, 16000);
    close_store();
}

static void control_records_that_run_out_make_room(void **state)
{
    (void)state;
    options.blocks_max = 1;
    options.block_bytes = 4096;
    open_store("dram:4000blk");
    uint64_t most = store_stat().blocks_max;
    assert_true(most < 4000);
    for (uint64_t n = 0; n < 3 * most; n++) {
        int r = put(n, 4096);
        assert_true(r == KVO_STORED || r == KVO_FULL || r == KVO_BUSY);
        assert_int_equal(get(n, 4096), r == KVO_STORED ? KVO_OK : KVO_MISS);
    }
    check_valid();
    assert_int_equal(drop(0, KVO_SEALED) == KVO_OK || drop(3 * most - 1, KVO_SEALED) == KVO_OK, 1);
    assert_int_equal(put(99999, 4096), KVO_STORED); /* and it works again */
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(an_incarnation_comes_round_and_no_handle_of_before_is_good),
        FIXTURE_TEST(uses_stop_at_their_most),
        FIXTURE_TEST(the_reference_clock_passes_the_end_of_recency),
        FIXTURE_TEST(write_numbers_pass_what_a_copy_keeps_of_them),
        FIXTURE_TEST(a_segments_epoch_comes_round),
        FIXTURE_TEST(a_pins_generation_comes_round),
        FIXTURE_TEST(tenants_beyond_the_last_row_share_one),
        FIXTURE_TEST(control_records_that_run_out_make_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
