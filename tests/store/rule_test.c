/* SPDX-License-Identifier: Apache-2.0 */
/* Rules on the shortest way to break them: what a library without anchoring, or without digests, fails first. */
#include "fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Rule 6, on the traffic that breaks it in two ordinary LRU tiers of one size: some blocks come up
   again and stay above, in use, until the lower tier has turned over; then they leave once more. */
static void a_block_is_demoted_once_in_its_life(void **state)
{
    (void)state;
    enum { HOT = 8, SLOTS = 32 };
    uint64_t stranger = 1000;
    options.placement = KVO_PLACE_LRU;
    open_store("dram:32blk,disk:@0:32blk");
    fill_with(0, HOT, 65536);
    for (unsigned round = 0; round < 3; round++) {
        stranger += fill_with(stranger, SLOTS, 65536);
        for (unsigned i = 0; i < 4 * SLOTS; i++) {
            get(i % HOT, 65536);
            stranger += fill_with(stranger, 1, 65536);
        }
    }
    assert_int_equal(tier_stat(1).max_delta, 1);
    assert_int_equal(tier_stat(1).written_bytes, tier_stat(1).life_bytes);
    check_valid();
}

/* Rule 5: what lies nowhere below is brought there before it leaves. */
static void nothing_is_lost_while_there_is_room_below(void **state)
{
    (void)state;
    open_store("dram:4blk,disk:@0:64blk");
    assert_int_equal(fill_with(0, 40, 65536), 40);
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(get(i, 65536), KVO_OK);
    assert_int_equal(tier_stat(0).other_evictions, 0);
    assert_int_equal(tier_stat(1).written_bytes, tier_stat(1).life_bytes);
    check_valid();
}

/* Rule 2: a byte in the middle of a payload is flipped on the medium. */
static void a_damaged_payload_is_a_miss(void **state)
{
    (void)state;
    char path[128];
    open_store("dram:4blk,disk:@0:64blk");
    put(1, 50000);
    kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL);
    uint64_t offset = info_of(1).copies[1].offset_bytes + 4096 + 20000;
    close_store();
    snprintf(path, sizeof path, "%s/data", fixture_path(0));
    int file = open(path, O_RDWR);
    uint8_t byte;
    assert_int_equal(pread(file, &byte, 1, (off_t)offset), 1);
    byte ^= 16;
    assert_int_equal(pwrite(file, &byte, 1, (off_t)offset), 1);
    close(file);
    open_store("dram:4blk,disk:@0:64blk");
    assert_int_equal(get(1, 50000), KVO_MISS); /* get() fails on wrong bytes */
    assert_int_equal(store_stat().digest_misses, 1);
    assert_int_equal(put(1, 50000), KVO_STORED);
    assert_int_equal(get(1, 50000), KVO_OK);
    check_valid();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_block_is_demoted_once_in_its_life),
        FIXTURE_TEST(nothing_is_lost_while_there_is_room_below),
        FIXTURE_TEST(a_damaged_payload_is_a_miss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
