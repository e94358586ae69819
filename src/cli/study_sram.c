/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment 3: control state of a capacity, and how much of it is hot: the records that a trace's requests touch, in
 * order, and what part of these accesses a cache of some size would serve.
 */
#include "study.h"
#include "ids.h"
#include "payload.h"
#include "reuse.h"
#include "trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define MEMORY_BLOCKS 2000u
#define DISK_BLOCKS 10000u
#define BLOCK_BYTES (5u << 20)
#define TIERS 2
#define WALK 256 /* blocks a call */

/* ---- The stream of a trace ---- */

typedef struct stream {
    bench_store store;
    const cli_trace *trace;
    uint64_t *ids;
    uint8_t *names;
    kvo_answer *answers;
    kvo_segment *segments;
    cli_reuse reuse;
    uint64_t references, requests; /* of the trace that were replayed */
    uint64_t resident[KVO_TIERS_MAX],
        walked[KVO_TIERS_MAX]; /* blocks by tier at the end: as the store says, as a walk finds */
} stream;

static void touch_all(stream *t, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        if (t->answers[i].handle != 0) {
            cli_reuse_touch(&t->reuse, t->answers[i].handle); /* a handle names a record in one life */
        }
    }
}

static kvo_names names_from(const stream *t, size_t first, size_t end)
{
    return (kvo_names){.first = t->names + first * CLI_NAME_BYTES,
                       .name_bytes = CLI_NAME_BYTES,
                       .count = end - first,
                       .space = t->store.space};
}

/* Match, get what is there, put the rest: each touches the records of its blocks. */
static int one_request(stream *t, uint32_t index)
{
    const cli_request *request = &t->trace->requests[index];
    kvo_memory memory = {t->segments, NULL};
    kvo_put_options put = KVO_PUT_OPTIONS_INIT;
    size_t matched = 0;
    put.chained = 1;
    cli_trace_expand(t->trace, index, t->ids);
    for (uint32_t i = 0; i < request->count; i++) {
        cli_name_write(t->names + (size_t)i * CLI_NAME_BYTES, request->scope, t->ids[i]);
    }
    kvo_names names = names_from(t, 0, request->count);
    int status = request->count != 0 ? kvo_match(t->store.store, &names, t->answers, &matched) : KVO_OK;
    touch_all(t, 0, matched);
    if (status == KVO_OK && matched != 0) {
        names = names_from(t, 0, matched);
        status = kvo_get(t->store.store, &names, &memory, NULL, t->answers);
        touch_all(t, 0, matched);
    }
    if (status == KVO_OK && matched < request->count) {
        put.parent = matched != 0 ? t->names + (matched - 1) * CLI_NAME_BYTES : NULL;
        names = names_from(t, matched, request->count);
        status = kvo_put(t->store.store, &names, &memory, &put, t->answers + matched);
        touch_all(t, matched, request->count);
    }
    return status == KVO_OK ? 0 : bench_refused("replay", status);
}

/* Two accounts of one thing: they must agree. */
static int count_blocks(stream *t)
{
    kvo_block_info *infos = cli_alloc(WALK, sizeof *infos);
    uint64_t cursor = 0;
    size_t found = 1;
    int status = KVO_OK;
    for (uint32_t i = 0; status == KVO_OK && i < TIERS; i++) {
        kvo_tier_stat tier;
        status = kvo_stat_tier(t->store.store, i, &tier);
        t->resident[i] = status == KVO_OK ? tier.resident_blocks : 0;
    }
    while (status == KVO_OK && found != 0) {
        status = kvo_walk(t->store.store, NULL, &cursor, infos, WALK, &found);
        for (size_t i = 0; status == KVO_OK && i < found; i++) {
            for (uint32_t k = 0; k < infos[i].copy_count; k++) {
                t->walked[infos[i].copies[k].tier]++;
            }
        }
    }
    free(infos);
    return status == KVO_OK ? 0 : bench_refused("walk", status);
}

static int run_stream(study *s, stream *t)
{
    kvo_options options = KVO_OPTIONS_INIT;
    char tiers[64];
    const size_t longest = t->trace->blocks_longest + 1;
    options.flags = KVO_OPEN_GHOST;
    options.block_bytes = BLOCK_BYTES;
    (void)snprintf(tiers, sizeof tiers, "dram:%ublk,disk:/ghost:%ublk", MEMORY_BLOCKS, DISK_BLOCKS);
    int code = bench_open(&s->bench, "trace", tiers, &options, &t->store);
    if (code != 0) {
        return code;
    }
    t->ids = cli_alloc(longest, sizeof *t->ids);
    t->names = cli_alloc(longest, CLI_NAME_BYTES);
    t->answers = cli_alloc(longest, sizeof *t->answers);
    t->segments = cli_alloc(longest, sizeof *t->segments);
    for (size_t i = 0; i < longest; i++) {
        t->segments[i].bytes = BLOCK_BYTES;
    }
    const uint64_t most = (uint64_t)study_pick(s, 4e6, 4e5, 2e4); /* references: a part of a long trace will do */
    for (size_t i = 0; code == 0 && i < t->trace->count && t->references < most; i++) {
        code = bench_stopped();
        code = code != 0 ? code : one_request(t, t->trace->order[i]);
        t->references += t->trace->requests[t->trace->order[i]].count;
        t->requests++;
    }
    code = code != 0 ? code : count_blocks(t);
    free(t->segments);
    free(t->answers);
    free(t->names);
    free(t->ids);
    int closed = bench_close(&t->store, 0);
    return code != 0 ? code : closed;
}

/* ---- A trace of our own, by `kvonce trace synth` ---- */

static int make_trace(study *s)
{
    cli_trace *trace = &s->loaded;
    char command[4300], error[512] = "";
    if (strpbrk(s->program, "'\\") != NULL) {
        return cli_fail("the path of this program has quotes: give --trace FILE");
    }
    (void)snprintf(command, sizeof command, "'%s' trace synth --requests %u --tenants 16 --sessions 6000 --seed 1",
                   s->program, (unsigned)study_pick(s, 1e5, 1e4, 300));
    FILE *file = popen(command, "r");
    int read = file != NULL ? cli_trace_read(trace, file, "synthetic", 1, error, sizeof error) : -1;
    int status = file != NULL ? pclose(file) : -1;
    if (bench_stopped() != 0) {
        return bench_stopped(); /* ctrl-C goes to both */
    }
    return read == 0 && status == 0 ? 0 : cli_fail("trace synth: %s", error[0] != 0 ? error : "it did not run");
}

int study_sram_load(study *s)
{
    char error[512] = "";
    if (s->trace == NULL) {
        return 0;
    }
    int code = cli_trace_load(&s->loaded, s->trace, 1, error, sizeof error) == 0 ? 0 : cli_fail("%s", error);
    return code == 0 && s->loaded.blocks_longest == 0 ? cli_fail("%s: the trace has no blocks", s->trace) : code;
}

/* ---- The experiment ---- */

static const struct {
    const char *name;
    unsigned log_bytes;
} kept[] = {{"whole records, 64 bytes", 6}, {"a controller's record, 16 bytes", 4}, {"policy words, 8 bytes", 3}};

static const char *const account_names[TIERS][2] = {{"memory, by the store", "memory, by a walk"},
                                                    {"disk, by the store", "disk, by a walk"}};

static void add_served(study *s, const cli_reuse *r)
{
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        for (unsigned log = 14; log <= 26; log++) {
            study_row row = study_row_of("served", kept[i].name, "% of accesses");
            study_parameter_add(&row, "cache_bytes", (double)((uint64_t)1 << log));
            row.operations = r->access_count;
            study_add_one(s, row,
                          100.0 * (double)cli_reuse_served(r, log - kept[i].log_bytes) / (double)r->access_count);
        }
    }
    study_row row = study_row_of("first_accesses", NULL, "% of accesses");
    row.operations = r->access_count;
    study_add_one(s, row, 100.0 * (double)r->first_count / (double)r->access_count);
}

static void add_accounts(study *s, const stream *t)
{
    study_row row = study_row_of("replayed", NULL, "% of requests");
    row.operations = t->requests;
    study_add_one(s, row, 100.0 * (double)t->requests / (double)t->trace->count);
    for (size_t i = 0; i < TIERS; i++) {
        for (int walked = 0; walked < 2; walked++) {
            row = study_row_of("resident", account_names[i][walked], "blocks");
            study_add_one(s, row, (double)(walked ? t->walked[i] : t->resident[i]));
        }
    }
}

