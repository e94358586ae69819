/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define START_S 1700000000u
#define LARGE_BYTES (64u << 10) /* mostly never touched: not worth zeroing */

size_t machine_memory_bytes_max = 256u << 20;

static machine *machine_of(base_env *env) { return env->context; }

/* ---- clock, memory, randomness ---- */

static uint64_t now_ns(base_env *env) { return machine_of(env)->time_ns += 1000; }
static uint64_t wall_s(base_env *env) { return START_S + machine_of(env)->time_ns / 1000000000u; }
static int64_t process(base_env *env) { return (void)env, 1; }

static int random_bytes(base_env *env, void *out, size_t bytes)
{
    machine *m = machine_of(env);
    for (size_t i = 0; i < bytes; i++) {
        m->random = m->random * 6364136223846793005u + 1442695040888963407u;
        ((uint8_t *)out)[i] = (uint8_t)(m->random >> 33);
    }
    return 0;
}

static int boot_id(base_env *env, uint8_t out[16])
{
    memset(out, 0, 16);
    memcpy(out, &machine_of(env)->boot, 8);
    return 0;
}

static size_t whole_pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

static bool take(machine *m, size_t bytes)
{
    if (bytes > machine_memory_bytes_max - m->memory_bytes)
        return false;
    m->memory_bytes += bytes;
    m->memory_most = m->memory_most > m->memory_bytes ? m->memory_most : m->memory_bytes;
    return true;
}

static void *env_alloc(base_env *env, size_t bytes)
{
    if (!take(machine_of(env), bytes))
        return NULL;
    if (bytes >= LARGE_BYTES)
        return base_env_posix()->alloc(base_env_posix(), bytes);
    void *memory = bytes < 4096 ? calloc(1, bytes) : aligned_alloc(4096, whole_pages(bytes));
    MUST(memory != NULL, "no memory");
    return bytes < 4096 ? memory : memset(memory, 0, bytes);
}

static void env_free(base_env *env, void *memory, size_t bytes)
{
    machine *m = machine_of(env);
    MUST(memory != NULL && bytes <= m->memory_bytes, "%zu bytes given back of %zu", bytes, m->memory_bytes);
    m->memory_bytes -= bytes;
    if (bytes >= LARGE_BYTES)
        base_env_posix()->free(base_env_posix(), memory, bytes);
    else
        free(memory);
}

static int map_arena(base_env *env, size_t bytes, void **writable, const void **readable)
{
    if (!take(machine_of(env), bytes))
        return -ENOMEM;
    *writable = aligned_alloc(4096, whole_pages(bytes));
    *readable = *writable;
    MUST(*writable != NULL, "no memory");
    return 0;
}

static void unmap_arena(base_env *env, size_t bytes, void *writable, const void *readable)
{
    (void)readable;
    machine_of(env)->memory_bytes -= bytes;
    free(writable);
}

/* ---- files ---- */

machine_file *machine_find(machine *m, const char *path)
{
    for (int i = 0; i < MACHINE_FILES; i++)
        if (m->files[i].path[0] && strcmp(m->files[i].path, path) == 0)
            return &m->files[i];
    return NULL;
}

static int create(machine *m, const char *path, bool directory)
{
    if (strlen(path) >= MACHINE_PATH_BYTES)
        return -ENAMETOOLONG;
    for (int i = 0; i < MACHINE_FILES; i++)
        if (m->files[i].path[0] == 0) {
            m->files[i] = (machine_file){.directory = directory, .changed_ns = START_S * 1000000000ull + m->time_ns};
            memcpy(m->files[i].path, path, strlen(path) + 1);
            return i;
        }
    return -ENOSPC;
}

/* Every call that may fail begins here. */
static int call(machine *m)
{
    m->time_ns += 1000;
    return m->fail_in && --m->fail_in == 0 ? -EIO : 0;
}

static void changed(const machine *m, machine_file *f) { f->changed_ns = START_S * 1000000000ull + m->time_ns; }

