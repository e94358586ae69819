/* SPDX-License-Identifier: Apache-2.0 */
/* Narrow counters at their ends: each has an answer, and none of them is a wrong byte. The fields are set from inside,
   since no test has the time to count so far. tests/store has pins of a block, pins_max, holds_max and rewrites. */
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

/* 48 bits of recency. At the end all blocks are as recent as can be: the order among them is lost, but none that was
   used after looks older than one that was used before. */
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

/* Its low byte is a copy's generation: 300 writes in one slot go round it, and the whole number passes 32 bits. */
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

/* All records stand for blocks that are held: a put waits for its deadline and says busy, until one is released. */
static void control_records_that_are_all_held_are_busy_in_time(void **state)
{
    (void)state;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer;
    uint64_t hold, last = 0, n = 0;
    options.blocks_max = 1;
    options.block_bytes = 4096;
    options.holds_max = 1u << 14;
    open_store("dram:4000blk");
    for (o.deadline_ns = 0; put_as(n, 4096, 0, &o, NULL) == KVO_STORED; n++) {
        kvo_names names = names_of(n, 1);
        assert_int_equal(kvo_hold(store, &names, KVO_FOREVER, &hold, &answer), KVO_OK);
        assert_int_equal(answer.status, KVO_OK);
        last = hold;
    }
    assert_true(n > 0 && n < 4000);
    o.deadline_ns = 5000000;
    assert_int_equal(put_as(n, 4096, 0, &o, NULL), KVO_BUSY);
    check_valid();
    assert_int_equal(kvo_release(store, last), KVO_OK);
    o.deadline_ns = KVO_FOREVER - 1; /* as good as for ever: no sum of it and the time wraps */
    assert_int_equal(put_as(n, 4096, 0, &o, NULL), KVO_STORED);
    assert_int_equal(get(n, 4096), KVO_OK);
    assert_int_equal(get(n - 1, 4096), KVO_MISS);
    check_valid();
    close_store();
}

/* ---- large numbers ---- */

static void b114_tables_grow_with_their_counts_past_31_bits(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1u << 20, 1u << 30, (1u << 31) - 1, 1u << 31, (1u << 31) + 1, UINT32_MAX - 1};
    uint64_t index = 0, scan = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        assert_true(index_bytes_for(counts[i]) >= index && index_bytes_for(counts[i]) / counts[i] >= 10);
        assert_true(place_scan_bytes_for(counts[i]) >= scan);
        index = index_bytes_for(counts[i]);
        scan = place_scan_bytes_for(counts[i]);
    }
    for (uint64_t blocks = 1ull << 28; blocks < 1ull << 36; blocks *= 2) {
        place_geometry g;
        uint64_t units = blocks * 2; /* header and page */
        bool fits = place_geometry_blocks(&g, 1, blocks, 4096, 0);
        assert_true(!fits || place_geometry_units(&g) >= units);
        assert_int_equal(fits, units + units / 1000 <= UINT32_MAX); /* 16 TiB */
        fits = place_geometry_bytes(&g, 1, blocks * 8192, 4096, 0, 0);
        assert_true(!fits || (place_geometry_units(&g) <= units && place_geometry_units(&g) > units - units / 100));
    }
}

/* A ghost has the records and the index of a store, and no payload. */
static void b114_more_records_than_31_bits_count_work_or_are_refused(void **state)
{
    (void)state;
    kvo_error error = {{0}};
    options.flags = KVO_OPEN_GHOST;
    options.block_bytes = 4096;
    assert_int_equal(try_open("dram:2147480000blk,dram:2147490000blk", &error), KVO_E_RANGE);
    if (strstr(error.text, "control records are too many: set blocks_max or block_bytes") == NULL)
        fail_msg("%s", error.text);
    assert_int_equal(try_open("dram:9000000000blk", &error), KVO_E_RANGE);
    assert_non_null(strstr(error.text, "over 16 TiB"));
    /* Half a terabyte of addresses, of which little is touched. */
    if (TEST_SANITIZES || try_open("dram:2147483649blk", &error) == KVO_E_MEMORY) {
        print_message("2^31 records are not tried: %s\n", TEST_SANITIZES ? "under a sanitizer" : error.text);
        return;
    }
    space = open_space("a", 65536);
    assert_true(store_stat().blocks_max > 1u << 31);
    assert_int_equal(tier_stat(0).capacity_blocks, 2147483649u);
    for (uint64_t n = 0; n < 200; n++)
        assert_int_equal(put(n, 4096), KVO_STORED);
    for (uint64_t n = 0; n < 200; n++)
        assert_int_equal(exists(n, NULL), KVO_OK);
    assert_int_equal(store->index.spare_count, store->index.overflow_count); /* they are spread over all buckets */
    assert_int_equal(tier_stat(0).used_bytes, 200ull * 4096);
}

