/* SPDX-License-Identifier: Apache-2.0 */
/* The three forms of a trace, each from one JSON object. */
#include "common.h"
#include "trace.h"

#include <stdlib.h>
#include <string.h>

/* A tenant or session: a string, a whole number, or null for none. Returns number + 1, or 0. */
static int read_label(cli_json *json, cli_strings *strings, uint32_t *number)
{
    char text[256];
    uint64_t value;
    *number = 0;
    switch (cli_json_peek(json)) {
    case CLI_JSON_STRING:
        if (cli_json_string(json, text, sizeof text) != 0) {
            return -1;
        }
        break;
    case CLI_JSON_NUMBER:
        if (cli_json_u64(json, &value) != 0) {
            return -1;
        }
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
        break;
    case CLI_JSON_WORD:
        return cli_json_null(json) ? 0 : cli_json_fail(json, "neither a string nor a number");
    default:
        return cli_json_fail(json, "neither a string nor a number");
    }
    *number = cli_strings_number(strings, text) + 1;
    return 0;
}

/* A length in tokens: checked, since a broken one betrays a broken line, but not used. */
static int read_tokens(cli_json *json)
{
    uint64_t tokens;
    return cli_json_u64(json, &tokens);
}

/* Says in which field an error lies. */
static int in_field(cli_json *json, const char *field, int result)
{
    if (result != 0 && json->failed && strlen(field) + strlen(json->error) + 3 < sizeof json->error) {
        size_t length = strlen(field);
        memmove(json->error + length + 2, json->error, strlen(json->error) + 1);
        memcpy(json->error, field, length);
        memcpy(json->error + length, ": ", 2);
        cli_one_line(json->error);
    }
    return result;
}

/* ---- hash_ids ---- */

enum { IDS_HASH_IDS, IDS_TIMESTAMP, IDS_TENANT, IDS_SESSION, IDS_INPUT, IDS_OUTPUT };
static const char *const ids_keys[] = {"hash_ids", "timestamp", "tenant", "session_id",
                                       "input_length", "output_length", NULL};

static int hash_ids_field(cli_reader *reader, cli_json *json, cli_request *request, int field)
{
    cli_trace *trace = reader->trace;
    switch (field) {
    case IDS_HASH_IDS:
        return cli_trace_read_ids(trace, json);
    case IDS_TIMESTAMP:
        return cli_json_decimal(json, &request->time);
    case IDS_TENANT:
        return read_label(json, &trace->tenants, &request->tenant);
    case IDS_SESSION:
        return read_label(json, &trace->sessions, &request->session);
    case IDS_INPUT:
    case IDS_OUTPUT:
        return read_tokens(json);
    default:
        return cli_json_skip(json);
    }
}

int cli_read_hash_ids(cli_reader *reader, cli_json *json)
{
    char key[32];
    uint32_t seen = 0;
    int more;
    cli_request *request = cli_trace_add(reader->trace, json);
    (void)cli_json_begin_object(json);
    while ((more = cli_json_next_key(json, key, sizeof key)) == 1) {
        int field = cli_json_field(json, ids_keys, key, &seen);
        if (field < 0 || in_field(json, key, hash_ids_field(reader, json, request, field)) != 0) {
            return -1;
        }
    }
    if (more != 0) {
        return -1;
    }
    if (!(seen & 1u << IDS_HASH_IDS)) {
        return cli_json_fail(json, "no hash_ids");
    }
    if (seen & 1u << IDS_TIMESTAMP) {
        reader->timestamps_seen = 1;
    } else {
        reader->timestamps_missing = 1;
    }
    if (reader->timestamps_seen && reader->timestamps_missing) {
        return cli_json_fail(json, seen & 1u << IDS_TIMESTAMP ? "a timestamp, which the lines before do not have"
                                                        : "no timestamp, which the lines before have");
    }
    return 0;
}

/* ---- Compact ---- */

enum { HEADER_CONV, HEADER_REQUESTS, HEADER_BLOCK_SIZE };
static const char *const header_keys[] = {"conv", "requests", "block_size", NULL};

enum { REQUEST_T, REQUEST_KEEP, REQUEST_NEW, REQUEST_AGENT, REQUEST_IN, REQUEST_OUT };
static const char *const request_keys[] = {"t", "keep", "new", "agent", "in", "out", NULL};

int cli_compact_end(cli_reader *reader, cli_json *json)
{
    if (reader->form == CLI_FORM_COMPACT && reader->requests_read != reader->requests_said) {
        json->line = reader->header_line;
        return cli_json_fail(json, "a conversation of %lu requests, but %lu follow",
                             (unsigned long)reader->requests_said, (unsigned long)reader->requests_read);
    }
    return 0;
}

