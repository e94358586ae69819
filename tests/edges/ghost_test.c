/* SPDX-License-Identifier: Apache-2.0 */
/* A ghost answers every call as a store with bytes does, and touches neither memory nor media. */
#include <stdlib.h>
#include <unistd.h>

#include "fixture.h"

static void open_ghost(const char *tiers)
{
    options.flags = KVO_OPEN_GHOST;
    open_store(tiers);
}

static void a_ghost_takes_what_is_reserved(void **state)
{
    (void)state;
    const uint32_t bytes = 65536;
    kvo_reservation reservation;
    kvo_answer answer;
    open_ghost("dram:8blk,disk:@0:16blk");
    kvo_names names = names_of(1, 1);
    assert_int_equal(kvo_reserve(store, &names, &bytes, NULL, &reservation, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_OK);
    assert_null(reservation.memory);
    assert_int_equal(exists(1, NULL), KVO_PENDING);
    assert_int_equal(kvo_fill(store, &reservation, 0, "these bytes go nowhere", 22), KVO_OK);
    assert_int_equal(kvo_fill(store, &reservation, bytes, "", 1), KVO_E_RANGE);
    assert_int_equal(kvo_seal(store, &reservation, 1, KVO_SAFE, 0, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_STORED);
    assert_int_equal(answer.level, KVO_SAFE);
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, 3);
    close_store();
    assert_int_not_equal(access(fixture_path(0), F_OK), 0);
}

static void a_ghost_rewrites_syncs_and_removes(void **state)
{
    (void)state;
    kvo_answer answer;
    open_ghost("dram:8blk,disk:@0:16blk");
    for (uint64_t i = 1; i <= 12; i++)
        assert_int_equal(put(i, 65536), KVO_STORED);
    assert_int_equal(rewrite(1, 4096, 1, 3, KVO_SAFE), KVO_STORED);
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_true(answer.generation == 2 && answer.payload_bytes == 4096 && answer.level == KVO_SAFE);
    assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, 0, NULL), KVO_OK);
    for (uint64_t i = 1; i <= 12; i++) {
        assert_int_equal(exists(i, &answer), KVO_OK);
        assert_int_equal(answer.level, KVO_SAFE);
    }
    assert_int_equal(kvo_write_out(store), KVO_OK);
    assert_int_equal(drop(1, KVO_SAFE), KVO_OK);
    assert_int_equal(drop(1, KVO_SAFE), KVO_MISS);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    check_valid();
    close_store();
}

/* There is no keeper: an intent is carried out within the call that sets it. */
static void an_intent_is_carried_out_in_the_call(void **state)
{
    (void)state;
    kvo_policy policy = KVO_POLICY_INIT;
    kvo_answer answer;
    open_ghost("dram:8blk,disk:@0:16blk");
    assert_int_equal(put(1, 65536), KVO_STORED);
    policy.intent = KVO_INTENT_DEMOTE;
    assert_int_equal(set_policy(1, &policy, KVO_POLICY_INTENT), KVO_OK);
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, 3);
    for (uint64_t i = 2; i <= 9; i++)
        assert_int_equal(put(i, 65536), KVO_STORED);
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, 2);
    policy.intent = KVO_INTENT_PREFETCH;
    assert_int_equal(set_policy(1, &policy, KVO_POLICY_INTENT), KVO_OK);
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, 3);
    check_valid();
    close_store();
}

static void a_ghost_without_end_takes_everything(void **state)
{
    (void)state;
    options.blocks_max = 500;
    open_ghost("dram:8blk,disk:@0:inf");
    for (uint64_t i = 0; i < 400; i++)
        assert_int_equal(put(i, 4096 + i * 100), KVO_STORED);
    check_valid();
    assert_int_equal(store_stat().blocks, 400);
    for (uint64_t i = 0; i < 400; i += 7)
        assert_int_equal(drop(i, KVO_WRITTEN), KVO_OK);
    check_valid();
    close_store();
}

/* An exclusive hierarchy has no anchors: a segment of other sizes leaves whatever lies above. */
static void sizes_mix_in_an_exclusive_hierarchy(void **state)
{
    (void)state;
    options.hierarchy = KVO_EXCLUSIVE;
    open_ghost("dram:40blk,disk:@0:120blk");
    for (unsigned round = 0; round < 6; round++)
        for (uint64_t i = 0; i < 400; i++) {
            assert_int_equal(put(1000 * round + i, round % 2 ? 4096 : 65536), KVO_STORED);
            if (i % 5 == 0)
                touch(1000 * round + i / 2);
        }
    check_valid();
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_ghost_takes_what_is_reserved),
        FIXTURE_TEST(a_ghost_rewrites_syncs_and_removes),
        FIXTURE_TEST(an_intent_is_carried_out_in_the_call),
        FIXTURE_TEST(a_ghost_without_end_takes_everything),
        FIXTURE_TEST(sizes_mix_in_an_exclusive_hierarchy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
