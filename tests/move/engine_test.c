/* SPDX-License-Identifier: Apache-2.0 */
/* What every I/O engine does, one suite for all: engine_test io_uring|threads|simulated. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "move/move.h"

enum { PAGE = 4096, PAGES = 256, FLIGHT = 64 * PAGE };

static move_kind kind;
static base_env machine; /* the simulated engine's */
static move_engine *engine;
static int file;
static uint8_t *out, *in; /* PAGES each */

static base_env *environment(void)
{
    if (kind != MOVE_SIMULATED)
        return base_env_posix();
    machine = *base_env_posix();
    return &machine;
}

static void open_engine(uint64_t flight_bytes)
{
    kvo_error error = {{0}};
    if (move_open(environment(), kind, 4, flight_bytes, &engine, &error) != KVO_OK)
        fail_msg("%s", error.text);
    assert_int_equal(move_kind_of(engine), kind);
}

static int setup(void **state)
{
    (void)state;
    char name[] = "/tmp/kvonce-move-XXXXXX";
    file = mkstemp(name);
    unlink(name);
    out = aligned_alloc(PAGE, PAGES * PAGE);
    in = aligned_alloc(PAGE, PAGES * PAGE);
    for (size_t i = 0; i < PAGES * PAGE; i++)
        out[i] = (uint8_t)(i * 31 + i / PAGE);
    memset(in, 0, PAGES * PAGE);
    open_engine(FLIGHT);
    return file < 0;
}

static int teardown(void **state)
{
    (void)state;
    move_close(engine);
    engine = NULL;
    close(file);
    free(out);
    free(in);
    return 0;
}

/* One page at its place, in `pieces` pieces of different lengths, one of them empty. */
static move_transfer page(uint8_t *memory, size_t at, bool write, int pieces)
{
    move_transfer t = {.file = file, .write = write, .piece_count = pieces, .offset = at * PAGE};
    size_t from = 0;
    for (int i = 0; i < pieces; i++) {
        size_t bytes = i + 1 == pieces ? PAGE - from : i == 1 ? 0 : (size_t)(100 + i * 37);
        t.pieces[i] = (struct iovec){memory + at * PAGE + from, bytes};
        from += bytes;
    }
    return t;
}

static void fill_file(void) { assert_int_equal(pwrite(file, out, PAGES * PAGE, 0), PAGES * PAGE); }

/* ---- results ---- */

static void batches_come_back_whole(void **state)
{
    (void)state;
    move_transfer *t = calloc(PAGES, sizeof *t);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < PAGES; i++)
            t[i] = page(pass ? in : out, i, pass == 0, 1 + (int)(i % MOVE_PIECES_MAX));
        move_run(engine, t, 1);
        move_run(engine, t + 1, PAGES - 1);
        move_run(engine, t, 0);
        for (size_t i = 0; i < PAGES; i++) {
            assert_int_equal(t[i].result, PAGE);
            assert_int_equal(t[i].submissions, 1);
        }
    }
    assert_memory_equal(in, out, PAGES * PAGE);
    free(t);
}

/* Takes all that are in flight; each comes back once. */
static size_t drain(move_stream *s, bool *seen, const move_transfer *first)
{
    size_t n = 0;
    for (move_transfer *t; (t = move_next(s, n % 3 != 0)) || n % 3 == 0;) {
        if (t == NULL && (t = move_next(s, true)) == NULL)
            break;
        assert_false(seen[t - first]);
        seen[t - first] = true;
        n++;
    }
    return n;
}

static void each_transfer_comes_back_once_in_any_order(void **state)
{
    (void)state;
    move_stream *s = move_stream_open(engine);
    move_transfer t[MOVE_DEPTH];
    fill_file();
    assert_null(move_next(s, true));
    assert_null(move_next(s, false));
    for (unsigned round = 0; round < 20; round++) {
        bool seen[MOVE_DEPTH] = {false};
        size_t count = 1 + round * 3;
        memset(in, 0, PAGES * PAGE);
        for (size_t i = 0; i < count; i++) {
            t[i] = page(in, i * 2 + round, false, 1);
            assert_false(move_stream_full(s, PAGE));
            move_add(s, &t[i]);
        }
        assert_int_equal(drain(s, seen, t), count);
        for (size_t i = 0; i < count; i++)
            assert_memory_equal(in + (i * 2 + round) * PAGE, out + (i * 2 + round) * PAGE, PAGE);
    }
    move_stream_close(s);
}

static void a_read_ends_where_the_file_ends(void **state)
{
    (void)state;
    move_transfer t[3] = {page(in, 0, false, 3), page(in, 1, false, 3), page(in, 2, false, 3)};
    assert_int_equal(pwrite(file, out, PAGE + 150, 0), PAGE + 150);
    move_run(engine, t, 3);
    assert_int_equal(t[0].result, PAGE);
    assert_int_equal(t[1].result, 150);
    assert_int_equal(t[2].result, 0);
    assert_memory_equal(in, out, PAGE + 150);
    assert_int_equal(in[PAGE + 150], 0);
}

