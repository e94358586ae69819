/* SPDX-License-Identifier: Apache-2.0 */
/* Evicted blocks whose slots nobody needed since: they may be back after a crash, until they are removed. */
#include <pthread.h>
#include <unistd.h>

#include "fixture.h"

enum { BYTES = 4096 };

static store_tier *disk(void) { return &store->tiers[0]; }

static void open_small(const char *tiers)
{
    options.block_bytes = BYTES;
    open_store(tiers);
}

/* As for want of room, but the slot stays free. */
static void evict(uint64_t number)
{
    uint32_t record = handle_record(info_of(number).handle);
    store_lock(store);
    assert_true(store_copy_drop(store, record, 0, true, KVO_CAUSE_EVICT));
    store_end(store, record, KVO_CAUSE_NONE);
    store_unlock(store);
}

/* What another process would find if this one were killed now. */
static kvo_store *killed;
static void look_after_a_crash(void)
{
    killed = store;
    fixture_copy(0, 1);
    open_small("disk:@1");
}

static void back_before_the_crash(void)
{
    close_store();
    fixture_remove(1);
    store = killed;
}

static uint64_t headers_written(void) { return tier_stat(0).metadata_bytes / BYTES; }

static void a_removed_name_is_found_among_many_evicted(void **state)
{
    (void)state;
    open_small("disk:@0:2048blk");
    assert_int_equal(fill_with(0, 1200, BYTES), 1200);
    for (uint64_t i = 0; i < 1200; i += 20)
        evict(i);
    assert_int_equal(disk()->stale.count, 60);
    uint64_t before = headers_written();
    for (uint64_t i = 0; i < 600; i += 20)
        assert_int_equal(drop(i, KVO_WRITTEN), KVO_MISS);
    assert_int_equal(headers_written() - before, 30); /* theirs, and no other */
    assert_int_equal(disk()->stale.count, 30);
    look_after_a_crash();
    for (uint64_t i = 0; i < 1200; i++)
        assert_int_equal(exists(i, NULL), i % 20 == 0 && i < 600 ? KVO_MISS : KVO_OK);
    back_before_the_crash();
    assert_int_equal(fill_with(5000, 500, BYTES), 500); /* slots that are written again are forgotten */
    assert_int_equal(disk()->stale.count, 0);
    close_store();
}

static void fill_the_table(void)
{
    open_small("disk:@0:2048blk");
    assert_int_equal(fill_with(0, 1500, BYTES), 1500);
    for (uint64_t i = 0; i < 1500; i++)
        if (i < 750 || i % 3)
            evict(i); /* whole segments, and parts */
    assert_int_equal(disk()->stale.count, disk()->stale.max);
    assert_true(disk()->stale.lost_count > 0);
}

static void check_gone_and_kept(uint64_t gone)
{
    look_after_a_crash();
    assert_int_equal(exists(gone, NULL), KVO_MISS);
    for (uint64_t i = 750; i < 1500; i += 3)
        assert_int_equal(get(i, BYTES), KVO_OK);
    back_before_the_crash();
}

static void beyond_its_table_a_remove_writes_over_all_that_is_free(void **state)
{
    (void)state;
    for (uint64_t gone = 0; gone < 1500; gone += 749) { /* listed; lost of a whole segment; lost among others */
        fill_the_table();
        look_after_a_crash(); /* it would be back */
        assert_int_equal(exists(gone, NULL), KVO_OK);
        back_before_the_crash();
        assert_int_equal(drop(gone, KVO_WRITTEN), KVO_MISS);
        assert_int_equal(disk()->stale.lost_count, 0);
        uint64_t before = headers_written();
        check_gone_and_kept(gone);
        assert_int_equal(drop(gone, KVO_WRITTEN), KVO_MISS); /* once is enough */
        assert_int_equal(headers_written(), before);
        close_store();
        fixture_remove(0);
    }
}

/* Some of a segment are in the table, and others found it full. */
static void listed_and_lost_ones_of_a_segment_go_together(void **state)
{
    (void)state;
    open_small("disk:@0:2048blk");
    assert_int_equal(fill_with(0, 300, BYTES), 300);
    for (uint64_t i = 0; i < 256; i += 2)
        evict(i);
    for (uint64_t i = 1; i < 128; i += 2)
        evict(i);
    assert_int_equal(disk()->stale.count, disk()->stale.max);
    uint32_t kept = 0;
    while (!disk()->stale.entries[kept].used)
        kept++;
    disk()->stale.entries[kept].keep = true; /* as of a copy that could not be read */
    uint64_t hash = disk()->stale.entries[kept].hash;
    assert_int_equal(store_invalidate_evicted(store), 0);
    assert_true(disk()->stale.count == 1 && disk()->stale.lost_count == 0);
    for (uint64_t i = 129; i < 256; i += 2)
        evict(i);
    for (uint64_t i = 256; i < 300; i++)
        evict(i); /* the table is full again, with the one that was kept */
    assert_true(disk()->stale.lost_count > 0);
    assert_int_equal(drop(9999, KVO_WRITTEN), KVO_MISS); /* a name that never was: it may be any */
    assert_int_equal(disk()->stale.lost_count, 0);
    assert_int_equal(store_invalidate_stale(store, hash, NULL, 0), 0);
    look_after_a_crash();
    for (uint64_t i = 0; i < 129; i++)
        assert_int_equal(exists(i, NULL), KVO_MISS);
    back_before_the_crash();
    close_store();
}

