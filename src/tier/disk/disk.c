/* SPDX-License-Identifier: Apache-2.0 */
/* The directory: who may open it, its files, its size. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/planted.h"
#include "base/status.h"
#include "tier/disk/internal.h"

static const char *const note_files[TIER_NOTES][2] = {{"ledger.a", "ledger.b"}, {"spaces.a", "spaces.b"}};

/* ---- the list of directories that this process has open ---- */

/* The kernel's record lock does not keep one process from opening a directory twice, and the
   second one's close would drop the first one's lock. This list is the library's one global. */
#define OPEN_MAX 256
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t open_ids[OPEN_MAX][2];

static int list_add(disk *d)
{
    int free_place = -1, r = 0;
    pthread_mutex_lock(&open_lock);
    for (int i = 0; i < OPEN_MAX; i++) {
        if (open_ids[i][0] == 0 && open_ids[i][1] == 0)
            free_place = i;
        else if (open_ids[i][0] == d->id[0] && open_ids[i][1] == d->id[1])
            r = -EBUSY;
    }
    if (r == 0 && free_place < 0)
        r = -EMFILE;
    if (r == 0)
        memcpy(open_ids[free_place], d->id, sizeof d->id);
    pthread_mutex_unlock(&open_lock);
    d->listed = r == 0;
    return r;
}

static void list_remove(disk *d)
{
    pthread_mutex_lock(&open_lock);
    for (int i = 0; d->listed && i < OPEN_MAX; i++)
        if (open_ids[i][0] == d->id[0] && open_ids[i][1] == d->id[1])
            memset(open_ids[i], 0, sizeof open_ids[i]);
    pthread_mutex_unlock(&open_lock);
    d->listed = false;
}

/* ---- small helpers ---- */

void disk_log(disk *d, const char *format, ...)
{
    char line[512];
    va_list arguments;
    if (d->log == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    d->log(d->log_context, line);
}

int disk_pages_write(disk *d, int file, uint64_t offset, const void *memory, size_t bytes)
{
    struct iovec iov = {(void *)(uintptr_t)memory, bytes};
    ssize_t n = d->env->write(d->env, file, &iov, 1, offset);
    d->account.add(d->account.context, true, bytes, 0);
    return n < 0 ? (int)n : (size_t)n == bytes ? 0 : -EIO;
}

/* Past the end of a file is zeros. */
int disk_pages_read(disk *d, int file, uint64_t offset, void *memory, size_t bytes)
{
    struct iovec iov = {memory, bytes};
    ssize_t n = d->env->read(d->env, file, &iov, 1, offset);
    d->account.add(d->account.context, false, bytes, 0);
    if (n < 0)
        return (int)n;
    memset((uint8_t *)memory + n, 0, bytes - (size_t)n);
    return 0;
}

static int open_failed(const char *path, int r, kvo_error *error)
{
    const char *in_place = r == -ELOOP ? "a symbolic link" : r == -EISDIR ? "a directory" : "no regular file";
    if (r == -ELOOP || r == -EISDIR || r == -EMEDIUMTYPE)
        return base_fail(error, KVO_E_FOREIGN, "%s: is %s, and kvonce opens none: take it away", path, in_place);
    return base_fail(error, base_status_of_errno(r), "%s: cannot open: %s", path, strerror(-r));
}

int disk_file_open(disk *d, const char *name, int flags, int *file, int *direct, kvo_error *error)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", d->path, name) >= sizeof path)
        return base_fail(error, KVO_E_RANGE, "%s: the path is too long", d->path);
    int r = d->env->open(d->env, path, flags, file, direct);
    if (r != 0) {
        *file = -1;
        return open_failed(path, r, error);
    }
    return KVO_OK;
}

static int open_file(disk *d, const char *name, int *file, int *direct, kvo_error *error)
{
    int flags = BASE_OPEN_DIRECT | (d->read_only ? BASE_OPEN_READ_ONLY : d->may_create ? BASE_OPEN_CREATE : 0);
    return disk_file_open(d, name, flags, file, direct, error);
}

/* ---- opening ---- */

static int each_entry(void *context, const char *name)
{
    static const char *const ours[] = {"lock", "super", "data", "policy", "checkpoint", "lost+found"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strcmp(name, ours[i]) == 0)
            return 0;
    for (int i = 0; i < TIER_NOTES; i++)
        if (strcmp(name, note_files[i][0]) == 0 || strcmp(name, note_files[i][1]) == 0)
            return 0;
    snprintf(context, 256, "%s", name);
    return 1;
}

