/* SPDX-License-Identifier: Apache-2.0 */
/* Small files beside the slots: notes in two copies, and the pages of policy records. */
#include <errno.h>
#include <string.h>

#include "tier/disk/internal.h"

int disk_policy_read(tier_medium *t, uint64_t page, uint32_t pages, void *memory)
{
    disk *d = disk_of(t);
    return disk_pages_read(d, d->policy_file, page * TIER_UNIT, memory, (size_t)pages * TIER_UNIT);
}

int disk_policy_write(tier_medium *t, uint64_t page, uint32_t pages, const void *memory)
{
    disk *d = disk_of(t);
    return disk_pages_write(d, d->policy_file, page * TIER_UNIT, memory, (size_t)pages * TIER_UNIT);
}

static bool head_usable(const disk *d, const disk_note *head, tier_note which)
{
    return disk_page_whole(head) && memcmp(head->magic, DISK_MAGIC_NOTE, 8) == 0 &&
           head->version == DISK_FORMAT_VERSION && head->which == (uint32_t)which &&
           memcmp(head->uuid, d->super.uuid, 16) == 0 && head->sequence > 0 &&
           head->sequence <= DISK_COUNT_MAX && head->bytes > 0 && head->bytes < (64u << 20);
}

/* The content of one copy, or NULL if it is not whole. Allocated in whole pages, head included. */
static uint8_t *copy_read(disk *d, tier_note which, int copy, disk_note *head)
{
    int file = d->notes[which].file[copy];
    disk_note *page = d->env->alloc(d->env, TIER_UNIT);
    if (page == NULL)
        return NULL;
    int r = disk_pages_read(d, file, 0, page, TIER_UNIT);
    *head = *page;
    d->env->free(d->env, page, TIER_UNIT);
    if (r != 0 || !head_usable(d, head, which))
        return NULL;
    size_t span = (head->bytes + TIER_UNIT - 1) / TIER_UNIT * TIER_UNIT;
    uint8_t *content = d->env->alloc(d->env, span);
    if (content == NULL)
        return NULL;
    r = disk_pages_read(d, file, TIER_UNIT, content, span);
    if (r == 0 && disk_checksum(content, head->bytes) == head->content_checksum)
        return content;
    d->env->free(d->env, content, span);
    return NULL;
}

void disk_notes_load(disk *d)
{
    disk_note head;
    for (int which = 0; which < TIER_NOTES; which++)
        for (int copy = 0; copy < 2; copy++) {
            disk_note_file *n = &d->notes[which];
            memset(&head, 0, sizeof head);
            uint8_t *content = copy_read(d, (tier_note)which, copy, &head);
            n->sequence[copy] = content ? head.sequence : 0;
            n->checksum[copy] = content ? head.content_checksum : 0;
            n->damaged += content == NULL && !disk_page_zero(&head);
            if (content) {
                size_t span = (head.bytes + TIER_UNIT - 1) / TIER_UNIT * TIER_UNIT;
                d->env->free(d->env, content, span);
            }
        }
}

uint64_t disk_note_checksum(const disk *d, tier_note which)
{
    const disk_note_file *n = &d->notes[which];
    int newer = n->sequence[1] > n->sequence[0];
    return n->sequence[newer] ? n->checksum[newer] : 0;
}

int disk_note_read(tier_medium *t, tier_note which, void **data, size_t *bytes)
{
    disk *d = disk_of(t);
    const uint64_t *sequence = d->notes[which].sequence;
    int newer = sequence[1] > sequence[0];
    if (sequence[newer] == 0)
        return -ENOENT;
    disk_note head;
    *data = copy_read(d, which, newer, &head);
    *bytes = head.bytes;
    return *data ? 0 : -EIO;
}

/* Over the older copy: the newer one stays whole until this one is. */
static int write_older(disk *d, tier_note which, const void *data, size_t bytes)
{
    disk_note_file *n = &d->notes[which];
    int copy = n->sequence[0] > n->sequence[1];
    size_t span = TIER_UNIT + (bytes + TIER_UNIT - 1) / TIER_UNIT * TIER_UNIT;
    disk_note *page = d->env->alloc(d->env, span);
    if (page == NULL)
        return -ENOMEM;
    memcpy(page->magic, DISK_MAGIC_NOTE, 8);
    page->version = DISK_FORMAT_VERSION;
    page->which = (uint32_t)which;
    memcpy(page->uuid, d->super.uuid, 16);
    page->sequence = n->sequence[!copy] + 1;
    page->bytes = bytes;
    page->content_checksum = disk_checksum(data, bytes);
    disk_page_seal(page);
    memcpy((uint8_t *)page + TIER_UNIT, data, bytes);
    int r = disk_pages_write(d, n->file[copy], 0, page, span);
    n->sequence[copy] = r == 0 ? page->sequence : 0;
    n->checksum[copy] = page->content_checksum;
    d->env->free(d->env, page, span);
    return r == 0 && which == TIER_NOTE_SPACES ? d->env->flush(d->env, n->file[copy]) : r;
}

int disk_spaces_lost(const disk *d)
{
    const disk_note_file *n = &d->notes[TIER_NOTE_SPACES];
    int older = n->sequence[0] > n->sequence[1];
    bool same = n->sequence[older] != 0 && n->checksum[0] == n->checksum[1];
    return n->sequence[!older] == 0 || same ? -1 : older;
}

/* One damaged copy more and nothing in the store could be read. */
int disk_spaces_heal(disk *d)
{
    void *data;
    size_t bytes;
    if (disk_spaces_lost(d) < 0)
        return 0;
    int r = disk_note_read(&d->tier, TIER_NOTE_SPACES, &data, &bytes);
    if (r != 0)
        return r;
    r = write_older(d, TIER_NOTE_SPACES, data, bytes);
    d->env->free(d->env, data, (bytes + TIER_UNIT - 1) / TIER_UNIT * TIER_UNIT);
    return r;
}

/* No block can be read without the spaces: both copies, and flushed, before there is a block. */
int disk_note_write(tier_medium *t, tier_note which, const void *data, size_t bytes)
{
    disk *d = disk_of(t);
    int r = write_older(d, which, data, bytes);
    return r == 0 && which == TIER_NOTE_SPACES ? write_older(d, which, data, bytes) : r;
}
