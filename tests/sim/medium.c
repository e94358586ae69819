/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the environment on a simulated medium. */
#include "medium_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START_S 1700000000u /* the wall clock at the beginning */
#define PROCESS 4711

static sim_medium *medium_of(base_env *env) { return env->context; }

/* ---- the log ---- */

static size_t pool_take(sim_medium *m, size_t bytes)
{
    if (m->pool_used + bytes > m->pool_capacity) {
        m->pool_capacity = 2 * (m->pool_used + bytes) + 65536;
        m->pool = realloc(m->pool, m->pool_capacity);
        if (m->pool == NULL)
            abort();
    }
    m->pool_used += bytes;
    return m->pool_used - bytes;
}

static sim_change *log_add(sim_medium *m, sim_kind kind)
{
    if (m->log_count == m->log_capacity) {
        m->log_capacity = 2 * m->log_capacity + 64;
        m->log = realloc(m->log, m->log_capacity * sizeof *m->log);
        if (m->log == NULL)
            abort();
    }
    sim_change *c = &m->log[m->log_count++];
    *c = (sim_change){.kind = kind, .time_ns = START_S * 1000000000ull + m->time_ns};
    return c;
}

/* The change that was just logged happens, unless the crash comes first. */
static int happens(sim_medium *m, const sim_change *c)
{
    if (m->log_count - 1 == m->crash_at) {
        m->dead = true;
        return -EIO;
    }
    sim_apply(&m->now, c, m->pool);
    return 0;
}

/* Every call begins here: 0, or why there is no answer. */
static int call(sim_medium *m)
{
    m->counts.calls++;
    m->time_ns += 1000;
    if (m->faults.delays && sim_draw(&m->random, 1000) < m->faults.delays) {
        m->counts.delays++;
        m->time_ns += sim_draw(&m->random, 2000000000);
    }
    m->counts.lost_calls += m->lost;
    return m->dead || m->lost ? -EIO : 0;
}

static bool fails(sim_medium *m, uint32_t per_thousand, uint64_t *count)
{
    if (per_thousand == 0 || sim_draw(&m->random, 1000) >= per_thousand)
        return false;
    ++*count;
    return true;
}

/* ---- clock, memory, randomness ---- */

static uint64_t now_ns(base_env *env) { return medium_of(env)->time_ns += 100; }
static uint64_t wall_s(base_env *env) { return START_S + medium_of(env)->time_ns / 1000000000u; }
static int64_t process(base_env *env) { return (void)env, PROCESS; }

static int random_bytes(base_env *env, void *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)out)[i] = (uint8_t)sim_draw(&medium_of(env)->random, 256);
    return 0;
}

static int boot_id(base_env *env, uint8_t out[16])
{
    memset(out, 0xb0, 16);
    memcpy(out, &medium_of(env)->boot, 8);
    return 0;
}

/* Direct I/O wants pages. What is large is for staging, of which few pages are ever touched. */
#define LARGE_BYTES (4u << 20)

static void *env_alloc(base_env *env, size_t bytes)
{
    medium_of(env)->allocated_bytes += bytes;
    if (bytes >= LARGE_BYTES)
        return base_env_posix()->alloc(base_env_posix(), bytes);
    size_t span = (bytes + 4095) / 4096 * 4096;
    void *memory = bytes < 4096 ? calloc(1, bytes) : aligned_alloc(4096, span);
    return memory && bytes >= 4096 ? memset(memory, 0, span) : memory;
}

static void env_free(base_env *env, void *memory, size_t bytes)
{
    medium_of(env)->allocated_bytes -= memory ? bytes : 0;
    if (bytes >= LARGE_BYTES)
        base_env_posix()->free(base_env_posix(), memory, bytes);
    else
        free(memory);
}

static int map_arena(base_env *env, size_t bytes, void **writable, const void **readable)
{
    (void)env;
    *writable = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    *readable = *writable;
    return *writable ? 0 : -ENOMEM;
}

static void unmap_arena(base_env *env, size_t bytes, void *writable, const void *readable)
{
    (void)env, (void)bytes, (void)readable;
    free(writable);
}

/* ---- files ---- */

static bool path_fits(const char *path) { return strlen(path) < SIM_PATH_BYTES; }

static int change_entry(sim_medium *m, sim_kind kind, const char *path, const char *to, uint32_t file, bool directory)
{
    sim_change *c = log_add(m, kind);
    c->file = file;
    c->directory = directory;
    snprintf(c->path, sizeof c->path, "%s", path);
    snprintf(c->to, sizeof c->to, "%s", to ? to : "");
    return happens(m, c);
}