/* The new directory's own entry; also where somebody else made it, or one of us who died before he came to this.
   Where the parent cannot be flushed, a power cut may cost the directory. */
static void flush_parent(disk *d)
{
    char parent[4096];
    const char *slash = strrchr(d->path, '/');
    size_t length = slash ? (size_t)(slash - d->path) + (slash == d->path) : 1;
    if (length >= sizeof parent)
        return;
    memcpy(parent, slash ? d->path : ".", length);
    parent[length] = 0;
    int r = d->env->flush_directory(d->env, parent);
    if (r != 0)
        disk_log(d, "%s: cannot flush the directory: %s", parent, strerror(-r));
}

static int check_directory(disk *d, kvo_error *error)
{
    char foreign[256];
    if (d->may_create) {
        int r = d->env->make_directory(d->env, d->path);
        if (r == -ENOENT)
            return base_fail(error, KVO_E_NOT_FOUND,
                             "%s: cannot create the directory: create the one that it is to be in", d->path);
        if (r != 0 && r != -EEXIST)
            return base_fail(error, base_status_of_errno(r), "%s: cannot create the directory: %s", d->path,
                             strerror(-r));
    }
    int r = d->env->list(d->env, d->path, each_entry, foreign);
    if (r > 0)
        return base_fail(error, KVO_E_FOREIGN,
                         "%s: holds \"%s\", which is not kvonce's: give kvonce a directory of its own", d->path,
                         foreign);
    if (r == -ENOENT && !d->may_create)
        return base_fail(error, KVO_E_NOT_FOUND, "%s: no store there", d->path);
    if (r == -ENOENT)
        return base_fail(error, KVO_E_NOT_FOUND, "%s: is a symbolic link to nothing: create what it leads to", d->path);
    if (r == -ENOTDIR)
        return base_fail(error, KVO_E_FOREIGN, "%s: is no directory: give kvonce one of its own", d->path);
    if (r < 0)
        return base_fail(error, base_status_of_errno(r), "%s: cannot read the directory: %s", d->path, strerror(-r));
    r = d->env->directory_id(d->env, d->path, d->id);
    return r == 0 ? KVO_OK : base_fail(error, base_status_of_errno(r), "%s: %s", d->path, strerror(-r));
}

static int lock_file(disk *d, int file, const char *name, kvo_error *error)
{
    int64_t owner = 0;
    int r = KVO_PLANTED(LOCK) ? 0 : d->env->lock(d->env, file, &owner);
    if (r == -EAGAIN)
        return base_fail(error, KVO_E_IN_USE, "%s: in use by process %lld", d->path, (long long)owner);
    return r == 0 ? KVO_OK : base_fail(error, KVO_E_IO, "%s/%s: cannot lock: %s", d->path, name, strerror(-r));
}

/* A reader takes the lock too, so that nobody writes meanwhile. One who may not even open the file goes by the
   superblock's lock alone. */
static int take_lock(disk *d, kvo_error *error)
{
    char path[4096];
    int r = list_add(d);
    if (r != 0)
        return base_fail(error, KVO_E_IN_USE, r == -EBUSY ? "%s: already open in this process"
                                                          : "%s: this process has too many stores open",
                         d->path);
    if ((size_t)snprintf(path, sizeof path, "%s/lock", d->path) >= sizeof path)
        return base_fail(error, KVO_E_RANGE, "%s: the path is too long", d->path);
    r = d->env->open(d->env, path, d->may_create ? BASE_OPEN_CREATE : 0, &d->lock_file, NULL);
    if (r != 0) {
        d->lock_file = -1;
        if (d->read_only && (r == -EACCES || r == -EROFS))
            return KVO_OK;
        if (r == -ENOENT)
            return base_fail(error, KVO_E_NOT_FOUND, "%s: no store there", d->path);
        return open_failed(path, r, error);
    }
    return lock_file(d, d->lock_file, "lock", error);
}

/* The superblock's file, and what it says; nothing else is touched before that is known. It is locked as well: people
   delete files called `lock`. */
static int open_super(disk *d, kvo_error *error)
{
    int r = open_file(d, "super", &d->super_file, NULL, error);
    if (r == KVO_E_NOT_FOUND)
        return base_fail(error, r, "%s: no store there", d->path);
    if (r == KVO_OK)
        r = lock_file(d, d->super_file, "super", error);
    return r == KVO_OK ? disk_super_load(d, error) : r;
}

/* Never below a cache line. More than the kernel asks for is not worth it: addresses aligned to 512 and not
   to 4096 read and wrote at 0.97 to 1.09 of the speed of page-aligned ones (5 MiB, depth 8, virtio disk). */
