/* SPDX-License-Identifier: Apache-2.0 */
/* A trace file: its lines, the form they have, and the order of requests. */
#include "common.h"
#include "trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct trace_source {
    FILE *file;
    char *text; /* the current line, or the whole rest */
    size_t used, room;
    uint64_t line;
} trace_source;

enum { SOURCE_LINE, SOURCE_END, SOURCE_LONG, SOURCE_ERROR };

/* Appends one line to source->text, its newline included. */
static int append_line(trace_source *source)
{
    int c = 0;
    size_t before = source->used;
    while (c != '\n' && (c = getc_unlocked(source->file)) != EOF) {
        if (source->used == CLI_TRACE_LINE_MAX) {
            return SOURCE_LONG;
        }
        source->text = cli_grow(source->text, source->used, &source->room, 1);
        source->text[source->used++] = (char)c;
    }
    if (c == EOF && ferror(source->file)) {
        return SOURCE_ERROR;
    }
    return source->used != before ? SOURCE_LINE : SOURCE_END;
}

/* The text to parse: without the last newline, so that an error at its end is on its line. */
static void start(cli_json *json, const trace_source *source, uint64_t line)
{
    size_t bytes = source->used;
    bytes -= bytes != 0 && source->text[bytes - 1] == '\n';
    cli_json_start(json, source->text, bytes, line);
}

static int is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r' && text[i] != '\n') {
            return 0;
        }
    }
    return 1;
}

/* A byte order mark, or what tells that this is no text at all. */
static const char *check_start(trace_source *source)
{
    if (source->used >= 3 && memcmp(source->text, "\xef\xbb\xbf", 3) == 0) {
        memmove(source->text, source->text + 3, source->used -= 3);
    } else if (source->used >= 2 && memcmp(source->text, "\x1f\x8b", 2) == 0) {
        return "compressed with gzip: unpack it first (gzip -dc FILE | kvonce replay - ...)";
    } else if (source->used >= 4 && memcmp(source->text, "\x28\xb5\x2f\xfd", 4) == 0) {
        return "compressed with zstd: unpack it first (zstd -dc FILE | kvonce replay - ...)";
    }
    return NULL;
}

/* The form of one object, by its keys. */
static cli_form form_of(const cli_json *json)
{
    static const char *const keys[] = {"hash_ids", "conv", "requests", "keep", "new", NULL};
    cli_json ahead = *json;
    cli_form form = CLI_FORM_NONE;
    char key[32];
    uint32_t seen = 0;
    (void)cli_json_begin_object(&ahead);
    while (form == CLI_FORM_NONE && cli_json_next_key(&ahead, key, sizeof key) == 1) {
        switch (cli_json_field(&ahead, keys, key, &seen)) {
        case 0:
            form = CLI_FORM_HASH_IDS;
            break;
        case 1:
        case 3:
        case 4:
            form = CLI_FORM_COMPACT;
            break;
        case 2:
            form = cli_json_peek(&ahead) == CLI_JSON_ARRAY ? CLI_FORM_RAW : CLI_FORM_COMPACT;
            break;
        default:
            (void)cli_json_skip(&ahead);
        }
    }
    return form;
}

static int read_object(cli_reader *reader, cli_json *json)
{
    cli_form form = form_of(json);
    if (form == CLI_FORM_NONE && reader->form == CLI_FORM_HASH_IDS) {
        form = CLI_FORM_HASH_IDS; /* which says what is missing */
    }
    if (form == CLI_FORM_NONE) {
        (void)(cli_json_skip(json) != 0 || cli_json_finish(json) != 0);
        return cli_json_fail(json, "neither hash_ids, nor keep and new, nor a list of requests");
    }
    if (reader->form != CLI_FORM_NONE && reader->form != form) {
        return cli_json_fail(json, "a line of another form than the lines before");
    }
    int result = form == CLI_FORM_HASH_IDS  ? cli_read_hash_ids(reader, json)
                 : form == CLI_FORM_COMPACT ? cli_read_compact(reader, json)
                                            : cli_read_raw(reader, json);
    reader->form = form;
    return result != 0 ? -1 : cli_json_finish(json);
}

/*
 * The first line is cut off in the middle: either it is broken, or this is one object over many
 * lines. Only a raw conversation comes like that.
 */
static int read_whole(cli_reader *reader, trace_source *source, cli_json *json)
{
    cli_json first = *json;
    int result = SOURCE_LINE;
    uint64_t line = source->line;
    while (result == SOURCE_LINE) {
        result = append_line(source);
    }
    if (result == SOURCE_END) {
        start(json, source, line);
        if (form_of(json) == CLI_FORM_RAW) {
            return read_object(reader, json);
        }
    }
    *json = first;
    if (result == SOURCE_LONG) {
        json->failed = 0;
        return cli_json_fail(json, "one object of more than %u MiB", CLI_TRACE_LINE_MAX >> 20);
    }
    return -1;
}

