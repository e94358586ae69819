/* SPDX-License-Identifier: Apache-2.0 */
/* What the device does without a store: the limit of the disk's rows. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


#define DEPTH_MAX 64

struct bench_raw {
    unsigned depth;
    int uring;
    struct io_uring ring;
    /* Threads: the batch, and how far it is. */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t threads[DEPTH_MAX];
    unsigned thread_count;
    int closing;
    int file, write, error;
    const bench_block *blocks;
    size_t count, next, finished;
};

static size_t bytes_of(const bench_block *block)
{
    size_t bytes = 0;
    for (int i = 0; i < block->piece_count; i++) {
        bytes += block->pieces[i].iov_len;
    }
    return bytes;
}

/* A transfer's result as an errno value: what is cut short is an error, as these files are whole. */
static int error_of(long result, const bench_block *block)
{
    return result < 0 ? (int)-result : (size_t)result == bytes_of(block) ? 0 : EIO;
}

/* ---- io_uring ---- */

static void uring_prepare(bench_raw *raw, int file, int write, const bench_block *block)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&raw->ring);
    if (write) {
        io_uring_prep_writev(sqe, file, block->pieces, (unsigned)block->piece_count, block->offset);
    } else {
        io_uring_prep_readv(sqe, file, block->pieces, (unsigned)block->piece_count, block->offset);
    }
    io_uring_sqe_set_data(sqe, (void *)(uintptr_t)block);
}

static int uring_run(bench_raw *raw, int file, int write, const bench_block *blocks, size_t count)
{
    size_t started = 0, finished = 0;
    int error = 0;
    while (finished < (error ? started : count)) {
        while (!error && started < count && started - finished < raw->depth) {
            uring_prepare(raw, file, write, &blocks[started++]);
        }
        int submitted = io_uring_submit_and_wait(&raw->ring, 1);
        if (submitted < 0 && submitted != -EINTR) {
            return -submitted;
        }
        struct io_uring_cqe *cqe;
        while (io_uring_peek_cqe(&raw->ring, &cqe) == 0) {
            int failed = error_of(cqe->res, io_uring_cqe_get_data(cqe));
            error = failed != 0 ? failed : error;
            io_uring_cqe_seen(&raw->ring, cqe);
            finished++;
        }
    }
    return error;
}

/* ---- Threads ---- */

static void *worker(void *argument)
{
    bench_raw *raw = argument;
    (void)pthread_mutex_lock(&raw->lock);
    for (;;) {
        while (!raw->closing && raw->next == raw->count) {
            (void)pthread_cond_wait(&raw->work, &raw->lock);
        }
        if (raw->closing) {
            break;
        }
        const bench_block *block = &raw->blocks[raw->next++];
        (void)pthread_mutex_unlock(&raw->lock);
        ssize_t result = raw->write ? pwritev(raw->file, block->pieces, block->piece_count, (off_t)block->offset)
                                    : preadv(raw->file, block->pieces, block->piece_count, (off_t)block->offset);
        int failed = error_of(result < 0 ? -errno : result, block);
        (void)pthread_mutex_lock(&raw->lock);
        raw->error = failed != 0 ? failed : raw->error;
        if (++raw->finished == raw->count) {
            (void)pthread_cond_signal(&raw->done);
        }
    }
    (void)pthread_mutex_unlock(&raw->lock);
    return NULL;
}

static int threads_run(bench_raw *raw, int file, int write, const bench_block *blocks, size_t count)
{
    (void)pthread_mutex_lock(&raw->lock);
    raw->file = file;
    raw->write = write;
    raw->blocks = blocks;
    raw->error = 0;
    raw->next = raw->finished = 0;
    raw->count = count;
    (void)pthread_cond_broadcast(&raw->work);
    while (raw->finished < raw->count) {
        (void)pthread_cond_wait(&raw->done, &raw->lock);
    }
    int error = raw->error;
    raw->count = raw->next = 0;
    (void)pthread_mutex_unlock(&raw->lock);
    return error;
}

static void threads_start(bench_raw *raw)
{
    for (unsigned i = 0; i < raw->depth; i++) {
        if (pthread_create(&raw->threads[raw->thread_count], NULL, worker, raw) == 0) {
            raw->thread_count++;
        }
    }
}

/* ---- Both ---- */

bench_raw *bench_raw_open(bench *b, unsigned depth)
{
    bench_raw *raw = cli_alloc(1, sizeof *raw);
    raw->depth = depth < DEPTH_MAX ? depth : DEPTH_MAX;
    (void)pthread_mutex_init(&raw->lock, NULL);
    (void)pthread_cond_init(&raw->work, NULL);
    (void)pthread_cond_init(&raw->done, NULL);
    raw->uring = io_uring_queue_init(raw->depth, &raw->ring, 0) == 0;
    if (!raw->uring) {
        threads_start(raw);
    }
    b->raw_engine = raw->uring ? "io_uring" : "threads";
    if (!raw->uring && raw->thread_count == 0) {
        (void)cli_fail("cannot start a thread");
        bench_raw_close(raw);
        return NULL;
    }
    return raw;
}

void bench_raw_close(bench_raw *raw)
{
    if (raw == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&raw->lock);
    raw->closing = 1;
    (void)pthread_cond_broadcast(&raw->work);
    (void)pthread_mutex_unlock(&raw->lock);
    for (unsigned i = 0; i < raw->thread_count; i++) {
        (void)pthread_join(raw->threads[i], NULL);
    }
    if (raw->uring) {
        io_uring_queue_exit(&raw->ring);
    }
    (void)pthread_cond_destroy(&raw->work);
    (void)pthread_cond_destroy(&raw->done);
    (void)pthread_mutex_destroy(&raw->lock);
    free(raw);
}

int bench_raw_run(bench_raw *raw, int file, int write, const bench_block *blocks, size_t count)
{
    int error = raw->uring ? uring_run(raw, file, write, blocks, count) : threads_run(raw, file, write, blocks, count);
    return error == 0 ? 0 : cli_fail("raw %s: %s", write ? "write" : "read", strerror(error));
}

int bench_raw_file(const bench *b, const char *store, int write)
{
    char path[sizeof b->directory + 128];
    (void)snprintf(path, sizeof path, "%s/%s/data", b->directory, store);
    int file = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | (b->direct_io ? O_DIRECT : 0));
    if (file < 0) {
        (void)cli_fail("%s: %s", path, strerror(errno));
    }
    return file;
}
