/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy word: tenant 16 | qos 2 | priority 7 | reuse 7 | intent 3 | deadline 29.
 * The deadline is in whole seconds since the store was created (by the wall clock at each opening, so that
 * it holds over a restart, and by the monotonic one from there on), 0 = none. 29 bits are 17 years; beyond,
 * deadlines are cut to the last second.
 */
#ifndef BLOCK_POLICY_H
#define BLOCK_POLICY_H

#include "block/record.h"

#define POLICY_DEADLINE_MAX ((1u << 29) - 1)
#define POLICY_INTENT_NS_MAX (2ull * 366 * 24 * 3600 * 1000000000ull)

static inline unsigned policy_tenant(uint64_t w) { return (unsigned)w & 0xffffu; }
static inline unsigned policy_qos(uint64_t w) { return (unsigned)(w >> 16) & 3u; }
static inline unsigned policy_priority(uint64_t w) { return (unsigned)(w >> 18) & 127u; }
static inline unsigned policy_reuse(uint64_t w) { return (unsigned)(w >> 25) & 127u; }
static inline unsigned policy_intent(uint64_t w) { return (unsigned)(w >> 32) & 7u; }
static inline uint32_t policy_deadline(uint64_t w) { return (uint32_t)(w >> 35); }

/* An intent counts until its deadline has passed. */
static inline unsigned policy_intent_at(uint64_t w, uint32_t now_s)
{
    return policy_deadline(w) != 0 && now_s > policy_deadline(w) ? (unsigned)KVO_INTENT_NONE : policy_intent(w);
}

/* KVO_OK or KVO_E_RANGE; only the fields in mask are looked at. */
int policy_check(const kvo_policy *p, uint32_t mask);
/* What a set of the fields of mask from p does to a policy word; now_s in seconds of the store's epoch. */
typedef struct policy_change {
    uint64_t clear, set;
} policy_change;
policy_change policy_change_of(const kvo_policy *p, uint32_t mask, uint32_t now_s);
static inline uint64_t policy_changed(uint64_t old, policy_change c) { return (old & ~c.clear) | c.set; }
/* A word as policy_change_of() makes them; a medium may hold any. */
static inline bool policy_word_good(uint64_t w)
{
    return policy_priority(w) <= 100 && policy_reuse(w) <= 100 && policy_intent(w) <= KVO_INTENT_DROP;
}
void policy_unpack(uint64_t w, uint32_t now_s, kvo_policy *p);

#endif
