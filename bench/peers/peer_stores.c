/* SPDX-License-Identifier: Apache-2.0 */
/* Stores of others: LMDB, RocksDB's BlobDB, Redis over a unix socket. */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <lmdb.h>
#include <rocksdb/c.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

const peer_ops peer_lmdb = {
    "LMDB",    "the page cache, one transaction a call (MDB_NOSYNC); sync: mdb_env_sync",
    "nothing", 1,
    lmdb_open, lmdb_close,
    lmdb_put,  lmdb_sync,
    lmdb_get,  NULL,
    NULL};

/* ---- RocksDB, large values in blob files ---- */

typedef struct rocks {
    rocksdb_t *db;
    rocksdb_options_t *options;
    rocksdb_writeoptions_t *write;
    rocksdb_readoptions_t *read;
} rocks;

static void rocks_close(void *peer)
{
    rocks *r = peer;
    if (r->db != NULL) {
        rocksdb_close(r->db);
    }
    rocksdb_options_destroy(r->options);
    rocksdb_writeoptions_destroy(r->write);
    rocksdb_readoptions_destroy(r->read);
    free(r);
}

static void *rocks_open(const peer_place *place, char error[256])
{
    char *why = NULL;
    rocks *r = calloc(1, sizeof *r);
    r->options = rocksdb_options_create();
    r->write = rocksdb_writeoptions_create();
    r->read = rocksdb_readoptions_create();
    rocksdb_options_set_create_if_missing(r->options, 1);
    rocksdb_options_set_compression(r->options, rocksdb_no_compression);
    rocksdb_options_set_enable_blob_files(r->options, 1);
    rocksdb_options_set_min_blob_size(r->options, 4096);
    rocksdb_readoptions_set_verify_checksums(r->read, 1);
    r->db = rocksdb_open(r->options, place->directory, &why);
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
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    for (size_t i = 0; i < count; i++) {
        rocksdb_writebatch_put(batch, (const char *)keys + i * PEER_KEY, PEER_KEY, blocks[i], bytes);
    }
    rocksdb_write(r->db, r->write, batch, &why);
    rocksdb_writebatch_destroy(batch);
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
    for (size_t i = 0; i < count; i++) {
        char *why = NULL;
        rocksdb_pinnableslice_t *value =
            rocksdb_get_pinned(r->db, r->read, (const char *)keys + i * PEER_KEY, PEER_KEY, &why);
        size_t length = 0;
        const char *at = value != NULL ? rocksdb_pinnableslice_value(value, &length) : NULL;
        results[i] = why != NULL       ? PEER_ERROR
                     : at == NULL      ? PEER_MISS
                     : length != bytes ? PEER_ERROR
                                       : PEER_FOUND;
        if (results[i] == PEER_FOUND) {
            memcpy(blocks[i], at, bytes);
        }
        if (value != NULL) {
            rocksdb_pinnableslice_destroy(value);
        }
        free(why);
    }
}

const peer_ops peer_rocksdb = {"RocksDB BlobDB",
                               "the page cache, by its log; sync: the log is flushed",
                               "CRC32C of what is read from blob files",
                               1,
                               rocks_open,
                               rocks_close,
                               rocks_put,
                               rocks_sync,
                               rocks_get,
                               NULL,
                               NULL};

/* ---- Redis, with an append-only file that the kernel writes when it likes ---- */

typedef struct redis {
    redisContext *context;
    pid_t server;
} redis;

static void nap(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

static pid_t start_server(const peer_place *place, const char *socket)
{
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_RDWR);
        (void)dup2(null, 1);
        (void)dup2(null, 2);
        (void)execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket, "--dir",
                     place->directory, "--save", "", "--appendonly", "yes", "--appendfsync", "no",
                     "--proto-max-bulk-len", "512mb", (char *)NULL);
        _exit(127);
    }
    return child;
}

static void redis_stop(void *peer)
{
    redis *r = peer;
    if (r->context != NULL) {
        freeReplyObject(redisCommand(r->context, "SHUTDOWN NOSAVE"));
        redisFree(r->context);
    }
    (void)kill(r->server, SIGTERM);
    (void)waitpid(r->server, NULL, 0);
    free(r);
}

/* Up, and done with loading what was there. */
static int is_ready(redis *r, const char *socket)
{
    if (r->context == NULL || r->context->err != 0) {
        if (r->context != NULL) {
            redisFree(r->context);
        }
        r->context = redisConnectUnix(socket);
    }
    redisReply *reply = r->context != NULL && r->context->err == 0 ? redisCommand(r->context, "PING") : NULL;
    int ready = reply != NULL && reply->type == REDIS_REPLY_STATUS;
    if (reply != NULL) {
        freeReplyObject(reply);
    }
    return ready;
}

static void *redis_open(const peer_place *place, char error[256])
{
    char socket[4200];
    redis *r = calloc(1, sizeof *r);
    (void)snprintf(socket, sizeof socket, "%s/s", place->directory);
    (void)unlink(socket);
    r->server = start_server(place, socket);
    for (int i = 0; i < 20000; i++) {
        if (is_ready(r, socket)) {
            return r;
        }
        if (waitpid(r->server, NULL, WNOHANG) == r->server) {
            break;
        }
        nap(1);
    }
    (void)snprintf(error, 256, "redis-server does not come up");
    (void)kill(r->server, SIGKILL);
    if (r->context != NULL) {
        redisFree(r->context);
    }
    free(r);
    return NULL;
}

static int redis_put(void *peer, const uint8_t *keys, const void *const *blocks, size_t count, size_t bytes)
{
    redis *r = peer;
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        (void)redisAppendCommand(r->context, "SET %b %b", keys + i * PEER_KEY, (size_t)PEER_KEY, blocks[i],
                                 bytes);
    }
    for (size_t i = 0; i < count; i++) {
        redisReply *reply = NULL;
        failed = redisGetReply(r->context, (void **)&reply) != REDIS_OK ||
                 reply->type != REDIS_REPLY_STATUS || failed;
        if (reply != NULL) {
            freeReplyObject(reply);
        }
    }
    return failed ? -1 : 0;
}

static void redis_get(void *peer, const uint8_t *keys, void *const *blocks, size_t count, size_t bytes,
                      int *results)
{
    redis *r = peer;
    for (size_t i = 0; i < count; i++) {
        redisReply *reply = redisCommand(r->context, "GET %b", keys + i * PEER_KEY, (size_t)PEER_KEY);
        results[i] = reply != NULL && reply->type == REDIS_REPLY_NIL ? PEER_MISS : PEER_ERROR;
        if (reply != NULL && reply->type == REDIS_REPLY_STRING && (size_t)reply->len == bytes) {
            memcpy(blocks[i], reply->str, bytes);
            results[i] = PEER_FOUND;
        }
        if (reply != NULL) {
            freeReplyObject(reply);
        }
    }
}

static int redis_writer(void *peer)
{
    return ((redis *)peer)->server;
}

const peer_ops peer_redis = {
    "Redis, unix socket",
    "the server's memory and, by the append-only file, the page cache; no call waits for the disk "
    "(7.0); sync: the benchmark's syncfs",
    "nothing",
    1,
    redis_open,
    redis_stop,
    redis_put,
    NULL,
    redis_get,
    redis_writer,
    NULL};