static machine_file *file_of(base_env *env, int file)
{
    machine *m = machine_of(env);
    MUST(file >= 0 && file < MACHINE_FILES && m->files[file].opened > 0, "descriptor %d is not open", file);
    return &m->files[file];
}

static int env_open(base_env *env, const char *path, int flags, int *file, int *direct)
{
    machine *m = machine_of(env);
    const machine_file *f = machine_find(m, path);
    int which = f ? (int)(f - m->files) : -ENOENT;
    if (f && f->directory)
        return -EISDIR;
    if (f == NULL && flags & BASE_OPEN_CREATE)
        which = create(m, path, false);
    if (which < 0)
        return which;
    m->files[which].opened++;
    *file = which;
    if (direct)
        *direct = (flags & BASE_OPEN_DIRECT) != 0;
    return 0;
}

static int env_close(base_env *env, int file)
{
    file_of(env, file)->opened--;
    return 0;
}

static ssize_t env_read(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    const machine_file *f = file_of(env, file);
    int r = call(machine_of(env));
    ssize_t total = 0;
    for (int i = 0; r == 0 && i < count; i++) {
        uint64_t left = offset < f->size ? f->size - offset : 0;
        size_t n = iov[i].iov_len < left ? iov[i].iov_len : (size_t)left;
        if (n)
            memcpy(iov[i].iov_base, f->bytes + offset, n);
        total += (ssize_t)n;
        offset += n;
        if (n < iov[i].iov_len)
            break;
    }
    return r ? r : total;
}

static int set_size(machine *m, machine_file *f, uint64_t bytes)
{
    if (bytes > machine_memory_bytes_max)
        return -ENOSPC;
    if (bytes > f->capacity) {
        f->capacity = bytes + bytes / 4;
        f->bytes = realloc(f->bytes, f->capacity);
        MUST(f->bytes != NULL, "no memory");
    }
    if (bytes > f->size)
        memset(f->bytes + f->size, 0, bytes - f->size);
    f->size = bytes;
    changed(m, f);
    return 0;
}

static ssize_t env_write(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    machine *m = machine_of(env);
    machine_file *f = file_of(env, file);
    int r = call(m);
    ssize_t total = 0;
    for (int i = 0; r == 0 && i < count; i++) {
        if (iov[i].iov_len && offset + iov[i].iov_len > f->size)
            r = set_size(m, f, offset + iov[i].iov_len);
        if (r == 0 && iov[i].iov_len)
            memcpy(f->bytes + offset, iov[i].iov_base, iov[i].iov_len);
        offset += iov[i].iov_len;
        total += (ssize_t)iov[i].iov_len;
    }
    changed(m, f);
    return r ? r : total;
}

static int env_flush(base_env *env, int file) { return (void)file_of(env, file), call(machine_of(env)); }

static int env_allocate(base_env *env, int file, uint64_t bytes)
{
    machine_file *f = file_of(env, file);
    int r = call(machine_of(env));
    return r ? r : bytes > f->size ? set_size(machine_of(env), f, bytes) : 0;
}

static int env_truncate(base_env *env, int file, uint64_t bytes)
{
    int r = call(machine_of(env));
    return r ? r : set_size(machine_of(env), file_of(env, file), bytes);
}

static int file_bytes(base_env *env, int file, uint64_t *bytes)
{
    *bytes = file_of(env, file)->size;
    return 0;
}

static uint32_t direct_alignment(base_env *env, int file) { return (void)env, (void)file, 512; }

static int file_changed_ns(base_env *env, int file, uint64_t *ns)
{
    *ns = file_of(env, file)->changed_ns;
    return 0;
}

/* ---- directories ---- */

static int make_directory(base_env *env, const char *path)
{
    if (machine_find(machine_of(env), path))
        return -EEXIST;
    int r = create(machine_of(env), path, true);
    return r < 0 ? r : 0;
}

static int flush_directory(base_env *env, const char *path) { return (void)path, call(machine_of(env)); }

