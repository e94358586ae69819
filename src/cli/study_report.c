/* SPDX-License-Identifier: Apache-2.0 */
/* What the experiments are, and their rows on a terminal and as JSON. */
#include "study.h"
#include "json_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const study_experiment study_experiments[5] = {
    {"lookup",
     "Look-up bandwidth on the promotion path",
     "A store without payloads (ghost) holds chains of 128 names. Threads, each on a processor of its own while there "
     "are enough, match pieces of chains (one name to whole chains, of all blocks, 1,048,576 names in no order, so "
     "that no cache holds what they touch of a large store); a sample is a round, all threads together. Cache lines, "
     "loads and instructions of one look-up are counted by running the same look-ups under callgrind with a "
     "first-level cache of 32 KiB, 8 ways, 64-byte lines: a line that it did not hold is counted as touched, the "
     "caller's names and answers too. The share of a promotion is the time of the same gets, evictions and demotions "
     "in a store without payloads, divided by that of a store with them, disk below memory.",
     study_lookup,
     study_lookup_read,
     {{"Look-ups a second by batch, one thread", "match", "batch", "blocks", "threads", 1.0, 1, 1},
      {"Look-ups a second by threads, batches of 128", "match", "threads", "blocks", "batch", 128.0, 1, 1},
      {"Decisions' share of a promotion", "metadata_share", "block_bytes", NULL, NULL, 0.0, 1, 1}}},
    {"update",
     "Atomic update cost under concurrent schedulers",
     "Threads set whole policies of single blocks by handle, at random among 64 blocks (hot) or 8,192 (cold), and in "
     "a store without payloads among 1,000,000, whose records no common cache holds; every call is timed, less the "
     "least that two readings of the clock are apart. With a mover, another thread puts blocks as fast as the store "
     "takes them, and the store's own mover brings others to disk. The bare tables hold only the words in question: a "
     "scheduler reads the mechanism word and swaps the policy word, a mover reads the policy and pins and unpins; a "
     "sample is the mean of 32 steps, and a step draws its block (what that takes alone is a row, and is in all "
     "figures alike). Policy and mechanism of a block lie in one line of 64 bytes, in two, or packed with those of "
     "seven other blocks each; or in one, behind one lock for all. Forms are run in turn, in several rounds: one is "
     "said to beat another if each of its rounds' medians does.",
     study_update,
     study_update_read,
     {{"One policy update through the store, mover running", "policy_update", "schedulers", NULL, "movers", 1.0, 1, 1},
      {"One policy update through the store, alone", "policy_update", "schedulers", NULL, "movers", 0.0, 1, 1},
      {"One update of a bare table of many blocks, beside a mover", "table_update", "schedulers", NULL, "movers", 1.0,
       1, 1},
      {"The same of 64 blocks", "table_update_hot", "schedulers", NULL, "movers", 1.0, 1, 1}}},
    {"sram",
     "Control state of a capacity, and the hot part of it",
     "The footprint is what the store says of itself for 200,000 blocks; larger capacities are computed from it. The "
     "hot part: a trace is replayed through a store of 2,000 blocks in memory and 10,000 on disk, without payloads; "
     "each match, get and put touches the records of its blocks in order. Exact reuse distances, in records, give "
     "what a fully associative least-recently-used cache of each size would serve (one pass; tags and line sizes left "
     "aside). An access is taken to touch all that is kept of its block; what the store's mover does to records is "
     "left out.",
     study_sram,
     study_sram_read,
     {{"Accesses that a cache serves", "served", "cache_bytes", NULL, NULL, 0.0, 1, 0},
      {"Control state by capacity, 5 MiB blocks", "state", "capacity_bytes", NULL, "block_bytes", 5242880.0, 1, 1}}},
    {"coherence",
     "Coherence of policy between the planes",
     "One thread puts blocks of 64 KiB through 1,024 slots of memory above a disk, another turns policies of the "
     "newest 1,024 blocks over between \"goes first\" and \"goes last\" at a given rate (how many it made is a row), "
     "and lets older ones go first. The store's events say when a block was brought down (its write has ended) and "
     "when it left memory: the age of its policy at that moment is a sample, and a decision counts as made on a "
     "replaced policy if the block had been told to go last by then. What planes that see each other only through a "
     "link would do is simulated: a decision whose policy is younger than the link's delay was made without it; an "
     "age is counted from the return of the call that set the policy. A line's way is timed by two threads that add "
     "to one word in turn, 1,000 turns each a sample.",
     study_coherence,
     study_coherence_read,
     {{"Age of the policy that placement acts on", "policy_age", "updates_per_s", NULL, NULL, 0.0, 1, 1},
      {"Decisions on a policy already replaced", "replaced", "updates_per_s", NULL, NULL, 0.0, 1, 0},
      {"The same if the planes see each other through a link", "replaced_over_link", "link_us", "updates_per_s", NULL,
       0.0, 1, 0}}},
    {"link",
     "Bytes and operations on each link per block",
     "Blocks are put into, and got from, a store of one tier, in calls of 16; the ledger's bytes by cause, the "
     "store's count of requests and copies, and the kernel's of bytes and calls (/proc/self/io, less the calls that "
     "reading it takes) are read before and after, and divided by the blocks; the accounts agree if ledger and kernel "
     "are within 0.1 % or two pages. What the packets of PCI Express, CXL, NVMe and RDMA add is computed; "
     "docs/study.md has formulas and sources.",
     study_link,
     study_link_read,
     {{"What a tier's link carries beside the payload", "overhead", "block_bytes", NULL, NULL, 0.0, 1, 0},
      {"What the packets of a link add (computed)", "wire_overhead", "block_bytes", NULL, NULL, 0.0, 1, 0}}},
};

