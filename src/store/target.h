/* SPDX-License-Identifier: Apache-2.0 */
/* From a kvo_target to records: one after the other, each with what it was when it was found. */
#ifndef STORE_TARGET_H
#define STORE_TARGET_H

#include "store/store.h"

typedef struct target_cursor {
    const kvo_target *target;
    size_t next;  /* in names or handles */
    uint32_t scan; /* in the table of records */
    bool hidden;   /* a block that a rewrite hides is KVO_PENDING, not KVO_MISS */
    size_t near;   /* handles whose records are on their way into the cache */
    index_batch batch; /* of names */
} target_cursor;

typedef struct target_hit {
    size_t index;    /* in names or handles; running number otherwise */
    uint32_t record; /* BLOCK_NONE: status says why */
    kvo_handle handle;
    int status;
} target_hit;

/* KVO_OK, or KVO_E_ARGUMENT. `listed`: only BY_NAMES and BY_HANDLES will do. */
int target_check(const kvo_store *s, const kvo_target *target, bool listed);
/* false at the end. Takes no lock, but for a block that is not there, if `hidden` asks for it. */
bool target_next(kvo_store *s, target_cursor *cursor, target_hit *hit);
/* Whether the block that a record has now is one of those that a target describes. Takes the lock. */
bool target_matches_again(kvo_store *s, const kvo_target *t, uint32_t record, uint64_t *life);
/* Up to `most` at once; 0 at the end. */
size_t target_take(kvo_store *s, target_cursor *cursor, target_hit *hits, size_t most);
static inline bool target_listed(const kvo_target *t) { return t->by == KVO_BY_NAMES || t->by == KVO_BY_HANDLES; }
/* How many it lists, if it does. */
static inline size_t target_count(const kvo_target *t)
{
    return t->by == KVO_BY_NAMES ? t->names.count : t->handle_count;
}

#endif
