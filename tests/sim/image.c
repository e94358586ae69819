/* SPDX-License-Identifier: Apache-2.0 */
/* What lies on a medium, and what a crash leaves of it. */
#include "medium_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t sim_draw(uint64_t *random, uint32_t limit)
{
    *random += 0x9e3779b97f4a7c15u;
    uint64_t x = *random;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((x ^ x >> 31) >> 33) % limit;
}

/* ---- images ---- */

static void file_reserve(sim_file *f, uint64_t size)
{
    if (size <= f->capacity)
        return;
    uint64_t capacity = f->capacity ? f->capacity : 4096;
    while (capacity < size)
        capacity *= 2;
    f->bytes = realloc(f->bytes, capacity);
    if (f->bytes == NULL)
        abort();
    f->capacity = capacity;
}

void sim_file_resize(sim_file *f, uint64_t size)
{
    file_reserve(f, size);
    if (size > f->size)
        memset(f->bytes + f->size, 0, size - f->size);
    f->size = size;
}

void sim_image_copy(sim_image *to, const sim_image *from)
{
    for (uint32_t i = 0; i < from->file_count; i++) {
        sim_file *f = &to->files[i];
        file_reserve(f, from->files[i].size);
        f->size = from->files[i].size;
        f->changed_ns = from->files[i].changed_ns;
        if (f->size)
            memcpy(f->bytes, from->files[i].bytes, f->size);
    }
    for (uint32_t i = from->file_count; i < to->file_count; i++)
        to->files[i].size = 0;
    memcpy(to->entries, from->entries, from->entry_count * sizeof *to->entries);
    to->file_count = from->file_count;
    to->entry_count = from->entry_count;
}

void sim_image_free(sim_image *image)
{
    for (uint32_t i = 0; i < SIM_FILES; i++)
        free(image->files[i].bytes);
    memset(image, 0, sizeof *image);
}

sim_entry *sim_entry_find(sim_image *image, const char *path)
{
    for (uint32_t i = 0; i < image->entry_count; i++)
        if (strcmp(image->entries[i].path, path) == 0)
            return &image->entries[i];
    return NULL;
}

sim_file *sim_image_find(sim_image *image, const char *path)
{
    sim_entry *e = sim_entry_find(image, path);
    return e ? &image->files[e->file] : NULL;
}

void sim_image_remove(sim_image *image, const char *path)
{
    sim_entry *e = sim_entry_find(image, path);
    if (e)
        *e = image->entries[--image->entry_count];
}

void sim_image_flip(sim_image *image, const char *path, uint64_t bit)
{
    sim_file *f = sim_image_find(image, path);
    f->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

/* ---- changes ---- */

static void write_range(sim_file *f, const sim_change *c, const uint8_t *data, uint64_t from, uint64_t bytes)
{
    uint64_t end = c->offset + from + bytes;
    if (bytes == 0)
        return;
    if (end > f->size)
        sim_file_resize(f, end);
    memcpy(f->bytes + c->offset + from, data + from, bytes);
    f->changed_ns = c->time_ns;
}

void sim_apply(sim_image *image, const sim_change *c, const uint8_t *pool)
{
    sim_file *f = &image->files[c->file];
    sim_entry *e;
    switch (c->kind) {
    case SIM_WRITE:
        write_range(f, c, pool + c->data, 0, c->bytes);
        break;
    case SIM_SIZE:
        if (!c->grows || c->bytes > f->size) {
            sim_file_resize(f, c->bytes);
            f->changed_ns = c->time_ns;
        }
        break;
    case SIM_CREATE:
        if (sim_entry_find(image, c->path))
            break;
        e = &image->entries[image->entry_count++];
        *e = (sim_entry){.file = c->file, .directory = c->directory};
        memcpy(e->path, c->path, sizeof e->path);
        break;
    case SIM_RENAME:
        if ((e = sim_entry_find(image, c->path)) == NULL)
            break;
        sim_image_remove(image, c->to);
        e = sim_entry_find(image, c->path);
        memcpy(e->path, c->to, sizeof e->path);
        break;
    case SIM_REMOVE:
        sim_image_remove(image, c->path);
        break;
    case SIM_FLUSH:
    case SIM_FLUSH_DIRECTORY:
        break;
    }
}

/* Each unit of it that a coin says. */
static void apply_units(sim_image *image, const sim_change *c, const uint8_t *pool, uint64_t unit, uint64_t *random)
{
    for (uint64_t at = 0; at < c->bytes; at += unit)
        if (sim_draw(random, 2))
            write_range(&image->files[c->file], c, pool + c->data, at, c->bytes - at < unit ? c->bytes - at : unit);
}

static void apply_prefix(sim_image *image, const sim_change *c, const uint8_t *pool, uint64_t unit, uint64_t *random)
{
    uint64_t units = sim_draw(random, (uint32_t)(c->bytes / unit) + 1);
    if (units)
        write_range(&image->files[c->file], c, pool + c->data, 0, units * unit);
}

/* Any part of it. */
static void apply_part(sim_image *image, const sim_change *c, const uint8_t *pool, uint64_t *random)
{
    uint64_t unit = sim_draw(random, 2) ? 512 : 4096;
    uint32_t how = sim_draw(random, 4);
    if (c->kind != SIM_WRITE) {
        if (how & 1)
            sim_apply(image, c, pool);
    } else if (how == 0)
        sim_apply(image, c, pool);
    else if (how == 1)
        apply_prefix(image, c, pool, unit, random);
    else
        apply_units(image, c, pool, unit, random);
}

/* ---- a power cut ---- */

static bool in_directory(const char *path, const char *directory)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == path ? 1 : (size_t)(slash - path);
    return strlen(directory) == length && memcmp(path, directory, length) == 0;
}

