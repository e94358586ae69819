/* SPDX-License-Identifier: Apache-2.0 */
/* The superblock: two copies; the whole one with the higher sequence counts. A write goes over the copy that is not
   needed: a power cut may tear all that is not flushed, so one that is flushed is always left alone. */
#include <errno.h>
#include <string.h>

#include "base/status.h"
#include "tier/disk/internal.h"

static bool copy_usable(const disk_super *s)
{
    return disk_page_whole(s) && memcmp(s->magic, DISK_MAGIC_SUPER, 8) == 0;
}

/* A page of ours whose version we do not know has a good checksum and another magic or version. */
static bool copy_of_other_version(const disk_super *s)
{
    return disk_page_whole(s) && memcmp(s->magic, DISK_MAGIC_SUPER, 7) == 0 &&
           (s->magic[7] != DISK_MAGIC_SUPER[7] || s->version != DISK_FORMAT_VERSION);
}

static bool contents_sane(const disk_super *s)
{
    tier_geometry g = {s->segment_units, s->segment_count, s->last_units};
    return s->sequence <= DISK_COUNT_MAX && s->write_number <= DISK_COUNT_MAX &&
           g.segment_units >= DISK_SEGMENT_UNITS_MIN && g.last_units >= DISK_SEGMENT_UNITS_MIN &&
           g.last_units <= g.segment_units && g.segment_count > 0 && tier_units(&g) <= UINT32_MAX;
}

static int judge_copies(disk *d, const disk_super *copies, kvo_error *error)
{
    for (int i = 0; i < 2; i++)
        if (copy_of_other_version(&copies[i]))
            return base_fail(error, KVO_E_VERSION,
                             "%s: format version %u, this library reads version %u: open it with the kvonce that "
                             "wrote it",
                             d->path, copies[i].version, DISK_FORMAT_VERSION);
    const disk_super *best = NULL;
    for (int i = 0; i < 2; i++)
        if (copy_usable(&copies[i]) && (best == NULL || copies[i].sequence > best->sequence))
            best = &copies[i];
    if (best && contents_sane(best)) {
        d->super = *best;
        d->super_written = best->sequence;
        return KVO_OK;
    }
    /* Only the first write of all finds a copy that was never written. */
    if (best == NULL && (disk_page_zero(&copies[0]) || disk_page_zero(&copies[1])))
        return KVO_E_NOT_FOUND;
    return base_fail(error, KVO_E_DAMAGED,
                     "%s/super: both copies of the superblock are damaged: restore the file from a backup, or empty "
                     "the directory to start anew",
                     d->path);
}

/* Each copy by itself: a bad sector under one must not cost the other. Negative: neither can be read; past
   the end of the file is zeros. */
static ssize_t read_copies(disk *d, disk_super *copies)
{
    ssize_t result = 0;
    int failed = 0;
    for (int i = 0; i < 2; i++) {
        struct iovec iov = {&copies[i], TIER_UNIT};
        ssize_t n = -EIO;
        for (int k = 0; n < 0 && k < 2; k++) /* an error may pass */
            n = d->env->read(d->env, d->super_file, &iov, 1, (uint64_t)i * TIER_UNIT);
        if (n >= 0)
            continue;
        memset(&copies[i], 0xff, TIER_UNIT); /* damaged, and not one that was never written */
        result = n;
        failed++;
    }
    return failed == 2 ? result : 0;
}

int disk_super_load(disk *d, kvo_error *error)
{
    disk_super *copies = d->env->alloc(d->env, 2 * TIER_UNIT);
    if (copies == NULL)
        return base_fail(error, KVO_E_MEMORY, "%s: no memory for two pages", d->path);
    ssize_t n = read_copies(d, copies);
    int r = n < 0 ? base_fail(error, KVO_E_IO, "%s/super: cannot read: %s", d->path, strerror((int)-n))
                  : judge_copies(d, copies, error);
    d->env->free(d->env, copies, 2 * TIER_UNIT);
    return r;
}

/* A sequence goes to the copy of its parity: over the older copy, or once more over the newer one while that is
   not flushed. */
uint64_t disk_super_next(const disk *d) { return d->super.sequence + (d->super.sequence == d->super_flushed ? 1 : 2); }

int disk_super_store(disk *d, bool clean)
{
    disk_super *page = d->env->alloc(d->env, TIER_UNIT);
    if (page == NULL)
        return -ENOMEM;
    pthread_mutex_lock(&d->lock);
    memcpy(d->super.magic, DISK_MAGIC_SUPER, 8);
    d->super.version = DISK_FORMAT_VERSION;
    d->super.clean = clean;
    d->super.sequence = disk_super_next(d);
    d->super.segment_units = d->tier.geometry.segment_units;
    d->super.segment_count = d->tier.geometry.segment_count;
    d->super.last_units = d->tier.geometry.last_units;
    d->super.write_number = atomic_load(d->write_number);
    /* What a crash left unfinished stays above the marks until it is gone from the medium. */
    d->super.mark_written = d->recovered ? disk_mark(d) : d->mark;
    d->super.mark_flushed = clean ? d->super.mark_written : d->flushed;
    d->env->boot_id(d->env, d->super.boot_id);
    d->super.state = d->tier.state;
    *page = d->super;
    pthread_mutex_unlock(&d->lock);
    disk_page_seal(page);
    int r = disk_pages_write(d, d->super_file, page->sequence % 2 * TIER_UNIT, page, TIER_UNIT);
    pthread_mutex_lock(&d->lock);
    if (r == 0)
        d->super_written = page->sequence;
    pthread_mutex_unlock(&d->lock);
    d->env->free(d->env, page, TIER_UNIT);
    return r;
}

int disk_super_flush(disk *d)
{
    pthread_mutex_lock(&d->lock);
    uint64_t written = d->super_written;
    pthread_mutex_unlock(&d->lock);
    int r = d->env->flush(d->env, d->super_file);
    pthread_mutex_lock(&d->lock);
    if (r == 0 && written > d->super_flushed)
        d->super_flushed = written;
    pthread_mutex_unlock(&d->lock);
    return r;
}

int disk_state_write(tier_medium *t, const tier_state *state, bool clean)
{
    disk *d = disk_of(t);
    pthread_mutex_lock(&d->lock);
    t->state = *state;
    d->recovered = true; /* the store writes it after it has recovered, not before */
    pthread_mutex_unlock(&d->lock);
    disk_direct_io(t);
    return disk_super_store(d, clean);
}