static int header_field(cli_reader *reader, cli_json *json, int field)
{
    char text[256];
    uint64_t count;
    switch (field) {
    case HEADER_CONV:
        return cli_json_string(json, text, sizeof text);
    case HEADER_REQUESTS:
        if (cli_json_u64(json, &count) != 0) {
            return -1;
        }
        reader->requests_said = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
        return 0;
    case HEADER_BLOCK_SIZE:
        return cli_trace_block_size(reader->trace, json);
    default:
        return cli_json_skip(json);
    }
}

static int read_header(cli_reader *reader, cli_json *json)
{
    char key[32];
    uint32_t seen = 0;
    int more;
    if (cli_compact_end(reader, json) != 0) {
        return -1;
    }
    reader->form = CLI_FORM_COMPACT;
    reader->header_line = (uint32_t)json->line;
    reader->requests_read = 0;
    (void)cli_json_begin_object(json);
    while ((more = cli_json_next_key(json, key, sizeof key)) == 1) {
        int field = cli_json_field(json, header_keys, key, &seen);
        if (field < 0 || in_field(json, key, header_field(reader, json, field)) != 0) {
            return -1;
        }
    }
    if (more == 0 && !(seen & 1u << HEADER_REQUESTS)) {
        return cli_json_fail(json, "a header without the number of requests");
    }
    cli_strings_clear(&reader->agents);
    reader->start_ns = cli_trace_start_ns(reader->seed, ++reader->trace->scope_count);
    return more;
}

/* [[start, count], ...] */
static int read_ranges(cli_reader *reader, cli_json *json)
{
    uint64_t start, count;
    int more;
    if (cli_json_begin_array(json) != 0) {
        return -1;
    }
    while ((more = cli_json_next_item(json)) == 1) {
        if (cli_json_begin_array(json) != 0 || cli_json_next_item(json) != 1 || cli_json_u64(json, &start) != 0 ||
            cli_json_next_item(json) != 1 || cli_json_u64(json, &count) != 0 || cli_json_next_item(json) != 0) {
            return cli_json_fail(json, "a range that is not [start, count]");
        }
        if (cli_trace_add_ids(reader->trace, json, start, count) != 0) {
            return -1;
        }
    }
    return more;
}

typedef struct request_links {
    char agent[256]; /* "" = the main one */
    uint64_t keep;
} request_links;

static int request_field(cli_reader *reader, cli_json *json, int field, request_links *links)
{
    cli_request *request = &reader->trace->requests[reader->trace->count - 1];
    switch (field) {
    case REQUEST_T:
        return cli_trace_time(json, reader->start_ns, &request->time);
    case REQUEST_KEEP:
        return cli_json_u64(json, &links->keep);
    case REQUEST_NEW:
        return read_ranges(reader, json);
    case REQUEST_AGENT:
        return cli_json_string(json, links->agent, sizeof links->agent);
    case REQUEST_IN:
    case REQUEST_OUT:
        return read_tokens(json);
    default:
        return cli_json_skip(json);
    }
}

/* The place where the agent's last request is remembered. */
static uint32_t *agent_last(cli_reader *reader, const char *agent)
{
    size_t known = reader->agents.count;
    uint32_t number = cli_strings_number(&reader->agents, agent);
    reader->agent_last = cli_grow(reader->agent_last, number, &reader->agent_room, sizeof *reader->agent_last);
    if (number == known) {
        reader->agent_last[number] = CLI_TRACE_NONE;
    }
    return &reader->agent_last[number];
}

static int read_request(cli_reader *reader, cli_json *json)
{
    char key[32];
    request_links links = {"", 0};
    uint32_t seen = 0;
    int more;
    cli_request *request = cli_trace_add(reader->trace, json);
    request->scope = request->session = reader->trace->scope_count;
    (void)cli_json_begin_object(json);
    while ((more = cli_json_next_key(json, key, sizeof key)) == 1) {
        int field = cli_json_field(json, request_keys, key, &seen);
        if (field < 0 || in_field(json, key, request_field(reader, json, field, &links)) != 0) {
            return -1;
        }
    }
    if (more != 0) {
        return -1;
    }
    for (int field = REQUEST_T; field <= REQUEST_NEW; field++) {
        if (!(seen & 1u << field)) {
            return cli_json_fail(json, "no %s", request_keys[field]);
        }
    }
    uint32_t *last = agent_last(reader, links.agent);
    if (cli_trace_keep(reader->trace, json, *last, links.keep) != 0) {
        return -1;
    }
    *last = (uint32_t)(reader->trace->count - 1);
    reader->requests_read++;
    return 0;
}

int cli_read_compact(cli_reader *reader, cli_json *json)
{
    char key[32];
    cli_json ahead = *json;
    int more;
    (void)cli_json_begin_object(&ahead);
    while ((more = cli_json_next_key(&ahead, key, sizeof key)) == 1 && strcmp(key, "conv") != 0) {
        (void)cli_json_skip(&ahead);
    }
    if (more == 1) {
        return read_header(reader, json);
    }
    return reader->trace->scope_count != 0 ? read_request(reader, json)
                                           : cli_json_fail(json, "a request before the header of its conversation");
}

