/* SPDX-License-Identifier: Apache-2.0 */
/* Stores of others that are libraries: LMDB, RocksDB's BlobDB. */
#include "peer.h"

#include <lmdb.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- LMDB ---- */

typedef struct lmdb {
    MDB_env *env;
    MDB_dbi dbi;
} lmdb;

static int lmdb_begin(lmdb *l, const peer_place *place)
{
    MDB_txn *txn;
    int r = mdb_env_create(&l->env);
    r = r != 0
            ? r
            : mdb_env_set_mapsize(l->env, (place->block_bytes + 8192) * (place->blocks + 64) + (64u << 20));
    r = r != 0 ? r : mdb_env_open(l->env, place->directory, MDB_NOSYNC, 0600);
    r = r != 0 ? r : mdb_txn_begin(l->env, NULL, 0, &txn);
    if (r == 0) {
        r = mdb_dbi_open(txn, NULL, MDB_CREATE, &l->dbi);
        r = r != 0 ? r : mdb_txn_commit(txn);
    }
    return r;
}

static void *lmdb_open(const peer_place *place, char error[256])
{
    lmdb *l = calloc(1, sizeof *l);
    int r = lmdb_begin(l, place);
    if (r != 0) {
        (void)snprintf(error, 256, "%.250s", mdb_strerror(r));
        if (l->env != NULL) {
            mdb_env_close(l->env);
        }
        free(l);
        return NULL;
    }
    return l;
}

static void lmdb_close(void *peer)
{
    mdb_env_close(((lmdb *)peer)->env);
    free(peer);
}

static int lmdb_put(void *peer, const uint8_t *keys, const void *const *blocks, size_t count, size_t bytes)
{
    lmdb *l = peer;
    MDB_txn *txn;
    int r = mdb_txn_begin(l->env, NULL, 0, &txn);
    for (size_t i = 0; r == 0 && i < count; i++) {
        MDB_val key = {PEER_KEY, (void *)(uintptr_t)(keys + i * PEER_KEY)},
                value = {bytes, (void *)(uintptr_t)blocks[i]};
        r = mdb_put(txn, l->dbi, &key, &value, 0);
    }
    return r == 0 ? mdb_txn_commit(txn) : -1;
}

static int lmdb_sync(void *peer)
{
    return mdb_env_sync(((lmdb *)peer)->env, 1);
}

static void lmdb_get(void *peer, const uint8_t *keys, void *const *blocks, size_t count, size_t bytes,
                     int *results)
{
    lmdb *l = peer;
    MDB_txn *txn;
    int r = mdb_txn_begin(l->env, NULL, MDB_RDONLY, &txn);
    for (size_t i = 0; i < count; i++) {
        MDB_val key = {PEER_KEY, (void *)(uintptr_t)(keys + i * PEER_KEY)}, value;
        int one = r != 0 ? r : mdb_get(txn, l->dbi, &key, &value);
        results[i] = one == MDB_NOTFOUND                  ? PEER_MISS
                     : one != 0 || value.mv_size != bytes ? PEER_ERROR
                                                          : PEER_FOUND;
        if (results[i] == PEER_FOUND) {
            memcpy(blocks[i], value.mv_data, bytes);
        }
    }
    if (r == 0) {
        mdb_txn_abort(txn);
    }
}

const peer_ops peer_lmdb = {.name = "LMDB",
                            .durability =
                                "the page cache, one transaction a call (MDB_NOSYNC); sync: mdb_env_sync",
                            .checks = "nothing",
                            .persistent = 1,
                            .open = lmdb_open,
                            .close = lmdb_close,
                            .put = lmdb_put,
                            .sync = lmdb_sync,
                            .get = lmdb_get};

/* ---- RocksDB, large values in blob files ---- */

typedef struct rocks {
    rocksdb_t *db;
    rocksdb_column_family_handle_t *family;
    rocksdb_options_t *options;
    rocksdb_writeoptions_t *write;
    rocksdb_readoptions_t *read;
    rocksdb_writebatch_t *batch; /* one, so that its memory is there from the second call on */
} rocks;

