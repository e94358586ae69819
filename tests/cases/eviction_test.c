/* SPDX-License-Identifier: Apache-2.0 */
/* Who leaves, how many, in what order, and what it costs to find them. */
#include "cases.h"
#include "faulty.h"

#include "place/victims.h"

/* ---- scans, counted ---- */

static _Atomic uint64_t scans, records_scanned;

place_found __real_place_victims(place_scan *scan, const place_query *query, place_victim *out);
place_found __wrap_place_victims(place_scan *scan, const place_query *query, place_victim *out);
place_found __wrap_place_victims(place_scan *scan, const place_query *query, place_victim *out)
{
    atomic_fetch_add(&scans, 1);
    atomic_fetch_add(&records_scanned, query->record_end);
    return __real_place_victims(scan, query, out);
}

/* ---- chains ---- */

static void put_chain(uint64_t first, uint64_t count)
{
    for (uint64_t at = 0; at < count; at += 32) {
        cases_batch b = cases_batch_make(first + at, 32, BYTES, true);
        uint8_t parent[NAME_BYTES];
        kvo_put_options o = KVO_PUT_OPTIONS_INIT;
        name_of(first + at - 1, parent);
        o.chained = 1;
        o.parent = at ? parent : NULL;
        o.position = (uint32_t)at * 16;
        assert_int_equal(kvo_put(store, &b.names, &b.of, &o, b.answers), KVO_OK);
        assert_int_equal(cases_batch_count(&b, KVO_STORED), 32);
        cases_batch_free(&b);
    }
}

static size_t prefix(uint64_t first, size_t count)
{
    size_t matched;
    kvo_names names = names_of(first, count);
    assert_int_equal(kvo_match(store, &names, NULL, &matched), KVO_OK);
    return matched;
}

/* store_policy: a_chain_leaves_from_its_tail is the report itself. Siblings: after hits of a part of it, in the order
   in which engines ask; on a disk; under both placements. */
static void B027_a_prefix_that_was_read_in_part_stays_usable(void **state)
{
    (void)state;
    static const char *const tiers[] = {"dram:128blk", "disk:@0:128blk"};
    for (int t = 0; t < 4; t++) {
        options.placement = t / 2 ? KVO_PLACE_LRU : KVO_PLACE_CREDIT;
        open_store(tiers[t % 2]);
        put_chain(0, 128);
        for (int round = 0; round < 3; round++)
            for (uint64_t i = 0; i < 32; i++)
                assert_int_equal(get(i, BYTES), KVO_OK); /* one by one: the head is the oldest of them */
        for (uint64_t strangers = 13; strangers <= 91; strangers += 13) {
            fill_with(1000 * strangers, 13, BYTES);
            size_t usable = prefix(0, 128);
            assert_int_equal(usable, cases_there(0, 128)); /* nothing that is there is out of reach */
            if (strangers == 13)
                assert_true(usable >= 113);
        }
        assert_true(prefix(0, 128) >= 32);
        assert_int_equal(tier_stat(0).orphans, 0);
        close_store();
        fixture_remove(0);
    }
}

/* ---- tenants ---- */

/* There are no quotas: a tenant that must not be flushed is given a class, or a priority. */
static void B056_blocks_of_a_higher_class_are_not_flushed_by_others(void **state)
{
    (void)state;
    for (int by_class = 0; by_class < 2; by_class++) {
        kvo_put_options a = KVO_PUT_OPTIONS_INIT, b = KVO_PUT_OPTIONS_INIT;
        a.policy.tenant = 1;
        b.policy.tenant = 2;
        a.policy.qos = by_class ? 2 : 1;
        a.policy.priority = by_class ? 50 : 80;
        open_store("dram:32blk,disk:@0:128blk");
        for (uint64_t i = 0; i < 100; i++)
            assert_int_equal(put_as(i, BYTES, 0, &a, NULL), KVO_STORED);
        for (uint64_t i = 0; i < 1000; i++) {
            assert_int_equal(put_as(1000 + i, BYTES, 0, &b, NULL), KVO_STORED);
            exists(1000 + i / 2, NULL);
            if (i % 10 == 0)
                assert_int_equal(get(i / 10, BYTES), KVO_OK);
        }
        assert_int_equal(cases_there(0, 100), 100);
        kvo_tenant_stat tenants[4];
        size_t count;
        assert_int_equal(kvo_stat_tenants(store, tenants, 4, &count), KVO_OK);
        for (size_t i = 0; i < count; i++)
            if (tenants[i].tenant == 1)
                assert_int_equal(tenants[i].blocks, 100);
        check_valid();
        close_store();
        fixture_remove(0);
    }
}

