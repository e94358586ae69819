/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One bit of a medium turns round. Every bit of a slot's header and of a segment's is found, and so is any bit of a
 * payload; of superblocks, notes, policies and the checkpoint one may be lost at no cost but a policy.
 */
#include "nth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tier/tier.h"

enum { PAGE_BITS = 4096 * 8, BYTES = 4096, BLOCKS = 4 };

static uint64_t draw_state;

static uint64_t draw(uint64_t below)
{
    draw_state = draw_state * 6364136223846793005u + 1442695040888963407u;
    return (draw_state >> 33) % below;
}

static long rounds(long usual)
{
    const char *text = getenv("KVO_TEST_ROUNDS");
    long n = text ? atol(text) : usual;
    return TEST_SANITIZES && text == NULL ? usual / 8 + 1 : n;
}

static const char tiers[] = "disk:@0:16blk";

static void store_of(uint64_t block_bytes, uint64_t segment_bytes)
{
    const char *seed = getenv("KVO_TEST_SEED");
    draw_state = seed ? strtoull(seed, NULL, 0) : 5;
    print_message("KVO_TEST_SEED=%llu\n", (unsigned long long)draw_state);
    options.block_bytes = block_bytes;
    nth_segment_bytes = segment_bytes;
    options.pins_max = options.holds_max = 16;
    options.tenants_max = 4;
    nth_open_store(tiers);
    for (uint64_t i = 0; i < BLOCKS; i++)
        assert_int_equal(put(i, BYTES), KVO_STORED);
}

static void small_store(void) { store_of(BYTES, 65536); }

static uint64_t slot_bit(uint64_t number) { return info_of(number).copies[0].offset_bytes * 8; }

/* ---- what a get finds ---- */

/* The read is a miss, so is the next look-up, the next put stores; the neighbours are as they were. */
static void found_by_a_get(uint64_t number, size_t bytes, uint64_t bit)
{
    uint64_t before = store_stat().digest_misses;
    nth_flip(0, "data", bit);
    if (get(number, bytes) != KVO_MISS)
        fail_msg("bit %llu of block %llu is not found", (unsigned long long)bit, (unsigned long long)number);
    assert_int_equal(exists(number, NULL), KVO_MISS);
    assert_int_equal(store_stat().digest_misses, before + 1);
    assert_int_equal(put(number, bytes), KVO_STORED);
}

static void neighbours_are_fine(void)
{
    for (uint64_t i = 0; i < BLOCKS; i++)
        assert_int_equal(get(i, BYTES), KVO_OK);
    check_valid();
}

static void every_bit_of_a_header_is_found_by_a_get(void **state)
{
    (void)state;
    long count = 0;
    small_store();
    for (uint64_t bit = 0; bit < PAGE_BITS; bit += TEST_SANITIZES ? 7 : 1, count++) {
        found_by_a_get(1, BYTES, slot_bit(1) + bit);
        if (bit % 1024 == 0)
            neighbours_are_fine();
    }
    neighbours_are_fine();
    assert_true(store_stat().payloads_verified > 0);
    close_store();
    printf("counted: %ld flipped bits of headers, 0 wrong bytes\n", count);
}

/* Bits of one payload, none of them twice. */
static long turn_payload_bits(uint64_t number, size_t bytes, long usual)
{
    uint8_t *turned = calloc(bytes, 1);
    long count = rounds(usual) < (long)bytes * 8 ? rounds(usual) : (long)bytes * 8;
    assert_non_null(turned);
    assert_int_equal(put(number, bytes), KVO_STORED);
    for (long i = 0; i < count; i++) {
        uint64_t bit = draw(bytes * 8);
        while (turned[bit / 8] >> bit % 8 & 1)
            bit = draw(bytes * 8);
        turned[bit / 8] |= (uint8_t)(1u << bit % 8);
        found_by_a_get(number, bytes, slot_bit(number) + PAGE_BITS + bit);
    }
    free(turned);
    return count;
}