static uint32_t alignment_of(disk *d, bool direct)
{
    uint32_t told = direct ? d->env->direct_alignment(d->env, d->data_file) : 1;
    if (told == 0 || told > TIER_UNIT || (told & (told - 1)))
        return TIER_UNIT;
    return told < 64 ? 64 : told;
}

static int open_files(disk *d, kvo_error *error)
{
    int direct = 0, r;
    if ((r = open_file(d, "data", &d->data_file, &direct, error)) != KVO_OK ||
        (r = open_file(d, "policy", &d->policy_file, NULL, error)) != KVO_OK)
        return r;
    for (int i = 0; i < TIER_NOTES; i++)
        for (int k = 0; k < 2; k++)
            if ((r = open_file(d, note_files[i][k], &d->notes[i].file[k], NULL, error)) != KVO_OK)
                return r;
    d->tier.facts.direct_io = direct != 0;
    d->tier.facts.alignment = alignment_of(d, direct != 0);
    if (!direct)
        disk_log(d, "%s: the file system does not take O_DIRECT; using the page cache", d->path);
    return KVO_OK;
}

/* What an earlier life of the directory says: geometry, marks, state. */
static void adopt_super(disk *d)
{
    uint8_t boot[16];
    const disk_super *s = &d->super;
    d->tier.geometry = (tier_geometry){s->segment_units, s->segment_count, s->last_units};
    d->tier.state = s->state;
    d->crashed = !s->clean;
    d->tier.unclean = d->crashed;
    d->recovered = s->clean;
    static const uint8_t unknown[16];
    bool same_boot = d->env->boot_id(d->env, boot) == 0 && memcmp(boot, unknown, 16) != 0 &&
                     memcmp(boot, s->boot_id, 16) == 0;
    d->mark = s->clean ? UINT64_MAX : same_boot ? s->mark_written : s->mark_flushed;
    d->flushed = s->mark_flushed;
    if (atomic_load(d->write_number) < s->write_number)
        atomic_store(d->write_number, s->write_number);
}

/* No superblock: a creation that a crash cut short, unless the first segment was ever used. */
static int check_unused(disk *d, kvo_error *error)
{
    void *page = d->env->alloc(d->env, TIER_UNIT);
    if (page == NULL)
        return base_fail(error, KVO_E_MEMORY, "%s: no memory for a page", d->path);
    int r = disk_pages_read(d, d->data_file, 0, page, TIER_UNIT);
    if (r != 0)
        r = base_fail(error, base_status_of_errno(r), "%s: cannot read: %s", d->data_path, strerror(-r));
    else if (!disk_page_zero(page))
        r = base_fail(error, KVO_E_DAMAGED,
                      "%s/super: empty or damaged, but there are blocks in %s: restore the file from a backup, or "
                      "empty the directory to start anew",
                      d->path, d->data_path);
    d->env->free(d->env, page, TIER_UNIT);
    return r;
}

/* To somebody who only looks, a store that was never finished holds nothing. */
static void adopt_nothing(disk *d)
{
    d->half_created = true;
    d->tier.geometry = (tier_geometry){DISK_SEGMENT_UNITS_MIN, 1, DISK_SEGMENT_UNITS_MIN};
}

static int create(disk *d, kvo_error *error)
{
    if (!d->may_create)
        return base_fail(error, KVO_E_NOT_FOUND, "%s: no store there", d->path);
    if (d->env->random(d->env, d->super.uuid, 16) != 0)
        return base_fail(error, KVO_E_IO, "%s: no randomness for the store's id", d->path);
    flush_parent(d);
    d->super.created_s = d->env->wall_s(d->env);
    d->tier.state.epoch_s = d->super.created_s;
    d->recovered = true;
    return KVO_OK;
}

static int load(disk *d, kvo_error *error)
{
    int found = open_super(d, error);
    bool nothing = found == KVO_E_NOT_FOUND && d->lock_file >= 0;
    if (nothing && d->read_only && d->super_file < 0) {
        adopt_nothing(d);
        return KVO_OK;
    }
    if (found != KVO_OK && !(nothing && d->super_file >= 0))
        return found;
    int r = open_files(d, error);
    if (r == KVO_E_NOT_FOUND && nothing && d->read_only) {
        adopt_nothing(d);
        return KVO_OK;
    }
    if (r == KVO_OK && found == KVO_OK) {
        adopt_super(d);
        disk_notes_load(d);
        if (d->notes[TIER_NOTE_SPACES].damaged == 2)
            return base_fail(error, KVO_E_DAMAGED,
                             "%s: spaces.a and spaces.b are both damaged: restore one from a backup, or empty the "
                             "directory to start anew",
                             d->path);
        int lost = disk_spaces_lost(d);
        if (lost >= 0 && !d->crashed)
            d->tier.lost_copy = note_files[TIER_NOTE_SPACES][lost];
        if (!d->read_only)
            disk_checkpoint_find(d);
        return KVO_OK;
    }
    if (r == KVO_OK)
        r = check_unused(d, error);
    if (r == KVO_OK && d->read_only)
        adopt_nothing(d);
    else if (r == KVO_OK)
        r = create(d, error);
    return r;
}

