/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader: skipping a value and reading it piece by piece find the same end, or the same line with an error. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "../src/cli/json_in.h"

enum { STRING_BYTES = 1 << 16 };

static int read_value(cli_json *json);

static int read_object(cli_json *json)
{
    char key[STRING_BYTES / 1024];
    int more = cli_json_begin_object(json) == 0 ? 1 : -1;
    while (more == 1 && (more = cli_json_next_key(json, key, sizeof key)) == 1) {
        MUST(memchr(key, 0, sizeof key) != NULL, "a key without an end");
        if (read_value(json) != 0)
            return -1;
    }
    return more;
}

static int read_array(cli_json *json)
{
    int more = cli_json_begin_array(json) == 0 ? 1 : -1;
    while (more == 1 && (more = cli_json_next_item(json)) == 1)
        if (read_value(json) != 0)
            return -1;
    return more;
}

/* A number is one or the other reading, or neither where it is too large for both. */
static int read_number(cli_json *json)
{
    cli_json ahead = *json, other = *json;
    uint64_t whole;
    cli_decimal decimal;
    int is_whole = cli_json_u64(&ahead, &whole) == 0, is_decimal = cli_json_decimal(&other, &decimal) == 0;
    if (is_decimal)
        MUST(decimal.nano < 1000000000, "%u billionths", decimal.nano);
    if (is_whole && is_decimal)
        MUST(ahead.at == other.at && decimal.whole >= 0 && (uint64_t)decimal.whole == whole && decimal.nano == 0,
             "two readings of one number");
    return cli_json_skip(json);
}

static int read_value(cli_json *json)
{
    static char text[STRING_BYTES];
    switch (cli_json_peek(json)) {
    case CLI_JSON_OBJECT:
        return read_object(json);
    case CLI_JSON_ARRAY:
        return read_array(json);
    case CLI_JSON_STRING:
        return cli_json_string(json, text, sizeof text);
    case CLI_JSON_NUMBER:
        return read_number(json);
    case CLI_JSON_WORD:
        return cli_json_skip(json);
    default:
        return -1;
    }
}

static void must_have_failed_well(cli_json *json)
{
    cli_json_type type;
    MUST(json->failed, "it failed and does not know it");
    fuzz_must_be_line(json->error);
    MUST(json->line >= 1, "an error on line 0");
    type = cli_json_peek(json);
    MUST(type == CLI_JSON_BAD && cli_json_skip(json) == -1 && cli_json_finish(json) == -1, "a call after an error");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes >= STRING_BYTES)
        return 0;
    char *text = malloc(bytes ? bytes : 1); /* no 0 behind it */
    MUST(text != NULL, "no memory");
    if (bytes)
        memcpy(text, data, bytes);
    cli_json skips, reads;
    cli_json_start(&skips, text, bytes, 1);
    cli_json_start(&reads, text, bytes, 1);
    int skipped = cli_json_skip(&skips), read = read_value(&reads);
    /* A NUL in a string is refused by who wants to have it. */
    MUST(skipped == 0 || read != 0, "read, but not skipped: %s", skips.error);
    if (skipped == 0 && read != 0)
        MUST(memmem(text, bytes, "\\u0000", 6) != NULL, "skipped, but not read: %s", reads.error);
    if (read == 0)
        MUST(skips.at == reads.at && skips.line == reads.line && skips.depth == reads.depth && reads.depth == 0,
             "two ends of one value");
    if (skipped != 0)
        must_have_failed_well(&skips);
    if (read != 0)
        must_have_failed_well(&reads);
    free(text);
    return 0;
}
