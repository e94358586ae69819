/* SPDX-License-Identifier: Apache-2.0 */
#include "block/identity.h"

#include <stddef.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static_assert(offsetof(block_identity, sequence) == 32 && offsetof(block_identity, space) == 48 &&
                  offsetof(block_identity, payload_bytes) == 56 && offsetof(block_identity, name) == 64,
              "identity_*_of() know these words");

enum { WORD_KEY = 6, WORD_SHAPE = 7, WORD_NAME = 8 };
#define SHAPE_KEY_BITS (0xffffull << 32) /* name_bytes and kind; the payload's length is not key */

void identity_store(block_identity_words *to, const block_identity *from)
{
    uint64_t words[IDENTITY_WORDS];
    memcpy(words, from, sizeof words);
    for (unsigned i = 0; i < IDENTITY_WORDS; i++)
        atomic_store_explicit(&to->word[i], words[i], memory_order_release);
}

void identity_load(const block_identity_words *from, block_identity *to)
{
    uint64_t words[IDENTITY_WORDS];
    for (unsigned i = 0; i < IDENTITY_WORDS; i++)
        words[i] = atomic_load_explicit(&from->word[i], memory_order_acquire);
    memcpy(to, words, sizeof words);
}

void identity_key(const kvo_names *names, size_t i, block_identity *key)
{
    size_t stride = names->stride_bytes ? names->stride_bytes : names->name_bytes;
    memset(key, 0, sizeof *key);
    key->space = (uint16_t)names->space;
    key->layer_first = names->layer_first;
    key->layer_count = names->layer_count;
    key->head_group = names->head_group;
    key->name_bytes = (uint8_t)names->name_bytes;
    key->kind = names->kind;
    memcpy(key->name, (const uint8_t *)names->first + i * stride, names->name_bytes);
    key->key_hash = identity_hash(key);
}

static uint64_t seed_of(uint64_t key, uint64_t shape) { return key ^ (shape & SHAPE_KEY_BITS) >> 16; }

static inline uint64_t hash_name(const uint8_t *name, size_t bytes, uint64_t seed)
{
    uint64_t hash = XXH3_64bits_withSeed(name, bytes, seed);
    return hash ? hash : 1; /* 0 says "no parent" */
}

uint64_t identity_hash(const block_identity *key)
{
    uint64_t words[2];
    memcpy(words, &key->space, sizeof words);
    return hash_name(key->name, key->name_bytes, seed_of(words[0], words[1]));
}

bool identity_same(const block_identity_words *have, const block_identity *key)
{
    uint64_t words[IDENTITY_WORDS];
    memcpy(words, key, sizeof words);
    if (atomic_load_explicit(&have->word[WORD_KEY], memory_order_acquire) != words[WORD_KEY])
        return false;
    uint64_t shape = atomic_load_explicit(&have->word[WORD_SHAPE], memory_order_acquire);
    if ((shape ^ words[WORD_SHAPE]) & SHAPE_KEY_BITS)
        return false;
    unsigned end = WORD_NAME + (key->name_bytes + 7u) / 8u;
    for (unsigned i = WORD_NAME; i < end; i++)
        if (atomic_load_explicit(&have->word[i], memory_order_acquire) != words[i])
            return false;
    return true;
}

/* ---- batches of names ---- */

#define USUAL_BYTES 32u /* of a name: a constant length makes hash and comparison straight code */

void identity_names_begin(identity_names *names, const kvo_names *from)
{
    block_identity key = {.space = (uint16_t)from->space,
                          .layer_first = from->layer_first,
                          .layer_count = from->layer_count,
                          .head_group = from->head_group,
                          .name_bytes = (uint8_t)from->name_bytes,
                          .kind = from->kind};
    uint64_t words[2];
    memcpy(words, &key.space, sizeof words);
    *names = (identity_names){.first = from->first,
                              .stride = from->stride_bytes ? from->stride_bytes : from->name_bytes,
                              .name_bytes = from->name_bytes,
                              .key = words[0],
                              .shape = words[1],
                              .seed = seed_of(words[0], words[1])};
}

void identity_hashes(const identity_names *names, size_t i, size_t count, uint64_t *hashes)
{
    const uint8_t *name = names->first + i * names->stride;
    if (names->name_bytes == USUAL_BYTES)
        for (size_t k = 0; k < count; k++, name += names->stride)
            hashes[k] = hash_name(name, USUAL_BYTES, names->seed);
    else
        for (size_t k = 0; k < count; k++, name += names->stride)
            hashes[k] = hash_name(name, names->name_bytes, names->seed);
}

/* Without a branch a word: nearly every name that is compared is the right one. */
static inline bool same_name(const block_identity_words *have, const uint8_t *name, size_t bytes)
{
    const _Atomic uint64_t *word = &have->word[WORD_NAME];
    uint64_t difference = 0, want;
    for (; bytes >= sizeof want; bytes -= sizeof want, name += sizeof want) {
        memcpy(&want, name, sizeof want);
        difference |= atomic_load_explicit(word++, memory_order_acquire) ^ want;
    }
    if (bytes) {
        want = 0;
        memcpy(&want, name, bytes);
        difference |= atomic_load_explicit(word, memory_order_acquire) ^ want;
    }
    return difference == 0;
}

bool identity_named(const block_identity_words *have, const identity_names *names, size_t i)
{
    const uint8_t *name = names->first + i * names->stride;
    uint64_t key = atomic_load_explicit(&have->word[WORD_KEY], memory_order_acquire) ^ names->key;
    uint64_t shape = atomic_load_explicit(&have->word[WORD_SHAPE], memory_order_acquire) ^ names->shape;
    if (key | (shape & SHAPE_KEY_BITS))
        return false;
    return names->name_bytes == USUAL_BYTES ? same_name(have, name, USUAL_BYTES)
                                            : same_name(have, name, names->name_bytes);
}
