/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment 3: control state of a capacity, and how much of it is hot: the records that a trace's requests touch, in order,
 * and what part of these accesses a cache of some size would serve.
 */
#include "study.h"
#include "ids.h"
#include "payload.h"
#include "trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define MEMORY_BLOCKS 2000u
#define DISK_BLOCKS 10000u
#define BLOCK_BYTES (5u << 20)
#define LOGS 33

/* ---- Reuse distances, in one pass ---- */

/*
 * The distance of an access is how many other records were touched since the last one of the same record: a least-recently-used
 * cache of n records serves it if and only if it is below n. Marks at the last access of each record are
 * added up by a Fenwick tree over the time of accesses; when time has run to its end, marks are pushed together.
 */
typedef struct reuse {
    kvo_handle *keys; /* open addressing: a handle names a record in one life */
    uint32_t *last;   /* time of its last access, from 1 */
    size_t room, records;
    uint32_t *tree;   /* from 1 */
    uint32_t span, now;
    uint64_t below[LOGS]; /* accesses whose distance is below 2^k, and not below 2^(k-1) */
    uint64_t first, accesses;
} reuse;

static void tree_add(reuse *r, uint32_t at, uint32_t value)
{
    for (; at <= r->span; at += at & -at) {
        r->tree[at] += value;
    }
}

static uint32_t tree_sum(const reuse *r, uint32_t at)
{
    uint32_t sum = 0;
    for (; at > 0; at -= at & -at) {
        sum += r->tree[at];
    }
    return sum;
}

static size_t place_of(const reuse *r, kvo_handle key)
{
    uint64_t state = key;
    size_t at = (size_t)cli_random(&state) & (r->room - 1);
    while (r->keys[at] != 0 && r->keys[at] != key) {
        at = (at + 1) & (r->room - 1);
    }
    return at;
}

static void reuse_open(reuse *r)
{
    *r = (reuse){.room = 1u << 16, .span = 1u << 18};
    r->keys = cli_alloc(r->room, sizeof *r->keys);
    r->last = cli_alloc(r->room, sizeof *r->last);
    r->tree = cli_alloc((size_t)r->span + 1, sizeof *r->tree);
}

static void reuse_close(reuse *r)
{
    free(r->keys);
    free(r->last);
    free(r->tree);
}

static void more_records(reuse *r)
{
    reuse old = *r;
    r->room *= 2;
    r->keys = cli_alloc(r->room, sizeof *r->keys);
    r->last = cli_alloc(r->room, sizeof *r->last);
    for (size_t i = 0; i < old.room; i++) {
        if (old.keys[i] != 0) {
            size_t at = place_of(r, old.keys[i]);
            r->keys[at] = old.keys[i];
            r->last[at] = old.last[i];
        }
    }
    free(old.keys);
    free(old.last);
}

/* Time begins anew, in the same order; twice as long if most of it is in use. */
static void push_together(reuse *r)
{
    uint32_t *ranks = cli_alloc(r->room, sizeof *ranks);
    for (size_t i = 0; i < r->room; i++) {
        ranks[i] = r->keys[i] != 0 ? tree_sum(r, r->last[i]) : 0;
    }
    memcpy(r->last, ranks, r->room * sizeof *ranks);
    free(ranks);
    if (r->records > r->span / 2) {
        r->span *= 2;
    }
    free(r->tree);
    r->tree = cli_alloc((size_t)r->span + 1, sizeof *r->tree);
    r->now = (uint32_t)r->records;
    for (uint32_t i = 1; i <= r->now; i++) {
        tree_add(r, i, 1);
    }
}

static void touch(reuse *r, kvo_handle record)
{
    if (r->records * 2 > r->room) {
        more_records(r);
    }
    if (r->now == r->span) {
        push_together(r);
    }
    size_t at = place_of(r, record);
    r->accesses++;
    if (r->keys[at] == 0) {
        r->keys[at] = record;
        r->records++;
        r->first++;
    } else {
        uint64_t distance = (uint64_t)r->records - tree_sum(r, r->last[at]);
        unsigned k = 0;
        while (distance >> k != 0) {
            k++;
        }
        r->below[k]++;
        tree_add(r, r->last[at], UINT32_MAX); /* minus one */
    }
    r->last[at] = ++r->now;
    tree_add(r, r->now, 1);
}

/* The share of accesses that a cache of 2^k records serves. */
static double served(const reuse *r, unsigned k)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i <= k && i < LOGS; i++) {
        sum += r->below[i];
    }
    return 100.0 * (double)sum / (double)r->accesses;
}

/* ---- The stream of a trace ---- */

typedef struct stream {
    bench_store store;
    cli_trace trace;
    uint64_t *ids;
    uint8_t *names;
    kvo_answer *answers;
    kvo_segment *segments;
    reuse reuse;
} stream;