static int make_hole(base_env *env, int file, uint64_t bytes) { return env->truncate(env, file, bytes); }

static void open_sparse(const char *text)
{
    static base_env machine;
    char tiers[1024], paths[4096];
    kvo_tier_config configs[KVO_TIERS_MAX];
    kvo_error error = {{0}};
    uint32_t count;
    machine = *base_env_posix();
    machine.allocate = make_hole;
    fixture_text(text, tiers, sizeof tiers);
    assert_int_equal(kvo_parse_tiers(tiers, configs, &count, paths, sizeof paths, &error), KVO_OK);
    if (store_open(&machine, configs, count, &options, &store, &error) != KVO_OK)
        fail_msg("open: %s", error.text);
    space = open_space("a", 1 << 20);
}

static void b100_two_tebibytes_are_counted_exactly(void **state)
{
    (void)state;
    options.block_bytes = 1 << 20;
    options.flags = KVO_OPEN_STEPPED;
    for (unsigned round = 0; round < 2; round++) {
        open_sparse("disk:@0:2T");
        kvo_tier_stat t = tier_stat(0);
        assert_true(t.capacity_bytes <= 2ull << 40 && t.capacity_bytes > (2ull << 40) / 128 * 126);
        assert_in_range(t.capacity_blocks, t.capacity_bytes / ((1 << 20) + 4096) * 99 / 100, t.capacity_bytes >> 20);
        for (uint64_t n = 0; n < 20; n++)
            assert_int_equal(put(n, 1 << 20), round ? KVO_EXISTS : KVO_STORED);
        assert_int_equal(tier_stat(0).other_evictions, 0);
        for (uint64_t n = 0; n < 20; n++)
            assert_int_equal(get(n, 1 << 20), KVO_OK);
        assert_int_equal(tier_stat(0).used_bytes, 20ull * ((1 << 20) + 4096));
        close_store();
    }
}

/* Row by row and in sum, far past what 32 and 53 bits hold. */
static void b100_accounts_are_whole_numbers_of_64_bits(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {(1ull << 31) - 1, 1ull << 31, (1ull << 32) + 1, (1ull << 53) + 1, 1ull << 62};
    open_store("dram:16blk");
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ledger_add(&store->ledger, store->tiers[0].account, LEDGER_WRITE, KVO_CAUSE_PUT, 7, sizes[i], 1);
        sum += sizes[i];
        kvo_ledger_row rows[16];
        size_t count;
        assert_int_equal(kvo_ledger(store, rows, 16, &count), KVO_OK);
        assert_int_equal(count, 1);
        assert_true(rows[0].bytes == sum && rows[0].operations == i + 1 && rows[0].tenant == 7);
        assert_true(tier_stat(0).written_bytes == sum);
    }
    ledger_add(&store->ledger, store->tiers[0].account, LEDGER_LEFT, KVO_CAUSE_EVICT, 7, sum,
               sizeof sizes / sizeof *sizes);
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
        FIXTURE_TEST(control_records_that_are_all_held_are_busy_in_time),
        FIXTURE_TEST(b114_tables_grow_with_their_counts_past_31_bits),
        FIXTURE_TEST(b114_more_records_than_31_bits_count_work_or_are_refused),
        FIXTURE_TEST(b100_two_tebibytes_are_counted_exactly),
        FIXTURE_TEST(b100_accounts_are_whole_numbers_of_64_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
