/* SPDX-License-Identifier: Apache-2.0 */
/* Directories opened in another order, with others, smaller, with too few records: all is served, or the
   open is refused and nothing on them has changed. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

static const size_t bytes = 65536;

static void put_safe(uint64_t first, uint64_t count)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = KVO_SAFE;
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(put_as(first + i, bytes, 0, &o, NULL), KVO_STORED);
}

static void make(const char *tiers, uint64_t first, uint64_t count)
{
    open_store(tiers);
    put_safe(first, count);
    close_store();
}

static uint64_t served(uint64_t first, uint64_t count)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < count; i++)
        n += get(first + i, bytes) == KVO_OK;
    return n;
}

/* Refused, and the directory is byte for byte what it was: @`which`, kept as @3. */
static void refused(const char *tiers, int which, int status)
{
    char command[400], a[100];
    kvo_error error = {{0}};
    fixture_remove(3);
    fixture_copy(which, 3);
    assert_int_equal(try_open(tiers, &error), status);
    assert_true(error.text[0] != 0);
    snprintf(a, sizeof a, "%s", fixture_path(which));
    snprintf(command, sizeof command, "diff -r %s %s", a, fixture_path(3));
    assert_int_equal(system(command), 0);
}

/* ---- order ---- */

static void tiers_in_another_order_serve_everything(void **state)
{
    (void)state;
    make("disk:@0:4blk,disk:@1:64blk", 0, 40);
    open_store("disk:@1:64blk,disk:@0:4blk");
    assert_int_equal(store_stat().damaged_slots, 0);
    check_valid();
    assert_int_equal(served(0, 40), 40);
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(drop(i, KVO_SAFE), KVO_OK);
    put_safe(100, 10);
    close_store();
    open_store("disk:@0:4blk,disk:@1:64blk");
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(exists(i, NULL), KVO_MISS);
    assert_int_equal(served(20, 20), 20);
    assert_int_equal(served(100, 10), 10);
    close_store();
}

static void a_tier_alone_serves_what_it_holds(void **state)
{
    (void)state;
    make("disk:@0:4blk,disk:@1:64blk", 0, 40);
    open_store("disk:@1:64blk");
    assert_true(served(0, 40) >= 36);
    close_store();
}

/* A directory that comes to a store that has its spaces already. */
static void a_tier_that_came_later_describes_its_spaces_too(void **state)
{
    (void)state;
    make("disk:@0:4blk", 0, 4);
    make("disk:@0:4blk,disk:@1:64blk", 4, 36);
    open_store("disk:@1:64blk");
    assert_true(served(0, 40) >= 36);
    close_store();
}

/* ---- directories of different stores ---- */

static void other_space(uint64_t block_bytes)
{
    kvo_error error = {{0}};
    assert_int_equal(try_open("disk:@1:64blk", &error), KVO_OK);
    space = open_space("other", block_bytes);
    put_safe(500, 4);
    close_store();
}

static void directories_of_two_stores_are_refused(void **state)
{
    (void)state;
    make("disk:@0:64blk", 0, 40);
    other_space(bytes);
    refused("disk:@0:64blk,disk:@1:64blk", 0, KVO_E_MISMATCH);
    refused("disk:@0:64blk,disk:@1:64blk", 1, KVO_E_MISMATCH);
    refused("disk:@1:64blk,disk:@0:64blk", 0, KVO_E_MISMATCH);
    open_store("disk:@0:64blk");
    assert_int_equal(served(0, 40), 40);
    close_store();
}

/* The first one was to be made smaller; it was not. */
static void an_open_that_fails_has_cut_nothing(void **state)
{
    (void)state;
    make("disk:@0:64blk", 0, 40);
    other_space(bytes);
    refused("disk:@0:8blk,disk:@1:64blk", 0, KVO_E_MISMATCH);
    open_store("disk:@0:64blk");
    assert_int_equal(served(0, 40), 40);
    close_store();
}

static void a_medium_whose_spaces_are_lost_is_refused(void **state)
{
    (void)state;
    char command[300];
    make("disk:@0:64blk", 0, 40);
    snprintf(command, sizeof command, "cd %s && for f in spaces*; do : > $f; done", fixture_path(0));
    assert_int_equal(system(command), 0);
    refused("disk:@0:64blk", 0, KVO_E_MISMATCH);
}

/* ---- records ---- */

