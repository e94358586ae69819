/* SPDX-License-Identifier: Apache-2.0 */
/* kvonce replay, in four files: the command, the requests, the events, the report. */
#ifndef CLI_REPLAY_H
#define CLI_REPLAY_H

#include "ids.h"
#include "kvonce.h"
#include "latency.h"
#include "trace.h"

#include <stdatomic.h>
#include <stdio.h>

/* Payload of one call to the store. What is longer goes in several calls, in order; with or
   without bytes alike, so that both decide alike. */
#define CLI_CALL_BYTES_MAX (2ull << 30)

typedef struct cli_events {
    FILE *file; /* NULL: only the names written are counted */
    const char *path;
    atomic_int open;  /* events count: from the first request to the last */
    cli_ids written;  /* mark i: written to tier i. Touched under the store's lock only */
} cli_events;

/* Opens the file, if there is one. 0, or CLI_FAIL after a message. */
int cli_events_start(cli_events *events, const char *path);
void cli_events_take(void *events, const kvo_event *event); /* kvo_options.on_event */
int cli_events_finish(cli_events *events);

/* What a store says at one moment. */
typedef struct cli_snapshot {
    kvo_stat store;
    uint32_t tier_count; /* the present ones */
    kvo_tier_stat tiers[KVO_TIERS_MAX];
} cli_snapshot;

typedef struct cli_replay {
    /* What was asked for. */
    const char *path;
    uint64_t block_bytes;
    uint64_t block_tokens;
    uint64_t limit; /* requests */
    int ghost;
    kvo_options options;

    cli_trace trace;
    kvo_store *store;
    kvo_space space;
    cli_events events;

    /* One request at a time; arrays as long as the longest. */
    uint64_t *ids;
    uint8_t *names;
    kvo_answer *answers;
    kvo_segment *segments; /* for one call */
    void *memory;          /* what they point to; NULL in a ghost */
    size_t memory_bytes;
    uint32_t call_blocks;

    /* What came of it. */
    cli_ids seen; /* mark 0 */
    uint64_t requests, references, hits, bound_hits;
    uint64_t wrong_reads, puts_busy, puts_failed;
    int put_failure; /* status of the last that failed */
    uint64_t below_bytes; /* of hits served from below the first tier */
    uint64_t elapsed_ns;
    cli_latency match, get, put;
    cli_snapshot before, after;
} cli_replay;



/* The buffers for the longest request. 0, or CLI_FAIL after a message. */
int cli_replay_prepare(cli_replay *replay);
void cli_replay_release(cli_replay *replay);
/* One request through the store. 0, or CLI_FAIL after a message. */
int cli_replay_request(cli_replay *replay, uint32_t index);

int cli_snapshot_take(kvo_store *store, cli_snapshot *snapshot);
void cli_report_json(const cli_replay *replay);
void cli_report_table(const cli_replay *replay);

#endif