/* Of more headers than one batch takes nobody knows whose they are. */
static void many_headers_that_may_be_anybodys_go_with_any_name(void **state)
{
    (void)state;
    open_small("disk:@0:2048blk");
    assert_int_equal(fill_with(0, 60, BYTES), 60);
    for (uint64_t i = 0; i < 50; i++) {
        uint32_t slot = info_of(i).copies[0].slot;
        evict(i);
        store_lock(store);
        store_stale_add(store, 0, slot, 0, false);
        store_unlock(store);
    }
    assert_int_equal(disk()->stale.count, 50);
    assert_int_equal(drop(9999, KVO_WRITTEN), KVO_MISS);
    assert_int_equal(disk()->stale.count, 0);
    look_after_a_crash();
    for (uint64_t i = 0; i < 60; i++)
        assert_int_equal(exists(i, NULL), i < 50 ? KVO_MISS : KVO_OK);
    back_before_the_crash();
    close_store();
}

static void a_slot_that_is_being_written_is_waited_for(void **state)
{
    (void)state;
    fill_the_table();
    store_lock(store);
    uint32_t slot = place_slot_take(&disk()->space, store_stride(store, 0, BYTES));
    assert_true(bits_get(disk()->stale.lost, place_segment_of(&disk()->space, slot)));
    store_unlock(store);
    kvo_target target = target_of(1499, 1);
    assert_int_equal(kvo_remove(store, &target, KVO_WRITTEN, 0, NULL, NULL), KVO_SHORT);
    store_lock(store);
    place_slot_free(&disk()->space, slot);
    store_unlock(store);
    assert_int_equal(kvo_remove(store, &target, KVO_WRITTEN, 0, NULL, NULL), KVO_OK);
    check_gone_and_kept(1499);
    close_store();
}

static void wait_for_one_stale(void)
{
    bool one = false;
    for (int i = 0; i < 50000 && !one; i++) {
        usleep(100);
        store_lock(store);
        one = disk()->stale.count == 1;
        store_unlock(store);
    }
}

/* Others leave one by one, as soon as the remove that is waiting has seen to the one before. */
static void *evict_some(void *slot)
{
    for (uint64_t i = 2; i < 6; i++) {
        wait_for_one_stale();
        evict(i);
        store_lock(store);
        store_changed(store);
        store_unlock(store);
    }
    wait_for_one_stale();
    usleep(20000);
    store_lock(store);
    place_slot_free(&disk()->space, *(uint32_t *)slot);
    store_changed(store);
    store_unlock(store);
    return NULL;
}

static void a_slot_that_is_being_written_is_waited_for_also_while_others_leave(void **state)
{
    (void)state;
    open_small("disk:@0:2048blk");
    assert_int_equal(fill_with(0, 20, BYTES), 20);
    uint32_t slot = info_of(1).copies[0].slot;
    evict(1);
    store_lock(store);
    assert_true(place_slot_retake(&disk()->space, slot));
    store_unlock(store);
    kvo_target nobody = {.by = KVO_BY_SEQUENCE, .sequence = 77};
    pthread_t thread;
    pthread_create(&thread, NULL, evict_some, &slot);
    int r = kvo_remove(store, &nobody, KVO_WRITTEN, KVO_FOREVER, NULL, NULL);
    pthread_join(thread, NULL);
    assert_int_equal(r, KVO_OK);
    assert_int_equal(disk()->stale.count, 0);
    check_valid();
    close_store();
}

static void segments_that_turned_meanwhile_lose_their_old_headers(void **state)
{
    (void)state;
    fill_the_table();
    assert_int_equal(fill_with(9000, 100, 50000), 100); /* into segments that all blocks have left */
    assert_int_equal(drop(0, KVO_WRITTEN), KVO_MISS);
    assert_int_equal(drop(749, KVO_WRITTEN), KVO_MISS);
    check_gone_and_kept(0);
    look_after_a_crash();
    assert_int_equal(exists(749, NULL), KVO_MISS);
    for (uint64_t i = 9000; i < 9100; i++)
        assert_int_equal(get(i, 50000), KVO_OK);
    back_before_the_crash();
    close_store();
    open_small("disk:@0"); /* closed in order, nothing that was evicted is back */
    assert_int_equal(store_stat().blocks, 350);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_removed_name_is_found_among_many_evicted),
        FIXTURE_TEST(beyond_its_table_a_remove_writes_over_all_that_is_free),
        FIXTURE_TEST(listed_and_lost_ones_of_a_segment_go_together),
        FIXTURE_TEST(many_headers_that_may_be_anybodys_go_with_any_name),
        FIXTURE_TEST(a_slot_that_is_being_written_is_waited_for),
        FIXTURE_TEST(a_slot_that_is_being_written_is_waited_for_also_while_others_leave),
        FIXTURE_TEST(segments_that_turned_meanwhile_lose_their_old_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
