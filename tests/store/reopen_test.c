/* SPDX-License-Identifier: Apache-2.0 */
/* What a directory keeps: over a close, over a process that ends without one, with other settings. */
#include "fixture.h"
#include "store/persist.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const both = "dram:16blk,disk:@0:64blk";

/* Leaves the directory as a killed process would. */
static void crash_after(void (*work)(void *), void *context) { assert_child_ok(in_child(work, context)); }

static void sync_all(int level) { assert_int_equal(kvo_sync(store, NULL, level, KVO_FOREVER, NULL), KVO_OK); }

static void put_chain(void)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    uint8_t parent[NAME_BYTES];
    name_of(1, parent);
    o.policy = (kvo_policy){.tenant = 7, .qos = 2, .priority = 80, .reuse = 3, .intent = KVO_INTENT_KEEP};
    o.sequence = 99;
    o.position = 32;
    o.parents = parent;
    put(1, 5000);
    put_as(2, 6000, 0, &o, NULL);
    get(2, 6000);
    get(2, 6000);
}

static void check_chain(uint32_t uses)
{
    kvo_block_info one = info_of(1), two = info_of(2);
    assert_int_equal(one.payload_bytes, 5000);
    assert_int_equal(two.sequence, 99);
    assert_int_equal(two.position, 32);
    assert_int_equal(two.has_parent, 1);
    assert_true(two.parent == one.handle);
    assert_int_equal(two.uses, uses);
    assert_int_equal(two.generation, 1);
    kvo_policy p = policy_of(2);
    assert_int_equal(p.tenant, 7);
    assert_int_equal(p.qos, 2);
    assert_int_equal(p.priority, 80);
    assert_int_equal(p.reuse, 3);
    assert_int_equal(p.intent, KVO_INTENT_KEEP);
    assert_int_equal(get(1, 5000), KVO_OK);
    assert_int_equal(get(2, 6000), KVO_OK);
    check_valid();
}

static void a_close_keeps_everything(void **state)
{
    (void)state;
    open_store(both);
    put_chain();
    kvo_stat before = store_stat();
    uint64_t last = info_of(2).last_use;
    close_store();
    open_store(both);
    assert_int_equal(info_of(2).last_use, last);
    assert_int_equal(store_stat().recovered_blocks, 2);
    assert_int_equal(store_stat().references, before.references);
    assert_int_equal(store_stat().gets, before.gets);
    assert_int_equal(store_stat().unfinished_slots + store_stat().damaged_slots, 0);
    assert_int_equal(info_of(2).delta[1], 1);
    check_chain(3);
    close_store();
    open_store("disk:@0"); /* as it is, and alone */
    check_chain(4);
}

static void written_then_killed(void *context)
{
    open_store(both);
    put_chain();
    sync_all(*(int *)context);
}

static void what_was_written_survives_the_process(void **state)
{
    (void)state;
    for (int level = KVO_WRITTEN; level <= KVO_SAFE; level++) {
        crash_after(written_then_killed, &level);
        open_store(both);
        check_chain(3);
        close_store();
        fixture_remove(0);
    }
}

static void policies_then_killed(void *context)
{
    (void)context;
    kvo_policy p = {.tenant = 3, .qos = 1, .priority = 20};
    open_store(both);
    fill_with(0, 10, 5000);
    sync_all(KVO_WRITTEN);
    for (unsigned i = 0; i < 10; i++)
        set_policy(i, &p, KVO_POLICY_TENANT | KVO_POLICY_PRIORITY);
    for (unsigned i = 0; i < 5; i++)
        touch(i);
    assert_int_equal(kvo_write_out(store), KVO_OK);
    p.tenant = 4;
    set_policy(9, &p, KVO_POLICY_TENANT); /* not written out any more */
}

static void policies_and_uses_are_those_of_the_last_write_out(void **state)
{
    (void)state;
    crash_after(policies_then_killed, NULL);
    open_store(both);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(policy_of(i).tenant, 3);
        assert_int_equal(policy_of(i).priority, 20);
        assert_int_equal(info_of(i).uses, i < 5 ? 2 : 1);
    }
}

/* ---- what must not come back ---- */

static void removed_then_killed(void *context)
{
    (void)context;
    kvo_target target;
    open_store("dram:4blk,disk:@0:16blk");
    fill_with(0, 8, 65536);
    sync_all(KVO_WRITTEN);
    target = target_of(0, 4);
    assert_int_equal(kvo_remove(store, &target, KVO_WRITTEN, KVO_FOREVER, NULL, NULL), KVO_OK);
    check_valid();
}

