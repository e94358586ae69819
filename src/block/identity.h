/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The identity record: what a block is, fixed at its creation; 128 bytes, the same in memory
 * and in the header of every copy (docs/format.md). In memory it is read without a lock while
 * its record may be given to another block, so it is kept as atomic words, and a reader
 * compares the record's incarnation before and after.
 */
#ifndef BLOCK_IDENTITY_H
#define BLOCK_IDENTITY_H

#include "block/record.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the identity record is little-endian, in memory as on the medium"
#endif

typedef struct block_identity {
    uint64_t key_hash;    /* XXH3-64 of the name, seeded with the other key fields */
    uint64_t parent_hash; /* key_hash of the parent; 0 = none or not known */
    uint8_t digest[16];   /* XXH3-128 of the payload, canonical form */
    uint64_t sequence;
    uint32_t position;
    uint32_t positions;
    uint16_t space;
    uint16_t layer_first;
    uint16_t layer_count;
    uint16_t head_group;
    uint32_t payload_bytes;
    uint8_t name_bytes;
    uint8_t kind;
    uint16_t reserved;
    uint8_t name[KVO_NAME_BYTES_MAX]; /* zeros after name_bytes */
} block_identity;

#define IDENTITY_WORDS 16
static_assert(sizeof(block_identity) == 8 * IDENTITY_WORDS, "an identity record is two cache lines");

typedef struct block_identity_words {
    _Atomic uint64_t word[IDENTITY_WORDS];
} block_identity_words;

void identity_store(block_identity_words *to, const block_identity *from);
/* Only meaningful if the record's incarnation was the same before and after. */
void identity_load(const block_identity_words *from, block_identity *to);

/* The key part of an identity from one name of a batch; the rest is zero. */
void identity_key(const kvo_names *names, size_t i, block_identity *key);
uint64_t identity_hash(const block_identity *key);
/* Same space, name, kind, layers and head group, compared in full. */
bool identity_same(const block_identity_words *have, const block_identity *key);

/* A batch of names as look-ups use it: the words that all keys share. The names stay where the caller has
   them. */
typedef struct identity_names {
    const uint8_t *first;
    size_t stride, name_bytes;
    uint64_t key;   /* word 6 */
    uint64_t shape; /* of word 7 what belongs to the key */
    uint64_t seed;
} identity_names;

void identity_names_begin(identity_names *names, const kvo_names *from);
/* key_hash of names [i, i + count). */
void identity_hashes(const identity_names *names, size_t i, size_t count, uint64_t *hashes);
/* As identity_same(). */
bool identity_named(const block_identity_words *have, const identity_names *names, size_t i);

static inline uint64_t identity_hash_of(const block_identity_words *w)
{
    return atomic_load_explicit(&w->word[0], memory_order_acquire);
}
static inline uint64_t identity_parent_of(const block_identity_words *w)
{
    return atomic_load_explicit(&w->word[1], memory_order_acquire);
}
static inline uint32_t identity_payload_of(const block_identity_words *w)
{
    return (uint32_t)atomic_load_explicit(&w->word[7], memory_order_acquire);
}
static inline uint64_t identity_sequence_of(const block_identity_words *w)
{
    return atomic_load_explicit(&w->word[4], memory_order_acquire);
}
static inline unsigned identity_space_of(const block_identity_words *w)
{
    return (unsigned)atomic_load_explicit(&w->word[6], memory_order_acquire) & 0xffffu;
}

#endif
