/* SPDX-License-Identifier: Apache-2.0 */
/* Placement apart from the store: keys, victims and segments against models, departed names. */
#include "test.h"

#include <stdlib.h>

#include "place/memory.h"
#include "place/victims.h"

static uint64_t random_state;

static uint32_t draw(uint32_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % limit;
}

/* ---- keys ---- */

static uint64_t policy_word(unsigned intent, unsigned qos, unsigned priority, unsigned reuse, uint32_t deadline)
{
    kvo_policy p = {
        .qos = (uint8_t)qos, .priority = (uint8_t)priority, .reuse = (uint8_t)reuse, .intent = (uint8_t)intent};
    return policy_change_of(&p, KVO_POLICY_ALL, 0).set | (uint64_t)deadline << 35;
}

static void keys_order_by_intent_qos_priority_and_score(void **state)
{
    (void)state;
    place_rules r = {KVO_PLACE_CREDIT, 100, 50};
    uint64_t most = touch_make(TOUCH_RECENCY_MASK, TOUCH_USES_MAX), least = touch_make(1, 1);
    const uint64_t rising[] = {
        place_key(&r, policy_word(KVO_INTENT_DROP, 3, 100, 100, 0), most, 0),
        place_key(&r, policy_word(KVO_INTENT_DEMOTE, 3, 100, 100, 0), most, 0),
        place_key(&r, policy_word(0, 0, 100, 100, 0), most, 0),
        place_key(&r, policy_word(0, 1, 0, 0, 0), least, 0),
        place_key(&r, policy_word(0, 1, 1, 0, 0), least, 0),
        place_key(&r, policy_word(0, 1, 1, 0, 0), touch_make(2, 1), 0),
        place_key(&r, policy_word(0, 1, 1, 0, 0), touch_make(1, 2), 0),   /* one more use: 100 */
        place_key(&r, policy_word(0, 1, 1, 50, 0), touch_make(2, 1), 0),  /* reuse 50: two uses */
        place_key(&r, policy_word(0, 1, 1, 0, 0), touch_make(1, 4), 0),
        place_key(&r, policy_word(KVO_INTENT_KEEP, 0, 0, 0, 51), least, 0),
    };
    for (size_t i = 1; i < sizeof rising / sizeof *rising; i++)
        assert_true(rising[i - 1] < rising[i]);
    /* Four uses are all that count, an intent ends with its deadline, demote is of the first tier. */
    assert_true(place_key(&r, 0, touch_make(1, 4), 0) == place_key(&r, 0, touch_make(1, 900), 0));
    assert_true(place_key(&r, policy_word(KVO_INTENT_KEEP, 0, 0, 0, 49), least, 0) == place_key(&r, 0, least, 0));
    assert_true(place_key(&r, policy_word(KVO_INTENT_DEMOTE, 0, 0, 0, 0), least, 1) == place_key(&r, 0, least, 1));
    r.placement = KVO_PLACE_LRU;
    assert_true(place_key(&r, policy_word(0, 0, 0, 100, 0), touch_make(7, 4), 0) ==
                place_key(&r, 0, touch_make(7, 1), 0));
}

static void departed_names_are_remembered_for_a_while(void **state)
{
    (void)state;
    place_memory m;
    assert_int_equal(place_memory_open(&m, base_env_posix(), 1000), 0);
    for (uint64_t i = 1; i <= 500; i++)
        place_memory_put(&m, i * 0x9e3779b97f4a7c15u, (uint32_t)(i % 6), i);
    unsigned right = 0;
    for (uint64_t i = 1; i <= 500; i++) {
        uint32_t uses = place_memory_take(&m, i * 0x9e3779b97f4a7c15u, 600), had = (uint32_t)(i % 6);
        right += uses == (had > 4 ? 4 : had);
        assert_int_equal(place_memory_take(&m, i * 0x9e3779b97f4a7c15u, 600), 0); /* once */
    }
    assert_true(right >= 495); /* 18 bits of a name */
    place_memory_put(&m, 77, 3, 1000);
    assert_int_equal(place_memory_take(&m, 77, 1000 + 8 * 1000 + 1000), 0); /* too long ago */
    place_memory_close(&m);
    assert_int_equal(place_memory_open(&m, base_env_posix(), 0), 0); /* infinite capacity: moot */
    place_memory_put(&m, 77, 3, 1);
    assert_int_equal(place_memory_take(&m, 77, 1), 0);
    place_memory_close(&m);
}

