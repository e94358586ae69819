/* SPDX-License-Identifier: Apache-2.0 */
/* What the store says of itself: rule 11 against a recount from events, walk, remove's answers. */
#include "fixture.h"

#include <stdlib.h>

/* ---- rule 11 ---- */

static struct {
    uint64_t sealed, written, promoted; /* bytes */
    uint64_t discards, drops, ends, seals;
} seen;

static void on_event(void *context, const kvo_event *e)
{
    (void)context;
    seen.sealed += e->type == KVO_EVENT_SEAL ? e->payload_bytes : 0;
    seen.written += e->type == KVO_EVENT_WRITE ? e->payload_bytes : 0;
    seen.promoted += e->type == KVO_EVENT_PROMOTE ? e->payload_bytes : 0;
    seen.seals += e->type == KVO_EVENT_SEAL;
    seen.discards += e->type == KVO_EVENT_DISCARD;
    seen.drops += e->type == KVO_EVENT_DROP && e->cause != KVO_CAUSE_REMOVE;
    seen.ends += e->type == KVO_EVENT_END;
}

typedef struct recount {
    uint64_t put, get, demote_read, demote_write, promote_read, promote_write;
} recount;

static recount count_ledger(uint32_t tenant)
{
    static kvo_ledger_row rows[512];
    recount c = {0};
    size_t count;
    assert_int_equal(kvo_ledger(store, rows, 512, &count), KVO_OK);
    assert_true(count > 0 && count <= 512);
    for (size_t i = 0; i < count; i++) {
        if (tenant != UINT32_MAX && rows[i].tenant != tenant)
            continue;
        uint64_t n = rows[i].bytes;
        c.put += rows[i].cause == KVO_CAUSE_PUT ? n : 0;
        c.get += rows[i].cause == KVO_CAUSE_GET ? n : 0;
        c.demote_read += rows[i].cause == KVO_CAUSE_DEMOTE && rows[i].direction == 0 ? n : 0;
        c.demote_write += rows[i].cause == KVO_CAUSE_DEMOTE && rows[i].direction == 1 ? n : 0;
        c.promote_read += rows[i].cause == KVO_CAUSE_PROMOTE && rows[i].direction == 0 ? n : 0;
        c.promote_write += rows[i].cause == KVO_CAUSE_PROMOTE && rows[i].direction == 1 ? n : 0;
    }
    return c;
}

static void the_ledger_is_a_recount_of_events(void **state)
{
    (void)state;
    uint64_t got = 0;
    memset(&seen, 0, sizeof seen);
    options.on_event = on_event;
    open_store("dram:12blk,disk:@0:40blk");
    for (uint64_t i = 0; i < 200; i++) {
        kvo_put_options o = KVO_PUT_OPTIONS_INIT;
        o.policy.tenant = (uint16_t)(i % 3);
        size_t bytes = 20000 + i * 37;
        assert_int_equal(put_as(i, bytes, 0, &o, NULL), KVO_STORED);
        uint64_t back = i - i % 30;
        size_t back_bytes = 20000 + back * 37;
        got += get(back, back_bytes) == KVO_OK ? back_bytes : 0;
    }
    drop(199, KVO_SEALED);
    recount all = count_ledger(UINT32_MAX), sum = {0};
    assert_int_equal(all.put, seen.sealed);
    assert_int_equal(all.get, got);
    assert_int_equal(all.demote_write, seen.written);
    assert_int_equal(all.demote_read, seen.written);
    assert_int_equal(all.promote_write, seen.promoted);
    assert_int_equal(all.promote_read, seen.promoted);
    for (uint32_t tenant = 0; tenant < 3; tenant++) {
        recount c = count_ledger(tenant);
        assert_true(c.put > 0);
        sum.put += c.put;
        sum.get += c.get;
        sum.demote_write += c.demote_write;
    }
    assert_int_equal(sum.put, all.put);
    assert_int_equal(sum.get, all.get);
    assert_int_equal(sum.demote_write, all.demote_write);
    kvo_tier_stat dram = tier_stat(0), disk = tier_stat(1);
    assert_int_equal(dram.written_bytes, seen.sealed + seen.promoted);
    assert_int_equal(disk.written_bytes, seen.written);
    assert_int_equal(dram.clean_discards + disk.clean_discards, seen.discards);
    assert_int_equal(dram.other_evictions + disk.other_evictions, seen.drops);
    assert_int_equal(dram.other_evictions, 0);
    assert_int_equal(seen.seals - seen.ends, store_stat().blocks);
    close_store();
    options.on_event = NULL;
    open_store("dram:12blk,disk:@0:40blk"); /* kept over a restart */
    assert_int_equal(count_ledger(UINT32_MAX).put, seen.sealed);
    assert_true(tier_stat(1).other_evictions >= disk.other_evictions);
    close_store();
    open_store("disk:@0"); /* a tier of earlier runs is known from the ledger alone */
    assert_int_equal(store_stat().tier_count, 2);
    assert_int_equal(store_stat().present_tier_count, 1);
    kvo_tier_stat gone = tier_stat(1);
    assert_int_equal(gone.present, 0);
    assert_string_equal(gone.name, "dram");
    assert_int_equal(gone.hits, dram.hits);
}

