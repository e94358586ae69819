/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"
#include "common.h"
#include "json_out.h"
#include "options.h"
#include "select.h"

#include <stdlib.h>
#include <string.h>

#define TENANTS_MAX 4097

/* Everything that is shown, taken before anything is printed. */
typedef struct view {
    kvo_stat store;
    kvo_tier_stat *tiers;
    kvo_space_stat *spaces;
    size_t space_count;
    kvo_tenant_stat *tenants;
    size_t tenant_count;
    kvo_ledger_row *rows;
    size_t row_count;
} view;

static int take_ledger(kvo_store *store, view *v)
{
    size_t room = 0;
    int status = kvo_ledger(store, NULL, 0, &v->row_count);
    while (status == KVO_OK && v->row_count > room) {
        room = v->row_count;
        v->rows = cli_resize(v->rows, room, sizeof *v->rows);
        status = kvo_ledger(store, v->rows, room, &v->row_count);
    }
    return status;
}

static int take_view(kvo_store *store, view *v)
{
    v->store = (kvo_stat)KVO_STAT_INIT;
    int status = kvo_stat_store(store, &v->store);
    v->tiers = cli_alloc(v->store.tier_count, sizeof *v->tiers);
    for (uint32_t i = 0; status == KVO_OK && i < v->store.tier_count; i++) {
        status = kvo_stat_tier(store, i, &v->tiers[i]);
    }
    v->tenants = cli_alloc(TENANTS_MAX, sizeof *v->tenants);
    if (status == KVO_OK) {
        status = kvo_stat_tenants(store, v->tenants, TENANTS_MAX, &v->tenant_count);
        v->tenant_count = v->tenant_count < TENANTS_MAX ? v->tenant_count : TENANTS_MAX;
    }
    if (status == KVO_OK) {
        status = take_ledger(store, v);
    }
    if (status != KVO_OK) {
        return cli_fail("stat: %s", kvo_status_text(status));
    }
    return cli_spaces(store, &v->spaces, &v->space_count);
}

static void free_view(view *v)
{
    free(v->tiers);
    free(v->tenants);
    free(v->spaces);
    free(v->rows);
}

/* ---- JSON ---- */

/* The denominator of a tier's I/O errors. */
static uint64_t operations_of(const view *v, const kvo_tier_stat *tier)
{
    uint64_t operations = 0;
    for (size_t i = 0; i < v->row_count; i++) {
        if (strcmp(v->rows[i].tier, tier->name) == 0 && v->rows[i].direction != 2) {
            operations += v->rows[i].operations;
        }
    }
    return operations;
}

static void json_tier(cli_out *out, const view *v, const kvo_tier_stat *tier)
{
    cli_out_object(out, NULL);
    cli_out_text(out, "name", tier->name);
    cli_out_bool(out, "present", tier->present);
    cli_out_text(out, "path", tier->path);
    cli_out_bool(out, "direct_io", tier->direct_io);
    cli_out_u64(out, "capacity_bytes", tier->capacity_bytes);
    cli_out_u64(out, "capacity_blocks", tier->capacity_blocks);
    cli_out_u64(out, "used_bytes", tier->used_bytes);
    cli_out_u64(out, "resident_blocks", tier->resident_blocks);
    cli_out_u64(out, "hits", tier->hits);
    cli_out_u64(out, "read_bytes", tier->read_bytes);
    cli_out_u64(out, "written_bytes", tier->written_bytes);
    cli_out_u64(out, "repair_bytes", tier->repair_bytes);
    cli_out_u64(out, "rewrite_bytes", tier->rewrite_bytes);
    cli_out_u64(out, "failed_bytes", tier->failed_bytes);
    cli_out_u64(out, "metadata_written_bytes", tier->metadata_bytes);
    cli_out_u64(out, "lives", tier->lives);
    cli_out_ratio(out, "write_amplification", (double)tier->written_bytes, (double)tier->life_bytes);
    cli_out_u64(out, "clean_discards", tier->clean_discards);
    cli_out_u64(out, "other_evictions", tier->other_evictions);
    cli_out_u64(out, "orphans", tier->orphans);
    cli_out_u64(out, "anchor_yields", tier->anchor_yields);
    cli_out_u64(out, "promotions", tier->promotions);
    cli_out_u64(out, "operations", operations_of(v, tier));
    cli_out_u64(out, "io_errors", tier->io_errors);
    cli_out_object_end(out);
}