/* ---- victims ---- */

enum { RECORDS = 300, WANT = 8 };

static block_record records[RECORDS];
static block_identity_words identities[RECORDS];
static place_scan scan;

static void set_record(uint32_t i, uint32_t parent, uint64_t recency)
{
    block_identity identity = {.key_hash = i + 1, .parent_hash = parent == BLOCK_NONE ? 0 : parent + 1};
    identity_store(&identities[i], &identity);
    uint32_t depth = parent == BLOCK_NONE ? 0 : tree_depth(records[parent].tree) + 1;
    records[i].policy = 0;
    records[i].touch = touch_make(recency, 1);
    records[i].life = life_make(1, 0, NULL, LIFE_USED | LIFE_SEALED);
    records[i].tree = tree_make(parent, depth);
    for (unsigned t = 0; t < KVO_TIERS_MAX; t++)
        records[i].copy[t] = 0;
    records[i].copy[1] = copy_make(i, BLOCK_VALID, 0, 0);
}

static place_query query_of(uint32_t want)
{
    return (place_query){.records = records,
                         .identities = identities,
                         .record_end = RECORDS,
                         .rules = {KVO_PLACE_LRU, 10, 0},
                         .tier = 1,
                         .tier_count = 3,
                         .anchored = true,
                         .want = want};
}

static int may_go(uint32_t i)
{
    uint64_t life = records[i].life;
    return copy_idle(records[i].copy[1]) && life_live(life) && !life_has(life, LIFE_HELD) &&
           copy_state(records[i].copy[0]) == BLOCK_EMPTY;
}

static int has_child(uint32_t i, const place_victim *gone, uint32_t count)
{
    for (uint32_t c = 0; c < RECORDS; c++) {
        int left = 0;
        for (uint32_t k = 0; k < count; k++)
            left |= gone[k].record == c;
        if (!left && tree_parent(records[c].tree) == i && life_has(records[c].life, LIFE_USED) &&
            copy_state(records[c].copy[1]) != BLOCK_EMPTY)
            return 1;
    }
    return 0;
}

/* A random forest in which some are pinned, held, moving, above, absent, unsealed. */
static void make_forest(unsigned odd)
{
    for (uint32_t i = 0; i < RECORDS; i++) {
        set_record(i, i && draw(4) ? draw(i) : BLOCK_NONE, 1 + draw(5000));
        if (draw(100) >= odd)
            continue;
        switch (draw(6)) {
        case 0:
            records[i].copy[1] += COPY_PIN;
            break;
        case 1:
            records[i].copy[1] |= COPY_MOVING;
            break;
        case 2:
            records[i].life |= LIFE_FLAG(LIFE_HELD);
            break;
        case 3:
            records[i].copy[0] = copy_make(i, BLOCK_VALID, 0, 0);
            break;
        case 4:
            records[i].copy[1] = 0;
            records[i].copy[2] = copy_make(i, BLOCK_VALID, 0, 0);
            break;
        default:
            records[i].copy[1] = (records[i].copy[1] & ~COPY_STATE_MASK) | (uint64_t)BLOCK_FILLING << 44;
        }
    }
}

