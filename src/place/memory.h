/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses of names that have left: a fixed table of four bytes an entry, kept for about eight
 * times the slots of all tiers, in block references. A wrong match (1 in 16,000) gives a block
 * a use too many, nothing else.
 */
#ifndef PLACE_MEMORY_H
#define PLACE_MEMORY_H

#include "base/env.h"
#include "block/record.h"

typedef struct place_memory {
    base_env *env;
    uint32_t *entries; /* tag 18 | uses 2 (one less) | age 12; 0 = empty */
    uint32_t bucket_count;
    uint64_t window;    /* references that an entry counts for */
    uint64_t age_unit;  /* references of one step of age */
    size_t bytes;
} place_memory;

size_t place_memory_bytes_for(uint64_t slots);
/* slots 0: remembers nothing. 0 or -ENOMEM. */
int place_memory_open(place_memory *m, base_env *env, uint64_t slots);
void place_memory_close(place_memory *m);
void place_memory_put(place_memory *m, uint64_t key_hash, uint32_t uses, uint64_t reference);
/* Uses remembered (1 .. 4), and forgets them; 0 = none. */
uint32_t place_memory_take(place_memory *m, uint64_t key_hash, uint64_t reference);

#endif
