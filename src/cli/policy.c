/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"
#include "common.h"
#include "options.h"
#include "policy_set.h"
#include "select.h"
#include "show.h"

#include <stdlib.h>
#include <string.h>

/* ---- Showing and setting ---- */

typedef struct printer {
    int json;
    cli_out out;
} printer;

static int print_policy(void *context, const kvo_block_info *info)
{
    printer *p = context;
    char name[2 * KVO_NAME_BYTES_MAX + 1];
    if (ferror(stdout)) {
        return 1;
    }
    if (p->json) {
        cli_out_object(&p->out, NULL);
        cli_out_hex(&p->out, "name", info->name, info->name_bytes);
        cli_show_policy_json(&p->out, &info->policy);
        cli_out_object_end(&p->out);
    } else {
        printf("%s  ", cli_hex_text(info->name, info->name_bytes, name));
        cli_show_policy(&info->policy);
        putchar('\n');
    }
    return 0;
}

static int print_policies(kvo_store *store, const cli_selected *selected, int json)
{
    printer p = {.json = json};
    if (json) {
        cli_out_object(&p.out, NULL);
        cli_out_list(&p.out, "blocks");
    }
    int result = cli_select_walk(store, selected, print_policy, &p);
    if (json) {
        cli_out_list_end(&p.out);
        cli_out_object_end(&p.out);
    }
    return result == CLI_FAIL ? CLI_FAIL : CLI_OK;
}

static int set_policies(kvo_store *store, const cli_selected *selected, const cli_policy_change *change)
{
    uint64_t changed = 0;
    char text[CLI_COUNT_TEXT];
    int status = kvo_policy_set(store, &selected->target, &change->policy, change->mask, NULL, &changed);
    if (status == KVO_OK) {
        status = kvo_write_out(store);
    }
    if (status != KVO_OK) {
        return cli_fail("policy: %s", kvo_status_text(status));
    }
    printf("set %s block%s\n", cli_count_text(changed, text), changed == 1 ? "" : "s");
    return CLI_OK;
}

static const cli_command policy_command = {
    "policy", "DIR", "Shows the policy of blocks of the store in DIR or, with --set, changes it.",
    "--set takes fields with commas between: tenant=N, qos=0..3, priority=0..100, reuse=0..100,\n"
    "intent=none|keep|prefetch|demote|drop, and with an intent intent_seconds=N. No payload is\n"
    "touched.\n\n"
    "examples:\n"
    "  kvonce policy /var/lib/kvonce --tenant 3\n"
    "  kvonce policy /var/lib/kvonce --tenant 3 --set priority=90,qos=2\n"
    "  kvonce policy /var/lib/kvonce --space llama --set intent=keep,intent_seconds=3600\n",
    cli_policy_command};

static int run_policy(const char *directory, const cli_select *select, const cli_policy_change *change, int json)
{
    kvo_store *store;
    cli_selected selected;
    if (cli_open_directory(directory, change != NULL ? 0 : KVO_OPEN_READ_ONLY, &store) != 0) {
        return CLI_FAIL;
    }
    int code = cli_select_find(store, select, &selected);
    if (code == 0) {
        code = change != NULL ? set_policies(store, &selected, change) : print_policies(store, &selected, json);
    }
    free(selected.handles);
    code = cli_close_directory(store, code);
    return code == CLI_OK ? cli_finish(code) : code;
}

int cli_policy_command(int argc, char **argv)
{
    const char *directory;
    const char *set = NULL, *json = NULL;
    cli_select select = {0};
    cli_policy_change new_policy;
    const cli_option options[] = {
        {"--name", "HEX", "the block of this name", &select.name},
        {"--tenant", "N", "all blocks of a tenant", &select.tenant},
        {"--space", "LABEL", "all blocks of a space; with --name, where that name lies", &select.space},
        {"--all", NULL, "all blocks", &select.all},
        {"--set", "FIELD=VALUE,...", "change these fields", &set},
        {"--json", NULL, "print one JSON object", &json},
        {NULL, NULL, NULL, NULL}};
    int code = cli_parse(&policy_command, options, argc, argv, &directory);
    if (code >= 0) {
        return code;
    }
    if (set != NULL && json != NULL) {
        return cli_fail("policy: --json shows, --set changes: one of them");
    }
    if (cli_select_parse(&select, 0) != 0 || (set != NULL && cli_policy_parse(&new_policy, set) != 0)) {
        return CLI_FAIL;
    }
    return run_policy(directory, &select, set != NULL ? &new_policy : NULL, json != NULL);
}
