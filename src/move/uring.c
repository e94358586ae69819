/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_uring: a ring a stream, so that submitting and reaping take no lock and need no thread. One request
 * a transfer; what the kernel returns a part of is asked for again from there on. Transfers are handed
 * over together, but not so late that the device idles.
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "move/internal.h"

#define HAND_OVER_BYTES (256u << 10)
#define HAND_OVER_COUNT 16u
#define REFUSALS_MAX 1000u /* in a row, a millisecond apart */
#define REGISTERED_MAX 4u  /* rings: each charges all of staging to RLIMIT_MEMLOCK */

typedef struct uring_request {
    move_transfer *transfer;
    size_t done;
    int count;
    struct iovec rest[MOVE_PIECES_MAX];
} uring_request;

typedef struct uring_stream {
    move_stream base;
    struct io_uring ring;
    bool tried, registered; /* staging, with this ring */
    bool broken;            /* the ring is not entered any more */
    uint32_t refusals;      /* in a row */
    uint64_t queued_bytes;  /* in requests that the kernel has not seen */
    uint64_t used;          /* one bit a request */
    uint64_t here;          /* of them those that the caller's thread will run */
    uring_request requests[MOVE_DEPTH];
} uring_stream;

/* ---- opening ---- */

static bool ring_able(struct io_uring *ring)
{
    static const int needed[] = {IORING_OP_READV, IORING_OP_WRITEV, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED};
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool able = probe != NULL;
    for (size_t i = 0; able && i < sizeof needed / sizeof *needed; i++)
        able = io_uring_opcode_supported(probe, needed[i]);
    io_uring_free_probe(probe);
    return able;
}

/* 0 or a negative errno value. A child has not the ring's memory; its descriptor is closed on exec, and until then one
   that nobody uses, for every call of the child's answers KVO_E_FORKED. */
static int ring_open(struct io_uring *ring)
{
    int r = io_uring_queue_init(MOVE_DEPTH, ring, 0);
    if (r != 0)
        return r;
    r = ring_able(ring) ? io_uring_ring_dontfork(ring) : -ENOSYS;
    if (r != 0)
        io_uring_queue_exit(ring);
    return r;
}

static void uring_close(move_engine *e) { (void)e; }

static int uring_open(move_engine *e, uint32_t threads, kvo_error *error)
{
    struct io_uring ring;
    (void)threads;
    int r = ring_open(&ring);
    e->no_uring = -r;
    if (r != 0)
        return base_fail(error, KVO_E_UNSUPPORTED, MOVE_NO_URING "; use KVO_IO_AUTO or threads", strerror(-r),
                         move_why_no_uring(-r));
    io_uring_queue_exit(&ring);
    return KVO_OK;
}

static move_stream *stream_open(move_engine *e)
{
    uring_stream *u = e->env->alloc(e->env, sizeof *u);
    if (u == NULL)
        return NULL;
    u->base = (move_stream){.engine = e, .ops = &move_uring};
    if (ring_open(&u->ring) == 0)
        return &u->base;
    e->env->free(e->env, u, sizeof *u);
    return NULL;
}

static void stream_close(move_stream *stream)
{
    uring_stream *u = (uring_stream *)stream;
    move_engine *e = stream->engine;
    int error = atomic_load(&e->broken);
    /* Somebody closed our descriptors, and the numbers may be another's by now: better one that stays open. */
    if (error == EBADF || error == EOPNOTSUPP)
        u->ring.ring_fd = -1;
    io_uring_queue_exit(&u->ring);
    atomic_fetch_sub(&e->registered, u->registered);
    e->env->free(e->env, u, sizeof *u);
}

/* ---- staging ---- */

static void say_unregistered(const move_engine *e)
{
    struct rlimit allowed = {0, 0};
    (void)getrlimit(RLIMIT_MEMLOCK, &allowed);
    move_log(e,
             "io_uring: %zu bytes of staging memory cannot be registered, with %llu that may be locked (ulimit -l); "
             "transfers through it are a little slower",
             e->staging.bytes, (unsigned long long)allowed.rlim_cur);
}

/* Once a ring, and only the first few. Where RLIMIT_MEMLOCK forbids it, staging is memory like any other. */
static void register_staging(uring_stream *u)
{
    move_engine *e = u->base.engine;
    struct iovec region = {atomic_load(&e->staging.region), e->staging.bytes};
    int r = 0;
    u->tried = true;
    pthread_mutex_lock(&e->lock);
    if (!e->refused && atomic_load(&e->registered) < REGISTERED_MAX) {
        /* A child has no use for it, and would get a copy of what is pinned. */
        (void)madvise(region.iov_base, region.iov_len, MADV_DONTFORK);
        r = io_uring_register_buffers(&u->ring, &region, 1);
        u->registered = r == 0;
        e->refused = !u->registered;
        atomic_fetch_add(&e->registered, u->registered);
    }
    pthread_mutex_unlock(&e->lock);
    if (r == -ENOMEM)
        say_unregistered(e);
}

static bool is_registered(uring_stream *u, const uring_request *q)
{
    if (q->count != 1 || !move_staging_holds(u->base.engine, q->rest[0].iov_base))
        return false;
    if (!u->tried)
        register_staging(u);
    return u->registered;
}

/* ---- requests ---- */

/* What is left of a transfer. */
static void rest_of(uring_request *q)
{
    const move_transfer *t = q->transfer;
    size_t skip = q->done;
    q->count = 0;
    for (int i = 0; i < t->piece_count; i++) {
        size_t bytes = t->pieces[i].iov_len;
        if (skip < bytes)
            q->rest[q->count++] = (struct iovec){(void *)((uintptr_t)t->pieces[i].iov_base + skip), bytes - skip};
        skip -= skip < bytes ? skip : bytes;
    }
}

