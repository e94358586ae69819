/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include "json_out.h"

#include <string.h>

/* What the project asks of itself. A bar of 0 blocks is for every size. */
typedef struct bar {
    const char *name;
    uint64_t block_bytes;
    int of_ratio; /* else of the value */
    int at_most;  /* else at least */
    double number;
} bar;

static const bar bars[] = {
    {"match", 0, 0, 0, 10e6},
    {"policy_word", 0, 0, 0, 30e6},
    {"policy_masked", 0, 1, 0, 0.5},
    {"policy_word_mover", 0, 1, 0, 0.5},
    {"policy_masked_mover", 0, 1, 0, 0.5},
    {"dram_get", BENCH_BIG, 1, 0, 0.90},
    {"dram_put", BENCH_BIG, 1, 0, 0.85},
    {"disk_get", BENCH_BIG, 1, 0, 0.90},
    {"disk_put", BENCH_BIG, 1, 0, 0.90},
    {"disk_get_submissions", 0, 0, 1, 1.0},
    {"disk_put_submissions", 0, 0, 1, 1.0},
    {"disk_get_copies", 0, 0, 1, 0.0},
    {"disk_put_copies", 0, 0, 1, 0.0},
    {"disk_get_copies_unaligned", 0, 0, 1, 1.0},
    {"disk_put_copies_unaligned", 0, 0, 1, 1.0},
    {"disk_get_extra_bytes", 0, 0, 1, 4096.0},
    {"disk_put_extra_bytes", 0, 0, 1, 4096.0},
    {"metadata_bytes_per_block", 0, 0, 1, 256.0},
    {"control_record_bytes", 0, 0, 1, 64.0},
    {"reopen_scan", 0, 1, 1, 1.2},
    {"reopen_checkpoint", 0, 0, 1, 1.0},
};

static const bar *bar_of(const bench_row *row)
{
    for (size_t i = 0; i < sizeof bars / sizeof bars[0]; i++) {
        if (strcmp(bars[i].name, row->name) == 0 &&
            (bars[i].block_bytes == 0 || bars[i].block_bytes == row->block_bytes)) {
            return &bars[i];
        }
    }
    return NULL;
}

/* What is not known is not met. */
static int is_met(const bar *goal, const bench_row *row)
{
    double number = goal->of_ratio ? row->ratio : row->value;
    return goal->at_most ? number <= goal->number : number >= goal->number;
}

/* ---- For people ---- */

#define CELL 24

static const char *amount(double value, const char *unit, char text[CELL])
{
    char bytes[CLI_COUNT_TEXT];
    if (isnan(value)) {
        (void)snprintf(text, CELL, "-");
    } else if (strcmp(unit, "bytes/s") == 0) {
        (void)snprintf(text, CELL, "%s/s", cli_bytes_text((uint64_t)value, bytes));
    } else if (strcmp(unit, "names/s") == 0 || strcmp(unit, "updates/s") == 0) {
        (void)snprintf(text, CELL, "%.2f M/s", value / 1e6);
    } else if (strcmp(unit, "s") == 0 && value < 1e-3) {
        (void)snprintf(text, CELL, "%.1f us", value * 1e6);
    } else if (strcmp(unit, "s") == 0) {
        (void)snprintf(text, CELL, value < 1.0 ? "%.2f ms" : "%.2f s", value < 1.0 ? value * 1e3 : value);
    } else {
        (void)snprintf(text, CELL, "%.5g", value);
    }
    return text;
}

static const char *number(double value, char text[CELL])
{
    (void)snprintf(text, CELL, isnan(value) ? "-" : "%.3f", value);
    return text;
}