/* The policy record of block 0 as the file has it, changed and written back. */
static void change_policy_record(uint64_t place, bool torn)
{
    char path[128];
    policy_record p;
    snprintf(path, sizeof path, "%s/policy", fixture_path(0));
    int file = open(path, O_RDWR);
    assert_true(file >= 0);
    assert_int_equal(pread(file, &p, sizeof p, (off_t)(place * sizeof p)), sizeof p);
    assert_int_equal(p.checksum, store_policy_checksum(&p));
    p.policy ^= torn ? 1 : 0; /* the tenant */
    p.key_hash ^= torn ? 0 : 1;
    if (!torn)
        store_policy_seal(&p);
    assert_int_equal(pwrite(file, &p, sizeof p, (off_t)(place * sizeof p)), sizeof p);
    close(file);
}

static void policy_then_killed(void *context)
{
    kvo_policy p = {.tenant = 6};
    open_store(both);
    put(0, 5000);
    sync_all(KVO_WRITTEN);
    set_policy(0, &p, KVO_POLICY_TENANT);
    assert_int_equal(kvo_write_out(store), KVO_OK);
    *(uint64_t *)context = store_policy_place(&store->tiers[1], info_of(0).copies[1].slot);
}

/* The block goes on with the policy that its slot's header has. */
static void a_policy_record_that_is_torn_or_of_another_block_costs_the_policy(void **state)
{
    (void)state;
    uint64_t *place = mmap(NULL, sizeof *place, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(place != MAP_FAILED);
    for (int torn = 0; torn < 2; torn++) {
        crash_after(policy_then_killed, place);
        change_policy_record(*place, torn);
        open_store(both);
        assert_int_equal(policy_of(0).tenant, 0);
        assert_int_equal(get(0, 5000), KVO_OK);
        assert_int_equal(store_stat().damaged_slots, 0);
        close_store();
        fixture_remove(0);
    }
    munmap(place, sizeof *place);
}

static void what_was_removed_stays_away(void **state)
{
    (void)state;
    crash_after(removed_then_killed, NULL);
    open_store("dram:4blk,disk:@0:16blk");
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(get(i, 65536), i < 4 ? KVO_MISS : KVO_OK);
}

/* Block 0 is evicted, and its slot, whose header still says its name, is not written again. */
static void evict_from_disk(void *context)
{
    (void)context;
    kvo_reservation r;
    kvo_answer a;
    uint32_t bytes = 65536;
    kvo_policy low = {.priority = 0};
    open_store("disk:@0:8blk");
    fill_with(0, 8, 65536);
    set_policy(0, &low, KVO_POLICY_PRIORITY);
    kvo_names names = names_of(100, 1);
    kvo_reserve(store, &names, &bytes, NULL, &r, &a);
    assert_int_equal(a.status, KVO_OK);
    kvo_abort(store, &r, 1, &a);
    assert_int_equal(exists(0, NULL), KVO_MISS);
}

static void an_evicted_block_may_be_back_after_a_crash(void **state)
{
    (void)state;
    crash_after(evict_from_disk, NULL);
    open_store("disk:@0:8blk");
    assert_int_equal(get(0, 65536), KVO_OK);
    check_valid();
}

static void removed_after_an_eviction_then_killed(void *context)
{
    (void)context;
    evict_from_disk(NULL);
    assert_int_equal(put_as(0, 65536, 1, NULL, NULL), KVO_STORED);
    assert_int_equal(drop(0, KVO_WRITTEN), KVO_OK);
}

static void an_older_evicted_copy_does_not_come_back_either(void **state)
{
    (void)state;
    crash_after(removed_after_an_eviction_then_killed, NULL);
    open_store("disk:@0:8blk");
    assert_int_equal(exists(0, NULL), KVO_MISS);
    check_valid();
}

static void removed_by_name_while_evicted_then_killed(void *context)
{
    (void)context;
    evict_from_disk(NULL);
    assert_int_equal(drop(0, KVO_WRITTEN), KVO_MISS);
}

static void a_remove_of_a_name_that_was_evicted_holds_too(void **state)
{
    (void)state;
    crash_after(removed_by_name_while_evicted_then_killed, NULL);
    open_store("disk:@0:8blk");
    assert_int_equal(exists(0, NULL), KVO_MISS);
}

static void removed_by_tenant_while_evicted_then_killed(void *context)
{
    (void)context;
    kvo_target target = {.by = KVO_BY_TENANT, .tenant = 0};
    evict_from_disk(NULL);
    assert_int_equal(kvo_remove(store, &target, KVO_WRITTEN, KVO_FOREVER, NULL, NULL), KVO_OK);
}

static void a_remove_of_a_tenant_holds_for_its_evicted_blocks(void **state)
{
    (void)state;
    crash_after(removed_by_tenant_while_evicted_then_killed, NULL);
    open_store("disk:@0:8blk");
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(exists(i, NULL), KVO_MISS);
}

static void other_bytes_after_an_eviction_then_killed(void *context)
{
    (void)context;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    evict_from_disk(NULL);
    o.level = KVO_WRITTEN;
    assert_int_equal(put_as(0, 60000, 1, &o, NULL), KVO_STORED);
}

static void the_later_life_of_a_name_wins(void **state)
{
    (void)state;
    crash_after(other_bytes_after_an_eviction_then_killed, NULL);
    open_store("disk:@0:8blk");
    assert_int_equal(get_as(0, 60000, 1, NULL, NULL), KVO_OK);
    check_valid();
}

static void rewritten_then_killed(void *context)
{
    open_store(both);
    put(1, 5000);
    put(2, 5000);
    sync_all(KVO_WRITTEN);
    assert_int_equal(rewrite(1, 7000, 1, 9, *(int *)context), KVO_STORED);
    assert_int_equal(get_as(1, 7000, 1, NULL, NULL), KVO_OK);
}

static void old_bytes_never_return_after_a_rewrite(void **state)
{
    (void)state;
    int level = KVO_SEALED;
    crash_after(rewritten_then_killed, &level);
    open_store(both);
    assert_int_equal(exists(1, NULL), KVO_MISS); /* the new ones were in memory alone */
    assert_int_equal(get(2, 5000), KVO_OK);
    close_store();
    fixture_remove(0);
    level = KVO_WRITTEN;
    crash_after(rewritten_then_killed, &level);
    open_store(both);
    assert_int_equal(get_as(1, 7000, 1, NULL, NULL), KVO_OK);
    assert_int_equal(info_of(1).generation, 2);
    assert_int_equal(info_of(1).copies[0].format, 9);
    check_valid();
}

static void rewritten_on_disk_then_killed(void *context)
{
    (void)context;
    open_store("disk:@0:16blk");
    put(1, 5000);
    assert_int_equal(rewrite(1, 70, 1, 3, KVO_WRITTEN), KVO_STORED);
}

static void a_rewrite_of_a_disk_first_store_survives(void **state)
{
    (void)state;
    crash_after(rewritten_on_disk_then_killed, NULL);
    open_store("disk:@0:16blk");
    assert_int_equal(get_as(1, 70, 1, NULL, NULL), KVO_OK);
    assert_int_equal(info_of(1).copies[0].format, 3);
    check_valid();
}

/* The segment of an evicted block is given to another slot size, but nothing was written there yet. */
static void segment_turned_then_killed(void *context)
{
    (void)context;
    kvo_reservation r;
    kvo_answer a;
    uint32_t bytes = 7000; /* too little to be lent a slot of 64 KiB */
    kvo_policy low = {.priority = 0};
    open_store("disk:@0:8blk");
    fill_with(0, 8, 65536);
    set_policy(3, &low, KVO_POLICY_PRIORITY);
    kvo_names names = names_of(100, 1);
    kvo_reserve(store, &names, &bytes, NULL, &r, &a);
    assert_int_equal(a.status, KVO_OK);
    assert_int_equal(exists(3, NULL), KVO_MISS);
    put(3, 65536);
    assert_int_equal(drop(3, KVO_WRITTEN), KVO_OK);
}

static void a_segment_that_turns_takes_no_removed_block_back(void **state)
{
    (void)state;
    crash_after(segment_turned_then_killed, NULL);
    open_store("disk:@0:8blk");
    assert_int_equal(exists(3, NULL), KVO_MISS);
    check_valid();
}

/* The slot that still says the name is reserved by somebody: no deadline may be waited past. */
static void a_remove_is_short_while_the_old_slot_is_reserved(void **state)
{
    (void)state;
    kvo_reservation r;
    kvo_answer a;
    uint32_t bytes = 65536;
    evict_from_disk(NULL);
    kvo_names names = names_of(100, 1);
    kvo_reserve(store, &names, &bytes, NULL, &r, &a);
    assert_int_equal(put(0, 65536), KVO_STORED);
    assert_int_equal(drop(0, KVO_WRITTEN), KVO_SHORT);
    assert_int_equal(exists(0, NULL), KVO_MISS);
    kvo_abort(store, &r, 1, &a);
    check_valid();
    close_store();
    open_store("disk:@0:8blk");
    assert_int_equal(exists(0, NULL), KVO_MISS);
}

/* ---- order over a restart ---- */

static void touched_then_killed(void *context)
{
    (void)context;
    open_store("dram:4blk,disk:@0:64blk");
    fill_with(0, 64, 65536);
    sync_all(KVO_WRITTEN);
    for (unsigned i = 10; i < 30; i++)
        assert_int_equal(touch(i), KVO_OK);
    assert_int_equal(kvo_write_out(store), KVO_OK);
}

static void the_touched_set_goes_last(int placement)
{
    options.placement = placement;
    crash_after(touched_then_killed, NULL);
    open_store("dram:4blk,disk:@0:64blk");
    for (uint64_t i = 0; i < 44; i++)
        assert_int_equal(put(1000 + i, 65536), KVO_STORED);
    for (unsigned i = 10; i < 30; i++)
        assert_int_equal(exists(i, NULL), KVO_OK);
    check_valid();
}

static void order_survives_a_restart_lru(void **state)
{
    (void)state;
    the_touched_set_goes_last(KVO_PLACE_LRU);
}

static void order_survives_a_restart_credit(void **state)
{
    (void)state;
    the_touched_set_goes_last(KVO_PLACE_CREDIT);
}

/* ---- other sizes ---- */

static size_t count_ok(uint64_t first, size_t count, size_t bytes)
{
    size_t ok = 0;
    for (uint64_t i = 0; i < count; i++)
        ok += get(first + i, bytes) == KVO_OK;
    return ok;
}

static void a_larger_capacity_keeps_all_and_adds_room(void **state)
{
    (void)state;
    open_store("disk:@0:40blk");
    fill_with(0, 40, 65536);
    close_store();
    open_store("disk:@0:100blk");
    assert_int_equal(count_ok(0, 40, 65536), 40);
    assert_int_equal(fill_with(100, 60, 65536), 60);
    assert_int_equal(count_ok(0, 40, 65536), 40);
    check_valid();
    close_store();
    open_store("disk:@0");
    assert_int_equal(count_ok(0, 40, 65536) + count_ok(100, 60, 65536), 100);
    check_valid();
}

static void a_smaller_capacity_keeps_what_fits(void **state)
{
    (void)state;
    open_store("disk:@0:100blk");
    fill_with(0, 100, 65536);
    close_store();
    open_store("disk:@0:37blk");
    check_valid();
    assert_int_equal(count_ok(0, 100, 65536), 37);
    assert_int_equal(fill_with(200, 37, 65536), 37);
    check_valid();
    close_store();
    open_store("disk:@0:100blk");
    check_valid();
    assert_int_equal(count_ok(200, 37, 65536), 37);
    fill_with(300, 100, 65536);
    check_valid();
}

static void fewer_records_than_blocks_are_refused(void **state)
{
    (void)state;
    open_store("disk:@0:2000blk");
    fill_with(0, 1500, 64);
    close_store();
    options.blocks_max = 1;
    kvo_error error;
    assert_int_equal(try_open("disk:@0:2000blk", &error), KVO_E_RANGE);
    assert_non_null(strstr(error.text, "control records"));
    options.blocks_max = 0;
    open_store("disk:@0:2000blk");
    check_valid();
    for (uint64_t i = 0; i < 1500; i++)
        assert_int_equal(get(i, 64), KVO_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_close_keeps_everything),
        FIXTURE_TEST(what_was_written_survives_the_process),
        FIXTURE_TEST(policies_and_uses_are_those_of_the_last_write_out),
        FIXTURE_TEST(a_policy_record_that_is_torn_or_of_another_block_costs_the_policy),
        FIXTURE_TEST(what_was_removed_stays_away),
        FIXTURE_TEST(an_evicted_block_may_be_back_after_a_crash),
        FIXTURE_TEST(an_older_evicted_copy_does_not_come_back_either),
        FIXTURE_TEST(a_remove_of_a_name_that_was_evicted_holds_too),
        FIXTURE_TEST(a_remove_of_a_tenant_holds_for_its_evicted_blocks),
        FIXTURE_TEST(the_later_life_of_a_name_wins),
        FIXTURE_TEST(old_bytes_never_return_after_a_rewrite),
        FIXTURE_TEST(a_rewrite_of_a_disk_first_store_survives),
        FIXTURE_TEST(a_segment_that_turns_takes_no_removed_block_back),
        FIXTURE_TEST(a_remove_is_short_while_the_old_slot_is_reserved),
        FIXTURE_TEST(order_survives_a_restart_lru),
        FIXTURE_TEST(order_survives_a_restart_credit),
        FIXTURE_TEST(a_larger_capacity_keeps_all_and_adds_room),
        FIXTURE_TEST(a_smaller_capacity_keeps_what_fits),
        FIXTURE_TEST(fewer_records_than_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