/* What lies in its memory and its log goes where it lies at rest: else the next open would replay up to 64 MiB. */
static void flush_memory(rocks *r)
{
    char *why = NULL;
    rocksdb_flushoptions_t *options = rocksdb_flushoptions_create();
    rocksdb_flushoptions_set_wait(options, 1);
    rocksdb_flush(r->db, options, &why);
    rocksdb_flushoptions_destroy(options);
    free(why);
}

static void rocks_close(void *peer)
{
    rocks *r = peer;
    if (r->db != NULL) {
        flush_memory(r);
        rocksdb_column_family_handle_destroy(r->family);
        rocksdb_close(r->db);
    }
    rocksdb_options_destroy(r->options);
    rocksdb_writeoptions_destroy(r->write);
    rocksdb_readoptions_destroy(r->read);
    rocksdb_writebatch_destroy(r->batch);
    free(r);
}

static void *rocks_open(const peer_place *place, char error[256])
{
    const char *name = "default";
    char *why = NULL;
    rocks *r = calloc(1, sizeof *r);
    r->options = rocksdb_options_create();
    r->write = rocksdb_writeoptions_create();
    r->read = rocksdb_readoptions_create();
    r->batch = rocksdb_writebatch_create();
    rocksdb_options_set_create_if_missing(r->options, 1);
    rocksdb_options_set_compression(r->options, rocksdb_no_compression);
    rocksdb_options_set_enable_blob_files(r->options, 1);
    rocksdb_options_set_min_blob_size(r->options, 4096);
    rocksdb_readoptions_set_verify_checksums(r->read, 1);
    r->db = rocksdb_open_column_families(r->options, place->directory, 1, &name,
                                         (const rocksdb_options_t *const *)&r->options, &r->family, &why);
    if (r->db == NULL) {
        (void)snprintf(error, 256, "%.250s", why != NULL ? why : "no reason");
        free(why);
        rocks_close(r);
        return NULL;
    }
    return r;
}

static int rocks_put(void *peer, const uint8_t *keys, const void *const *blocks, size_t count, size_t bytes)
{
    rocks *r = peer;
    char *why = NULL;
    rocksdb_writebatch_clear(r->batch);
    for (size_t i = 0; i < count; i++) {
        rocksdb_writebatch_put(r->batch, (const char *)keys + i * PEER_KEY, PEER_KEY, blocks[i], bytes);
    }
    rocksdb_write(r->db, r->write, r->batch, &why);
    int failed = why != NULL;
    free(why);
    return failed ? -1 : 0;
}

static int rocks_sync(void *peer)
{
    char *why = NULL;
    rocksdb_flush_wal(((rocks *)peer)->db, 1, &why);
    int failed = why != NULL;
    free(why);
    return failed ? -1 : 0;
}

static void rocks_get(void *peer, const uint8_t *keys, void *const *blocks, size_t count, size_t bytes,
                      int *results)
{
    rocks *r = peer;
    const char *names[PEER_BATCH] = {NULL};
    size_t lengths[PEER_BATCH] = {0};
    rocksdb_pinnableslice_t *values[PEER_BATCH] = {NULL};
    char *whys[PEER_BATCH] = {NULL};
    for (size_t i = 0; i < count; i++) {
        names[i] = (const char *)keys + i * PEER_KEY;
        lengths[i] = PEER_KEY;
    }
    rocksdb_batched_multi_get_cf(r->db, r->read, r->family, count, names, lengths, values, whys, 0);
    for (size_t i = 0; i < count; i++) {
        size_t length = 0;
        const char *at = values[i] != NULL ? rocksdb_pinnableslice_value(values[i], &length) : NULL;
        results[i] = whys[i] != NULL   ? PEER_ERROR
                     : at == NULL      ? PEER_MISS
                     : length != bytes ? PEER_ERROR
                                       : PEER_FOUND;
        if (results[i] == PEER_FOUND) {
            memcpy(blocks[i], at, bytes);
        }
        if (values[i] != NULL) {
            rocksdb_pinnableslice_destroy(values[i]);
        }
        free(whys[i]);
    }
}

const peer_ops peer_rocksdb = {.name = "RocksDB BlobDB",
                               .durability = "the page cache, by its log; sync: the log is flushed",
                               .checks = "CRC32C of what is read from blob files",
                               .persistent = 1,
                               .open = rocks_open,
                               .close = rocks_close,
                               .put = rocks_put,
                               .sync = rocks_sync,
                               .get = rocks_get};
