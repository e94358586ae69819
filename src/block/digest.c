/* SPDX-License-Identifier: Apache-2.0 */
#include "block/digest.h"

#include <stdatomic.h>
#include <string.h>

#include "block/digest_pass.h"

extern const digest_unit digest_unit_plain;
#ifdef __x86_64__
extern const digest_unit digest_unit_avx2, digest_unit_avx512;
#endif

size_t digest_units(const digest_unit *units[DIGEST_UNITS])
{
    size_t count = 0;

    units[count++] = &digest_unit_plain;
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        units[count++] = &digest_unit_avx2;
    if (__builtin_cpu_supports("avx512f"))
        units[count++] = &digest_unit_avx512;
#endif
    return count;
}

/* A few loads and tests: nothing worth remembering. */
static const digest_unit *best_unit(void)
{
    const digest_unit *units[DIGEST_UNITS];
    return units[digest_units(units) - 1];
}

void digest_begin(digest_pass *pass, const digest_unit *unit)
{
    XXH3_128bits_reset(&pass->state);
    pass->held_bytes = 0;
    pass->unit = unit;
}

/* Takes up to the block's end into `held`, from where it arrived: the fence keeps a compiler from reading `from`
   twice instead, where a caller who breaks its promise may have written meanwhile. */
static size_t hold(digest_pass *pass, uint8_t *to, const uint8_t *from, size_t bytes)
{
    const size_t room = DIGEST_BLOCK - pass->held_bytes;
    const size_t n = bytes < room ? bytes : room;

    if (to != NULL)
        memcpy(to, from, n);
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(pass->held + pass->held_bytes, to != NULL ? to : from, n);
    pass->held_bytes += n;
    return n;
}

void digest_take(digest_pass *pass, digest_blocks *move, void *to, const void *from, size_t bytes)
{
    for (size_t at = 0, n; at < bytes; at += n) {
        uint8_t *const there = to == NULL ? NULL : (uint8_t *)to + at;
        const uint8_t *const here = (const uint8_t *)from + at;
        const size_t blocks = (bytes - at - 1) / DIGEST_BLOCK;

        if (pass->held_bytes == DIGEST_BLOCK) {
            pass->unit->read(&pass->state, NULL, pass->held, 1);
            pass->held_bytes = 0;
        }
        if (pass->held_bytes == 0 && blocks > 0) {
            n = blocks * DIGEST_BLOCK;
            move(&pass->state, there, here, blocks);
        } else {
            n = hold(pass, there, here, bytes - at);
        }
    }
}

void digest_end(digest_pass *pass, uint8_t out[16])
{
    XXH128_canonical_t canonical;

    XXH3_128bits_update(&pass->state, pass->held, pass->held_bytes);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&pass->state));
    memcpy(out, canonical.digest, 16);
}

void digest_segments(const kvo_segment *segments, uint32_t count, uint8_t out[16])
{
    digest_pass pass;

    digest_begin(&pass, best_unit());
    for (uint32_t i = 0; i < count; i++)
        digest_take(&pass, pass.unit->read, NULL, segments[i].base, segments[i].bytes);
    digest_end(&pass, out);
}

void digest_of(const void *data, size_t bytes, uint8_t out[16])
{
    digest_pass pass;

    digest_begin(&pass, best_unit());
    digest_take(&pass, pass.unit->read, NULL, data, bytes);
    digest_end(&pass, out);
}

void digest_gather(void *to, const kvo_segment *from, uint32_t count, uint8_t out[16])
{
    digest_pass pass;
    uint8_t *at = to;

    digest_begin(&pass, best_unit());
    for (uint32_t i = 0; i < count; i++) {
        digest_take(&pass, pass.unit->store, at, from[i].base, from[i].bytes);
        at += from[i].bytes;
    }
    digest_end(&pass, out);
}

void digest_scatter(const kvo_segment *to, uint32_t count, const void *from, uint8_t out[16])
{
    digest_pass pass;
    const uint8_t *at = from;

    digest_begin(&pass, best_unit());
    for (uint32_t i = 0; i < count; i++) {
        digest_take(&pass, pass.unit->copy, to[i].base, at, to[i].bytes);
        at += to[i].bytes;
    }
    digest_end(&pass, out);
}

uint64_t digest_short(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }
