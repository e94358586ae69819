/* SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"

#include "commands.h"
#include "common.h"
#include "options.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_BLOCK_BYTES (5u << 20)
#define DEFAULT_BLOCK_TOKENS 512

static volatile sig_atomic_t stopped_by;

static void stop(int signal_number)
{
    stopped_by = signal_number;
}

/* The first signal ends the replay after the request in hand; the next one kills, as before. */
static void catch_signals(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = stop;
    action.sa_flags = (int)(SA_RESETHAND | SA_RESTART);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

/* ---- Progress ---- */

typedef struct progress {
    int shown; /* standard error is a terminal */
    uint64_t start_ns, next_ns;
    uint64_t references; /* of the whole replay */
} progress;

static void progress_start(progress *line, const cli_replay *replay)
{
    memset(line, 0, sizeof *line);
    line->shown = isatty(STDERR_FILENO);
    line->start_ns = cli_now_ns();
    for (size_t i = 0; i < replay->trace.count && i < replay->limit; i++) {
        line->references += replay->trace.requests[replay->trace.order[i]].count;
    }
}

static void progress_show(progress *line, const cli_replay *replay)
{
    char rate_text[CLI_COUNT_TEXT];
    if (!line->shown) {
        return;
    }
    uint64_t now = cli_now_ns();
    if (now < line->next_ns || replay->references == 0) {
        return;
    }
    line->next_ns = now + 200000000u;
    double rate = (double)replay->references / ((double)(now - line->start_ns) / 1e9);
    uint64_t left = (uint64_t)((double)(line->references - replay->references) / rate);
    fprintf(stderr, "\r%5.1f %%  %s blocks/s  %llu:%02llu left\033[K",
            100.0 * (double)replay->references / (double)line->references,
            cli_count_text((uint64_t)rate, rate_text), (unsigned long long)(left / 60),
            (unsigned long long)(left % 60));
}

static void progress_end(const progress *line)
{
    if (line->shown) {
        fputs("\r\033[K", stderr);
    }
}

/* ---- Opening ---- */

static void log_line(void *context, const char *line)
{
    (void)context;
    (void)cli_fail("%s", line);
}

/* Different names in the whole trace: as many control records as an infinite store may need. */
static uint64_t count_unique(const cli_trace *trace)
{
    cli_ids ids = {0};
    for (size_t i = 0; i < trace->count; i++) {
        const cli_request *request = &trace->requests[i];
        for (uint32_t r = 0; r < request->range_count; r++) {
            const cli_range *range = &trace->ranges[request->range_first + r];
            for (uint32_t k = 0; k < range->count; k++) {
                (void)cli_ids_mark(&ids, request->scope, range->start + k, 0);
            }
        }
    }
    uint64_t unique = ids.marked[0];
    cli_ids_free(&ids);
    return unique != 0 ? unique : 1;
}

static int open_store(cli_replay *replay, const char *tiers_text)
{
    kvo_tier_config tiers[KVO_TIERS_MAX];
    kvo_error error = {""};
    uint32_t count;
    size_t paths_bytes = strlen(tiers_text) + 1;
    char *paths = cli_alloc(paths_bytes, 1);
    int status = kvo_parse_tiers(tiers_text, tiers, &count, paths, paths_bytes, &error);
    if (status == KVO_OK) {
        for (uint32_t i = 0; i < count; i++) {
            if (tiers[i].capacity_blocks == KVO_INFINITE && replay->options.blocks_max == 0) {
                replay->options.blocks_max = count_unique(&replay->trace);
            }
        }
        status = kvo_open_tiers(tiers, count, &replay->options, &replay->store, &error);
    }
    free(paths);
    return status == KVO_OK ? 0 : cli_refused(status, &error);
}

static int open_space(cli_replay *replay, const char *label)
{
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_error error = {""};
    config.label = label;
    config.model = "bytes derived from the name";
    config.engine = "kvonce replay";
    config.engine_version = "1"; /* of src/cli/payload.c */
    config.block_positions = (uint32_t)replay->block_tokens;
    config.block_bytes_max = replay->block_bytes;
    int status = kvo_space_open(replay->store, &config, &replay->space, &error);
    return status == KVO_OK ? 0 : cli_refused(status, &error);
}

/* ---- Running ---- */

static int replay_all(cli_replay *replay)
{
    progress line;
    int result = 0;
    progress_start(&line, replay);
    atomic_store(&replay->events.open, 1);
    for (size_t i = 0; i < replay->trace.count && i < replay->limit && result == 0 && !stopped_by; i++) {
        result = cli_replay_request(replay, replay->trace.order[i]);
        progress_show(&line, replay);
    }
    replay->elapsed_ns = cli_now_ns() - line.start_ns;
    progress_end(&line);
    return result;
}

/* What closing writes (memory's last blocks) is no part of the figures, so events end before. */
static int run_store(cli_replay *replay, const char *space)
{
    int result = open_space(replay, space);
    if (result == 0) {
        result = cli_snapshot_take(replay->store, &replay->before);
    }
    if (result == 0) {
        result = replay_all(replay);
    }
    if (result == 0) {
        result = cli_snapshot_take(replay->store, &replay->after);
    }
    atomic_store(&replay->events.open, 0);
    int status = kvo_close(replay->store, KVO_FOREVER);
    replay->store = NULL;
    /* KVO_SHORT: more in memory than the disk has room for. The replay is over, nobody wants it. */
    if (status != KVO_OK && status != KVO_SHORT && result == 0) {
        result = cli_fail("close: %s", kvo_status_text(status));
    }
    return result;
}

/* ---- The command ---- */

typedef struct replay_texts {
    const char *tiers, *block_bytes, *block_tokens, *ghost, *hierarchy, *policy, *events, *json, *seed, *limit,
        *space, *mover;
} replay_texts;

static const cli_command replay_command = {
    "replay", "TRACE", "Replays a serving trace through a store and reports what it hit, moved and wrote.",
    "TRACE is a file, or - for standard input: JSON lines with hash_ids (any block size;\n"
    "tenant and session_id are optional), the compact agentic form, or a conversation's raw JSON.\n\n"
    "SPEC lists one to four tiers, fastest first: dram:CAPACITY and disk:DIR:CAPACITY. A capacity is\n"
    "a size (2G, 1.5GiB: powers of 1024), a count of blocks (2000blk), or inf with --ghost.\n\n"
    "examples:\n"
    "  kvonce trace synth --requests 2000 > t.jsonl\n"
    "  kvonce replay t.jsonl --tiers dram:500blk,disk:/tmp/kv:2000blk --block-bytes 64K\n"
    "  kvonce replay t.jsonl --tiers dram:inf --ghost --json\n\n"
    "exit: 0; 1 wrong bytes were read; 2 it could not run; 130 interrupted. See kvonce-replay(1).\n",
    cli_replay_command};

static int parse_replay(cli_replay *replay, replay_texts *texts, uint64_t *seed, int argc, char **argv)
{
    static const char *const hierarchies[] = {"inclusive", "exclusive", NULL};
    static const char *const policies[] = {"credit", "lru", NULL};
    const cli_option options[] = {
        {"--tiers", "SPEC", "the tiers; required", &texts->tiers},
        {"--block-bytes", "SIZE", "payload of a block (5M)", &texts->block_bytes},
        {"--ghost", NULL, "records and decisions only: no bytes, no directory", &texts->ghost},
        {"--mover", NULL, "demote ahead in the background, as servers do: figures vary a little", &texts->mover},
        {"--hierarchy", "H", "inclusive, or exclusive with --ghost (inclusive)", &texts->hierarchy},
        {"--policy", "P", "credit or lru (credit)", &texts->policy},
        {"--events", "FILE", "write a line for each event", &texts->events},
        {"--json", NULL, "print one JSON object instead of the table", &texts->json},
        {"--seed", "N", "start times of conversations without one (1)", &texts->seed},
        {"--limit", "N", "only the first N requests", &texts->limit},
        {"--block-tokens", "N", "tokens of a block where the trace does not say (512)", &texts->block_tokens},
        {"--space", "LABEL", "the space in the store (replay)", &texts->space},
        {NULL, NULL, NULL, NULL}};
    int code = cli_parse(&replay_command, options, argc, argv, &replay->path);
    if (code >= 0) {
        return code;
    }
    if (cli_size("--block-bytes", texts->block_bytes, 1, KVO_PAYLOAD_BYTES_MAX, DEFAULT_BLOCK_BYTES,
                 &replay->block_bytes) != 0 ||
        cli_number("--block-tokens", texts->block_tokens, 1, 65535, 0, &replay->block_tokens) != 0 ||
        cli_number("--seed", texts->seed, 0, UINT64_MAX, 1, seed) != 0 ||
        cli_number("--limit", texts->limit, 0, UINT64_MAX, UINT64_MAX, &replay->limit) != 0 ||
        cli_word("--hierarchy", texts->hierarchy, hierarchies, &replay->options.hierarchy) != 0 ||
        cli_word("--policy", texts->policy, policies, &replay->options.placement) != 0) {
        return CLI_FAIL;
    }
    if (texts->tiers == NULL) {
        return cli_fail("replay: --tiers is missing, e.g. --tiers dram:2G,disk:DIR:20G");
    }
    replay->ghost = texts->ghost != NULL;
    if (replay->options.hierarchy == KVO_EXCLUSIVE && !replay->ghost) {
        return cli_fail("--hierarchy exclusive is for comparison: it needs --ghost");
    }
    return -1;
}

static int load_trace(cli_replay *replay, uint64_t seed)
{
    char error[512];
    if (cli_trace_load(&replay->trace, replay->path, seed, error, sizeof error) != 0) {
        return cli_fail("%s", error);
    }
    if (replay->block_tokens == 0) {
        replay->block_tokens = replay->trace.block_tokens != 0 ? replay->trace.block_tokens : DEFAULT_BLOCK_TOKENS;
    }
    if ((uint64_t)replay->trace.blocks_longest * replay->block_tokens > UINT32_MAX) {
        return cli_fail("%s: a request of %lu blocks of %llu tokens: positions go to 2^32 - 1", replay->trace.name,
                        (unsigned long)replay->trace.blocks_longest, (unsigned long long)replay->block_tokens);
    }
    return cli_replay_prepare(replay);
}

static int replay_with(cli_replay *replay, const replay_texts *texts)
{
    replay->options.flags = (replay->ghost ? KVO_OPEN_GHOST : 0) | (texts->mover ? 0 : KVO_OPEN_STEPPED);
    replay->options.block_bytes = replay->block_bytes;
    replay->options.on_log = log_line;
    replay->options.on_event = cli_events_take;
    replay->options.event_context = &replay->events;
    catch_signals();
    int result = open_store(replay, texts->tiers);
    if (result == 0) {
        result = cli_events_start(&replay->events, texts->events);
        if (result != 0) {
            (void)kvo_close(replay->store, 0);
            return result;
        }
        result = run_store(replay, texts->space != NULL ? texts->space : "replay");
        int written = cli_events_finish(&replay->events);
        result = result != 0 ? result : written;
    }
    return result;
}

static void report(const cli_replay *replay, int json)
{
    if (replay->puts_failed != 0) {
        (void)cli_fail("%llu blocks were not stored: %s", (unsigned long long)replay->puts_failed,
                       kvo_status_text(replay->put_failure));
    }
    if (json) {
        cli_report_json(replay);
    } else {
        cli_report_table(replay);
    }
}

int cli_replay_command(int argc, char **argv)
{
    cli_replay *replay = cli_alloc(1, sizeof *replay);
    replay_texts texts = {0};
    uint64_t seed = 0;
    replay->options = (kvo_options)KVO_OPTIONS_INIT;
    int code = parse_replay(replay, &texts, &seed, argc, argv);
    if (code < 0) {
        code = load_trace(replay, seed);
        if (code == 0 && (code = replay_with(replay, &texts)) == 0) {
            report(replay, texts.json != NULL);
            code = stopped_by != 0 ? 128 + (int)stopped_by : replay->wrong_reads != 0 ? CLI_BAD : CLI_OK;
            code = cli_finish(code);
        }
    }
    cli_replay_release(replay);
    free(replay);
    return code;
}