static void no_victim_leaves_a_child_behind(void **state)
{
    (void)state;
    place_victim out[PLACE_VICTIMS_MAX];
    for (random_state = 1; random_state < 400; random_state++) {
        uint64_t seed = random_state;
        make_forest((unsigned)(seed % 80));
        place_query q = query_of(1 + draw(WANT));
        place_found found = place_victims(&scan, &q, out);
        uint32_t eligible = 0, leaves = 0;
        for (uint32_t i = 0; i < RECORDS; i++) {
            eligible += may_go(i) != 0;
            leaves += may_go(i) && !has_child(i, NULL, 0);
        }
        assert_true(found.count <= q.want);
        assert_int_equal(found.count > 0, eligible > 0);
        for (uint32_t k = 0; k < found.count; k++) {
            assert_true(may_go(out[k].record));
            assert_int_equal(out[k].orphan, has_child(out[k].record, out, k));
            assert_true(!out[k].orphan || leaves == 0); /* rule 9: only if all have one */
        }
        random_state = seed;
    }
}

static int by_touch(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void without_a_tree_the_lowest_go_in_order(void **state)
{
    (void)state;
    place_victim out[PLACE_VICTIMS_MAX];
    uint64_t sorted[RECORDS];
    random_state = 5;
    for (uint32_t i = 0; i < RECORDS; i++) {
        set_record(i, BLOCK_NONE, 1 + i * 7919ull % 10007);
        sorted[i] = records[i].touch;
    }
    qsort(sorted, RECORDS, sizeof *sorted, by_touch);
    for (uint32_t want = 1; want <= RECORDS; want += 50) {
        place_query q = query_of(want);
        assert_int_equal(place_victims(&scan, &q, out).count, want);
        for (uint32_t k = 0; k < want; k++)
            assert_true(out[k].touch == sorted[k]);
    }
}

/* A policy trap: the parent is worth least and its chain most; strangers lie between. */
static void a_worthless_head_waits_for_its_precious_tail(void **state)
{
    (void)state;
    place_victim out[PLACE_VICTIMS_MAX];
    for (uint32_t i = 0; i < RECORDS; i++)
        set_record(i, i && i < 100 ? i - 1 : BLOCK_NONE, i < 100 ? i + 1 : 1000 + i);
    records[99].policy = policy_word(KVO_INTENT_KEEP, 3, 100, 0, 0);
    place_query q = query_of(WANT);
    place_found found = place_victims(&scan, &q, out);
    assert_int_equal(found.count, WANT);
    for (uint32_t k = 0; k < WANT; k++)
        assert_int_equal(out[k].record, 100 + k);
}

static void a_chain_alone_goes_from_its_end(void **state)
{
    (void)state;
    place_victim out[PLACE_VICTIMS_MAX];
    for (uint32_t i = 0; i < RECORDS; i++)
        set_record(i, i ? i - 1 : BLOCK_NONE, i + 1); /* heads are oldest */
    place_query q = query_of(WANT);
    place_found found = place_victims(&scan, &q, out);
    assert_true(found.count >= 1);
    for (uint32_t k = 0; k < found.count; k++)
        assert_int_equal(out[k].record, RECORDS - 1 - k);
}

static void anchors_are_counted_apart(void **state)
{
    (void)state;
    place_victim out[PLACE_VICTIMS_MAX];
    for (uint32_t i = 0; i < RECORDS; i++) {
        set_record(i, BLOCK_NONE, i + 1);
        records[i].copy[0] = copy_make(i, BLOCK_VALID, 0, 0);
    }
    place_query q = query_of(WANT);
    place_found found = place_victims(&scan, &q, out);
    assert_int_equal(found.count, 0);
    assert_int_equal(found.eligible, 0);
    assert_int_equal(found.anchored, RECORDS);
    q.tier = 0; /* nothing above it */
    assert_int_equal(place_victims(&scan, &q, out).count, WANT);
}

/* ---- segments ---- */

enum { SLOTS_MAX = 4096 };

typedef struct taken {
    uint32_t slot, stride;
} taken;

static void check_apart(const taken *list, uint32_t count)
{
    static uint8_t units[1 << 16];
    memset(units, 0, sizeof units);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t u = 0; u < list[i].stride; u++)
            assert_int_equal(units[list[i].slot + u]++, 0);
}

