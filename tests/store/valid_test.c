/* SPDX-License-Identifier: Apache-2.0 */
/* store_valid() is what most harnesses ask after each step. Here each invariant is broken by hand: it says which. */
#include <stdlib.h>

#include "fixture.h"
#include "store/store.h"

static void must_say(const char *what)
{
    char why[256] = "";
    if (store_valid(store, why, sizeof why))
        fail_msg("nothing is said, instead of \"%s\"", what);
    if (strstr(why, what) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", why, what);
}

/* One field is another value for the time of a look. */
#define BROKEN(field, value, what)      \
    do {                                \
        __typeof__(field) was = field;  \
        field = value;                  \
        must_say(what);                 \
        field = was;                    \
        check_valid();                  \
    } while (0)

static uint32_t record_of(uint64_t number) { return handle_record(info_of(number).handle); }

static void counts_that_differ_from_the_records_are_told(void **state)
{
    (void)state;
    kvo_pin held;
    open_store("dram:16blk,disk:@0:64blk");
    assert_int_equal(fill_with(0, 30, 65536), 30);
    assert_int_equal(drop(3, KVO_SEALED), KVO_OK);
    assert_int_equal(pin(29, &held), KVO_OK);
    check_valid();
    BROKEN(store->blocks, was + 1, "blocks, counted");
    BROKEN(store->reserved, was + 1, "reserved, counted");
    BROKEN(store->pinned, was + 1, "pins, copies have");
    BROKEN(store->free_first, 0, "used and");
    BROKEN(store->records[store->free_first - 1].tree, tree_make(store->free_first - 1, 0), "has a loop");
    for (unsigned t = 0; t < 2; t++) {
        store_tier *tier = &store->tiers[t];
        BROKEN(tier->resident, was + 1, "resident, counted");
        BROKEN(tier->space.used_slots, was + 1, "slots in use, records have");
        BROKEN(tier->space.classes[0].free_slots, was + 1, "free slots, counted");
        BROKEN(tier->space.segments[0].used, was + 1, "tier");
        BROKEN(tier->demoting, true, "demoting at rest");
        ledger_add(&store->ledger, tier->account, LEDGER_WRITE, KVO_CAUSE_PUT, 0, 5, 1);
        must_say("by the ledger");
        ledger_add(&store->ledger, tier->account, LEDGER_LEFT, KVO_CAUSE_REMOVE, 0, 3, 1);
        must_say("by the ledger"); /* of bytes alone */
        ledger_add(&store->ledger, tier->account, LEDGER_LEFT, KVO_CAUSE_REMOVE, 0, 2, 0);
        check_valid();
    }
    assert_int_equal(kvo_unpin(store, &held, 1), KVO_OK);
    close_store();
}

static void records_that_say_what_is_not_are_told(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:64blk");
    assert_int_equal(fill_with(0, 30, 65536), 30);
    block_record *r = &store->records[record_of(29)], *below = &store->records[record_of(1)];
    BROKEN(r->copy[3], copy_make(0, BLOCK_VALID, 0, 0), "a copy in no tier");
    BROKEN(r->copy[0], 0, "sealed and in no tier");
    uint32_t other = copy_slot(store->records[record_of(2)].copy[1]);
    BROKEN(below->copy[1], copy_make(other, BLOCK_VALID, 0, 0), "belongs to another");
    assert_int_equal(drop(2, KVO_SEALED), KVO_OK);
    BROKEN(below->copy[1], copy_make(other, BLOCK_VALID, 0, 0), "is not in use");
    BROKEN(r->tree, tree_make(store->record_end + 5, 0), "its parent is no record");
    BROKEN(below->life, was & ~LIFE_FLAG(LIFE_USED), "free record");
    BROKEN(below->life, life_add_delta(was, 1), "rule 6");
    BROKEN(below->life, was & ~LIFE_FLAG(LIFE_SEALED), "counted");
    BROKEN(store->identities[record_of(29)].word[0], was + 1, "its key hash is wrong");
    uint64_t hash = identity_hash_of(&store->identities[record_of(29)]);
    index_remove(&store->index, hash, (uint32_t)(r - store->records));
    must_say("is not what the index has");
    assert_true(index_insert(&store->index, hash, (uint32_t)(r - store->records)));
    check_valid();
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(counts_that_differ_from_the_records_are_told),
        FIXTURE_TEST(records_that_say_what_is_not_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
