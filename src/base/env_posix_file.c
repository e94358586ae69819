/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env_posix_file.h"
#include "base/transfer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* For calls that answer -1 and errno. */
#define RETRY(status, call) \
    do { \
        (status) = (call); \
    } while ((status) < 0 && errno == EINTR)

static int result_of(int status)
{
    return status < 0 ? -errno : 0;
}

static int open_once(const char *path, int flags)
{
    int file;

    RETRY(file, open(path, flags, 0600));
    return file < 0 ? -errno : file;
}

/* A pipe or a device in a file's place would take a lock, and bytes. */
static int regular_once(const char *path, int flags)
{
    struct stat about;
    int failure = 0;
    const int file = open_once(path, flags);

    if (file < 0)
        return file;
    if (fstat(file, &about) != 0)
        failure = -errno;
    else if (!S_ISREG(about.st_mode))
        failure = S_ISDIR(about.st_mode) ? -EISDIR : -EMEDIUMTYPE;
    if (failure == 0)
        return file;
    close(file);
    return failure;
}

int base_posix_open(base_env *env, const char *path, int flags, int *file, int *direct)
{
    const int wants_direct = (flags & BASE_OPEN_DIRECT) != 0;
    /* Not blocking, or a FIFO in a file's place would hang the caller. */
    const int mode = (flags & BASE_OPEN_READ_ONLY ? O_RDONLY : O_RDWR) |
                     (flags & BASE_OPEN_CREATE ? O_CREAT : 0) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;

    (void)env;
    int is_direct = wants_direct;
    int opened = regular_once(path, mode | (wants_direct ? O_DIRECT : 0));
    if (opened == -EINVAL && wants_direct) {
        is_direct = 0;
        opened = regular_once(path, mode);
    }
    if (opened < 0)
        return opened;
    *file = opened;
    if (direct != NULL)
        *direct = is_direct;
    return 0;
}

int base_posix_close(base_env *env, int file)
{
    (void)env;
    /* Linux has closed the file when it says EINTR. */
    return close(file) != 0 && errno != EINTR ? -errno : 0;
}

/* As direct I/O asks of a request anywhere. */
static bool is_aligned(const struct iovec *iov, int count, uint64_t offset)
{
    uintptr_t all = (uintptr_t)offset;

    for (int i = 0; i < count; i++)
        all |= (uintptr_t)iov[i].iov_base | iov[i].iov_len;
    return all % 4096 == 0;
}

/* Some file systems let a file be opened for direct I/O and then refuse it, some only reads. What was refused in
   spite of being aligned will be refused each time, so this file goes through the page cache from now on. */
static bool leaves_direct(int file, ssize_t result, const struct iovec *iov, int count, uint64_t offset)
{
    if (result != -EINVAL || !is_aligned(iov, count, offset))
        return false;
    const int flags = fcntl(file, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) && fcntl(file, F_SETFL, flags & ~O_DIRECT) == 0;
}

ssize_t base_posix_read(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    ssize_t got = base_transfer(preadv, file, iov, count, offset);
    if (leaves_direct(file, got, iov, count, offset))
        got = base_transfer(preadv, file, iov, count, offset);
    return got;
}

static size_t total_of(const struct iovec *iov, int count)
{
    size_t total = 0;

    for (int i = 0; i < count; i++)
        total += iov[i].iov_len;
    return total;
}

ssize_t base_posix_write(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    ssize_t written = base_transfer(pwritev, file, iov, count, offset);
    if (leaves_direct(file, written, iov, count, offset))
        written = base_transfer(pwritev, file, iov, count, offset);
    return written >= 0 && (size_t)written < total_of(iov, count) ? -EIO : written;
}

int base_posix_flush(base_env *env, int file)
{
    int status;

    (void)env;
    RETRY(status, fdatasync(file));
    return result_of(status);
}

int base_posix_truncate(base_env *env, int file, uint64_t bytes)
{
    int status;

    (void)env;
    RETRY(status, ftruncate(file, (off_t)bytes));
    return result_of(status);
}

