/* SPDX-License-Identifier: Apache-2.0 */
/* The limits: a copy in memory, the device without a file system's cache; and the simplest store, a file a block. */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- memcpy ---- */

typedef struct arena {
    uint8_t *bytes;
    size_t total, block_bytes, blocks;
} arena;

/* The first eight bytes of a key are its block's number. */
static size_t number_of(const uint8_t *key)
{
    uint64_t number;
    memcpy(&number, key, sizeof number);
    return (size_t)number;
}

static void *memory_open(const peer_place *place, char error[256])
{
    arena *a = calloc(1, sizeof *a);
    a->total = place->block_bytes * place->blocks;
    a->block_bytes = place->block_bytes;
    a->blocks = place->blocks;
    a->bytes = mmap(NULL, a->total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (a->bytes == MAP_FAILED) {
        (void)snprintf(error, 256, "mmap: %s", strerror(errno));
        free(a);
        return NULL;
    }
    (void)madvise(a->bytes, a->total, MADV_HUGEPAGE);
    memset(a->bytes, 1, a->total); /* its pages are there before the time is taken */
    return a;
}

static void memory_close(void *peer)
{
    arena *a = peer;
    (void)munmap(a->bytes, a->total);
    free(a);
}

static int memory_put(void *peer, const uint8_t *keys, const void *const *blocks, size_t count, size_t bytes)
{
    arena *a = peer;
    for (size_t i = 0; i < count; i++) {
        memcpy(a->bytes + number_of(keys + i * PEER_KEY) % a->blocks * a->block_bytes, blocks[i], bytes);
    }
    return 0;
}

static void memory_get(void *peer, const uint8_t *keys, void *const *blocks, size_t count, size_t bytes,
                       int *results)
{
    arena *a = peer;
    for (size_t i = 0; i < count; i++) {
        memcpy(blocks[i], a->bytes + number_of(keys + i * PEER_KEY) % a->blocks * a->block_bytes, bytes);
        results[i] = PEER_FOUND;
    }
}

const peer_ops peer_memcpy = {.name = "memcpy",
                              .durability = "nothing: gone with the process",
                              .checks = "nothing",
                              .open = memory_open,
                              .close = memory_close,
                              .put = memory_put,
                              .get = memory_get};

/* ---- one file, O_DIRECT where the file system has it, a batch in flight ---- */

typedef struct raw {
    struct io_uring ring;
    int file;
    size_t block_bytes;
} raw;

static void *raw_open(const peer_place *place, char error[256])
{
    char path[4096];
    raw *r = calloc(1, sizeof *r);
    (void)snprintf(path, sizeof path, "%s/blocks", place->directory);
    r->file = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    if (r->file < 0) {
        r->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    }
    r->block_bytes = place->block_bytes;
    off_t bytes = (off_t)(place->block_bytes * place->blocks);
    int status = r->file < 0 ? errno : 0;
    if (status == 0 && lseek(r->file, 0, SEEK_END) == 0) { /* a new one: what is there is taken as it is */
        status = posix_fallocate(r->file, 0, bytes);
    }
    if (status != 0) {
        (void)snprintf(error, 256, "%.150s: %s", path, strerror(status));
        (void)(r->file >= 0 && close(r->file));
        free(r);
        return NULL;
    }
    status = io_uring_queue_init(PEER_BATCH, &r->ring, 0);
    if (status != 0) {
        (void)snprintf(error, 256, "io_uring: %s", strerror(-status));
        (void)close(r->file);
        free(r);
        return NULL;
    }
    return r;
}

static void raw_close(void *peer)
{
    raw *r = peer;
    io_uring_queue_exit(&r->ring);
    (void)close(r->file);
    free(r);
}

/* Sends the batch and waits for all of it; results[i]: PEER_FOUND or PEER_ERROR. */
static void raw_batch(raw *r, const uint8_t *keys, void *const *blocks, size_t count, size_t bytes,
                      int writes, int *results)
{
    for (size_t i = 0; i < count; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
        uint64_t at = number_of(keys + i * PEER_KEY) * r->block_bytes;
        results[i] = PEER_ERROR;
        if (writes) {
            io_uring_prep_write(sqe, r->file, blocks[i], (unsigned)bytes, at);
        } else {
            io_uring_prep_read(sqe, r->file, blocks[i], (unsigned)bytes, at);
        }
        io_uring_sqe_set_data64(sqe, i);
    }
    (void)io_uring_submit_and_wait(&r->ring, (unsigned)count);
    for (size_t i = 0; i < count; i++) {
        struct io_uring_cqe *cqe;
        if (io_uring_wait_cqe(&r->ring, &cqe) == 0) {
            results[io_uring_cqe_get_data64(cqe)] = cqe->res == (int)bytes ? PEER_FOUND : PEER_ERROR;
            io_uring_cqe_seen(&r->ring, cqe);
        }
    }
}

static int raw_put(void *peer, const uint8_t *keys, const void *const *blocks, size_t count, size_t bytes)
{
    int results[PEER_BATCH], failed = 0;
    raw_batch(peer, keys, (void *const *)blocks, count, bytes, 1, results);
    for (size_t i = 0; i < count; i++) {
        failed |= results[i] != PEER_FOUND;
    }
    return failed ? -1 : 0;
}

static int raw_sync(void *peer)
{
    return fdatasync(((raw *)peer)->file);
}

static void raw_get(void *peer, const uint8_t *keys, void *const *blocks, size_t count, size_t bytes,
                    int *results)
{
    raw_batch(peer, keys, blocks, count, bytes, 0, results);
}

const peer_ops peer_raw = {.name = "raw O_DIRECT file",
                           .durability = "the device, or its cache; sync: fdatasync",
                           .checks = "nothing",
                           .persistent = 1,
                           .open = raw_open,
                           .close = raw_close,
                           .put = raw_put,
                           .sync = raw_sync,
                           .get = raw_get};

/* ---- a file a block, renamed into place ---- */

typedef struct files {
    char directory[2048];
    int folder;
} files;

static void *file_open(const peer_place *place, char error[256])
{
    files *f = calloc(1, sizeof *f);
    (void)snprintf(f->directory, sizeof f->directory, "%s", place->directory);
    f->folder = open(place->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->folder < 0) {
        (void)snprintf(error, 256, "%.150s: %s", place->directory, strerror(errno));
        free(f);
        return NULL;
    }
    return f;
}

static void file_close(void *peer)
{
    (void)close(((files *)peer)->folder);
    free(peer);
}

static void name_of(const uint8_t *key, char name[2 * PEER_KEY + 1])
{
    for (size_t i = 0; i < PEER_KEY; i++) {
        (void)snprintf(name + 2 * i, 3, "%02x", key[i]);
    }
}

static int write_all(int file, const uint8_t *at, size_t bytes)
{
    while (bytes != 0) {
        ssize_t n = write(file, at, bytes);
        if (n <= 0) {
            return -1;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int file_put(void *peer, const uint8_t *keys, const void *const *blocks, size_t count, size_t bytes)
{
    files *f = peer;
    for (size_t i = 0; i < count; i++) {
        char name[2 * PEER_KEY + 1], fresh[2 * PEER_KEY + 8];
        name_of(keys + i * PEER_KEY, name);
        (void)snprintf(fresh, sizeof fresh, "%s.tmp", name);
        int file = openat(f->folder, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        int r = file >= 0 ? write_all(file, blocks[i], bytes) : -1;
        if (file < 0 || close(file) != 0 || r != 0 || renameat(f->folder, fresh, f->folder, name) != 0) {
            return -1;
        }
    }
    return 0;
}

static int file_sync(void *peer)
{
    return syncfs(((files *)peer)->folder);
}

static int read_one(files *f, const uint8_t *key, uint8_t *at, size_t bytes)
{
    char name[2 * PEER_KEY + 1];
    size_t have = 0;
    name_of(key, name);
    int file = openat(f->folder, name, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return errno == ENOENT ? PEER_MISS : PEER_ERROR;
    }
    for (ssize_t n = 1; n > 0 && have<bytes; have += n> 0 ? (size_t)n : 0) {
        n = read(file, at + have, bytes - have);
    }
    (void)close(file);
    return have == bytes ? PEER_FOUND : PEER_ERROR;
}

static void file_get(void *peer, const uint8_t *keys, void *const *blocks, size_t count, size_t bytes,
                     int *results)
{
    for (size_t i = 0; i < count; i++) {
        results[i] = read_one(peer, keys + i * PEER_KEY, blocks[i], bytes);
    }
}

const peer_ops peer_file = {.name = "a file a block",
                            .durability = "the page cache, renamed into place; sync: syncfs",
                            .checks = "the length",
                            .persistent = 1,
                            .open = file_open,
                            .close = file_close,
                            .put = file_put,
                            .sync = file_sync,
                            .get = file_get};