void machine_remove(machine *m, const char *path)
{
    machine_file *f = machine_find(m, path);
    MUST(f == NULL || f->opened == 0, "%s is open", path);
    if (f == NULL)
        return;
    free(f->bytes);
    memset(f, 0, sizeof *f);
}

static int env_remove(base_env *env, const char *path)
{
    if (machine_find(machine_of(env), path) == NULL)
        return -ENOENT;
    machine_remove(machine_of(env), path);
    return 0;
}

static int env_rename(base_env *env, const char *from, const char *to)
{
    machine_file *f = machine_find(machine_of(env), from);
    if (f == NULL || strlen(to) >= MACHINE_PATH_BYTES)
        return -ENOENT;
    machine_remove(machine_of(env), to);
    memcpy(f->path, to, strlen(to) + 1);
    return 0;
}

static int list(base_env *env, const char *path, int (*each)(void *context, const char *name), void *context)
{
    machine *m = machine_of(env);
    size_t length = strlen(path);
    int r = machine_find(m, path) ? 0 : -ENOENT;
    for (int i = 0; r == 0 && i < MACHINE_FILES; i++)
        if (strncmp(m->files[i].path, path, length) == 0 && m->files[i].path[length] == '/')
            r = each(context, m->files[i].path + length + 1);
    return r;
}

static int directory_id(base_env *env, const char *path, uint64_t id[2])
{
    const machine_file *f = machine_find(machine_of(env), path);
    if (f == NULL)
        return -ENOENT;
    id[0] = (uint64_t)(uintptr_t)env; /* another machine, another device */
    id[1] = (uint64_t)(f - machine_of(env)->files) + 1;
    return 0;
}

static int lock(base_env *env, int file, int64_t *owner)
{
    *owner = 1;
    return file_of(env, file)->opened > 1 ? -EAGAIN : 0;
}

/* ---- the machine ---- */

static const base_env calls = {
    .now_ns = now_ns,
    .wall_s = wall_s,
    .random = random_bytes,
    .boot_id = boot_id,
    .process = process,
    .alloc = env_alloc,
    .free = env_free,
    .map_arena = map_arena,
    .unmap_arena = unmap_arena,
    .open = env_open,
    .close = env_close,
    .read = env_read,
    .write = env_write,
    .flush = env_flush,
    .allocate = env_allocate,
    .truncate = env_truncate,
    .file_bytes = file_bytes,
    .direct_alignment = direct_alignment,
    .file_changed_ns = file_changed_ns,
    .make_directory = make_directory,
    .flush_directory = flush_directory,
    .rename = env_rename,
    .remove_file = env_remove,
    .list = list,
    .directory_id = directory_id,
    .lock = lock,
};

void machine_begin(machine *m)
{
    memset(m, 0, sizeof *m);
    m->env = calls;
    m->env.context = m;
    m->boot = 1;
}

void machine_copy(machine *to, const machine *from)
{
    machine_begin(to);
    to->time_ns = from->time_ns;
    to->random = from->random;
    to->boot = from->boot;
    for (int i = 0; i < MACHINE_FILES; i++) {
        const machine_file *f = &from->files[i];
        to->files[i] = *f;
        to->files[i].opened = 0;
        to->files[i].capacity = f->size;
        to->files[i].bytes = f->size ? malloc(f->size) : NULL;
        MUST(f->size == 0 || to->files[i].bytes, "no memory");
        if (f->size)
            memcpy(to->files[i].bytes, f->bytes, f->size);
    }
}

void machine_end(machine *m)
{
    for (int i = 0; i < MACHINE_FILES; i++)
        free(m->files[i].bytes);
    memset(m, 0, sizeof *m);
}

void machine_must_be_idle(const machine *m)
{
    MUST(m->memory_bytes == 0, "%zu bytes of memory were not given back", m->memory_bytes);
    for (int i = 0; i < MACHINE_FILES; i++)
        MUST(m->files[i].opened == 0, "%s is still open", m->files[i].path);
}
