/* SPDX-License-Identifier: Apache-2.0 */
/* Into the store: put, reserve, fill, seal, abort, and each of their answers. */
#include "fixture.h"

#include <pthread.h>
#include <stdlib.h>

static kvo_put_options now(void)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.deadline_ns = 0;
    return o;
}

static void a_block_is_stored_once_and_exists_afterwards(void **state)
{
    (void)state;
    kvo_answer a;
    open_store("dram:64blk");
    assert_int_equal(put_as(1, 5000, 0, NULL, &a), KVO_STORED);
    assert_int_equal(a.tier, 0);
    assert_int_equal(a.tier_mask, 1);
    assert_int_equal(a.level, KVO_SEALED);
    assert_int_equal(a.payload_bytes, 5000);
    assert_int_equal(a.generation, 1);
    assert_true(a.handle != 0);
    kvo_handle handle = a.handle;
    assert_int_equal(put_as(1, 5000, 0, NULL, &a), KVO_EXISTS);
    assert_true(a.handle == handle);
    check_valid();
    assert_int_equal(store_stat().blocks, 1);
    assert_int_equal(store_stat().puts, 2);
    assert_int_equal(store_stat().put_exists, 1);
    assert_int_equal(tier_stat(0).written_bytes, 5000);
    assert_int_equal(info_of(1).uses, 2);
    assert_int_equal(get(1, 5000), KVO_OK);
}

static void first_seal_wins_and_other_bytes_are_counted(void **state)
{
    (void)state;
    kvo_put_options trust = KVO_PUT_OPTIONS_INIT;
    trust.trust_name = 1;
    open_store("dram:64blk");
    put(1, 5000);
    assert_int_equal(put_as(1, 5000, 7, NULL, NULL), KVO_EXISTS);
    assert_int_equal(store_stat().digest_conflicts, 1);
    assert_int_equal(put_as(1, 5000, 7, &trust, NULL), KVO_EXISTS);
    assert_int_equal(store_stat().digest_conflicts, 1);
    assert_int_equal(put_as(1, 4999, 0, NULL, NULL), KVO_SIZE);
    assert_int_equal(info_of(1).uses, 3);
    assert_int_equal(get(1, 5000), KVO_OK);
}

static void a_name_twice_in_a_batch_exists_the_second_time(void **state)
{
    (void)state;
    uint8_t names[3][NAME_BYTES], bytes[3][100];
    kvo_segment segments[3] = {{bytes[0], 100}, {bytes[1], 100}, {bytes[2], 99}};
    kvo_memory memory = {segments, NULL};
    kvo_answer a[3];
    open_store("dram:64blk");
    for (int i = 0; i < 3; i++) {
        name_of(5, names[i]);
        payload_make(bytes[i], 100, 5, 0);
    }
    kvo_names list = {.first = names, .name_bytes = NAME_BYTES, .count = 3, .space = space};
    assert_int_equal(kvo_put(store, &list, &memory, NULL, a), KVO_OK);
    assert_int_equal(a[0].status, KVO_STORED);
    assert_int_equal(a[1].status, KVO_EXISTS);
    assert_int_equal(a[2].status, KVO_SIZE);
    check_valid();
}

static void lengths_outside_the_space_are_refused(void **state)
{
    (void)state;
    open_store("dram:64blk");
    assert_int_equal(put(1, 0), KVO_REFUSED);
    assert_int_equal(put(2, 65537), KVO_REFUSED);
    assert_int_equal(put(3, 65536), KVO_STORED);
    assert_int_equal(put(4, 1), KVO_STORED);
    assert_int_equal(get(3, 65536), KVO_OK);
    assert_int_equal(get(4, 1), KVO_OK);
    check_valid();
}

static void everything_pinned_is_busy_and_works_again_after(void **state)
{
    (void)state;
    kvo_pin pins[64];
    kvo_put_options o = now();
    open_store("dram:64blk");
    assert_int_equal(fill_with(0, 64, 65536), 64);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(pin(i, &pins[i]), KVO_OK);
    assert_int_equal(put_as(100, 65536, 0, &o, NULL), KVO_BUSY);
    assert_int_equal(store_stat().put_busy, 1);
    o.deadline_ns = 1000000;
    assert_int_equal(put_as(100, 65536, 0, &o, NULL), KVO_BUSY);
    assert_int_equal(exists(100, NULL), KVO_MISS);
    check_valid();
    assert_int_equal(kvo_unpin(store, pins, 64), KVO_OK);
    assert_int_equal(put_as(100, 65536, 0, &o, NULL), KVO_STORED);
    check_valid();
}

