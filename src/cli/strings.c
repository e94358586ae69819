/* SPDX-License-Identifier: Apache-2.0 */
#include "strings.h"

#include "common.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text != 0; text++) {
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    }
    return h ^ (h >> 29);
}

static uint32_t *find(const cli_strings *strings, const char *text)
{
    size_t at = (size_t)hash(text) & (strings->slot_count - 1);
    while (strings->slots[at] != 0 && strcmp(strings->items[strings->slots[at] - 1], text) != 0) {
        at = (at + 1) & (strings->slot_count - 1);
    }
    return &strings->slots[at];
}

static void widen(cli_strings *strings)
{
    free(strings->slots);
    strings->slot_count = strings->slot_count == 0 ? 64 : 2 * strings->slot_count;
    strings->slots = cli_alloc(strings->slot_count, sizeof *strings->slots);
    for (size_t i = 0; i < strings->count; i++) {
        *find(strings, strings->items[i]) = (uint32_t)i + 1;
    }
}

uint32_t cli_strings_number(cli_strings *strings, const char *text)
{
    if (2 * (strings->count + 1) > strings->slot_count) {
        widen(strings);
    }
    uint32_t *slot = find(strings, text);
    if (*slot == 0) {
        size_t bytes = strlen(text) + 1;
        strings->items = cli_grow(strings->items, strings->count, &strings->room, sizeof *strings->items);
        strings->items[strings->count] = memcpy(cli_alloc(bytes, 1), text, bytes);
        *slot = (uint32_t)++strings->count;
    }
    return *slot - 1;
}

void cli_strings_clear(cli_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++) {
        free(strings->items[i]);
    }
    free(strings->items);
    free(strings->slots);
    memset(strings, 0, sizeof *strings);
}