/* ---- the smallest tiers ---- */

static void B061_tiers_of_one_to_three_blocks_evict_without_a_trace(void **state)
{
    (void)state;
    for (unsigned size = 1; size <= 3; size++)
        for (unsigned below = 0; below <= 3; below++) {
            char tiers[64];
            if (below)
                snprintf(tiers, sizeof tiers, "dram:%ublk,disk:@0:%ublk", size, below);
            else
                snprintf(tiers, sizeof tiers, "dram:%ublk", size);
            open_store(tiers);
            for (uint64_t i = 0; i < 60; i++) {
                assert_int_equal(put(i, BYTES), KVO_STORED);
                assert_int_equal(get(i, BYTES), KVO_OK);
                if (i)
                    get(i - 1, BYTES); /* that comes up again while others leave */
                check_valid(); /* no index entry without its block, and none twice */
                assert_true(store_stat().blocks <= size + below);
            }
            assert_true(cases_there(0, 60) >= 1);
            kvo_close(store, KVO_FOREVER); /* memory may have more than the disk takes */
            store = NULL;
            fixture_remove(0);
        }
}

/* ---- policies and tiers ---- */

static void B064_every_placement_evicts_from_every_tier(void **state)
{
    (void)state;
    static const char *const tiers[] = {"dram:16blk", "disk:@0:16blk", "dram:8blk,disk:@0:16blk",
                                        "dram:4blk,dram:8blk,disk:@0:16blk", "disk:@0:8blk,disk:@1:16blk"};
    static const int placements[] = {KVO_PLACE_CREDIT, KVO_PLACE_LRU};
    for (int t = 0; t < 5; t++)
        for (int p = 0; p < 2; p++)
            for (int mover = 0; mover < 2; mover++) {
                options.placement = placements[p];
                with_mover = mover;
                open_store(tiers[t]);
                for (int cycle = 0; cycle < 10; cycle++)
                    assert_int_equal(fill_with((uint64_t)cycle * 100, 32, BYTES), 32);
                for (uint32_t i = 0; i < store_stat().present_tier_count; i++)
                    assert_true(cases_evictions(i) > 100);
                close_store();
                fixture_remove(0);
                fixture_remove(1);
            }
    options.placement = 2;
    kvo_error error = {{0}};
    with_mover = false;
    assert_int_equal(try_open("dram:16blk", &error), KVO_E_RANGE); /* what is no policy is refused at once */
}

/* A sibling: one cycle fails, beside the mover and without it; the next one goes on. */
static void B064_a_cycle_that_fails_is_not_the_last(void **state)
{
    (void)state;
    for (int mover = 0; mover < 2; mover++) {
        with_mover = mover;
        faulty_open("dram:8blk,disk:@0:64blk");
        for (uint64_t cycle = 0; cycle < 10; cycle++) {
            atomic_store(&faulty.block_writes, 3);
            for (uint64_t i = 0; i < 32; i++) {
                int status = cases_put(cycle * 100 + i, BYTES, 0, 10000000000u);
                MUST(status == KVO_STORED || status == KVO_FULL || status == KVO_BUSY);
            }
            atomic_store(&faulty.block_writes, 0);
            assert_int_equal(cases_put(cycle * 100 + 50, BYTES, 0, KVO_FOREVER), KVO_STORED);
        }
        assert_true(cases_evictions(0) > 100 && cases_evictions(1) > 50 && tier_stat(1).io_errors > 0);
        close_store();
        fixture_remove(0);
    }
}

/* ---- probes ---- */

static uint64_t survivors[2][4];

static void fill_beside_probes(int with_probes, const char *tiers)
{
    kvo_answer answers[100];
    size_t matched;
    open_store(tiers);
    fill_with(0, 100, BYTES);
    memset(survivors[with_probes], 0, sizeof survivors[0]);
    for (uint64_t i = 0; i < 150; i++) {
        if (with_probes)
            for (int k = 0; k < 10; k++) {
                kvo_names names = names_of(0, 100);
                assert_int_equal(kvo_exists(store, &names, answers), KVO_OK);
                assert_int_equal(kvo_match(store, &names, NULL, &matched), KVO_OK);
            }
        assert_int_equal(cases_put(1000 + i, BYTES, 0, 0), KVO_STORED);
    }
    for (uint64_t i = 0; i < 250; i++)
        if (exists(i < 100 ? i : 900 + i, NULL) == KVO_OK)
            survivors[with_probes][i / 64] |= 1ull << i % 64;
    close_store();
    fixture_remove(0);
}