static bool of_entry(sim_kind kind) { return kind == SIM_CREATE || kind == SIM_RENAME || kind == SIM_REMOVE; }

typedef struct volatile_list {
    const sim_change **changes;
    size_t count;
} volatile_list;

static bool entry_durable_at(const sim_medium *m, size_t i, size_t point)
{
    for (size_t j = i + 1; j < point; j++)
        if (m->log[j].kind == SIM_FLUSH_DIRECTORY && in_directory(m->log[i].path, m->log[j].path))
            return true;
    return false;
}

/* The durable ones into the image, the others into the list. */
static void split(const sim_medium *m, size_t point, sim_image *image, volatile_list *list)
{
    size_t end = point < m->log_count ? point + 1 : m->log_count, flushed[SIM_FILES] = {0};
    list->count = 0;
    list->changes = malloc((end + 1) * sizeof *list->changes);
    if (list->changes == NULL)
        abort();
    for (size_t i = 0; i < point && i < m->log_count; i++)
        if (m->log[i].kind == SIM_FLUSH)
            flushed[m->log[i].file] = i;
    for (size_t i = 0; i < end; i++) {
        const sim_change *c = &m->log[i];
        if (c->kind == SIM_FLUSH || c->kind == SIM_FLUSH_DIRECTORY)
            continue;
        if (of_entry(c->kind) ? entry_durable_at(m, i, point) : i < flushed[c->file])
            sim_apply(image, c, m->pool);
        else
            list->changes[list->count++] = c;
    }
}

/* What lies in a directory that is lost is lost with it. */
static void drop_orphans(sim_image *image)
{
    for (uint32_t i = 0; i < image->entry_count;) {
        const char *path = image->entries[i].path, *slash = strrchr(path, '/');
        char parent[SIM_PATH_BYTES] = "/";
        if (slash != path)
            snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
        if (strcmp(path, "/") == 0 || sim_entry_find(image, parent)) {
            i++;
            continue;
        }
        image->entries[i] = image->entries[--image->entry_count];
        i = 0;
    }
}

static void shuffle_writes(volatile_list *list, uint64_t *random)
{
    for (size_t i = list->count; i > 1; i--) {
        size_t k = sim_draw(random, (uint32_t)i);
        const sim_change *a = list->changes[i - 1], *b = list->changes[k];
        if (a->kind != SIM_WRITE || b->kind != SIM_WRITE)
            continue;
        list->changes[i - 1] = b;
        list->changes[k] = a;
    }
}

bool sim_survive(const sim_medium *m, size_t point, uint64_t seed, sim_image *out)
{
    enum { NOTHING, EVERYTHING, SOME, BEGINNING, ANY_ORDER, SECTORS, PAGES, ALL_BUT_ONE, WAYS };
    static const uint64_t units[WAYS] = {[SECTORS] = 512, [PAGES] = 4096};
    volatile_list list;
    uint64_t random = seed;
    sim_image_copy(out, &m->start);
    out->file_count = m->now.file_count;
    for (uint32_t i = m->start.file_count; i < out->file_count; i++)
        out->files[i].size = out->files[i].changed_ns = 0;
    split(m, point, out, &list);
    uint32_t how = sim_draw(&random, WAYS);
    size_t beginning = sim_draw(&random, (uint32_t)list.count + 1);
    if (how == ANY_ORDER)
        shuffle_writes(&list, &random);
    for (size_t i = 0; i < list.count; i++) {
        const sim_change *c = list.changes[i];
        bool coin = sim_draw(&random, 2);
        if (units[how] && c->kind == SIM_WRITE)
            apply_units(out, c, m->pool, units[how], &random);
        else if (how == EVERYTHING || (how == BEGINNING && i < beginning) || (how == ALL_BUT_ONE && i != beginning) ||
                 (how != NOTHING && how != BEGINNING && how != ALL_BUT_ONE && coin))
            sim_apply(out, c, m->pool);
        else if (how == BEGINNING && i == beginning)
            apply_part(out, c, m->pool, &random);
    }
    free(list.changes);
    drop_orphans(out);
    return how == SECTORS || how == BEGINNING;
}
