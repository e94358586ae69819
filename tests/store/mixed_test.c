/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of different sizes share a tier without a fixed split: whatever size is put now gets the
 * room, within two capacities of puts, and rule 6 holds all the time.
 */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MIB = 1 << 20, CHAIN = 8 };
static const size_t small = 64 << 10, large = 5 << 20;

/* A store of up to four tiers; a disk lies in the fixture's directory of the same number. */
typedef struct shape {
    const char *what;
    uint32_t tier_count;
    struct {
        int kind;
        uint64_t mib;
    } tiers[KVO_TIERS_MAX];
} shape;

static const shape small_shapes[] = {
    {"memory alone", 1, {{KVO_TIER_DRAM, 64}}},
    {"disk alone", 1, {{KVO_TIER_DISK, 64}}},
    {"memory over disk", 2, {{KVO_TIER_DRAM, 48}, {KVO_TIER_DISK, 80}}},
    {"memory over a disk as large", 2, {{KVO_TIER_DRAM, 56}, {KVO_TIER_DISK, 56}}},
    {"memory over two disks", 3, {{KVO_TIER_DRAM, 48}, {KVO_TIER_DISK, 56}, {KVO_TIER_DISK, 112}}},
};
static const shape ghost_shapes[] = {
    {"ghost memory", 1, {{KVO_TIER_DRAM, 256}}},
    {"ghost disk", 1, {{KVO_TIER_DISK, 200}}},
    {"ghost memory over disk", 2, {{KVO_TIER_DRAM, 64}, {KVO_TIER_DISK, 250}}},
    {"ghost memory over a disk as large", 2, {{KVO_TIER_DRAM, 128}, {KVO_TIER_DISK, 128}}},
    {"ghost memory over two disks", 3, {{KVO_TIER_DRAM, 50}, {KVO_TIER_DISK, 80}, {KVO_TIER_DISK, 200}}},
};

typedef struct way {
    uint64_t block_bytes;
    bool ghost;
    bool two_spaces; /* small blocks in one, large ones in the other */
    bool read;       /* each fill is read back, which is a use */
    uint64_t chain;  /* blocks of a chain; each is one put */
} way;

static kvo_space spaces[2]; /* of small and of large blocks */
static uint64_t next_number;

static void shape_open(const shape *h, const way *w)
{
    kvo_tier_config tiers[KVO_TIERS_MAX];
    char paths[KVO_TIERS_MAX][128];
    kvo_error error = {{0}};
    for (uint32_t i = 0; i < h->tier_count; i++) {
        tiers[i] = (kvo_tier_config)KVO_TIER_CONFIG_INIT;
        tiers[i].kind = h->tiers[i].kind;
        tiers[i].capacity_bytes = h->tiers[i].mib * MIB;
        snprintf(paths[i], sizeof paths[i], "%s", fixture_path((int)i));
        tiers[i].path = h->tiers[i].kind == KVO_TIER_DISK ? paths[i] : NULL;
    }
    options.block_bytes = w->block_bytes;
    options.blocks_max = 20000;
    options.flags = KVO_OPEN_STEPPED | (w->ghost ? KVO_OPEN_GHOST : 0);
    if (kvo_open_tiers(tiers, h->tier_count, &options, &store, &error) != KVO_OK)
        fail_msg("%s: %s", h->what, error.text);
    spaces[1] = open_space("large", large);
    spaces[0] = w->two_spaces ? open_space("small", small) : spaces[1];
}

static void shape_close(const shape *h)
{
    check_valid();
    kvo_close(store, KVO_FOREVER); /* short where memory holds more than the disk takes */
    store = NULL;
    for (uint32_t i = 0; i < h->tier_count; i++)
        fixture_remove((int)i);
}

/* One put of a chain. */
static void put_chain(uint64_t first, uint64_t count, const size_t *bytes)
{
    static uint8_t *memory;
    if (memory == NULL)
        memory = malloc(CHAIN * large);
    kvo_segment segments[CHAIN];
    kvo_answer answers[CHAIN];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_names names = names_of(first, count);
    o.chained = 1;
    for (uint64_t i = 0; i < count; i++) {
        segments[i] = (kvo_segment){memory + i * large, bytes[i]};
        if (!store->ghost)
            payload_make(segments[i].base, bytes[i], first + i, 0);
    }
    kvo_memory m = {segments, NULL};
    assert_int_equal(kvo_put(store, &names, &m, &o, answers), KVO_OK);
    for (uint64_t i = 0; i < count; i++)
        if (answers[i].status != KVO_STORED)
            fail_msg("put of %zu bytes: %s", bytes[i], kvo_status_name(answers[i].status));
}

