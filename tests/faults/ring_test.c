/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel may answer to requests of a ring: a part of them, nothing, an error that passes, one that does not.
 * The call that hands requests over is replaced by one that shortens some and changes the answers of others. Named
 * after the public reports that each kind was seen in.
 */
#include <dlfcn.h>
#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/fixture.h"

enum { BYTES = 65536, BATCH = 8 };

/* ---- the kernel's answers ---- */

typedef enum cut_how { CUT_NONE, CUT_HALF, CUT_LEAST, CUT_HOWS } cut_how;

static struct {
    _Atomic int cut;   /* cut_how: every other request brings so much */
    _Atomic int error; /* the answer of the next `count` requests */
    _Atomic long count;
    _Atomic long cuts, errors; /* so far */
} kernel;

static pthread_mutex_t edited_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const void *ring;
    unsigned tail;
} edited[64]; /* answers before this one have been changed or left */

static unsigned *edited_tail(const void *ring, unsigned head)
{
    for (int i = 0; i < 64; i++) {
        if (edited[i].ring == NULL) {
            edited[i].ring = ring;
            edited[i].tail = head;
        }
        if (edited[i].ring == ring)
            return &edited[i].tail;
    }
    abort();
}

/* Whole sectors, as a device would. */
static void cut_request(struct io_uring_sqe *sqe)
{
    struct iovec *iov = (struct iovec *)(uintptr_t)sqe->addr;
    bool fixed = sqe->opcode == IORING_OP_READ_FIXED || sqe->opcode == IORING_OP_WRITE_FIXED;
    size_t bytes = fixed ? sqe->len : iov[sqe->len - 1].iov_len;
    size_t less = atomic_load(&kernel.cut) == CUT_LEAST ? 512 : bytes / 2 / 512 * 512;
    if ((!fixed && sqe->opcode != IORING_OP_READV && sqe->opcode != IORING_OP_WRITEV) || less == 0 || less >= bytes)
        return;
    if (fixed)
        sqe->len = (unsigned)less;
    else
        iov[sqe->len - 1].iov_len = less;
    atomic_fetch_add(&kernel.cuts, 1);
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned wait)
{
    static int (*real)(struct io_uring *, unsigned);
    pthread_mutex_lock(&edited_lock);
    if (real == NULL)
        real = (int (*)(struct io_uring *, unsigned))(uintptr_t)dlsym(RTLD_NEXT, "io_uring_submit_and_wait");
    for (unsigned i = ring->sq.sqe_head; atomic_load(&kernel.cut) && i != ring->sq.sqe_tail; i++)
        if (i % 2 == 0)
            cut_request(&ring->sq.sqes[i & ring->sq.ring_mask]);
    pthread_mutex_unlock(&edited_lock);
    int r = real(ring, wait);
    pthread_mutex_lock(&edited_lock);
    unsigned *at = edited_tail(ring, *ring->cq.khead), tail = __atomic_load_n(ring->cq.ktail, __ATOMIC_ACQUIRE);
    if ((int)(*ring->cq.khead - *at) > 0) /* some were taken without a call: too late for them */
        *at = *ring->cq.khead;
    for (; *at != tail; ++*at) {
        if (atomic_load(&kernel.count) <= 0)
            continue;
        ring->cq.cqes[*at & ring->cq.ring_mask].res = -atomic_load(&kernel.error);
        atomic_fetch_sub(&kernel.count, 1);
        atomic_fetch_add(&kernel.errors, 1);
    }
    pthread_mutex_unlock(&edited_lock);
    return r;
}

static void answer_next(long count, int error)
{
    atomic_store(&kernel.error, error);
    atomic_store(&kernel.count, count);
}

/* ---- a store on it ---- */

static char log_text[4096];

static void keep_line(void *context, const char *line)
{
    size_t have = strlen(log_text);
    (void)context;
    snprintf(log_text + have, sizeof log_text - have, "%s\n", line);
}

static bool ring_store(const char *tiers)
{
    kvo_error error = {{0}};
    options.io_engine = KVO_IO_URING;
    options.on_log = keep_line;
    log_text[0] = 0;
    answer_next(0, 0);
    atomic_store(&kernel.cut, CUT_NONE);
    memset(edited, 0, sizeof edited);
    int r = try_open(tiers, &error);
    if (r == KVO_E_UNSUPPORTED) {
        print_message("no io_uring here: %s\n", error.text);
        return false;
    }
    assert_int_equal(r, KVO_OK);
    space = open_space("a", BYTES);
    return true;
}

static uint8_t *memory; /* of a batch */

