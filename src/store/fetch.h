/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a block's bytes, wherever they lie; get and pin differ in what they do with them. */
#ifndef STORE_FETCH_H
#define STORE_FETCH_H

#include "store/store.h"

typedef enum fetch_how {
    FETCH_DONE,    /* status says */
    FETCH_MEMORY,  /* pinned in a tier that can be addressed */
    FETCH_PROMOTE, /* pinned below; a slot of the first tier is being filled */
    FETCH_DIRECT,  /* pinned below; goes past the first tier_medium */
    FETCH_AGAIN    /* somebody else is at it, or a copy was bad: look again */
} fetch_how;

enum { FETCH_LATER = 1, FETCH_PENDING = 2 };

typedef struct fetch_item {
    size_t index; /* in the batch */
    fetch_how how;
    int status;
    uint32_t record;
    kvo_handle handle;
    unsigned tier; /* that serves it */
    unsigned from; /* FETCH_MEMORY after a promotion: the tier it came from, else = tier_medium */
    uint32_t slot; /* FETCH_PROMOTE */
    bool touched;  /* its use is counted */
    bool checked;  /* the bytes in memory were digested on their arrival just now */
    bool delivered; /* and so were those in the caller's */
    bool retried;  /* after an error of the device */
    bool later;    /* KVO_BUSY: others are in the way, so that another try may do */
    bool pending;  /* it was being filled when we looked: its use is not counted yet */
    block_identity identity;
    const kvo_segment *segments; /* NULL for pins */
    uint32_t segment_count;
    uint64_t bytes; /* of the caller's buffer */
    uint8_t *staging; /* while it is read: a unit for the header, and the payload */
    size_t staging_bytes;
} fetch_item;

typedef struct fetch_batch {
    const kvo_names *names;
    kvo_get_options options;
    uint64_t deadline;
    uint64_t recency; /* of the batch's first block */
    /* What to do with a block whose bytes are in memory and pinned; takes the pin over. */
    void (*deliver)(kvo_store *s, struct fetch_batch *batch, fetch_item *item);
    kvo_pin *pins;
    kvo_answer *answers;
    bool yields; /* takes no room from blocks that an intent keeps */
    bool tentative; /* what is busy because of others will be tried again, is counted then, and
                       marked in its answer's `reserved`: FETCH_LATER, FETCH_PENDING */
} fetch_batch;

/* kvo_get() of checked arguments. */
void store_get(kvo_store *s, const kvo_names *names, const kvo_memory *memory, const kvo_get_options *o,
               kvo_answer *answers);
/* Part of a job's batch, tried without waiting, whose uses are counted; recency: of its first block. */
void store_get_part(kvo_store *s, const kvo_names *names, const kvo_memory *memory, const kvo_get_options *o,
                    uint64_t recency, bool tentative, kvo_answer *answers);
/* Counts the uses of a batch before its first block makes room for itself; returns the recency of that. */
uint64_t store_get_uses(kvo_store *s, const kvo_names *names);
void store_count_get(kvo_store *s, int status);

/* Fetches items[0 .. count), count <= STORE_WINDOW; every item ends FETCH_DONE. */
void store_fetch(kvo_store *s, fetch_batch *batch, fetch_item *items, size_t count);

#endif