static int new_entry(sim_medium *m, const char *path, bool directory)
{
    if (m->now.file_count == SIM_FILES || m->now.entry_count == SIM_FILES)
        return -ENOSPC;
    sim_file *f = &m->now.files[m->now.file_count++];
    f->size = f->changed_ns = 0;
    return change_entry(m, SIM_CREATE, path, NULL, m->now.file_count - 1, directory);
}

static int env_open(base_env *env, const char *path, int flags, int *file, int *direct)
{
    sim_medium *m = medium_of(env);
    int r = call(m), h = 0;
    if (r != 0 || !path_fits(path))
        return r ? r : -ENAMETOOLONG;
    sim_entry *e = sim_entry_find(&m->now, path);
    if (e == NULL && !(flags & BASE_OPEN_CREATE))
        return -ENOENT;
    if (e == NULL && (r = new_entry(m, path, false)) != 0)
        return r;
    e = sim_entry_find(&m->now, path);
    if (e->directory)
        return -EISDIR;
    while (h < SIM_FILES && m->handles[h].open)
        h++;
    if (h == SIM_FILES)
        return -EMFILE;
    m->handles[h] = (sim_handle){.open = true, .read_only = flags & BASE_OPEN_READ_ONLY, .file = e->file};
    *file = h;
    if (direct)
        *direct = (flags & BASE_OPEN_DIRECT) != 0;
    return 0;
}

static int env_close(base_env *env, int file)
{
    if (!medium_of(env)->handles[file].open)
        abort();
    medium_of(env)->handles[file] = (sim_handle){.open = false};
    return 0;
}

static uint32_t inode(const sim_medium *m, int file)
{
    if (file < 0 || file >= SIM_FILES || !m->handles[file].open)
        abort();
    return m->handles[file].file;
}

static ssize_t env_read(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    sim_medium *m = medium_of(env);
    const sim_file *f = &m->now.files[inode(m, file)];
    ssize_t total = 0;
    int r = call(m);
    if (r != 0 || fails(m, m->faults.read_errors, &m->counts.read_errors))
        return -EIO;
    for (int i = 0; i < count; i++) {
        uint64_t left = offset < f->size ? f->size - offset : 0;
        size_t n = iov[i].iov_len < left ? iov[i].iov_len : (size_t)left;
        if (n)
            memcpy(iov[i].iov_base, f->bytes + offset, n);
        total += (ssize_t)n;
        offset += n;
        if (n < iov[i].iov_len)
            break;
    }
    return total;
}

