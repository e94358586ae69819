/* SPDX-License-Identifier: Apache-2.0 */
/* What the queues of victims (room.c) and the change of a segment's slot size (resize.c) share. All under the
   store's lock. */
#ifndef STORE_ROOM_H
#define STORE_ROOM_H

#include "store/store.h"

#define ROOM_ANY_KEY UINT64_MAX

place_query room_query(kvo_store *store, unsigned tier, uint32_t stride); /* 0: of any slot size */
/* Whether a tier below has the block whole; one above has it, or will. */
bool room_below(const kvo_store *store, uint32_t record, unsigned tier);
bool room_above(const kvo_store *store, uint32_t record, unsigned tier);
/* Takes a copy out of a tier, and ends the block if it was the last. false: it is in use. */
bool room_evict(kvo_store *store, unsigned tier, uint32_t record, kvo_cause cause);

/*
 * Frees a segment of another slot size whose blocks are worth less than the victim that would go instead (NULL:
 * none would). Between sizes recency decides, without the credit of uses: that counts in slots, of which one size
 * has eighty where another has one, and would keep a size that was read once for many times what is put meanwhile.
 * false: none is to be had. Lets go of the lock.
 */
bool room_resize(kvo_store *store, unsigned tier, uint32_t stride, const place_victim *instead, uint64_t best);

#endif
