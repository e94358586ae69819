/* SPDX-License-Identifier: Apache-2.0 */
/* Rule 3: policies in place, by every target, in every state, and at once in force. */
#include "fixture.h"

#include <unistd.h>

#include <time.h>

static const kvo_policy low = {.qos = 1, .priority = 1};
static const kvo_policy high = {.qos = 1, .priority = 99};

static void fields_outside_their_range_set_nothing(void **state)
{
    (void)state;
    const kvo_policy wrong[] = {{.qos = 4},
                                {.priority = 101},
                                {.reuse = 101},
                                {.intent = 5},
                                {.intent_ns = 3ull * 365 * 24 * 3600 * 1000000000ull}};
    const uint32_t masks[] = {KVO_POLICY_QOS, KVO_POLICY_PRIORITY, KVO_POLICY_REUSE, KVO_POLICY_INTENT,
                              KVO_POLICY_INTENT};
    open_store("dram:64blk");
    put(1, 100);
    kvo_policy before = policy_of(1);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(set_policy(1, &wrong[i], masks[i]), KVO_E_RANGE);
        assert_int_equal(set_policy(1, &wrong[i], KVO_POLICY_TENANT), KVO_OK); /* not looked at */
    }
    assert_int_equal(set_policy(1, &low, 32), KVO_E_RANGE);
    kvo_policy after = policy_of(1);
    assert_memory_equal(&after, &before, offsetof(kvo_policy, intent) + sizeof after.intent);
    assert_int_equal(after.intent_ns, before.intent_ns);
}

static void a_mask_changes_its_fields_alone(void **state)
{
    (void)state;
    kvo_policy all = {.tenant = 9, .qos = 3, .priority = 7, .reuse = 55, .intent = KVO_INTENT_KEEP};
    kvo_policy p = {.tenant = 1, .priority = 2};
    open_store("dram:64blk");
    put(1, 100);
    assert_int_equal(set_policy(1, &all, KVO_POLICY_ALL), KVO_OK);
    assert_int_equal(set_policy(1, &p, KVO_POLICY_PRIORITY), KVO_OK);
    assert_int_equal(set_policy(1, &p, 0), KVO_OK);
    kvo_policy now = policy_of(1);
    assert_int_equal(now.tenant, 9);
    assert_int_equal(now.qos, 3);
    assert_int_equal(now.priority, 2);
    assert_int_equal(now.reuse, 55);
    assert_int_equal(now.intent, KVO_INTENT_KEEP);
    assert_int_equal(set_policy(2, &p, KVO_POLICY_PRIORITY), KVO_MISS);
}

static void an_intent_says_what_is_left_of_its_time(void **state)
{
    (void)state;
    kvo_policy p = {.intent = KVO_INTENT_KEEP, .intent_ns = 100500000000u};
    open_store("dram:64blk");
    put(1, 100);
    set_policy(1, &p, KVO_POLICY_INTENT);
    uint64_t left = policy_of(1).intent_ns;
    assert_true(left % 1000000000u == 0 && left > 60000000000u && left <= 101000000000u);
}

/* Blocks 0 .. 9 with tenant i % 2, sequence i / 5; two spaces. */
static kvo_space fill_targets(void)
{
    for (uint64_t i = 0; i < 10; i++) {
        kvo_put_options o = KVO_PUT_OPTIONS_INIT;
        o.policy.tenant = (uint16_t)(i % 2);
        o.sequence = 1 + i / 5;
        put_as(i, 100, 0, &o, NULL);
    }
    kvo_space first = space;
    space = open_space("other", 65536);
    fill_with(0, 3, 100);
    space = first;
    return space + 1;
}

static uint64_t set_by(const kvo_target *target, uint8_t priority)
{
    kvo_policy p = {.priority = priority};
    uint64_t changed = 999;
    assert_int_equal(kvo_policy_set(store, target, &p, KVO_POLICY_PRIORITY, NULL, &changed), KVO_OK);
    return changed;
}