static void fewer_records_than_blocks_are_refused(void **state)
{
    (void)state;
    kvo_error error = {{0}};
    options.block_bytes = 4096;
    open_more("disk:@0:3000blk");
    assert_int_equal(fill_with(0, 2000, 4096), 2000);
    close_store();
    options.blocks_max = 1; /* and some to spare */
    refused("disk:@0:3000blk", 0, KVO_E_RANGE);
    refused("disk:@0:1500blk", 0, KVO_E_RANGE);
    assert_int_equal(try_open("disk:@0:3000blk", &error), KVO_E_RANGE);
    assert_non_null(strstr(error.text, "975 blocks more"));
    options.blocks_max = 0;
    open_more("disk:@0:3000blk");
    for (uint64_t i = 0; i < 2000; i++)
        assert_int_equal(get(i, 4096), KVO_OK);
    close_store();
}

/* ---- demotions of blocks that another list of tiers wrote ---- */

static void demotions_are_counted_by_the_tiers_that_are(void **state)
{
    (void)state;
    make("dram:4blk,disk:@0:16blk", 0, 16);
    open_store("disk:@0:16blk,disk:@1:64blk");
    assert_int_equal(fill_with(100, 20, bytes), 20);
    check_valid();
    assert_int_equal(tier_stat(1).max_delta, 1);
    assert_int_equal(tier_stat(1).written_bytes, tier_stat(1).life_bytes);
    assert_int_equal(served(0, 16), 16);
    close_store();
    open_store("dram:4blk,disk:@0:16blk,disk:@1:64blk");
    assert_int_equal(fill_with(200, 30, bytes), 30);
    check_valid();
    assert_true(tier_stat(2).max_delta <= 1);
    close_store();
    open_store("dram:4blk,disk:@1:64blk"); /* and one less */
    assert_int_equal(fill_with(300, 30, bytes), 30);
    check_valid();
    assert_true(tier_stat(1).max_delta <= 1);
    close_store();
}

/* ---- options ---- */

static int tried(const char *tiers)
{
    kvo_error error = {{0}};
    int r = try_open(tiers, &error);
    if (r == KVO_OK)
        close_store();
    return r;
}

static void options_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    assert_int_equal(tried("dram:4blk"), KVO_OK);
    options.flags = 1u << 30;
    assert_int_equal(tried("dram:4blk"), KVO_E_RANGE);
    options.flags = KVO_OPEN_GHOST;
    options.blocks_max = 100000;
    assert_int_equal(tried("dram:1152921504606851072blk"), KVO_E_RANGE);
    assert_int_equal(tried("dram:18446744073709551614blk"), KVO_E_RANGE);
    options.flags = 0;
    options.write_out_ns = KVO_FOREVER;
    assert_int_equal(tried("dram:4blk,disk:@0:16blk"), KVO_E_RANGE);
    options.write_out_ns = 86400000000000u;
    assert_int_equal(tried("dram:4blk,disk:@0:16blk"), KVO_OK);
    options.write_out_ns++;
    assert_int_equal(tried("dram:4blk,disk:@0:16blk"), KVO_E_RANGE);
}

static void verify_wants_a_store_at_rest(void **state)
{
    (void)state;
    kvo_verify_result result;
    make("disk:@0:64blk", 0, 8);
    open_store("disk:@0:64blk");
    assert_int_equal(kvo_verify(store, NULL, NULL, &result), KVO_E_STATE);
    close_store();
    options.flags = KVO_OPEN_READ_ONLY;
    open_store("disk:@0:64blk");
    assert_int_equal(kvo_verify(store, NULL, NULL, &result), KVO_OK);
    assert_int_equal(result.bad, 0);
    assert_int_equal(result.slots, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(tiers_in_another_order_serve_everything),
        FIXTURE_TEST(a_tier_alone_serves_what_it_holds),
        FIXTURE_TEST(a_tier_that_came_later_describes_its_spaces_too),
        FIXTURE_TEST(directories_of_two_stores_are_refused),
        FIXTURE_TEST(an_open_that_fails_has_cut_nothing),
        FIXTURE_TEST(a_medium_whose_spaces_are_lost_is_refused),
        FIXTURE_TEST(fewer_records_than_blocks_are_refused),
        FIXTURE_TEST(demotions_are_counted_by_the_tiers_that_are),
        FIXTURE_TEST(options_that_mean_nothing_are_refused),
        FIXTURE_TEST(verify_wants_a_store_at_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
