/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One way to keep blocks, as the benchmark sees it. Names are 32 bytes, a call hands over up to PEER_BATCH blocks of one
 * size. A system that has no such call is called once a block.
 */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <stdint.h>

#define PEER_KEY 32
#define PEER_BATCH 8

enum { PEER_FOUND = 0, PEER_MISS = 1, PEER_ERROR = -1 };

typedef struct peer_place {
    const char *directory; /* empty, or what this system left there */
    size_t block_bytes;
    size_t blocks;         /* room for so many */
} peer_place;

typedef struct peer_ops {
    const char *name;
    const char *durability; /* what a put has reached when it returns, what sync adds, what a get checks */
    int persistent;         /* closes and opens again with its blocks */
    /* NULL: `error` says why. */
    void *(*open)(const peer_place *place, char error[256]);
    void (*close)(void *peer);
    /* 0, or -1 */
    int (*put)(void *peer, const uint8_t *keys, const void *const *blocks, size_t count, size_t bytes);
    int (*sync)(void *peer); /* until all that was put is on the device; NULL: there is no such call */
    /* results[i]: PEER_FOUND, PEER_MISS, PEER_ERROR */
    void (*get)(void *peer, const uint8_t *keys, void *const *blocks, size_t count, size_t bytes, int *results);
    int (*writer)(void *peer); /* the process whose bytes count; NULL: ours */
} peer_ops;

extern const peer_ops peer_memcpy, peer_raw, peer_file, peer_lmdb, peer_rocksdb, peer_redis, peer_kvonce_disk, peer_kvonce;

#endif
