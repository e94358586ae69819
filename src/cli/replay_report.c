/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a replay: of this run only, so totals after minus totals before. */
#include "common.h"
#include "json_out.h"
#include "replay.h"

#include <string.h>

int cli_snapshot_take(kvo_store *store, cli_snapshot *snapshot)
{
    kvo_stat stat = KVO_STAT_INIT;
    int status = kvo_stat_store(store, &stat);
    snapshot->store = stat;
    snapshot->tier_count = stat.present_tier_count < KVO_TIERS_MAX ? stat.present_tier_count : KVO_TIERS_MAX;
    for (uint32_t i = 0; status == KVO_OK && i < snapshot->tier_count; i++) {
        status = kvo_stat_tier(store, i, &snapshot->tiers[i]);
    }
    return status == KVO_OK ? 0 : cli_fail("stat: %s", kvo_status_text(status));
}

/* What changed in tier i. Levels (capacity, resident blocks, ...) are those after. */
static kvo_tier_stat tier_change(const cli_replay *replay, uint32_t i)
{
    const kvo_tier_stat *before = &replay->before.tiers[i];
    kvo_tier_stat change = replay->after.tiers[i];
    change.hits -= before->hits;
    change.read_bytes -= before->read_bytes;
    change.written_bytes -= before->written_bytes;
    change.repair_bytes -= before->repair_bytes;
    change.metadata_bytes -= before->metadata_bytes;
    change.lives -= before->lives;
    change.life_bytes -= before->life_bytes;
    change.clean_discards -= before->clean_discards;
    change.other_evictions -= before->other_evictions;
    change.orphans -= before->orphans;
    change.anchor_yields -= before->anchor_yields;
    change.promotions -= before->promotions;
    return change;
}

typedef struct totals {
    uint64_t metadata_bytes;
    double moved_bytes; /* demoted and promoted */
} totals;

static totals sum_tiers(const cli_replay *replay)
{
    totals sum = {0, 0.0};
    for (uint32_t i = 0; i < replay->after.tier_count; i++) {
        kvo_tier_stat change = tier_change(replay, i);
        sum.metadata_bytes += change.metadata_bytes;
        if (i != 0) {
            sum.moved_bytes += (double)change.written_bytes + (double)(change.promotions * replay->block_bytes);
        }
    }
    return sum;
}

static void json_latency(cli_out *out, const char *key, const cli_latency *latency)
{
    static const struct {
        const char *key;
        unsigned per_mille;
    } rows[] = {{"p50", 500}, {"p99", 990}};
    cli_out_object(out, key);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double us = cli_latency_us(latency, rows[i].per_mille);
        if (us < 0.0) {
            cli_out_null(out, rows[i].key);
        } else {
            cli_out_real(out, rows[i].key, us);
        }
    }
    cli_out_object_end(out);
}

static void json_tier(cli_out *out, const cli_replay *replay, uint32_t i)
{
    kvo_tier_stat tier = tier_change(replay, i);
    cli_out_object(out, NULL);
    cli_out_text(out, "name", tier.name);
    if (tier.capacity_blocks == KVO_INFINITE) {
        cli_out_null(out, "capacity_blocks");
    } else {
        cli_out_u64(out, "capacity_blocks", tier.capacity_blocks);
    }
    cli_out_u64(out, "hits", tier.hits);
    cli_out_u64(out, "read_bytes", tier.read_bytes);
    cli_out_u64(out, "written_bytes", tier.written_bytes);
    cli_out_u64(out, "repair_bytes", tier.repair_bytes);
    cli_out_u64(out, "lives", tier.lives);
    cli_out_u64(out, "distinct_names_written", replay->events.written.marked[i]);
    cli_out_ratio(out, "write_amplification", (double)tier.written_bytes, (double)tier.life_bytes);
    cli_out_u64(out, "clean_discards", tier.clean_discards);
    cli_out_u64(out, "other_evictions", tier.other_evictions);
    cli_out_u64(out, "orphans", tier.orphans);
    cli_out_u64(out, "anchor_yields", tier.anchor_yields);
    cli_out_u64(out, "promotions", tier.promotions);
    cli_out_u64(out, "resident_blocks", tier.resident_blocks);
    cli_out_u64(out, "max_delta", tier.max_delta);
    cli_out_u64(out, "injected", tier.injected);
    cli_out_object_end(out);
}

