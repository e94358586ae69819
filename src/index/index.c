/* SPDX-License-Identifier: Apache-2.0 */
#include "index/index.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"

/* Four blocks a bucket of seven: about one bucket in twenty overflows (Poisson), and there are
   five times as many for those; names are hashes, so chains stay short. */
static uint32_t buckets_for(uint32_t records_max) { return records_max / 4 + 1; }
static uint32_t overflow_for(uint32_t records_max) { return records_max / 16 + 64; }

size_t index_bytes_for(uint32_t records_max)
{
    size_t overflow = overflow_for(records_max);
    return (buckets_for(records_max) + overflow) * sizeof(index_bucket) + overflow * sizeof(uint32_t);
}

int index_open(index_table *ix, base_env *env, block_record *records, block_identity_words *identities,
               uint32_t records_max)
{
    *ix = (index_table){
        .env = env,
        .records = records,
        .identities = identities,
        .bucket_count = buckets_for(records_max),
        .overflow_count = overflow_for(records_max),
        .bytes = index_bytes_for(records_max),
    };
    ix->buckets = env->alloc(env, ix->bytes);
    if (ix->buckets == NULL)
        return -ENOMEM;
    ix->spare = (uint32_t *)(void *)(ix->buckets + ix->bucket_count + ix->overflow_count);
    for (uint32_t i = ix->overflow_count; i-- > 0;)
        ix->spare[ix->spare_count++] = i;
    return 0;
}

void index_close(index_table *ix)
{
    if (ix->buckets)
        ix->env->free(ix->env, ix->buckets, ix->bytes);
    ix->buckets = NULL;
}

static uint32_t home(const index_table *ix, uint64_t hash)
{
    return (uint32_t)(((hash & 0xffffffffu) * ix->bucket_count) >> 32);
}

static uint64_t entry_make(uint64_t hash, uint32_t record)
{
    return (hash & 0xffffffff00000000u) | (uint64_t)(record + 1u);
}

static const index_bucket *next_of(const index_table *ix, const index_bucket *b)
{
    uint64_t next = word_load(&b->next);
    return next ? &ix->buckets[ix->bucket_count + next - 1] : NULL;
}

/* The entry's record, or BLOCK_NONE, if its half of the hash is the one wanted. */
static uint32_t entry_record(const index_bucket *b, unsigned i, uint64_t hash)
{
    uint64_t e = word_load(&b->entry[i]);
    return (e ^ hash) >> 32 == 0 ? (uint32_t)e - 1u : BLOCK_NONE;
}

/* What a reader of an identity does after it, with the record's life from before. */
static bool still(const index_table *ix, uint32_t record, uint64_t before, uint64_t *life)
{
    *life = word_load(&ix->records[record].life);
    return life_incarnation(before) == life_incarnation(*life) && life_has(*life, LIFE_USED) &&
           !life_has(*life, LIFE_DOOMED);
}

/* The record if it stands for the key now. */
static bool entry_is(const index_table *ix, uint32_t record, const block_identity *key, uint64_t *life)
{
    uint64_t before = word_load(&ix->records[record].life);
    return life_has(before, LIFE_USED) && identity_same(&ix->identities[record], key) &&
           still(ix, record, before, life);
}

uint32_t index_find(const index_table *ix, const block_identity *key, uint64_t *life)
{
    for (const index_bucket *b = &ix->buckets[home(ix, key->key_hash)]; b; b = next_of(ix, b))
        for (unsigned i = 0; i < 7; i++) {
            uint32_t record = entry_record(b, i, key->key_hash);
            if (record != BLOCK_NONE && entry_is(ix, record, key, life))
                return record;
        }
    return BLOCK_NONE;
}

uint32_t index_find_hash(const index_table *ix, uint64_t key_hash)
{
    for (const index_bucket *b = &ix->buckets[home(ix, key_hash)]; b; b = next_of(ix, b))
        for (unsigned i = 0; i < 7; i++) {
            uint32_t record = entry_record(b, i, key_hash);
            if (record != BLOCK_NONE && identity_hash_of(&ix->identities[record]) == key_hash)
                return record;
        }
    return BLOCK_NONE;
}

/* ---- batches ---- */

void index_batch_begin(index_batch *batch, const index_table *ix, const kvo_names *names)
{
    batch->index = ix;
    batch->count = names->count;
    batch->first = batch->end = 0;
    identity_names_begin(&batch->names, names);
}

/* Which of the bucket's entries have the hash, one bit each. All are looked at: where the right one
   stands is as good as random, and a branch on it would be guessed wrong. */
static unsigned bucket_matches(const index_bucket *b, uint64_t hash)
{
    unsigned matches = 0;
    for (unsigned i = 0; i < 7; i++)
        matches |= (unsigned)((word_load(&b->entry[i]) ^ hash) >> 32 == 0) << i;
    return matches;
}