/* What the store itself says it takes, for a block of a capacity that has none yet. */
static int add_footprint(study *s)
{
    static const uint64_t sizes[] = {64u << 10, 1u << 20, 5u << 20};
    const uint64_t blocks = 200000;
    kvo_options options = KVO_OPTIONS_INIT;
    kvo_stat stat = KVO_STAT_INIT;
    bench_store store;
    options.flags = KVO_OPEN_GHOST;
    options.block_bytes = BLOCK_BYTES;
    int code = bench_open(&s->bench, "footprint", "dram:200000blk", &options, &store);
    if (code != 0) {
        return code;
    }
    int status = kvo_stat_store(store.store, &stat);
    code = bench_close(&store, 0);
    if (status != KVO_OK || code != 0) {
        return status != KVO_OK ? bench_refused("stat", status) : code;
    }
    const double a_block = (double)stat.control_bytes / (double)blocks;
    study_row row = study_row_of("state_per_block", "all control state", "bytes");
    row.operations = blocks;
    study_add_one(s, row, a_block);
    row = study_row_of("state_per_block", "the record", "bytes");
    study_add_one(s, row, (double)stat.record_bytes);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (double tib = 1.0; tib <= 64.0; tib *= 8.0) {
            const double count = tib * 1099511627776.0 / (double)sizes[i];
            row = study_row_of("state", "all control state", "bytes");
            row.computed = 1;
            study_parameter_add(&row, "capacity_bytes", tib * 1099511627776.0);
            study_parameter_add(&row, "block_bytes", (double)sizes[i]);
            study_add_one(s, row, count * a_block);
            row.series = "the records";
            study_add_one(s, row, count * (double)stat.record_bytes);
        }
    }
    return 0;
}

int study_sram(study *s)
{
    stream *t = cli_alloc(1, sizeof *t);
    int code = add_footprint(s);
    code = code == 0 && s->trace == NULL ? make_trace(s) : code;
    if (code == 0) {
        t->trace = &s->loaded;
        cli_reuse_open(&t->reuse, 1u << 16, 1u << 18);
        code = run_stream(s, t);
        if (code == 0) {
            add_served(s, &t->reuse);
            add_accounts(s, t);
        }
        cli_reuse_close(&t->reuse);
    }
    free(t);
    return code;
}

/* Whose stream it was, and how much of it. */
static void say_trace(study *s)
{
    const study_row *part = study_find(s, "replayed", NULL, NULL);
    char name[256] = "the synthetic trace", done[CLI_COUNT_TEXT], all[CLI_COUNT_TEXT];
    if (s->trace != NULL) {
        const char *slash = strrchr(s->trace, '/');
        (void)snprintf(name, sizeof name, "%s", slash != NULL ? slash + 1 : s->trace);
        cli_one_line(name);
    }
    study_say(s, "On %s", name);
    if (part != NULL && part->operations < s->loaded.count) {
        study_say(s, " (the first %s of %s requests)", cli_count_text(part->operations, done),
                  cli_count_text(s->loaded.count, all));
    }
}

static void say_accounts(study *s)
{
    const study_row *rows[TIERS][2];
    char text[TIERS][2][CLI_COUNT_TEXT];
    int same = 1;
    for (size_t i = 0; i < TIERS; i++) {
        for (int k = 0; k < 2; k++) {
            rows[i][k] = study_find(s, "resident", account_names[i][k], NULL);
            if (rows[i][k] == NULL) {
                return;
            }
            (void)cli_count_text((uint64_t)rows[i][k]->p50, text[i][k]);
        }
        same = same && strcmp(text[i][0], text[i][1]) == 0;
    }
    study_say(s,
              " Balance at the end: the store counts %s blocks in memory and %s on disk, a walk over all of them "
              "finds %s and %s: the accounts %s.",
              text[0][0], text[1][0], text[0][1], text[1][1], same ? "agree" : "DO NOT AGREE");
}

void study_sram_read(study *s)
{
    const double tib = 1099511627776.0;
    const study_row *state =
        study_find(s, "state", "all control state", "capacity_bytes", tib, "block_bytes", 5242880.0, NULL);
    const study_row *small =
        study_find(s, "state", "all control state", "capacity_bytes", tib, "block_bytes", 65536.0, NULL);
    if (state != NULL && small != NULL) {
        study_say(s, "1 TiB of 5 MiB blocks has %.1f MiB of control state, all tables included; of 64 KiB blocks %.1f "
                     "GiB. ",
                  state->p50 / 1048576.0, small->p50 / 1073741824.0);
    }
    const study_row *a = study_find(s, "served", kept[0].name, "cache_bytes", 65536.0, NULL);
    const study_row *b = study_find(s, "served", kept[0].name, "cache_bytes", 1048576.0, NULL);
    const study_row *c = study_find(s, "served", kept[1].name, "cache_bytes", 65536.0, NULL);
    const study_row *first = study_find(s, "first_accesses", NULL, NULL);
    if (a != NULL && b != NULL && c != NULL && first != NULL) {
        say_trace(s);
        study_say(
            s,
            ", a cache of 64 KiB serves %.1f %% of the accesses to whole records and 1 MiB %.1f %%; with a record of "
            "16 bytes 64 KiB serve %.1f %%. No cache serves the %.1f %% that are a block's first. The scan for "
            "victims is not among the accesses: it reads the whole table in order, once a batch, and would have to go "
            "past such a cache.",
            a->p50, b->p50, c->p50, first->p50);
    }
    say_accounts(s);
}
