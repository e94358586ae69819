/* SPDX-License-Identifier: Apache-2.0 */
/* One request through the store: match, get what is there, put the rest. */
#include "common.h"
#include "payload.h"
#include "replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Blocks of one call: what its payload may take, and never more than the longest request. */
static uint32_t blocks_of_call(const cli_replay *replay)
{
    uint64_t blocks = CLI_CALL_BYTES_MAX / replay->block_bytes;
    if (blocks > replay->trace.blocks_longest) {
        blocks = replay->trace.blocks_longest;
    }
    return blocks != 0 ? (uint32_t)blocks : 1;
}

int cli_replay_prepare(cli_replay *replay)
{
    uint32_t longest = replay->trace.blocks_longest;
    replay->ids = cli_alloc(longest, sizeof *replay->ids);
    replay->names = cli_alloc(longest, CLI_NAME_BYTES);
    replay->answers = cli_alloc(longest, sizeof *replay->answers);
    replay->call_blocks = blocks_of_call(replay);
    replay->segments = cli_alloc(replay->call_blocks, sizeof *replay->segments);
    if (!replay->ghost) {
        /* Reserved, not touched: only what requests really use is backed. */
        replay->memory_bytes = (size_t)(replay->call_blocks * replay->block_bytes);
        replay->memory = mmap(NULL, replay->memory_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (replay->memory == MAP_FAILED) {
            replay->memory = NULL;
            return cli_fail("memory for one request, %zu bytes: %s", replay->memory_bytes, strerror(errno));
        }
    }
    for (uint32_t i = 0; i < replay->call_blocks; i++) {
        replay->segments[i].bytes = (size_t)replay->block_bytes;
        replay->segments[i].base = replay->ghost ? NULL : (char *)replay->memory + i * replay->block_bytes;
    }
    return 0;
}

void cli_replay_release(cli_replay *replay)
{
    if (replay->memory != NULL) {
        (void)munmap(replay->memory, replay->memory_bytes);
    }
    free(replay->ids);
    free(replay->names);
    free(replay->answers);
    free(replay->segments);
    cli_ids_free(&replay->seen);
    cli_ids_free(&replay->events.written);
    cli_trace_free(&replay->trace);
}

/* What an infinite cache would have had: the longest prefix that came before. */
static void count_bound(cli_replay *replay, const cli_request *request)
{
    uint32_t prefix = 0;
    while (prefix < request->count && cli_ids_has(&replay->seen, request->scope, replay->ids[prefix], 0)) {
        prefix++;
    }
    for (uint32_t i = prefix; i < request->count; i++) {
        (void)cli_ids_mark(&replay->seen, request->scope, replay->ids[i], 0);
    }
    replay->bound_hits += prefix;
}

static kvo_names names_at(const cli_replay *replay, uint32_t first, uint32_t count)
{
    return (kvo_names){.first = replay->names + (size_t)first * CLI_NAME_BYTES,
                       .name_bytes = CLI_NAME_BYTES,
                       .count = count,
                       .space = replay->space};
}

static uint32_t call_count(const cli_replay *replay, uint32_t first, uint32_t end)
{
    return end - first < replay->call_blocks ? end - first : replay->call_blocks;
}

static int call_failed(const cli_replay *replay, const cli_request *request, const char *call, int status)
{
    return cli_fail("%s:%lu: %s: %s", replay->trace.name, (unsigned long)request->line, call,
                    kvo_status_text(status));
}

/* Looks at what a get of `count` blocks brought. Returns how many came before the first that did
   not. */
static uint32_t check_got(cli_replay *replay, uint32_t first, uint32_t count)
{
    uint32_t prefix = 0;
    int whole = 1;
    for (uint32_t i = 0; i < count; i++) {
        const kvo_answer *answer = &replay->answers[first + i];
        if (answer->status != KVO_OK) {
            whole = 0;
            continue;
        }
        prefix += (uint32_t)whole;
        replay->below_bytes += answer->tier != 0 && whole ? replay->block_bytes : 0;
        if (!replay->ghost && !cli_payload_is(replay->names + (size_t)(first + i) * CLI_NAME_BYTES,
                                              replay->segments[i].base, (size_t)replay->block_bytes)) {
            replay->wrong_reads++;
        }
    }
    return prefix;
}

/* Gets blocks [0, *end) and cuts *end to those that really came. */
static int get_prefix(cli_replay *replay, const cli_request *request, uint32_t *end)
{
    kvo_memory memory = {replay->segments, NULL};
    uint32_t got = 0;
    for (uint32_t first = 0; first < *end; first = got) {
        uint32_t count = call_count(replay, first, *end);
        kvo_names names = names_at(replay, first, count);
        uint64_t start = cli_now_ns();
        int status = kvo_get(replay->store, &names, &memory, NULL, replay->answers + first);
        cli_latency_add(&replay->get, cli_now_ns() - start);
        if (status != KVO_OK) {
            return call_failed(replay, request, "get", status);
        }
        got += check_got(replay, first, count);
        if (got != first + count) {
            *end = got;
        }
    }
    return 0;
}

static void check_put(cli_replay *replay, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        int status = replay->answers[i].status;
        if (status == KVO_BUSY) {
            replay->puts_busy++;
        } else if (status != KVO_STORED && status != KVO_EXISTS) {
            replay->puts_failed++;
            replay->put_failure = status;
        }
    }
}

