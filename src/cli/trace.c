/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include "common.h"

#include <stdlib.h>
#include <string.h>

cli_request *cli_trace_add(cli_trace *trace, const cli_json *json)
{
    trace->requests = cli_grow(trace->requests, trace->count, &trace->request_room, sizeof *trace->requests);
    cli_request *request = &trace->requests[trace->count++];
    memset(request, 0, sizeof *request);
    request->line = (uint32_t)json->line;
    request->previous = CLI_TRACE_NONE;
    request->range_first = trace->range_count;
    return request;
}

int cli_trace_add_ids(cli_trace *trace, cli_json *json, uint64_t start, uint64_t count)
{
    cli_request *request = &trace->requests[trace->count - 1];
    if (count > CLI_TRACE_BLOCKS_MAX - request->count) {
        return cli_json_fail(json, "a request of more than %u blocks", CLI_TRACE_BLOCKS_MAX);
    }
    if (count == 0) {
        return 0;
    }
    if (start > UINT64_MAX - (count - 1)) {
        return cli_json_fail(json, "a range of ids that goes beyond 2^64 - 1");
    }
    request->count += (uint32_t)count;
    if (request->range_count != 0) {
        cli_range *last = &trace->ranges[trace->range_count - 1];
        if (start != 0 && last->start + (last->count - 1) == start - 1) {
            last->count += (uint32_t)count;
            return 0;
        }
    }
    trace->ranges = cli_grow(trace->ranges, trace->range_count, &trace->range_room, sizeof *trace->ranges);
    trace->ranges[trace->range_count++] = (cli_range){start, (uint32_t)count};
    request->range_count++;
    return 0;
}

int cli_trace_keep(cli_trace *trace, cli_json *json, uint32_t previous, uint64_t keep)
{
    cli_request *request = &trace->requests[trace->count - 1];
    uint32_t have = previous == CLI_TRACE_NONE ? 0 : trace->requests[previous].count;
    if (keep > have) {
        return cli_json_fail(json, "keeps %llu blocks, but the request before it has %lu",
                             (unsigned long long)keep, (unsigned long)have);
    }
    if (keep > CLI_TRACE_BLOCKS_MAX - request->count) {
        return cli_json_fail(json, "a request of more than %u blocks", CLI_TRACE_BLOCKS_MAX);
    }
    /* What the predecessor itself took over, its own predecessor has: shorter chains. */
    while (keep != 0 && trace->requests[previous].keep >= keep) {
        previous = trace->requests[previous].previous;
    }
    request->previous = keep != 0 ? previous : CLI_TRACE_NONE;
    request->keep = (uint32_t)keep;
    request->count += (uint32_t)keep;
    return 0;
}

int cli_trace_read_ids(cli_trace *trace, cli_json *json)
{
    uint64_t id;
    int more = cli_json_begin_array(json);
    if (more != 0) {
        return -1;
    }
    while ((more = cli_json_next_item(json)) == 1) {
        if (cli_json_u64(json, &id) != 0 || cli_trace_add_ids(trace, json, id, 1) != 0) {
            return -1;
        }
    }
    return more;
}

int cli_trace_block_size(cli_trace *trace, cli_json *json)
{
    uint64_t tokens;
    if (cli_json_u64(json, &tokens) != 0) {
        return -1;
    }
    if (tokens < 1 || tokens > 65535) {
        return cli_json_fail(json, "block_size is %llu, not 1 to 65535", (unsigned long long)tokens);
    }
    if (trace->block_tokens != 0 && trace->block_tokens != tokens) {
        return cli_json_fail(json, "block_size is %llu, and %lu before", (unsigned long long)tokens,
                             (unsigned long)trace->block_tokens);
    }
    trace->block_tokens = (uint32_t)tokens;
    return 0;
}

uint64_t cli_trace_start_ns(uint64_t seed, uint32_t scope)
{
    uint64_t state = seed * 0xd1342543de82ef95u + scope;
    (void)cli_random(&state);
    uint64_t milliseconds = ((cli_random(&state) >> 32) * 86400000u) >> 32;
    return milliseconds * 1000000u;
}

int cli_trace_time(cli_json *json, uint64_t start_ns, cli_decimal *time)
{
    if (cli_json_decimal(json, time) != 0) {
        return -1;
    }
    if (time->whole < 0 || time->whole > INT64_MAX / 4) {
        return cli_json_fail(json, "t is not a number of seconds from 0");
    }
    uint64_t nano = start_ns % 1000000000u + time->nano;
    time->whole += (int64_t)(start_ns / 1000000000u + nano / 1000000000u);
    time->nano = (uint32_t)(nano % 1000000000u);
    return 0;
}

/* Writes the first `count` of a request's own ids. */
static void expand_own(const cli_trace *trace, const cli_request *request, uint32_t count, uint64_t *ids)
{
    const cli_range *range = &trace->ranges[request->range_first];
    for (; count != 0; range++) {
        uint32_t take = range->count < count ? range->count : count;
        for (uint32_t i = 0; i < take; i++) {
            *ids++ = range->start + i;
        }
        count -= take;
    }
}

void cli_trace_expand(const cli_trace *trace, uint32_t index, uint64_t *ids)
{
    const cli_request *request = &trace->requests[index];
    uint32_t want = request->count;
    while (want != 0) {
        if (want > request->keep) {
            expand_own(trace, request, want - request->keep, ids + request->keep);
            want = request->keep;
        }
        if (want != 0) {
            request = &trace->requests[request->previous];
        }
    }
}

void cli_trace_free(cli_trace *trace)
{
    free(trace->requests);
    free(trace->order);
    free(trace->ranges);
    cli_strings_clear(&trace->tenants);
    cli_strings_clear(&trace->sessions);
    memset(trace, 0, sizeof *trace);
}
