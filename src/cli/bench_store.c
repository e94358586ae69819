/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include "payload.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CALL_MAX 512 /* blocks of one call */

int bench_refused(const char *what, int status)
{
    return cli_fail("%s: %s", what, kvo_status_text(status));
}

/* ---- Stores ---- */

static int note_disk(bench *b, const bench_store *s)
{
    kvo_stat stat = KVO_STAT_INIT;
    kvo_tier_stat tier;
    int status = kvo_stat_store(s->store, &stat);
    for (uint32_t i = 0; status == KVO_OK && i < stat.present_tier_count; i++) {
        status = kvo_stat_tier(s->store, i, &tier);
        if (status == KVO_OK && strncmp(tier.name, "disk", 4) == 0) {
            b->direct_io = tier.direct_io;
            b->io_engine = stat.io_engine;
        }
    }
    return status == KVO_OK ? 0 : bench_refused("stat", status);
}

int bench_try_open(bench *b, const char *name, const char *tiers, const kvo_options *options, bench_store *out,
                   kvo_error *why)
{
    char text[4096], directory[sizeof b->directory + 64];
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    (void)snprintf(directory, sizeof directory, "%s/%s", b->directory, name);
    const char *at = strchr(tiers, '@');
    (void)snprintf(text, sizeof text, "%.*s%s%s", at != NULL ? (int)(at - tiers) : (int)strlen(tiers), tiers,
                   at != NULL ? directory : "", at != NULL ? at + 1 : "");
    why->text[0] = 0;
    int status = kvo_open(text, options, &out->store, why);
    if (status != KVO_OK) {
        out->store = NULL;
        return status;
    }
    config.label = "bench";
    config.model = "bench";
    config.block_positions = 16;
    config.block_bytes_max = options->block_bytes;
    status = kvo_space_open(out->store, &config, &out->space, why);
    if (status != KVO_OK) {
        (void)bench_close(out, 0);
    }
    return status;
}

int bench_open(bench *b, const char *name, const char *tiers, const kvo_options *options, bench_store *out)
{
    kvo_error why;
    int status = bench_try_open(b, name, tiers, options, out, &why);
    int code = status == KVO_OK ? note_disk(b, out) : cli_refused(status, &why);
    if (status == KVO_OK && code != 0) {
        (void)bench_close(out, 0);
    }
    return code;
}

int bench_probe(bench *b)
{
    bench_store store;
    kvo_options options = KVO_OPTIONS_INIT;
    kvo_stat stat = KVO_STAT_INIT;
    const size_t bytes = 65536;
    uint8_t *memory = bench_map(bytes + 1);
    options.block_bytes = bytes;
    int code = bench_open(b, "probe", "disk:@:4M", &options, &store);
    if (code == 0) {
        /* Staging is registered once it is used, and aligned memory does not use it. */
        code = bench_fill(&store, 0, 1, 1, bytes, memory + 1);
        int status = kvo_stat_store(store.store, &stat);
        b->io_registered = status == KVO_OK && stat.io_registered;
        int closed = bench_close(&store, KVO_FOREVER);
        code = code != 0 ? code : closed;
    }
    bench_unmap(memory, bytes + 1);
    bench_place_clear(b, "probe");
    return code;
}

int bench_close(bench_store *s, uint64_t deadline_ns)
{
    int status = s->store != NULL ? kvo_close(s->store, deadline_ns) : KVO_OK;
    s->store = NULL;
    return status == KVO_OK || (status == KVO_SHORT && deadline_ns == 0) ? 0 : bench_refused("close", status);
}

/* ---- Blocks ---- */

void bench_names(uint8_t *names, uint64_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t state = (first + i) * 0xd1342543de82ef95u + 1;
        for (size_t k = 0; k < BENCH_NAME_BYTES; k += 8) {
            uint64_t word = cli_random(&state);
            memcpy(names + i * BENCH_NAME_BYTES + k, &word, 8);
        }
    }
}

kvo_names bench_batch(const bench_store *s, const uint8_t *names, size_t count)
{
    kvo_names batch = {.first = names, .name_bytes = BENCH_NAME_BYTES, .count = count, .space = s->space};
    return batch;
}

static int all_are(const char *what, int status, const kvo_answer *answers, size_t count, int wanted)
{
    for (size_t i = 0; status == KVO_OK && i < count; i++) {
        if (answers[i].status != wanted) {
            status = answers[i].status;
        }
    }
    return status == KVO_OK ? 0 : bench_refused(what, status);
}

