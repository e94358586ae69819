/* SPDX-License-Identifier: Apache-2.0 */
/* A list of tiers that is taken, written out again, means the same; paths stay in their buffer, whatever its length. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvonce.h"

typedef struct parsed {
    kvo_tier_config tiers[KVO_TIERS_MAX];
    uint32_t count;
    char *paths;
    kvo_error error;
} parsed;

static int parse(parsed *p, const char *text, size_t paths_bytes)
{
    memset(p, 0, sizeof *p);
    p->paths = malloc(paths_bytes ? paths_bytes : 1);
    MUST(p->paths != NULL, "no memory");
    return kvo_parse_tiers(text, p->tiers, &p->count, p->paths, paths_bytes, &p->error);
}

static void must_be_sane(const parsed *p, const char *text)
{
    uint32_t commas = 0;
    for (const char *at = text; *at; at++)
        commas += *at == ',';
    MUST(p->count == commas + 1 && p->count <= KVO_TIERS_MAX, "%u tiers in %s", p->count, text);
    for (uint32_t i = 0; i < p->count; i++) {
        const kvo_tier_config *t = &p->tiers[i];
        bool dram = t->kind == KVO_TIER_DRAM;
        MUST(t->size == sizeof *t && (dram || t->kind == KVO_TIER_DISK), "tier %u of %s has no kind", i, text);
        MUST((t->path == NULL) == dram && (dram || (*t->path && strchr(t->path, ',') == NULL)), "a path of %s", text);
        MUST(t->capacity_bytes == 0 || t->capacity_blocks == 0, "two capacities in %s", text);
        MUST(!dram || t->capacity_bytes || t->capacity_blocks, "no capacity in %s", text);
        MUST(t->capacity_bytes >> 63 == 0, "a capacity of %s", text);
        MUST(t->capacity_blocks >> 63 == 0 || t->capacity_blocks == KVO_INFINITE, "a count of %s", text);
    }
}

static void write_out(const parsed *p, char *out, size_t room)
{
    size_t used = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const kvo_tier_config *t = &p->tiers[i];
        used += (size_t)snprintf(out + used, room - used, "%s%s", i ? "," : "",
                                 t->kind == KVO_TIER_DRAM ? "dram" : "disk:");
        if (t->path)
            used += (size_t)snprintf(out + used, room - used, "%s", t->path);
        if (t->capacity_blocks == KVO_INFINITE)
            used += (size_t)snprintf(out + used, room - used, ":inf");
        else if (t->capacity_blocks)
            used += (size_t)snprintf(out + used, room - used, ":%llublk", (unsigned long long)t->capacity_blocks);
        else if (t->capacity_bytes)
            used += (size_t)snprintf(out + used, room - used, ":%llu", (unsigned long long)t->capacity_bytes);
    }
    MUST(used < room, "the list is too long to write out");
}

static void must_be_equal(const parsed *a, const parsed *b, const char *text)
{
    MUST(a->count == b->count, "%s: another count", text);
    for (uint32_t i = 0; i < a->count; i++) {
        const kvo_tier_config *x = &a->tiers[i], *y = &b->tiers[i];
        MUST(x->kind == y->kind && x->capacity_bytes == y->capacity_bytes && x->capacity_blocks == y->capacity_blocks,
             "%s: tier %u means something else", text, i);
        MUST((x->path == NULL) == (y->path == NULL) && (x->path == NULL || strcmp(x->path, y->path) == 0),
             "%s: tier %u has another path", text, i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    parsed first, second, narrow;
    if (bytes > 2048)
        return 0;
    char *text = fuzz_text(data, bytes);
    size_t length = strlen(text), room = length + 128;
    int status = parse(&first, text, length + 1);
    if (status == KVO_OK) {
        must_be_sane(&first, text);
        char *again = malloc(room);
        MUST(again != NULL, "no memory");
        write_out(&first, again, room);
        status = parse(&second, again, strlen(again) + 1);
        MUST(status == KVO_OK, "%s was %s: %s", again, text, second.error.text);
        must_be_equal(&first, &second, again);
        free(second.paths);
        free(again);
    } else {
        MUST(status == KVO_E_RANGE && first.count == 0, "status %d, %u tiers of %s", status, first.count, text);
        fuzz_must_be_line(first.error.text);
    }
    status = parse(&narrow, text, bytes ? data[0] % (length + 1) : 0);
    MUST(status == KVO_OK || status == KVO_E_RANGE || status == KVO_E_ARGUMENT, "status %d", status);
    free(narrow.paths);
    free(first.paths);
    free(text);
    return 0;
}
