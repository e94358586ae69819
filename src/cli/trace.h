/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A serving trace in memory: requests in order of time, each a list of block ids.
 *
 * Three forms, recognised by content (kvonce-replay(1) has their fields):
 *   hash_ids    a request a line; ids are global; optional timestamp, tenant, session_id
 *   compact     a header line a conversation, then a request a line that keeps the first ids
 *               of its predecessor and adds ranges; ids are local to the conversation
 *   raw         one JSON object a conversation, requests and sub-agents nested in it
 *
 * Ids stay as they came: runs, and references to the predecessor, so that a trace of 94 million
 * references takes a few megabytes. cli_trace_expand() writes one request's ids out.
 */
#ifndef CLI_TRACE_H
#define CLI_TRACE_H

#include "json_in.h"
#include "strings.h"

#include <stddef.h>
#include <stdint.h>

#define CLI_TRACE_BLOCKS_MAX (1u << 20) /* of one request: what one call of the store takes */
#define CLI_TRACE_LINE_MAX (64u << 20)  /* bytes of one line, or of a raw conversation */
#define CLI_TRACE_NONE UINT32_MAX

typedef struct cli_range {
    uint64_t start;
    uint32_t count;
} cli_range;

typedef struct cli_request {
    cli_decimal time;   /* in the trace's unit, which only orders */
    size_t range_first; /* its own ids, behind the kept ones */
    uint32_t range_count;
    uint32_t previous;  /* index in requests, or CLI_TRACE_NONE */
    uint32_t keep;      /* ids taken from the previous one */
    uint32_t count;     /* ids in all */
    uint32_t line;
    uint32_t scope;     /* conversation, from 1, to which ids are local; 0 = global */
    uint32_t tenant;    /* from 1 in order of time; 0 = none */
    uint32_t session;   /* from 1; 0 = none */
} cli_request;

typedef struct cli_trace {
    const char *name;      /* as in messages */
    cli_request *requests; /* as in the file */
    size_t count;
    uint32_t *order;       /* indices in order of time */
    cli_range *ranges;
    size_t range_count;
    cli_strings tenants;   /* of order of appearance in time: tenants.items[tenant - 1] */
    cli_strings sessions;
    uint32_t scope_count;
    uint32_t block_tokens; /* 0 = the trace does not say */
    uint32_t blocks_longest; /* ids of the longest request */
    size_t request_room, range_room;
} cli_trace;

/*
 * Reads a trace from `path`, "-" = standard input. Conversations without an absolute time
 * start at times drawn from `seed` between 0 and 24 h. 0, or -1 with one line in `error`.
 */
int cli_trace_load(cli_trace *trace, const char *path, uint64_t seed, char *error, size_t error_bytes);
/* The same of an open file; `name` stays the caller's, as long as the trace. */
int cli_trace_read(cli_trace *trace, FILE *file, const char *name, uint64_t seed, char *error, size_t error_bytes);
void cli_trace_free(cli_trace *trace);

/* Writes requests[index].count ids. */
void cli_trace_expand(const cli_trace *trace, uint32_t index, uint64_t *ids);

/* ---- Between the readers of the three forms ---- */

typedef enum cli_form { CLI_FORM_NONE = 0, CLI_FORM_HASH_IDS, CLI_FORM_COMPACT, CLI_FORM_RAW } cli_form;

typedef struct cli_reader {
    cli_trace *trace;
    cli_form form;
    uint64_t seed;
    /* hash_ids: whether the lines so far had a timestamp */
    int timestamps_seen, timestamps_missing;
    /* compact: the open conversation */
    uint64_t start_ns;
    uint32_t header_line, requests_said, requests_read;
    cli_strings agents;
    uint32_t *agent_last; /* last request of each agent */
    size_t agent_room;
} cli_reader;

/* One JSON object each; 0, or -1 with json->error. */
int cli_read_hash_ids(cli_reader *reader, cli_json *json);
int cli_read_compact(cli_reader *reader, cli_json *json);
int cli_read_raw(cli_reader *reader, cli_json *json);
/* At the next header and at the end: did the conversation have all its requests? */
int cli_compact_end(cli_reader *reader, cli_json *json);

cli_request *cli_trace_add(cli_trace *trace, const cli_json *json);
/* Adds ids behind the newest request's, joining runs. */
int cli_trace_add_ids(cli_trace *trace, cli_json *json, uint64_t start, uint64_t count);
/* Links the newest request to its predecessor. */
int cli_trace_keep(cli_trace *trace, cli_json *json, uint32_t previous, uint64_t keep);
/* A list of ids. */
int cli_trace_read_ids(cli_trace *trace, cli_json *json);
int cli_trace_block_size(cli_trace *trace, cli_json *json);
/* The conversation's start, drawn; then t seconds later. */
uint64_t cli_trace_start_ns(uint64_t seed, uint32_t scope);
int cli_trace_time(cli_json *json, uint64_t start_ns, cli_decimal *time);

#endif
