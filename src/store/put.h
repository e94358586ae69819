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
/* Publishes: writes staged memory to its slot if the tier needs that. KVO_STORED or an error, after
   which the block is gone. */
int store_seal(kvo_store *s, uint32_t record, const uint8_t digest[16]);
void store_abort(kvo_store *s, uint32_t record);
void store_count_put(kvo_store *s, int status);
/* From the payload's end to the whole page. */
void store_zero_tail(void *memory, uint32_t payload_bytes);
/* Whether two digests agree. */
bool store_digest_same(const uint8_t a[16], const uint8_t b[16]);

/* Sum of segments; segments NULL with count > 0 is the caller's mistake. */
uint64_t store_segments_bytes(const kvo_segment *segments, uint32_t count);
/* Whether each that is not empty has memory. */
bool store_segments_there(const kvo_segment *segments, uint32_t count);

/* Brings the blocks of answers that carry a handle to a level; those that do not get there
   become KVO_SHORT. KVO_OK, KVO_SHORT, or why nothing could be tried. */
int store_sync_answers(kvo_store *s, kvo_answer *answers, size_t count, int level, uint64_t deadline);

#endif
