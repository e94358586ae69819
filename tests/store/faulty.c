/* SPDX-License-Identifier: Apache-2.0 */
#include "faulty.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

faulty_calls faulty;
_Atomic uint64_t faulty_unreadable_from, faulty_unreadable_bytes;

static base_env machine;

enum { FILES = 256 };
static atomic_bool unflushed[FILES]; /* by descriptor */

/* Whether this call is one that fails. */
static bool falls(_Atomic int *left)
{
    int n = atomic_load(left);
    if (n == ALWAYS)
        return true;
    while (n > 0)
        if (atomic_compare_exchange_weak(left, &n, n - 1))
            return true;
    return false;
}

/* Of a block: header and payload, in one piece or several. */
static bool of_block(const struct iovec *iov, int count) { return iov_bytes(iov, count) > 65536; }

static bool unreadable(int file, const struct iovec *iov, int count, uint64_t offset)
{
    uint64_t from = atomic_load(&faulty_unreadable_from), bytes = atomic_load(&faulty_unreadable_bytes);
    uint64_t end = offset + iov_bytes(iov, count);
    struct stat s;
    /* No other file is as large. */
    return offset < from + bytes && end > from && fstat(file, &s) == 0 && s.st_size > 1 << 20;
}

static ssize_t read_or_fail(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    if (of_block(iov, count)) {
        atomic_fetch_add(&faulty.reads_made, 1);
        if (faulty.during)
            faulty.during();
    }
    if (unreadable(file, iov, count, offset))
        return -EIO;
    if (falls(&faulty.all_reads) || (of_block(iov, count) && falls(&faulty.block_reads)))
        return -EIO;
    return base_env_posix()->read(base_env_posix(), file, iov, count, offset);
}

static void end_half_way(int file, const struct iovec *iov, uint64_t offset)
{
    struct iovec half = {iov->iov_base, iov->iov_len > 4096 ? iov->iov_len / 2 : iov->iov_len};
    _exit(base_env_posix()->write(base_env_posix(), file, &half, 1, offset) == (ssize_t)half.iov_len ? 0 : 1);
}

static ssize_t write_or_fail(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    if (falls(of_block(iov, count) ? &faulty.block_writes : &faulty.page_writes))
        return -EIO;
    if (of_block(iov, count) && faulty.during)
        faulty.during();
    if (!of_block(iov, count) && faulty.during_page)
        faulty.during_page();
    if (of_block(iov, count) && atomic_load(&faulty.ends))
        end_half_way(file, iov, offset);
    if (file < FILES)
        atomic_store(&unflushed[file], true);
    return base_env_posix()->write(base_env_posix(), file, iov, count, offset);
}

static int flush_or_fail(base_env *env, int file)
{
    (void)env;
    if (falls(&faulty.flushes))
        return -EIO;
    if (file < FILES)
        atomic_store(&unflushed[file], false);
    return base_env_posix()->flush(base_env_posix(), file);
}

unsigned faulty_unflushed(void)
{
    unsigned count = 0;
    for (int i = 0; i < FILES; i++)
        count += atomic_load(&unflushed[i]);
    return count;
}

static void *alloc_or_fail(base_env *env, size_t bytes)
{
    (void)env;
    int left = atomic_load(&faulty.allocs_until);
    if (left > 0 && atomic_fetch_sub(&faulty.allocs_until, 1) == 1)
        return NULL;
    return base_env_posix()->alloc(base_env_posix(), bytes);
}

int faulty_try_open(const char *tiers, kvo_error *error)
{
    char text[1024], paths[4096];
    kvo_tier_config configs[KVO_TIERS_MAX];
    uint32_t count;
    fixture_text(tiers, text, sizeof text);
    memset(&faulty, 0, sizeof faulty);
    machine = *base_env_posix();
    machine.read = read_or_fail;
    machine.write = write_or_fail;
    machine.flush = flush_or_fail;
    memset(unflushed, 0, sizeof unflushed);
    machine.alloc = alloc_or_fail;
    int r = kvo_parse_tiers(text, configs, &count, paths, sizeof paths, error);
    kvo_options o = options;
    o.flags |= fixture_stepped();
    return r == KVO_OK ? store_open(&machine, configs, count, &o, &store, error) : r;
}

void faulty_open(const char *tiers)
{
    kvo_error error = {{0}};
    if (faulty_try_open(tiers, &error) != KVO_OK)
        fail_msg("open: %s", error.text);
    space = open_space("a", 65536);
}