void cli_report_json(const cli_replay *replay)
{
    cli_out out = {0, 0};
    totals sum = sum_tiers(replay);
    const kvo_stat *before = &replay->before.store;
    const kvo_stat *after = &replay->after.store;
    cli_out_object(&out, NULL);
    cli_out_u64(&out, "requests", replay->requests);
    cli_out_u64(&out, "references", replay->references);
    cli_out_u64(&out, "unique_blocks", replay->seen.marked[0]);
    cli_out_u64(&out, "block_bytes", replay->block_bytes);
    cli_out_u64(&out, "hits", replay->hits);
    cli_out_ratio(&out, "hit_ratio", (double)replay->hits, (double)replay->references);
    cli_out_u64(&out, "bound_hits", replay->bound_hits);
    cli_out_ratio(&out, "bound_ratio", (double)replay->bound_hits, (double)replay->references);
    cli_out_u64(&out, "wrong_reads", replay->wrong_reads);
    cli_out_u64(&out, "digest_misses", after->digest_misses - before->digest_misses);
    cli_out_u64(&out, "put_busy", replay->puts_busy);
    cli_out_u64(&out, "put_waits", after->put_waits - before->put_waits);
    cli_out_ratio(&out, "movement_amplification", sum.moved_bytes, (double)replay->below_bytes);
    cli_out_u64(&out, "metadata_written_bytes", sum.metadata_bytes);
    cli_out_real(&out, "seconds", (double)replay->elapsed_ns / 1e9);
    cli_out_object(&out, "latency_us");
    json_latency(&out, "match", &replay->match);
    json_latency(&out, "get", &replay->get);
    json_latency(&out, "put", &replay->put);
    cli_out_object_end(&out);
    cli_out_list(&out, "tiers");
    for (uint32_t i = 0; i < replay->after.tier_count; i++) {
        json_tier(&out, replay, i);
    }
    cli_out_list_end(&out);
    cli_out_object_end(&out);
}

/* ---- The table ---- */

