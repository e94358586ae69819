/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One way to keep blocks, as the benchmark sees it. Names are 32 bytes, a call hands over up to PEER_BATCH blocks of
 * one size. A system that has no such call is called once a block.
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
    size_t blocks; /* room for so many */
} peer_place;

typedef struct peer_ops {
    const char *name;
    const char *durability; /* what a put has reached when it returns, and what sync adds */
    const char *checks;     /* what a get compares */
    int persistent;         /* closes and opens again with its blocks */
    int loads_all;          /* by opening it reads them all: no get is cold */
    /* NULL: `error` says why. */
    void *(*open)(const peer_place *place, char error[256]);
    void (*close)(void *peer);
    /* 0, or -1 */
    int (*put)(void *peer, const uint8_t *keys, const void *const *blocks, size_t count, size_t bytes);
    int (*sync)(void *peer); /* until all that was put is on the device; NULL: there is no such call */
    /* results[i]: PEER_FOUND, PEER_MISS, PEER_ERROR */
    void (*get)(void *peer, const uint8_t *keys, void *const *blocks, size_t count, size_t bytes,
                int *results);
    int (*writer)(void *peer); /* the process whose bytes count; NULL: ours */
    int (*empty)(
        void *peer); /* of a system with memory of its own: drops all blocks, keeps the memory; 0, or -1 */
} peer_ops;

extern const peer_ops peer_memcpy, peer_raw, peer_file, peer_lmdb, peer_rocksdb, peer_redis, peer_kvonce_disk,
    peer_kvonce_threads, peer_kvonce_memory, peer_kvonce_both;

/* ---- For peers.c and its parts: the blocks, the place, one system opened ---- */

typedef struct peer_session {
    const peer_ops *ops;
    void *peer;
    peer_place place;
    size_t size, count; /* of and in blocks */
} peer_session;

typedef struct peer_run {
    const char *directory;
    int in_memory;   /* the file system */
    uint8_t *blocks; /* total_bytes of them, number after number */
    uint8_t *back;   /* where PEER_BATCH of them come back */
    size_t total_bytes;
    char *answer; /* one JSON object, which the process that asked prints */
} peer_run;

enum { PEER_ANSWER = 4096 };

extern peer_run run;

/* Ends this process; the answer says that the figure is missing, and why. */
_Noreturn void run_give_up(const char *why);
void run_key(uint64_t number, uint8_t key[PEER_KEY]);
void run_fill(uint8_t *blocks, size_t size, size_t count);
uint8_t *run_memory(size_t bytes);
const char *run_place(void); /* a directory, empty */
void run_each_file(const char *path, void (*call)(const char *file, void *context), void *context);
void run_make_cold(
    const char *path); /* out of the page cache; of a file system in memory nothing can leave it */
void run_open(peer_session *s);
void run_put(peer_session *s, size_t first); /* one batch */
int run_sync(const peer_session *s);         /* its own sync or, where it has none, that of the file system */

void measure(const peer_ops *ops, size_t size); /* fills the answer */
void fault(const peer_ops *ops, const char *name);

#endif