/* Puts blocks [first, request->count). */
static int put_rest(cli_replay *replay, const cli_request *request, uint32_t first)
{
    kvo_put_options options = KVO_PUT_OPTIONS_INIT;
    kvo_memory memory = {replay->segments, NULL};
    options.chained = 1;
    options.sequence = request->session;
    options.policy.tenant = (uint16_t)(request->tenant < KVO_TENANT_OTHER ? request->tenant : KVO_TENANT_OTHER);
    for (uint32_t count; first < request->count; first += count) {
        count = call_count(replay, first, request->count);
        kvo_names names = names_at(replay, first, count);
        options.position = (uint32_t)(first * replay->block_tokens);
        options.parent = first != 0 ? replay->names + (size_t)(first - 1) * CLI_NAME_BYTES : NULL;
        for (uint32_t i = 0; !replay->ghost && i < count; i++) {
            cli_payload_fill(replay->names + (size_t)(first + i) * CLI_NAME_BYTES, replay->segments[i].base,
                             (size_t)replay->block_bytes);
        }
        uint64_t start = cli_now_ns();
        int status = kvo_put(replay->store, &names, &memory, &options, replay->answers + first);
        cli_latency_add(&replay->put, cli_now_ns() - start);
        if (status != KVO_OK) {
            return call_failed(replay, request, "put", status);
        }
        check_put(replay, first, count);
    }
    return 0;
}

int cli_replay_request(cli_replay *replay, uint32_t index)
{
    const cli_request *request = &replay->trace.requests[index];
    size_t matched = 0;
    replay->requests++;
    replay->references += request->count;
    if (request->count == 0) {
        return 0;
    }
    cli_trace_expand(&replay->trace, index, replay->ids);
    count_bound(replay, request);
    for (uint32_t i = 0; i < request->count; i++) {
        cli_name_write(replay->names + (size_t)i * CLI_NAME_BYTES, request->scope, replay->ids[i]);
    }
    kvo_names names = names_at(replay, 0, request->count);
    uint64_t start = cli_now_ns();
    int status = kvo_match(replay->store, &names, replay->answers, &matched);
    cli_latency_add(&replay->match, cli_now_ns() - start);
    if (status != KVO_OK) {
        return call_failed(replay, request, "match", status);
    }
    uint32_t hits = (uint32_t)matched;
    if (get_prefix(replay, request, &hits) != 0) {
        return CLI_FAIL;
    }
    replay->hits += hits;
    return put_rest(replay, request, hits);
}