/* Blocks of one direction and cause, and their bytes. */
static uint64_t rows_of(const char *tier, int direction, int cause, uint64_t *bytes)
{
    static kvo_ledger_row rows[512];
    uint64_t blocks = 0;
    size_t count;
    *bytes = 0;
    assert_int_equal(kvo_ledger(store, rows, 512, &count), KVO_OK);
    assert_true(count <= 512);
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].tier, tier) == 0 && rows[i].direction == direction && rows[i].cause == cause) {
            blocks += rows[i].operations;
            *bytes += rows[i].bytes;
        }
    return blocks;
}

/* check_valid() says that it adds up, wherever it is called; here, that each copy left for the cause that it had. */
static void what_came_less_what_left_is_there_and_each_left_for_its_cause(void **state)
{
    (void)state;
    uint64_t bytes;
    open_store("dram:8blk,disk:@0:20blk");
    assert_int_equal(fill_with(0, 60, 30000), 60);
    check_valid();
    kvo_tier_stat disk = tier_stat(1);
    assert_true(disk.other_evictions > 0);
    assert_int_equal(rows_of("disk", 2, KVO_CAUSE_EVICT, &bytes), disk.other_evictions + disk.clean_discards);
    assert_int_equal(bytes, 30000 * (disk.other_evictions + disk.clean_discards));
    assert_int_equal(rows_of("disk", 1, KVO_CAUSE_DEMOTE, &bytes) - rows_of("disk", 2, KVO_CAUSE_EVICT, &bytes),
                     disk.resident_blocks);
    uint64_t in_memory = 59, below = info_of(55).copies[0].tier == 0 ? 50 : 55;
    assert_int_equal(drop(in_memory, KVO_WRITTEN), KVO_OK);
    assert_int_equal(rows_of("dram", 2, KVO_CAUSE_REMOVE, &bytes), 1);
    assert_int_equal(bytes, 30000);
    while (exists(below, NULL) != KVO_OK || info_of(below).copies[0].tier == 0)
        below--;
    assert_int_equal(drop(below, KVO_WRITTEN), KVO_OK);
    assert_int_equal(rows_of("disk", 2, KVO_CAUSE_REMOVE, &bytes), 1);
    uint64_t again = below - 1;
    assert_int_equal(rewrite(again, 31000, 1, 0, KVO_WRITTEN), KVO_STORED);
    assert_int_equal(rows_of("disk", 2, KVO_CAUSE_REWRITE, &bytes), 1);
    assert_int_equal(bytes, 30000);
    check_valid();
    /* One that is read when it is removed, and is still read at the close. */
    kvo_pin held;
    assert_int_equal(pin(again, &held), KVO_OK);
    assert_int_equal(drop(again, KVO_WRITTEN), KVO_OK);
    check_valid();
    uint64_t in_use = tier_stat(1).resident_blocks;
    close_store();
    open_store("disk:@0");
    assert_int_equal(rows_of("disk", 1, KVO_CAUSE_RECOVER, &bytes), 0); /* nothing was found that was not told */
    assert_int_equal(rows_of("disk", 2, KVO_CAUSE_RECOVER, &bytes), 0);
    assert_true(tier_stat(0).resident_blocks >= in_use - 1);
    close_store();
}

