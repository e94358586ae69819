/* SPDX-License-Identifier: Apache-2.0 */
#include "index/index.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/planted.h"

/* Six blocks a bucket of ten. Names are hashes, so at first one bucket in 23 overflows (Poisson); as entries
   never move, overflow buckets stay in use while their home has room again, and for random comings and goings
   up to 0.028 of them a block were counted. There are 0.042. */
static uint32_t buckets_for(uint32_t records_max) { return records_max / 6 + 1; }
static uint32_t overflow_for(uint32_t records_max) { return records_max / 24 + 64; }

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

/* ---- one bucket ---- */

#define LANES 0x0001000100010001u
#define NEXT_SHIFT 32

/* Never 0, which is an empty entry's. */
static uint64_t tag_of(uint64_t hash) { return hash >> 48 ? hash >> 48 : 1; }

/* The highest bit of each lane of 16 that is 0. */
static uint64_t zero_lanes(uint64_t x)
{
    const uint64_t low = 0x7fff * LANES;
    return ~(((x & low) + low) | x | low);
}

/* The entries with this tag, each a bit: of the ith word's lane l it is bit 16 l + i. */
static uint64_t with_tag(const index_bucket *b, uint64_t tag)
{
    uint64_t want = tag * LANES, other = LANES << NEXT_SHIFT; /* what `next` says is no tag */
    return zero_lanes(word_load(&b->tags[0]) ^ want) >> 15 | zero_lanes(word_load(&b->tags[1]) ^ want) >> 14 |
           zero_lanes(((word_load(&b->tags[2]) ^ want) & 0xffffffffu) | other) >> 13;
}

static unsigned lowest_entry(uint64_t entries)
{
    unsigned bit = (unsigned)__builtin_ctzll(entries);
    return bit % 16 * 4 + bit / 16;
}

static uint32_t record_of(const index_bucket *b, unsigned entry)
{
    return atomic_load_explicit(&b->record[entry], memory_order_acquire);
}

/* A reader that finds the tag finds the record. */
static void entry_set(index_bucket *b, unsigned entry, uint64_t tag, uint32_t record)
{
    atomic_store_explicit(&b->record[entry], record, memory_order_release);
    word_store(&b->tags[entry / 4], word_load(&b->tags[entry / 4]) | tag << 16 * (entry % 4));
}

static void entry_clear(index_bucket *b, unsigned entry)
{
    word_store(&b->tags[entry / 4], word_load(&b->tags[entry / 4]) & ~(0xffffull << 16 * (entry % 4)));
    atomic_store_explicit(&b->record[entry], 0, memory_order_release); /* equal contents are equal tables */
}

static const index_bucket *next_of(const index_table *ix, const index_bucket *b)
{
    uint64_t next = word_load(&b->tags[2]) >> NEXT_SHIFT;
    return next ? &ix->buckets[ix->bucket_count + next - 1] : NULL;
}

/* ---- readers ---- */

/* What a reader of an identity does after it, with the record's life from before. */
static bool still(const index_table *ix, uint32_t record, uint64_t before, uint64_t *life)
{
    *life = word_load(&ix->records[record].life);
    return life_incarnation(before) == life_incarnation(*life) && life_has(*life, LIFE_USED) &&
           !life_has(*life, LIFE_DOOMED);
}

/* The record if it stands for the key now. What was rewritten meanwhile still does: look again. */
static bool entry_is(const index_table *ix, uint32_t record, const block_identity *key, uint64_t *life)
{
    uint64_t before = word_load(&ix->records[record].life);
    while (life_has(before, LIFE_USED) && (identity_same(&ix->identities[record], key) || KVO_PLANTED(NAME))) {
        if (still(ix, record, before, life))
            return true;
        if (life_incarnation(before) == life_incarnation(*life))
            return false;
        before = *life;
    }
    return false;
}

uint32_t index_find(const index_table *ix, const block_identity *key, uint64_t *life)
{
    for (const index_bucket *b = &ix->buckets[home(ix, key->key_hash)]; b; b = next_of(ix, b))
        for (uint64_t found = with_tag(b, tag_of(key->key_hash)); found; found &= found - 1) {
            uint32_t record = record_of(b, lowest_entry(found));
            if (entry_is(ix, record, key, life))
                return record;
        }
    return BLOCK_NONE;
}

