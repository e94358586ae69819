/* SPDX-License-Identifier: Apache-2.0 */
/* More blocks than fit one page, one pass or one read of the tables that are written out. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fixture.h"

enum { BYTES = 512, BLOCKS = 17000, BATCH = 1000 };

static int open_large(kvo_error *error)
{
    kvo_tier_config disk = KVO_TIER_CONFIG_INIT;
    kvo_options o = options;
    disk.kind = KVO_TIER_DISK;
    disk.path = fixture_path(0);
    disk.capacity_bytes = 512u << 20;
    disk.segment_bytes = 64u << 20;
    o.block_bytes = 4096;
    o.flags |= KVO_OPEN_STEPPED;
    return kvo_open_tiers(&disk, 1, &o, &store, error);
}

static void put_all(void)
{
    static _Alignas(4096) uint8_t payload[BATCH][BYTES];
    static kvo_segment segments[BATCH];
    static kvo_answer answers[BATCH];
    kvo_memory memory = {segments, NULL};
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    for (uint64_t first = 0; first < BLOCKS; first += BATCH) {
        for (uint64_t i = 0; i < BATCH; i++) {
            payload_make(payload[i], BYTES, first + i, 0);
            segments[i] = (kvo_segment){payload[i], BYTES};
        }
        kvo_names names = names_of(first, BATCH);
        assert_int_equal(kvo_put(store, &names, &memory, &o, answers), KVO_OK);
        for (size_t i = 0; i < BATCH; i++)
            assert_int_equal(answers[i].status, KVO_STORED);
    }
}

static void set_priorities(uint32_t of_the_rest)
{
    const kvo_target all = {.by = KVO_BY_ALL};
    kvo_policy policy = KVO_POLICY_INIT;
    policy.priority = (uint8_t)of_the_rest;
    assert_int_equal(kvo_policy_set(store, &all, &policy, KVO_POLICY_PRIORITY, NULL, NULL), KVO_OK);
    policy.priority = 77;
    assert_int_equal(set_policy(BLOCKS - 1, &policy, KVO_POLICY_PRIORITY), KVO_OK);
}

static void check_all(uint32_t of_the_rest)
{
    assert_int_equal(store_stat().blocks, BLOCKS);
    for (uint64_t i = 0; i < BLOCKS; i += 1 + i % 7)
        assert_int_equal(policy_of(i).priority, i == BLOCKS - 1 ? 77 : of_the_rest);
    assert_int_equal(policy_of(BLOCKS - 1).priority, 77);
    for (uint64_t i = 0; i < BLOCKS; i += 997)
        assert_int_equal(get(i, BYTES), KVO_OK);
}

static void seventeen_thousand_blocks_come_back(void **state)
{
    (void)state;
    char path[160];
    kvo_error error = {{0}};
    if (open_large(&error) == KVO_E_NO_SPACE) {
        print_message("skipped: %s\n", error.text);
        skip();
    }
    space = open_space("a", 4096);
    put_all();
    set_priorities(20);
    close_store();
    assert_int_equal(open_large(&error), KVO_OK); /* from the checkpoint, of more than 512 pages */
    assert_int_equal(store_stat().headers_read, 0);
    check_all(20);
    set_priorities(30);
    close_store();
    snprintf(path, sizeof path, "%s/checkpoint", fixture_path(0));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(open_large(&error), KVO_OK); /* from the headers and the policy records */
    assert_true(store_stat().headers_read >= BLOCKS);
    check_all(30);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {FIXTURE_TEST(seventeen_thousand_blocks_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
