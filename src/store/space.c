/* SPDX-License-Identifier: Apache-2.0 */
/* Spaces: labels and descriptions, kept in a note of every persistent tier. */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "store/store.h"

static int add(kvo_store *s, unsigned number, const char *label, const base_space_record *record)
{
    store_space *space = &s->spaces[number];
    uint8_t encoded[BASE_SPACE_ENCODED_MAX];
    size_t bytes = base_space_record_encode(record, encoded, sizeof encoded);
    int r = base_sha256(encoded, bytes, space->digest);
    if (r != KVO_OK)
        return r;
    if (space->record == NULL)
        space->record = s->env->alloc(s->env, sizeof *space->record);
    if (space->record == NULL)
        return KVO_E_MEMORY;
    memcpy(space->label, label, strlen(label) + 1);
    *space->record = *record;
    space->used = true;
    for (unsigned t = 0; t < s->tier_count; t++)
        place_segments_exact(&s->tiers[t].space, record->block_bytes_max);
    return KVO_OK;
}

static int added(kvo_store *s, unsigned number, const char *label, const base_space_record *record, const char *where,
                 kvo_error *error)
{
    int r = add(s, number, label, record);
    return r == KVO_OK ? r : base_fail(error, r, "%s: space \"%s\": %s", where, label, kvo_status_text(r));
}

/* number 4, label 64, bytes 4, encoding */
enum { ENTRY_HEAD = 72 };

int store_spaces_save(kvo_store *s)
{
    if (s->home == KVO_NO_TIER || s->ghost)
        return 0;
    size_t capacity = KVO_SPACES_MAX * (ENTRY_HEAD + (size_t)BASE_SPACE_ENCODED_MAX), used = 0;
    uint8_t *bytes = s->env->alloc(s->env, capacity);
    if (bytes == NULL)
        return -ENOMEM;
    for (unsigned i = 1; i <= KVO_SPACES_MAX; i++) {
        if (!s->spaces[i].used)
            continue;
        uint8_t *at = bytes + used;
        size_t n = base_space_record_encode(s->spaces[i].record, at + ENTRY_HEAD, capacity - used - ENTRY_HEAD);
        base_put_u32(at, i);
        memcpy(at + 4, s->spaces[i].label, sizeof s->spaces[i].label);
        base_put_u32(at + 68, (uint32_t)n);
        used += ENTRY_HEAD + n;
    }
    int r = 0;
    for (unsigned t = 0; r == 0 && t < s->tier_count; t++) /* every medium describes what it holds */
        if (s->tiers[t].persistent)
            r = s->tiers[t].io->ops->note_write(s->tiers[t].io, TIER_NOTE_SPACES, bytes, used);
    s->env->free(s->env, bytes, capacity);
    return r;
}

/* One space of a note. Media that were written together agree; others do not belong together. */
static int take(kvo_store *s, const char *path, const uint8_t *entry, size_t left, size_t *bytes, kvo_error *error)
{
    base_space_record record;
    char label[BASE_SPACE_LABEL_MAX + 1];
    uint32_t number = base_get_u32(entry), encoded = base_get_u32(entry + 68);
    memcpy(label, entry + 4, sizeof label);
    label[sizeof label - 1] = 0;
    *bytes = ENTRY_HEAD + encoded;
    if (number == 0 || number > KVO_SPACES_MAX || encoded > left - ENTRY_HEAD ||
        base_space_decode(entry + ENTRY_HEAD, encoded, &record) != KVO_OK)
        return base_fail(error, KVO_E_DAMAGED, "%s/spaces: not readable by this version", path);
    const store_space *have = &s->spaces[number];
    if (!have->used)
        return added(s, number, label, &record, path, error);
    uint8_t digest[32], wants[BASE_SPACE_ENCODED_MAX];
    int r = base_sha256(wants, base_space_record_encode(&record, wants, sizeof wants), digest);
    if (r != KVO_OK)
        return base_fail(error, r, "%s: space \"%s\": %s", path, label, kvo_status_text(r));
    if (strcmp(have->label, label) != 0 || memcmp(have->digest, digest, 32) != 0)
        return base_fail(error, KVO_E_MISMATCH,
                         "%s: its space \"%s\" has the number of another tier's space \"%s\": these directories were "
                         "not written by one store",
                         path, label, have->label);
    return KVO_OK;
}

static int load_note(kvo_store *s, store_tier *t, kvo_error *error)
{
    tier_medium *io = t->io;
    void *memory;
    size_t count, bytes = 0;
    int r = io->ops->note_read(io, TIER_NOTE_SPACES, &memory, &count);
    if (r == -ENOENT)
        return KVO_OK;
    if (r != 0)
        return base_fail(error, base_status_of_errno(r), "%s/spaces: cannot read: %s", io->path, strerror(-r));
    int status = KVO_OK;
    for (size_t at = 0; status == KVO_OK && at + ENTRY_HEAD <= count; at += bytes, t->described++)
        status = take(s, io->path, (const uint8_t *)memory + at, count - at, &bytes, error);
    s->env->free(s->env, memory, (count + TIER_UNIT - 1) / TIER_UNIT * TIER_UNIT);
    return status;
}

