/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Name to record. A bucket is one cache line: ten entries and a link to an overflow bucket. An entry is a tag
 * of 16 bits and a record; tags lie together, so that all are compared at once.
 * Entries never move, so readers need no lock and cannot miss a block that stays: they find a tag, read the
 * record beside it, compare the full name in the identity, and check that the record's incarnation was the
 * same before and after. Writers hold the store's lock.
 */
#ifndef INDEX_INDEX_H
#define INDEX_INDEX_H

#include "base/env.h"
#include "block/identity.h"

#define INDEX_ENTRIES 10u
typedef struct index_bucket {
    _Atomic uint64_t tags[3]; /* four each; the last has two, and above them the overflow bucket + 1 (0: none) */
    _Atomic uint32_t record[INDEX_ENTRIES];
} index_bucket;

static_assert(sizeof(index_bucket) == 64, "a bucket is one cache line");

typedef struct index_table {
    base_env *env;
    block_record *records;
    block_identity_words *identities;
    index_bucket *buckets; /* bucket_count, then the overflow ones */
    uint32_t bucket_count;
    uint32_t overflow_count;
    uint32_t *spare; /* overflow buckets that are not linked; a stack */
    uint32_t spare_count;
    size_t bytes;
} index_table;

/* 0 or -ENOMEM. */
int index_open(index_table *ix, base_env *env, block_record *records, block_identity_words *identities,
               uint32_t records_max);
void index_close(index_table *ix);
size_t index_bytes_for(uint32_t records_max);

/* The record that stands for the key, or BLOCK_NONE; *life is its life word at that moment.
   Doomed blocks are not in the index. No lock. */
uint32_t index_find(const index_table *ix, const block_identity *key, uint64_t *life);
/* Any record with this key hash and, where there are several, any of them; for parents. */
uint32_t index_find_hash(const index_table *ix, uint64_t key_hash);
/*
 * The same for a batch of names, in ascending order. Names are taken in groups, and each step of a group
 * touches memory that the step before asked for: buckets, then records and identities, then the comparison.
 */
#define INDEX_GROUP 32u
typedef struct index_batch {
    const index_table *index;
    identity_names names;
    size_t count;     /* of names */
    size_t first, end; /* the group that is at hand */
    uint64_t hash[INDEX_GROUP];
    uint32_t candidate[INDEX_GROUP]; /* the first record of that hash; BLOCK_NONE */
} index_batch;

void index_batch_begin(index_batch *batch, const index_table *ix, const kvo_names *names);
uint32_t index_batch_find(index_batch *batch, size_t i, uint64_t *life);

/* Under the store's lock. false: no bucket left (as good as no record left). */
bool index_insert(index_table *ix, uint64_t key_hash, uint32_t record);
void index_remove(index_table *ix, uint64_t key_hash, uint32_t record);

#endif