static uint32_t number_of(const place_segments *p, uint32_t slot)
{
    return place_number_at(p, place_segment_of(p, slot), place_slot_index(p, slot));
}

static void slots_never_overlap(void **state)
{
    (void)state;
    static taken list[SLOTS_MAX];
    const uint32_t strides[] = {2, 3, 17, 18, 33};
    for (uint32_t header = 0; header < 2; header++) {
        place_segments p;
        place_geometry g;
        uint32_t count = 0, refused = 0;
        assert_true(place_geometry_bytes(&g, header, 40u << 20, 65536, 0, 0));
        assert_int_equal(place_segments_open(&p, base_env_posix(), &g, 65536, true), 0);
        size_t bytes = p.bytes;
        random_state = 3 + header;
        for (unsigned step = 0; step < 20000; step++) {
            if (draw(5) < 3 && count < SLOTS_MAX) {
                uint32_t stride = place_stride(&p, strides[draw(5)] * PLACE_UNIT - 1);
                uint32_t slot = place_slot_take(&p, stride);
                refused += slot == PLACE_SLOT_NONE;
                if (slot != PLACE_SLOT_NONE) {
                    assert_int_equal(number_of(&p, slot), 0);
                    place_slot_number(&p, slot, slot + 1);
                    list[count++] = (taken){slot, stride};
                }
            } else if (count) {
                uint32_t k = draw(count);
                assert_int_equal(number_of(&p, list[k].slot), list[k].slot + 1);
                place_slot_free(&p, list[k].slot);
                assert_false(place_slot_used(&p, list[k].slot));
                list[k] = list[--count];
            }
            assert_int_equal(p.used_slots, count);
            if (step % 500 == 0)
                check_apart(list, count);
        }
        assert_true(refused > 0 && count > 100);
        while (count)
            place_slot_free(&p, list[--count].slot);
        assert_int_equal(p.used_units, 0);
        assert_int_equal(p.bytes, bytes); /* tables of segments with smaller slots are gone */
        assert_int_not_equal(place_slot_take(&p, place_stride(&p, 65536)), PLACE_SLOT_NONE);
        place_segments_close(&p);
    }
}

/* A segment whose slots no table can be had for has as many as the usual one covers. */
static void *no_memory(base_env *env, size_t bytes)
{
    (void)env, (void)bytes;
    return NULL;
}

static void without_memory_a_segment_has_fewer_slots(void **state)
{
    (void)state;
    place_segments p;
    place_geometry g;
    base_env env = *base_env_posix();
    assert_true(place_geometry_blocks(&g, 0, 64, 65536, 0));
    assert_int_equal(place_segments_open(&p, &env, &g, 65536, true), 0);
    env.alloc = no_memory;
    uint32_t small = place_stride(&p, 4096), slot = place_slot_take(&p, small), got = 1;
    place_slot_number(&p, slot, 7);
    assert_true(p.short_of_memory);
    while (place_slot_take(&p, small) != PLACE_SLOT_NONE)
        got++;
    assert_int_equal(got, 64);
    assert_int_equal(number_of(&p, slot), 7);
    assert_int_equal(place_number_at(&p, 0, p.usual_slots), 0);
    place_segments_close(&p);
}

static void a_draining_segment_gives_out_nothing_and_turns(void **state)
{
    (void)state;
    place_segments p;
    place_geometry g;
    assert_true(place_geometry_blocks(&g, 1, 8, 3 * PLACE_UNIT, 1 + 8 * 4)); /* one segment of eight */
    assert_int_equal(g.segment_count, 1);
    place_segments_open(&p, base_env_posix(), &g, 4096, true);
    uint32_t stride = place_stride(&p, 3 * PLACE_UNIT), other = place_stride(&p, PLACE_UNIT);
    uint32_t a = place_slot_take(&p, stride), b = place_slot_take(&p, stride);
    uint32_t epoch = p.segments[0].epoch;
    assert_int_equal(place_slot_take(&p, other), PLACE_SLOT_NONE);
    place_segment_drain(&p, 0);
    assert_int_equal(place_slot_take(&p, stride), PLACE_SLOT_NONE);
    assert_false(place_slot_retake(&p, b + stride));
    place_slot_free(&p, a);
    place_slot_free(&p, b);
    assert_int_not_equal(place_slot_take(&p, other), PLACE_SLOT_NONE);
    assert_int_equal(p.segments[0].epoch, epoch + 1);
    assert_false(place_only_stride(&p, stride));
    assert_true(place_only_stride(&p, other));
    place_segments_close(&p);
}

