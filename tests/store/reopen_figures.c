/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a store of many slots of 64 KiB takes to open and to close: with its checkpoint, without it, and the
 * bare reads of the same headers, 64 at a time; the rounds one after the other, so that what disturbs one disturbs all.
 *
 *     store_reopen_figures DIR BLOCKS [ROUNDS]        DIR is made if it is not there, and left
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "headers.h"
#include "move/move.h"
#include "store/open.h"
#include "store/store.h"

enum { BLOCK = 65536, BATCH = 64 };

static kvo_options options = KVO_OPTIONS_INIT;
static char path[200];
static unsigned openings_by_headers;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void on_log(void *context, const char *line)
{
    (void)context;
    openings_by_headers += strstr(line, "; reading all slot headers") != NULL;
    if (strstr(line, "there is no checkpoint") == NULL)
        fprintf(stderr, "%s\n", line);
}

static void must(int status, const kvo_error *error)
{
    if (status == KVO_OK)
        return;
    fprintf(stderr, "%s: %s\n", kvo_status_name(status), error ? error->text : "");
    exit(1);
}

static kvo_store *open_it(base_env *env, uint64_t blocks)
{
    kvo_store *s;
    kvo_error error = {{0}};
    kvo_tier_config tier = KVO_TIER_CONFIG_INIT;
    tier.kind = KVO_TIER_DISK;
    tier.path = path;
    tier.capacity_blocks = blocks;
    must(store_open(env, &tier, 1, &options, &s, &error), &error);
    return s;
}

static void fill(kvo_store *s, uint64_t blocks)
{
    static uint8_t payload[BLOCK], names[BATCH][32];
    kvo_segment segments[BATCH];
    kvo_answer answers[BATCH];
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_space space;
    kvo_error error = {{0}};
    config.label = "a";
    config.model = "m";
    config.block_positions = 16;
    config.block_bytes_max = BLOCK;
    must(kvo_space_open(s, &config, &space, &error), &error);
    for (uint64_t done = 0; done < blocks; done += BATCH) {
        size_t n = blocks - done < BATCH ? (size_t)(blocks - done) : BATCH;
        must(base_env_posix()->random(base_env_posix(), names, sizeof names), NULL);
        for (size_t i = 0; i < n; i++)
            segments[i] = (kvo_segment){payload, BLOCK};
        kvo_names list = {.first = names, .name_bytes = 32, .count = n, .space = space};
        kvo_memory memory = {segments, NULL};
        must(kvo_put(s, &list, &memory, NULL, answers), NULL);
        for (size_t i = 0; i < n; i++)
            must(answers[i].status == KVO_STORED ? KVO_OK : answers[i].status, NULL);
    }
}

/* All slots and segments of the store that is open now: where opening it reads. */
static uint64_t *places_of(kvo_store *s, size_t *count)
{
    const place_segments *p = &s->tiers[0].space;
    uint64_t *places = malloc(((size_t)s->blocks + p->segment_count) * sizeof *places);
    *count = 0;
    for (uint32_t i = 0; i < p->segment_count; i++) {
        uint64_t first = (uint64_t)i * p->segment_units;
        places[(*count)++] = first;
        for (uint32_t k = 0; k < p->segments[i].slots; k++)
            places[(*count)++] = first + 1 + (uint64_t)k * p->segments[i].stride;
    }
    return places;
}

/* As many in flight as a stream takes, whatever is back goes out again at once. */
static double bare_reads(const uint64_t *places, size_t count)
{
    char data[240];
    int file;
    base_env *env = base_env_posix();
    move_engine *engine;
    move_transfer transfers[MOVE_DEPTH], *back;
    uint8_t *memory = env->alloc(env, MOVE_DEPTH * TIER_UNIT);
    must(move_open(env, MOVE_AUTO, 8, 1 << 20, &engine, NULL), NULL);
    move_stream *stream = move_stream_open(engine);
    snprintf(data, sizeof data, "%s/data", path);
    must(env->open(env, data, BASE_OPEN_DIRECT | BASE_OPEN_READ_ONLY, &file, NULL), NULL);
    double start = now();
    size_t added = 0;
    for (; added < count && added < MOVE_DEPTH; added++) {
        transfers[added] = (move_transfer){.file = file,
                                           .piece_count = 1,
                                           .pieces = {{memory + added * TIER_UNIT, TIER_UNIT}},
                                           .offset = places[added] * TIER_UNIT};
        move_add(stream, &transfers[added]);
    }
    while ((back = move_next(stream, true)) != NULL) {
        must(back->result == TIER_UNIT ? KVO_OK : KVO_E_IO, NULL);
        if (added == count)
            continue;
        back->offset = places[added++] * TIER_UNIT;
        move_add(stream, back);
    }
    double seconds = now() - start;
    move_stream_close(stream);
    move_close(engine);
    env->close(env, file);
    env->free(env, memory, MOVE_DEPTH * TIER_UNIT);
    return seconds;
}

/* Seconds of an opening and of the close after it; the blocks found must be all. */
static void round_trip(uint64_t blocks, bool listed, double *opening, double *closing)
{
    char checkpoint[240];
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint", path);
    if (!listed && unlink(checkpoint) != 0)
        must(KVO_E_IO, NULL);
    unsigned by_headers = openings_by_headers;
    double start = now();
    kvo_store *s = open_it(base_env_posix(), blocks);
    *opening = now() - start;
    if (s->recovered != blocks || (openings_by_headers == by_headers) != listed) {
        fprintf(stderr, "%llu of %llu blocks; by headers: %u\n", (unsigned long long)s->recovered,
                (unsigned long long)blocks, openings_by_headers - by_headers);
        exit(1);
    }
    start = now();
    must(kvo_close(s, KVO_FOREVER), NULL);
    *closing = now() - start;
}

int main(int argc, char **argv)
{
    if (argc < 3 || strlen(argv[1]) >= sizeof path) {
        fprintf(stderr, "usage: store_reopen_figures DIR BLOCKS [ROUNDS]\n");
        return 2;
    }
    uint64_t blocks = strtoull(argv[2], NULL, 10);
    int rounds = argc > 3 ? atoi(argv[3]) : 3;
    snprintf(path, sizeof path, "%s", argv[1]);
    options.block_bytes = BLOCK;
    options.on_log = on_log;
    options.write_out_ns = 86400000000000u;
    double start = now(), opening, closing;
    bool there = access(path, F_OK) == 0;
    options.io_engine = there ? KVO_IO_AUTO : KVO_IO_THREADS; /* those of an environment */
    kvo_store *s = open_it(there ? base_env_posix() : headers_env(), blocks);
    if (!there)
        fill(s, blocks);
    double filled = now();
    size_t count;
    uint64_t *places = places_of(s, &count);
    must(kvo_close(s, KVO_FOREVER), NULL);
    options.io_engine = KVO_IO_AUTO;
    printf("%llu blocks: filled in %.2f s, first close %.3f s\n", (unsigned long long)blocks, filled - start,
           now() - filled);
    fflush(stdout);
    for (int i = 0; i < rounds; i++) {
        double bare = bare_reads(places, count);
        round_trip(blocks, false, &opening, &closing);
        printf("reads %.3f s   without checkpoint: open %.3f s (%.2f of the reads), close %.3f s", bare, opening,
               opening / bare, closing);
        round_trip(blocks, true, &opening, &closing);
        printf("   with: open %.3f s, close %.3f s\n", opening, closing);
        fflush(stdout);
    }
    free(places);
    return 0;
}
