/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy goes bad, on each tier. The read is a miss, the next look-up too, the next put stores, the next get is right,
 * also after a kill; a good copy below serves instead; the neighbours are as they were. Most peers answer "hit" for
 * ever, fail each load, and drop each store as a duplicate.
 */
#include "nth.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tier/tier.h"

enum { BYTES = 65536, ALL_TIERS = 0xff };

/* ---- damage ---- */

static void flip_in_memory(unsigned tier, uint64_t offset, uint64_t bit)
{
    uint8_t *memory = tier_memory(store->tiers[tier].io, (uint32_t)(offset / 4096));
    memory[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

/* One bit of the payload of each copy in these tiers. Disk tier t's directory is the one given. */
static unsigned flip(uint64_t number, unsigned mask, const int *directories, uint64_t bit)
{
    kvo_block_info info = info_of(number);
    unsigned flipped = 0;
    for (uint32_t i = 0; i < info.copy_count; i++) {
        const kvo_copy_info *copy = &info.copies[i];
        if (!(mask >> copy->tier & 1))
            continue;
        if (directories[copy->tier] < 0)
            flip_in_memory(copy->tier, copy->offset_bytes, bit);
        else
            nth_flip(directories[copy->tier], "data", (copy->offset_bytes + 4096) * 8 + bit);
        flipped++;
    }
    return flipped;
}

typedef struct place {
    const char *tiers;
    const int directories[3]; /* of each tier; -1: memory */
    unsigned holds;           /* tiers that hold the block when a bit turns */
    unsigned bad;             /* of them, where it does */
} place;

static const place places[] = {
    {"dram:16blk", {-1}, 1, 1},
    {"disk:@0:64blk", {0}, 1, 1},
    {"dram:4blk,dram:16blk", {-1, -1}, 2, 2},
    {"dram:4blk,disk:@0:64blk", {-1, 0}, 2, 2},
    {"dram:16blk,disk:@0:64blk", {-1, 0}, 3, 3},
    {"dram:16blk,disk:@0:64blk", {-1, 0}, 3, 1},
    {"dram:16blk,disk:@0:64blk", {-1, 0}, 3, 2},
    {"disk:@0:4blk,disk:@1:64blk", {0, 1}, 2, 2},
    {"disk:@0:16blk,disk:@1:64blk", {0, 1}, 1, 1},
    {"dram:4blk,dram:16blk,disk:@0:64blk", {-1, -1, 0}, 6, 6},
    {"dram:4blk,dram:16blk,disk:@0:64blk", {-1, -1, 0}, 6, 2},
    {"dram:4blk,dram:16blk,disk:@0:64blk", {-1, -1, 0}, 6, 4},
    {"dram:4blk,disk:@0:8blk,disk:@1:64blk", {-1, 0, 1}, 4, 4},
};
enum { PLACES = sizeof places / sizeof *places };

static bool persistent(const place *p) { return strstr(p->tiers, "disk") != NULL; }

static void put_written(uint64_t number, uint32_t version)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = KVO_WRITTEN;
    assert_int_equal(put_as(number, BYTES, version, &o, NULL), KVO_STORED);
}

/* Blocks 1 .. 3, where the place says. */
static void fill(const place *p)
{
    kvo_answer answer;
    open_store(p->tiers);
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(put(i, BYTES), KVO_STORED);
    if (!(p->holds & 1))
        fill_with(1000, 12, BYTES);
    if (p->holds > 1 && persistent(p))
        assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, p->holds);
}

static void neighbours_are_fine(void)
{
    assert_int_equal(get(2, BYTES), KVO_OK);
    assert_int_equal(get(3, BYTES), KVO_OK);
    check_valid();
}

static const uint64_t bits[] = {0, 77777, BYTES * 8 - 1};

/* ---- in one process ---- */

/* Nobody reads below a good copy: the bad one is found once the block is nowhere else. Its discard from memory wrote
   nothing, as a copy lay below, so this is a miss and no wrong byte. */
static void push_out_of_good_tiers(const place *p)
{
    kvo_answer answer;
    uint64_t before = store_stat().digest_misses;
    assert_int_equal(get(1, BYTES), KVO_OK);
    for (uint64_t i = 0; i < 40 && exists(1, &answer) == KVO_OK && answer.tier_mask != p->bad; i++)
        assert_int_equal(put(2000 + i, BYTES), KVO_STORED);
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, p->bad);
    assert_int_equal(store_stat().digest_misses, before);
}

