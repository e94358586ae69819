/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control record: all that changes about a block, in one cache line of eight atomic
 * words. The table of these records is also the eviction queue: placement scans it.
 *
 * Each word is read and written whole, so a reader sees an old or a new value, never a mix:
 * the policy with its deadline is one word, a copy with its pins is one word. Between two
 * words a reader may see one changed and the other not yet; what that means is said below.
 */
#ifndef BLOCK_RECORD_H
#define BLOCK_RECORD_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvonce.h"

#define BLOCK_NONE UINT32_MAX

typedef struct block_record {
    _Atomic uint64_t policy; /* see policy.h */
    _Atomic uint64_t touch;  /* recency 48 | uses 16. Read apart from policy: a decision may
                                rest on the policy of one moment and the recency of the next,
                                as if the two updates had come in the other order */
    _Atomic uint64_t life;   /* incarnation 32 | rewrites 12 | delta 3 x 4 | flags 8 */
    _Atomic uint64_t tree;   /* parent record + 1: 32 | depth 32. Of a free record: the next free */
    _Atomic uint64_t copy[KVO_TIERS_MAX]; /* slot 32 | pins 12 | state 3 | moving 1 | format 4 |
                                             generation 8 | safe 1 |
                                             flushing 1 */
} block_record;

static_assert(sizeof(block_record) == 64, "a control record is one cache line");

/* ---- copy word: one compare-and-swap each to pin, publish, discard ---- */

/* BAD: it did not match its digest. Nobody can pin it any more; it goes with the last pin. */
enum { BLOCK_EMPTY = 0, BLOCK_FILLING = 1, BLOCK_VALID = 2, BLOCK_BAD = 3 };
#define COPY_STATE_MASK (7ull << 44)

#define COPY_PIN (1ull << 32)
#define COPY_PINS_MAX 4095u
#define COPY_MOVING (1ull << 47)
#define COPY_SAFE (1ull << 60)
#define COPY_UNREAD (1ull << 62) /* BAD because it could not be read: its header may stay for the next open */
#define COPY_FLUSHING (1ull << 61) /* complete before the flush that runs now began */

static inline uint32_t copy_slot(uint64_t w) { return (uint32_t)w; }
static inline uint32_t copy_pins(uint64_t w) { return (uint32_t)(w >> 32) & COPY_PINS_MAX; }
static inline unsigned copy_state(uint64_t w) { return (unsigned)(w >> 44) & 7u; }
static inline bool copy_moving(uint64_t w) { return (w & COPY_MOVING) != 0; }
static inline unsigned copy_format(uint64_t w) { return (unsigned)(w >> 48) & 15u; }
static inline unsigned copy_generation(uint64_t w) { return (unsigned)(w >> 52) & 255u; }
static inline bool copy_safe(uint64_t w) { return (w & COPY_SAFE) != 0; }
static inline bool copy_valid(uint64_t w) { return copy_state(w) == BLOCK_VALID; }
/* Evictable as far as the copy itself is concerned. */
static inline bool copy_idle(uint64_t w)
{
    return copy_valid(w) && copy_pins(w) == 0 && !copy_moving(w);
}

static inline uint64_t copy_make(uint32_t slot, unsigned state, unsigned format, unsigned generation)
{
    return (uint64_t)slot | (uint64_t)state << 44 | (uint64_t)(format & 15u) << 48 |
           (uint64_t)(generation & 255u) << 52;
}

/* ---- life word ---- */

enum {
    LIFE_USED = 1 << 0,   /* the record stands for a block */
    LIFE_SEALED = 1 << 1, /* visible; before, everybody else sees "pending" */
    LIFE_DOOMED = 1 << 2, /* removed; its name is free again, the last pin takes it away */
    LIFE_HELD = 1 << 3,   /* has entries in the table of holds */
    LIFE_REPAIR_1 = 1 << 4, /* the medium destroyed the copy in tier 1: its next write there */
    LIFE_REPAIR_2 = 1 << 5, /* is a repair */
    LIFE_REPAIR_3 = 1 << 6,
    LIFE_REMOVED = 1 << 7 /* leaves by a caller's will: not remembered as departed */
};
#define LIFE_FLAGS_SHIFT 56
#define LIFE_FLAG(f) ((uint64_t)(f) << LIFE_FLAGS_SHIFT)
#define LIFE_REWRITES_MAX 4095u
#define LIFE_DELTA_MAX 15u

