/* SPDX-License-Identifier: Apache-2.0 */
#include "ids.h"

#include "common.h"

#include <stdlib.h>
#include <string.h>

/* The page, or the free place where it belongs. There is always a free one. */
static cli_id_page *find(const cli_ids *ids, uint32_t scope, uint64_t base)
{
    uint64_t h = (base ^ (uint64_t)scope << 40) * 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(h ^ h >> 32) & (ids->room - 1);
    while (ids->pages[at].used && (ids->pages[at].base != base || ids->pages[at].scope != scope)) {
        at = (at + 1) & (ids->room - 1);
    }
    return &ids->pages[at];
}

static void widen(cli_ids *ids)
{
    cli_id_page *old = ids->pages;
    size_t old_room = ids->room;
    ids->room = old_room == 0 ? 256 : 2 * old_room;
    ids->pages = cli_alloc(ids->room, sizeof *ids->pages);
    for (size_t i = 0; i < old_room; i++) {
        if (old[i].used) {
            *find(ids, old[i].scope, old[i].base) = old[i];
        }
    }
    free(old);
}

int cli_ids_has(const cli_ids *ids, uint32_t scope, uint64_t id, unsigned mark)
{
    if (ids->room == 0) {
        return 0;
    }
    const cli_id_page *page = find(ids, scope, id / 64);
    return page->used && (page->marks[mark] >> (id % 64) & 1);
}

int cli_ids_mark(cli_ids *ids, uint32_t scope, uint64_t id, unsigned mark)
{
    if (4 * (ids->count + 1) > 3 * ids->room) {
        widen(ids);
    }
    cli_id_page *page = find(ids, scope, id / 64);
    if (!page->used) {
        *page = (cli_id_page){.base = id / 64, .scope = scope, .used = 1};
        ids->count++;
    }
    uint64_t bit = (uint64_t)1 << (id % 64);
    if (page->marks[mark] & bit) {
        return 0;
    }
    page->marks[mark] |= bit;
    ids->marked[mark]++;
    return 1;
}

void cli_ids_free(cli_ids *ids)
{
    free(ids->pages);
    memset(ids, 0, sizeof *ids);
}
