/* SPDX-License-Identifier: Apache-2.0 */
#include "block/digest.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Small enough that a piece is still in the first-level cache when it is digested. */
#define PIECE 16384u

static void finish(const XXH3_state_t *state, uint8_t out[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    memcpy(out, canonical.digest, 16);
}

void digest_of(const void *data, size_t bytes, uint8_t out[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, bytes));
    memcpy(out, canonical.digest, 16);
}

uint64_t digest_short(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }

void digest_segments(const kvo_segment *segments, uint32_t count, uint8_t out[16])
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (uint32_t i = 0; i < count; i++)
        if (segments[i].bytes)
            XXH3_128bits_update(&state, segments[i].base, segments[i].bytes);
    finish(&state, out);
}

static void copy_piecewise(XXH3_state_t *state, uint8_t *to, const uint8_t *from, size_t bytes)
{
    while (bytes) {
        size_t n = bytes < PIECE ? bytes : PIECE;
        memcpy(to, from, n);
        XXH3_128bits_update(state, to, n);
        to += n;
        from += n;
        bytes -= n;
    }
}

void digest_gather(void *to, const kvo_segment *from, uint32_t count, uint8_t out[16])
{
    XXH3_state_t state;
    uint8_t *at = to;
    XXH3_128bits_reset(&state);
    for (uint32_t i = 0; i < count; i++) {
        copy_piecewise(&state, at, from[i].base, from[i].bytes);
        at += from[i].bytes;
    }
    finish(&state, out);
}

void digest_scatter(const kvo_segment *to, uint32_t count, const void *from, uint8_t out[16])
{
    XXH3_state_t state;
    const uint8_t *at = from;
    XXH3_128bits_reset(&state);
    for (uint32_t i = 0; i < count; i++) {
        copy_piecewise(&state, to[i].base, at, to[i].bytes);
        at += to[i].bytes;
    }
    finish(&state, out);
}