static void everything_held_is_busy_until_the_hold_is_over(void **state)
{
    (void)state;
    uint64_t hold;
    kvo_answer answers[64];
    kvo_put_options o = now();
    open_store("dram:64blk");
    fill_with(0, 64, 65536);
    kvo_names names = names_of(0, 64);
    assert_int_equal(kvo_hold(store, &names, 300000000, &hold, answers), KVO_OK);
    assert_int_equal(put_as(100, 65536, 0, &o, NULL), KVO_BUSY);
    o.deadline_ns = KVO_FOREVER; /* returns, because the hold expires */
    assert_int_equal(put_as(100, 65536, 0, &o, NULL), KVO_STORED);
    assert_int_equal(kvo_release(store, hold), KVO_GONE);
    check_valid();
}

static void seal_and_abort_use_a_reservation_up(void **state)
{
    (void)state;
    kvo_reservation r[2], copy;
    kvo_answer a[2];
    uint32_t bytes[2] = {5000, 6000};
    uint8_t data[6000];
    open_store("dram:64blk");
    kvo_names names = names_of(1, 2);
    assert_int_equal(kvo_reserve(store, &names, bytes, NULL, r, a), KVO_OK);
    assert_int_equal(a[0].status, KVO_OK);
    assert_int_equal((uintptr_t)r[0].memory % 4096, 0);
    assert_int_equal(r[1].payload_bytes, 6000);
    assert_int_equal(exists(1, NULL), KVO_PENDING);
    assert_int_equal(store_stat().reserved_blocks, 2);
    check_valid();
    payload_make(r[0].memory, 5000, 1, 0);
    payload_make(data, 6000, 2, 0);
    assert_int_equal(kvo_fill(store, &r[1], 0, data, 1000), KVO_OK);
    assert_int_equal(kvo_fill(store, &r[1], 1000, data + 1000, 5000), KVO_OK);
    assert_int_equal(kvo_fill(store, &r[1], 6000, data, 0), KVO_OK);
    assert_int_equal(kvo_fill(store, &r[1], 5999, data, 2), KVO_E_RANGE);
    assert_int_equal(kvo_fill(store, &r[1], 6001, data, 0), KVO_E_RANGE);
    assert_int_equal(kvo_fill(store, &r[1], UINT32_MAX, data, 2), KVO_E_RANGE);
    copy = r[0];
    assert_int_equal(kvo_seal(store, r, 2, KVO_SEALED, 0, a), KVO_OK);
    assert_int_equal(a[0].status, KVO_STORED);
    assert_int_equal(a[1].status, KVO_STORED);
    assert_int_equal(get(1, 5000), KVO_OK);
    assert_int_equal(get(2, 6000), KVO_OK);
    assert_int_equal(kvo_seal(store, &copy, 1, KVO_SEALED, 0, a), KVO_OK);
    assert_int_equal(a[0].status, KVO_GONE);
    assert_int_equal(kvo_abort(store, &copy, 1, a), KVO_OK);
    assert_int_equal(a[0].status, KVO_GONE);
    assert_int_equal(kvo_fill(store, &copy, 0, data, 1), KVO_GONE);
    check_valid();
}

static void an_aborted_reservation_leaves_nothing(void **state)
{
    (void)state;
    kvo_reservation r;
    kvo_answer a;
    uint32_t bytes = 5000;
    open_store("dram:64blk");
    kvo_names names = names_of(1, 1);
    kvo_reserve(store, &names, &bytes, NULL, &r, &a);
    assert_int_equal(kvo_abort(store, &r, 1, &a), KVO_OK);
    assert_int_equal(a.status, KVO_OK);
    assert_int_equal(kvo_seal(store, &r, 1, KVO_SEALED, 0, &a), KVO_OK);
    assert_int_equal(a.status, KVO_GONE);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_equal(tier_stat(0).used_bytes, 0);
    check_valid();
    assert_int_equal(put(1, 100), KVO_STORED);
    check_valid();
}

