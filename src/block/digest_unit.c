/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One vector unit: built once for each, with its flags and its name in DIGEST_UNIT. xxhash's header takes the
 * unit from the flags; what is added to its arithmetic is that bytes are moved in the same loop, so that a copy
 * costs no second pass over memory.
 */
#include "block/digest_pass.h"

#include <string.h>

#if XXH_VERSION_NUMBER < 801
#error "xxhash before 0.8.1 lacks what this file uses"
#endif

/* Chosen by measurement: what the machine prefetches by itself stops at each page. */
#define PREFETCH_BYTES 4096

/* A copy is so far ahead of its digest: more than a store buffer holds, so that what is digested comes back from the
   destination; less than a first-level cache holds, so that this costs little; and not whole pages, at whose distance
   a processor takes a load to depend on a store. */
#define AHEAD_BYTES 5120

#if XXH_VECTOR == XXH_AVX512
typedef __m512i vector;
#define STREAM(to, v) _mm512_stream_si512((void *)(to), v)
#elif XXH_VECTOR == XXH_AVX2
typedef __m256i vector;
#define STREAM(to, v) _mm256_stream_si256((void *)(to), v)
#elif XXH_VECTOR == XXH_SSE2
typedef __m128i vector;
#define STREAM(to, v) _mm_stream_si128((void *)(to), v)
#elif XXH_VECTOR == XXH_NEON
typedef uint64x2_t vector;
#else
typedef uint64_t vector;
#endif

/* The thread sanitizer does not see streaming stores. */
#if defined(STREAM) && !defined(__SANITIZE_THREAD__)
#define STREAMS 1
#else
#define STREAMS 0
#undef STREAM
#define STREAM(to, v) ((void)(to), (void)(v)) /* never comes here */
#endif

enum { VECTORS = DIGEST_STRIPE / sizeof(vector) };

enum kind { READ, COPY, STORE };

/* Vector by vector: a stripe that is copied whole goes through memory in other widths, which stalls its loads. */
static inline __attribute__((always_inline)) void load(vector stripe[VECTORS], const uint8_t *from)
{
    for (size_t i = 0; i < VECTORS; i++)
        memcpy(&stripe[i], from + i * sizeof(vector), sizeof(vector));
}

static inline __attribute__((always_inline)) void save(uint8_t *to, const vector stripe[VECTORS])
{
    for (size_t i = 0; i < VECTORS; i++)
        memcpy(to + i * sizeof(vector), &stripe[i], sizeof(vector));
}

static inline __attribute__((always_inline)) void stream(uint8_t *to, const vector stripe[VECTORS])
{
    for (size_t i = 0; i < VECTORS; i++)
        STREAM(to + i * sizeof(vector), stripe[i]);
}

static inline __attribute__((always_inline)) void prefetch(const uint8_t *at)
{
    __builtin_prefetch((const void *)((uintptr_t)at + PREFETCH_BYTES)); /* may lie past the end */
}

/* Digests at `from`, leaving in the state what XXH3_128bits_update leaves in one that knows that more follows.
   READ moves nothing; STORE streams the registers that it digests to `to`; COPY copies bytes ahead of `from`, which
   is the destination of the copy, from `ahead` on. */
static inline __attribute__((always_inline)) void take(XXH3_state_t *state, uint8_t *to, const uint8_t *from,
                                                       const uint8_t *ahead, size_t count, enum kind kind)
{
    XXH_ALIGN(64) vector sums[VECTORS]; /* not in the state, which the stores might alias */
    vector stripe[VECTORS];

    load(sums, (const uint8_t *)state->acc);
    size_t at = 0;
    do {
        for (size_t i = 0; i < DIGEST_BLOCK / DIGEST_STRIPE; i++, at += DIGEST_STRIPE) {
            if (kind == COPY) {
                prefetch(ahead + at);
                load(stripe, ahead + at);
                save(to + at, stripe);
            } else {
                prefetch(from + at);
            }
            load(stripe, from + at);
            if (kind == STORE)
                stream(to + at, stripe);
            XXH3_accumulate_512(sums, stripe, XXH3_kSecret + i * XXH_SECRET_CONSUME_RATE);
        }
        XXH3_scrambleAcc(sums, XXH3_kSecret + sizeof XXH3_kSecret - DIGEST_STRIPE);
    } while (at < count * DIGEST_BLOCK);
    save((uint8_t *)state->acc, sums);
    save(state->buffer + sizeof state->buffer - DIGEST_STRIPE, stripe);
    state->totalLen += at;
}

static void read_blocks(XXH3_state_t *state, uint8_t *to, const uint8_t *from, size_t count)
{
    (void)to;
    take(state, NULL, from, NULL, count, READ);
}

static void copy_blocks(XXH3_state_t *state, uint8_t *to, const uint8_t *from, size_t count)
{
    const size_t bytes = count * DIGEST_BLOCK;
    const size_t ahead = bytes < AHEAD_BYTES ? bytes : AHEAD_BYTES;

    memcpy(to, from, ahead);
    if (bytes > ahead)
        take(state, to + ahead, to, from + ahead, (bytes - ahead) / DIGEST_BLOCK, COPY);
    take(state, NULL, to + bytes - ahead, NULL, ahead / DIGEST_BLOCK, READ);
}

static void store_blocks(XXH3_state_t *state, uint8_t *to, const uint8_t *from, size_t count)
{
#if STREAMS
    if ((uintptr_t)to % sizeof(vector) == 0) {
        take(state, to, from, NULL, count, STORE);
        _mm_sfence();
        return;
    }
#endif
    copy_blocks(state, to, from, count);
}

#define JOINED(a, b) a##b
#define SYMBOL(unit) JOINED(digest_unit_, unit)
#define QUOTED(unit) #unit
#define NAME(unit) QUOTED(unit)

extern const digest_unit SYMBOL(DIGEST_UNIT);
const digest_unit SYMBOL(DIGEST_UNIT) = {
    .name = NAME(DIGEST_UNIT),
    .read = read_blocks,
    .copy = copy_blocks,
    .store = store_blocks,
};
