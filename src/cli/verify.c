/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"
#include "common.h"
#include "options.h"
#include "select.h"

static void print_bad(void *context, const kvo_bad_slot *bad)
{
    char name[2 * KVO_NAME_BYTES_MAX + 1];
    (void)context;
    printf("%s:%llu: %s", bad->file, (unsigned long long)bad->offset_bytes, bad->what);
    if (bad->name != NULL) {
        printf(" (block %s)", cli_hex_text(bad->name, bad->name_bytes, name));
    }
    putchar('\n');
}

static const cli_command verify_command = {
    "verify", "DIR", "Reads every payload of the store in DIR and names each slot that is not what it was.",
    "A line a bad slot: FILE:OFFSET: what is wrong. Nothing is written, so the blocks stay as they are\n"
    "until a store that is opened reads them, misses, and has them put again.\n\n"
    "example:\n"
    "  kvonce verify /var/lib/kvonce && echo clean\n\n"
    "exit: 0 clean; 1 bad slots; 2 it could not run, or the store is in use.\n",
    cli_verify_command};

int cli_verify_command(int argc, char **argv)
{
    static const cli_option options[] = {{NULL, NULL, NULL, NULL}};
    const char *directory;
    kvo_store *store;
    kvo_verify_result result = {0, 0, 0};
    char a[CLI_COUNT_TEXT], b[CLI_COUNT_TEXT];
    int code = cli_parse(&verify_command, options, argc, argv, &directory);
    if (code >= 0) {
        return code;
    }
    if (cli_open_directory(directory, KVO_OPEN_READ_ONLY, &store) != 0) {
        return CLI_FAIL;
    }
    int status = kvo_verify(store, print_bad, NULL, &result);
    code = status == KVO_OK ? CLI_OK : cli_fail("verify: %s", kvo_status_text(status));
    code = cli_close_directory(store, code);
    if (code != CLI_OK) {
        (void)cli_finish(code);
        return code;
    }
    printf("%s slots hold a block, %s bad", cli_count_text(result.slots, a), cli_count_text(result.bad, b));
    if (result.unfinished != 0) {
        printf(", %s unfinished by a crash", cli_count_text(result.unfinished, a));
    }
    putchar('\n');
    return cli_finish(result.bad != 0 ? CLI_BAD : CLI_OK);
}
