/* SPDX-License-Identifier: Apache-2.0 */
#include "select.h"

#include "common.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>

#define WALK_BLOCKS 64

static void log_line(void *context, const char *line)
{
    (void)context;
    (void)cli_fail("%s", line);
}

static int open_tiers(const kvo_tier_config *tiers, uint32_t count, uint32_t flags, kvo_store **store)
{
    kvo_options options = KVO_OPTIONS_INIT;
    kvo_error error = {""};
    options.flags = flags | KVO_OPEN_MUST_EXIST;
    options.on_log = log_line;
    int status = kvo_open_tiers(tiers, count, &options, store, &error);
    return status == KVO_OK ? 0 : cli_refused(status, &error);
}

int cli_open_directory(const char *directory, uint32_t flags, kvo_store **store)
{
    kvo_tier_config tier = KVO_TIER_CONFIG_INIT;
    tier.kind = KVO_TIER_DISK;
    tier.path = directory;
    return open_tiers(&tier, 1, flags, store);
}

int cli_open_directories(const char *directories, uint32_t flags, kvo_store **store)
{
    kvo_tier_config tiers[KVO_TIERS_MAX];
    uint32_t count = 0;
    size_t bytes = strlen(directories) + 1;
    char *copy = memcpy(cli_alloc(bytes, 1), directories, bytes), *at = copy;
    while (at != NULL && count < KVO_TIERS_MAX) {
        char *comma = strchr(at, ',');
        tiers[count] = (kvo_tier_config)KVO_TIER_CONFIG_INIT;
        tiers[count].kind = KVO_TIER_DISK;
        tiers[count++].path = at;
        at = NULL;
        if (comma != NULL) {
            *comma = 0;
            at = comma + 1;
        }
    }
    int code = at == NULL ? open_tiers(tiers, count, flags, store)
                          : cli_fail("%s: a store has at most %d directories", directories, KVO_TIERS_MAX);
    free(copy);
    return code;
}

int cli_close_directory(kvo_store *store, int code)
{
    int status = kvo_close(store, KVO_FOREVER);
    return status == KVO_OK || code == CLI_FAIL ? code : cli_fail("close: %s", kvo_status_text(status));
}

int cli_spaces(kvo_store *store, kvo_space_stat **spaces, size_t *count)
{
    *spaces = cli_alloc(KVO_SPACES_MAX, sizeof **spaces);
    int status = kvo_stat_spaces(store, *spaces, KVO_SPACES_MAX, count);
    if (status != KVO_OK) {
        free(*spaces);
        *spaces = NULL;
        return cli_fail("spaces: %s", kvo_status_text(status));
    }
    *count = *count < KVO_SPACES_MAX ? *count : KVO_SPACES_MAX;
    return 0;
}

const char *cli_space_label(const kvo_space_stat *spaces, size_t count, kvo_space space)
{
    for (size_t i = 0; i < count; i++) {
        if (spaces[i].space == space) {
            return spaces[i].label;
        }
    }
    return "?";
}

/* ---- The options ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    int lower = c | 32;
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static int parse_name(cli_select *select)
{
    size_t length = strlen(select->name);
    int good = length % 2 == 0 && length >= 2 * KVO_NAME_BYTES_MIN && length <= 2 * KVO_NAME_BYTES_MAX;
    for (size_t i = 0; good && i < length; i++) {
        int digit = hex_digit(select->name[i]);
        good = digit >= 0;
        select->name_value[i / 2] = (uint8_t)(select->name_value[i / 2] << 4 | (digit & 15));
    }
    select->name_bytes = length / 2;
    return good ? 0 : cli_fail("--name: \"%s\" is not a name of %d to %d bytes in hex", select->name,
                               KVO_NAME_BYTES_MIN, KVO_NAME_BYTES_MAX);
}

int cli_select_parse(cli_select *select, int none_is_all)
{
    int said = (select->name != NULL) + (select->tenant != NULL) + (select->all != NULL) +
               (select->space != NULL && select->name == NULL);
    if (said > 1) {
        return cli_fail("only one of --name, --tenant, --space and --all");
    }
    if (said == 0 && !none_is_all) {
        return cli_fail("which blocks? --name HEX, --tenant N, --space LABEL or --all");
    }
    select->by = select->name != NULL     ? KVO_BY_HANDLES
                 : select->tenant != NULL ? KVO_BY_TENANT
                 : select->space != NULL  ? KVO_BY_SPACE
                                          : KVO_BY_ALL;
    if (select->name != NULL && parse_name(select) != 0) {
        return CLI_FAIL;
    }
    return cli_number("--tenant", select->tenant, 0, UINT16_MAX, 0, &select->tenant_value) != 0 ? CLI_FAIL : 0;
}

/* ---- Blocks ---- */