uint32_t index_find_hash(const index_table *ix, uint64_t key_hash)
{
    for (const index_bucket *b = &ix->buckets[home(ix, key_hash)]; b; b = next_of(ix, b))
        for (uint64_t found = with_tag(b, tag_of(key_hash)); found; found &= found - 1) {
            uint32_t record = record_of(b, lowest_entry(found));
            if (identity_hash_of(&ix->identities[record]) == key_hash)
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

static uint32_t candidate(const index_table *ix, uint64_t hash)
{
    for (const index_bucket *b = &ix->buckets[home(ix, hash)]; b; b = next_of(ix, b)) {
        uint64_t found = with_tag(b, tag_of(hash));
        if (found == 0)
            continue;
        uint32_t record = record_of(b, lowest_entry(found));
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
    bool named = identity_named(&ix->identities[record], &batch->names, i) || KVO_PLANTED(NAME);
    return life_has(before, LIFE_USED) && named && still(ix, record, before, life);
}

/* The candidate was another's, or has left meanwhile: all entries, as they are now. */
static uint32_t find_among(const index_batch *batch, size_t i, uint64_t hash, uint64_t *life)
{
    const index_table *ix = batch->index;
    for (const index_bucket *b = &ix->buckets[home(ix, hash)]; b; b = next_of(ix, b))
        for (uint64_t found = with_tag(b, tag_of(hash)); found; found &= found - 1) {
            uint32_t record = record_of(b, lowest_entry(found));
            if (entry_named(batch, record, i, life))
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

/* ---- writers ---- */

static void link_set(index_bucket *b, uint64_t next)
{
    word_store(&b->tags[2], (word_load(&b->tags[2]) & 0xffffffffu) | next << NEXT_SHIFT);
}

bool index_insert(index_table *ix, uint64_t key_hash, uint32_t record)
{
    for (index_bucket *b = &ix->buckets[home(ix, key_hash)];;) {
        uint64_t empty = with_tag(b, 0);
        if (empty) {
            entry_set(b, lowest_entry(empty), tag_of(key_hash), record);
            return true;
        }
        uint64_t next = word_load(&b->tags[2]) >> NEXT_SHIFT;
        if (next == 0) {
            if (ix->spare_count == 0)
                return false;
            next = ix->spare[--ix->spare_count] + 1u;
            link_set(b, next);
        }
        b = &ix->buckets[ix->bucket_count + next - 1];
    }
}

static bool bucket_empty(const index_bucket *b)
{
    return (word_load(&b->tags[0]) | word_load(&b->tags[1]) | (word_load(&b->tags[2]) & 0xffffffffu)) == 0;
}

/* Only the last of a chain is taken off it: a reader that stands there has nothing more to see, and
   what it reads there afterwards is checked against the full name like everything else. */
static void unlink_empty_tail(index_table *ix, index_bucket *before, index_bucket *b)
{
    if (before == NULL || next_of(ix, b) || !bucket_empty(b))
        return;
    link_set(before, 0);
    ix->spare[ix->spare_count++] = (uint32_t)(b - ix->buckets) - ix->bucket_count;
}

void index_remove(index_table *ix, uint64_t key_hash, uint32_t record)
{
    index_bucket *before = NULL;
    for (index_bucket *b = &ix->buckets[home(ix, key_hash)]; b;) {
        for (uint64_t found = with_tag(b, tag_of(key_hash)); found; found &= found - 1)
            if (record_of(b, lowest_entry(found)) == record) {
                entry_clear(b, lowest_entry(found));
                unlink_empty_tail(ix, before, b);
                return;
            }
        uint64_t next = word_load(&b->tags[2]) >> NEXT_SHIFT;
        before = b;
        b = next ? &ix->buckets[ix->bucket_count + next - 1] : NULL;
    }
    KVO_ASSERT(before == NULL); /* never: a block in use is in the index */
}