static void every_target_sets_its_blocks_and_no_others(void **state)
{
    (void)state;
    open_store("dram:64blk");
    kvo_space other = fill_targets();
    kvo_target t = {.by = KVO_BY_TENANT, .tenant = 1};
    assert_int_equal(set_by(&t, 11), 5);
    assert_int_equal(policy_of(1).priority, 11);
    assert_int_equal(policy_of(2).priority, 50);
    t = (kvo_target){.by = KVO_BY_SEQUENCE, .sequence = 2};
    assert_int_equal(set_by(&t, 12), 5);
    assert_int_equal(policy_of(4).priority, 50);
    assert_int_equal(policy_of(6).priority, 12);
    t = (kvo_target){.by = KVO_BY_SPACE, .space = other};
    assert_int_equal(set_by(&t, 13), 3);
    assert_int_equal(policy_of(0).priority, 50);
    kvo_handle handles[3] = {info_of(0).handle, info_of(2).handle, 77};
    t = (kvo_target){.by = KVO_BY_HANDLES, .handles = handles, .handle_count = 3};
    assert_int_equal(set_by(&t, 14), 2);
    assert_int_equal(policy_of(2).priority, 14);
    t = target_of(8, 5);
    assert_int_equal(set_by(&t, 15), 2);
    assert_int_equal(policy_of(9).priority, 15);
    t = (kvo_target){.by = KVO_BY_ALL};
    assert_int_equal(set_by(&t, 16), 13);
    t = (kvo_target){.by = KVO_BY_TENANT, .tenant = 70000};
    assert_int_equal(kvo_policy_set(store, &t, &low, KVO_POLICY_PRIORITY, NULL, NULL), KVO_E_ARGUMENT);
    t.by = 9;
    assert_int_equal(kvo_policy_set(store, &t, &low, KVO_POLICY_PRIORITY, NULL, NULL), KVO_E_ARGUMENT);
}

static void a_policy_moves_no_byte_wherever_the_block_lies(void **state)
{
    (void)state;
    open_store("dram:4blk,disk:@0:64blk");
    fill_with(0, 20, 65536); /* some in memory, most on disk */
    kvo_tier_stat before[2] = {tier_stat(0), tier_stat(1)};
    kvo_target all = {.by = KVO_BY_ALL};
    assert_int_equal(set_by(&all, 77), 20);
    assert_int_equal(kvo_write_out(store), KVO_OK);
    for (uint32_t i = 0; i < 2; i++) {
        kvo_tier_stat after = tier_stat(i);
        assert_int_equal(after.written_bytes, before[i].written_bytes);
        assert_int_equal(after.read_bytes, before[i].read_bytes);
    }
    assert_true(tier_stat(1).metadata_bytes > before[1].metadata_bytes);
}

/* ---- the next victim ---- */

/* Fills memory, builds the queue of victims, and says who goes next by putting one more. */
static uint64_t first_gone(uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        if (exists(i, NULL) == KVO_MISS)
            return i;
    return UINT64_MAX;
}

static void the_next_victim_is_the_one_just_lowered(void **state)
{
    (void)state;
    open_store("dram:256blk"); /* its queue holds several */
    fill_with(0, 256, 65536);
    put(1000, 65536);
    assert_int_equal(first_gone(0, 256), 0);
    assert_int_equal(set_policy(200, &low, KVO_POLICY_PRIORITY), KVO_OK);
    put(1001, 65536);
    assert_int_equal(exists(200, NULL), KVO_MISS);
    assert_int_equal(exists(1, NULL), KVO_OK);
    assert_int_equal(set_policy(1, &high, KVO_POLICY_PRIORITY), KVO_OK); /* it is in the queue */
    put(1002, 65536);
    assert_int_equal(exists(1, NULL), KVO_OK);
    assert_int_equal(exists(2, NULL), KVO_MISS);
    touch(3); /* the next one */
    put(1003, 65536);
    assert_int_equal(exists(3, NULL), KVO_OK);
    assert_int_equal(exists(4, NULL), KVO_MISS);
    check_valid();
}

static void order_is_intent_then_qos_then_priority(void **state)
{
    (void)state;
    const kvo_policy policies[] = {{.qos = 1, .priority = 50, .intent = KVO_INTENT_KEEP},
                                   {.qos = 3, .priority = 0},
                                   {.qos = 2, .priority = 100},
                                   {.qos = 2, .priority = 99},
                                   {.qos = 3, .priority = 100, .intent = KVO_INTENT_DEMOTE},
                                   {.qos = 3, .priority = 100, .intent = KVO_INTENT_DROP}};
    open_store("dram:6blk");
    fill_with(0, 6, 65536);
    for (uint64_t i = 0; i < 6; i++)
        set_policy(i, &policies[i], KVO_POLICY_ALL);
    for (uint64_t i = 6; i-- > 0;) {
        kvo_put_options o = KVO_PUT_OPTIONS_INIT;
        o.policy = (kvo_policy){.qos = 3, .priority = 100, .intent = KVO_INTENT_KEEP};
        assert_int_equal(put_as(100 + i, 65536, 0, &o, NULL), KVO_STORED);
        assert_int_equal(exists(i, NULL), KVO_MISS);
        assert_int_equal(i == 0 ? KVO_OK : exists(i - 1, NULL), KVO_OK);
    }
}