static void enqueue(uring_stream *u, unsigned which)
{
    uring_request *q = &u->requests[which];
    move_transfer *t = q->transfer;
    if (u->broken) {
        u->here |= 1ull << which;
        return;
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    KVO_ASSERT(sqe != NULL); /* as many as there are requests */
    rest_of(q);
    uint64_t offset = t->offset + q->done;
    if (is_registered(u, q) && t->write)
        io_uring_prep_write_fixed(sqe, t->file, q->rest[0].iov_base, (unsigned)q->rest[0].iov_len, offset, 0);
    else if (is_registered(u, q))
        io_uring_prep_read_fixed(sqe, t->file, q->rest[0].iov_base, (unsigned)q->rest[0].iov_len, offset, 0);
    else if (t->write)
        io_uring_prep_writev(sqe, t->file, q->rest, (unsigned)q->count, offset);
    else
        io_uring_prep_readv(sqe, t->file, q->rest, (unsigned)q->count, offset);
    io_uring_sqe_set_data64(sqe, which);
    t->submissions++;
    u->queued_bytes += t->bytes - q->done;
}

/*
 * The kernel takes nothing more from this ring: a sandbox was put up, or somebody closed the descriptor. Requests that
 * it has not consumed it never will, since nobody enters the ring again: they are the caller's thread's. For those that
 * it has consumed the device may still read or write their memory, which must not go back before their answers have
 * come. These arrive in the ring's memory, which takes no call to read and keeps the ring alive without its descriptor:
 * next() looks there, and sleeps in between.
 */
static void ring_broke(uring_stream *u, int error)
{
    const struct io_uring_sq *sq = &u->ring.sq;
    for (unsigned i = *sq->khead; i != sq->sqe_tail; i++) {
        unsigned which = (unsigned)sq->sqes[i & sq->ring_mask].user_data;
        u->here |= 1ull << which;
        u->requests[which].transfer->submissions--;
    }
    u->broken = true;
    move_broke(u->base.engine, error);
}

/* Some refusals pass (memory is short, a signal came): what was not taken goes with the next one. */
static void hand_over(uring_stream *u, bool wait)
{
    int r = io_uring_submit_and_wait(&u->ring, wait);
    bool passes = r == -EAGAIN || r == -EBUSY || r == -ENOMEM;
    u->queued_bytes = 0;
    if (r == -EINTR)
        return;
    u->refusals = r < 0 ? u->refusals + 1 : 0;
    if (r < 0 && (!passes || u->refusals > REFUSALS_MAX))
        ring_broke(u, -r);
    else if (r < 0)
        poll(NULL, 0, 1);
}

static void add(move_stream *stream, move_transfer *t)
{
    uring_stream *u = (uring_stream *)stream;
    unsigned which = (unsigned)__builtin_ctzll(~u->used);
    u->used |= 1ull << which;
    u->requests[which].transfer = t;
    u->requests[which].done = 0;
    enqueue(u, which);
    if (!u->broken && (u->queued_bytes >= HAND_OVER_BYTES || io_uring_sq_ready(&u->ring) >= HAND_OVER_COUNT))
        hand_over(u, false);
}

/* From the start again, whatever the kernel has done of it. */
static move_transfer *run_again(uring_stream *u, unsigned which)
{
    move_transfer *t = u->requests[which].transfer;
    uint32_t submissions = t->submissions;
    u->used &= ~(1ull << which);
    move_run_here(u->base.engine->env, t);
    t->submissions += submissions;
    return t;
}

/* One answer of the kernel; the transfer if that was its last. */
static move_transfer *take_answer(uring_stream *u, const struct io_uring_cqe *cqe)
{
    unsigned which = (unsigned)cqe->user_data;
    uring_request *q = &u->requests[which];
    move_transfer *t = q->transfer;
    bool again = cqe->res == -EINTR || cqe->res == -EAGAIN;
    if (cqe->res > 0) {
        q->done += (size_t)cqe->res;
        again = q->done < t->bytes;
    }
    if (again) {
        enqueue(u, which);
        return NULL;
    }
    /* Not of a ring, or not directly, with this file: the caller's thread knows a way. */
    if (cqe->res == -EOPNOTSUPP || cqe->res == -EINVAL)
        return run_again(u, which);
    /* 0: the end of the file */
    t->result = cqe->res < 0 ? cqe->res : t->write && q->done < t->bytes ? -EIO : (ssize_t)q->done;
    u->used &= ~(1ull << which);
    return t;
}

static move_transfer *run_here(uring_stream *u)
{
    unsigned which = (unsigned)__builtin_ctzll(u->here);
    u->here &= ~(1ull << which);
    return run_again(u, which);
}

static move_transfer *next(move_stream *stream, bool wait)
{
    uring_stream *u = (uring_stream *)stream;
    for (;;) {
        struct io_uring_cqe *cqe;
        bool some = io_uring_peek_cqe(&u->ring, &cqe) == 0;
        if (!u->broken && (io_uring_sq_ready(&u->ring) || (!some && wait))) {
            hand_over(u, !some && wait);
            some = some || io_uring_peek_cqe(&u->ring, &cqe) == 0;
        }
        if (some) {
            move_transfer *t = take_answer(u, cqe);
            io_uring_cqe_seen(&u->ring, cqe);
            if (t)
                return t;
        } else if (!wait) {
            return NULL;
        } else if (u->here) {
            return run_here(u);
        } else if (u->broken) {
            poll(NULL, 0, 1);
        }
    }
}

const move_ops move_uring = {uring_open, uring_close, stream_open, stream_close, add, next};