static void print_row(const bench_row *row)
{
    char block[CLI_COUNT_TEXT] = "", a[CELL], b[CELL], c[CELL], d[CELL];
    const bar *goal = bar_of(row);
    if (row->block_bytes != 0) {
        (void)cli_bytes_text(row->block_bytes, block);
    }
    printf("%-33s %9s %12s %12s %8s %7s %6u", row->name, block, amount(row->value, row->unit, a),
           amount(row->limit, row->unit, b), number(row->ratio, c), number(row->control, d), row->rounds);
    if (goal != NULL) {
        printf("  %s %s %s: %s", goal->of_ratio ? "ratio" : "value", goal->at_most ? "<=" : ">=",
               goal->of_ratio ? number(goal->number, c) : amount(goal->number, row->unit, c),
               is_met(goal, row) ? "met" : goal->at_most ? "ABOVE" : "BELOW");
    }
    printf("%s\n", row->noisy ? "  noisy" : "");
    (void)fflush(stdout);
}

void bench_add(bench *b, const bench_row *row)
{
    b->rows = cli_grow(b->rows, b->row_count, &b->row_room, sizeof *b->rows);
    b->rows[b->row_count++] = *row;
    if (!b->json) {
        print_row(row);
    }
}

void bench_heading(const bench *b)
{
    bench_fact facts[BENCH_FACTS_MAX];
    size_t count = bench_machine(b, facts);
    char text[CLI_COUNT_TEXT];
    for (size_t i = 0; i < count; i++) {
        printf("%-18s %s\n", facts[i].name, facts[i].is_number ? cli_count_text(facts[i].number, text) : facts[i].text);
    }
    if (b->quick) {
        printf("%-18s %s\n", "quick", "too little is measured for the figures to mean much");
    }
    printf("%-18s %s\n\n%-33s %9s %12s %12s %8s %7s %6s  bar\n", "directory", b->directory, "row", "block", "value",
           "limit", "ratio", "control", "rounds");
    (void)fflush(stdout);
}

void bench_missed(const bench *b)
{
    unsigned asked = 0, missed = 0, noisy = 0;
    for (size_t i = 0; i < b->row_count; i++) {
        const bar *goal = bar_of(&b->rows[i]);
        asked += goal != NULL;
        missed += goal != NULL && !is_met(goal, &b->rows[i]);
        noisy += b->rows[i].noisy != 0;
    }
    printf("\n%u bars, %u met, %u missed", asked, asked - missed, missed);
    for (size_t i = 0, shown = 0; i < b->row_count; i++) {
        const bar *goal = bar_of(&b->rows[i]);
        if (goal != NULL && !is_met(goal, &b->rows[i])) {
            printf("%s%s", shown++ == 0 ? ": " : ", ", b->rows[i].name);
        }
    }
    printf("; %u rows noisy\n", noisy);
}

/* ---- JSON ---- */

static void json_real(cli_out *out, const char *key, double value)
{
    if (isfinite(value)) {
        cli_out_real(out, key, value);
    } else {
        cli_out_null(out, key);
    }
}

static void json_row(cli_out *out, const bench_row *row)
{
    cli_out_object(out, NULL);
    cli_out_text(out, "name", row->name);
    cli_out_u64(out, "block_bytes", row->block_bytes);
    json_real(out, "value", row->value);
    cli_out_text(out, "unit", row->unit);
    json_real(out, "limit", row->limit);
    json_real(out, "ratio", row->ratio);
    json_real(out, "control", row->control);
    cli_out_u64(out, "rounds", row->rounds);
    if (row->noisy) {
        cli_out_bool(out, "noisy", 1);
    }
    cli_out_object_end(out);
}

void bench_json(const bench *b)
{
    bench_fact facts[BENCH_FACTS_MAX];
    size_t count = bench_machine(b, facts);
    cli_out out = {0, 0};
    cli_out_object(&out, NULL);
    cli_out_object(&out, "machine");
    for (size_t i = 0; i < count; i++) {
        if (facts[i].is_number) {
            cli_out_u64(&out, facts[i].name, facts[i].number);
        } else {
            cli_out_text(&out, facts[i].name, facts[i].text);
        }
    }
    cli_out_object_end(&out);
    cli_out_list(&out, "rows");
    for (size_t i = 0; i < b->row_count; i++) {
        json_row(&out, &b->rows[i]);
    }
    cli_out_list_end(&out);
    cli_out_object_end(&out);
}
