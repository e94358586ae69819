/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- Files -------------------------------------------------------------- */

static base_env *env;
static char directory[64];

static const char *in_directory(const char *name)
{
    static char paths[4][128];
    static int turn;
    char *path = paths[turn++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

static int open_new(const char *name)
{
    int file = -1;

    assert_int_equal(env->open(env, in_directory(name), BASE_OPEN_CREATE, &file, NULL), 0);
    return file;
}

static int set_up(void **state)
{
    (void)state;
    env = base_env_posix();
    strcpy(directory, "/tmp/kvonce-env-test-XXXXXX");
    return mkdtemp(directory) == NULL;
}

static int remove_entry(void *context, const char *name)
{
    (void)context;
    const char *path = in_directory(name);
    if (env->remove_file(env, path) != 0)
        rmdir(path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    env->list(env, directory, remove_entry, NULL);
    return rmdir(directory);
}

static void more_pieces_than_the_kernel_takes_are_transferred(void **state)
{
    (void)state;
    enum { COUNT = 3 * IOV_MAX + 7 };
    static uint8_t out[COUNT * 3], in[COUNT * 3];
    static struct iovec iov[COUNT];
    const int file = open_new("many");

    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < COUNT; i++)
        iov[i] = (struct iovec){out + 3 * i, 3};
    assert_int_equal(env->write(env, file, iov, COUNT, 5), sizeof out);
    for (size_t i = 0; i < COUNT; i++)
        iov[i].iov_base = in + 3 * i;
    assert_int_equal(env->read(env, file, iov, COUNT, 5), sizeof in);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(env->read(env, file, iov, COUNT, 10), sizeof in - 5);
    assert_int_equal(env->close(env, file), 0);
}

/* One request of the kernel ends at 0x7ffff000 bytes. Untouched memory is its one zero page, and a
   device that takes everything needs no room. */
static void more_bytes_than_the_kernel_takes_are_transferred(void **state)
{
    (void)state;
    const size_t bytes = (size_t)0x7ffff000u + 12345;
    uint8_t *memory = env->alloc(env, bytes);
    const struct iovec iov[2] = {{memory, bytes - 5}, {memory, 5}};

    if (memory == NULL || TEST_SANITIZES_THREADS) /* whose shadow of it would take 8 GiB */
        skip();
    const int file = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_int_equal(env->write(env, file, iov, 2, 0), bytes);
    assert_int_equal(env->close(env, file), 0);
    env->free(env, memory, bytes);
}

static void a_write_that_does_not_fit_is_an_error(void **state)
{
    (void)state;
    uint8_t block[4096] = {1};
    const struct iovec iov = {block, sizeof block};
    const int file = open_new("limited");

    const pid_t child = fork();
    if (child == 0) {
        /* The kernel writes the first 100 bytes, then refuses. */
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){100, 100});
        _exit(env->write(env, file, &iov, 1, 0) == -EFBIG ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    uint64_t bytes;
    assert_int_equal(env->file_bytes(env, file, &bytes), 0);
    assert_int_equal(bytes, 100);
    assert_int_equal(env->close(env, file), 0);
    assert_int_equal(env->write(env, file, &iov, 1, 0), -EBADF);
}

static void opening_is_careful(void **state)
{
    (void)state;
    int file, direct = -1;

    assert_int_equal(env->open(env, in_directory("none"), 0, &file, NULL), -ENOENT);
    assert_int_equal(env->open(env, in_directory("new"), BASE_OPEN_CREATE | BASE_OPEN_DIRECT, &file, &direct),
                     0);
    assert_true(direct == 0 || direct == 1);
    assert_int_equal((fcntl(file, F_GETFL) & O_DIRECT) != 0, direct);
    assert_int_equal(fcntl(file, F_GETFD), FD_CLOEXEC);
    struct stat about;
    assert_int_equal(fstat(file, &about), 0);
    assert_int_equal(about.st_mode & 0177, 0);
    assert_int_equal(env->close(env, file), 0);

    assert_int_equal(symlink("new", in_directory("link")), 0);
    assert_int_equal(env->open(env, in_directory("link"), 0, &file, NULL), -ELOOP);
    assert_int_equal(mkfifo(in_directory("fifo"), 0600), 0);
    assert_int_equal(env->open(env, in_directory("fifo"), BASE_OPEN_READ_ONLY, &file, NULL), -EMEDIUMTYPE);
    assert_int_equal(env->open(env, in_directory("fifo"), 0, &file, NULL), -EMEDIUMTYPE);
    struct iovec iov = {&about, 1};

    assert_int_equal(env->open(env, in_directory("new"), BASE_OPEN_READ_ONLY, &file, &direct), 0);
    assert_int_equal(direct, 0);
    assert_int_equal(env->write(env, file, &iov, 1, 0), -EBADF);
    assert_int_equal(env->close(env, file), 0);
}

/* Whatever the file system of the tests can, a file of /proc cannot be opened with O_DIRECT. */
static void no_direct_io_is_no_failure(void **state)
{
    (void)state;
    int file, direct = -1;
    char byte = 0;
    const struct iovec iov = {&byte, 1};

    if (access("/proc/self/status", R_OK) != 0)
        skip();
    const int flags = BASE_OPEN_READ_ONLY | BASE_OPEN_DIRECT;
    assert_int_equal(open("/proc/self/status", O_RDONLY | O_DIRECT), -1);
    assert_int_equal(env->open(env, "/proc/self/status", flags, &file, &direct), 0);
    assert_int_equal(direct, 0);
    assert_int_equal(env->read(env, file, &iov, 1, 0), 1);
    assert_int_equal(byte, 'N');
    assert_int_equal(env->close(env, file), 0);
}

static int count_entry(void *context, const char *name)
{
    assert_true(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
    ++*(int *)context;
    return strcmp(name, "stop") == 0 ? 42 : 0;
}

static void directories_are_made_listed_and_told_apart(void **state)
{
    (void)state;
    uint64_t first[2], again[2], other[2];
    int count = 0;

    assert_int_equal(env->make_directory(env, in_directory("d")), 0);
    assert_int_equal(env->make_directory(env, in_directory("d")), -EEXIST);
    struct stat about;
    assert_int_equal(stat(in_directory("d"), &about), 0);
    assert_int_equal(about.st_mode & 07077, 0);
    assert_int_equal(env->directory_id(env, in_directory("d"), first), 0);
    assert_int_equal(env->directory_id(env, in_directory("d/../d/."), again), 0);
    assert_int_equal(env->directory_id(env, directory, other), 0);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
    assert_int_equal(env->flush_directory(env, directory), 0);

    close(open_new("d/a"));
    close(open_new("d/b"));
    assert_int_equal(env->directory_id(env, in_directory("d/a"), other), -ENOTDIR);
    assert_int_equal(env->list(env, in_directory("d"), count_entry, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(env->rename(env, in_directory("d/a"), in_directory("d/stop")), 0);
    assert_int_equal(env->list(env, in_directory("d"), count_entry, &count), 42);
    assert_int_equal(env->remove_file(env, in_directory("d/stop")), 0);
    assert_int_equal(env->remove_file(env, in_directory("d/stop")), -ENOENT);
    assert_int_equal(env->remove_file(env, in_directory("d/b")), 0);
    assert_int_equal(env->list(env, in_directory("none"), count_entry, &count), -ENOENT);
}

static void allocated_space_is_there(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    const int file = open_new("allocated");

    assert_int_equal(env->allocate(env, file, 0), 0);
    assert_int_equal(env->allocate(env, file, 1 << 20), 0);
    assert_int_equal(env->file_bytes(env, file, &bytes), 0);
    assert_int_equal(bytes, 1 << 20);
    assert_int_equal(env->allocate(env, file, 4096), 0);
    assert_int_equal(env->file_bytes(env, file, &bytes), 0);
    assert_int_equal(bytes, 1 << 20);
    assert_int_equal(env->truncate(env, file, 8192), 0);
    assert_int_equal(env->flush(env, file), 0);
    assert_int_equal(env->file_bytes(env, file, &bytes), 0);
    assert_int_equal(bytes, 8192);
    assert_int_equal(env->close(env, file), 0);
}

static void a_write_moves_the_time_of_a_file(void **state)
{
    (void)state;
    uint8_t byte = 1;
    uint64_t before, after;
    const struct iovec iov = {&byte, 1};
    const struct timespec pause = {0, 20000000};
    const int file = open_new("times");

    const uint64_t started_s = env->wall_s(env);
    assert_int_equal(env->file_changed_ns(env, file, &before), 0);
    assert_in_range(before / 1000000000u, started_s - 2, started_s + 2);
    nanosleep(&pause, NULL);
    assert_int_equal(env->read(env, file, &iov, 1, 0), 0);
    assert_int_equal(env->file_changed_ns(env, file, &after), 0);
    assert_true(after == before);
    assert_int_equal(env->write(env, file, &iov, 1, 0), 1);
    assert_int_equal(env->file_changed_ns(env, file, &after), 0);
    assert_true(after > before);
    assert_int_equal(env->close(env, file), 0);
    assert_int_equal(env->file_changed_ns(env, file, &after), -EBADF);
}

/* Needs a small file system of its own, so it needs root (and a container that may mount). */
static void a_failed_allocation_leaves_nothing_behind(void **state)
{
    (void)state;
    const char *small = in_directory("small");
    int file;
    uint64_t bytes;
    struct stat about;

    assert_int_equal(env->make_directory(env, small), 0);
    if (mount("none", small, "tmpfs", 0, "size=1m") != 0) {
        print_message("no mount here: %s\n", strerror(errno));
        skip();
    }
    const int opened = env->open(env, in_directory("small/f"), BASE_OPEN_CREATE, &file, NULL);
    const int fits = env->allocate(env, file, 256 << 10);
    const int fails = env->allocate(env, file, 8 << 20);
    const int read_bytes = env->file_bytes(env, file, &bytes);
    const int read_stat = fstat(file, &about);
    const int still_fits = env->allocate(env, file, 1 << 20);
    const int memory = env->in_memory(env, small);
    const int memory_below = env->in_memory(env, in_directory("small/not yet"));
    const int memory_nowhere = env->in_memory(env, in_directory("small/not yet/there"));
    env->close(env, file);
    umount2(in_directory("small"), MNT_DETACH);

    assert_int_equal(opened, 0);
    assert_int_equal(fits, 0);
    assert_int_equal(fails, -ENOSPC);
    assert_int_equal(read_bytes | read_stat, 0);
    assert_int_equal(bytes, 256 << 10);
    assert_int_equal(about.st_blocks * 512, 256 << 10);
    assert_int_equal(still_fits, 0);
    assert_int_equal(memory, 1);
    assert_int_equal(memory_below, 1);
    assert_int_equal(memory_nowhere, 0);
}

/* ramfs allocates nothing ahead; the size must be right all the same. */
static void space_that_cannot_be_allocated_is_a_size(void **state)
{
    (void)state;
    int file;
    uint64_t grown = 0, kept = 0;
    const char *ram = in_directory("ram");

    assert_int_equal(env->make_directory(env, ram), 0);
    if (mount("none", ram, "ramfs", 0, NULL) != 0) {
        print_message("no mount here: %s\n", strerror(errno));
        skip();
    }
    const int opened = env->open(env, in_directory("ram/f"), BASE_OPEN_CREATE, &file, NULL);
    int status = env->allocate(env, file, 1 << 20) | env->file_bytes(env, file, &grown);
    status |= env->allocate(env, file, 4096) | env->file_bytes(env, file, &kept);
    env->close(env, file);
    umount2(in_directory("ram"), MNT_DETACH);

    assert_int_equal(opened | status, 0);
    assert_int_equal(grown, 1 << 20);
    assert_int_equal(kept, 1 << 20);
}

/* ---- Locks -------------------------------------------------------------- */

/* What a child process sees when it asks for the lock: 0, or the owner, or -1. */
static int64_t lock_in_child(const char *path, int flags)
{
    int pipes[2];
    int64_t owner = -1;

    assert_int_equal(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
        int file = -1;
        int64_t seen = -1;
        if (env->open(env, path, flags, &file, NULL) == 0) {
            const int status = env->lock(env, file, &seen);
            if (status != 0 && status != -EAGAIN)
                seen = -1;
        }
        _exit(write(pipes[1], &seen, sizeof seen) == sizeof seen ? 0 : 1);
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &owner, sizeof owner), sizeof owner);
    close(pipes[0]);
    waitpid(child, NULL, 0);
    return owner;
}

static void a_lock_names_its_owner_and_ends_with_its_file(void **state)
{
    (void)state;
    const char *path = in_directory("lock");
    int64_t owner = -1;
    int file = open_new("lock");

    assert_int_equal(lock_in_child(path, 0), 0);
    assert_int_equal(env->lock(env, file, &owner), 0);
    assert_int_equal(owner, 0);
    assert_int_equal(lock_in_child(path, 0), getpid());
    assert_int_equal(lock_in_child(path, BASE_OPEN_READ_ONLY), getpid());
    assert_int_equal(env->close(env, file), 0);
    assert_int_equal(lock_in_child(path, 0), 0);

    assert_int_equal(env->open(env, path, BASE_OPEN_READ_ONLY, &file, NULL), 0);
    assert_int_equal(env->lock(env, file, &owner), 0);
    assert_int_equal(lock_in_child(path, BASE_OPEN_READ_ONLY), 0);
    assert_int_equal(lock_in_child(path, 0), getpid());
    assert_int_equal(env->close(env, file), 0);
    assert_int_equal(env->lock(env, file, &owner), -EBADF);
}

/* ---- The machine -------------------------------------------------------- */

static size_t open_files(void)
{
    int count = 0;
    env->list(env, "/proc/self/fd", count_entry, &count);
    return (size_t)count;
}

static void an_arena_is_one_memory_seen_twice(void **state)
{
    (void)state;
    const size_t bytes = 4 << 20;
    void *writable;
    const void *readable;

    const size_t before = open_files();
    assert_int_equal(env->map_arena(env, bytes, &writable, &readable), 0);
    assert_int_equal(open_files(), before);
    assert_int_equal((uintptr_t)writable % 4096, 0);
    ((volatile char *)writable)[bytes - 1] = 'x';
    assert_int_equal(((const volatile char *)readable)[bytes - 1], 'x');
    assert_int_equal(((const volatile char *)readable)[0], 0);
    env->unmap_arena(env, bytes, writable, readable);
    assert_int_not_equal(env->map_arena(env, SIZE_MAX / 2, &writable, &readable), 0);
    assert_null(writable);
}

/* The kernel's flags of the mapping at `memory`; "" where it does not say. */
static void mapping_flags(const void *memory, char flags[256])
{
    char line[512], start[32];
    bool inside = false;

    flags[0] = '\0';
    FILE *maps = fopen("/proc/self/smaps", "r");
    if (maps == NULL)
        return;
    snprintf(start, sizeof start, "%lx-", (unsigned long)(uintptr_t)memory);
    while (fgets(line, sizeof line, maps) != NULL) {
        if (strncmp(line, start, strlen(start)) == 0)
            inside = true;
        if (inside && sscanf(line, "VmFlags: %255[^\n]", flags) == 1)
            break;
    }
    fclose(maps);
}

static void an_arena_asks_for_huge_pages_where_there_are_any(void **state)
{
    (void)state;
    const size_t bytes = 4 << 20;
    void *writable;
    const void *readable;
    char flags[256];

    assert_int_equal(env->map_arena(env, bytes, &writable, &readable), 0);
    const void *const mappings[] = {writable, readable};
    for (int i = 0; i < 2; i++) {
        mapping_flags(mappings[i], flags);
        if (flags[0] != '\0' && access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0)
            assert_non_null(strstr(flags, "hg"));
    }
    env->unmap_arena(env, bytes, writable, readable);
}

static int signal_of_child(void (*act)(void *memory), void *memory)
{
    int status = 0;

    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        act(memory);
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void look(void *memory)
{
    (void)*(volatile char *)memory;
}

static void remap_and_write(void *unused)
{
    void *writable;
    const void *readable;

    (void)unused;
    if (env->map_arena(env, 4096, &writable, &readable) == 0)
        *(volatile char *)(uintptr_t)readable = 'y';
}

static void an_arena_is_read_only_where_said_and_gone_in_a_child(void **state)
{
    (void)state;
    void *writable;
    const void *readable;

    assert_int_equal(env->map_arena(env, 4096, &writable, &readable), 0);
    assert_int_equal(signal_of_child(look, writable), SIGSEGV);
    assert_int_equal(signal_of_child(look, (void *)(uintptr_t)readable), SIGSEGV);
    assert_int_equal(signal_of_child(remap_and_write, NULL), SIGSEGV);
    env->unmap_arena(env, 4096, writable, readable);
}

static void memory_is_zeroed_and_backed_when_touched(void **state)
{
    (void)state;
    const size_t bytes = (size_t)8 << 30;
    uint8_t *memory = env->alloc(env, bytes);

    if (memory == NULL)
        skip(); /* strict overcommit */
    assert_int_equal(memory[0] | memory[bytes - 1], 0);
    memory[bytes / 2] = 1;
    unsigned char resident = 1;
    assert_int_equal(mincore(memory + bytes / 4, 4096, &resident), 0);
    assert_int_equal(resident & 1, 0);
    env->free(env, memory, bytes);
    assert_null(env->alloc(env, SIZE_MAX / 2));
    env->free(env, NULL, 4096);
}

static void clock_process_and_randomness_answer(void **state)
{
    (void)state;
    uint8_t a[300], b[300], boot[2][16];

    const uint64_t start = env->now_ns(env);
    assert_true(start > 0 && env->now_ns(env) >= start);
    assert_true(env->wall_s(env) > 1600000000);
    assert_int_equal(env->process(env), getpid());
    const pid_t child = fork(); /* not what its parent knew; nor is the grandchild's its own */
    if (child == 0) {
        const int own = env->process(env) == getpid();
        const pid_t next = fork();
        int status = 1;
        if (next == 0)
            _exit(env->process(env) != getpid());
        _exit(waitpid(next, &status, 0) != next || status != 0 || !own);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(env->process(env), getpid());
    assert_int_equal(env->random(env, a, sizeof a), 0);
    assert_int_equal(env->random(env, b, sizeof b), 0);
    assert_memory_not_equal(a, b, sizeof a);
    memset(boot, 0xee, sizeof boot);
    assert_int_equal(env->boot_id(env, boot[0]), 0);
    assert_int_equal(env->boot_id(env, boot[1]), 0);
    assert_memory_equal(boot[0], boot[1], 16);
    assert_memory_not_equal(boot[0], "\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee\xee", 16);
}

static void direct_alignment_is_a_power_of_two_or_unknown(void **state)
{
    (void)state;
    int file, direct;

    assert_int_equal(env->open(env, in_directory("aligned"), BASE_OPEN_CREATE | BASE_OPEN_DIRECT, &file, &direct), 0);
    const uint32_t told = env->direct_alignment(env, file);
    assert_int_equal(told & (told - 1), 0);
    assert_int_equal(env->close(env, file), 0);
    assert_int_equal(env->direct_alignment(env, file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_pieces_than_the_kernel_takes_are_transferred),
        cmocka_unit_test(more_bytes_than_the_kernel_takes_are_transferred),
        cmocka_unit_test(a_write_that_does_not_fit_is_an_error),
        cmocka_unit_test(opening_is_careful),
        cmocka_unit_test(no_direct_io_is_no_failure),
        cmocka_unit_test(directories_are_made_listed_and_told_apart),
        cmocka_unit_test(allocated_space_is_there),
        cmocka_unit_test(a_write_moves_the_time_of_a_file),
        cmocka_unit_test(a_failed_allocation_leaves_nothing_behind),
        cmocka_unit_test(space_that_cannot_be_allocated_is_a_size),
        cmocka_unit_test(a_lock_names_its_owner_and_ends_with_its_file),
        cmocka_unit_test(an_arena_is_one_memory_seen_twice),
        cmocka_unit_test(an_arena_asks_for_huge_pages_where_there_are_any),
        cmocka_unit_test(an_arena_is_read_only_where_said_and_gone_in_a_child),
        cmocka_unit_test(memory_is_zeroed_and_backed_when_touched),
        cmocka_unit_test(clock_process_and_randomness_answer),
        cmocka_unit_test(direct_alignment_is_a_power_of_two_or_unknown),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
