/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment: everything the library asks of the machine goes through this table,
 * so that tests can replace clock, memory, randomness, files and log, fail the nth call,
 * or keep a medium in memory and crash it.
 *
 * Calls that can fail return 0 (or a byte count) or a negative errno value. They retry EINTR
 * themselves. Every call may be made from any thread.
 */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
    BASE_OPEN_CREATE = 1 << 0,    /* mode 0600 */
    BASE_OPEN_DIRECT = 1 << 1,    /* bypass the page cache where the file system can */
    BASE_OPEN_READ_ONLY = 1 << 2
};

/* The most that this process may have; UINT64_MAX: no limit, or none that is known. */
typedef struct base_limits {
    uint64_t file_bytes;   /* of one file, and of shared memory: more kills it with SIGXFSZ */
    uint64_t memory_bytes; /* of the machine, or of the process's group on it */
} base_limits;

typedef struct base_env base_env;
struct base_env {
    void *context;

    uint64_t (*now_ns)(base_env *env);  /* monotonic */
    uint64_t (*wall_s)(base_env *env);  /* seconds since 1970 */
    int (*random)(base_env *env, void *out, size_t bytes);
    int (*boot_id)(base_env *env, uint8_t out[16]); /* changes when the machine restarts */
    int64_t (*process)(base_env *env);              /* this process's id */

    void *(*alloc)(base_env *env, size_t bytes); /* zeroed, untouched pages stay unbacked; NULL */
    void (*free)(base_env *env, void *memory, size_t bytes);
    /* One region of shared memory mapped twice: writable and read-only. Not inherited by a child. */
    int (*map_arena)(base_env *env, size_t bytes, void **writable, const void **readable);
    void (*unmap_arena)(base_env *env, size_t bytes, void *writable, const void *readable);
    void (*limits)(base_env *env, base_limits *limits); /* NULL: none are known */

    /* *direct (may be NULL) says whether BASE_OPEN_DIRECT took effect. Regular files alone: -ELOOP: a
       symlink in the last component, which is never followed; -EISDIR; -EMEDIUMTYPE: something else.
       Close-on-exec. */
    int (*open)(base_env *env, const char *path, int flags, int *file, int *direct);
    int (*close)(base_env *env, int file);
    /* Full transfers: a short count is only returned at the end of the file (read). */
    ssize_t (*read)(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset);
    ssize_t (*write)(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset);
    int (*flush)(base_env *env, int file); /* data and what is needed to read it */
    int (*allocate)(base_env *env, int file, uint64_t bytes); /* space for [0, bytes), also the size */
    int (*truncate)(base_env *env, int file, uint64_t bytes);
    int (*file_bytes)(base_env *env, int file, uint64_t *bytes);
    /* What direct I/O asks of an address in memory; 0 where the kernel does not tell. */
    uint32_t (*direct_alignment)(base_env *env, int file);
    /* Whether it still goes past the page cache: a file that refuses that is not asked again. NULL: as at open. */
    int (*is_direct)(base_env *env, int file);
    int (*file_changed_ns)(base_env *env, int file, uint64_t *ns); /* its last write or change of size, since 1970 */

    int (*make_directory)(base_env *env, const char *path); /* 0700; -EEXIST */
    int (*flush_directory)(base_env *env, const char *path);
    int (*rename)(base_env *env, const char *from, const char *to);
    int (*remove_file)(base_env *env, const char *path);
    /* Calls each() for each entry but "." and ".."; stops at a non-zero return and returns it. */
    int (*list)(base_env *env, const char *path, int (*each)(void *context, const char *name),
                void *context);
    /* Device and inode of a directory: its name in this process. */
    int (*directory_id)(base_env *env, const char *path, uint64_t id[2]);
    /* Whether the file system of a directory, or of the parent of one that is not there yet, is memory alone
       (tmpfs, ramfs). 0 where nobody knows. NULL: it is not. */
    int (*in_memory)(base_env *env, const char *path);
    /* The kernel's exclusive lock: gone with the process, not inherited by a child.
       -EAGAIN: taken, *owner is the process (0 if unknown). */
    int (*lock)(base_env *env, int file, int64_t *owner);
};

/* The real machine. One instance, no state. */
base_env *base_env_posix(void);

#endif
