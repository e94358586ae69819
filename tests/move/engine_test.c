/* SPDX-License-Identifier: Apache-2.0 */
/* What every I/O engine does, one suite for all: engine_test io_uring|threads|simulated. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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

/* ---- a ring that breaks ---- */

/* For children: the parent reads the line that failed, and cmocka's state is the parent's. */
#define CHECK(x)                                                    \
    do {                                                            \
        if (!(x)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
            _exit(1);                                               \
        }                                                           \
    } while (0)
enum { BEFORE = 16 + 9, ALL = BEFORE + 16 };

static unsigned lines;

static void count_line(void *context, const char *line)
{
    lines += context == &lines && strstr(line, "io_uring") != NULL;
}

/* io_uring_enter() fails from now on. */
static void forbid(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Another file comes in the place of each ring. */
static void replace_rings(void)
{
    unsigned rings = 0;
    int other_file = open("/dev/null", O_RDWR);
    for (int i = 0; i < 256; i++) {
        char path[32], is[64] = {0};
        snprintf(path, sizeof path, "/proc/self/fd/%d", i);
        if (readlink(path, is, sizeof is - 1) > 0 && strstr(is, "[io_uring]") && ++rings)
            CHECK(dup2(other_file, i) == i);
    }
    CHECK(rings > 0);
}

static void null_files(bool *null)
{
    for (int i = 0; i < 256; i++) {
        char path[32], is[64] = {0};
        snprintf(path, sizeof path, "/proc/self/fd/%d", i);
        null[i] = readlink(path, is, sizeof is - 1) > 0 && strcmp(is, "/dev/null") == 0;
    }
}

/* Some transfers are with the kernel, some are not yet, when the ring breaks; then come more of them. */
static void work_while_it_breaks(int error)
{
    move_transfer t[ALL];
    bool seen[ALL] = {false}, null[2][256];
    open_engine(FLIGHT);
    move_on_log(engine, count_line, &lines);
    uint8_t *staged = move_staging_take(engine, PAGE, true);
    move_stream *s = move_stream_open(engine), *unused = move_stream_open(engine);
    move_stream_close(unused);
    for (size_t i = 0; i < ALL; i++) {
        t[i] = i == BEFORE ? page(staged - i * PAGE, i, false, 1) : page(in, i, false, 3);
        if (i == BEFORE) {
            if (error)
                forbid(error);
            else
                replace_rings();
            null_files(null[0]);
        }
        if (i == ALL - 3) {
            CHECK(drain(s, seen, t) == ALL - 3);
            CHECK(lines == 1);
        }
        move_add(s, &t[i]);
    }
    CHECK(move_next(s, false) == NULL);
    CHECK(drain(s, seen, t) == 3);
    for (size_t i = 0; i < ALL; i++)
        CHECK(t[i].result == PAGE && t[i].submissions == 1);
    CHECK(memcmp(staged, out + BEFORE * PAGE, PAGE) == 0);
    memcpy(in + BEFORE * PAGE, staged, PAGE);
    CHECK(memcmp(in, out, ALL * PAGE) == 0);
    move_staging_give(engine, staged, PAGE);
    move_stream_close(s);
    CHECK(!move_registered(engine));

    memset(in, 0, ALL * PAGE);
    for (size_t i = 0; i < ALL; i++)
        t[i] = page(in, i, false, 2);
    move_run(engine, t, ALL);
    CHECK(memcmp(in, out, ALL * PAGE) == 0 && lines == 1);
    move_close(engine);
    null_files(null[1]);
    CHECK(memcmp(null[0], null[1], sizeof null[0]) == 0);
}

static void in_a_child(void (*work)(int), int argument)
{
    int status;
    fill_file();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        work(argument);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_sandbox_put_up_later_breaks_no_transfer(void **state)
{
    (void)state;
    in_a_child(work_while_it_breaks, EPERM);
}

static void a_refusal_without_end_ends(void **state)
{
    (void)state;
    in_a_child(work_while_it_breaks, EAGAIN);
}

static void a_descriptor_that_somebody_closed_breaks_no_transfer(void **state)
{
    (void)state;
    in_a_child(work_while_it_breaks, 0);
}

/* ---- registered memory ---- */

static unsigned long pinned_kib(void)
{
    char line[128];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    CHECK(f != NULL);
    while (fgets(line, sizeof line, f))
        sscanf(line, "VmPin: %lu", &kib);
    fclose(f);
    return kib;
}

/* Without the right to pin as much as it likes, whoever runs the test. */
static void limit_applies(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    CHECK(syscall(SYS_capget, &header, data) == 0);
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    CHECK(syscall(SYS_capset, &header, data) == 0);
}

/* After `allowed` streams no more may be pinned. */
static void use_many_streams(int allowed)
{
    enum { STREAMS = 12 };
    move_stream *s[STREAMS];
    struct rlimit none = {0, 0};
    limit_applies();
    open_engine(FLIGHT);
    uint8_t *staged = move_staging_take(engine, PAGE, true);
    for (int i = 0; i < STREAMS; i++) {
        move_transfer t = page(staged - i * PAGE, (size_t)i, false, 1);
        if (i == allowed)
            CHECK(setrlimit(RLIMIT_MEMLOCK, &none) == 0);
        CHECK((s[i] = move_stream_open(engine)) != NULL);
        move_add(s[i], &t);
        CHECK(move_next(s[i], true) == &t && t.result == PAGE);
        CHECK(memcmp(staged, out + i * PAGE, PAGE) == 0);
        CHECK(move_registered(engine) == (pinned_kib() > 0));
    }
    CHECK(pinned_kib() <= 4 * FLIGHT / 1024);
    for (int i = 0; i < STREAMS; i++)
        move_stream_close(s[i]);
    CHECK(move_registered(engine) == (pinned_kib() > 0));
    move_staging_give(engine, staged, PAGE);
    move_close(engine);
}

static void registered_as_long_as_any_ring_is(void **state)
{
    (void)state;
    in_a_child(use_many_streams, 2);
}

static void only_a_few_rings_charge_the_limit(void **state)
{
    (void)state;
    in_a_child(use_many_streams, 100);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest of_rings[] = {
        cmocka_unit_test_setup_teardown(a_sandbox_put_up_later_breaks_no_transfer, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refusal_without_end_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(a_descriptor_that_somebody_closed_breaks_no_transfer, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(registered_as_long_as_any_ring_is, setup, teardown),
        cmocka_unit_test_setup_teardown(only_a_few_rings_charge_the_limit, setup, teardown),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_come_back_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(each_transfer_comes_back_once_in_any_order, setup, teardown),
        cmocka_unit_test_setup_teardown(a_read_ends_where_the_file_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_fails_takes_no_other_with_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_write_over_the_limit_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stream_is_full_at_its_depth_and_at_the_bound_of_bytes, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(staging_is_bounded_and_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(transfers_of_staging_are_transfers_like_any_other, setup, teardown),
        cmocka_unit_test_setup_teardown(many_streams_from_many_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(streams_without_end, setup, teardown),
        cmocka_unit_test_setup_teardown(a_fork_disturbs_nobody, setup, teardown),
    };
    const char *name = argc > 1 ? argv[1] : "threads";
    kvo_error error = {{0}};
    kind = strcmp(name, "io_uring") == 0    ? MOVE_URING
           : strcmp(name, "simulated") == 0 ? MOVE_SIMULATED
                                            : MOVE_THREADS;
    if (kind == MOVE_URING &&
        move_open(base_env_posix(), kind, 1, FLIGHT, &engine, &error) == KVO_E_UNSUPPORTED) {
        printf("skipped: %s\n", error.text);
        return TEST_SKIPPED;
    }
    move_close(engine);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return kind == MOVE_URING ? failed + cmocka_run_group_tests(of_rings, NULL, NULL) : failed;
}
