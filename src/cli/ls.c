/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"
#include "common.h"
#include "json_out.h"
#include "options.h"
#include "select.h"
#include "show.h"

#include <stdlib.h>

typedef struct listing {
    kvo_store *store;
    const kvo_space_stat *spaces;
    size_t space_count;
    uint64_t left; /* of --limit */
    uint64_t listed;
    int json;
    cli_out out;
} listing;

/* The parent's name: a handle means nothing outside this process. */
static void json_parent(listing *list, const kvo_block_info *info)
{
    kvo_block_info parent;
    kvo_target target = {.by = KVO_BY_HANDLES, .handles = &info->parent, .handle_count = 1};
    uint64_t cursor = 0;
    size_t count = 0;
    cli_out_bool(&list->out, "has_parent", info->has_parent);
    if (info->parent != 0 && kvo_walk(list->store, &target, &cursor, &parent, 1, &count) == KVO_OK && count == 1) {
        cli_out_hex(&list->out, "parent", parent.name, parent.name_bytes);
    } else {
        cli_out_null(&list->out, "parent");
    }
}

static void json_identity(listing *list, const kvo_block_info *info)
{
    cli_out *out = &list->out;
    cli_out_object(out, "identity");
    cli_out_text(out, "space", cli_space_label(list->spaces, list->space_count, info->space));
    cli_out_text(out, "kind", info->kind == KVO_KIND_STATE ? "state" : "range");
    cli_out_u64(out, "layer_first", info->layer_first);
    cli_out_u64(out, "layer_count", info->layer_count);
    cli_out_u64(out, "head_group", info->head_group);
    cli_out_u64(out, "sequence", info->sequence);
    cli_out_u64(out, "position", info->position);
    cli_out_u64(out, "positions", info->positions);
    json_parent(list, info);
    cli_out_hex(out, "digest", info->digest, sizeof info->digest);
    cli_out_hex(out, "record", info->identity, sizeof info->identity);
    cli_out_object_end(out);
}

static void json_copies(cli_out *out, const kvo_block_info *info)
{
    cli_out_list(out, "copies");
    for (uint32_t i = 0; i < info->copy_count && i < KVO_TIERS_MAX; i++) {
        const kvo_copy_info *copy = &info->copies[i];
        cli_out_object(out, NULL);
        cli_out_u64(out, "tier", copy->tier);
        cli_out_u64(out, "slot", copy->slot);
        cli_out_u64(out, "offset_bytes", copy->offset_bytes);
        cli_out_u64(out, "format", copy->format);
        cli_out_object_end(out);
    }
    cli_out_list_end(out);
}

static void json_block(listing *list, const kvo_block_info *info)
{
    cli_out *out = &list->out;
    cli_out_object(out, NULL);
    cli_out_hex(out, "name", info->name, info->name_bytes);
    cli_out_u64(out, "bytes", info->payload_bytes);
    json_identity(list, info);
    cli_show_policy_json(out, &info->policy);
    cli_out_u64(out, "uses", info->uses);
    cli_out_u64(out, "last_use", info->last_use);
    json_copies(out, info);
    cli_out_u64(out, "generation", info->generation);
    cli_out_list(out, "delta");
    for (int i = 0; i < KVO_TIERS_MAX; i++) {
        cli_out_u64(out, NULL, info->delta[i]);
    }
    cli_out_list_end(out);
    cli_out_object_end(out);
}

static void print_block(const listing *list, const kvo_block_info *info)
{
    char name[2 * KVO_NAME_BYTES_MAX + 1];
    printf("%s %10lu  %s", cli_hex_text(info->name, info->name_bytes, name), (unsigned long)info->payload_bytes,
           cli_space_label(list->spaces, list->space_count, info->space));
    if (info->kind == KVO_KIND_STATE) {
        printf(" state at %lu", (unsigned long)info->position);
    } else {
        printf(" %lu+%lu", (unsigned long)info->position, (unsigned long)info->positions);
    }
    fputs("  ", stdout);
    cli_show_policy(&info->policy);
    printf(", uses %lu", (unsigned long)info->uses);
    if (info->generation != 1) {
        printf(", generation %lu", (unsigned long)info->generation);
    }
    putchar('\n');
}

static int list_block(void *context, const kvo_block_info *info)
{
    listing *list = context;
    if (list->left == 0 || ferror(stdout)) {
        return 1;
    }
    list->left--;
    list->listed++;
    if (list->json) {
        json_block(list, info);
    } else {
        print_block(list, info);
    }
    return 0;
}

static int list_store(kvo_store *store, const cli_select *select, uint64_t limit, int json)
{
    kvo_space_stat *spaces = NULL;
    listing list = {.store = store, .left = limit, .json = json};
    cli_selected selected;
    if (cli_select_find(store, select, &selected) != 0 || cli_spaces(store, &spaces, &list.space_count) != 0) {
        free(selected.handles);
        return CLI_FAIL;
    }
    list.spaces = spaces;
    if (json) {
        cli_out_object(&list.out, NULL);
        cli_out_list(&list.out, "blocks");
    }
    int result = cli_select_walk(store, &selected, list_block, &list);
    if (json) {
        cli_out_list_end(&list.out);
        cli_out_object_end(&list.out);
    }
    free(spaces);
    free(selected.handles);
    return result == CLI_FAIL ? CLI_FAIL : CLI_OK;
}

static const cli_command ls_command = {
    "ls", "DIR", "Lists the blocks of the store in DIR: name, bytes, space and positions, policy.",
    "Nothing is written; the store must not be open elsewhere.\n\n"
    "examples:\n"
    "  kvonce ls /var/lib/kvonce --tenant 3\n"
    "  kvonce ls /var/lib/kvonce --json --limit 1\n",
    cli_ls_command};

int cli_ls_command(int argc, char **argv)
{
    const char *directory;
    const char *json = NULL, *limit_text = NULL;
    cli_select select = {0};
    const cli_option options[] = {
        {"--json", NULL, "print one JSON object, with everything known of a block", &json},
        {"--name", "HEX", "only the block of this name", &select.name},
        {"--tenant", "N", "only blocks of a tenant", &select.tenant},
        {"--space", "LABEL", "only blocks of a space", &select.space},
        {"--limit", "N", "at most N blocks", &limit_text},
        {NULL, NULL, NULL, NULL}};
    kvo_store *store;
    uint64_t limit;
    int code = cli_parse(&ls_command, options, argc, argv, &directory);
    if (code >= 0) {
        return code;
    }
    if (cli_select_parse(&select, 1) != 0 ||
        cli_number("--limit", limit_text, 0, UINT64_MAX, UINT64_MAX, &limit) != 0 ||
        cli_open_directory(directory, KVO_OPEN_READ_ONLY, &store) != 0) {
        return CLI_FAIL;
    }
    code = list_store(store, &select, limit, json != NULL);
    code = cli_close_directory(store, code);
    return code == CLI_OK ? cli_finish(code) : code;
}