/* The same blocks leave, whoever asks whether they are there. */
static void B082_probes_keep_no_block(void **state)
{
    (void)state;
    static const char *const tiers[] = {"dram:100blk", "dram:20blk,disk:@0:80blk", "disk:@0:100blk"};
    for (int t = 0; t < 3; t++) {
        fill_beside_probes(0, tiers[t]);
        fill_beside_probes(1, tiers[t]);
        assert_memory_equal(survivors[0], survivors[1], sizeof survivors[0]);
    }
}

/* ---- new ones, and the cost ---- */

static void B083_new_blocks_outlast_old_ones_that_nobody_used(void **state)
{
    (void)state;
    static const char *const tiers[] = {"dram:200blk", "disk:@0:200blk", "dram:50blk,disk:@0:200blk"};
    for (int t = 0; t < 6; t++) {
        options.placement = t / 3 ? KVO_PLACE_LRU : KVO_PLACE_CREDIT;
        open_store(tiers[t % 3]);
        assert_int_equal(fill_with(0, 200, BYTES), 200);
        for (uint64_t i = 0; i < 100; i++) {
            assert_int_equal(put(1000 + i, BYTES), KVO_STORED);
            assert_int_equal(get(1000 + i, BYTES), KVO_OK);
        }
        assert_int_equal(cases_there(1000, 100), 100);
        close_store();
        fixture_remove(0);
    }
}

/* A sibling, by counts: a victim costs a part of one scan, and no more of it in a large store. */
static void B083_a_scan_pays_for_a_batch_of_victims_at_every_size(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {10000, 100000, 1000000};
    options.flags = KVO_OPEN_GHOST;
    for (int i = 0; i < (TEST_SANITIZES ? 2 : 3); i++) {
        char tiers[32];
        uint64_t more = sizes[i] / 5 < 20000 ? sizes[i] / 5 : 20000;
        kvo_answer answers[1000];
        static kvo_segment segments[1000];
        snprintf(tiers, sizeof tiers, "dram:%llublk", (unsigned long long)sizes[i]);
        open_store(tiers);
        for (int k = 0; k < 1000; k++)
            segments[k] = (kvo_segment){NULL, BYTES};
        kvo_memory of = {segments, NULL};
        for (uint64_t at = 0; at < sizes[i] + more; at += 1000) {
            if (at == sizes[i]) {
                atomic_store(&scans, 0);
                atomic_store(&records_scanned, 0);
            }
            kvo_names names = names_of(at, 1000);
            assert_int_equal(kvo_put(store, &names, &of, NULL, answers), KVO_OK);
            assert_int_equal(answers[999].status, KVO_STORED);
        }
        uint64_t evicted = cases_evictions(0);
        assert_int_equal(evicted, more);
        assert_true(atomic_load(&scans) <= more / 32 + 1);
        assert_true(atomic_load(&records_scanned) <= atomic_load(&scans) * store_stat().blocks_max);
        print_message("B083: %llu blocks: %.1f victims a scan\n", (unsigned long long)sizes[i],
                      (double)evicted / (double)atomic_load(&scans));
        close_store();
    }
}

/* ---- slots in use again ---- */

/* A sibling of one in cases_io: the same name, in the same slot, another life of another length. */
static void B111_a_slot_may_have_the_name_again(void **state)
{
    (void)state;
    open_store("disk:@0:4blk");
    for (uint32_t i = 0; i < 40; i++) {
        size_t bytes = BYTES - i * 100;
        assert_int_equal(put_as(1, bytes, i, NULL, NULL), KVO_STORED);
        assert_int_equal(get_as(1, bytes, i, NULL, NULL), KVO_OK);
        assert_int_equal(get_as(1, bytes - 1, i, NULL, NULL), KVO_SIZE);
        if (i % 2)
            assert_int_equal(drop(1, KVO_WRITTEN), KVO_OK);
        else
            fill_with(100 + i * 10, 8, BYTES);
        assert_int_equal(exists(1, NULL), KVO_MISS);
    }
    close_store();
}

/* ---- sizes ---- */

enum { MIB = 1 << 20 };