static double percent(uint64_t part, uint64_t whole)
{
    return whole != 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static void row_ratio(const char *name, double above, double below)
{
    if (below > 0.0) {
        printf("%-18s %.2f\n", name, above / below);
    } else {
        printf("%-18s -\n", name);
    }
}

static void row_latency(const char *name, const cli_latency *latency)
{
    if (latency->count != 0) {
        printf("  %-8s %12.1f %12.1f\n", name, cli_latency_us(latency, 500), cli_latency_us(latency, 990));
    } else {
        printf("  %-8s %12s %12s\n", name, "-", "-");
    }
}

static void table_summary(const cli_replay *replay)
{
    char a[CLI_COUNT_TEXT], b[CLI_COUNT_TEXT];
    totals sum = sum_tiers(replay);
    const kvo_stat *before = &replay->before.store;
    const kvo_stat *after = &replay->after.store;
    printf("%-18s %s of %s\n", "requests", cli_count_text(replay->requests, a),
           cli_count_text(replay->trace.count, b));
    printf("%-18s %s", "block references", cli_count_text(replay->references, a));
    printf(" to %s blocks of %s\n", cli_count_text(replay->seen.marked[0], a),
           cli_bytes_text(replay->block_bytes, b));
    printf("%-18s %s, %.2f %%\n", "hits", cli_count_text(replay->hits, a),
           percent(replay->hits, replay->references));
    printf("%-18s %s, %.2f %%\n", "infinite cache", cli_count_text(replay->bound_hits, a),
           percent(replay->bound_hits, replay->references));
    if (replay->ghost) {
        printf("%-18s none kept (ghost)\n", "bytes");
    } else {
        printf("%-18s %s\n", "wrong reads", cli_count_text(replay->wrong_reads, a));
    }
    printf("%-18s %s\n", "digest misses", cli_count_text(after->digest_misses - before->digest_misses, a));
    printf("%-18s %s busy, %s waited", "puts", cli_count_text(replay->puts_busy, a),
           cli_count_text(after->put_waits - before->put_waits, b));
    if (replay->puts_failed != 0) {
        printf(", %s not stored", cli_count_text(replay->puts_failed, a));
    }
    putchar('\n');
    row_ratio("movement ampl.", sum.moved_bytes, (double)replay->below_bytes);
    printf("%-18s %s\n", "metadata written", cli_bytes_text(sum.metadata_bytes, a));
    printf("%-18s %.2f s\n", "time", (double)replay->elapsed_ns / 1e9);
    printf("\n  %-8s %12s %12s\n", "us/call", "p50", "p99");
    row_latency("match", &replay->match);
    row_latency("get", &replay->get);
    row_latency("put", &replay->put);
}

static void row_count(const cli_replay *replay, const char *name, size_t field)
{
    char text[CLI_COUNT_TEXT];
    printf("  %-18s", name);
    for (uint32_t i = 0; i < replay->after.tier_count; i++) {
        kvo_tier_stat tier = tier_change(replay, i);
        uint64_t value;
        memcpy(&value, (const char *)&tier + field, sizeof value);
        printf(" %16s", value == KVO_INFINITE ? "inf" : cli_count_text(value, text));
    }
    putchar('\n');
}

static void table_tier_counts(const cli_replay *replay)
{
    static const struct {
        const char *name;
        size_t field;
    } rows[] = {
        {"capacity, blocks", offsetof(kvo_tier_stat, capacity_blocks)},
        {"resident blocks", offsetof(kvo_tier_stat, resident_blocks)},
        {"hits", offsetof(kvo_tier_stat, hits)},
        {"bytes read", offsetof(kvo_tier_stat, read_bytes)},
        {"bytes written", offsetof(kvo_tier_stat, written_bytes)},
        {"bytes repaired", offsetof(kvo_tier_stat, repair_bytes)},
        {"lives", offsetof(kvo_tier_stat, lives)},
        {"clean discards", offsetof(kvo_tier_stat, clean_discards)},
        {"other evictions", offsetof(kvo_tier_stat, other_evictions)},
        {"orphans", offsetof(kvo_tier_stat, orphans)},
        {"anchor yields", offsetof(kvo_tier_stat, anchor_yields)},
        {"promotions", offsetof(kvo_tier_stat, promotions)},
    };
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        row_count(replay, rows[row].name, rows[row].field);
    }
}

static void table_tiers(const cli_replay *replay)
{
    uint32_t count = replay->after.tier_count;
    char text[CLI_COUNT_TEXT];
    printf("\n  %-18s", "tier");
    for (uint32_t i = 0; i < count; i++) {
        printf(" %16s", replay->after.tiers[i].name);
    }
    putchar('\n');
    table_tier_counts(replay);
    printf("  %-18s", "names written");
    for (uint32_t i = 0; i < count; i++) {
        printf(" %16s", cli_count_text(replay->events.written.marked[i], text));
    }
    printf("\n  %-18s", "write ampl.");
    for (uint32_t i = 0; i < count; i++) {
        kvo_tier_stat tier = tier_change(replay, i);
        (void)snprintf(text, sizeof text, "%.4f", (double)tier.written_bytes / (double)tier.life_bytes);
        printf(" %16s", tier.life_bytes != 0 ? text : "-");
    }
    printf("\n  %-18s", "max delta");
    for (uint32_t i = 0; i < count; i++) {
        printf(" %16lu", (unsigned long)replay->after.tiers[i].max_delta);
    }
    putchar('\n');
}

void cli_report_table(const cli_replay *replay)
{
    table_summary(replay);
    table_tiers(replay);
}