/* Calls of a size that answers on the stack allow. */
static int in_calls(bench_store *s, bool puts, const uint8_t *names, size_t count, const kvo_segment *segments,
                    const kvo_put_options *put, const kvo_get_options *get)
{
    kvo_answer answers[CALL_MAX];
    int code = 0;
    for (size_t i = 0; code == 0 && i < count; i += CALL_MAX) {
        size_t n = count - i < CALL_MAX ? count - i : CALL_MAX;
        kvo_names batch = bench_batch(s, names + i * BENCH_NAME_BYTES, n);
        kvo_memory memory = {segments + i, NULL};
        int status = puts ? kvo_put(s->store, &batch, &memory, put, answers)
                          : kvo_get(s->store, &batch, &memory, get, answers);
        code = all_are(puts ? "put" : "get", status, answers, n, puts ? KVO_STORED : KVO_OK);
    }
    return code;
}

int bench_put(bench_store *s, const uint8_t *names, size_t count, const kvo_segment *segments,
              const kvo_put_options *options)
{
    return in_calls(s, true, names, count, segments, options, NULL);
}

int bench_get(bench_store *s, const uint8_t *names, size_t count, const kvo_segment *segments,
              const kvo_get_options *options)
{
    return in_calls(s, false, names, count, segments, NULL, options);
}

int bench_check(bench_store *s, const char *what, const uint8_t *names, size_t count, const kvo_segment *segments,
                uint8_t *memory, size_t bytes)
{
    uint8_t *wanted = cli_alloc(1, bytes);
    memcpy(wanted, memory, bytes);
    memset(memory, 0, bytes);
    int code = bench_get(s, names, count, segments, NULL);
    if (code == 0 && memcmp(wanted, memory, bytes) != 0) {
        (void)cli_fail("%s: other bytes arrived than were put", what);
        code = CLI_BAD;
    }
    free(wanted);
    return code;
}

int bench_fill(bench_store *s, uint64_t first, size_t count, size_t batch, uint64_t block_bytes, uint8_t *memory)
{
    uint8_t *names = cli_alloc(batch, BENCH_NAME_BYTES);
    kvo_segment *segments = bench_segments(memory, block_bytes, batch);
    int code = 0;
    for (size_t i = 0; code == 0 && i < count; i += batch) {
        size_t n = count - i < batch ? count - i : batch;
        bench_names(names, first + i, n);
        code = bench_stopped();
        code = code != 0 ? code : bench_put(s, names, n, segments, NULL);
    }
    free(segments);
    free(names);
    return code;
}

static const kvo_copy_info *disk_copy(const kvo_block_info *info, uint32_t disk)
{
    for (uint32_t i = 0; i < info->copy_count; i++) {
        if (info->copies[i].tier == disk) {
            return &info->copies[i];
        }
    }
    return NULL;
}

static int first_disk(const bench_store *s, uint32_t *disk)
{
    kvo_tier_stat tier;
    for (*disk = 0; kvo_stat_tier(s->store, *disk, &tier) == KVO_OK && tier.present; (*disk)++) {
        if (strncmp(tier.name, "disk", 4) == 0) {
            return 0;
        }
    }
    return cli_fail("no disk tier");
}

int bench_offsets(bench_store *s, const uint8_t *names, size_t count, uint64_t *offsets)
{
    kvo_block_info *infos = cli_alloc(CALL_MAX, sizeof *infos);
    uint32_t disk = 0;
    int code = first_disk(s, &disk);
    for (size_t i = 0; code == 0 && i < count; i += CALL_MAX) {
        size_t n = count - i < CALL_MAX ? count - i : CALL_MAX, found = 0;
        kvo_target target = {.by = KVO_BY_NAMES, .names = bench_batch(s, names + i * BENCH_NAME_BYTES, n)};
        uint64_t cursor = 0;
        int status = kvo_walk(s->store, &target, &cursor, infos, n, &found);
        if (status != KVO_OK || found != n) {
            code = status != KVO_OK ? bench_refused("walk", status) : cli_fail("walk: blocks are missing");
        }
        for (size_t k = 0; code == 0 && k < n; k++) {
            const kvo_copy_info *copy = disk_copy(&infos[k], disk);
            if (copy == NULL) {
                code = cli_fail("walk: a block is not on disk");
            } else {
                offsets[i + k] = copy->offset_bytes;
            }
        }
    }
    free(infos);
    return code;
}

/* ---- Memory ---- */

void *bench_map(size_t bytes)
{
    static const uint8_t seed[CLI_NAME_BYTES] = {'b', 'e', 'n', 'c', 'h'};
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        exit(cli_fail("out of memory (%zu bytes)", bytes));
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    cli_payload_fill(seed, memory, bytes);
    return memory;
}

void bench_unmap(void *memory, size_t bytes)
{
    if (memory != NULL) {
        (void)munmap(memory, bytes);
    }
}

kvo_segment *bench_segments(void *memory, uint64_t block_bytes, size_t count)
{
    kvo_segment *segments = cli_alloc(count, sizeof *segments);
    for (size_t i = 0; i < count; i++) {
        segments[i] = (kvo_segment){(uint8_t *)memory + i * block_bytes, (size_t)block_bytes};
    }
    return segments;
}