static void put_sizes_under_pins(const char *tiers, bool pins)
{
    kvo_pin pinned[400] = {{0}};
    uint64_t holds[400] = {0};
    options.block_bytes = 4 * MIB;
    open_more(tiers);
    uint64_t smalls = fill_with(0, 300, BYTES);
    assert_int_equal(smalls, 300);
    for (uint64_t i = 0; i < 300; i += 2)
        drop(i, KVO_SEALED); /* every second one: no large piece is free */
    check_valid();
    assert_int_equal(put(1000, 4 * MIB), KVO_STORED);
    assert_int_equal(put(1001, MIB), KVO_STORED);
    fill_with(2000, 300, BYTES);
    for (uint64_t i = 0; i < 300; i++) {
        kvo_answer answer;
        kvo_names names = names_of(2000 + i, 1);
        if (i % 10 >= 3 || exists(2000 + i, NULL) != KVO_OK) /* 30 of 100 stay */
            continue;
        if (pins)
            assert_int_equal(pin(2000 + i, &pinned[i]), KVO_OK);
        else
            assert_int_equal(kvo_hold(store, &names, KVO_FOREVER, &holds[i], &answer), KVO_OK);
    }
    for (uint64_t i = 0; i < 40; i++) { /* an answer at once, whatever it is */
        int status = cases_put(3000 + i, i % 2 ? 4 * MIB : MIB, 0, 0);
        assert_true(status == KVO_STORED || status == KVO_BUSY || status == KVO_FULL);
    }
    check_valid();
    for (uint64_t i = 0; i < 300; i++) {
        if (pinned[i].token) {
            assert_true(payload_is(pinned[i].memory, BYTES, 2000 + i, 0));
            assert_int_equal(kvo_unpin(store, &pinned[i], 1), KVO_OK);
        }
        if (holds[i]) {
            assert_int_equal(get(2000 + i, BYTES), KVO_OK);
            assert_int_equal(kvo_release(store, holds[i]), KVO_OK);
        }
    }
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(put(4000 + i, 4 * MIB), KVO_STORED);
        assert_int_equal(put(4100 + i, BYTES), KVO_STORED);
        assert_int_equal(get(4000 + i, 4 * MIB), KVO_OK);
    }
    check_valid();
    close_store();
    fixture_remove(0);
}

static void B116_a_large_block_gets_room_among_small_ones_when_nobody_pins_them(void **state)
{
    (void)state;
    put_sizes_under_pins("dram:8blk", true);
    put_sizes_under_pins("dram:8blk,disk:@0:16blk", true);
    put_sizes_under_pins("disk:@0:8blk", false); /* a sibling: holds, on a disk */
}

/* ---- how many ---- */

static void B142_a_full_tier_evicts_one_for_one(void **state)
{
    (void)state;
    static const char *const tiers[] = {"dram:64blk", "disk:@0:64blk"};
    for (int t = 0; t < 2; t++) {
        open_store(tiers[t]);
        assert_int_equal(fill_with(0, 64, BYTES), 64);
        assert_int_equal(cases_evictions(0), 0);
        for (uint64_t i = 0; i < 40; i++) {
            assert_int_equal(put(1000 + i, BYTES), KVO_STORED);
            assert_int_equal(cases_evictions(0), i + 1);
            assert_int_equal(tier_stat(0).resident_blocks, 64);
        }
        close_store();
    }
    /* A sibling: the capacity is lowered below what is there, on the disk that the last round left. */
    open_store("disk:@0:59blk");
    assert_int_equal(tier_stat(0).resident_blocks, 59);
    uint64_t before = cases_evictions(0);
    assert_int_equal(put(5000, BYTES), KVO_STORED);
    assert_int_equal(cases_evictions(0), before + 1);
    assert_int_equal(tier_stat(0).resident_blocks, 59);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(B027_a_prefix_that_was_read_in_part_stays_usable),
        FIXTURE_TEST(B056_blocks_of_a_higher_class_are_not_flushed_by_others),
        FIXTURE_TEST(B061_tiers_of_one_to_three_blocks_evict_without_a_trace),
        FIXTURE_TEST(B064_every_placement_evicts_from_every_tier),
        FIXTURE_TEST(B064_a_cycle_that_fails_is_not_the_last),
        FIXTURE_TEST(B082_probes_keep_no_block),
        FIXTURE_TEST(B083_new_blocks_outlast_old_ones_that_nobody_used),
        FIXTURE_TEST(B083_a_scan_pays_for_a_batch_of_victims_at_every_size),
        FIXTURE_TEST(B111_a_slot_may_have_the_name_again),
        FIXTURE_TEST(B116_a_large_block_gets_room_among_small_ones_when_nobody_pins_them),
        FIXTURE_TEST(B142_a_full_tier_evicts_one_for_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
