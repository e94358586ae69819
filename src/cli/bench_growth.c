/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How reopening grows with the blocks: headers alone, written by docs/format.md into a sparse file, over
 * payloads of zeros that are holes. A small store made by the library gives the pages to start from.
 */
#include "bench.h"
#include "bench_reopen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define STORE "growth"
#define PAGE 4096u

/* Places in the pages of docs/format.md. */
enum {
    ANY_VERSION = 8,
    ANY_CHECKSUM = PAGE - 8,
    SUPER_CLEAN = 12,
    SUPER_ID = 16,
    SUPER_SEQUENCE = 32,
    SUPER_SEGMENT_UNITS = 48,
    SUPER_SEGMENTS = 52,
    SUPER_LAST_UNITS = 56,
    SUPER_WRITE_NUMBER = 64,
    SUPER_MARK_WRITTEN = 72,
    SUPER_MARK_FLUSHED = 80,
    SUPER_RECORDS = 128,
    SEGMENT_NUMBER = 12,
    SEGMENT_ID = 16,
    SEGMENT_STRIDE = 32,
    SEGMENT_EPOCH = 36,
    SLOT_NUMBER = 12,
    SLOT_WRITE_NUMBER = 32,
    SLOT_STRIDE = 40,
    SLOT_EPOCH = 44,
    SLOT_IDENTITY = 128,
    IDENTITY_SPACE = 48,
    IDENTITY_NAME_BYTES = 60,
    IDENTITY_KIND = 61,
    IDENTITY_NAME = 64
};

typedef struct growth {
    bench *b;
    size_t count;
    uint64_t *offsets;
    uint8_t slot[PAGE]; /* the header of the one block that the library put */
    uint8_t super[PAGE];
    uint32_t segment_units, stride, segments, slots; /* slots: of a segment */
    int data, file;                                  /* file: super */
} growth;

static uint32_t get_u32(const uint8_t *page, size_t at)
{
    uint32_t value;
    memcpy(&value, page + at, sizeof value);
    return value;
}

static uint64_t get_u64(const uint8_t *page, size_t at)
{
    uint64_t value;
    memcpy(&value, page + at, sizeof value);
    return value;
}

static void set_u32(uint8_t *page, size_t at, uint32_t value)
{
    memcpy(page + at, &value, sizeof value);
}

static void set_u64(uint8_t *page, size_t at, uint64_t value)
{
    memcpy(page + at, &value, sizeof value);
}

static void seal(uint8_t page[PAGE])
{
    set_u64(page, ANY_CHECKSUM, XXH3_64bits(page, ANY_CHECKSUM));
}

static int write_page(int file, uint64_t offset, const uint8_t page[PAGE])
{
    return pwrite(file, page, PAGE, (off_t)offset) == PAGE ? 0 : cli_fail("growth: write: %s", strerror(errno));
}

/* ---- The small store ---- */

static int put_one(growth *g, uint64_t *offset)
{
    bench_store store;
    kvo_options options = KVO_OPTIONS_INIT;
    uint8_t name[BENCH_NAME_BYTES];
    options.block_bytes = BENCH_REOPEN_BYTES;
    int code = bench_open(g->b, STORE, "disk:@:64M", &options, &store);
    if (code != 0) {
        return code;
    }
    uint8_t *zeros = cli_alloc(1, BENCH_REOPEN_BYTES);
    const kvo_segment segment = {zeros, BENCH_REOPEN_BYTES};
    bench_names(name, 0, 1);
    code = bench_put(&store, name, 1, &segment, NULL);
    code = code != 0 ? code : bench_offsets(&store, name, 1, offset);
    free(zeros);
    int closed = bench_close(&store, KVO_FOREVER);
    return code != 0 ? code : closed;
}

static int open_file(const growth *g, const char *name, int *file)
{
    char path[sizeof g->b->directory + 64];
    (void)snprintf(path, sizeof path, "%s/%s/%s", g->b->directory, STORE, name);
    *file = open(path, O_RDWR | O_CLOEXEC);
    return *file >= 0 ? 0 : cli_fail("%s: %s", path, strerror(errno));
}

/* The header to repeat, the superblock that counts, and what they say of the geometry. */
static int read_pages(growth *g, uint64_t offset)
{
    uint8_t other[PAGE];
    if (pread(g->data, g->slot, PAGE, (off_t)offset) != PAGE || pread(g->file, g->super, PAGE, 0) != PAGE ||
        pread(g->file, other, PAGE, PAGE) != PAGE) {
        return cli_fail("growth: read: %s", strerror(errno));
    }
    if (get_u64(other, SUPER_SEQUENCE) > get_u64(g->super, SUPER_SEQUENCE)) {
        memcpy(g->super, other, PAGE);
    }
    if (memcmp(g->slot, "KVOSLOT1", 8) != 0 || memcmp(g->super, "KVOSUPR1", 8) != 0 ||
        get_u32(g->slot, ANY_VERSION) != 1) {
        return cli_fail("growth: the format is another than this command knows");
    }
    g->segment_units = get_u32(g->super, SUPER_SEGMENT_UNITS);
    g->stride = get_u32(g->slot, SLOT_STRIDE);
    g->slots = (g->segment_units - 1) / g->stride;
    g->segments = (uint32_t)((g->count + g->slots - 1) / g->slots);
    return 0;
}