static void put_batch(uint64_t first, kvo_answer *answers)
{
    kvo_segment segments[BATCH];
    for (size_t i = 0; i < BATCH; i++) {
        segments[i] = (kvo_segment){memory + i * BYTES, BYTES};
        payload_make(segments[i].base, BYTES, first + i, 0);
    }
    kvo_memory from = {segments, NULL};
    kvo_names names = names_of(first, BATCH);
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.deadline_ns = 0;
    assert_int_equal(kvo_put(store, &names, &from, &o, answers), KVO_OK);
}

/* Each answer OK with the right bytes, or one that says otherwise. Returns how many were OK. */
static unsigned get_batch(uint64_t first, kvo_answer *answers)
{
    kvo_segment segments[BATCH];
    unsigned ok = 0;
    memset(memory, 0x5a, BATCH * BYTES);
    for (size_t i = 0; i < BATCH; i++)
        segments[i] = (kvo_segment){memory + i * BYTES, BYTES};
    kvo_memory to = {segments, NULL};
    kvo_names names = names_of(first, BATCH);
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = 0;
    assert_int_equal(kvo_get(store, &names, &to, &o, answers), KVO_OK);
    for (size_t i = 0; i < BATCH; i++) {
        ok += answers[i].status == KVO_OK;
        assert_true(answers[i].status == KVO_OK || answers[i].status == KVO_BUSY || answers[i].status == KVO_MISS);
        if (answers[i].status == KVO_OK)
            assert_true(payload_is(segments[i].base, BYTES, first + i, 0));
    }
    return ok;
}

static void B004_a_failed_request_of_a_batch_leaves_nothing_to_the_next_batch(void **state)
{
    (void)state;
    kvo_answer answers[BATCH];
    if (!ring_store("disk:@0:64blk"))
        return;
    put_batch(0, answers);
    put_batch(100, answers);
    long changed = atomic_load(&kernel.errors);
    for (int i = 0; i < 200; i++) {
        answer_next(1, i % 2 ? EFAULT : EIO); /* of whichever is answered first */
        assert_true(get_batch(0, answers) >= BATCH - 1);
        answer_next(0, 0);
        assert_int_equal(get_batch(100, answers), BATCH);
    }
    assert_int_equal(get_batch(0, answers), BATCH);
    assert_true(atomic_load(&kernel.errors) >= changed + 20);
    changed = atomic_load(&kernel.errors);
    /* A sibling: writes, whose slots go to others afterwards. */
    for (uint64_t i = 0; i < 20; i++) {
        unsigned stored = 0;
        long before = atomic_load(&kernel.errors);
        answer_next(1, EIO);
        put_batch(1000 + i * BATCH, answers);
        answer_next(0, 0);
        for (int k = 0; k < BATCH; k++)
            stored += answers[k].status == KVO_STORED;
        assert_int_equal(stored, BATCH - (atomic_load(&kernel.errors) - before)); /* it may have come too late */
        assert_int_equal(get_batch(1000 + i * BATCH, answers), stored);
        check_valid();
    }
    assert_true(atomic_load(&kernel.errors) > changed);
    close_store();
}

static void B005_a_request_done_in_part_goes_on_where_it_stopped(void **state)
{
    (void)state;
    kvo_answer answers[BATCH];
    for (int how = CUT_HALF; how < CUT_HOWS; how++) {
        if (!ring_store(how == CUT_HALF ? "disk:@0:64blk" : "dram:8blk,disk:@0:64blk"))
            return;
        long before = atomic_load(&kernel.cuts);
        atomic_store(&kernel.cut, how);
        for (uint64_t i = 0; i < 5; i++)
            put_batch(i * BATCH, answers);
        assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
        for (uint64_t i = 0; i < 5; i++)
            assert_int_equal(get_batch(i * BATCH, answers), BATCH);
        assert_true(atomic_load(&kernel.cuts) > before + 10);
        atomic_store(&kernel.cut, CUT_NONE);
        close_store();
        open_store(how == CUT_HALF ? "disk:@0:64blk" : "dram:8blk,disk:@0:64blk");
        for (uint64_t i = 0; i < 5; i++)
            assert_int_equal(get_batch(i * BATCH, answers), BATCH);
        close_store();
        fixture_remove(0);
    }
}

/* The file is shorter than it was: nothing is brought, which is no reason to ask for ever. */
static void B005_nothing_before_the_end_is_a_miss_and_no_loop(void **state)
{
    (void)state;
    char path[128];
    if (!ring_store("disk:@0:64blk"))
        return;
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(put(i, BYTES), KVO_STORED);
    snprintf(path, sizeof path, "%s/data", fixture_path(0));
    kvo_block_info info = info_of(7);
    assert_int_equal(truncate(path, (off_t)(info.copies[0].offset_bytes + 4096 + 8192)), 0);
    assert_int_not_equal(get(7, BYTES), KVO_OK);
    assert_int_equal(get(0, BYTES), KVO_OK);
    check_valid();
}

