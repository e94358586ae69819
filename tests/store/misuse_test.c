/* SPDX-License-Identifier: Apache-2.0 */
/* Callers' mistakes cost an answer, nothing else. */
#include "fixture.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static const size_t bytes = 65536;
static uint8_t the_name[NAME_BYTES], payload[65536];

static kvo_names the_names(void)
{
    return (kvo_names){.first = the_name, .name_bytes = NAME_BYTES, .count = 1, .space = space};
}

/* ---- memory that is not there ---- */

static void segments_without_memory_are_refused(void **state)
{
    (void)state;
    kvo_answer answer;
    kvo_segment segments[2] = {{payload, 100}, {NULL, 100}};
    uint32_t two = 2;
    kvo_memory memory = {segments, &two};
    open_store("dram:4blk,disk:@0:64blk");
    name_of(1, the_name);
    kvo_names names = the_names();
    assert_int_equal(kvo_put(store, &names, &memory, NULL, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_E_ARGUMENT);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_equal(put(1, 200), KVO_STORED);
    assert_int_equal(kvo_get(store, &names, &memory, NULL, &answer), KVO_OK);
    assert_int_not_equal(answer.status, KVO_OK);
    assert_int_equal(kvo_rewrite(store, &names, &memory, 0, NULL, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_E_ARGUMENT);
    assert_int_equal(get(1, 200), KVO_OK);
    check_valid();
    segments[1].bytes = 0; /* nothing at no address is in order */
    segments[0].bytes = 200;
    assert_int_equal(kvo_get(store, &names, &memory, NULL, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_OK);
    assert_true(payload_is(payload, 200, 1, 0));
    close_store();
}

/* ---- reservations that are used up ---- */

static kvo_reservation reserve(uint64_t number)
{
    kvo_reservation reservation;
    kvo_answer answer;
    uint32_t length = (uint32_t)bytes;
    name_of(number, the_name);
    kvo_names names = the_names();
    assert_int_equal(kvo_reserve(store, &names, &length, NULL, &reservation, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_OK);
    payload_make(payload, bytes, number, 0);
    assert_int_equal(kvo_fill(store, &reservation, 0, payload, (uint32_t)bytes), KVO_OK);
    return reservation;
}

static int seal(const kvo_reservation *reservation)
{
    kvo_answer answer;
    assert_int_equal(kvo_seal(store, reservation, 1, KVO_SEALED, 0, &answer), KVO_OK);
    return answer.status;
}

/* Nothing that is done with it reaches a block. */
static void check_used_up(const kvo_reservation *reservation)
{
    kvo_answer answer;
    uint8_t other[16] = {0x5a};
    assert_int_equal(kvo_fill(store, reservation, 0, other, sizeof other), KVO_GONE);
    assert_int_equal(seal(reservation), KVO_GONE);
    assert_int_equal(kvo_abort(store, reservation, 1, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_GONE);
}

static void what_is_sealed_cannot_be_filled(void **state)
{
    (void)state;
    open_store("dram:4blk,disk:@0:64blk");
    kvo_reservation reservation = reserve(1);
    assert_int_equal(kvo_fill(store, &reservation, (uint32_t)bytes, payload, 1), KVO_E_RANGE);
    assert_int_equal(kvo_fill(store, &reservation, 8, payload, UINT32_MAX), KVO_E_RANGE);
    assert_int_equal(seal(&reservation), KVO_STORED);
    check_used_up(&reservation);
    assert_int_equal(get(1, bytes), KVO_OK);
    fill_with(100, 20, bytes); /* others have its memory now */
    check_used_up(&reservation);
    assert_int_equal(get(1, bytes), KVO_OK);
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(get(100 + i, bytes), KVO_OK);
    assert_int_equal(store_stat().digest_misses, 0);
    close_store();
}

static void what_is_aborted_cannot_be_filled(void **state)
{
    (void)state;
    kvo_answer answer;
    open_store("dram:4blk,disk:@0:64blk");
    kvo_reservation reservation = reserve(1);
    assert_int_equal(kvo_abort(store, &reservation, 1, &answer), KVO_OK);
    check_used_up(&reservation);
    assert_int_equal(put(1, bytes), KVO_STORED);
    check_used_up(&reservation);
    assert_int_equal(get(1, bytes), KVO_OK);
    close_store();
}

/* Its second block would wait for the first, which only the same caller can seal. */
static void a_name_twice_in_a_reservation_is_busy_at_once(void **state)
{
    (void)state;
    const uint32_t lengths[3] = {bytes, bytes, bytes};
    uint8_t list[3][32] = {"one name in one batch of three", "another name, also in the batch", ""};
    memcpy(list[2], list[0], sizeof list[2]);
    kvo_names names = {.first = list, .name_bytes = 32, .count = 3, .space = space};
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_reservation reservations[3];
    kvo_answer answers[3];
    open_store("dram:8blk");
    names.space = space;
    o.deadline_ns = KVO_FOREVER;
    assert_int_equal(kvo_reserve(store, &names, lengths, &o, reservations, answers), KVO_OK);
    assert_int_equal(answers[0].status, KVO_OK);
    assert_int_equal(answers[1].status, KVO_OK);
    assert_int_equal(answers[2].status, KVO_BUSY);
    assert_int_equal(kvo_abort(store, reservations, 2, answers), KVO_OK);
    close_store();
}

static void *rewrites(void *status)
{
    static uint8_t new[65536];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer;
    kvo_names names = the_names();
    kvo_segment segment = {new, bytes};
    kvo_memory memory = {&segment, NULL};
    payload_make(new, bytes, 1, 1);
    o.deadline_ns = KVO_FOREVER;
    int r = kvo_rewrite(store, &names, &memory, 0, &o, &answer);
    *(int *)status = r == KVO_OK ? answer.status : r;
    return NULL;
}

/* A block that a rewrite hides is not sealed; that makes it nobody's reservation. */
static void a_rewrite_opens_no_reservation(void **state)
{
    (void)state;
    pthread_t thread;
    kvo_answer answer;
    int status = -1;
    open_store("dram:4blk,disk:@0:64blk");
    kvo_reservation reservation = reserve(1);
    assert_int_equal(seal(&reservation), KVO_STORED);
    fill_with(100, 20, bytes); /* on disk alone */
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, 2);
    name_of(1, the_name);
    store_lock(store); /* what the rewrite waits for while it hides the block */
    uint32_t slot = place_slot_take(&store->tiers[1].space, store_stride(store, 1, bytes));
    store_stale_add(store, 1, slot, 0, false);
    store_unlock(store);
    assert_int_equal(pthread_create(&thread, NULL, rewrites, &status), 0);
    while (exists(1, NULL) != KVO_PENDING)
        usleep(100);
    check_used_up(&reservation);
    store_lock(store);
    place_slot_free(&store->tiers[1].space, slot);
    store_changed(store);
    store_unlock(store);
    pthread_join(thread, NULL);
    assert_int_equal(status, KVO_STORED);
    check_used_up(&reservation);
    assert_int_equal(get_as(1, bytes, 1, NULL, NULL), KVO_OK);
    close_store();
}

/* ---- handles of blocks that are gone ---- */

static void an_old_handle_is_gone_also_when_its_record_is_used_again(void **state)
{
    (void)state;
    uint64_t removed;
    kvo_answer answer;
    kvo_policy policy = KVO_POLICY_INIT;
    open_store("dram:8blk,disk:@0:64blk");
    put(1, 100);
    kvo_handle old = info_of(1).handle;
    assert_int_equal(drop(1, KVO_WRITTEN), KVO_OK);
    put(2, 100);
    assert_int_equal(handle_record(info_of(2).handle), handle_record(old));
    kvo_target target = {.by = KVO_BY_HANDLES, .handles = &old, .handle_count = 1};
    uint32_t uses = info_of(2).uses;
    assert_int_equal(kvo_touch(store, &target, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_GONE);
    assert_int_equal(info_of(2).uses, uses);
    policy.priority = 99;
    assert_int_equal(kvo_policy_set(store, &target, &policy, KVO_POLICY_PRIORITY, &answer, NULL), KVO_OK);
    assert_int_equal(answer.status, KVO_GONE);
    assert_int_not_equal(policy_of(2).priority, 99);
    kvo_remove(store, &target, KVO_WRITTEN, KVO_FOREVER, &answer, &removed);
    assert_int_equal(answer.status, KVO_GONE);
    assert_int_equal(removed, 0);
    assert_int_equal(get(2, 100), KVO_OK);
    check_valid();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(segments_without_memory_are_refused),
        FIXTURE_TEST(what_is_sealed_cannot_be_filled),
        FIXTURE_TEST(what_is_aborted_cannot_be_filled),
        FIXTURE_TEST(a_name_twice_in_a_reservation_is_busy_at_once),
        FIXTURE_TEST(a_rewrite_opens_no_reservation),
        FIXTURE_TEST(an_old_handle_is_gone_also_when_its_record_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