static void read_back(uint64_t number, size_t bytes)
{
    kvo_answer a;
    kvo_segment segment = {NULL, bytes};
    kvo_memory memory = {&segment, NULL};
    kvo_names names = names_of(number, 1);
    if (!store->ghost)
        get(number, bytes); /* asserts that the bytes are right */
    else
        assert_int_equal(kvo_get(store, &names, &memory, NULL, &a), KVO_OK);
}

/* Rule 6, and what may not happen where everything but the fill's own blocks may go. */
static void check_rules(const shape *h, bool orphans)
{
    check_valid();
    for (uint32_t i = 0; i < h->tier_count; i++) {
        kvo_tier_stat t = tier_stat(i);
        assert_true(t.max_delta <= 1);
        assert_true(orphans || t.orphans == 0);
        assert_true(i == 0 || t.written_bytes == t.life_bytes);
        assert_true(i + 1 == h->tier_count || t.other_evictions == t.anchor_yields);
    }
    assert_int_equal(store_stat().digest_misses, 0);
}

/* Two capacities of one size, after which it has the room. */
static void fill(const shape *h, const way *w, size_t bytes)
{
    uint64_t usable[KVO_TIERS_MAX], here[KVO_TIERS_MAX] = {0}, most = 0, first = next_number;
    size_t lengths[CHAIN];
    for (uint32_t t = 0; t < h->tier_count; t++) {
        usable[t] = place_capacity(&store->tiers[t].space, bytes);
        most = usable[t] > most ? usable[t] : most;
    }
    for (unsigned i = 0; i < CHAIN; i++)
        lengths[i] = bytes;
    space = spaces[bytes == large];
    for (; next_number < first + 2 * most; next_number += w->chain)
        put_chain(next_number, w->chain, lengths);
    check_rules(h, false);
    for (uint64_t i = first; i < next_number; i++) {
        kvo_answer a;
        exists(i, &a);
        for (uint32_t t = 0; t < h->tier_count; t++)
            here[t] += a.tier_mask >> t & 1;
    }
    for (uint32_t t = 0; t < h->tier_count; t++)
        if (here[t] * 10 < usable[t] * 9)
            fail_msg("%s, block_bytes %llu, chain %llu: tier %u has %llu of %llu blocks of %zu bytes", h->what,
                     (unsigned long long)w->block_bytes, (unsigned long long)w->chain, t, (unsigned long long)here[t],
                     (unsigned long long)usable[t], bytes);
    for (uint64_t i = first; w->read && i < next_number; i++)
        read_back(i, bytes);
    check_rules(h, false);
}

static void fills(const shape *shapes, size_t count, way w)
{
    for (size_t i = 0; i < count; i++) {
        shape_open(&shapes[i], &w);
        next_number = 1;
        fill(&shapes[i], &w, small);
        fill(&shapes[i], &w, large);
        fill(&shapes[i], &w, small);
        shape_close(&shapes[i]);
    }
}

#define SHAPES(list) list, sizeof list / sizeof *list

static void each_size_gets_the_room(void **state)
{
    (void)state;
    fills(SHAPES(small_shapes), (way){.block_bytes = small, .read = true, .chain = CHAIN});
}

static void whatever_the_usual_block_is(void **state)
{
    (void)state;
    static const uint64_t usual[] = {0, small, large};
    for (unsigned i = 0; i < 3; i++)
        for (uint64_t chain = 1; chain <= CHAIN; chain += CHAIN - 1) {
            bool odd = (i + chain) % 2;
            fills(SHAPES(ghost_shapes), (way){usual[i], true, odd, !odd, chain});
        }
}

/* ---- all sizes at once ---- */

static uint64_t random_state;
static double draw(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) / (double)(1ull << 53);
}

/* 1 byte to 5 MiB, as many of each power of two. */
static size_t draw_length(void) { return (size_t)exp(draw() * log((double)large)); }

/* Every put finds room, and what lies in the tiers is not much less than they hold: a part is lost to the
   rounding of sizes, and to segments of the rare ones that are not full. */
