/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace that is taken, written out request by request in order of time, reads back as the same requests; with a byte
 * order mark in front it means the same. What is refused is refused in one line that begins with the file's name.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/cli/common.h"
#include "../src/cli/trace.h"

enum { IDS_MAX = 20000 }; /* written out: a range of a few bytes may hold a million */

static int read_text(cli_trace *trace, char *text, size_t bytes, char error[512])
{
    FILE *file = bytes ? fmemopen(text, bytes, "rb") : fopen("/dev/null", "rb");
    MUST(file != NULL, "no memory for a file");
    error[0] = 0;
    int result = cli_trace_read(trace, file, "name", 1, error, 512);
    fclose(file);
    return result;
}

static uint64_t ids_of(const cli_trace *trace)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < trace->count; i++)
        sum += trace->requests[i].count;
    return sum;
}

static void write_label(FILE *out, const char *member, const char *label)
{
    fprintf(out, ", \"%s\": \"", member);
    for (const char *at = label; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == '"' || *at == '\\')
            fprintf(out, "\\u%04x", (unsigned)(unsigned char)*at);
        else
            fputc(*at, out);
    }
    fputc('"', out);
}

static void write_request(FILE *out, const cli_trace *trace, uint32_t index, size_t time, uint64_t *ids)
{
    const cli_request *request = &trace->requests[index];
    MUST(request->count <= trace->blocks_longest, "more ids than the longest request has");
    memset(ids, 0xee, request->count * sizeof *ids);
    cli_trace_expand(trace, index, ids);
    fprintf(out, "{\"timestamp\": %zu", time);
    if (request->tenant)
        write_label(out, "tenant", trace->tenants.items[request->tenant - 1]);
    if (request->session && trace->sessions.count)
        write_label(out, "session_id", trace->sessions.items[request->session - 1]);
    fputs(", \"hash_ids\": [", out);
    for (uint32_t i = 0; i < request->count; i++)
        fprintf(out, "%s%llu", i ? "," : "", (unsigned long long)ids[i]);
    fputs("]}\n", out);
}

static char *write_out(const cli_trace *trace, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    uint64_t *ids = malloc((trace->blocks_longest + 1) * sizeof *ids);
    MUST(out && ids, "no memory");
    for (size_t i = 0; i < trace->count; i++)
        write_request(out, trace, trace->order[i], i, ids);
    free(ids);
    fclose(out);
    return text;
}

static void must_read_back(const cli_trace *trace)
{
    char error[512], *text, *again;
    size_t bytes, again_bytes;
    cli_trace second;
    if (trace->count == 0 || ids_of(trace) > IDS_MAX)
        return;
    text = write_out(trace, &bytes);
    MUST(read_text(&second, text, bytes, error) == 0, "%s\n  in %s", error, text);
    again = write_out(&second, &again_bytes);
    MUST(bytes == again_bytes && memcmp(text, again, bytes) == 0, "%s became\n%s", text, again);
    MUST(second.blocks_longest == trace->blocks_longest && second.tenants.count == trace->tenants.count,
         "%u ids and %zu tenants", second.blocks_longest, second.tenants.count);
    cli_trace_free(&second);
    free(text);
    free(again);
}

/* The line that is named is one of the file's, or the one after it. */
static void must_be_refused_well(const char *text, size_t bytes, const char *error)
{
    unsigned long long line, lines = 1;
    fuzz_must_be_line(error);
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    if (strcmp(error, "name: empty: no request in it") == 0)
        return;
    MUST(sscanf(error, "name:%llu: ", &line) == 1 && line >= 1 && line <= lines, "%llu lines, and %s", lines, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char error[512], marked_error[512];
    cli_trace trace, marked;
    char *text = malloc(bytes + 3);
    MUST(text != NULL, "no memory");
    memcpy(text, "\xef\xbb\xbf", 3);
    if (bytes)
        memcpy(text + 3, data, bytes);
    int result = read_text(&trace, text + 3, bytes, error);
    bool plain = bytes < 2 || (memcmp(data, "\x1f\x8b", 2) != 0 && data[0] != 0xef && data[0] != 0x28);
    if (plain) {
        MUST(read_text(&marked, text, bytes + 3, marked_error) == result && strcmp(error, marked_error) == 0,
             "with a byte order mark: %s, not %s", marked_error, error);
        if (result == 0) {
            MUST(marked.count == trace.count && ids_of(&marked) == ids_of(&trace), "with a byte order mark it differs");
            cli_trace_free(&marked);
        }
    }
    if (result == 0) {
        must_read_back(&trace);
        cli_trace_free(&trace);
    } else
        must_be_refused_well(text + 3, bytes, error);
    free(text);
    return 0;
}