static void restored_slots_are_where_the_medium_has_them(void **state)
{
    (void)state;
    place_segments p;
    place_geometry g;
    assert_true(place_geometry_blocks(&g, 1, 64, 65536, 0));
    place_segments_open(&p, base_env_posix(), &g, 4096, true);
    assert_true(place_segment_restore(&p, 1, 2, 9));
    assert_false(place_segment_restore(&p, 1, 3, 9));          /* it has one */
    assert_false(place_segment_restore(&p, 99, 2, 9));         /* beyond the end */
    assert_false(place_segment_restore(&p, 2, 1, 9));          /* a header alone */
    assert_false(place_segment_restore(&p, 2, 1u << 20, 9));
    uint32_t first = g.segment_units + 1;
    assert_true(place_slot_restore(&p, first));
    assert_false(place_slot_restore(&p, first));     /* twice */
    assert_false(place_slot_restore(&p, first + 1)); /* between two */
    assert_false(place_slot_restore(&p, 1));         /* of a free segment */
    assert_int_equal(place_slot_take(&p, 2), first + 2);
    place_slot_free(&p, first);
    assert_true(place_slot_retake(&p, first));
    place_segments_release(&p);
    assert_int_equal(p.used_slots, 2);
    place_segments_close(&p);
}

static void geometries_hold_what_was_asked_for(void **state)
{
    (void)state;
    for (uint64_t blocks = 1; blocks < 3000; blocks = blocks * 3 / 2 + 1)
        for (uint32_t header = 0; header < 2; header++) {
            place_geometry g;
            place_segments p;
            assert_true(place_geometry_blocks(&g, header, blocks, 65536, 0));
            place_segments_open(&p, base_env_posix(), &g, 4096, true);
            assert_int_equal(place_capacity(&p, 65536), blocks);
            uint64_t got = 0;
            uint32_t stride = place_stride(&p, 65536);
            while (place_slot_take(&p, stride) != PLACE_SLOT_NONE)
                got++;
            assert_int_equal(got, blocks);
            place_segments_close(&p);
        }
    place_geometry g;
    assert_false(place_geometry_blocks(&g, 1, 0, 65536, 0));
    assert_false(place_geometry_bytes(&g, 1, 4096, 65536, 0, 0));
    assert_false(place_geometry_bytes(&g, 1, 1ull << 60, 65536, 0, 0));
}

static int open_scan(void **state)
{
    (void)state;
    return place_scan_open(&scan, base_env_posix(), RECORDS);
}

static int close_scan(void **state)
{
    (void)state;
    place_scan_close(&scan);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_order_by_intent_qos_priority_and_score),
        cmocka_unit_test(departed_names_are_remembered_for_a_while),
        cmocka_unit_test(no_victim_leaves_a_child_behind),
        cmocka_unit_test(without_a_tree_the_lowest_go_in_order),
        cmocka_unit_test(a_worthless_head_waits_for_its_precious_tail),
        cmocka_unit_test(a_chain_alone_goes_from_its_end),
        cmocka_unit_test(anchors_are_counted_apart),
        cmocka_unit_test(slots_never_overlap),
        cmocka_unit_test(without_memory_a_segment_has_fewer_slots),
        cmocka_unit_test(a_draining_segment_gives_out_nothing_and_turns),
        cmocka_unit_test(restored_slots_are_where_the_medium_has_them),
        cmocka_unit_test(geometries_hold_what_was_asked_for),
    };
    return cmocka_run_group_tests(tests, open_scan, close_scan);
}