/* Between reserve and seal, and while a transfer runs (here: the event of its end has not come). */
static void a_policy_set_in_flight_is_in_force_at_once(void **state)
{
    (void)state;
    kvo_policy keep = {.intent = KVO_INTENT_KEEP};
    open_store("dram:8blk,disk:@0:16blk");
    fill_with(0, 24, 65536); /* 0 .. 15 on disk, clean or not */
    kvo_handle handle = info_of(0).handle;
    kvo_target t = {.by = KVO_BY_HANDLES, .handles = &handle, .handle_count = 1};
    assert_int_equal(kvo_policy_set(store, &t, &keep, KVO_POLICY_INTENT, NULL, NULL), KVO_OK);
    fill_with(100, 60, 65536); /* every other one leaves */
    assert_int_equal(get(0, 65536), KVO_OK);
    assert_int_equal(first_gone(1, 23), 1);
    check_valid();
}

static void a_chain_leaves_from_its_tail(void **state)
{
    (void)state;
    uint8_t names[32][NAME_BYTES], *bytes = test_malloc(65536);
    kvo_segment segments[32];
    kvo_answer a[32];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    size_t matched;
    o.chained = 1;
    open_store("dram:128blk");
    /* Report B027: 128 blocks in four batches, then 13 strangers: the head still matches. */
    for (uint64_t batch = 0; batch < 4; batch++) {
        for (size_t i = 0; i < 32; i++) {
            name_of(batch * 32 + i, names[i]);
            segments[i] = (kvo_segment){bytes, 65536};
        }
        kvo_names list = {.first = names, .name_bytes = NAME_BYTES, .count = 32, .space = space};
        kvo_memory memory = {segments, NULL};
        uint8_t parent[NAME_BYTES];
        name_of(batch * 32 - 1, parent);
        o.parent = batch ? parent : NULL;
        o.position = (uint32_t)batch * 32 * 16;
        assert_int_equal(kvo_put(store, &list, &memory, &o, a), KVO_OK);
    }
    fill_with(1000, 13, 65536);
    kvo_names all = names_of(0, 128);
    kvo_match(store, &all, NULL, &matched);
    assert_true(matched >= 113);
    assert_int_equal(tier_stat(0).orphans, 0);
    check_valid();
    test_free(bytes);
}

/* A child that is saved after the queue was built saves its parent too (rule 9). */
static void a_parent_in_the_queue_waits_for_its_child(void **state)
{
    (void)state;
    uint8_t parent[NAME_BYTES];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_policy first = {.priority = 10};
    name_of(1, parent);
    o.parents = parent;
    o.position = 16;
    open_store("dram:256blk");
    put(0, 65536);
    put(1, 65536);
    put_as(2, 65536, 0, &o, NULL);
    fill_with(3, 253, 65536);
    for (uint64_t i = 0; i < 3; i++)
        set_policy(i, &first, KVO_POLICY_PRIORITY);
    put(1000, 65536); /* takes 0; the queue goes on with 2 and its parent 1 */
    assert_int_equal(exists(0, NULL), KVO_MISS);
    set_policy(2, &high, KVO_POLICY_PRIORITY);
    fill_with(1001, 100, 65536);
    assert_int_equal(exists(2, NULL), KVO_OK);
    assert_int_equal(exists(1, NULL), KVO_OK);
    assert_int_equal(tier_stat(0).orphans, 0);
    check_valid();
}

/* ---- intents ---- */

static void pass_time(void)
{
    assert_int_equal(kvo_write_out(store), KVO_OK);
    struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
}