/* ---- errors ---- */

static void one_that_fails_takes_no_other_with_it(void **state)
{
    (void)state;
    move_transfer t[5];
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int closed = 1000, readable = open(path, O_RDONLY);
    fill_file();
    for (size_t i = 0; i < 5; i++)
        t[i] = page(in, i, false, 2);
    t[1].file = closed;
    t[2].file = readable;
    t[2].write = true;
    t[3].pieces[1].iov_base = NULL;
    t[3].pieces[0].iov_len = 0;
    t[3].pieces[1].iov_len = PAGE;
    move_run(engine, t, 5);
    assert_int_equal(t[0].result, PAGE);
    assert_int_equal(t[1].result, -EBADF);
    assert_int_equal(t[2].result, -EBADF);
    assert_int_equal(t[3].result, -EFAULT);
    assert_int_equal(t[4].result, PAGE);
    close(readable);
}

/* A limit on the file's size: the part that fits is written, the rest is refused. */
static void a_write_over_the_limit_is_an_error(void **state)
{
    (void)state;
    struct rlimit had, limit;
    move_transfer t[3] = {page(out, 0, true, 2), page(out, 1, true, 2), page(out, 3, true, 2)};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &had), 0);
    limit = had;
    limit.rlim_cur = PAGE + 1024;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    move_run(engine, t, 3);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &had), 0);
    assert_int_equal(t[0].result, PAGE);
    assert_int_equal(t[1].result, -EFBIG);
    assert_int_equal(t[2].result, -EFBIG);
    assert_int_equal(lseek(file, 0, SEEK_END), PAGE + 1024);
}

/* ---- bounds ---- */

static void a_stream_is_full_at_its_depth_and_at_the_bound_of_bytes(void **state)
{
    (void)state;
    move_transfer t[MOVE_DEPTH], big = {.file = file, .piece_count = 1, .pieces = {{in + FLIGHT, FLIGHT + PAGE}}};
    move_stream *a = move_stream_open(engine), *b = move_stream_open(engine);
    fill_file();
    assert_false(move_stream_full(a, 100 * FLIGHT)); /* one is always let through */
    for (size_t i = 0; i < MOVE_DEPTH; i++) {
        assert_false(move_stream_full(a, PAGE));
        t[i] = page(in, i, false, 1);
        move_add(a, &t[i]);
    }
    assert_true(move_stream_full(a, 0));
    assert_false(move_stream_full(b, PAGE));
    move_add(b, &big);
    assert_true(move_stream_full(b, 1)); /* the bound is the engine's */
    assert_ptr_equal(move_next(b, true), &big);
    assert_int_equal(big.result, FLIGHT + PAGE);
    assert_non_null(move_next(a, true));
    assert_false(move_stream_full(a, PAGE));
    assert_true(move_stream_full(a, 2 * PAGE));
    while (move_next(a, true))
        continue;
    move_stream_close(a);
    move_stream_close(b);
}

static void staging_is_bounded_and_comes_back(void **state)
{
    (void)state;
    enum { BYTES = 5 * PAGE };
    uint8_t *got[FLIGHT / BYTES];
    size_t n = 0;
    for (; n < FLIGHT / BYTES && (got[n] = move_staging_take(engine, BYTES, false)); n++) {
        assert_int_equal((uintptr_t)got[n] % PAGE, 0);
        memset(got[n], (int)n, BYTES);
    }
    assert_in_range(n, 4, FLIGHT / BYTES - 1);
    uint8_t *more = move_staging_take(engine, BYTES, true), *large = move_staging_take(engine, 2 * FLIGHT, true);
    assert_non_null(more);
    assert_non_null(large);
    assert_null(move_staging_take(engine, 2 * FLIGHT, false));
    memset(more, 99, BYTES);
    memset(large, 98, 2 * FLIGHT);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < BYTES; k++)
            assert_int_equal(got[i][k], i);
    move_staging_give(engine, more, BYTES);
    move_staging_give(engine, large, 2 * FLIGHT);
    move_staging_give(engine, got[1], BYTES);
    assert_ptr_equal(move_staging_take(engine, BYTES, false), got[1]);
    for (size_t i = 0; i < n; i++)
        move_staging_give(engine, got[i], BYTES);
}

