/* SPDX-License-Identifier: Apache-2.0 */
#include "block/digest.h"
#include "block/digest_pass.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "test.h"

enum { LONGEST = (3 << 20) + 1, MARGIN = 128, CANARY = 0xa5 };

static uint8_t *source; /* LONGEST + MARGIN bytes */
static uint8_t margin[MARGIN];
static uint8_t *target; /* MARGIN + LONGEST + MARGIN bytes, with its payload at any offset below MARGIN */

static void fill_source(void)
{
    for (size_t i = 0; i < LONGEST + MARGIN; i++)
        source[i] = (uint8_t)(i * 7 + i / 251);
}

static int make(void **state)
{
    (void)state;
    source = aligned_alloc(4096, 4096 * ((LONGEST + MARGIN) / 4096 + 1));
    target = aligned_alloc(4096, 4096 * ((LONGEST + 2 * MARGIN) / 4096 + 1));
    if (source == NULL || target == NULL)
        return -1;
    fill_source();
    memset(margin, CANARY, MARGIN);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    free(source);
    free(target);
    return 0;
}

/* What the digest has to be. */
static void expected(const uint8_t *data, size_t bytes, uint8_t out[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, bytes));
    memcpy(out, canonical.digest, 16);
}

/* One pass over `bytes` in pieces that end at the cuts, between addresses of the given alignment. */
typedef struct shape {
    const digest_unit *unit;
    digest_blocks *move;
    size_t from, to; /* offsets, below MARGIN */
    size_t bytes;
    size_t cuts[8]; /* ascending */
    size_t cut_count;
} shape;

static void check(const shape *s)
{
    const uint8_t *from = source + s->from;
    uint8_t *to = s->move == s->unit->read ? NULL : target + MARGIN + s->to;
    uint8_t want[16], got[16];
    digest_pass pass;
    size_t at = 0;

    memset(target, CANARY, s->bytes + 2 * MARGIN);
    digest_begin(&pass, s->unit);
    for (size_t i = 0; i <= s->cut_count; i++) {
        const size_t end = i < s->cut_count ? s->cuts[i] : s->bytes;
        digest_take(&pass, s->move, to == NULL ? NULL : to + at, from + at, end - at);
        at = end;
    }
    digest_end(&pass, got);
    expected(from, s->bytes, want);
    if (memcmp(want, got, 16) != 0)
        fail_msg("unit %s, %zu bytes from %zu to %zu, first cut at %zu: another digest", s->unit->name, s->bytes,
                 s->from, s->to, s->cuts[0]);
    if (to == NULL)
        return;
    assert_memory_equal(from, to, s->bytes);
    assert_memory_equal(to - MARGIN, margin, MARGIN);
    assert_memory_equal(to + s->bytes, margin, MARGIN - s->to);
}

static void check_moves(shape s)
{
    const digest_unit *units[DIGEST_UNITS];
    const size_t count = digest_units(units);

    for (size_t i = 0; i < count; i++) {
        digest_blocks *const moves[] = {units[i]->read, units[i]->copy, units[i]->store};
        s.unit = units[i];
        for (size_t k = 0; k < 3; k++) {
            s.move = moves[k];
            check(&s);
        }
    }
}

static void each_unit_gives_xxhash_s_digest_of_each_length(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes <= DIGEST_BLOCK + 300; bytes++)
        check_moves((shape){.bytes = bytes});
    for (size_t blocks = 3; blocks <= LONGEST / DIGEST_BLOCK; blocks = blocks * 2 + 1)
        for (size_t more = 0; more < 3; more++)
            check_moves((shape){.bytes = blocks * DIGEST_BLOCK + more - 1});
    check_moves((shape){.bytes = LONGEST});
}

static void each_unit_gives_it_at_each_alignment(void **state)
{
    (void)state;
    for (size_t offset = 0; offset < DIGEST_STRIPE; offset++) {
        check_moves((shape){.bytes = 5000, .from = offset});
        check_moves((shape){.bytes = 5000, .to = offset});
        check_moves((shape){.bytes = 5000, .from = offset, .to = DIGEST_STRIPE - 1 - offset});
    }
}

static void each_unit_gives_it_wherever_the_payload_is_cut(void **state)
{
    enum { BYTES = 2 * DIGEST_BLOCK + 100 };

    (void)state;
    for (size_t cut = 0; cut <= BYTES; cut++)
        check_moves((shape){.bytes = BYTES, .cuts = {cut}, .cut_count = 1});
    for (size_t cut = 0; cut <= DIGEST_BLOCK + 1; cut++) {
        check_moves((shape){.bytes = cut + DIGEST_BLOCK, .cuts = {cut, cut}, .cut_count = 2});
        check_moves((shape){.bytes = BYTES + DIGEST_BLOCK,
                            .cuts = {1, 1 + cut, 1 + cut + DIGEST_BLOCK},
                            .cut_count = 3});
    }
}

