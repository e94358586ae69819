/* SPDX-License-Identifier: Apache-2.0 */
#include "block/record.h"

#include "base/planted.h"

#define ONE_PIN (KVO_PLANTED(PIN) ? 0 : COPY_PIN)

bool block_pin(block_record *r, unsigned tier, uint64_t *word)
{
    uint64_t old = word_load(&r->copy[tier]);
    do {
        if (!copy_valid(old) || copy_pins(old) == COPY_PINS_MAX)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&r->copy[tier], &old, old + ONE_PIN, memory_order_acq_rel,
                                                    memory_order_acquire));
    *word = old + ONE_PIN;
    return true;
}

uint64_t block_unpin(block_record *r, unsigned tier)
{
    return atomic_fetch_sub_explicit(&r->copy[tier], ONE_PIN, memory_order_acq_rel) - ONE_PIN;
}

void block_touch(block_record *r, uint64_t recency)
{
    uint64_t old = atomic_load_explicit(&r->touch, memory_order_relaxed), new;
    do {
        uint64_t last = touch_recency(old) > recency ? touch_recency(old) : recency;
        new = touch_make(last, touch_uses(old) + 1);
    } while (!atomic_compare_exchange_weak_explicit(&r->touch, &old, new, memory_order_acq_rel,
                                                    memory_order_relaxed));
}

bool block_raise(block_record *r, uint64_t recency)
{
    uint64_t old = atomic_load_explicit(&r->touch, memory_order_relaxed);
    do {
        if (touch_recency(old) >= recency)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&r->touch, &old, touch_make(recency, touch_uses(old)),
                                                    memory_order_acq_rel, memory_order_relaxed));
    return true;
}

bool block_in_transfer(const block_record *r)
{
    for (unsigned t = 0; t < KVO_TIERS_MAX; t++) {
        uint64_t copy = word_load(&r->copy[t]);
        if (copy_moving(copy) || copy_state(copy) == BLOCK_FILLING)
            return true;
    }
    return false;
}