int store_spaces_load(kvo_store *s, kvo_error *error)
{
    int r = KVO_OK;
    for (unsigned t = 0; r == KVO_OK && t < s->tier_count && !s->ghost; t++)
        if (s->tiers[t].persistent)
            r = load_note(s, &s->tiers[t], error);
    return r;
}

static unsigned spaces_used(const kvo_store *s)
{
    unsigned used = 0;
    for (unsigned i = 1; i <= KVO_SPACES_MAX; i++)
        used += s->spaces[i].used;
    return used;
}

int store_spaces_complete(kvo_store *s, kvo_error *error)
{
    bool lacking = false;
    for (unsigned t = 0; t < s->tier_count; t++)
        lacking |= s->tiers[t].persistent && s->tiers[t].described < spaces_used(s);
    int r = lacking && !s->read_only ? store_spaces_save(s) : 0;
    return r == 0 ? KVO_OK
                  : base_fail(error, base_status_of_errno(r), "the spaces cannot be written: %s", strerror(-r));
}

static int mismatch(const store_space *have, const base_space_record *asked, kvo_error *error)
{
    char is[1024], wants[1024];
    int a = base_space_record_describe(have->record, is, sizeof is);
    int b = base_space_record_describe(asked, wants, sizeof wants);
    if (a >= 0 && b >= 0 && (size_t)(a + b) + strlen(have->label) + 80 < sizeof error->text)
        return base_fail(error, KVO_E_MISMATCH, "space \"%s\": the store has %s; asked for %s: use another label",
                         have->label, is, wants);
    base_space_difference(have->record, asked, is, 180);
    base_space_difference(asked, have->record, wants, 180);
    return base_fail(error, KVO_E_MISMATCH, "space \"%s\": the store has %s; asked for %s: use another label",
                     have->label, is, wants);
}

/* Under the lock. */
static int open_or_add(kvo_store *s, const char *label, const base_space_record *record, kvo_space *space,
                       kvo_error *error)
{
    unsigned free_number = 0;
    for (unsigned i = KVO_SPACES_MAX; i >= 1; i--) {
        if (!s->spaces[i].used)
            free_number = i;
        else if (strcmp(s->spaces[i].label, label) == 0) {
            *space = i;
            uint8_t have[BASE_SPACE_ENCODED_MAX], want[BASE_SPACE_ENCODED_MAX];
            size_t n = base_space_record_encode(s->spaces[i].record, have, sizeof have);
            bool same = n == base_space_record_encode(record, want, sizeof want) && memcmp(have, want, n) == 0;
            return same ? KVO_OK : mismatch(&s->spaces[i], record, error);
        }
    }
    if (s->read_only)
        return base_fail(error, KVO_E_STATE, "space \"%s\": not in this store, which is open for reading", label);
    if (free_number == 0)
        return base_fail(error, KVO_FULL, "space \"%s\": the store has %u spaces already", label, KVO_SPACES_MAX);
    for (unsigned t = 0; t < s->tier_count; t++) {
        const place_segments *p = &s->tiers[t].space;
        if (p->infinite || p->header_units + place_payload_units(record->block_bytes_max) <=
                               p->segment_units - p->header_units)
            continue;
        return base_fail(error, KVO_E_RANGE,
                         "space \"%s\": blocks of %llu bytes do not fit the segments of tier %s (%llu bytes): open "
                         "the store with block_bytes or a larger segment_bytes",
                         label, (unsigned long long)record->block_bytes_max, s->tiers[t].name,
                         (unsigned long long)p->segment_units * PLACE_UNIT);
    }
    *space = free_number;
    return added(s, free_number, label, record, "this store", error);
}

int kvo_space_open(kvo_store *s, const kvo_space_config *config, kvo_space *space, kvo_error *error)
{
    base_space_record record;
    char label[BASE_SPACE_LABEL_MAX + 1];
    STORE_ENTER(s);
    if (config == NULL || space == NULL)
        return KVO_E_ARGUMENT;
    int r = base_space_take(config, &record, label, error);
    if (r != KVO_OK)
        return r;
    /* One space at a time; the page is written before anybody can use the number. */
    pthread_mutex_lock(&s->write_out_lock);
    store_lock(s);
    unsigned had = spaces_used(s);
    *space = 0;
    r = open_or_add(s, label, &record, space, error);
    unsigned has = spaces_used(s);
    store_unlock(s);
    int saved = r == KVO_OK && has != had ? store_spaces_save(s) : 0;
    pthread_mutex_unlock(&s->write_out_lock);
    if (saved != 0) {
        s->spaces[*space].used = false;
        r = base_fail(error, base_status_of_errno(saved), "space \"%s\": cannot be written: %s", label,
                      strerror(-saved));
    }
    if (r != KVO_OK)
        *space = 0;
    return r;
}