static void a_name_being_filled_is_busy_for_others_until_it_is_sealed(void **state)
{
    (void)state;
    kvo_reservation r;
    kvo_answer a;
    uint32_t bytes = 5000;
    kvo_put_options o = now();
    kvo_get_options g = KVO_GET_OPTIONS_INIT;
    g.deadline_ns = 0;
    open_store("dram:64blk");
    kvo_names names = names_of(1, 1);
    kvo_reserve(store, &names, &bytes, NULL, &r, &a);
    assert_int_equal(put_as(1, 5000, 0, &o, NULL), KVO_BUSY);
    assert_int_equal(get_as(1, 5000, 0, &g, NULL), KVO_BUSY);
    assert_int_equal(touch(1), KVO_MISS);
    assert_int_equal(drop(1, KVO_SEALED), KVO_MISS);
    payload_make(r.memory, 5000, 1, 0);
    kvo_seal(store, &r, 1, KVO_SEALED, 0, &a);
    assert_int_equal(put_as(1, 5000, 0, &o, NULL), KVO_EXISTS);
    assert_int_equal(get_as(1, 5000, 0, &g, NULL), KVO_OK);
}

static void *seal_later(void *context)
{
    kvo_answer a;
    kvo_reservation *r = context;
    struct timespec pause = {0, 20000000};
    nanosleep(&pause, NULL);
    payload_make(r->memory, r->payload_bytes, 1, 0);
    kvo_seal(store, r, 1, KVO_SEALED, 0, &a);
    return NULL;
}

static void a_get_waits_for_the_seal(void **state)
{
    (void)state;
    kvo_reservation r;
    kvo_answer a;
    uint32_t bytes = 5000;
    pthread_t thread;
    open_store("dram:64blk");
    kvo_names names = names_of(1, 1);
    kvo_reserve(store, &names, &bytes, NULL, &r, &a);
    pthread_create(&thread, NULL, seal_later, &r);
    assert_int_equal(get(1, 5000), KVO_OK);
    pthread_join(thread, NULL);
    check_valid();
}

static void close_aborts_open_reservations(void **state)
{
    (void)state;
    kvo_reservation r[3];
    kvo_answer a[3];
    uint32_t bytes[3] = {5000, 1, 65536};
    open_store("dram:64blk,disk:@0:64blk");
    kvo_names names = names_of(1, 3);
    kvo_reserve(store, &names, bytes, NULL, r, a);
    put(9, 100);
    close_store();
    open_store("dram:64blk,disk:@0:64blk");
    for (unsigned i = 1; i <= 3; i++)
        assert_int_equal(exists(i, NULL), KVO_MISS);
    assert_int_equal(get(9, 100), KVO_OK);
}

static void reserve_in_a_disk_first_store_seals_through_staging(void **state)
{
    (void)state;
    kvo_reservation r[2];
    kvo_answer a[2];
    uint32_t bytes[2] = {5000, 65536};
    open_store("disk:@0:64blk");
    kvo_names names = names_of(1, 2);
    assert_int_equal(kvo_reserve(store, &names, bytes, NULL, r, a), KVO_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal((uintptr_t)r[i].memory % 4096, 0);
        payload_make(r[i].memory, bytes[i], 1 + i, 0);
    }
    check_valid();
    assert_int_equal(kvo_seal(store, &r[0], 1, KVO_WRITTEN, 0, a), KVO_OK);
    assert_int_equal(a[0].status, KVO_STORED);
    assert_int_equal(a[0].level, KVO_WRITTEN);
    assert_int_equal(kvo_abort(store, &r[1], 1, a), KVO_OK);
    assert_int_equal(get(1, 5000), KVO_OK);
    check_valid();
    close_store();
    open_store("disk:@0:64blk");
    assert_int_equal(get(1, 5000), KVO_OK);
    assert_int_equal(exists(2, NULL), KVO_MISS);
}

static void full_below_is_full_and_nothing_sealed_is_lost(void **state)
{
    (void)state;
    kvo_answer a[64];
    uint64_t hold;
    kvo_put_options o = now();
    open_store("dram:16blk,disk:@0:16blk");
    fill_with(0, 32, 65536);
    kvo_names names = names_of(0, 32);
    assert_int_equal(kvo_hold(store, &names, KVO_FOREVER, &hold, a), KVO_OK);
    int status = put_as(100, 65536, 0, &o, NULL);
    assert_true(status == KVO_BUSY || status == KVO_FULL);
    for (unsigned i = 0; i < 32; i++)
        if (a[i].status == KVO_OK)
            assert_int_equal(exists(i, NULL), KVO_OK);
    check_valid();
    assert_int_equal(kvo_release(store, hold), KVO_OK);
    assert_int_equal(put_as(100, 65536, 0, &o, NULL), KVO_STORED);
    check_valid();
}

