/* SPDX-License-Identifier: Apache-2.0 */
/* Copies with every pin they can have, copies that rot under a pin, holds over the lives of a record. */
#include "fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static const size_t bytes = 65536;
static kvo_pin pins[COPY_PINS_MAX];

static int put_written(uint64_t number)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = KVO_WRITTEN;
    return put_as(number, bytes, 0, &o, NULL);
}

static void take_all_pins(uint64_t number)
{
    for (unsigned i = 0; i < COPY_PINS_MAX; i++)
        assert_int_equal(pin(number, &pins[i]), KVO_OK);
}

static int get_until(uint64_t number, uint64_t deadline_ns)
{
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = deadline_ns;
    return get_as(number, bytes, 0, &o, NULL);
}

/* ---- every pin ---- */

static void with_all_pins_the_copy_below_serves(void **state)
{
    (void)state;
    kvo_pin more;
    open_store("dram:16blk,disk:@0:64blk");
    assert_int_equal(put_written(1), KVO_STORED);
    take_all_pins(1);
    assert_int_equal(get_until(1, 0), KVO_OK);
    assert_int_equal(get_until(1, 1000000000), KVO_OK);
    assert_int_equal(get_until(1, KVO_FOREVER), KVO_OK);
    assert_int_equal(pin(1, &more), KVO_BUSY);
    check_valid();
    assert_int_equal(kvo_unpin(store, pins, COPY_PINS_MAX), KVO_OK);
    assert_int_equal(pin(1, &more), KVO_OK);
    assert_int_equal(kvo_unpin(store, &more, 1), KVO_OK);
    close_store();
}

static void with_all_pins_and_nothing_below_it_is_busy(void **state)
{
    (void)state;
    kvo_pin more;
    open_store("dram:16blk");
    assert_int_equal(put(1, bytes), KVO_STORED);
    take_all_pins(1);
    assert_int_equal(get_until(1, 0), KVO_BUSY);
    assert_int_equal(get_until(1, 1000000), KVO_BUSY);
    assert_int_equal(pin(1, &more), KVO_BUSY);
    assert_int_equal(kvo_unpin(store, &pins[7], 1), KVO_OK);
    assert_int_equal(get_until(1, 0), KVO_OK);
    assert_int_equal(exists(1, NULL), KVO_OK);
}

/* ---- a copy that rots while it is pinned ---- */

static void rot(uint64_t number)
{
    block_identity key;
    uint64_t life;
    kvo_names names = names_of(number, 1);
    identity_key(&names, 0, &key);
    uint32_t record = index_find(&store->index, &key, &life);
    uint32_t slot = copy_slot(word_load(&store->records[record].copy[0]));
    ((uint8_t *)tier_memory(store->tiers[0].io, slot))[5] ^= 1;
}

static void a_copy_that_rots_under_a_pin_is_read_from_below(void **state)
{
    (void)state;
    static const uint64_t deadlines[] = {0, 1000000000, KVO_FOREVER};
    kvo_pin held, more;
    open_store("dram:16blk,disk:@0:64blk");
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(put_written(i), KVO_STORED);
        assert_int_equal(pin(i, &held), KVO_OK);
        rot(i);
        assert_int_equal(get_until(i, deadlines[i]), KVO_OK);
        assert_int_equal(get_until(i, deadlines[i]), KVO_OK);
        assert_int_equal(pin(i, &more), KVO_BUSY); /* no slot for a second copy above while the first goes */
        check_valid();
        assert_int_equal(kvo_unpin(store, &held, 1), KVO_OK);
        assert_int_equal(pin(i, &more), KVO_OK);
        assert_true(payload_is(more.memory, bytes, i, 0));
        assert_int_equal(kvo_unpin(store, &more, 1), KVO_OK);
    }
    assert_int_equal(store_stat().digest_misses, 3);
    close_store();
}

static void the_only_copy_that_rots_under_a_pin_frees_its_name(void **state)
{
    (void)state;
    kvo_pin held;
    open_store("dram:16blk");
    assert_int_equal(put(1, bytes), KVO_STORED);
    assert_int_equal(pin(1, &held), KVO_OK);
    rot(1);
    assert_int_equal(get_until(1, 1000000000), KVO_MISS);
    assert_int_equal(put(1, bytes), KVO_STORED);
    assert_int_equal(get_until(1, 0), KVO_OK);
    check_valid();
    assert_int_equal(kvo_unpin(store, &held, 1), KVO_OK);
    assert_int_equal(get_until(1, 0), KVO_OK);
    close_store();
}