static int walk(kvo_store *store, const kvo_target *filter,
                int (*each)(void *context, const kvo_block_info *info), void *context)
{
    kvo_block_info *infos = cli_alloc(WALK_BLOCKS, sizeof *infos);
    uint64_t cursor = 0;
    size_t count = 1;
    int result = 0;
    while (count != 0 && result == 0) {
        int status = kvo_walk(store, filter, &cursor, infos, WALK_BLOCKS, &count);
        if (status != KVO_OK) {
            result = cli_fail("walk: %s", kvo_status_text(status));
        }
        for (size_t i = 0; i < count && result == 0; i++) {
            result = each(context, &infos[i]);
        }
    }
    free(infos);
    return result;
}

typedef struct name_search {
    const cli_select *select;
    cli_selected *selected;
    size_t room;
    kvo_space space;
    int several;
} name_search;

static int take_name(void *context, const kvo_block_info *info)
{
    name_search *search = context;
    cli_selected *selected = search->selected;
    if (info->name_bytes != search->select->name_bytes ||
        memcmp(info->name, search->select->name_value, info->name_bytes) != 0) {
        return 0;
    }
    search->several |= search->space != 0 && search->space != info->space;
    search->space = info->space;
    selected->handles = cli_grow(selected->handles, (size_t)selected->count, &search->room, sizeof *selected->handles);
    selected->handles[selected->count++] = info->handle;
    return 0;
}

/* A name alone is not the whole identity: kinds, layer ranges and head groups of it are all meant. */
static int find_name(kvo_store *store, const cli_select *select, cli_selected *selected)
{
    name_search search = {.select = select, .selected = selected};
    kvo_target filter = {.by = selected->target.space != 0 ? KVO_BY_SPACE : KVO_BY_ALL,
                         .space = selected->target.space};
    int result = walk(store, &filter, take_name, &search);
    if (result == 0 && selected->count == 0) {
        result = cli_fail("no block is named %s%s%s", select->name, select->space != NULL ? " in space " : "",
                          select->space != NULL ? select->space : "");
    }
    if (result == 0 && search.several) {
        result = cli_fail("%s is a name in several spaces: say which with --space LABEL", select->name);
    }
    selected->target.handles = selected->handles;
    selected->target.handle_count = (size_t)selected->count;
    return result;
}

static int find_space(kvo_store *store, const char *label, kvo_space *space)
{
    kvo_space_stat *spaces;
    size_t count;
    if (cli_spaces(store, &spaces, &count) != 0) {
        return CLI_FAIL;
    }
    *space = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(spaces[i].label, label) == 0) {
            *space = spaces[i].space;
        }
    }
    free(spaces);
    return *space != 0 ? 0 : cli_fail("no space is called %s", label);
}

int cli_select_find(kvo_store *store, const cli_select *select, cli_selected *selected)
{
    memset(selected, 0, sizeof *selected);
    selected->target.by = select->by;
    selected->target.tenant = (uint32_t)select->tenant_value;
    if (select->space != NULL && find_space(store, select->space, &selected->target.space) != 0) {
        return CLI_FAIL;
    }
    return select->by == KVO_BY_HANDLES ? find_name(store, select, selected) : 0;
}

int cli_select_walk(kvo_store *store, const cli_selected *selected,
                    int (*each)(void *context, const kvo_block_info *info), void *context)
{
    if (selected->target.by != KVO_BY_HANDLES) {
        return walk(store, selected->target.by == KVO_BY_ALL ? NULL : &selected->target, each, context);
    }
    kvo_block_info *info = cli_alloc(1, sizeof *info);
    int result = 0;
    for (size_t i = 0; i < selected->target.handle_count && result == 0; i++) {
        kvo_target one = {.by = KVO_BY_HANDLES, .handles = &selected->handles[i], .handle_count = 1};
        uint64_t cursor = 0;
        size_t count = 0;
        int status = kvo_walk(store, &one, &cursor, info, 1, &count);
        if (status != KVO_OK) {
            result = cli_fail("walk: %s", kvo_status_text(status));
        } else if (count == 1) {
            result = each(context, info);
        }
    }
    free(info);
    return result;
}