/* ---- Raw ---- */

enum { RAW_T, RAW_HASH_IDS, RAW_REQUESTS, RAW_IN, RAW_OUT, RAW_BLOCK_SIZE, RAW_SCOPE };
static const char *const raw_keys[] = {"t", "hash_ids", "requests", "in", "out", "block_size",
                                       "hash_id_scope", NULL};

typedef struct raw_object {
    cli_decimal time;
    int global; /* of a conversation: its ids are */
} raw_object;

static int read_raw_object(cli_reader *reader, cli_json *json, int top, uint32_t *seen, raw_object *object);

static int read_raw_requests(cli_reader *reader, cli_json *json)
{
    int more;
    raw_object nothing;
    uint32_t seen;
    if (cli_json_begin_array(json) != 0) {
        return -1;
    }
    while ((more = cli_json_next_item(json)) == 1) {
        if (read_raw_object(reader, json, 0, &seen, &nothing) != 0) {
            return -1;
        }
    }
    return more;
}

static int read_scope(cli_json *json, int *global)
{
    char text[32];
    if (cli_json_string(json, text, sizeof text) != 0) {
        return -1;
    }
    *global = strcmp(text, "global") == 0;
    return *global || strcmp(text, "local") == 0 ? 0 : cli_json_fail(json, "neither local nor global");
}

static int raw_field(cli_reader *reader, cli_json *json, int field, raw_object *object)
{
    switch (field) {
    case RAW_T:
        return cli_trace_time(json, 0, &object->time);
    case RAW_HASH_IDS:
        return cli_trace_read_ids(reader->trace, json);
    case RAW_REQUESTS:
        return read_raw_requests(reader, json);
    case RAW_IN:
    case RAW_OUT:
        return read_tokens(json);
    case RAW_BLOCK_SIZE:
        return cli_trace_block_size(reader->trace, json);
    case RAW_SCOPE:
        return read_scope(json, &object->global);
    default:
        return cli_json_skip(json);
    }
}

/* Requests from `first` on start `by` later: a sub-agent's times count from its own start. */
static void shift(cli_trace *trace, size_t first, cli_decimal by)
{
    for (size_t i = first; i < trace->count; i++) {
        cli_decimal *time = &trace->requests[i].time;
        time->nano += by.nano;
        time->whole += by.whole + time->nano / 1000000000u;
        time->nano %= 1000000000u;
    }
}

/* A conversation (top), a request or a sub-agent: which, its members say, in any order. A
   request is added before it is known not to be a sub-agent, so that its ids have a place. */
static int read_raw_object(cli_reader *reader, cli_json *json, int top, uint32_t *seen, raw_object *object)
{
    cli_trace *trace = reader->trace;
    char key[32];
    int more;
    size_t first = trace->count;
    *seen = 0;
    memset(object, 0, sizeof *object);
    uint32_t line = (uint32_t)json->line;
    if (cli_json_begin_object(json) != 0) {
        return -1;
    }
    while ((more = cli_json_next_key(json, key, sizeof key)) == 1) {
        int field = cli_json_field(json, raw_keys, key, seen);
        if (field == RAW_HASH_IDS && !top) {
            cli_trace_add(trace, json)->line = line;
        }
        if (field < 0 || in_field(json, key, raw_field(reader, json, field, object)) != 0) {
            return -1;
        }
    }
    if (more != 0) {
        return -1;
    }
    int is_request = (*seen & 1u << RAW_HASH_IDS) != 0;
    if (is_request == ((*seen & 1u << RAW_REQUESTS) != 0)) {
        return cli_json_fail(json, is_request ? "both hash_ids and requests" : "neither hash_ids nor requests");
    }
    if (!top && !(*seen & 1u << RAW_T)) {
        return cli_json_fail(json, "a request without t");
    }
    shift(trace, first, object->time);
    return 0;
}

int cli_read_raw(cli_reader *reader, cli_json *json)
{
    cli_trace *trace = reader->trace;
    size_t first = trace->count;
    uint32_t seen;
    raw_object object;
    if (read_raw_object(reader, json, 1, &seen, &object) != 0) {
        return -1;
    }
    uint64_t start_ns = cli_trace_start_ns(reader->seed, ++trace->scope_count);
    shift(trace, first, (cli_decimal){(int64_t)(start_ns / 1000000000u), (uint32_t)(start_ns % 1000000000u)});
    for (size_t i = first; i < trace->count; i++) {
        trace->requests[i].scope = object.global ? 0 : trace->scope_count;
        trace->requests[i].session = trace->scope_count;
    }
    return 0;
}