static void a_crash_leaves_a_difference_that_the_next_opening_enters(void **state)
{
    (void)state;
    uint64_t bytes;
    open_store("disk:@0:100blk");
    assert_int_equal(fill_with(0, 10, 30000), 10);
    assert_int_equal(kvo_write_out(store), KVO_OK);
    assert_int_equal(fill_with(10, 7, 20000), 7);
    assert_int_equal(drop(0, KVO_WRITTEN), KVO_OK);
    fixture_copy(0, 1); /* as another process would find it after a kill */
    close_store();
    open_store("disk:@1");
    check_valid();
    assert_int_equal(store_stat().unclean_tiers, 1);
    assert_int_equal(rows_of("disk", 1, KVO_CAUSE_RECOVER, &bytes), 6); /* as few as explain it: 7 came, 1 left */
    assert_int_equal(bytes, 7 * 20000 - 30000);
    close_store();
    open_store("disk:@1");
    check_valid();
    assert_int_equal(store_stat().unclean_tiers, 0);
    assert_int_equal(rows_of("disk", 1, KVO_CAUSE_RECOVER, &bytes), 6); /* once */
    close_store();
}

static void tenants_and_spaces_add_up(void **state)
{
    (void)state;
    kvo_tenant_stat tenants[8];
    kvo_space_stat spaces[4];
    size_t count;
    uint64_t blocks = 0, bytes = 0, resident = 0;
    open_store("dram:8blk,disk:@0:64blk");
    for (uint64_t i = 0; i < 30; i++) {
        kvo_put_options o = KVO_PUT_OPTIONS_INIT;
        o.policy.tenant = (uint16_t)(i % 4 * 1000);
        put_as(i, 1000 + i, 0, &o, NULL);
    }
    assert_int_equal(kvo_stat_tenants(store, tenants, 8, &count), KVO_OK);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        blocks += tenants[i].blocks;
        bytes += tenants[i].payload_bytes;
        resident += tenants[i].resident_blocks[0] + tenants[i].resident_blocks[1];
    }
    assert_int_equal(blocks, 30);
    assert_int_equal(resident, tier_stat(0).resident_blocks + tier_stat(1).resident_blocks);
    assert_int_equal(kvo_stat_tenants(store, tenants, 2, &count), KVO_OK);
    assert_int_equal(count, 4);
    assert_int_equal(kvo_stat_spaces(store, spaces, 4, &count), KVO_OK);
    assert_int_equal(count, 1);
    assert_string_equal(spaces[0].label, "a");
    assert_int_equal(spaces[0].blocks, 30);
    assert_int_equal(spaces[0].payload_bytes, bytes);
}

/* ---- walk ---- */