static void json_space(cli_out *out, const kvo_space_stat *space)
{
    cli_out_object(out, NULL);
    cli_out_text(out, "label", space->label);
    cli_out_text(out, "description", space->description);
    cli_out_hex(out, "digest", space->digest, sizeof space->digest);
    cli_out_u64(out, "block_bytes_max", space->block_bytes_max);
    cli_out_u64(out, "blocks", space->blocks);
    cli_out_u64(out, "payload_bytes", space->payload_bytes);
    cli_out_object_end(out);
}

static void json_store(cli_out *out, const kvo_stat *stat)
{
    cli_out_u64(out, "blocks", stat->blocks);
    cli_out_u64(out, "references", stat->references);
    cli_out_u64(out, "puts", stat->puts);
    cli_out_u64(out, "put_exists", stat->put_exists);
    cli_out_u64(out, "put_busy", stat->put_busy);
    cli_out_u64(out, "put_full", stat->put_full);
    cli_out_u64(out, "gets", stat->gets);
    cli_out_u64(out, "get_misses", stat->get_misses);
    cli_out_u64(out, "payloads_verified", stat->payloads_verified);
    cli_out_u64(out, "digest_misses", stat->digest_misses);
    cli_out_u64(out, "digest_conflicts", stat->digest_conflicts);
    cli_out_u64(out, "rewrites", stat->rewrites);
    cli_out_u64(out, "removes", stat->removes);
    cli_out_u64(out, "control_bytes", stat->control_bytes);
    cli_out_u64(out, "headers_read", stat->headers_read);
    cli_out_u64(out, "unfinished_slots", stat->unfinished_slots);
    cli_out_u64(out, "damaged_slots", stat->damaged_slots);
}

static void json_ledger(cli_out *out, const kvo_ledger_row *row)
{
    cli_out_object(out, NULL);
    cli_out_text(out, "tier", row->tier);
    cli_out_text(out, "direction", row->direction == 0 ? "read" : row->direction == 1 ? "written" : "left");
    cli_out_text(out, "cause", kvo_cause_name(row->cause));
    cli_out_u64(out, "tenant", row->tenant);
    cli_out_u64(out, "bytes", row->bytes);
    cli_out_u64(out, "operations", row->operations);
    cli_out_object_end(out);
}

static void print_json(const view *v)
{
    cli_out out = {0, 0};
    cli_out_object(&out, NULL);
    json_store(&out, &v->store);
    cli_out_list(&out, "tiers");
    for (uint32_t i = 0; i < v->store.tier_count; i++) {
        json_tier(&out, v, &v->tiers[i]);
    }
    cli_out_list_end(&out);
    cli_out_list(&out, "spaces");
    for (size_t i = 0; i < v->space_count; i++) {
        json_space(&out, &v->spaces[i]);
    }
    cli_out_list_end(&out);
    cli_out_list(&out, "tenants");
    for (size_t i = 0; i < v->tenant_count; i++) {
        cli_out_object(&out, NULL);
        cli_out_u64(&out, "tenant", v->tenants[i].tenant);
        cli_out_u64(&out, "blocks", v->tenants[i].blocks);
        cli_out_u64(&out, "payload_bytes", v->tenants[i].payload_bytes);
        cli_out_object_end(&out);
    }
    cli_out_list_end(&out);
    cli_out_list(&out, "ledger");
    for (size_t i = 0; i < v->row_count; i++) {
        json_ledger(&out, &v->rows[i]);
    }
    cli_out_list_end(&out);
    cli_out_object_end(&out);
}

/* ---- The table ---- */

