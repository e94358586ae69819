/* SPDX-License-Identifier: Apache-2.0 */
/* The file calls of base_env_posix(). */
#ifndef BASE_ENV_POSIX_FILE_H
#define BASE_ENV_POSIX_FILE_H

#include "base/env.h"

int base_posix_open(base_env *env, const char *path, int flags, int *file, int *direct);
int base_posix_close(base_env *env, int file);
ssize_t base_posix_read(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset);
ssize_t base_posix_write(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset);
int base_posix_flush(base_env *env, int file);
int base_posix_allocate(base_env *env, int file, uint64_t bytes);
int base_posix_truncate(base_env *env, int file, uint64_t bytes);
int base_posix_file_bytes(base_env *env, int file, uint64_t *bytes);
uint32_t base_posix_direct_alignment(base_env *env, int file);
int base_posix_is_direct(base_env *env, int file);
int base_posix_file_changed_ns(base_env *env, int file, uint64_t *ns);
int base_posix_make_directory(base_env *env, const char *path);
int base_posix_flush_directory(base_env *env, const char *path);
int base_posix_rename(base_env *env, const char *from, const char *to);
int base_posix_remove_file(base_env *env, const char *path);
int base_posix_list(base_env *env, const char *path, int (*each)(void *context, const char *name),
                    void *context);
int base_posix_directory_id(base_env *env, const char *path, uint64_t id[2]);
int base_posix_in_memory(base_env *env, const char *path);
/* A file that is open for reading only gets a shared lock: it keeps writers out, as it must. */
int base_posix_lock(base_env *env, int file, int64_t *owner);

#endif