static void any_sizes(const shape *h, way w, uint64_t percent)
{
    enum { BLOCKS = 8000 };
    static size_t lengths[BLOCKS];
    uint64_t resident[KVO_TIERS_MAX] = {0}, total = 0, count = 0, most = 0;
    shape_open(h, &w);
    space = spaces[1];
    random_state = 1;
    for (uint32_t t = 0; t < h->tier_count; t++)
        most = h->tiers[t].mib > most ? h->tiers[t].mib : most;
    for (; count < BLOCKS && total < 2 * most * MIB; count++)
        total += lengths[count] = draw_length();
    count -= count % w.chain;
    for (uint64_t i = 0; i < count; i += w.chain)
        put_chain(1 + i, w.chain, &lengths[i]);
    check_rules(h, true);
    for (uint64_t i = 0; i < count; i++) {
        kvo_answer a;
        exists(1 + i, &a);
        for (uint32_t t = 0; t < h->tier_count; t++)
            resident[t] += a.tier_mask >> t & 1 ? lengths[i] : 0;
    }
    for (uint32_t t = 0; t < h->tier_count; t++)
        if (resident[t] * 100 < h->tiers[t].mib * MIB * percent)
            fail_msg("%s: tier %u holds %llu payload bytes", h->what, t, (unsigned long long)resident[t]);
    for (uint64_t i = 0; i < count; i++)
        if (exists(1 + i, NULL) == KVO_OK)
            read_back(1 + i, lengths[i]);
    check_rules(h, true);
    shape_close(h);
}

static void any_mix_of_sizes_finds_room(void **state)
{
    (void)state;
    static const shape large_ghosts[] = {
        {"ghost memory", 1, {{KVO_TIER_DRAM, 1024}}},
        {"ghost disk", 1, {{KVO_TIER_DISK, 512}}},
        {"ghost memory over disk", 2, {{KVO_TIER_DRAM, 256}, {KVO_TIER_DISK, 1024}}},
    };
    for (unsigned i = 0; i < sizeof large_ghosts / sizeof *large_ghosts; i++)
        any_sizes(&large_ghosts[i], (way){.block_bytes = small, .ghost = true, .chain = i % 2 ? CHAIN : 1}, 30);
    for (unsigned i = 0; i < sizeof small_shapes / sizeof *small_shapes; i++) /* a dozen segments for 68 sizes */
        any_sizes(&small_shapes[i], (way){.chain = i % 2 ? 1 : CHAIN}, 10);
}

/* ---- blocks to keep ---- */

/* A prefetch takes no room from them, whatever room segments of other sizes have left. */
static void a_prefetch_leaves_kept_blocks_of_any_size(void **state)
{
    (void)state;
    kvo_tier_config tiers[2] = {KVO_TIER_CONFIG_INIT, KVO_TIER_CONFIG_INIT};
    kvo_put_options keep = KVO_PUT_OPTIONS_INIT, written = KVO_PUT_OPTIONS_INIT;
    kvo_get_options now = KVO_GET_OPTIONS_INIT;
    kvo_answer answer;
    tiers[0].kind = KVO_TIER_DRAM;
    tiers[0].capacity_bytes = 18 * MIB;
    tiers[0].segment_bytes = 4 * MIB;
    tiers[1].kind = KVO_TIER_DISK;
    tiers[1].capacity_bytes = 64 * MIB;
    tiers[1].path = fixture_path(0);
    options.block_bytes = MIB;
    options.flags = KVO_OPEN_STEPPED;
    assert_int_equal(kvo_open_tiers(tiers, 2, &options, &store, NULL), KVO_OK);
    space = open_space("mixed", MIB);
    written.level = KVO_WRITTEN;
    assert_int_equal(put_as(1, MIB, 0, &written, NULL), KVO_STORED);
    keep.policy.intent = KVO_INTENT_KEEP;
    assert_int_equal(put_as(2, 4096, 0, &keep, NULL), KVO_STORED);
    for (uint64_t i = 0; i < 12; i++)
        assert_int_equal(put_as(100 + i, MIB, 0, &keep, NULL), KVO_STORED);
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, 2);
    uint64_t before = tier_stat(0).resident_blocks;
    kvo_names names = names_of(1, 1);
    now.deadline_ns = 0;
    assert_int_equal(kvo_prefetch(store, &names, &now, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_BUSY);
    assert_int_equal(tier_stat(0).resident_blocks, before);
    for (uint64_t i = 0; i < 13; i++) {
        assert_int_equal(exists(i ? 99 + i : 2, &answer), KVO_OK);
        assert_true(answer.tier_mask & 1);
    }
    check_valid();
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(each_size_gets_the_room),
        FIXTURE_TEST(whatever_the_usual_block_is),
        FIXTURE_TEST(any_mix_of_sizes_finds_room),
        FIXTURE_TEST(a_prefetch_leaves_kept_blocks_of_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