/* ---- a copy that was found bad, and is still read ---- */

static block_record *record_of(uint64_t number) { return &store->records[handle_record(info_of(number).handle)]; }

static uint32_t number_of(const block_record *r) { return (uint32_t)(r - store->records); }

static void read_below(block_record *r, unsigned readers)
{
    uint64_t word;
    for (unsigned i = 0; i < readers; i++)
        assert_true(block_pin(r, 1, &word));
}

/* Nobody reads it above: that copy goes as for want of room. */
static void leave_below(block_record *r)
{
    store_lock(store);
    assert_true(store_copy_drop(store, number_of(r), 0, false, KVO_CAUSE_EVICT));
    store_unlock(store);
}

static int remove_now(uint64_t number)
{
    kvo_target target = target_of(number, 1);
    return kvo_remove(store, &target, KVO_WRITTEN, 0, NULL, NULL);
}

/* One reader is bringing it up when another finds it bad, and then finds the same; a third still reads. */
static void what_two_readers_find_bad_frees_its_name_before_a_third_has_ended(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:64blk");
    assert_int_equal(put_written(1), KVO_STORED);
    block_record *r = record_of(1);
    leave_below(r);
    read_below(r, 3);
    word_store(&r->copy[0], copy_make(PLACE_SLOT_NONE, BLOCK_FILLING, 0, 0));
    store_quarantine(store, number_of(r), 1, -EBADMSG);
    assert_false(life_has(word_load(&r->life), LIFE_DOOMED)); /* the one on its way may be good */
    word_store(&r->copy[0], 0);
    store_quarantine(store, number_of(r), 1, -EBADMSG);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_equal(remove_now(1), KVO_SHORT); /* it finds the header, which is read */
    assert_int_equal(put(1, bytes), KVO_STORED);
    store_quarantine(store, number_of(r), 1, -EBADMSG);
    assert_int_equal(get_until(1, 0), KVO_OK);
    assert_int_equal(drop(1, KVO_WRITTEN), KVO_OK);
    assert_int_equal(store->tiers[1].stale.count, 0);
    check_valid();
    close_store();
}

/* As after a rewrite that could not overwrite the old header, between whose last steps a reader pins it. */
static void a_header_that_may_be_dead_is_known_while_its_copy_is_read(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:64blk");
    assert_int_equal(put_written(1), KVO_STORED);
    block_record *r = record_of(1);
    leave_below(r);
    read_below(r, 1);
    store_lock(store);
    store_lose_media(store, number_of(r));
    store_unlock(store);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_equal(remove_now(1), KVO_SHORT);
    store_unpin(store, number_of(r), 1);
    assert_int_equal(remove_now(1), KVO_OK);
    assert_int_equal(store->tiers[1].stale.count, 0);
    check_valid();
    close_store();
}

/* A segment of memory changes its slot size, and all that lies on the disk is anchored. */
static void a_block_leaves_memory_while_its_bad_copy_below_is_read(void **state)
{
    (void)state;
    static const size_t large = 1 << 20;
    options.block_bytes = large;
    open_more("dram:32blk,disk:@0:4blk");
    assert_int_equal(put_written(1), KVO_STORED);
    block_record *r = record_of(1);
    read_below(r, 1);
    store_lock(store);
    store_retire(store, number_of(r), 1, -EBADMSG);
    store_unlock(store);
    for (uint64_t i = 2; i < 250; i++)
        assert_int_equal(put(i, bytes), KVO_STORED);
    for (uint64_t i = 250; i < 400; i++)
        put_written(i); /* in the end short: all that lies there is anchored */
    for (uint64_t i = 0; i < 32 && exists(1, NULL) == KVO_OK; i++)
        assert_int_equal(put(10000 + i, large), KVO_STORED);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_true(tier_stat(0).anchor_yields > 0);
    assert_true(life_has(word_load(&r->life), LIFE_USED | LIFE_DOOMED));
    store_unpin(store, number_of(r), 1);
    assert_false(life_has(word_load(&r->life), LIFE_USED));
    check_valid();
    assert_int_equal(kvo_close(store, 0), KVO_SHORT); /* what memory has does not fit below */
    store = NULL;
}

/* ---- holds ---- */