static void touch_all(stream *t, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        if (t->answers[i].handle != 0) {
            touch(&t->reuse, t->answers[i].handle);
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
    const cli_request *request = &t->trace.requests[index];
    kvo_memory memory = {t->segments, NULL};
    kvo_put_options put = KVO_PUT_OPTIONS_INIT;
    size_t matched = 0;
    put.chained = 1;
    cli_trace_expand(&t->trace, index, t->ids);
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

static int run_stream(study *s, stream *t)
{
    kvo_options options = KVO_OPTIONS_INIT;
    char tiers[64];
    const size_t longest = t->trace.blocks_longest + 1;
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
    uint64_t references = 0;
    for (size_t i = 0; code == 0 && i < t->trace.count && references < most; i++) {
        code = bench_stopped();
        code = code != 0 ? code : one_request(t, t->trace.order[i]);
        references += t->trace.requests[t->trace.order[i]].count;
    }
    free(t->segments);
    free(t->answers);
    free(t->names);
    free(t->ids);
    int closed = bench_close(&t->store, 0);
    return code != 0 ? code : closed;
}

/* ---- A trace of our own, by `kvonce trace synth` ---- */

static int make_trace(const study *s, cli_trace *trace)
{
    char command[4300], error[512] = "";
    if (strpbrk(s->program, "'\\") != NULL) {
        return cli_fail("the path of this program has quotes: give --trace FILE");
    }
    (void)snprintf(command, sizeof command, "'%s' trace synth --requests %u --tenants 16 --sessions 6000 --seed 1", s->program,
                   (unsigned)study_pick(s, 1e5, 1e4, 300));
    FILE *file = popen(command, "r");
    int read = file != NULL ? cli_trace_read(trace, file, "synthetic", 1, error, sizeof error) : -1;
    int status = file != NULL ? pclose(file) : -1;
    return read == 0 && status == 0 ? 0 : cli_fail("trace synth: %s", error[0] != 0 ? error : "it did not run");
}

static int load_trace(const study *s, cli_trace *trace)
{
    char error[512] = "";
    if (s->trace == NULL) {
        return make_trace(s, trace);
    }
    return cli_trace_load(trace, s->trace, 1, error, sizeof error) == 0 ? 0 : cli_fail("%s", error);
}

/* ---- The experiment ---- */

static const struct {
    const char *name;
    unsigned log_bytes;
} kept[] = {{"whole records, 64 bytes", 6}, {"a controller's record, 16 bytes", 4}, {"policy words, 8 bytes", 3}};

static void add_served(study *s, const reuse *r)
{
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        for (unsigned log = 14; log <= 26; log++) {
            study_row row = study_row_of("served", kept[i].name, "% of accesses");
            study_parameter_add(&row, "cache_bytes", (double)((uint64_t)1 << log));
            row.operations = r->accesses;
            study_add_one(s, row, served(r, log - kept[i].log_bytes));
        }
    }
    study_row row = study_row_of("first_accesses", NULL, "% of accesses");
    row.operations = r->accesses;
    study_add_one(s, row, 100.0 * (double)r->first / (double)r->accesses);
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
    code = code != 0 ? code : load_trace(s, &t->trace);
    if (code == 0) {
        reuse_open(&t->reuse);
        code = run_stream(s, t);
        if (code == 0 && t->reuse.accesses == 0) {
            code = cli_fail("%s: the trace has no blocks", t->trace.name);
        }
        if (code == 0) {
            add_served(s, &t->reuse);
        }
        reuse_close(&t->reuse);
        cli_trace_free(&t->trace);
    }
    free(t);
    return code;
}

void study_sram_read(study *s)
{
    const study_row *state = study_find(s, "state", "all control state", "capacity_bytes", 1099511627776.0, "block_bytes",
                                        5242880.0, NULL);
    const study_row *small = study_find(s, "state", "all control state", "capacity_bytes", 1099511627776.0, "block_bytes",
                                        65536.0, NULL);
    if (state != NULL && small != NULL) {
        study_say(s, "1 TiB of 5 MiB blocks has %.1f MiB of control state, all tables included; of 64 KiB blocks %.1f GiB. ",
                  state->p50 / 1048576.0, small->p50 / 1073741824.0);
    }
    const study_row *a = study_find(s, "served", kept[0].name, "cache_bytes", 65536.0, NULL);
    const study_row *b = study_find(s, "served", kept[0].name, "cache_bytes", 1048576.0, NULL);
    const study_row *c = study_find(s, "served", kept[1].name, "cache_bytes", 65536.0, NULL);
    const study_row *first = study_find(s, "first_accesses", NULL, NULL);
    if (a != NULL && b != NULL && c != NULL && first != NULL) {
        study_say(s, "On %s, a cache of 64 KiB serves %.1f %% of the accesses to whole records and 1 MiB %.1f %%; with a "
                     "record of 16 bytes 64 KiB serve %.1f %%. No cache serves the %.1f %% that are a block's first. The scan "
                     "for victims is not among the accesses: it reads the whole table in order, once a batch, and would "
                     "have to go past such a cache.",
                  s->trace != NULL ? "the given trace" : "the synthetic trace", a->p50, b->p50, c->p50, first->p50);
    }
}
