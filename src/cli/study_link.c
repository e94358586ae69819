/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment 5: what crosses a link for one block: counted at the tiers' boundaries by the ledger, and by the kernel;
 * and computed for links that this machine need not have.
 */
#include "study.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Counted ---- */

typedef struct counts {
    double payload, metadata, padding, failed; /* bytes by the ledger, in one direction of the tier */
    double operations;
    double requests, copies;     /* by the store */
    double kernel_bytes, calls; /* by the kernel; calls: read and write calls, io_uring has none */
} counts;

static void kernel_counts(counts *c, int writes)
{
    char line[128];
    FILE *file = fopen("/proc/self/io", "r");
    c->kernel_bytes = c->calls = NAN;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *value = strchr(line, ':');
        if (value == NULL) {
            continue;
        }
        if (strncmp(line, writes ? "write_bytes" : "read_bytes", writes ? 11 : 10) == 0) {
            c->kernel_bytes = strtod(value + 1, NULL);
        } else if (strncmp(line, writes ? "syscw" : "syscr", 5) == 0) {
            c->calls = strtod(value + 1, NULL);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* Calls that one look at the kernel's counts adds to them. */
static double own_calls(int writes)
{
    counts first, second;
    kernel_counts(&first, writes);
    kernel_counts(&second, writes);
    return second.calls - first.calls;
}

static void add_row(counts *c, const kvo_ledger_row *row)
{
    double *where = row->cause == KVO_CAUSE_METADATA  ? &c->metadata
                    : row->cause == KVO_CAUSE_PADDING ? &c->padding
                    : row->cause == KVO_CAUSE_FAILED  ? &c->failed
                                                      : &c->payload;
    *where += (double)row->bytes;
    c->operations += where == &c->payload ? (double)row->operations : 0.0;
}

static int read_counts(const bench_store *store, const char *tier, int writes, counts *c)
{
    kvo_ledger_row *rows = cli_alloc(1024, sizeof *rows);
    kvo_stat stat = KVO_STAT_INIT;
    size_t count = 0;
    *c = (counts){0};
    int status = kvo_ledger(store->store, rows, 1024, &count);
    status = status == KVO_OK ? kvo_stat_store(store->store, &stat) : status;
    for (size_t i = 0; i < count && i < 1024; i++) {
        if (strcmp(rows[i].tier, tier) == 0 && rows[i].direction == writes) {
            add_row(c, &rows[i]);
        }
    }
    c->requests = (double)stat.submissions;
    c->copies = (double)stat.payload_copies;
    free(rows);
    kernel_counts(c, writes);
    return status == KVO_OK ? 0 : bench_refused("ledger", status);
}

typedef struct traffic_link {
    const char *name, *tier;
    int writes;
} traffic_link;

static void add_count(study *s, const traffic_link *link, const char *name, const char *unit, uint64_t block_bytes,
                      size_t blocks, double value, const char *missing)
{
    study_row row = study_row_of(name, link->name, unit);
    study_parameter_add(&row, "block_bytes", (double)block_bytes);
    row.operations = blocks;
    if (isnan(value)) {
        study_add_missing(s, row, missing);
    } else {
        study_add_one(s, row, value);
    }
}

static void add_counts(study *s, const traffic_link *link, uint64_t block_bytes, size_t blocks, const counts *a,
                       const counts *b)
{
    const double n = (double)blocks;
    const int disk = strcmp(link->tier, "disk") == 0;
    add_count(s, link, "payload_bytes", "bytes/block", block_bytes, blocks, (b->payload - a->payload) / n, NULL);
    add_count(s, link, "metadata_bytes", "bytes/block", block_bytes, blocks, (b->metadata - a->metadata) / n, NULL);
    add_count(s, link, "padding_bytes", "bytes/block", block_bytes, blocks, (b->padding - a->padding) / n, NULL);
    add_count(s, link, "operations", "transfers/block", block_bytes, blocks, (b->operations - a->operations) / n, NULL);
    add_count(s, link, "copies", "copies/block", block_bytes, blocks, (b->copies - a->copies) / n, NULL);
    double overhead = b->metadata - a->metadata + b->padding - a->padding;
    add_count(s, link, "overhead", "% of the payload", block_bytes, blocks,
              100.0 * overhead / (b->payload - a->payload), NULL);
    if (!disk) {
        return;
    }
    const double ours = b->payload - a->payload + b->failed - a->failed + overhead;
    double kernel = b->kernel_bytes - a->kernel_bytes;
    const char *why = "the kernel does not count bytes of a process here (/proc/self/io)";
    if (kernel <= 0.0 && ours > 0.0) { /* tmpfs, a network's, or what the page cache had */
        kernel = NAN;
        why = "the kernel counts what reaches a device, and none of it did: the files lie in memory, in its cache or "
              "elsewhere";
    }
    add_count(s, link, "requests", "requests/block", block_bytes, blocks, (b->requests - a->requests) / n, NULL);
    add_count(s, link, "kernel_bytes", "bytes/block", block_bytes, blocks, kernel / n, why);
    add_count(s, link, "balance", "% that the kernel counts above the ledger", block_bytes, blocks,
              100.0 * (kernel - ours) / ours, why);
    add_count(s, link, "balance_bytes", "bytes of all blocks that the kernel counts above the ledger", block_bytes,
              blocks, kernel - ours, why);
    add_count(s, link, "calls", "read or write calls/block", block_bytes, blocks,
              (b->calls - a->calls - own_calls(link->writes)) / n,
              "the kernel does not count calls of a process here (/proc/self/io)");
}

/* Puts or gets all blocks of a store, and counts what crossed meanwhile. */
static int count_link(study *s, bench_store *store, const traffic_link *link, uint64_t block_bytes, size_t blocks,
                      uint8_t *memory)
{
    counts before, after;
    uint8_t names[16 * BENCH_NAME_BYTES];
    kvo_segment *segments = bench_segments(memory, block_bytes, 16);
    int code = read_counts(store, link->tier, link->writes, &before);
    for (size_t i = 0; code == 0 && i < blocks; i += 16) {
        bench_names(names, i, 16);
        code = bench_stopped();
        if (code == 0) {
            code = link->writes ? bench_put(store, names, 16, segments, NULL)
                                : bench_get(store, names, 16, segments, NULL);
        }
    }
    code = code != 0 ? code : read_counts(store, link->tier, link->writes, &after);
    free(segments);
    if (code == 0) {
        add_counts(s, link, block_bytes, blocks, &before, &after);
    }
    return code;
}

static int count_tier(study *s, const char *tier, int engine, uint64_t block_bytes, const traffic_link links[2])
{
    bench_store store = {.store = NULL};
    kvo_options options = KVO_OPTIONS_INIT;
    kvo_error why;
    char tiers[96];
    /* Many small ones: what is written once a segment is spread over them. */
    const size_t blocks =
        block_bytes < 1u << 20 ? (size_t)study_pick(s, 2048, 512, 32) : (size_t)study_pick(s, 128, 32, 16);
    options.block_bytes = block_bytes;
    options.io_engine = engine;
    options.write_out_ns = 3600000000000u; /* policies are not a block's transfer: none meanwhile */
    (void)snprintf(tiers, sizeof tiers, "%s:%zublk", tier, blocks + 16);
    int status = bench_try_open(&s->bench, "link", tiers, &options, &store, &why);
    if (status != KVO_OK) {
        for (int i = 0; i < 2; i++) {
            study_row row = study_row_of("payload_bytes", links[i].name, "bytes/block");
            study_parameter_add(&row, "block_bytes", (double)block_bytes);
            study_add_missing(s, row, why.text[0] != 0 ? why.text : kvo_status_text(status));
        }
        return bench_stopped();
    }
    uint8_t *memory = bench_map(block_bytes * 16);
    int code = count_link(s, &store, &links[0], block_bytes, blocks, memory);
    code = code != 0 ? code : count_link(s, &store, &links[1], block_bytes, blocks, memory);
    int closed = bench_close(&store, 0);
    bench_unmap(memory, block_bytes * 16);
    bench_place_clear(&s->bench, "link");
    return code != 0 ? code : closed;
}

/* ---- Computed ---- */

/* Bytes on the wire for one block, and what moves it; docs/study.md has the formulas, their sources and what they
   leave aside. */
typedef struct wire {
    const char *name;
    double (*bytes)(double payload);
    double (*transactions)(double payload);
} wire;

static double pieces(double payload, double piece) { return ceil(payload / piece); }

/* PCI Express 5.0: framing with the sequence number 4, LCRC 4, and a header: 16 with a 64-bit address (memory writes
   and read requests), 12 (completions, which bring what was read). Payloads of at most 256 bytes, requests for at
   most 512. */
enum { PCIE_WRITE = 24, PCIE_REQUEST = 24, PCIE_COMPLETION = 20 };
static double pcie_bytes(double payload)
{
    return payload + pieces(payload, 256) * PCIE_WRITE;
}
static double pcie_transactions(double payload) { return pieces(payload, 256); }
static double pcie_read_bytes(double bytes)
{
    return bytes + pieces(bytes, 512) * PCIE_REQUEST + pieces(bytes, 256) * PCIE_COMPLETION;
}
/* CXL 3.x: 256-byte flits carry 15 slots; a write of 64 bytes is one slot of header and four of data. */
static double cxl_bytes(double payload) { return pieces(pieces(payload, 64) * 5, 15) * 256; }
static double cxl_transactions(double payload) { return pieces(payload, 64); }
/* NVM Express, a read of at most 1 MiB: a doorbell of 4 bytes rings, the device reads the command of 64 and a list of
   8 bytes a page of 4096 but the first (where there are more than two), writes the data, the completion of 16 and an
   interrupt of 4, and a second doorbell says that the completion was seen. */
static double nvme_commands(double payload) { return pieces(payload, 1048576); }
static double nvme_command_bytes(double payload)
{
    const double pages = pieces(payload, 4096), list = pages > 2 ? 8 * (pages - 1) : 0;
    return pcie_bytes(payload) + pcie_read_bytes(64) + pcie_read_bytes(list) + 2 * pcie_bytes(4) + pcie_bytes(16) +
           pcie_bytes(4);
}
static double nvme_bytes(double payload)
{
    const double whole = floor(payload / 1048576), rest = payload - whole * 1048576;
    return whole * nvme_command_bytes(1048576) + (rest > 0 ? nvme_command_bytes(rest) : 0);
}
/* RoCE v2, 4096 bytes a packet: preamble and gap 20, Ethernet 14 + 4, IPv4 20, UDP 8, BTH 12, ICRC 4; a RETH of 16 with
   the first packet, and an acknowledgement of 20 + 18 + 20 + 8 + 12 + 4 + 4. */
static double rdma_transactions(double payload) { return pieces(payload, 4096); }
static double rdma_bytes(double payload) { return payload + rdma_transactions(payload) * 82 + 16 + 86; }

static const wire wires[] = {{"PCI Express 5.0, 256-byte payloads", pcie_bytes, pcie_transactions},
                             {"CXL 3 memory, 256-byte flits", cxl_bytes, cxl_transactions},
                             {"NVMe over PCI Express", nvme_bytes, nvme_commands},
                             {"RDMA (RoCE v2), 4096-byte packets", rdma_bytes, rdma_transactions}};

static void add_computed(study *s, const wire *w, uint64_t block_bytes)
{
    const double payload = (double)block_bytes;
    study_row row = study_row_of("wire_overhead", w->name, "% of the payload");
    row.computed = 1;
    study_parameter_add(&row, "block_bytes", payload);
    study_add_one(s, row, 100.0 * (w->bytes(payload) - payload) / payload);
    row = study_row_of("wire_transactions", w->name, "transactions/block");
    row.computed = 1;
    study_parameter_add(&row, "block_bytes", payload);
    study_add_one(s, row, w->transactions(payload));
}

/* ---- The experiment ---- */

int study_link(study *s)
{
    static const uint64_t sizes[] = {16u << 10, 64u << 10, 100000, 1u << 20, 5u << 20, 8u << 20};
    static const traffic_link dram[] = {{"dram put", "dram", 1}, {"dram get", "dram", 0}};
    static const traffic_link ring[] = {{"disk put, io_uring", "disk", 1}, {"disk get, io_uring", "disk", 0}};
    static const traffic_link threads[] = {{"disk put, threads", "disk", 1}, {"disk get, threads", "disk", 0}};
    int code = 0;
    for (size_t i = 0; code == 0 && i < (size_t)study_pick(s, 6, 6, 3); i++) {
        code = count_tier(s, "dram", KVO_IO_AUTO, sizes[i], dram);
        code = code != 0 ? code : count_tier(s, "disk:@", KVO_IO_URING, sizes[i], ring);
        code = code != 0 ? code : count_tier(s, "disk:@", KVO_IO_THREADS, sizes[i], threads);
        for (size_t k = 0; code == 0 && k < sizeof wires / sizeof wires[0]; k++) {
            add_computed(s, &wires[k], sizes[i]);
        }
    }
    return code;
}

/* Of a link to disk, through whichever engine there is a figure. */
static const study_row *disk_put(const study *s, const char *name, double block_bytes)
{
    const study_row *row = study_find(s, name, "disk put, io_uring", "block_bytes", block_bytes, NULL);
    return row != NULL ? row : study_find(s, name, "disk put, threads", "block_bytes", block_bytes, NULL);
}

/* What a file system adds of its own, a page or two, is not held against a row of few blocks. */
static int agree(const study *s, const study_row *balance)
{
    const study_row *bytes = study_find(s, "balance_bytes", balance->series, "block_bytes",
                                        study_parameter_of(balance, "block_bytes"), NULL);
    return fabs(balance->p50) <= 0.1 || (bytes != NULL && fabs(bytes->p50) <= 8192.0);
}

/* All rows where both counted, and the one where they are farthest apart. */
static void say_balance(study *s)
{
    const study_row *worst = NULL;
    size_t count = 0, apart = 0;
    for (size_t i = 0; i < s->now->row_count; i++) {
        const study_row *row = &s->now->rows[i];
        if (row->missing == NULL && strcmp(row->name, "balance") == 0) {
            worst = worst == NULL || fabs(row->p50) > fabs(worst->p50) ? row : worst;
            apart += !agree(s, row);
            count++;
        }
    }
    if (worst == NULL) {
        study_say(s, "No balance: the kernel counted nothing here that the ledger could be held against.");
        return;
    }
    study_say(s,
              "Balance: in %zu row%s the kernel counted bytes too; it is farthest from the ledger with %+.3f %% (%s, "
              "%.0f bytes a block): the accounts %s.",
              count, count == 1 ? "" : "s", worst->p50, worst->series, study_parameter_of(worst, "block_bytes"),
              apart == 0 ? "agree" : "DO NOT AGREE");
}

void study_link_read(study *s)
{
    const double sizes[] = {65536.0, 5242880.0};
    for (int i = 0; i < 2; i++) {
        const study_row *put = disk_put(s, "overhead", sizes[i]);
        const study_row *packets = study_find(s, "wire_overhead", wires[0].name, "block_bytes", sizes[i], NULL);
        if (put != NULL && packets != NULL) {
            study_say(s, "At %s a block the store adds %.3f %% to what goes to disk; PCI Express's own packets would "
                         "add %.2f %% (computed). ",
                      i == 0 ? "64 KiB" : "5 MiB", put->p50, packets->p50);
        }
    }
    const study_row *requests = disk_put(s, "requests", 5242880.0), *copies = disk_put(s, "copies", 5242880.0);
    if (requests != NULL && copies != NULL) {
        study_say(s, "A block of 5 MiB is %.2f requests to the kernel and %.2f copies by the processor on its way to "
                     "disk. ",
                  requests->p50, copies->p50);
    }
    say_balance(s);
}
