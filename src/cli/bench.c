/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include "commands.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

typedef struct part {
    const char *name;
    int (*run)(bench *b);
    uint64_t disk_mib, memory_mib; /* at most, at a time */
    uint64_t quick_mib;            /* of both */
    double seconds;                /* with repeats; what a part leaves, later ones have */
} part;

static const part parts[] = {
    {"control", bench_control, 1, 256, 128, 20.0},
    {"dram", bench_dram, 1, 2560, 320, 60.0},
    {"disk", bench_disk, 1536, 768, 320, 100.0},
    {"latency", bench_latency, 2048, 1024, 1024, 70.0},
    {"reopen", bench_reopen, 14336, 1024, 512, 200.0},
    {"growth", bench_growth, 6144, 1024, 512, 600.0},
};
#define PART_COUNT (sizeof parts / sizeof parts[0])

/* Which parts: one, or all, of which the last only in full. */
static int wanted(const bench *b, size_t index, int only)
{
    return only == 0 ? b->full || index + 1 < PART_COUNT : only == (int)index + 1;
}

static int check_room(const bench *b, int only)
{
    uint64_t disk = 0, memory = 0;
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (wanted(b, i, only)) {
            uint64_t some = b->quick ? parts[i].quick_mib : parts[i].disk_mib;
            disk = some > disk ? some : disk;
            some = b->quick ? parts[i].quick_mib : parts[i].memory_mib;
            memory = some > memory ? some : memory;
        }
    }
    return bench_place_has(b, disk * MIB, memory * MIB);
}

/* What a disk tier uses here, and what its limit would. */
static int probe(bench *b)
{
    int code = bench_probe(b);
    bench_raw *raw = code == 0 ? bench_raw_open(b, 1) : NULL;
    code = code == 0 && raw == NULL ? CLI_FAIL : code;
    bench_raw_close(raw);
    return code;
}

static int run_parts(bench *b, int only)
{
    int code = 0;
    b->deadline_s = bench_now();
    for (size_t i = 0; code == 0 && i < PART_COUNT; i++) {
        if (wanted(b, i, only)) {
            b->deadline_s += b->quick ? 0.0 : parts[i].seconds * (b->full ? 3.0 : 1.0);
            code = parts[i].run(b);
        }
    }
    return code != 0 ? code : bench_stopped();
}

static const cli_command bench_command = {
    "bench", NULL, "Measures the store beside what the machine can do: copies, raw disk, and bars.",
    "Needs 14 GiB of disk and 3 GiB of memory, takes up to 8 minutes on a disk of 300 MB/s, and removes\n"
    "what it wrote. kvonce-bench(1) says what each row is.\n\n"
    "examples:\n"
    "  kvonce bench --dir /mnt/nvme\n"
    "  kvonce bench --json > bench.json\n"
    "  kvonce bench --only control\n\n"
    "exit: 0 measured, whatever the figures are; 1 wrong bytes, or a policy that is not what was set;\n"
    "2 it could not run.\n",
    cli_bench_command};

int cli_bench_command(int argc, char **argv)
{
    static const char *const words[] = {"all", "control", "dram", "disk", "latency", "reopen", "growth", NULL};
    const char *directory = NULL, *full = NULL, *json = NULL, *quick = NULL, *only_text = NULL, *operand;
    const cli_option options[] = {
        {"--dir", "DIR", "where to write (default: $TMPDIR or /var/tmp); a directory is made in it", &directory},
        {"--full", NULL, "also how reopening grows to 1,000,000 blocks; 20 minutes", &full},
        {"--json", NULL, "print one JSON object", &json},
        {"--only", "PART", "control, dram, disk, latency, reopen or growth", &only_text},
        {"--quick", NULL, "a small run that shows that all works; its figures mean little", &quick},
        {NULL, NULL, NULL, NULL}};
    bench b = {0};
    int only = 0;
    int code = cli_parse(&bench_command, options, argc, argv, &operand);
    if (code >= 0) {
        return code;
    }
    if (cli_word("--only", only_text, words, &only) != 0) {
        return CLI_FAIL;
    }
    b.command = "bench";
    b.full = full != NULL;
    b.json = json != NULL;
    b.quick = quick != NULL;
    bench_catch_signals();
    code = bench_place_make(&b, directory);
    code = code != 0 ? code : check_room(&b, only);
    code = code != 0 ? code : probe(&b);
    if (code == 0 && !b.json) {
        bench_heading(&b);
    }
    code = code != 0 ? code : run_parts(&b, only);
    if (code == 0 && b.json) {
        bench_json(&b);
    } else if (code == 0) {
        bench_missed(&b);
    }
    free(b.rows);
    return code == 0 ? cli_finish(CLI_OK) : code;
}