static void disk_close(tier_medium *t)
{
    disk *d = disk_of(t);
    base_env *env = d->env;
    int files[] = {d->super_file,       d->data_file,        d->policy_file,
                   d->checkpoint_file,  d->notes[0].file[0], d->notes[0].file[1],
                   d->notes[1].file[0], d->notes[1].file[1], d->lock_file};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i] >= 0)
            env->close(env, files[i]);
    list_remove(d);
    disk_streams_free(d);
    if (d->on_medium)
        env->free(env, d->on_medium, d->on_medium_bytes);
    pthread_mutex_destroy(&d->lock);
    env->free(env, d->path, d->path_bytes);
    env->free(env, d, sizeof *d);
}

static disk *disk_new(const tier_config *config)
{
    base_env *env = config->env;
    size_t length = strlen(config->config->path) + 1;
    disk *d = env->alloc(env, sizeof *d);
    char *paths = d ? env->alloc(env, 2 * length + 8) : NULL;
    if (paths == NULL) {
        if (d)
            env->free(env, d, sizeof *d);
        return NULL;
    }
    *d = (disk){.tier = {.ops = &tier_disk, .facts = {.persistent = true, .header_units = 1}},
                .env = env,
                .engine = config->engine,
                .account = config->account,
                .log = config->log,
                .log_context = config->log_context,
                .path = paths,
                .data_path = paths + length,
                .path_bytes = 2 * length + 8,
                .read_only = config->read_only,
                .may_create = !config->read_only && !config->must_exist,
                .lock_file = -1,
                .super_file = -1,
                .data_file = -1,
                .policy_file = -1,
                .checkpoint_file = -1,
                .notes = {{.file = {-1, -1}}, {.file = {-1, -1}}},
                .write_number = config->write_number};
    memcpy(d->path, config->config->path, length);
    snprintf(d->data_path, length + 8, "%s/data", config->config->path);
    d->tier.path = d->path;
    d->tier.data_path = d->data_path;
    d->tier.control_bytes = sizeof *d + d->path_bytes;
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

static int disk_open(const tier_config *config, tier_medium **out, kvo_error *error)
{
    disk *d = disk_new(config);
    if (d == NULL)
        return base_fail(error, KVO_E_MEMORY, "disk: no memory for the tier itself");
    int r = check_directory(d, error);
    if (r == KVO_OK)
        r = take_lock(d, error);
    if (r == KVO_OK)
        r = load(d, error);
    if (r != KVO_OK) {
        disk_close(&d->tier);
        return r;
    }
    *out = &d->tier;
    return KVO_OK;
}

/* ---- size ---- */

static int resize_files(disk *d, uint64_t bytes, uint64_t *had, kvo_error *error)
{
    int r = d->env->file_bytes(d->env, d->data_file, had);
    if (r == 0 && *had < bytes)
        r = d->env->allocate(d->env, d->data_file, bytes);
    if (r == -ENOSPC)
        return base_fail(error, KVO_E_NO_SPACE,
                         "%s: the file system has no room for %llu bytes of slots: free some or give the tier less",
                         d->path, (unsigned long long)bytes);
    if (r != 0)
        return base_fail(error, base_status_of_errno(r), "%s: cannot allocate %llu bytes: %s", d->data_path,
                         (unsigned long long)bytes, strerror(-r));
    return KVO_OK;
}

static int check_file_limit(disk *d, kvo_error *error)
{
    base_limits limits = {UINT64_MAX, UINT64_MAX};
    if (d->env->limits)
        d->env->limits(d->env, &limits);
    if (d->tier.data_bytes <= limits.file_bytes)
        return KVO_OK;
    return base_fail(error, KVO_E_NO_SPACE,
                     "%s: takes %llu bytes, and this process may have files of %llu (ulimit -f): raise that, or give "
                     "the tier less",
                     d->data_path, (unsigned long long)d->tier.data_bytes, (unsigned long long)limits.file_bytes);
}

static int disk_resize(tier_medium *t, const tier_geometry *geometry, kvo_error *error)
{
    disk *d = disk_of(t);
    uint64_t had = 0;
    d->on_medium_bytes = (size_t)geometry->segment_count * sizeof *d->on_medium;
    d->on_medium = d->env->alloc(d->env, d->on_medium_bytes);
    if (d->on_medium == NULL)
        return base_fail(error, KVO_E_MEMORY, "%s: no memory for %u segments", d->path, geometry->segment_count);
    t->control_bytes += d->on_medium_bytes;
    t->data_bytes = tier_units(geometry) * TIER_UNIT;
    int r = d->read_only ? KVO_OK : check_file_limit(d, error);
    if (r == KVO_OK && !d->read_only)
        r = resize_files(d, t->data_bytes, &had, error);
    if (r == KVO_OK)
        t->geometry = *geometry;
    return r;
}

/* What was read of the superblock and of the spaces may be of a process that died before it flushed them, and blocks
   that are flushed from now on need both. */
static int flush_inherited(disk *d)
{
    int r = disk_super_flush(d);
    for (int copy = 0; r == 0 && d->crashed && copy < 2; copy++)
        r = d->env->flush(d->env, d->notes[TIER_NOTE_SPACES].file[copy]);
    return r;
}

/* The superblock says the new size before the file gets smaller; it got larger before. */
static int disk_begin(tier_medium *t, kvo_error *error)
{
    disk *d = disk_of(t);
    uint64_t had = 0;
    if (d->read_only)
        return KVO_OK;
    int r = flush_inherited(d);
    if (r == 0)
        r = disk_super_store(d, false);
    if (r == 0)
        r = disk_super_flush(d);
    if (r == 0)
        r = disk_spaces_heal(d);
    if (r == 0)
        r = d->env->file_bytes(d->env, d->data_file, &had);
    if (r == 0 && had > t->data_bytes)
        r = d->env->truncate(d->env, d->data_file, t->data_bytes);
    if (r == 0)
        r = d->env->flush_directory(d->env, d->path);
    return r == 0 ? KVO_OK
                  : base_fail(error, base_status_of_errno(r), "%s: cannot write the superblock or the spaces: %s",
                              d->path, strerror(-r));
}

/* Without the lock, which is held over writes: who asks how things stand does not wait for a device. */
bool disk_direct_io(tier_medium *t)
{
    disk *d = disk_of(t);
    bool direct = t->facts.direct_io && (d->env->is_direct == NULL || d->env->is_direct(d->env, d->data_file));
    if (t->facts.direct_io && !direct && !atomic_exchange(&d->left_direct, true))
        disk_log(d, "%s: the file system refused O_DIRECT after it took it; using the page cache", d->data_path);
    return direct;
}

static int disk_flush(tier_medium *t)
{
    disk *d = disk_of(t);
    pthread_mutex_lock(&d->lock);
    uint64_t mark = disk_mark(d);
    pthread_mutex_unlock(&d->lock);
    int files[] = {d->data_file,        d->policy_file,      d->notes[0].file[0],
                   d->notes[0].file[1], d->notes[1].file[0], d->notes[1].file[1]};
    int result = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int r = i == 0 && KVO_PLANTED(FLUSH) ? 0 : d->env->flush(d->env, files[i]);
        if (r != 0)
            result = r;
    }
    int r = disk_super_flush(d);
    if (r != 0)
        result = r;
    pthread_mutex_lock(&d->lock);
    if (result == 0 && mark > d->flushed)
        d->flushed = mark;
    pthread_mutex_unlock(&d->lock);
    return result;
}

const tier_ops tier_disk = {
    .size = sizeof(tier_ops),
    .api = TIER_API,
    .kind = "disk",
    .open = disk_open,
    .resize = disk_resize,
    .begin = disk_begin,
    .close = disk_close,
    .stream_open = disk_stream_open,
    .stream_close = disk_stream_close,
    .full = disk_full,
    .add = disk_add,
    .next = disk_next,
    .invalidate = disk_invalidate,
    .flush = disk_flush,
    .scan = disk_scan,
    .checkpoint_scan = disk_checkpoint_scan,
    .checkpoint_write = disk_checkpoint_write,
    .policy_read = disk_policy_read,
    .policy_write = disk_policy_write,
    .note_write = disk_note_write,
    .note_read = disk_note_read,
    .state_write = disk_state_write,
    .segment_write = disk_segment_write,
    .direct_io = disk_direct_io,
    .pad = disk_pad,
};