typedef struct answer_kind {
    int error;
    bool passes; /* the first one costs nothing */
} answer_kind;

/* A read that is answered so. Whether the answer came in time to be changed. */
static bool read_answered(const answer_kind *a)
{
    long before = atomic_load(&kernel.errors);
    log_text[0] = 0;
    answer_next(1, a->error);
    int status = get(1, BYTES);
    answer_next(0, 0);
    bool changed = atomic_load(&kernel.errors) > before;
    assert_int_equal(status == KVO_OK, a->passes || !changed);
    if (status != KVO_OK)
        assert_non_null(strstr(log_text, strerror(a->error)));
    if (status == KVO_MISS) /* a medium's error: the copy was retired */
        assert_int_equal(put(1, BYTES), KVO_STORED);
    assert_int_equal(get(1, BYTES), KVO_OK);
    return changed;
}

/* A sibling: the write of a put. */
static bool write_answered(const answer_kind *a)
{
    long before = atomic_load(&kernel.errors);
    log_text[0] = 0;
    answer_next(1, a->error);
    int status = put(100, BYTES);
    answer_next(0, 0);
    bool changed = atomic_load(&kernel.errors) > before;
    if (status != KVO_STORED) {
        assert_true(changed);
        assert_non_null(strstr(log_text, strerror(a->error)));
        assert_int_equal(put(100, BYTES), KVO_STORED);
    }
    assert_int_equal(get(100, BYTES), KVO_OK);
    assert_int_equal(drop(100, KVO_WRITTEN), KVO_OK);
    return changed;
}

static void B132_an_error_is_called_by_its_name_and_what_passes_is_tried_again(void **state)
{
    (void)state;
    static const answer_kind answers[] = {{EOPNOTSUPP, true}, {EAGAIN, true}, {EINTR, true},      {EIO, true},
                                          {EINVAL, true},     {ENOMEM, false}, {ECANCELED, false}, {EREMOTEIO, false}};
    enum { TRIES = 200 };
    if (!ring_store("disk:@0:64blk"))
        return;
    assert_int_equal(put(1, BYTES), KVO_STORED);
    assert_int_equal(put(2, BYTES), KVO_STORED);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        int reads = 0, writes = 0; /* tries until one was answered so */
        while (reads < TRIES && !read_answered(&answers[i]))
            reads++;
        while (writes < TRIES && !write_answered(&answers[i]))
            writes++;
        if (reads == TRIES || writes == TRIES)
            fail_msg("%s: never answered in %d tries", strerror(answers[i].error), TRIES);
        assert_int_equal(get(2, BYTES), KVO_OK);
        check_valid();
    }
    close_store();
}

/* Of this file system a ring may have no such thing at all: then the caller's thread does it. */
static void B132_what_a_ring_never_does_is_done_without_it(void **state)
{
    (void)state;
    kvo_answer answers[BATCH];
    if (!ring_store("disk:@0:64blk"))
        return;
    long before = atomic_load(&kernel.errors);
    answer_next(1L << 40, EOPNOTSUPP);
    put_batch(0, answers);
    for (int i = 0; i < BATCH; i++)
        assert_int_equal(answers[i].status, KVO_STORED);
    assert_int_equal(get_batch(0, answers), BATCH);
    assert_int_equal(get(3, BYTES), KVO_OK);
    answer_next(0, 0);
    assert_true(atomic_load(&kernel.errors) > before);
    close_store();
}

int main(void)
{
    memory = aligned_alloc(4096, BATCH * BYTES);
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(B004_a_failed_request_of_a_batch_leaves_nothing_to_the_next_batch),
        FIXTURE_TEST(B005_a_request_done_in_part_goes_on_where_it_stopped),
        FIXTURE_TEST(B005_nothing_before_the_end_is_a_miss_and_no_loop),
        FIXTURE_TEST(B132_an_error_is_called_by_its_name_and_what_passes_is_tried_again),
        FIXTURE_TEST(B132_what_a_ring_never_does_is_done_without_it),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%ld requests cut short, %ld answers changed\n", atomic_load(&kernel.cuts), atomic_load(&kernel.errors));
    free(memory);
    return failed ? failed : atomic_load(&kernel.cuts) ? 0 : TEST_SKIPPED; /* said above */
}
