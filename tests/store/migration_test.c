/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The migration table, row by row: what of a block moves with its payload (identity), what stays
 * bound to it without moving (policy), and what each place makes anew (mechanism).
 */
#include "fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tier/disk/format.h"

static const char *const two_disks = "dram:4blk,disk:@0:16blk,disk:@1:64blk";

/* The header page of a block's copy in a disk tier, straight from the data file. */
static disk_slot header_of(const kvo_block_info *info, unsigned tier, int directory)
{
    disk_slot header;
    char path[128];
    snprintf(path, sizeof path, "%s/data", fixture_path(directory));
    int file = open(path, O_RDONLY);
    assert_true(file >= 0);
    for (uint32_t i = 0; i < info->copy_count; i++)
        if (info->copies[i].tier == tier)
            assert_int_equal(pread(file, &header, sizeof header, (off_t)info->copies[i].offset_bytes), sizeof header);
    close(file);
    assert_true(disk_page_whole(&header));
    return header;
}

static void put_block(void)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    static uint8_t parent[NAME_BYTES];
    name_of(8, parent);
    o.policy = (kvo_policy){.tenant = 5, .qos = 1, .priority = 40, .reuse = 9};
    o.sequence = 4711;
    o.position = 16;
    o.parents = parent;
    put(8, 100);
    assert_int_equal(put_as(7, 50000, 0, &o, NULL), KVO_STORED);
}

static unsigned mask_of(uint64_t number)
{
    kvo_answer a;
    return exists(number, &a) == KVO_OK ? a.tier_mask : 0;
}

static void check_identity(const uint8_t identity[128], unsigned tier, int directory)
{
    kvo_block_info info = info_of(7);
    disk_slot header = header_of(&info, tier, directory);
    assert_memory_equal(info.identity, identity, 128);
    assert_memory_equal(&header.identity, identity, 128);
    assert_int_equal(header.delta[tier], 1);
}

static void check_policy(void)
{
    kvo_policy p = policy_of(7);
    assert_int_equal(p.tenant, 5);
    assert_int_equal(p.qos, 1);
    assert_int_equal(p.priority, 40);
    assert_int_equal(p.reuse, 9);
}

static void identity_moves_unchanged_to_every_medium(void **state)
{
    (void)state;
    uint8_t identity[128];
    open_store(two_disks);
    put_block();
    memcpy(identity, info_of(7).identity, 128);
    for (uint64_t i = 0; (mask_of(7) & 2) == 0; i++)
        put(100 + i, 65536);
    check_identity(identity, 1, 0);
    for (uint64_t i = 0; (mask_of(7) & 4) == 0; i++)
        put(1000 + i, 65536);
    check_identity(identity, 2, 1);
    assert_int_equal(get(7, 50000), KVO_OK); /* promoted */
    assert_int_equal(mask_of(7) & 1, 1);
    check_identity(identity, 2, 1);
    close_store();
    open_store(two_disks);
    check_identity(identity, 2, 1);
    check_policy();
    assert_int_equal(get(7, 50000), KVO_OK);
    check_identity(identity, 2, 1);
    check_valid();
}

static void policy_stays_and_moves_no_byte(void **state)
{
    (void)state;
    kvo_policy p = {.tenant = 6, .qos = 3, .priority = 61, .reuse = 10, .intent = KVO_INTENT_KEEP};
    open_store(two_disks);
    put_block();
    kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL);
    uint64_t written = tier_stat(1).written_bytes + tier_stat(2).written_bytes + tier_stat(0).written_bytes;
    check_policy();
    set_policy(7, &p, KVO_POLICY_ALL);
    kvo_block_info info = info_of(7);
    disk_slot header = header_of(&info, 1, 0);
    assert_int_equal((uint16_t)header.policy, 5); /* the header keeps its first version */
    assert_int_equal(kvo_write_out(store), KVO_OK);
    assert_int_equal(tier_stat(1).written_bytes + tier_stat(2).written_bytes + tier_stat(0).written_bytes, written);
    close_store();
    open_store(two_disks);
    assert_int_equal(policy_of(7).tenant, 6);
    assert_int_equal(policy_of(7).priority, 61);
    assert_int_equal(policy_of(7).intent, KVO_INTENT_KEEP);
}

static void mechanism_is_made_anew_at_each_place(void **state)
{
    (void)state;
    kvo_pin p;
    open_store("dram:4blk,disk:@0:64blk");
    put_block();
    assert_int_equal(pin(7, &p), KVO_OK);
    assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
    kvo_block_info info = info_of(7);
    assert_int_equal(info.copy_count, 2);
    assert_int_equal(info.copies[0].pins, 1);
    assert_int_equal(info.copies[1].pins, 0);
    kvo_unpin(store, &p, 1);
    uint64_t offset = info.copies[1].offset_bytes;
    for (uint64_t i = 0; mask_of(7) & 1; i++)
        put(100 + i, 65536);
    close_store();
    /* Another place in the hierarchy: the slot is the medium's, all else is new. */
    open_store("dram:8blk,disk:@0:64blk");
    info = info_of(7);
    assert_int_equal(info.copy_count, 1);
    assert_int_equal(info.copies[0].tier, 1);
    assert_int_equal(info.copies[0].pins, 0);
    assert_int_equal(info.copies[0].offset_bytes, offset);
    assert_int_equal(pin(7, &p), KVO_OK);
    info = info_of(7);
    assert_int_equal(info.copy_count, 2);
    assert_int_equal(info.copies[0].pins, 1);
    check_valid();
}

static void a_directory_in_another_place_counts_its_demotions_anew(void **state)
{
    (void)state;
    open_store("dram:4blk,disk:@0:8blk");
    fill_with(0, 12, 65536);
    close_store();
    open_store("disk:@0:8blk,disk:@1:64blk"); /* what was tier 1 is tier 0 */
    fill_with(100, 40, 65536);
    check_valid();
    assert_true(tier_stat(1).max_delta <= 1);
    close_store();
    open_store("dram:4blk,dram:8blk,disk:@0:8blk,disk:@1:64blk");
    fill_with(200, 40, 65536);
    check_valid();
    close_store();
}

static void delta_is_one_over_promotions_and_restarts(void **state)
{
    (void)state;
    open_store("dram:4blk,disk:@0:64blk");
    put_block();
    for (unsigned round = 0; round < 4; round++) {
        for (uint64_t i = 0; (mask_of(7) & 1); i++)
            put(100 * (round + 1) + i, 65536);
        assert_int_equal(get(7, 50000), KVO_OK);
        assert_int_equal(info_of(7).delta[1], 1);
        close_store();
        open_store("dram:4blk,disk:@0:64blk");
        assert_int_equal(info_of(7).delta[1], 1);
        assert_int_equal(get(7, 50000), KVO_OK);
    }
    assert_int_equal(tier_stat(1).written_bytes, tier_stat(1).life_bytes);
    check_valid();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(identity_moves_unchanged_to_every_medium),
        FIXTURE_TEST(policy_stays_and_moves_no_byte),
        FIXTURE_TEST(mechanism_is_made_anew_at_each_place),
        FIXTURE_TEST(a_directory_in_another_place_counts_its_demotions_anew),
        FIXTURE_TEST(delta_is_one_over_promotions_and_restarts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