static int read_line(cli_reader *reader, trace_source *source, cli_json *json)
{
    const char *wrong = source->line == 1 ? check_start(source) : NULL;
    start(json, source, source->line);
    if (wrong != NULL) {
        return cli_json_fail(json, "%s", wrong);
    }
    if (is_blank(source->text, source->used)) {
        return 0;
    }
    if (reader->form == CLI_FORM_NONE) {
        cli_json whole = *json;
        if (cli_json_skip(&whole) != 0 && whole.cut_off) {
            *json = whole;
            return read_whole(reader, source, json);
        }
    }
    return read_object(reader, json);
}

static int read_source(cli_reader *reader, trace_source *source, char *error, size_t error_bytes)
{
    const char *name = reader->trace->name;
    cli_json json;
    int result;
    cli_json_start(&json, "", 0, 0);
    while ((result = append_line(source)) == SOURCE_LINE) {
        source->line++;
        if (read_line(reader, source, &json) != 0) {
            break;
        }
        source->used = 0;
    }
    if (result == SOURCE_ERROR) {
        (void)snprintf(error, error_bytes, "%s: %s", name, strerror(errno));
        return -1;
    }
    if (result == SOURCE_LONG) {
        json.line = source->line + 1;
        (void)cli_json_fail(&json, "a line of more than %u MiB", CLI_TRACE_LINE_MAX >> 20);
    } else if (!json.failed) {
        (void)cli_compact_end(reader, &json);
    }
    if (!json.failed && reader->form == CLI_FORM_NONE) {
        (void)snprintf(error, error_bytes, "%s: empty: no request in it", name);
        return -1;
    }
    if (json.failed) {
        (void)snprintf(error, error_bytes, "%s:%llu: %s", name, (unsigned long long)json.line, json.error);
    }
    return json.failed ? -1 : 0;
}

/* ---- Order ---- */

typedef struct sort_key {
    cli_decimal time;
    uint32_t index;
} sort_key;

static int by_time(const void *left, const void *right)
{
    const sort_key *a = left;
    const sort_key *b = right;
    if (a->time.whole != b->time.whole) {
        return a->time.whole < b->time.whole ? -1 : 1;
    }
    if (a->time.nano != b->time.nano) {
        return a->time.nano < b->time.nano ? -1 : 1;
    }
    return a->index < b->index ? -1 : 1;
}

static void sort_requests(cli_trace *trace)
{
    sort_key *keys = cli_alloc(trace->count, sizeof *keys);
    for (size_t i = 0; i < trace->count; i++) {
        keys[i] = (sort_key){trace->requests[i].time, (uint32_t)i};
    }
    qsort(keys, trace->count, sizeof *keys, by_time);
    trace->order = cli_alloc(trace->count, sizeof *trace->order);
    for (size_t i = 0; i < trace->count; i++) {
        trace->order[i] = keys[i].index;
    }
    free(keys);
}

/* Numbers in order of time, so that an unsorted file gives what its sorted one gives. */
static void renumber(cli_trace *trace, size_t field, cli_strings *strings)
{
    cli_strings sorted = {0};
    for (size_t i = 0; i < trace->count; i++) {
        uint32_t *number = (uint32_t *)(void *)((char *)&trace->requests[trace->order[i]] + field);
        if (*number != 0) {
            *number = cli_strings_number(&sorted, strings->items[*number - 1]) + 1;
        }
    }
    cli_strings_clear(strings);
    *strings = sorted;
}

static void finish(cli_trace *trace)
{
    sort_requests(trace);
    if (trace->tenants.count != 0) {
        renumber(trace, offsetof(cli_request, tenant), &trace->tenants);
    }
    if (trace->sessions.count != 0) {
        renumber(trace, offsetof(cli_request, session), &trace->sessions);
    }
    for (size_t i = 0; i < trace->count; i++) {
        if (trace->requests[i].count > trace->blocks_longest) {
            trace->blocks_longest = trace->requests[i].count;
        }
    }
}

int cli_trace_read(cli_trace *trace, FILE *file, const char *name, uint64_t seed, char *error, size_t error_bytes)
{
    cli_reader reader = {.trace = trace, .seed = seed};
    trace_source source = {.file = file};
    memset(trace, 0, sizeof *trace);
    trace->name = name;
    int result = read_source(&reader, &source, error, error_bytes);
    free(source.text);
    free(reader.agent_last);
    cli_strings_clear(&reader.agents);
    if (result == 0) {
        finish(trace);
    } else {
        cli_trace_free(trace);
    }
    return result;
}

int cli_trace_load(cli_trace *trace, const char *path, uint64_t seed, char *error, size_t error_bytes)
{
    if (strcmp(path, "-") == 0) {
        return cli_trace_read(trace, stdin, "stdin", seed, error, error_bytes);
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        memset(trace, 0, sizeof *trace);
        (void)snprintf(error, error_bytes, "%s: %s", path, strerror(errno));
        return -1;
    }
    int result = cli_trace_read(trace, file, path, seed, error, error_bytes);
    (void)fclose(file);
    return result;
}