static int ascending(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

static void each_unit_gives_it_for_pieces_at_random(void **state)
{
    enum { SHAPES = 600 };

    (void)state;
    srand(20240607);
    for (size_t i = 0; i < SHAPES; i++) {
        shape s = {.bytes = (size_t)rand() % (i % 50 ? 20000 : LONGEST), .cut_count = (size_t)rand() % 9};
        s.from = (size_t)rand() % DIGEST_STRIPE;
        s.to = (size_t)rand() % DIGEST_STRIPE;
        for (size_t k = 0; k < s.cut_count; k++)
            s.cuts[k] = s.bytes ? (size_t)rand() % s.bytes : 0;
        qsort(s.cuts, s.cut_count, sizeof s.cuts[0], ascending);
        check_moves(s);
    }
}

/* Written down, so that another xxhash cannot change the format on disk unnoticed. */
static void the_digest_is_that_of_the_format(void **state)
{
    static const struct {
        size_t bytes;
        const char *digest;
    } known[] = {
        {0, "99aa06d3014798d86001c324468d497f"},
        {1, "a6cd5e9392000f6ac44bdff4074eecdb"},
        {16, "ddf6c1254d70f76794eaa17b20756f46"},
        {128, "dd9e5aa9bd51cc9cc6bd21ecc865f29f"},
        {240, "89e3a0a2ee355d25d10beb4e0599e4b3"},
        {241, "75f4da43f23cce5a541b19226f0052e8"},
        {1024, "03de0c29e9f0bc7fba464919c6bb3ccd"},
        {1025, "7584e04fe3414e5a2aa0034e7827ee42"},
        {100001, "2097f6be719a14aab83db2f387633b1b"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint8_t digest[16];
        char text[33];
        digest_of(source, known[i].bytes, digest);
        for (size_t k = 0; k < 16; k++)
            snprintf(text + 2 * k, 3, "%02x", digest[k]);
        assert_string_equal(text, known[i].digest);
    }
}

static void segments_have_the_digest_of_their_bytes(void **state)
{
    enum { BYTES = 100001 };
    uint8_t want[16], got[16];

    (void)state;
    expected(source, BYTES, want);
    digest_of(source, BYTES, got);
    assert_memory_equal(want, got, 16);
    for (size_t cut = 0; cut <= BYTES; cut += 33333 / 2) {
        const kvo_segment from[3] = {{source, cut}, {NULL, 0}, {source + cut, BYTES - cut}};
        const kvo_segment to[3] = {{target, BYTES - cut}, {target + BYTES - cut, cut}, {NULL, 0}};

        digest_segments(from, 3, got);
        assert_memory_equal(want, got, 16);
        memset(target, 0, BYTES);
        digest_gather(target, from, 3, got);
        assert_memory_equal(want, got, 16);
        assert_memory_equal(source, target, BYTES);
        memset(target, 0, BYTES);
        digest_scatter(to, 3, source, got);
        assert_memory_equal(want, got, 16);
        assert_memory_equal(source, target, BYTES);
    }
}

#if !TEST_SANITIZES_THREADS
static atomic_bool moving;

/* A caller who breaks its promise and writes while the store copies. */
static void *write_source(void *unused)
{
    (void)unused;
    for (size_t i = 0; atomic_load_explicit(&moving, memory_order_relaxed); i += 61)
        (*(volatile uint8_t *)&source[i % 8192])++;
    return NULL;
}

static void what_was_stored_is_what_was_digested(void **state)
{
    enum { BYTES = 8192, ROUNDS = 3000 };
    const digest_unit *units[DIGEST_UNITS];
    const size_t count = digest_units(units);
    pthread_t writer;

    (void)state;
    atomic_store(&moving, true);
    assert_int_equal(pthread_create(&writer, NULL, write_source, NULL), 0);
    for (size_t i = 0; i < ROUNDS * count; i++) {
        const digest_unit *const unit = units[i % count];
        uint8_t want[16], got[16];
        digest_pass pass;

        digest_begin(&pass, unit);
        digest_take(&pass, i / count % 2 ? unit->copy : unit->store, target, source, BYTES);
        digest_end(&pass, got);
        expected(target, BYTES, want);
        assert_memory_equal(want, got, 16);
    }
    atomic_store(&moving, false);
    pthread_join(writer, NULL);
    fill_source();
}
#endif

static void the_plain_unit_is_everywhere_and_a_better_one_comes_later(void **state)
{
    const digest_unit *units[DIGEST_UNITS];

    (void)state;
    const size_t count = digest_units(units);
    assert_in_range(count, 1, DIGEST_UNITS);
    assert_string_equal(units[0]->name, "plain");
    for (size_t i = 0; i < count; i++)
        print_message("unit: %s\n", units[i]->name);
#ifdef __AVX2__
    assert_true(count > 1);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plain_unit_is_everywhere_and_a_better_one_comes_later),
        cmocka_unit_test(each_unit_gives_xxhash_s_digest_of_each_length),
        cmocka_unit_test(each_unit_gives_it_at_each_alignment),
        cmocka_unit_test(each_unit_gives_it_wherever_the_payload_is_cut),
        cmocka_unit_test(each_unit_gives_it_for_pieces_at_random),
        cmocka_unit_test(the_digest_is_that_of_the_format),
        cmocka_unit_test(segments_have_the_digest_of_their_bytes),
#if !TEST_SANITIZES_THREADS
        cmocka_unit_test(what_was_stored_is_what_was_digested),
#endif
    };
    return cmocka_run_group_tests(tests, make, drop);
}