static void is_gone_and_can_be_put(void)
{
    kvo_answer answer;
    size_t matched;
    kvo_names names = names_of(1, 1);
    assert_int_equal(exists(1, &answer), KVO_MISS);
    assert_int_equal(answer.tier_mask, 0);
    assert_int_equal(kvo_match(store, &names, NULL, &matched), KVO_OK);
    assert_int_equal(matched, 0);
    assert_int_equal(get(1, BYTES), KVO_MISS);
    assert_int_equal(put_as(1, BYTES, 1, NULL, NULL), KVO_STORED);
}

static void heals(const place *p, uint64_t bit)
{
    kvo_answer answer;
    unsigned good = p->holds & ~p->bad;
    fill(p);
    assert_int_equal(flip(1, p->bad, p->directories, bit), __builtin_popcount(p->bad));
    if (good && good < p->bad) {
        push_out_of_good_tiers(p);
        good = 0;
    }
    kvo_stat before = store_stat();
    int status = get_as(1, BYTES, 0, NULL, &answer);
    kvo_stat after = store_stat();
    assert_int_equal(after.digest_misses - before.digest_misses, __builtin_popcount(p->bad));
    assert_true(after.payloads_verified >= before.payloads_verified + after.digest_misses - before.digest_misses);
    assert_int_equal(status, good ? KVO_OK : KVO_MISS);
    if (good)
        assert_int_equal(1u << answer.tier, good);
    else
        is_gone_and_can_be_put();
    for (int i = 0; i < 2; i++)
        assert_int_equal(get_as(1, BYTES, good ? 0 : 1, NULL, NULL), KVO_OK);
    assert_int_equal(store_stat().digest_misses, after.digest_misses); /* once, not each time */
    neighbours_are_fine();
    close_store();
    if (!persistent(p))
        return;
    open_store(p->tiers);
    assert_int_equal(get_as(1, BYTES, good ? 0 : 1, NULL, NULL), KVO_OK);
    neighbours_are_fine();
    close_store();
}

static void a_bad_copy_heals_on_each_tier(void **state)
{
    (void)state;
    for (int i = 0; i < PLACES; i++)
        for (size_t k = 0; k < sizeof bits / sizeof *bits; k++) {
            heals(&places[i], bits[k]);
            fixture_remove(0);
            fixture_remove(1);
        }
}

/* ---- and after kill -9 ---- */

typedef struct killed {
    const place *place;
    bool put_again;
} killed;

static void reads_it_and_is_killed(void *context)
{
    const killed *k = context;
    fill(k->place);
    flip(1, ALL_TIERS, k->place->directories, 12345);
    if (get(1, BYTES) != KVO_MISS || exists(1, NULL) != KVO_MISS)
        _exit(1);
    if (k->put_again)
        put_written(1, 1);
    kill(getpid(), SIGKILL);
}

static void killed_at(const place *p, bool put_again)
{
    killed k = {p, put_again};
    int status = in_child(reads_it_and_is_killed, &k);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    open_store(p->tiers);
    if (put_again) {
        assert_int_equal(exists(1, NULL), KVO_OK);
        assert_int_equal(get_as(1, BYTES, 1, NULL, NULL), KVO_OK);
    } else { /* it may be back, as bad as it was, and heals again */
        assert_int_equal(get(1, BYTES), KVO_MISS);
        assert_int_equal(exists(1, NULL), KVO_MISS);
        put_written(1, 2);
        assert_int_equal(get_as(1, BYTES, 2, NULL, NULL), KVO_OK);
    }
    check_valid();
    close_store();
}

static void a_bad_copy_heals_after_a_kill(void **state)
{
    (void)state;
    for (int i = 0; i < PLACES; i++)
        for (int again = 0; persistent(&places[i]) && again < 2; again++) {
            killed_at(&places[i], again);
            fixture_remove(0);
            fixture_remove(1);
        }
}

/* Turned while nobody has it open: the next opening's first read finds it. */
static void a_copy_that_rotted_while_closed_heals(void **state)
{
    (void)state;
    open_store("disk:@0:64blk");
    for (uint64_t i = 1; i <= 3; i++)
        put_written(i, 0);
    uint64_t at = info_of(1).copies[0].offset_bytes + 4096;
    close_store();
    nth_flip(0, "data", at * 8 + 3);
    for (int i = 0; i < 2; i++) {
        open_store("disk:@0:64blk");
        if (i == 0) {
            assert_int_equal(get(1, BYTES), KVO_MISS);
            assert_int_equal(exists(1, NULL), KVO_MISS);
            put_written(1, 1);
        }
        assert_int_equal(get_as(1, BYTES, 1, NULL, NULL), KVO_OK);
        neighbours_are_fine();
        close_store();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_bad_copy_heals_on_each_tier),
        FIXTURE_TEST(a_bad_copy_heals_after_a_kill),
        FIXTURE_TEST(a_copy_that_rotted_while_closed_heals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