static uint32_t candidate(const index_table *ix, uint64_t hash)
{
    for (const index_bucket *b = &ix->buckets[home(ix, hash)]; b; b = next_of(ix, b)) {
        unsigned matches = bucket_matches(b, hash);
        uint32_t record = matches ? entry_record(b, (unsigned)__builtin_ctz(matches), hash) : BLOCK_NONE;
        if (record == BLOCK_NONE)
            continue;
        __builtin_prefetch(&ix->records[record]);
        __builtin_prefetch(&ix->identities[record]);
        __builtin_prefetch(&ix->identities[record].word[8]);
        return record;
    }
    return BLOCK_NONE;
}

static void group_begin(index_batch *batch, size_t i)
{
    size_t n = batch->count - i < INDEX_GROUP ? batch->count - i : INDEX_GROUP;
    identity_hashes(&batch->names, i, n, batch->hash);
    for (size_t k = 0; k < n; k++)
        __builtin_prefetch(&batch->index->buckets[home(batch->index, batch->hash[k])]);
    for (size_t k = 0; k < n; k++)
        batch->candidate[k] = candidate(batch->index, batch->hash[k]);
    batch->first = i;
    batch->end = i + n;
}

static bool entry_named(const index_batch *batch, uint32_t record, size_t i, uint64_t *life)
{
    const index_table *ix = batch->index;
    uint64_t before = word_load(&ix->records[record].life);
    return life_has(before, LIFE_USED) && identity_named(&ix->identities[record], &batch->names, i) &&
           still(ix, record, before, life);
}

/* The candidate was another's, or has left meanwhile: all entries, as they are now. */
static uint32_t find_among(const index_batch *batch, size_t i, uint64_t hash, uint64_t *life)
{
    const index_table *ix = batch->index;
    for (const index_bucket *b = &ix->buckets[home(ix, hash)]; b; b = next_of(ix, b))
        for (unsigned k = 0; k < 7; k++) {
            uint32_t record = entry_record(b, k, hash);
            if (record != BLOCK_NONE && entry_named(batch, record, i, life))
                return record;
        }
    return BLOCK_NONE;
}

uint32_t index_batch_find(index_batch *batch, size_t i, uint64_t *life)
{
    if (i >= batch->end)
        group_begin(batch, i);
    uint32_t record = batch->candidate[i - batch->first];
    if (record == BLOCK_NONE || entry_named(batch, record, i, life))
        return record;
    return find_among(batch, i, batch->hash[i - batch->first], life);
}

static _Atomic uint64_t *empty_entry(index_bucket *b)
{
    for (unsigned i = 0; i < 7; i++)
        if (word_load(&b->entry[i]) == 0)
            return &b->entry[i];
    return NULL;
}

bool index_insert(index_table *ix, uint64_t key_hash, uint32_t record)
{
    for (index_bucket *b = &ix->buckets[home(ix, key_hash)];;) {
        _Atomic uint64_t *e = empty_entry(b);
        if (e) {
            word_store(e, entry_make(key_hash, record));
            return true;
        }
        uint64_t next = word_load(&b->next);
        if (next == 0) {
            if (ix->spare_count == 0)
                return false;
            next = ix->spare[--ix->spare_count] + 1u;
            word_store(&b->next, next);
        }
        b = &ix->buckets[ix->bucket_count + next - 1];
    }
}

static bool bucket_empty(const index_bucket *b)
{
    for (unsigned i = 0; i < 7; i++)
        if (word_load(&b->entry[i]))
            return false;
    return true;
}

/* Only the last of a chain is taken off it: a reader that stands there has nothing more to see, and
   what it reads there afterwards is checked against the full name like everything else. */
static void unlink_empty_tail(index_table *ix, index_bucket *before, index_bucket *b)
{
    if (before == NULL || word_load(&b->next) != 0 || !bucket_empty(b))
        return;
    word_store(&before->next, 0);
    ix->spare[ix->spare_count++] = (uint32_t)(b - ix->buckets) - ix->bucket_count;
}

void index_remove(index_table *ix, uint64_t key_hash, uint32_t record)
{
    uint64_t entry = entry_make(key_hash, record);
    index_bucket *before = NULL;
    for (index_bucket *b = &ix->buckets[home(ix, key_hash)]; b;) {
        for (unsigned i = 0; i < 7; i++)
            if (word_load(&b->entry[i]) == entry) {
                word_store(&b->entry[i], 0);
                unlink_empty_tail(ix, before, b);
                return;
            }
        uint64_t next = word_load(&b->next);
        before = b;
        b = next ? &ix->buckets[ix->bucket_count + next - 1] : NULL;
    }
    KVO_ASSERT(before == NULL); /* never: a block in use is in the index */
}
