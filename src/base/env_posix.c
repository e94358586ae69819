/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"
#include "base/env_posix_file.h"
#include "base/env_posix_limits.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static uint64_t posix_now_ns(base_env *env)
{
    struct timespec now;

    (void)env;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t posix_wall_s(base_env *env)
{
    struct timespec now;

    (void)env;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec < 0 ? 0 : (uint64_t)now.tv_sec;
}

static int posix_random(base_env *env, void *out, size_t bytes)
{
    (void)env;
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = getrandom((char *)out + done, bytes - done, 0);
        if (got > 0)
            done += (size_t)got;
        else if (got < 0 && errno != EINTR)
            return -errno;
    }
    return 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void parse_uuid(const char *text, size_t count, uint8_t out[16])
{
    uint8_t parsed[16] = {0};
    size_t digits = 0;

    for (size_t i = 0; i < count && digits < 32; i++) {
        const int value = hex_value(text[i]);
        if (value >= 0) {
            parsed[digits / 2] = (uint8_t)(parsed[digits / 2] << 4 | value);
            digits++;
        }
    }
    if (digits == 32)
        memcpy(out, parsed, 16);
}

/* Zeros where the machine does not tell, as in a sandbox without /proc. */
static int posix_boot_id(base_env *env, uint8_t out[16])
{
    char text[40];
    int file;

    memset(out, 0, 16);
    if (env->open(env, "/proc/sys/kernel/random/boot_id", BASE_OPEN_READ_ONLY, &file, NULL) != 0)
        return 0;
    const struct iovec iov = {text, sizeof text};
    const ssize_t got = env->read(env, file, &iov, 1, 0);
    env->close(env, file);
    if (got > 0)
        parse_uuid(text, (size_t)got, out);
    return 0;
}

/* Every call of the library asks who it is, and a system call costs more than many of them. So the answer
   is kept, in a page that the kernel gives to a child as zeros. NULL: this kernel does not. */
static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static _Atomic int64_t *process_known;

static void process_prepare(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return;
    if (madvise(memory, page, MADV_WIPEONFORK) == 0)
        process_known = memory;
    else
        munmap(memory, page);
}

static int64_t posix_process(base_env *env)
{
    (void)env;
    if (pthread_once(&process_once, process_prepare) != 0 || process_known == NULL)
        return getpid();
    int64_t process = atomic_load_explicit(process_known, memory_order_relaxed);
    if (process == 0) {
        process = getpid();
        atomic_store_explicit(process_known, process, memory_order_relaxed);
    }
    return process;
}

/* Tables that are read at random places cost a page walk each on top of a line; where the machine has huge
   pages for who asks, large ones get them. That is advice: a refusal is none. */
#define HUGE_BYTES (2u << 20)

static void *posix_alloc(base_env *env, size_t bytes)
{
    (void)env;
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_BYTES)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static void posix_free(base_env *env, void *memory, size_t bytes)
{
    (void)env;
    if (memory != NULL)
        munmap(memory, bytes);
}

static int map_once(int file, size_t bytes, int protection, void **memory)
{
    void *mapped = mmap(NULL, bytes, protection, MAP_SHARED, file, 0);

    if (mapped == MAP_FAILED)
        return -errno;
    if (madvise(mapped, bytes, MADV_DONTFORK) != 0) {
        const int failure = -errno;
        munmap(mapped, bytes);
        return failure;
    }
    /* Where the machine allows shared memory huge pages on request, the kernel also aligns the mapping for them:
       its first use is then several times faster, later ones a few percent. Elsewhere this changes nothing. */
    (void)madvise(mapped, bytes, MADV_HUGEPAGE);
    *memory = mapped;
    return 0;
}

static int map_twice(int file, size_t bytes, void **writable, const void **readable)
{
    void *first = NULL;
    void *second = NULL;

    if (ftruncate(file, (off_t)bytes) != 0)
        return -errno;
    int status = map_once(file, bytes, PROT_READ | PROT_WRITE, &first);
    if (status != 0)
        return status;
    status = map_once(file, bytes, PROT_READ, &second);
    if (status != 0) {
        munmap(first, bytes);
        return status;
    }
    *writable = first;
    *readable = second;
    return 0;
}

static int posix_map_arena(base_env *env, size_t bytes, void **writable, const void **readable)
{
    (void)env;
    *writable = NULL;
    *readable = NULL;
    const int file = memfd_create("kvonce", MFD_CLOEXEC);
    if (file < 0)
        return -errno;
    const int status = map_twice(file, bytes, writable, readable);
    /* The mappings hold the memory; the descriptor would be inherited by a child. */
    close(file);
    return status;
}

static void posix_unmap_arena(base_env *env, size_t bytes, void *writable, const void *readable)
{
    (void)env;
    if (writable != NULL)
        munmap(writable, bytes);
    if (readable != NULL)
        munmap((void *)(uintptr_t)readable, bytes);
}

base_env *base_env_posix(void)
{
    static base_env env = {
        .now_ns = posix_now_ns,
        .wall_s = posix_wall_s,
        .random = posix_random,
        .boot_id = posix_boot_id,
        .process = posix_process,
        .alloc = posix_alloc,
        .free = posix_free,
        .map_arena = posix_map_arena,
        .unmap_arena = posix_unmap_arena,
        .limits = base_posix_limits,
        .open = base_posix_open,
        .close = base_posix_close,
        .read = base_posix_read,
        .write = base_posix_write,
        .flush = base_posix_flush,
        .allocate = base_posix_allocate,
        .truncate = base_posix_truncate,
        .file_bytes = base_posix_file_bytes,
        .direct_alignment = base_posix_direct_alignment,
        .is_direct = base_posix_is_direct,
        .file_changed_ns = base_posix_file_changed_ns,
        .make_directory = base_posix_make_directory,
        .flush_directory = base_posix_flush_directory,
        .rename = base_posix_rename,
        .remove_file = base_posix_remove_file,
        .list = base_posix_list,
        .directory_id = base_posix_directory_id,
        .in_memory = base_posix_in_memory,
        .lock = base_posix_lock,
    };
    return &env;
}
