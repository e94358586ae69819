/* SPDX-License-Identifier: Apache-2.0 */
/* What a block is worth in a tier: a key, lowest goes first. Pure. */
#ifndef PLACE_SCORE_H
#define PLACE_SCORE_H

#include "block/policy.h"

typedef struct place_rules {
    int placement;        /* kvo_placement */
    uint64_t slots_first; /* of tier 0: the unit of credit; 0 with infinite capacity */
    uint32_t now_s;       /* for intents' deadlines; seconds of the store's epoch */
} place_rules;

/*
 * class 2 | qos 2 | priority 7 | score 53, most significant first. The class follows the
 * intent; the score is last_use plus, with KVO_PLACE_CREDIT, (min(uses, 4) - 1 + reuse / 25) x
 * slots of tier 0, all in block references (the credit is design.md's default score; the
 * reuse term is ours, so that a scheduler can grant what uses would have earned).
 */
#define PLACE_KEY_KEPT (3ull << 62) /* from here on: blocks that an intent keeps */
uint64_t place_key(const place_rules *rules, uint64_t policy, uint64_t touch, unsigned tier);

#endif
