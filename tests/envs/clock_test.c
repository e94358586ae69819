/* SPDX-License-Identifier: Apache-2.0 */
/* B091: the wall clock is set, by a year, or to 1970, while a store is open and between openings: no intent ends or
   becomes everlasting, no hold and no wait notices. */
#include "store/fixture.h"

#define YEAR (365ull * 24 * 3600)
#define SECOND 1000000000ull

static base_env machine;
static uint64_t wall, steady_ns;

static uint64_t wall_now(base_env *env) { return (void)env, wall; }
static uint64_t steady_now(base_env *env) { return (void)env, steady_ns; }

static void open_clocked(const char *tiers)
{
    char text[1024], paths[4096];
    kvo_tier_config configs[KVO_TIERS_MAX];
    kvo_error error = {{0}};
    uint32_t count;
    fixture_text(tiers, text, sizeof text);
    machine = *base_env_posix();
    machine.wall_s = wall_now;
    machine.now_ns = steady_now;
    assert_int_equal(kvo_parse_tiers(text, configs, &count, paths, sizeof paths, &error), KVO_OK);
    kvo_options o = options;
    o.flags |= KVO_OPEN_STEPPED;
    if (store_open(&machine, configs, count, &o, &store, &error) != KVO_OK)
        fail_msg("open: %s", error.text);
    space = open_space("a", 65536);
}

static void keep(uint64_t number, uint64_t ns)
{
    kvo_policy p = KVO_POLICY_INIT;
    p.intent = KVO_INTENT_KEEP;
    p.intent_ns = ns;
    assert_int_equal(set_policy(number, &p, KVO_POLICY_INTENT), KVO_OK);
}

static void kept_for(uint64_t number, uint64_t seconds)
{
    kvo_policy p = policy_of(number);
    assert_int_equal(p.intent, seconds ? KVO_INTENT_KEEP : KVO_INTENT_NONE);
    if (seconds && (p.intent_ns > seconds * SECOND || p.intent_ns + SECOND < seconds * SECOND))
        fail_msg("%llu s are left, not %llu", (unsigned long long)(p.intent_ns / SECOND), (unsigned long long)seconds);
}

static const uint64_t jumps[] = {1800000000u + YEAR, 1800000000u - YEAR, 0, 5, UINT32_MAX, 1800000000u + 300 * YEAR,
                                 1800000000u};

static int setup(void **state)
{
    wall = 1800000000u;
    steady_ns = 1000 * SECOND;
    return fixture_setup(state);
}

static void a_wall_clock_that_jumps_while_open_moves_no_deadline(void **state)
{
    (void)state;
    kvo_answer a;
    uint64_t hold;
    open_clocked("dram:16blk,disk:@0:64blk");
    assert_int_equal(fill_with(0, 8, 65536), 8);
    keep(1, 3600 * SECOND);
    kvo_names names = names_of(2, 1);
    assert_int_equal(kvo_hold(store, &names, 5000 * SECOND, &hold, &a), KVO_OK);
    assert_int_equal(a.status, KVO_OK);
    for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        wall = jumps[i];
        kept_for(1, 3600 - 10 * i);
        keep(3, 60 * SECOND); /* one that is set now */
        kept_for(3, 60);
        assert_int_equal(fill_with(100 + 40 * i, 40, 65536), 40); /* much goes, but not what is kept or held */
        assert_int_equal(exists(1, &a), KVO_OK);
        assert_int_equal(a.tier, 0);
        assert_int_equal(exists(2, &a), KVO_OK);
        steady_ns += 10 * SECOND;
    }
    steady_ns += 3600 * SECOND;
    kept_for(1, 0);
    kept_for(3, 0);
    steady_ns += 5000 * SECOND;
    assert_int_equal(kvo_release(store, hold), KVO_GONE);
    close_store();
}

static void a_wall_clock_that_jumps_between_openings_loses_nothing(void **state)
{
    (void)state;
    open_clocked("dram:16blk,disk:@0:64blk");
    assert_int_equal(fill_with(0, 8, 65536), 8);
    keep(1, 3600 * SECOND);
    close_store();
    for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        wall = jumps[i];
        steady_ns = i % 2 ? 5 * SECOND : 900000 * SECOND; /* the machine was started anew */
        open_clocked("dram:16blk,disk:@0:64blk");
        for (uint64_t n = 0; n < 8; n++)
            assert_int_equal(get(n, 65536), KVO_OK);
        bool later = wall > 1800000000u;
        kvo_policy p = policy_of(1);
        assert_int_equal(p.intent, later ? KVO_INTENT_NONE : KVO_INTENT_KEEP);
        assert_true(later || (p.intent_ns >= 3600 * SECOND - SECOND && p.intent_ns <= 3601 * SECOND));
        keep(2, 100 * SECOND); /* what is told may be set again */
        p = policy_of(2);
        assert_int_equal(set_policy(2, &p, KVO_POLICY_ALL), KVO_OK);
        if (wall < 1800000000u + 10 * YEAR)
            kept_for(2, 100);
        close_store();
    }
}

static void what_a_clock_set_back_leaves_may_be_set_again(void **state)
{
    (void)state;
    wall = 1800000000u;
    open_clocked("dram:16blk,disk:@0:64blk");
    assert_int_equal(fill_with(0, 2, 65536), 2);
    close_store();
    wall += 5 * YEAR;
    open_clocked("dram:16blk,disk:@0");
    keep(1, 2 * YEAR * SECOND);
    close_store();
    wall = 1800000000u;
    open_clocked("dram:16blk,disk:@0");
    kvo_policy p = policy_of(1);
    assert_int_equal(p.intent, KVO_INTENT_KEEP);
    assert_int_equal(set_policy(1, &p, KVO_POLICY_ALL), KVO_OK);
    close_store();
}

static void a_wait_ends_by_the_steady_clock(void **state)
{
    (void)state;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_pin pins[16];
    kvo_answer a;
    open_clocked("dram:8blk");
    size_t blocks = fill_with(0, 8, 65536);
    for (uint64_t n = 0; n < blocks; n++)
        assert_int_equal(pin(n, &pins[n]), KVO_OK);
    for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        wall = jumps[i];
        o.deadline_ns = 0;
        assert_int_equal(put_as(100, 65536, 0, &o, &a), KVO_BUSY);
    }
    assert_int_equal(kvo_unpin(store, pins, blocks), KVO_OK);
    assert_int_equal(put(100, 65536), KVO_STORED);
    close_store();
}

#define CLOCK_TEST(f) cmocka_unit_test_setup_teardown(f, setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLOCK_TEST(a_wall_clock_that_jumps_while_open_moves_no_deadline),
        CLOCK_TEST(a_wall_clock_that_jumps_between_openings_loses_nothing),
        CLOCK_TEST(what_a_clock_set_back_leaves_may_be_set_again),
        CLOCK_TEST(a_wait_ends_by_the_steady_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
