/* SPDX-License-Identifier: Apache-2.0 */
/* A segment that changes its slot size gives up chains from their end, and says where it cannot. */
#include "fixture.h"

#include <stdlib.h>

enum { BLOCKS = 512 };
static const size_t small = 65536, large = 1 << 20;

/* From the store's own events: which blocks of the chain are in the tier. */
static bool here[BLOCKS];
static uint64_t orphans; /* evictions of a block whose child stayed */
static uint64_t parent_of[BLOCKS];

static uint64_t number_of(const kvo_event *event)
{
    uint8_t name[NAME_BYTES];
    for (uint64_t i = 0; i < BLOCKS; i++) {
        name_of(i, name);
        if (memcmp(name, event->name, NAME_BYTES) == 0)
            return i;
    }
    return BLOCKS;
}

static void on_event(void *context, const kvo_event *event)
{
    (void)context;
    if (event->tier != 0 || (event->type != KVO_EVENT_SEAL && event->type != KVO_EVENT_DROP))
        return;
    uint64_t n = number_of(event);
    if (n == BLOCKS)
        return;
    here[n] = event->type == KVO_EVENT_SEAL;
    if (event->type == KVO_EVENT_SEAL)
        return;
    for (uint64_t i = 0; i < BLOCKS; i++)
        if (here[i] && parent_of[i] == n) {
            orphans++;
            return;
        }
}

static void put_child(uint64_t number, uint64_t parent)
{
    uint8_t name[NAME_BYTES];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    parent_of[number] = parent;
    if (parent < BLOCKS) {
        name_of(parent, name);
        o.parents = name;
    }
    assert_int_equal(put_as(number, small, 0, &o, NULL), KVO_STORED);
}

/* `length`: of each chain; the chains take turns, so that each lies in every segment. */
static void chains_give_way(uint64_t length)
{
    uint64_t chains = BLOCKS / length;
    memset(here, 0, sizeof here);
    orphans = 0;
    options.block_bytes = large;
    options.on_event = on_event;
    open_more("dram:32blk");
    for (uint64_t i = 0; i < chains * length; i++) /* block i of chain c: i * chains + c */
        put_child(i, i < chains ? BLOCKS : i - chains);
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(put(10000 + i, large), KVO_STORED);
    check_valid();
    assert_true(tier_stat(0).other_evictions > 0);
    assert_int_equal(tier_stat(0).orphans, orphans);
    close_store();
}

static void one_chain_leaves_from_its_end(void **state)
{
    (void)state;
    chains_give_way(BLOCKS);
    assert_int_equal(orphans, 0);
    assert_true(here[0]); /* closing is no event of this kind */
}

/* Every segment has heads with children elsewhere, and middles. */
static void chains_across_all_segments_are_counted(void **state)
{
    (void)state;
    chains_give_way(4);
    chains_give_way(32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(one_chain_leaves_from_its_end),
        FIXTURE_TEST(chains_across_all_segments_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