static void a_walk_lists_each_block_once(void **state)
{
    (void)state;
    kvo_block_info infos[7];
    uint64_t cursor = 0, hits[100] = {0};
    size_t count = 1, listed = 0;
    kvo_reservation r;
    kvo_answer a;
    uint32_t bytes = 10;
    open_store("dram:16blk,disk:@0:128blk");
    for (uint64_t i = 0; i < 100; i++) {
        kvo_put_options o = KVO_PUT_OPTIONS_INIT;
        o.position = (uint32_t)i;
        o.sequence = i % 10;
        put_as(i, 100, 0, &o, NULL);
    }
    kvo_names pending = names_of(1000, 1);
    kvo_reserve(store, &pending, &bytes, NULL, &r, &a); /* not sealed: not listed */
    while (count) {
        assert_int_equal(kvo_walk(store, NULL, &cursor, infos, 7, &count), KVO_OK);
        for (size_t i = 0; i < count; i++)
            hits[infos[i].position]++;
        listed += count;
    }
    assert_int_equal(listed, 100);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(hits[i], 1);
    kvo_target target = {.by = KVO_BY_SEQUENCE, .sequence = 3};
    for (cursor = 0, listed = 0, count = 1; count; listed += count) {
        kvo_walk(store, &target, &cursor, infos, 3, &count);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(infos[i].sequence, 3);
    }
    assert_int_equal(listed, 10);
    target = target_of(5, 3);
    cursor = 12345;
    assert_int_equal(kvo_walk(store, &target, &cursor, infos, 7, &count), KVO_OK);
    assert_int_equal(count, 3);
    assert_int_equal(infos[2].position, 7);
}

/* ---- remove ---- */

static void a_remove_answers_for_each_and_counts(void **state)
{
    (void)state;
    kvo_answer a[4];
    uint64_t removed = 0;
    open_store("dram:8blk,disk:@0:64blk");
    fill_with(0, 20, 100);
    kvo_handle stale = info_of(0).handle, live = info_of(4).handle;
    kvo_target target = target_of(0, 4);
    drop(2, KVO_SEALED);
    assert_int_equal(kvo_remove(store, &target, KVO_WRITTEN, KVO_FOREVER, a, &removed), KVO_OK);
    assert_int_equal(removed, 3);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(a[i].status, i == 2 ? KVO_MISS : KVO_OK);
        assert_int_equal(exists(i, NULL), KVO_MISS);
    }
    kvo_handle handles[3] = {stale, live, live};
    target = (kvo_target){.by = KVO_BY_HANDLES, .handles = handles, .handle_count = 3};
    kvo_remove(store, &target, KVO_SEALED, 0, a, &removed);
    assert_int_equal(a[0].status, KVO_GONE);
    assert_int_equal(a[1].status, KVO_OK);
    assert_int_equal(a[2].status, KVO_GONE);
    assert_int_equal(removed, 1);
    assert_int_equal(put(0, 100), KVO_STORED); /* the record may be the same, the handle is not */
    assert_true(info_of(0).handle != stale);
    check_valid();
    target = (kvo_target){.by = KVO_BY_SPACE, .space = space};
    assert_int_equal(kvo_remove(store, &target, KVO_SAFE, KVO_FOREVER, NULL, &removed), KVO_OK);
    assert_int_equal(removed, 16);
    assert_int_equal(store_stat().blocks, 0);
    assert_int_equal(store_stat().removes, 21);
    assert_int_equal(tier_stat(0).used_bytes + tier_stat(1).used_bytes, 0);
    check_valid();
    put(1, 100);
    target.by = KVO_BY_ALL;
    assert_int_equal(kvo_remove(store, &target, KVO_SEALED, 0, NULL, &removed), KVO_OK);
    assert_int_equal(removed, 1);
    close_store();
    open_store("dram:8blk,disk:@0:64blk");
    assert_int_equal(store_stat().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(the_ledger_is_a_recount_of_events),
        FIXTURE_TEST(what_came_less_what_left_is_there_and_each_left_for_its_cause),
        FIXTURE_TEST(a_crash_leaves_a_difference_that_the_next_opening_enters),
        FIXTURE_TEST(tenants_and_spaces_add_up),
        FIXTURE_TEST(a_walk_lists_each_block_once),
        FIXTURE_TEST(a_remove_answers_for_each_and_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