/* Registered with the kernel where that may be: the same results. */
static void transfers_of_staging_are_transfers_like_any_other(void **state)
{
    (void)state;
    enum { COUNT = 8, BYTES = 4 * PAGE };
    move_transfer t[2 * COUNT];
    assert_false(move_registered(engine));
    for (int pass = 0; pass < 2; pass++) {
        uint8_t *staged[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            staged[i] = move_staging_take(engine, BYTES, true);
            if (pass == 0)
                memcpy(staged[i], out + i * BYTES, BYTES);
            else
                memset(staged[i], 0, BYTES);
            t[i] = (move_transfer){.file = file, .write = pass == 0, .piece_count = 1, .offset = i * BYTES};
            t[i].pieces[0] = (struct iovec){staged[i], BYTES};
            if (pass == 1 && i + 1 == COUNT)
                t[i].offset += 2 * PAGE;
        }
        move_run(engine, t, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            size_t want = pass == 1 && i + 1 == COUNT ? 2 * PAGE : BYTES;
            assert_int_equal(t[i].result, want);
            assert_memory_equal(staged[i], out + t[i].offset, want);
            move_staging_give(engine, staged[i], BYTES);
        }
    }
    if (kind != MOVE_URING)
        assert_false(move_registered(engine));
}

/* ---- threads ---- */

typedef struct user {
    size_t first, count;
    bool ok;
} user;

static void *use(void *argument)
{
    user *u = argument;
    u->ok = true;
    for (int round = 0; round < 20 && u->ok; round++) {
        move_stream *s = move_stream_open(engine);
        move_transfer t[16];
        for (size_t i = 0; i < u->count; i++) {
            t[i] = page(round & 1 ? in : out, u->first + i, !(round & 1), 2);
            while (move_stream_full(s, PAGE))
                u->ok &= move_next(s, true)->result == PAGE;
            move_add(s, &t[i]);
        }
        for (move_transfer *f; (f = move_next(s, true));)
            u->ok &= f->result == PAGE;
        move_stream_close(s);
        u->ok &= !(round & 1) || memcmp(in + u->first * PAGE, out + u->first * PAGE, u->count * PAGE) == 0;
    }
    return NULL;
}

static void many_streams_from_many_threads(void **state)
{
    (void)state;
    enum { USERS = 16 };
    pthread_t threads[USERS];
    user users[USERS];
    for (size_t i = 0; i < USERS; i++) {
        users[i] = (user){.first = i * 16, .count = 16};
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    }
    for (size_t i = 0; i < USERS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(users[i].ok);
    }
}

/* More streams than the engine has: those beyond work too. */
static void streams_without_end(void **state)
{
    (void)state;
    enum { STREAMS = 100 };
    move_stream *s[STREAMS];
    move_transfer t[STREAMS][2];
    fill_file();
    for (size_t i = 0; i < STREAMS; i++) {
        s[i] = move_stream_open(engine);
        for (size_t k = 0; k < 2; k++) {
            t[i][k] = page(in, (i * 2 + k) % PAGES, false, 1);
            if (!move_stream_full(s[i], PAGE))
                move_add(s[i], &t[i][k]);
        }
    }
    for (size_t i = STREAMS; i-- > 0;) {
        for (move_transfer *f; (f = move_next(s[i], true));)
            assert_memory_equal(in + f->offset, out + f->offset, (size_t)f->result);
        move_stream_close(s[i]);
    }
    for (size_t i = 0; i < STREAMS; i++)
        assert_int_equal(t[i][0].result, PAGE);
}

/* A child has the memory that it should have, nothing of the engine's, and the parent goes on. */
static void a_fork_disturbs_nobody(void **state)
{
    (void)state;
    move_stream *s = move_stream_open(engine);
    move_transfer t[8];
    uint8_t *staged = move_staging_take(engine, PAGE, true);
    memset(staged, 7, PAGE);
    fill_file();
    for (size_t i = 0; i < 8; i++) {
        t[i] = page(in, i, false, 1);
        move_add(s, &t[i]);
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(out[PAGE] != (uint8_t)(PAGE * 31 + 1));
    int status;
    for (move_transfer *f; (f = move_next(s, true));)
        assert_int_equal(f->result, PAGE);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_memory_equal(in, out, 8 * PAGE);
    assert_int_equal(staged[PAGE - 1], 7);
    move_staging_give(engine, staged, PAGE);
    move_stream_close(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_come_back_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(each_transfer_comes_back_once_in_any_order, setup, teardown),
        cmocka_unit_test_setup_teardown(a_read_ends_where_the_file_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_fails_takes_no_other_with_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_write_over_the_limit_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stream_is_full_at_its_depth_and_at_the_bound_of_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(staging_is_bounded_and_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(transfers_of_staging_are_transfers_like_any_other, setup, teardown),
        cmocka_unit_test_setup_teardown(many_streams_from_many_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(streams_without_end, setup, teardown),
        cmocka_unit_test_setup_teardown(a_fork_disturbs_nobody, setup, teardown),
    };
    const char *name = argc > 1 ? argv[1] : "threads";
    kvo_error error = {{0}};
    kind = strcmp(name, "io_uring") == 0 ? MOVE_URING : strcmp(name, "simulated") == 0 ? MOVE_SIMULATED : MOVE_THREADS;
    if (kind == MOVE_URING && move_open(base_env_posix(), kind, 1, FLIGHT, &engine, &error) == KVO_E_UNSUPPORTED) {
        printf("skipped: %s\n", error.text);
        return TEST_SKIPPED;
    }
    move_close(engine);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