static void levels_are_reported_when_they_are_reached(void **state)
{
    (void)state;
    kvo_answer a;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    open_store("dram:64blk,disk:@0:64blk");
    o.level = KVO_WRITTEN;
    assert_int_equal(put_as(1, 5000, 0, &o, &a), KVO_STORED);
    assert_int_equal(a.level, KVO_WRITTEN);
    assert_int_equal(a.tier_mask, 3);
    o.level = KVO_SAFE;
    assert_int_equal(put_as(2, 5000, 0, &o, &a), KVO_STORED);
    assert_int_equal(a.level, KVO_SAFE);
    assert_int_equal(put_as(1, 5000, 0, &o, &a), KVO_EXISTS);
    assert_int_equal(a.level, KVO_SAFE);
    check_valid();
}

static void a_level_that_cannot_be_reached_is_short(void **state)
{
    (void)state;
    kvo_answer a;
    uint64_t hold;
    kvo_answer held[4];
    kvo_put_options o = now();
    open_store("dram:64blk,disk:@0:4blk");
    fill_with(0, 4, 65536);
    kvo_target target = target_of(0, 4);
    assert_int_equal(kvo_sync(store, &target, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    kvo_names names = names_of(0, 4);
    kvo_hold(store, &names, KVO_FOREVER, &hold, held);
    o.level = KVO_WRITTEN;
    assert_int_equal(put_as(10, 65536, 0, &o, &a), KVO_SHORT);
    assert_int_equal(a.level, KVO_SEALED);
    assert_int_equal(get(10, 65536), KVO_OK);
    check_valid();
}

static void levels_need_a_persistent_tier(void **state)
{
    (void)state;
    kvo_answer a;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    uint8_t byte = 1;
    kvo_segment segment = {&byte, 1};
    kvo_memory memory = {&segment, NULL};
    open_store("dram:64blk");
    kvo_names names = names_of(1, 1);
    o.level = KVO_WRITTEN;
    assert_int_equal(kvo_put(store, &names, &memory, &o, &a), KVO_E_UNSUPPORTED);
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, 0, NULL), KVO_E_UNSUPPORTED);
    o.level = 4;
    assert_int_equal(kvo_put(store, &names, &memory, &o, &a), KVO_E_RANGE);
    o.level = 0;
    assert_int_equal(kvo_put(store, &names, &memory, &o, &a), KVO_E_RANGE);
}

static void more_blocks_than_records_evict_where_blocks_are(void **state)
{
    (void)state;
    kvo_put_options o = now();
    options.blocks_max = 8;
    open_store("dram:4096blk,disk:@0:64blk");
    uint64_t most = store_stat().blocks_max;
    for (uint64_t i = 0; i < most + 100; i++)
        assert_int_equal(put_as(i, 100, 0, &o, NULL), KVO_STORED);
    check_valid();
    assert_int_equal(get(most + 99, 100), KVO_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_block_is_stored_once_and_exists_afterwards),
        FIXTURE_TEST(first_seal_wins_and_other_bytes_are_counted),
        FIXTURE_TEST(a_name_twice_in_a_batch_exists_the_second_time),
        FIXTURE_TEST(lengths_outside_the_space_are_refused),
        FIXTURE_TEST(everything_pinned_is_busy_and_works_again_after),
        FIXTURE_TEST(everything_held_is_busy_until_the_hold_is_over),
        FIXTURE_TEST(seal_and_abort_use_a_reservation_up),
        FIXTURE_TEST(an_aborted_reservation_leaves_nothing),
        FIXTURE_TEST(a_name_being_filled_is_busy_for_others_until_it_is_sealed),
        FIXTURE_TEST(a_get_waits_for_the_seal),
        FIXTURE_TEST(close_aborts_open_reservations),
        FIXTURE_TEST(reserve_in_a_disk_first_store_seals_through_staging),
        FIXTURE_TEST(full_below_is_full_and_nothing_sealed_is_lost),
        FIXTURE_TEST(levels_are_reported_when_they_are_reached),
        FIXTURE_TEST(a_level_that_cannot_be_reached_is_short),
        FIXTURE_TEST(levels_need_a_persistent_tier),
        FIXTURE_TEST(more_blocks_than_records_evict_where_blocks_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