static void any_bit_of_a_payload_is_found_by_a_get(void **state)
{
    (void)state;
    static const struct {
        size_t bytes;
        long usual;
    } payloads[] = {{1, 8}, {4097, 2500}, {65536, 7000}, {1000001, 600}};
    long count = 0;
    store_of(1 << 20, 2 << 20);
    for (size_t k = 0; k < sizeof payloads / sizeof *payloads; k++)
        count += turn_payload_bits(10 + k, payloads[k].bytes, payloads[k].usual);
    neighbours_are_fine();
    close_store();
    assert_true(count >= 10000 || TEST_SANITIZES || getenv("KVO_TEST_ROUNDS"));
    printf("counted: %ld flipped bits of payloads, 0 wrong bytes\n", count);
}

/* ---- what a scan finds ---- */

typedef struct scanned {
    unsigned segments, live, bad_slots, bad_segments;
    uint32_t stride, epoch;
} scanned;

static int each_segment(void *context, uint32_t segment, uint32_t stride, uint32_t epoch)
{
    scanned *s = context;
    (void)segment;
    s->segments++;
    s->stride = stride;
    s->epoch = epoch;
    return 0;
}

static int each_slot(void *context, const tier_slot *slot)
{
    scanned *s = context;
    s->live += slot->state == TIER_SLOT_LIVE;
    s->bad_slots += slot->state == TIER_SLOT_BAD;
    s->bad_segments += slot->state == TIER_SEGMENT_BAD;
    assert_true(slot->state == TIER_SLOT_LIVE || slot->what);
    return 0;
}

static scanned scan(void)
{
    scanned s = {0};
    tier_medium *io = store->tiers[0].io;
    assert_int_equal(io->ops->scan(io, each_segment, each_slot, &s), 0);
    return s;
}

static void every_bit_of_a_header_is_found_by_a_scan(void **state)
{
    (void)state;
    long count = 0;
    small_store();
    scanned whole = scan();
    assert_true(whole.live == BLOCKS && whole.bad_slots == 0 && whole.bad_segments == 0);
    uint64_t first = slot_bit(2);
    for (uint64_t bit = 0; bit < PAGE_BITS; bit += TEST_SANITIZES ? 7 : 1, count++) {
        nth_flip(0, "data", first + bit);
        scanned s = scan();
        nth_flip(0, "data", first + bit);
        if (s.live != BLOCKS - 1 || s.bad_slots != 1 || s.bad_segments)
            fail_msg("bit %llu of a slot's header: %u live, %u bad", (unsigned long long)bit, s.live, s.bad_slots);
    }
    close_store();
    printf("counted: %ld flipped bits of headers\n", count);
}

static void every_bit_of_a_segment_header_is_found_and_costs_nothing(void **state)
{
    (void)state;
    long count = 0;
    small_store();
    scanned whole = scan();
    for (uint64_t bit = 0; bit < PAGE_BITS; bit += TEST_SANITIZES ? 7 : 1, count++) {
        nth_flip(0, "data", bit);
        scanned s = scan();
        nth_flip(0, "data", bit);
        if (s.bad_segments != 1 || s.live != BLOCKS || s.bad_slots || s.segments != whole.segments ||
            s.stride != whole.stride || s.epoch != whole.epoch)
            fail_msg("bit %llu of a segment's header: %u bad, %u live", (unsigned long long)bit, s.bad_segments,
                     s.live);
    }
    assert_int_equal(scan().live, BLOCKS); /* and the medium is known again */
    neighbours_are_fine();
    close_store();
    printf("counted: %ld flipped bits of headers\n", count);
}

/* ---- what an opening finds ---- */

typedef struct page_file {
    const char *name;
    uint64_t every_bits; /* from its beginning; beyond that drawn ones */
    long drawn;
} page_file;

