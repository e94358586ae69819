/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must not hold in a library with one rule broken on purpose: each test here passes in a sound
 * library and fails in the one that run.py builds without that rule (suite `fault`, should_fail).
 * The argument names the rule.
 */
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

int main(int count, char **arguments)
{
    const struct CMUnitTest anchor[] = {FIXTURE_TEST(a_block_is_demoted_once_in_its_life)};
    const struct CMUnitTest digest[] = {FIXTURE_TEST(a_damaged_payload_is_a_miss)};
    if (count == 2 && strcmp(arguments[1], "anchor") == 0)
        return cmocka_run_group_tests(anchor, NULL, NULL);
    if (count == 2 && strcmp(arguments[1], "digest") == 0)
        return cmocka_run_group_tests(digest, NULL, NULL);
    return 2;
}