static sim_change *log_write(sim_medium *m, uint32_t file, const struct iovec *iov, int count, uint64_t offset)
{
    size_t bytes = 0, at;
    for (int i = 0; i < count; i++)
        bytes += iov[i].iov_len;
    sim_change *c = log_add(m, SIM_WRITE);
    c->file = file;
    c->offset = offset;
    c->bytes = bytes;
    c->data = at = pool_take(m, bytes);
    for (int i = 0; i < count; i++) {
        memcpy(m->pool + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    return c;
}

/* A write that ends after some units, as if it had asked for no more; what else of it may have happened, did. */
static void cut_write(sim_medium *m, sim_change *c)
{
    c->bytes = sim_draw(&m->random, (uint32_t)(c->bytes / m->unit) + 1) * m->unit;
}

static ssize_t env_write(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    sim_medium *m = medium_of(env);
    int r = call(m), failed = 0;
    if (r != 0)
        return r;
    if (m->handles[file].read_only)
        return -EBADF;
    sim_change *c = log_write(m, inode(m, file), iov, count, offset);
    bool short_write = false;
    if (fails(m, m->faults.write_errors, &m->counts.write_errors))
        failed = -EIO;
    else if (fails(m, m->faults.no_space, &m->counts.no_space))
        failed = -ENOSPC;
    else
        short_write = fails(m, m->faults.short_writes, &m->counts.short_writes);
    if (failed || short_write)
        cut_write(m, c);
    r = happens(m, c);
    return r ? r : failed ? failed : (ssize_t)c->bytes;
}

static int env_flush(base_env *env, int file)
{
    sim_medium *m = medium_of(env);
    uint32_t f = inode(m, file);
    int r = call(m);
    if (r != 0 || fails(m, m->faults.flush_errors, &m->counts.flush_errors))
        return -EIO;
    sim_change *c = log_add(m, SIM_FLUSH);
    c->file = f;
    return happens(m, c);
}

static int set_size(base_env *env, int file, uint64_t bytes, bool grows)
{
    sim_medium *m = medium_of(env);
    uint32_t f = inode(m, file);
    int r = call(m);
    if (r != 0)
        return r;
    if (grows && fails(m, m->faults.no_space, &m->counts.no_space))
        return -ENOSPC;
    sim_change *c = log_add(m, SIM_SIZE);
    c->file = f;
    c->bytes = bytes;
    c->grows = grows;
    return happens(m, c);
}

static int env_allocate(base_env *env, int file, uint64_t bytes) { return set_size(env, file, bytes, true); }
static int env_truncate(base_env *env, int file, uint64_t bytes) { return set_size(env, file, bytes, false); }

static int file_bytes(base_env *env, int file, uint64_t *bytes)
{
    sim_medium *m = medium_of(env);
    *bytes = m->now.files[inode(m, file)].size;
    return call(m);
}

static uint32_t direct_alignment(base_env *env, int file) { return (void)env, (void)file, 512; }

static int file_changed_ns(base_env *env, int file, uint64_t *ns)
{
    sim_medium *m = medium_of(env);
    *ns = m->now.files[inode(m, file)].changed_ns;
    return call(m);
}

/* ---- directories ---- */

static int make_directory(base_env *env, const char *path)
{
    sim_medium *m = medium_of(env);
    int r = call(m);
    if (r != 0 || !path_fits(path))
        return r ? r : -ENAMETOOLONG;
    return sim_entry_find(&m->now, path) ? -EEXIST : new_entry(m, path, true);
}

static int flush_directory(base_env *env, const char *path)
{
    sim_medium *m = medium_of(env);
    int r = call(m);
    if (r != 0 || fails(m, m->faults.flush_errors, &m->counts.flush_errors))
        return -EIO;
    sim_change *c = log_add(m, SIM_FLUSH_DIRECTORY);
    snprintf(c->path, sizeof c->path, "%s", path);
    return happens(m, c);
}

static int env_rename(base_env *env, const char *from, const char *to)
{
    sim_medium *m = medium_of(env);
    int r = call(m);
    if (r != 0 || sim_entry_find(&m->now, from) == NULL || !path_fits(to))
        return r ? r : -ENOENT;
    return change_entry(m, SIM_RENAME, from, to, 0, false);
}

static int remove_file(base_env *env, const char *path)
{
    sim_medium *m = medium_of(env);
    int r = call(m);
    if (r != 0 || sim_entry_find(&m->now, path) == NULL)
        return r ? r : -ENOENT;
    return change_entry(m, SIM_REMOVE, path, NULL, 0, false);
}

static int list(base_env *env, const char *path, int (*each)(void *context, const char *name), void *context)
{
    sim_medium *m = medium_of(env);
    int r = call(m);
    size_t length = strlen(path);
    if (r != 0 || sim_entry_find(&m->now, path) == NULL)
        return r ? r : -ENOENT;
    for (uint32_t i = 0; r == 0 && i < m->now.entry_count; i++) {
        const char *entry = m->now.entries[i].path;
        if (strncmp(entry, path, length) == 0 && entry[length] == '/' && strchr(entry + length + 1, '/') == NULL)
            r = each(context, entry + length + 1);
    }
    return r;
}

static int directory_id(base_env *env, const char *path, uint64_t id[2])
{
    sim_medium *m = medium_of(env);
    int r = call(m);
    const sim_entry *e = sim_entry_find(&m->now, path);
    if (r != 0 || e == NULL)
        return r ? r : -ENOENT;
    id[0] = (uint64_t)(uintptr_t)m; /* another machine, another device */
    id[1] = e->file + 1;
    return 0;
}

static int lock(base_env *env, int file, int64_t *owner)
{
    sim_medium *m = medium_of(env);
    uint32_t f = inode(m, file);
    int r = call(m);
    if (r != 0)
        return r;
    for (int i = 0; i < SIM_FILES; i++)
        if (i != file && m->handles[i].open && m->handles[i].locked && m->handles[i].file == f) {
            *owner = PROCESS;
            return -EAGAIN;
        }
    m->handles[file].locked = true;
    return 0;
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
    .remove_file = remove_file,
    .list = list,
    .directory_id = directory_id,
    .lock = lock,
};

static void begin_anew(sim_medium *m, uint64_t seed)
{
    m->env = calls;
    m->env.context = m;
    m->log_count = m->pool_used = 0;
    m->crash_at = SIZE_MAX;
    m->dead = m->lost = m->torn = false;
    m->faults = (sim_faults){0};
    m->random = seed;
    m->unit = 512;
    memset(m->handles, 0, sizeof m->handles);
}

void sim_open(sim_medium *m, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    begin_anew(m, seed);
    m->boot = 1;
    m->now.files[0].changed_ns = START_S * 1000000000ull;
    m->now.file_count = m->now.entry_count = 1;
    m->now.entries[0] = (sim_entry){.path = "/", .directory = true};
    sim_image_copy(&m->start, &m->now);
}

void sim_close(sim_medium *m)
{
    sim_image_free(&m->start);
    sim_image_free(&m->now);
    free(m->log);
    free(m->pool);
    memset(m, 0, sizeof *m);
}

void sim_load(sim_medium *m, const sim_image *image, uint64_t seed)
{
    begin_anew(m, seed);
    m->boot = m->boot ? m->boot : 1;
    sim_image_copy(&m->start, image);
    sim_image_copy(&m->now, image);
}

void sim_power_cut(sim_medium *m, const sim_medium *from, size_t point, uint64_t seed)
{
    begin_anew(m, seed);
    m->boot = from->boot + 1;
    m->time_ns = from->time_ns;
    m->torn = sim_survive(from, point, seed, &m->start) || from->torn;
    sim_image_copy(&m->now, &m->start);
}

/* What of the last call happened is a change of its own, for what comes later. */
static void die_within(sim_medium *m, const sim_medium *from, const sim_change *last, uint64_t seed)
{
    uint64_t random = seed ^ 0x5eed;
    if (last->kind == SIM_FLUSH || last->kind == SIM_FLUSH_DIRECTORY)
        return;
    if (last->kind != SIM_WRITE) {
        if (sim_draw(&random, 2)) {
            *log_add(m, SIM_FLUSH) = *last;
            sim_apply(&m->now, last, m->pool);
        }
        return;
    }
    uint64_t unit = sim_draw(&random, 2) ? 512 : 4096, how = sim_draw(&random, 3);
    m->torn |= unit == 512;
    uint64_t beginning = sim_draw(&random, (uint32_t)(last->bytes / unit) + 1) * unit;
    for (uint64_t at = 0; at < last->bytes; at += unit) {
        if (how == 0 ? at >= beginning : how == 1 ? sim_draw(&random, 2) : false)
            continue;
        sim_change *c = log_add(m, SIM_WRITE);
        *c = *last;
        c->offset += at;
        c->bytes = last->bytes - at < unit ? last->bytes - at : unit;
        size_t data = pool_take(m, c->bytes);
        memcpy(m->pool + data, from->pool + last->data + at, c->bytes);
        c->data = data;
        sim_apply(&m->now, c, m->pool);
    }
}

void sim_die(sim_medium *m, const sim_medium *from, size_t point, uint64_t seed)
{
    size_t end = point < from->log_count ? point : from->log_count;
    begin_anew(m, seed);
    m->boot = from->boot;
    m->time_ns = from->time_ns;
    m->torn = from->torn;
    sim_image_copy(&m->start, &from->start);
    sim_image_copy(&m->now, &from->start);
    m->now.file_count = from->now.file_count;
    for (uint32_t i = from->start.file_count; i < m->now.file_count; i++)
        m->now.files[i].size = m->now.files[i].changed_ns = 0;
    for (size_t i = 0; i < end; i++) {
        *log_add(m, SIM_FLUSH) = from->log[i];
        if (from->log[i].kind == SIM_WRITE) {
            size_t at = pool_take(m, from->log[i].bytes);
            memcpy(m->pool + at, from->pool + from->log[i].data, from->log[i].bytes);
            m->log[i].data = at;
        }
        sim_apply(&m->now, &m->log[i], m->pool);
    }
    if (point < from->log_count)
        die_within(m, from, &from->log[point], seed);
}

static const char *path_of(const sim_medium *m, uint32_t file)
{
    for (uint32_t i = 0; i < m->now.entry_count; i++)
        if (m->now.entries[i].file == file)
            return m->now.entries[i].path;
    return "?";
}

void sim_print(const sim_medium *m)
{
    static const char *const kinds[] = {"write", "size", "flush", "create", "rename", "remove", "flush directory"};
    for (size_t i = 0; i < m->log_count; i++) {
        const sim_change *c = &m->log[i];
        bool of_file = c->kind == SIM_WRITE || c->kind == SIM_SIZE || c->kind == SIM_FLUSH;
        fprintf(stderr, "  %3zu %s %s %s", i, kinds[c->kind], of_file ? path_of(m, c->file) : c->path, c->to);
        if (c->kind == SIM_WRITE)
            fprintf(stderr, "%llu units at %llu: %.8s", (unsigned long long)c->bytes / 4096,
                    (unsigned long long)c->offset / 4096, (const char *)m->pool + c->data);
        fprintf(stderr, "\n");
    }
}