/* Opens with a bit turned round: every block is there, every byte right. */
static void opens_with(const nth_image *image, const char *name, uint64_t bit)
{
    nth_image_restore(image, 0);
    nth_flip(0, name, bit);
    kvo_error error = {{0}};
    int r = nth_try_open(tiers, &error);
    if (r != KVO_OK)
        fail_msg("%s, bit %llu: %s", name, (unsigned long long)bit, error.text);
    space = open_space("a", BYTES);
    for (uint64_t i = 0; i < BLOCKS; i++)
        if (get(i, BYTES) != KVO_OK)
            fail_msg("%s, bit %llu: block %llu is not there", name, (unsigned long long)bit, (unsigned long long)i);
    kvo_policy policy = policy_of(1);
    /* Of a policy one may be lost, and then it is what the block was put with. */
    if (policy.priority != 70 && (strcmp(name, "policy") != 0 || policy.priority != 50))
        fail_msg("%s, bit %llu: a policy of %u", name, (unsigned long long)bit, policy.priority);
    assert_int_equal(kvo_close(store, KVO_FOREVER), KVO_OK);
    store = NULL;
}

static long turn_bits(const nth_image *image, const page_file *f)
{
    nth_image_restore(image, 0);
    uint64_t bits = nth_file_length(0, f->name) * 8;
    long count = 0;
    if (bits == 0) /* the second copy of a note that was written once */
        return 0;
    for (uint64_t bit = 0; bit < f->every_bits && bit < bits; bit += TEST_SANITIZES ? 16 : 4, count++)
        opens_with(image, f->name, bit + draw(4));
    for (long i = rounds(f->drawn); i > 0; i--, count++)
        opens_with(image, f->name, draw(bits));
    return count;
}

static void leave(bool crashed, nth_image **image)
{
    kvo_policy policy = KVO_POLICY_INIT;
    policy.priority = 70;
    assert_int_equal(set_policy(1, &policy, KVO_POLICY_PRIORITY), KVO_OK);
    assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
    if (!crashed)
        close_store();
    *image = nth_image_take(0);
    if (crashed)
        close_store();
}

static void a_bit_beside_the_slots_never_costs_a_block(void **state)
{
    (void)state;
    static const page_file files[] = {{"super", 200 * 8, 200},    {"spaces.a", 64 * 8, 100}, {"spaces.b", 64 * 8, 100},
                                      {"ledger.a", 64 * 8, 100}, {"ledger.b", 64 * 8, 100}, {"policy", 0, 400},
                                      {"checkpoint", 64 * 8, 400}};
    for (int crashed = 0; crashed < 2; crashed++) {
        nth_image *image;
        long count = 0;
        fixture_remove(0);
        small_store();
        leave(crashed, &image);
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            if (!crashed || strcmp(files[i].name, "checkpoint") != 0) /* a crash leaves none */
                count += turn_bits(image, &files[i]);
        nth_image_free(image);
        printf("counted: %ld flipped bits beside slots, 0 wrong bytes\n", count);
    }
}

/* ---- sectors that cannot be read ---- */

static void a_bad_sector_under_one_copy_costs_nothing(void **state)
{
    (void)state;
    static const page_file pages[] = {{"super", 0, 0},      {"super", 1, 0},      {"spaces.a", 0, 0},
                                      {"spaces.b", 0, 0},   {"ledger.a", 0, 0},   {"ledger.b", 0, 0},
                                      {"checkpoint", 0, 0}, {"checkpoint", 1, 0}, {"data", 0, 0}};
    for (int crashed = 0; crashed < 2; crashed++) {
        nth_image *image;
        fixture_remove(0);
        small_store();
        leave(crashed, &image);
        for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
            nth_image_restore(image, 0);
            nth_bad_page(pages[i].name, pages[i].every_bits);
            nth_open_store(tiers);
            neighbours_are_fine();
            nth_bad_page(NULL, 0);
            close_store();
        }
        nth_image_free(image);
    }
}

#define NTH_TEST(f) cmocka_unit_test_setup_teardown(f, nth_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        NTH_TEST(every_bit_of_a_header_is_found_by_a_get),
        NTH_TEST(any_bit_of_a_payload_is_found_by_a_get),
        NTH_TEST(every_bit_of_a_header_is_found_by_a_scan),
        NTH_TEST(every_bit_of_a_segment_header_is_found_and_costs_nothing),
        NTH_TEST(a_bit_beside_the_slots_never_costs_a_block),
        NTH_TEST(a_bad_sector_under_one_copy_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