/* ---- On a terminal ---- */

static void print_parameters(const study_row *row)
{
    for (unsigned i = 0; i < row->parameter_count; i++) {
        printf(" %s=%.10g", row->parameters[i].name, row->parameters[i].value);
    }
}

void study_print_row(const study *s, const study_row *row)
{
    if (s->bench.json) {
        return;
    }
    printf("  %-18s %-32s", row->name, row->series != NULL ? row->series : "");
    if (row->missing != NULL) {
        printf(" missing: %s;", row->missing);
    } else if (row->sample_count == 1) {
        printf(" %12.6g %s%s", row->p50, row->unit, row->computed ? " (computed)" : "");
    } else {
        printf(" %12.6g %s, %.6g to %.6g", row->p50, row->unit, row->p25, row->p75);
        if (!isnan(row->p99)) {
            printf(", p99 %.6g", row->p99);
        }
        if (!isnan(row->p999)) {
            printf(", p99.9 %.6g", row->p999);
        }
        printf(", n %zu", row->sample_count);
    }
    print_parameters(row);
    if (row->oversubscribed) {
        printf(" (more threads than processors)");
    }
    printf("\n");
    if (fflush(stdout) != 0) {
        bench_stop(); /* nobody is there to read on; the end says so */
    }
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

static void json_summary(cli_out *out, const study_row *row)
{
    json_real(out, "median", row->p50);
    json_real(out, "least", row->least);
    json_real(out, "p25", row->p25);
    json_real(out, "p75", row->p75);
    json_real(out, "p99", row->p99);
    json_real(out, "p999", row->p999);
    json_real(out, "most", row->most);
    cli_out_u64(out, "sample_count", row->sample_count);
    cli_out_u64(out, "operations", row->operations);
    cli_out_list(out, "samples");
    for (size_t i = 0; i < row->raw_count; i++) {
        cli_out_real(out, NULL, row->samples[i]);
    }
    cli_out_list_end(out);
}

static void json_row(cli_out *out, const study_row *row)
{
    cli_out_object(out, NULL);
    cli_out_text(out, "name", row->name);
    if (row->series != NULL) {
        cli_out_text(out, "series", row->series);
    }
    cli_out_text(out, "unit", row->unit);
    cli_out_object(out, "parameters");
    for (unsigned i = 0; i < row->parameter_count; i++) {
        json_real(out, row->parameters[i].name, row->parameters[i].value);
    }
    cli_out_object_end(out);
    if (row->missing != NULL) {
        cli_out_text(out, "missing", row->missing);
    } else {
        cli_out_bool(out, "computed", row->computed);
        cli_out_bool(out, "oversubscribed", row->oversubscribed);
        json_summary(out, row);
    }
    cli_out_object_end(out);
}

static void json_machine(cli_out *out, const bench *b)
{
    bench_fact facts[BENCH_FACTS_MAX];
    size_t count = bench_machine(b, facts);
    cli_out_object(out, "machine");
    for (size_t i = 0; i < count; i++) {
        if (facts[i].is_number) {
            cli_out_u64(out, facts[i].name, facts[i].number);
        } else {
            cli_out_text(out, facts[i].name, facts[i].text);
        }
    }
    cli_out_object_end(out);
}

int study_try_output(const char *option, const char *path, int *made)
{
    struct stat there;
    int error = 0;
    *made = 0;
    if (path == NULL || strcmp(path, "-") == 0) {
        return 0;
    }
    if (stat(path, &there) == 0) {
        error = S_ISDIR(there.st_mode) ? EISDIR : access(path, W_OK) != 0 ? errno : 0;
    } else {
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        error = file < 0 ? errno : 0;
        *made = file >= 0;
        if (file >= 0) {
            (void)close(file);
        }
    }
    return error != 0 ? cli_fail("%s: cannot write \"%s\": %s", option, path, strerror(error)) : 0;
}

/* cli_out writes to standard output: it is turned to the file meanwhile. */
int study_write_json(const study *s, const char *path)
{
    cli_out out = {0, 0};
    if (strcmp(path, "-") != 0 && freopen(path, "w", stdout) == NULL) {
        return cli_fail("%s: %s", path, strerror(errno));
    }
    cli_out_object(&out, NULL);
    json_machine(&out, &s->bench);
    cli_out_list(&out, "experiments");
    for (size_t i = 0; i < sizeof s->results / sizeof s->results[0]; i++) {
        const struct study_result *result = &s->results[i];
        if (result->row_count == 0) {
            continue;
        }
        cli_out_object(&out, NULL);
        cli_out_text(&out, "name", study_experiments[i].name);
        cli_out_text(&out, "title", study_experiments[i].title);
        cli_out_text(&out, "method", study_experiments[i].method);
        cli_out_list(&out, "rows");
        for (size_t k = 0; k < result->row_count; k++) {
            json_row(&out, &result->rows[k]);
        }
        cli_out_list_end(&out);
        cli_out_text(&out, "reading", result->reading);
        cli_out_object_end(&out);
    }
    cli_out_list_end(&out);
    cli_out_object_end(&out);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return cli_fail("%s: %s", strcmp(path, "-") == 0 ? "standard output" : path, strerror(errno));
    }
    return 0;
}
