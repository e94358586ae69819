/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"
#include "common.h"
#include "options.h"
#include "select.h"

#include <stdlib.h>

static const cli_command rm_command = {
    "rm", "DIR", "Removes blocks from the store in DIR. They do not come back, also not after a power cut.",
    "The room is free for other blocks; files keep their size.\n\n"
    "examples:\n"
    "  kvonce rm /var/lib/kvonce --tenant 7\n"
    "  kvonce rm /var/lib/kvonce --name 7200000000000000000000000000002a\n",
    cli_rm_command};

static int remove_blocks(kvo_store *store, const cli_select *select)
{
    cli_selected selected;
    char text[CLI_COUNT_TEXT];
    uint64_t removed = 0;
    int code = cli_select_find(store, select, &selected);
    if (code == 0) {
        size_t answers = selected.target.handle_count;
        kvo_answer *each = cli_alloc(answers, sizeof *each);
        int status = kvo_remove(store, &selected.target, KVO_SAFE, KVO_FOREVER, each, &removed);
        free(each);
        if (status != KVO_OK) {
            code = cli_fail("rm: %s", kvo_status_text(status));
        } else {
            printf("removed %s block%s\n", cli_count_text(removed, text), removed == 1 ? "" : "s");
        }
    }
    free(selected.handles);
    return code;
}

int cli_rm_command(int argc, char **argv)
{
    const char *directory;
    cli_select select = {0};
    const cli_option options[] = {
        {"--name", "HEX", "the block of this name", &select.name},
        {"--tenant", "N", "all blocks of a tenant", &select.tenant},
        {"--space", "LABEL", "all blocks of a space; with --name, where that name lies", &select.space},
        {"--all", NULL, "all blocks", &select.all},
        {NULL, NULL, NULL, NULL}};
    kvo_store *store;
    int code = cli_parse(&rm_command, options, argc, argv, &directory);
    if (code >= 0) {
        return code;
    }
    if (cli_select_parse(&select, 0) != 0 || cli_open_directory(directory, 0, &store) != 0) {
        return CLI_FAIL;
    }
    code = cli_close_directory(store, remove_blocks(store, &select));
    return code == CLI_OK ? cli_finish(code) : code;
}