/* ---- The large one ---- */

static int write_segment(growth *g, uint32_t segment)
{
    uint8_t page[PAGE] = "KVOSEGM1";
    set_u32(page, ANY_VERSION, 1);
    set_u32(page, SEGMENT_NUMBER, segment);
    memcpy(page + SEGMENT_ID, g->super + SUPER_ID, 16);
    set_u32(page, SEGMENT_STRIDE, g->stride);
    set_u32(page, SEGMENT_EPOCH, get_u32(g->slot, SLOT_EPOCH));
    seal(page);
    return write_page(g->data, (uint64_t)segment * g->segment_units * PAGE, page);
}

static int write_slot(growth *g, size_t i)
{
    uint8_t *identity = g->slot + SLOT_IDENTITY;
    uint64_t seed = get_u64(identity, IDENTITY_SPACE) ^ (uint64_t)identity[IDENTITY_NAME_BYTES] << 16 ^
                    (uint64_t)identity[IDENTITY_KIND] << 24;
    uint64_t unit = i / g->slots * g->segment_units + 1 + i % g->slots * g->stride;
    bench_names(identity + IDENTITY_NAME, i, 1);
    uint64_t hash = XXH3_64bits_withSeed(identity + IDENTITY_NAME, identity[IDENTITY_NAME_BYTES], seed);
    set_u64(identity, 0, hash != 0 ? hash : 1);
    set_u32(g->slot, SLOT_NUMBER, (uint32_t)unit);
    set_u64(g->slot, SLOT_WRITE_NUMBER, i + 1);
    seal(g->slot);
    g->offsets[i] = unit * PAGE;
    return write_page(g->data, g->offsets[i], g->slot);
}

static int write_super(growth *g)
{
    uint64_t sequence = get_u64(g->super, SUPER_SEQUENCE);
    int code = 0;
    set_u32(g->super, SUPER_CLEAN, 1);
    set_u32(g->super, SUPER_SEGMENTS, g->segments);
    set_u32(g->super, SUPER_LAST_UNITS, g->segment_units);
    set_u64(g->super, SUPER_WRITE_NUMBER, g->count);
    set_u64(g->super, SUPER_MARK_WRITTEN, g->count);
    set_u64(g->super, SUPER_MARK_FLUSHED, g->count);
    set_u64(g->super, SUPER_RECORDS, g->count);
    for (int i = 0; code == 0 && i < 2; i++) {
        set_u64(g->super, SUPER_SEQUENCE, ++sequence);
        seal(g->super);
        code = write_page(g->file, sequence % 2 * PAGE, g->super);
    }
    return code;
}

static int write_all(growth *g)
{
    uint64_t bytes = (uint64_t)g->segments * g->segment_units * PAGE;
    int code = ftruncate(g->data, 0) == 0 && ftruncate(g->data, (off_t)bytes) == 0
                   ? 0
                   : cli_fail("growth: cannot make a sparse file: %s", strerror(errno));
    for (uint32_t i = 0; code == 0 && i < g->segments; i++) {
        code = write_segment(g, i);
    }
    for (size_t i = 0; code == 0 && i < g->count; i++) {
        code = bench_stopped();
        code = code != 0 ? code : write_slot(g, i);
    }
    code = code != 0 ? code : write_super(g);
    if (code == 0 && (fsync(g->data) != 0 || fsync(g->file) != 0)) {
        code = cli_fail("growth: flush: %s", strerror(errno));
    }
    return code;
}

static int build(growth *g)
{
    uint64_t offset = 0;
    int code = put_one(g, &offset);
    code = code != 0 ? code : open_file(g, "data", &g->data);
    code = code != 0 ? code : open_file(g, "super", &g->file);
    code = code != 0 ? code : read_pages(g, offset);
    code = code != 0 ? code : write_all(g);
    if (g->data >= 0) {
        (void)close(g->data);
    }
    if (g->file >= 0) {
        (void)close(g->file);
    }
    return code;
}

int bench_growth(bench *b)
{
    static const struct {
        size_t count;
        const char *scan_row, *checkpoint_row;
    } steps[] = {{10000, "reopen_scan_10000", "reopen_checkpoint_10000"},
                 {100000, "reopen_scan_100000", "reopen_checkpoint_100000"},
                 {1000000, "reopen_scan_1000000", "reopen_checkpoint_1000000"}};
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof steps / sizeof steps[0]; i++) {
        growth g = {.b = b, .count = b->quick ? steps[i].count / 100 : steps[i].count, .data = -1, .file = -1};
        g.offsets = cli_alloc(g.count, sizeof *g.offsets);
        const bench_reopening what = {STORE, "disk:@", g.count, g.offsets, steps[i].scan_row, steps[i].checkpoint_row,
                                      NULL, NAN};
        code = build(&g);
        code = code != 0 ? code : bench_reopen_measure(b, &what);
        free(g.offsets);
        bench_place_clear(b, STORE);
    }
    return code;
}