static void prefetch_and_demote_move_blocks(void **state)
{
    (void)state;
    kvo_policy up = {.intent = KVO_INTENT_PREFETCH}, down = {.intent = KVO_INTENT_DEMOTE};
    kvo_answer a;
    options.write_out_ns = 1000000;
    open_store("dram:8blk,disk:@0:64blk");
    fill_with(0, 20, 65536);
    exists(0, &a);
    assert_int_equal(a.tier, 1);
    uint64_t last = info_of(0).last_use;
    assert_int_equal(set_policy(0, &up, KVO_POLICY_INTENT), KVO_OK);
    while (exists(0, &a) == KVO_OK && a.tier != 0) /* the test's timeout is the deadline */
        pass_time();
    assert_int_equal(a.tier, 0);
    assert_int_equal(info_of(0).last_use, last);
    exists(19, &a);
    assert_int_equal(a.tier_mask, 1);
    assert_int_equal(set_policy(19, &down, KVO_POLICY_INTENT), KVO_OK);
    while (exists(19, &a) == KVO_OK && (a.tier_mask & 2) == 0)
        pass_time();
    assert_int_equal(a.tier_mask & 2, 2);
}

/* What is asked for soonest comes first, and nothing that was asked for displaces the rest. */
static void prefetches_go_by_deadline_and_stay(void **state)
{
    (void)state;
    kvo_pin pins[4];
    kvo_answer a;
    open_store("dram:4blk,disk:@0:64blk");
    fill_with(0, 12, 65536);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(pin(8 + i, &pins[i]), KVO_OK);
    static const uint64_t deadlines_s[] = {3000, 1000, 2000};
    for (uint64_t n = 0; n < 3; n++) {
        uint64_t i = (n + 1) % 3; /* the last one last: the keeper may be at it between two of these calls */
        kvo_policy up = {.intent = KVO_INTENT_PREFETCH, .intent_ns = deadlines_s[i] * 1000000000u};
        set_policy(i, &up, KVO_POLICY_INTENT);
    }
    assert_int_equal(kvo_unpin(store, pins, 2), KVO_OK);
    for (unsigned tries = 0; tries < 3000; tries++) {
        unsigned there = 0;
        for (uint64_t i = 0; i < 3; i++)
            there += exists(i, &a) == KVO_OK && a.tier == 0;
        if (there == 2)
            break;
        usleep(10000);
    }
    usleep(250000); /* two more rounds of the keeper: nothing changes any more */
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(exists(i, &a), KVO_OK);
        assert_int_equal(a.tier, i == 0 ? 1 : 0);
    }
    uint64_t promotions = tier_stat(1).promotions;
    usleep(250000);
    assert_int_equal(tier_stat(1).promotions, promotions);
    assert_int_equal(kvo_unpin(store, pins + 2, 2), KVO_OK);
}

static void drop_removes_after_the_next_get(void **state)
{
    (void)state;
    kvo_policy drop_it = {.intent = KVO_INTENT_DROP};
    open_store("dram:8blk,disk:@0:64blk");
    fill_with(0, 20, 65536);
    set_policy(0, &drop_it, KVO_POLICY_INTENT);
    set_policy(19, &drop_it, KVO_POLICY_INTENT);
    assert_int_equal(get(0, 65536), KVO_OK);
    assert_int_equal(get(0, 65536), KVO_MISS);
    assert_int_equal(get(19, 65536), KVO_OK);
    assert_int_equal(exists(19, NULL), KVO_MISS);
    check_valid();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(fields_outside_their_range_set_nothing),
        FIXTURE_TEST(a_mask_changes_its_fields_alone),
        FIXTURE_TEST(an_intent_says_what_is_left_of_its_time),
        FIXTURE_TEST(every_target_sets_its_blocks_and_no_others),
        FIXTURE_TEST(a_policy_moves_no_byte_wherever_the_block_lies),
        FIXTURE_TEST(the_next_victim_is_the_one_just_lowered),
        FIXTURE_TEST(order_is_intent_then_qos_then_priority),
        FIXTURE_TEST(a_policy_set_in_flight_is_in_force_at_once),
        FIXTURE_TEST(a_chain_leaves_from_its_tail),
        FIXTURE_TEST(a_parent_in_the_queue_waits_for_its_child),
        FIXTURE_TEST(prefetch_and_demote_move_blocks),
        FIXTURE_TEST(prefetches_go_by_deadline_and_stay),
        FIXTURE_TEST(drop_removes_after_the_next_get),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