int base_posix_allocate(base_env *env, int file, uint64_t bytes)
{
    uint64_t before;
    int status = base_posix_file_bytes(env, file, &before);

    if (status != 0 || bytes == 0)
        return status;
    RETRY(status, fallocate(file, 0, 0, (off_t)bytes));
    const int failure = result_of(status);
    if (failure == -EOPNOTSUPP || failure == -ENOSYS)
        return before < bytes ? base_posix_truncate(env, file, bytes) : 0;
    /* Some file systems keep what they could get; nothing half done may fill the device. */
    if (failure != 0)
        (void)base_posix_truncate(env, file, before);
    return failure;
}

int base_posix_file_bytes(base_env *env, int file, uint64_t *bytes)
{
    struct stat about;

    (void)env;
    if (fstat(file, &about) != 0)
        return -errno;
    *bytes = (uint64_t)about.st_size;
    return 0;
}

uint32_t base_posix_direct_alignment(base_env *env, int file)
{
    (void)env;
#ifdef STATX_DIOALIGN
    struct statx about = {0};

    if (statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) == 0 && (about.stx_mask & STATX_DIOALIGN) != 0)
        return about.stx_dio_mem_align;
#else
    (void)file;
#endif
    return 0;
}

int base_posix_is_direct(base_env *env, int file)
{
    const int flags = fcntl(file, F_GETFL);

    (void)env;
    return flags >= 0 && (flags & O_DIRECT) != 0;
}

int base_posix_file_changed_ns(base_env *env, int file, uint64_t *ns)
{
    struct stat about;

    (void)env;
    if (fstat(file, &about) != 0)
        return -errno;
    *ns = (uint64_t)about.st_mtim.tv_sec * 1000000000u + (uint64_t)about.st_mtim.tv_nsec;
    return 0;
}

int base_posix_make_directory(base_env *env, const char *path)
{
    (void)env;
    return result_of(mkdir(path, 0700));
}

int base_posix_flush_directory(base_env *env, const char *path)
{
    int status;

    (void)env;
    const int directory = open_once(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return directory;
    RETRY(status, fsync(directory));
    const int failure = result_of(status);
    close(directory);
    /* EINVAL: this file system has no such thing, so there is nothing to wait for. */
    return failure == -EINVAL ? 0 : failure;
}

int base_posix_rename(base_env *env, const char *from, const char *to)
{
    (void)env;
    return result_of(rename(from, to));
}

int base_posix_remove_file(base_env *env, const char *path)
{
    (void)env;
    return result_of(unlink(path));
}

int base_posix_list(base_env *env, const char *path, int (*each)(void *context, const char *name),
                    void *context)
{
    int status = 0;

    (void)env;
    DIR *directory = opendir(path);
    if (directory == NULL)
        return -errno;
    while (status == 0) {
        errno = 0;
        const struct dirent *entry = readdir(directory);
        if (entry == NULL) {
            status = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = each(context, entry->d_name);
    }
    closedir(directory);
    return status;
}

int base_posix_directory_id(base_env *env, const char *path, uint64_t id[2])
{
    struct stat about;

    (void)env;
    if (stat(path, &about) != 0)
        return -errno;
    if (!S_ISDIR(about.st_mode))
        return -ENOTDIR;
    id[0] = about.st_dev;
    id[1] = about.st_ino;
    return 0;
}

int base_posix_in_memory(base_env *env, const char *path)
{
    struct statfs about;
    char parent[PATH_MAX];

    (void)env;
    int status = statfs(path, &about);
    if (status != 0 && errno == ENOENT && strlen(path) < sizeof parent) {
        strcpy(parent, path);
        status = statfs(dirname(parent), &about);
    }
    return status == 0 && ((unsigned long)about.f_type == TMPFS_MAGIC || (unsigned long)about.f_type == RAMFS_MAGIC);
}

static int64_t lock_owner(int file, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};

    return fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid > 0 ? lock.l_pid : 0;
}

int base_posix_lock(base_env *env, int file, int64_t *owner)
{
    int status;

    (void)env;
    const int mode = fcntl(file, F_GETFL);
    if (mode < 0)
        return -errno;
    struct flock lock = {.l_type = (mode & O_ACCMODE) == O_RDONLY ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};
    const short type = lock.l_type;
    *owner = 0;
    RETRY(status, fcntl(file, F_SETLK, &lock));
    if (status == 0)
        return 0;
    if (errno != EACCES && errno != EAGAIN)
        return -errno;
    *owner = lock_owner(file, type);
    return -EAGAIN;
}
