/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a put, which reserve/seal and rewrite share. */
#ifndef STORE_PUT_H
#define STORE_PUT_H

#include "store/store.h"

/* What every call that puts begins with: is it allowed, and the caller's options over the defaults. */
int store_put_begin(kvo_store *s, const kvo_names *names, const kvo_put_options *given, kvo_put_options *options);
void store_put_identity(const kvo_store *s, const kvo_names *names, const kvo_put_options *o, size_t i,
                        uint32_t payload_bytes, block_identity *identity);
/* Whether a payload of this length may be in the space at all: KVO_OK or KVO_REFUSED. */
int store_put_length(const kvo_store *s, kvo_space space, uint64_t payload_bytes);

/* A record and a slot of the first tier for a new block: KVO_OK, and nobody sees it; KVO_EXISTS
   and KVO_SIZE with the record that has the name, and its answer; KVO_BUSY, KVO_FULL, KVO_REFUSED. */
int store_reserve(kvo_store *s, const block_identity *identity, const kvo_put_options *o, uint64_t recency,
                  uint64_t deadline, uint32_t *record, kvo_answer *answer);
/* Where its payload goes: the arena, or memory made for it. NULL: no memory, or a ghost. */
void *store_fill_memory(kvo_store *s, uint32_t record);
void *store_filled_memory(kvo_store *s, uint32_t record); /* where it went; NULL: a ghost */
void store_set_digest(kvo_store *s, uint32_t record, const uint8_t digest[16]);
/* Publishes a block whose bytes are in its slot: KVO_STORED. generation: of the copy. */
int store_seal(kvo_store *s, uint32_t record, unsigned generation);
/* Its write failed and the block is gone: an error or KVO_FULL. */
int store_seal_failed(kvo_store *s, uint32_t record, const tier_io *io);
void store_abort(kvo_store *s, uint32_t record);
void store_count_put(kvo_store *s, int status);
/* kvo_put() of checked arguments but its level, or part of a job's batch: recency of its first block.
   tentative: what is busy will be tried again, and is counted then. */
void store_put_part(kvo_store *s, const kvo_names *names, const kvo_memory *memory, const kvo_put_options *o,
                    uint64_t recency, uint64_t deadline, bool tentative, kvo_answer *answers);
/* From the payload's end to the whole page. */
void store_zero_tail(void *memory, uint32_t payload_bytes);
/* Whether two digests agree. */
bool store_digest_same(const uint8_t a[16], const uint8_t b[16]);

/* ---- inflow.c: a batch's blocks on their way into a first tier that takes them by transfer ---- */

typedef struct store_inflow_block {
    tier_io io; /* first: what the tier gives back is this */
    uint32_t record;
    bool put; /* else a seal */
    kvo_answer *answer;
    uint8_t *staging;
    size_t staging_bytes;
} store_inflow_block;

typedef struct store_inflow {
    tier_stream *stream;
    uint32_t used; /* one bit a block */
    store_inflow_block blocks[STORE_WINDOW];
} store_inflow;

/* NULL: the first tier is memory, or the store a ghost. */
store_inflow *store_inflow_begin(const kvo_store *s, store_inflow *in);
/* A reserved block, from the caller's memory: digested, written, sealed; counted and answered when it has
   landed, at the latest at the end. */
void store_inflow_put(kvo_store *s, store_inflow *in, uint32_t record, const kvo_segment *segments, uint32_t count,
                      kvo_answer *answer);
/* The same from the memory of a reservation. */
void store_inflow_seal(kvo_store *s, store_inflow *in, uint32_t record, void *memory, kvo_answer *answer);
void store_inflow_drain(kvo_store *s, store_inflow *in);
void store_inflow_end(kvo_store *s, store_inflow *in); /* NULL is allowed */

/* Sum of segments; segments NULL with count > 0 is the caller's mistake. */
uint64_t store_segments_bytes(const kvo_segment *segments, uint32_t count);
/* Whether each that is not empty has memory. */
bool store_segments_there(const kvo_segment *segments, uint32_t count);

/* Brings the blocks of answers that carry a handle to a level; those that do not get there
   become KVO_SHORT. KVO_OK, KVO_SHORT, or why nothing could be tried. *busy (may be NULL): some did not
   because others were in the way, so that another try may do. */
int store_sync_answers(kvo_store *s, kvo_answer *answers, size_t count, int level, uint64_t deadline, bool *busy);
/* kvo_sync() of checked arguments; deadline as store_deadline() makes it. */
int store_sync(kvo_store *s, const kvo_target *target, int level, uint64_t deadline, kvo_answer *answers, bool *busy);

#endif
