/* SPDX-License-Identifier: Apache-2.0 */
#include "place/score.h"

enum { CLASS_DROP = 0, CLASS_DEMOTE = 1, CLASS_ORDINARY = 2, CLASS_KEEP = 3 };
#define SCORE_MAX ((1ull << 53) - 1)

static unsigned class_of(uint64_t policy, uint32_t now_s, unsigned tier)
{
    switch (policy_intent_at(policy, now_s)) {
    case KVO_INTENT_DROP:
        return CLASS_DROP;
    case KVO_INTENT_DEMOTE:
        return tier == 0 ? CLASS_DEMOTE : CLASS_ORDINARY;
    case KVO_INTENT_KEEP:
    case KVO_INTENT_PREFETCH:
        return CLASS_KEEP;
    default:
        return CLASS_ORDINARY;
    }
}

uint64_t place_key(const place_rules *rules, uint64_t policy, uint64_t touch, unsigned tier)
{
    uint64_t score = touch_recency(touch);
    if (rules->placement == KVO_PLACE_CREDIT) {
        uint64_t uses = touch_uses(touch);
        uint64_t quarters = (uses > 4 ? 4 : uses ? uses : 1) * 25 - 25 + policy_reuse(policy);
        score += rules->slots_first * quarters / 25;
    }
    if (score > SCORE_MAX)
        score = SCORE_MAX;
    return (uint64_t)class_of(policy, rules->now_s, tier) << 62 | (uint64_t)policy_qos(policy) << 60 |
           (uint64_t)policy_priority(policy) << 53 | score;
}