static inline uint32_t life_incarnation(uint64_t w) { return (uint32_t)w; }
static inline uint32_t life_rewrites(uint64_t w) { return (uint32_t)(w >> 32) & LIFE_REWRITES_MAX; }
static inline unsigned life_flags(uint64_t w) { return (unsigned)(w >> LIFE_FLAGS_SHIFT); }
static inline bool life_has(uint64_t w, unsigned f) { return (w & LIFE_FLAG(f)) == LIFE_FLAG(f); }
/* Demotions into tier 1..3 in this life. */
static inline unsigned life_delta(uint64_t w, unsigned tier)
{
    return tier == 0 ? 0 : (unsigned)(w >> (44 + 4 * (tier - 1))) & 15u;
}
static inline uint64_t life_add_delta(uint64_t w, unsigned tier)
{
    return life_delta(w, tier) == LIFE_DELTA_MAX ? w : w + (1ull << (44 + 4 * (tier - 1)));
}
static inline uint64_t life_make(uint32_t incarnation, uint32_t rewrites, const uint8_t delta[4],
                                 unsigned flags)
{
    uint64_t w = (uint64_t)incarnation | (uint64_t)(rewrites & LIFE_REWRITES_MAX) << 32 | LIFE_FLAG(flags);
    for (unsigned t = 1; delta && t < KVO_TIERS_MAX; t++)
        w |= (uint64_t)(delta[t] & 15u) << (44 + 4 * (t - 1));
    return w;
}
static inline unsigned life_repair_flag(unsigned tier) { return (unsigned)LIFE_REPAIR_1 << (tier - 1); }

/* Visible to look-ups and movable. */
static inline bool life_live(uint64_t w)
{
    return life_has(w, LIFE_USED | LIFE_SEALED) && !life_has(w, LIFE_DOOMED);
}

/* ---- touch word: both parts stop at their most, so that what was used late never looks old ---- */

#define TOUCH_RECENCY_MASK ((1ull << 48) - 1)
#define TOUCH_USES_MAX 65535u

static inline uint64_t touch_recency(uint64_t w) { return w & TOUCH_RECENCY_MASK; }
static inline uint32_t touch_uses(uint64_t w) { return (uint32_t)(w >> 48); }
static inline uint64_t touch_make(uint64_t recency, uint32_t uses)
{
    uint64_t most = uses < TOUCH_USES_MAX ? uses : TOUCH_USES_MAX;
    return (recency < TOUCH_RECENCY_MASK ? recency : TOUCH_RECENCY_MASK) | most << 48;
}

/* ---- tree word ---- */

static inline uint32_t tree_parent(uint64_t w) { return (uint32_t)w - 1u; } /* BLOCK_NONE if 0 */
static inline uint32_t tree_depth(uint64_t w) { return (uint32_t)(w >> 32); }
static inline uint64_t tree_make(uint32_t parent, uint32_t depth)
{
    return (uint64_t)(uint32_t)(parent + 1u) | (uint64_t)depth << 32;
}

/* ---- handles ---- */

static inline kvo_handle handle_make(uint32_t record, uint32_t incarnation)
{
    return (uint64_t)incarnation << 32 | (uint64_t)(record + 1u);
}
static inline uint32_t handle_record(kvo_handle h) { return (uint32_t)h - 1u; }
static inline uint32_t handle_incarnation(kvo_handle h) { return (uint32_t)(h >> 32); }

/* Applies f to a word until nobody interferes: set and clear bits. Returns the new value. */
static inline uint64_t word_change(_Atomic uint64_t *word, uint64_t clear, uint64_t set)
{
    uint64_t old = atomic_load_explicit(word, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(word, &old, (old & ~clear) | set, memory_order_acq_rel,
                                                  memory_order_relaxed)) {}
    return (old & ~clear) | set;
}

static inline uint64_t word_load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}
static inline void word_store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

/* One more reader of a valid copy; false if it is not valid or has all pins it can have. */
bool block_pin(block_record *r, unsigned tier, uint64_t *word);
/* Returns the word after. */
uint64_t block_unpin(block_record *r, unsigned tier);
/* A use at a moment of the reference clock. Recency never moves backwards. */
void block_touch(block_record *r, uint64_t recency);
/* As recent as this, without a use. false: it already was. */
bool block_raise(block_record *r, uint64_t recency);
/* Whether a transfer is at one of its copies. */
bool block_in_transfer(const block_record *r);
/* The tiers with a valid copy, one bit each, and the fastest of them (KVO_NO_TIER). */
static inline unsigned block_tiers(const block_record *r)
{
    unsigned mask = 0;
    for (unsigned t = 0; t < KVO_TIERS_MAX; t++)
        mask |= (unsigned)copy_valid(word_load(&r->copy[t])) << t;
    return mask;
}
static inline unsigned block_fastest(unsigned mask)
{
    return mask == 0 ? KVO_NO_TIER : (unsigned)__builtin_ctz(mask);
}

#endif
