/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"
#include "common.h"
#include "options.h"
#include "select.h"

/* How the lines end: NULL, nothing; else what a repair does or has done. */
typedef struct lines {
    const char *will; /* "", or "would be " */
} lines;

static void print_bad(void *context, const kvo_bad_slot *bad)
{
    const lines *l = context;
    char name[2 * KVO_NAME_BYTES_MAX + 1];
    printf("%s:%llu: %s", bad->file, (unsigned long long)bad->offset_bytes, bad->what);
    if (bad->name != NULL) {
        printf(" (block %s)", cli_hex_text(bad->name, bad->name_bytes, name));
    }
    if (l->will != NULL) {
        printf(": %s%s", l->will, bad->remedy);
    }
    putchar('\n');
}

static void print_counts(const kvo_verify_result *result)
{
    char a[CLI_COUNT_TEXT], b[CLI_COUNT_TEXT];
    printf("%s slots hold a block, %s bad", cli_count_text(result->slots, a), cli_count_text(result->bad, b));
    if (result->repaired != 0) {
        printf(", %s of them repaired", cli_count_text(result->repaired, a));
    }
    if (result->unfinished != 0) {
        printf(", %s unfinished by a crash", cli_count_text(result->unfinished, a));
    }
    putchar('\n');
}

/* Looks and writes nothing. */
static int look(const char *directory, lines *l, kvo_verify_result *result)
{
    kvo_store *store;
    if (cli_open_directory(directory, KVO_OPEN_READ_ONLY, &store) != 0) {
        return CLI_FAIL;
    }
    int status = kvo_verify(store, l != NULL ? print_bad : NULL, l, result);
    return cli_close_directory(store, status == KVO_OK ? CLI_OK : cli_fail("verify: %s", kvo_status_text(status)));
}

static int mend(const char *directory, kvo_verify_result *result)
{
    lines did = {""};
    kvo_store *store;
    if (cli_open_directory(directory, KVO_OPEN_STEPPED, &store) != 0) {
        return CLI_FAIL;
    }
    int status = kvo_repair(store, print_bad, &did, result);
    return cli_close_directory(store, status == KVO_OK ? CLI_OK : cli_fail("repair: %s", kvo_status_text(status)));
}

/* A store in which nothing is wrong is not even opened to write: not a byte of it changes. */
static int repair(const char *directory, int dry_run)
{
    lines would = {"would be "};
    kvo_verify_result found = {0}, done = {0}, after = {0};
    int code = look(directory, dry_run ? &would : NULL, &found);
    if (code != CLI_OK) {
        return code;
    }
    int crashed = found.unfinished != 0 || found.unclean != 0;
    if (dry_run || (found.bad == 0 && !crashed)) {
        if (crashed) {
            puts("it was not closed in order: would be opened and closed");
        }
        print_counts(&found);
        return found.bad != 0 || (dry_run && crashed) ? CLI_BAD : CLI_OK;
    }
    code = mend(directory, &done);
    if (code == CLI_OK) {
        code = look(directory, NULL, &after);
    }
    if (code != CLI_OK) {
        return code;
    }
    if (crashed) {
        puts("it was not closed in order: opened and closed");
    }
    done.unfinished = found.unfinished;
    print_counts(&done);
    return after.bad != 0 ? CLI_BAD : CLI_OK;
}

static int verify(const char *directory)
{
    lines plain = {NULL};
    kvo_verify_result result = {0};
    int code = look(directory, &plain, &result);
    if (code != CLI_OK) {
        return code;
    }
    print_counts(&result);
    return result.bad != 0 ? CLI_BAD : CLI_OK;
}

static const cli_command verify_command = {
    "verify", "DIR", "Reads every payload of the store in DIR and names each slot that is not what it was.",
    "A line a bad slot: FILE:OFFSET: what is wrong. Without --repair nothing is written, so the blocks stay\n"
    "as they are until a store that is opened reads them, misses, and has them put again.\n\n"
    "--repair makes damaged slots void, writes headers of segments again, and leaves a store that opens at\n"
    "once: a line says what was done about each. No block that is whole is dropped, nothing that cannot be\n"
    "read or is of another version is touched, and a store in which nothing is wrong is not written to.\n\n"
    "examples:\n"
    "  kvonce verify /var/lib/kvonce && echo clean\n"
    "  kvonce verify /var/lib/kvonce --repair --dry-run\n\n"
    "exit: 0 clean, or all is repaired; 1 bad slots; 2 it could not run, or the store is in use.\n",
    cli_verify_command};

int cli_verify_command(int argc, char **argv)
{
    const char *directory, *mends = NULL, *dry_run = NULL;
    const cli_option options[] = {{"--repair", NULL, "make what is damaged void, so that the store is clean", &mends},
                                  {"--dry-run", NULL, "with --repair: only say what would be done", &dry_run},
                                  {NULL, NULL, NULL, NULL}};
    int code = cli_parse(&verify_command, options, argc, argv, &directory);
    if (code >= 0) {
        return code;
    }
    if (dry_run != NULL && mends == NULL) {
        return cli_fail("--dry-run goes with --repair: without it verify writes nothing");
    }
    code = mends != NULL ? repair(directory, dry_run != NULL) : verify(directory);
    if (code == CLI_FAIL) {
        (void)cli_finish(code);
        return code;
    }
    return cli_finish(code);
}
