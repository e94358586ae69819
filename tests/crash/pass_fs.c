/* SPDX-License-Identifier: Apache-2.0 */
/* pass_fs FOLDER MOUNTPOINT: a file system in a process, so that it can be stopped. It shows FOLDER. */
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char *folder;

typedef struct place {
    char path[1024];
} place;

static place place_of(const char *path)
{
    place p;
    snprintf(p.path, sizeof p.path, "%s%s", folder, path);
    return p;
}

static int result_of(int r) { return r < 0 ? -errno : r; }

static int fs_getattr(const char *path, struct stat *about, struct fuse_file_info *info)
{
    (void)info;
    return result_of(lstat(place_of(path).path, about));
}

static int fs_mkdir(const char *path, mode_t mode) { return result_of(mkdir(place_of(path).path, mode)); }
static int fs_unlink(const char *path) { return result_of(unlink(place_of(path).path)); }
static int fs_rmdir(const char *path) { return result_of(rmdir(place_of(path).path)); }

static int fs_rename(const char *from, const char *to, unsigned flags)
{
    return flags ? -EINVAL : result_of(rename(place_of(from).path, place_of(to).path));
}

/* The caller's O_DIRECT asks for memory that is aligned here too, which it is not. */
static int opened(int file, struct fuse_file_info *info)
{
    if (file < 0)
        return -errno;
    info->fh = (uint64_t)file;
    info->direct_io = 1;
    return 0;
}

static int fs_open(const char *path, struct fuse_file_info *info)
{
    return opened(open(place_of(path).path, info->flags & ~O_DIRECT), info);
}

static int fs_create(const char *path, mode_t mode, struct fuse_file_info *info)
{
    return opened(open(place_of(path).path, (info->flags & ~O_DIRECT) | O_CREAT, mode), info);
}

static int fs_read(const char *path, char *out, size_t bytes, off_t offset, struct fuse_file_info *info)
{
    (void)path;
    return result_of((int)pread((int)info->fh, out, bytes, offset));
}

static int fs_write(const char *path, const char *in, size_t bytes, off_t offset, struct fuse_file_info *info)
{
    (void)path;
    return result_of((int)pwrite((int)info->fh, in, bytes, offset));
}

static int fs_fsync(const char *path, int data_only, struct fuse_file_info *info)
{
    (void)path;
    return result_of(data_only ? fdatasync((int)info->fh) : fsync((int)info->fh));
}

static int fs_truncate(const char *path, off_t bytes, struct fuse_file_info *info)
{
    return result_of(info ? ftruncate((int)info->fh, bytes) : truncate(place_of(path).path, bytes));
}

static int fs_fallocate(const char *path, int mode, off_t offset, off_t bytes, struct fuse_file_info *info)
{
    (void)path;
    return result_of(fallocate((int)info->fh, mode, offset, bytes));
}

static int fs_statfs(const char *path, struct statvfs *about) { return result_of(statvfs(place_of(path).path, about)); }

static int fs_release(const char *path, struct fuse_file_info *info)
{
    (void)path;
    return result_of(close((int)info->fh));
}

static int fs_readdir(const char *path, void *out, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *info,
                      enum fuse_readdir_flags flags)
{
    (void)offset, (void)info, (void)flags;
    DIR *directory = opendir(place_of(path).path);
    if (directory == NULL)
        return -errno;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (fill(out, entry->d_name, NULL, 0, 0) != 0)
            break;
    closedir(directory);
    return 0;
}

static int fs_chmod(const char *path, mode_t mode, struct fuse_file_info *info)
{
    (void)info;
    return result_of(chmod(place_of(path).path, mode));
}

int main(int count, char **arguments)
{
    static const struct fuse_operations operations = {
        .getattr = fs_getattr, .mkdir = fs_mkdir, .unlink = fs_unlink, .rmdir = fs_rmdir, .rename = fs_rename,
        .chmod = fs_chmod, .open = fs_open, .create = fs_create, .read = fs_read, .write = fs_write,
        .fsync = fs_fsync, .truncate = fs_truncate, .fallocate = fs_fallocate, .statfs = fs_statfs,
        .release = fs_release, .readdir = fs_readdir,
    };
    char *given[] = {arguments[0], "-f", count == 3 ? arguments[2] : NULL, NULL};
    if (count != 3) {
        fprintf(stderr, "pass_fs FOLDER MOUNTPOINT\n");
        return 2;
    }
    folder = arguments[1];
    return fuse_main(3, given, &operations, NULL);
}