static uint64_t hold(uint64_t first, size_t count)
{
    uint64_t token;
    kvo_answer answers[16];
    kvo_names names = names_of(first, count);
    assert_int_equal(kvo_hold(store, &names, KVO_FOREVER, &token, answers), KVO_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(answers[i].status, KVO_OK);
    return token;
}

static void a_rewrite_ends_a_hold(void **state)
{
    (void)state;
    open_store("dram:9blk");
    fill_with(0, 8, bytes);
    uint64_t token = hold(0, 8);
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(rewrite(i, bytes, 1, 0, KVO_SEALED), KVO_STORED);
    check_valid();
    kvo_release(store, token);
    assert_int_equal(store_stat().held_blocks, 0);
    assert_int_equal(fill_with(100, 40, bytes), 40);
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(exists(i, NULL), KVO_MISS);
    close_store();
}

/* The release of an earlier block's hold is none of the block that has its record now. */
static void a_record_in_use_again_has_holds_of_its_own(void **state)
{
    (void)state;
    open_store("dram:4blk");
    fill_with(1, 1, bytes);
    uint64_t first = hold(1, 1);
    assert_int_equal(drop(1, KVO_SEALED), KVO_OK);
    fill_with(2, 1, bytes);
    uint64_t second = hold(2, 1);
    assert_int_equal(kvo_release(store, first), KVO_OK);
    fill_with(100, 20, bytes);
    assert_int_equal(get(2, bytes), KVO_OK); /* still held */
    assert_int_equal(kvo_release(store, second), KVO_OK);
    fill_with(200, 20, bytes);
    assert_int_equal(exists(2, NULL), KVO_MISS);
    assert_int_equal(store_stat().held_blocks, 0);
    close_store();
}

static void a_hold_that_outlives_its_block_keeps_no_other(void **state)
{
    (void)state;
    open_store("dram:4blk");
    fill_with(1, 1, bytes);
    uint64_t first = hold(1, 1);
    assert_int_equal(drop(1, KVO_SEALED), KVO_OK);
    fill_with(2, 1, bytes);
    uint64_t second = hold(2, 1);
    assert_int_equal(kvo_release(store, second), KVO_OK); /* before the older one */
    assert_int_equal(kvo_release(store, first), KVO_OK);
    fill_with(200, 20, bytes);
    assert_int_equal(exists(2, NULL), KVO_MISS);
    check_valid();
    close_store();
}

/* ---- intents ---- */

/* The interval of write-outs is an hour: only the intents wake the keeper. */
static void no_intent_is_missed(void **state)
{
    (void)state;
    kvo_policy policy = KVO_POLICY_INIT;
    open_store("dram:64blk,disk:@0:200blk");
    for (uint64_t i = 0; i < 128; i++)
        assert_int_equal(put_written(i), KVO_STORED);
    policy.intent = KVO_INTENT_PREFETCH;
    for (uint64_t i = 20; i-- > 0;) { /* each while the keeper is at those before */
        assert_int_equal(set_policy(i, &policy, KVO_POLICY_INTENT), KVO_OK);
        usleep(i == 19 ? 150 : 5);
    }
    unsigned late = 20;
    for (int round = 0; late && round < 3000; round++) {
        usleep(10000);
        late = 0;
        for (uint64_t i = 0; i < 20; i++) {
            kvo_answer answer;
            exists(i, &answer);
            late += answer.tier != 0;
        }
    }
    assert_int_equal(late, 0);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(with_all_pins_the_copy_below_serves),
        FIXTURE_TEST(with_all_pins_and_nothing_below_it_is_busy),
        FIXTURE_TEST(a_copy_that_rots_under_a_pin_is_read_from_below),
        FIXTURE_TEST(the_only_copy_that_rots_under_a_pin_frees_its_name),
        FIXTURE_TEST(what_two_readers_find_bad_frees_its_name_before_a_third_has_ended),
        FIXTURE_TEST(a_header_that_may_be_dead_is_known_while_its_copy_is_read),
        FIXTURE_TEST(a_block_leaves_memory_while_its_bad_copy_below_is_read),
        FIXTURE_TEST(a_rewrite_ends_a_hold),
        FIXTURE_TEST(a_record_in_use_again_has_holds_of_its_own),
        FIXTURE_TEST(a_hold_that_outlives_its_block_keeps_no_other),
        FIXTURE_TEST(no_intent_is_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