static void print_tier(const view *v, const kvo_tier_stat *tier)
{
    char a[CLI_COUNT_TEXT], b[CLI_COUNT_TEXT], c[CLI_COUNT_TEXT];
    if (tier->present) {
        printf("%s %s%s\n", tier->name, tier->path, tier->direct_io ? ", direct I/O" : "");
        printf("  holds      %s blocks, %s of %s\n", cli_count_text(tier->resident_blocks, a),
               cli_bytes_text(tier->used_bytes, b), cli_bytes_text(tier->capacity_bytes, c));
    } else {
        printf("%s, of earlier runs\n", tier->name);
    }
    printf("  hits       %s, read %s\n", cli_count_text(tier->hits, a), cli_bytes_text(tier->read_bytes, b));
    printf("  written    %s in %s lives, ", cli_bytes_text(tier->written_bytes, a), cli_count_text(tier->lives, b));
    printf("repaired %s, rewritten %s, ", cli_bytes_text(tier->repair_bytes, a),
           cli_bytes_text(tier->rewrite_bytes, b));
    printf("failed %s, metadata %s\n", cli_bytes_text(tier->failed_bytes, a), cli_bytes_text(tier->metadata_bytes, b));
    printf("  evicted    %s with a copy below, %s without", cli_count_text(tier->clean_discards, a),
           cli_count_text(tier->other_evictions, b));
    printf("; %s orphans, %s yields\n", cli_count_text(tier->orphans, a), cli_count_text(tier->anchor_yields, b));
    printf("  promoted   %s; %s I/O errors", cli_count_text(tier->promotions, a), cli_count_text(tier->io_errors, b));
    printf(" in %s operations\n", cli_count_text(operations_of(v, tier), c));
}

static void print_table(const view *v)
{
    char a[CLI_COUNT_TEXT], b[CLI_COUNT_TEXT];
    printf("%s blocks, %s references\n", cli_count_text(v->store.blocks, a), cli_count_text(v->store.references, b));
    printf("%s payloads verified, ", cli_count_text(v->store.payloads_verified, a));
    printf("%s did not match\n", cli_count_text(v->store.digest_misses, a));
    for (uint32_t i = 0; i < v->store.tier_count; i++) {
        print_tier(v, &v->tiers[i]);
    }
    for (size_t i = 0; i < v->space_count; i++) {
        printf("space %s: %s blocks, %s\n  %s\n", v->spaces[i].label, cli_count_text(v->spaces[i].blocks, a),
               cli_bytes_text(v->spaces[i].payload_bytes, b), v->spaces[i].description);
    }
    for (size_t i = 0; i < v->tenant_count; i++) {
        printf("tenant %lu: %s blocks, %s\n", (unsigned long)v->tenants[i].tenant,
               cli_count_text(v->tenants[i].blocks, a), cli_bytes_text(v->tenants[i].payload_bytes, b));
    }
    if (v->store.damaged_slots != 0) {
        printf("%s damaged slot headers of %s read: kvonce verify names them\n",
               cli_count_text(v->store.damaged_slots, a), cli_count_text(v->store.headers_read, b));
    }
}

static const cli_command stat_command = {
    "stat", "DIR", "Says what the store in DIR holds, and what it has done since it was created.",
    "Nothing is written; the store must not be open elsewhere.\n\n"
    "examples:\n"
    "  kvonce stat /var/lib/kvonce\n"
    "  kvonce stat /var/lib/kvonce --json | jq .tiers\n",
    cli_stat_command};

int cli_stat_command(int argc, char **argv)
{
    const char *directory;
    const char *json = NULL;
    const cli_option options[] = {{"--json", NULL, "print one JSON object", &json}, {NULL, NULL, NULL, NULL}};
    kvo_store *store;
    view v = {0};
    int code = cli_parse(&stat_command, options, argc, argv, &directory);
    if (code >= 0) {
        return code;
    }
    if (cli_open_directory(directory, KVO_OPEN_READ_ONLY, &store) != 0) {
        return CLI_FAIL;
    }
    code = cli_close_directory(store, take_view(store, &v));
    if (code == CLI_OK) {
        if (json != NULL) {
            print_json(&v);
        } else {
            print_table(&v);
        }
        code = cli_finish(CLI_OK);
    }
    free_view(&v);
    return code;
}
