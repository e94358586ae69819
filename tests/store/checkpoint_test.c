/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint makes opening faster and nothing else: with it and without it the same store comes up, table by
 * table, and one that is not exactly of the last close is ignored. KVO_TEST_SEED: printed when something fails.
 */
#include "property.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/store.h"
#include "tier/disk/format.h"

static const char *const alone = "disk:@0:64blk", *const copied = "disk:@1:64blk";

/* ---- what was said ---- */

static unsigned lines;
static char said[512];

static void on_log(void *context, const char *line)
{
    (void)context;
    if (strstr(line, "does not take O_DIRECT"))
        return;
    lines++;
    snprintf(said, sizeof said, "%s", line);
}

static void open_and_listen(const char *tiers)
{
    options.on_log = on_log;
    lines = 0;
    said[0] = 0;
    open_store(tiers);
}

/* NULL: with the checkpoint, nothing is said; else all headers were read, and why is said once. */
static void open_as(const char *tiers, const char *why)
{
    open_and_listen(tiers);
    if (lines != (why != NULL) || (why && (!strstr(said, why) || !strstr(said, "; reading all slot headers"))))
        fail_msg("%u lines, expected %s: %s (KVO_TEST_SEED=%llu)", lines, why ? why : "none", said,
                 (unsigned long long)property_seed);
}

/* ---- all that an opening builds ---- */

typedef struct piece {
    void *memory;
    size_t bytes;
} piece;

typedef struct picture {
    piece pieces[4 + 3 * KVO_TIERS_MAX];
    size_t count;
} picture;

static void take(picture *p, const void *memory, size_t bytes)
{
    piece *to = &p->pieces[p->count++];
    *to = (piece){malloc(bytes + 1), bytes};
    memcpy(to->memory, memory, bytes);
}

static void take_segments(picture *p, const place_segments *slots)
{
    place_segment *segments = malloc(slots->segment_count * sizeof *segments); /* with lists and epochs */
    uint32_t most = place_slots_max(slots), *numbers = malloc(slots->segment_count * most * sizeof *numbers);
    for (uint32_t i = 0; i < slots->segment_count; i++) {
        segments[i] = slots->segments[i];
        segments[i].own = NULL;
        for (uint32_t k = 0; k < most; k++)
            numbers[i * most + k] = place_number_at(slots, i, k);
    }
    take(p, segments, slots->segment_count * sizeof *segments);
    take(p, numbers, slots->segment_count * most * sizeof *numbers);
    free(segments);
    free(numbers);
}

static void take_picture(picture *p)
{
    uint64_t counts[] = {store->record_end, store->free_first, store->blocks,     store->recovered,
                         store->damaged,    store->unfinished, store->clock,      store->write_number};
    p->count = 0;
    take(p, counts, sizeof counts);
    take(p, store->records, store->record_end * sizeof *store->records);
    take(p, store->identities, store->record_end * sizeof *store->identities);
    take(p, store->index.buckets, store->index.bytes);
    for (unsigned i = 0; i < store->tier_count; i++) {
        const store_tier *t = &store->tiers[i];
        if (!t->persistent)
            continue;
        uint64_t space_counts[] = {t->space.free_first, t->space.used_units, t->space.used_slots, t->stale.count,
                                   t->resident};
        take(p, space_counts, sizeof space_counts);
        take_segments(p, &t->space);
    }
}

static void let_go(picture *p)
{
    while (p->count > 0)
        free(p->pieces[--p->count].memory);
}

static void must_be_equal(picture *a, const picture *b)
{
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++)
        if (a->pieces[i].bytes != b->pieces[i].bytes ||
            memcmp(a->pieces[i].memory, b->pieces[i].memory, a->pieces[i].bytes) != 0)
            fail_msg("piece %zu differs (KVO_TEST_SEED=%llu)", i, (unsigned long long)property_seed);
    let_go(a);
}

static void remove_checkpoint(int which)
{
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoint", fixture_path(which));
    unlink(path);
}

/* ---- both ways of opening ---- */

static void copy_directories(unsigned disks)
{
    for (unsigned i = 0; i < disks; i++) {
        fixture_remove(2 + (int)i);
        fixture_copy((int)i, 2 + (int)i);
    }
}

/* What is in @0 (and @1) comes up in the same way, as `tiers`, which speak of copies in @2 and @3. `why`: said of
   the opening that has a checkpoint, if it cannot use it. */
static void compare(const char *tiers, unsigned disks, const char *why)
{
    picture with = {.count = 0}, without = {.count = 0};
    copy_directories(disks);
    open_as(tiers, why);
    take_picture(&with);
    check_valid();
    close_store();
    copy_directories(disks);
    for (unsigned i = 0; i < disks; i++)
        remove_checkpoint(2 + (int)i);
    open_and_listen(tiers);
    assert_non_null(strstr(said, "there is no checkpoint; reading all slot headers"));
    take_picture(&without);
    close_store();
    must_be_equal(&with, &without);
    let_go(&without);
    open_as(tiers, NULL); /* that close wrote one */
    close_store();
}

typedef struct history {
    const char *tiers, *again[5]; /* tiers of the openings that are compared; NULL ends them */
    unsigned disks;
} history;

static const history histories[] = {
    {"dram:24blk,disk:@0:40blk",
     {"dram:24blk,disk:@2:40blk", "disk:@2", "dram:9blk,disk:@2:23blk", "disk:@2:90blk"},
     1},
    {"disk:@0:32blk", {"disk:@2:32blk", "disk:@2:17blk", "dram:4blk,dram:4blk,disk:@2:51blk"}, 1},
    {"dram:12blk,disk:@0:20blk,disk:@1:40blk",
     {"dram:12blk,disk:@2:20blk,disk:@3:40blk", "disk:@3,disk:@2", "disk:@2:11blk,disk:@3:60blk"},
     2},
};

static void work(property_thread *t, uint64_t steps)
{
    for (uint64_t i = 0; i < steps; i++)
        property_step(t);
    property_let_go(t);
}

static void the_same_store_comes_up_after_any_history(void **state)
{
    (void)state;
    const char *given = getenv("KVO_TEST_SEED");
    property_seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    property_thread t = {.count = 1, .random = property_seed, .memory = malloc(8 * PROPERTY_BYTES_MAX)};
    for (size_t h = 0; h < sizeof histories / sizeof *histories; h++) {
        property_disk = true;
        memset(property_names, 0, sizeof property_names);
        for (unsigned round = 0; round < 3; round++) {
            open_and_listen(histories[h].tiers);
            work(&t, 250);
            close_store();
            compare(histories[h].again[0], histories[h].disks, NULL);
        }
        for (size_t i = 1; histories[h].again[i]; i++)
            compare(histories[h].again[i], histories[h].disks, NULL);
        fixture_remove(0);
        fixture_remove(1);
    }
    free(t.memory);
}

/* ---- one that is not of the last close ---- */

static picture by_headers; /* of what is in @0 */

static void look_at_headers(void)
{
    let_go(&by_headers);
    fixture_copy(0, 1);
    remove_checkpoint(1);
    open_as(copied, "there is no checkpoint");
    take_picture(&by_headers);
    close_store();
    open_as(copied, NULL);
    close_store();
    fixture_remove(1);
}

/* @1 is a copy of @0, with another checkpoint: opened as without it. */
static void must_be_ignored(const char *why)
{
    picture found = {.count = 0};
    open_as(copied, why);
    take_picture(&found);
    check_valid();
    close_store();
    fixture_remove(1);
    must_be_equal(&found, &by_headers);
}

static void make_store(void)
{
    open_and_listen(alone);
    fill_with(0, 60, 65536);
    fill_with(100, 30, 5000); /* evicts, and turns segments */
    drop(105, KVO_SAFE);
    rewrite(106, 6000, 1, 3, KVO_SAFE);
    close_store();
    assert_int_equal(lines, 0);
    look_at_headers();
}

static int open_checkpoint(int which)
{
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoint", fixture_path(which));
    int file = open(path, O_RDWR);
    assert_true(file >= 0);
    return file;
}

static size_t checkpoint_pages(int which)
{
    struct stat about;
    int file = open_checkpoint(which);
    assert_int_equal(fstat(file, &about), 0);
    close(file);
    assert_int_equal(about.st_size % TIER_UNIT, 0);
    return (size_t)about.st_size / TIER_UNIT;
}

static void flip(size_t offset, uint8_t bits)
{
    uint8_t byte;
    int file = open_checkpoint(1);
    assert_int_equal(pread(file, &byte, 1, (off_t)offset), 1);
    byte ^= bits;
    assert_int_equal(pwrite(file, &byte, 1, (off_t)offset), 1);
    close(file);
}

static void a_flipped_bit_anywhere_is_noticed(void **state)
{
    (void)state;
    static const size_t offsets[] = {0, 6, 8, 12, 16, 32, 48, 52, 64, 72, 200, 2000, 4087, 4088, 4095};
    make_store();
    size_t pages = checkpoint_pages(0);
    assert_true(pages >= 4);
    for (size_t page = 0; page < pages; page++)
        for (size_t i = page % 3; i < sizeof offsets / sizeof *offsets; i += 3) {
            fixture_copy(0, 1);
            flip(page * TIER_UNIT + offsets[i], (uint8_t)(1u << (page + i) % 8));
            must_be_ignored("the checkpoint is damaged");
        }
}

static void one_that_was_cut_short_is_noticed(void **state)
{
    (void)state;
    make_store();
    size_t bytes = checkpoint_pages(0) * TIER_UNIT;
    for (size_t left = 0; left < bytes; left += TIER_UNIT) {
        char path[128];
        fixture_copy(0, 1);
        snprintf(path, sizeof path, "%s/checkpoint", fixture_path(1));
        assert_int_equal(truncate(path, (off_t)(left + (left / TIER_UNIT % 2) * 777)), 0);
        must_be_ignored(left ? "the checkpoint is damaged" : "there is no checkpoint");
    }
}

static void bring_checkpoint(int from, int to)
{
    char command[300];
    snprintf(command, sizeof command, "cp %s/checkpoint ", fixture_path(from));
    snprintf(command + strlen(command), sizeof command - strlen(command), "%s/checkpoint", fixture_path(to));
    assert_int_equal(system(command), 0);
}

static void work_once(const char *tiers, uint64_t number)
{
    open_as(tiers, NULL);
    put(number, 5000);
    close_store();
}

static void one_of_an_earlier_close_is_noticed(void **state)
{
    (void)state;
    make_store();
    fixture_copy(0, 2);
    work_once(alone, 500);
    look_at_headers();
    fixture_copy(0, 1);
    bring_checkpoint(2, 1);
    must_be_ignored("of another close");
}

/* The same id, sequence and write number: two ways that one directory went on. */
static void one_of_a_copy_that_went_another_way_is_noticed(void **state)
{
    (void)state;
    make_store();
    fixture_copy(0, 2);
    work_once(alone, 500);
    struct timespec pause = {0, 50000000}; /* the kernel's clock for files ticks */
    nanosleep(&pause, NULL);
    work_once("disk:@2:64blk", 501);
    look_at_headers();
    fixture_copy(0, 1);
    bring_checkpoint(2, 1);
    must_be_ignored("the data was changed");
}

static void one_of_another_directory_is_noticed(void **state)
{
    (void)state;
    make_store();
    open_and_listen("disk:@2:64blk");
    fill_with(0, 10, 5000);
    close_store();
    fixture_copy(0, 1);
    bring_checkpoint(2, 1);
    must_be_ignored("of another directory");
}

static void changed_data_is_noticed(void **state)
{
    (void)state;
    make_store();
    for (int how = 0; how < 2; how++) {
        char path[128];
        fixture_copy(0, 1);
        snprintf(path, sizeof path, "%s/data", fixture_path(1));
        int file = open(path, O_RDWR);
        struct stat about;
        assert_int_equal(fstat(file, &about), 0);
        if (how == 0) /* the last page as it is */
            assert_int_equal(pwrite(file, "", 1, about.st_size - 1), 1);
        else /* longer, and as old */
            assert_int_equal(ftruncate(file, about.st_size + TIER_UNIT), 0);
        struct timespec times[2] = {about.st_atim, about.st_mtim};
        assert_int_equal(how ? futimens(file, times) : 0, 0);
        close(file);
        must_be_ignored("the data was changed");
    }
}

static void killed_after_some_work(void *context)
{
    (void)context;
    open_as(alone, NULL);
    put(500, 5000);
    kvo_sync(store, NULL, KVO_SAFE, KVO_FOREVER, NULL);
    drop(110, KVO_WRITTEN);
}

static void after_a_crash_it_is_not_used(void **state)
{
    (void)state;
    make_store();
    assert_child_ok(in_child(killed_after_some_work, NULL));
    open_as(alone, "not closed in order");
    assert_int_equal(get(500, 5000), KVO_OK);
    assert_int_equal(exists(110, NULL), KVO_MISS);
    close_store();
    open_as(alone, NULL);
    assert_int_equal(get(500, 5000), KVO_OK);
    close_store();
}

static void killed_at_once(void *context)
{
    (void)context;
    open_as(alone, NULL);
}

static void an_opening_that_did_nothing_uses_it_up(void **state)
{
    (void)state;
    make_store();
    assert_child_ok(in_child(killed_at_once, NULL));
    open_as(alone, "not closed in order");
    close_store();
}

/* ---- whole pages that lie ---- */

typedef void (*lie)(disk_checkpoint *page);

static void lie_version(disk_checkpoint *p) { p->version = 2; }
static void lie_magic(disk_checkpoint *p) { p->magic[7] = '2'; }
static void lie_page(disk_checkpoint *p) { p->page++; }
static void lie_kind(disk_checkpoint *p) { p->kind = 9; }
static void lie_close(disk_checkpoint *p) { p->close_id[3] ^= 1; }
static void lie_fewer(disk_checkpoint *p) { p->count--; }
static void lie_none(disk_checkpoint *p) { p->count = 0; }
static void lie_more(disk_checkpoint *p) { p->count = 1000000; }
static void lie_slots(disk_checkpoint *p) { p->of.head.slots++; }
static void lie_all_slots(disk_checkpoint *p) { p->of.head.slots = UINT64_MAX; }
static void lie_tiers(disk_checkpoint *p) { p->of.head.tiers = 5; }
static void lie_stride(disk_checkpoint *p) { p->of.segments[0].stride *= 2; }
static void lie_no_stride(disk_checkpoint *p) { p->of.segments[0].stride = 0; }
static void lie_unused(disk_checkpoint *p) { p->of.segments[0] = (disk_checkpoint_segment){0, 0}; }
static void lie_slot_twice(disk_checkpoint *p) { p->of.slots[3].slot = p->of.slots[2].slot; }
static void lie_order(disk_checkpoint *p) { p->of.slots[3].slot = 1; }
static void lie_name_twice(disk_checkpoint *p) { p->of.slots[3].identity = p->of.slots[2].identity; }
static void lie_beyond(disk_checkpoint *p) { p->of.slots[p->count - 1].slot = UINT32_MAX; }
static void lie_between(disk_checkpoint *p) { p->of.slots[2].slot++; }
static void lie_rewrites(disk_checkpoint *p) { p->of.slots[1].rewrites = 4096; }
static void lie_format(disk_checkpoint *p) { p->of.slots[1].format = 16; }
static void lie_name(disk_checkpoint *p) { p->of.slots[1].identity.name[0] ^= 1; }
static void lie_name_bytes(disk_checkpoint *p) { p->of.slots[1].identity.name_bytes = 200; }
static void lie_payload(disk_checkpoint *p) { p->of.slots[1].identity.payload_bytes = 1u << 30; }
static void lie_no_payload(disk_checkpoint *p) { p->of.slots[1].identity.payload_bytes = 0; }
static void lie_space(disk_checkpoint *p)
{
    block_identity *i = &p->of.slots[1].identity;
    i->space = 77;
    i->key_hash = identity_hash(i);
}

static void tell(int which, size_t page, lie change)
{
    disk_checkpoint p;
    int file = open_checkpoint(which);
    assert_int_equal(pread(file, &p, sizeof p, (off_t)(page * TIER_UNIT)), sizeof p);
    change(&p);
    disk_page_seal(&p);
    assert_int_equal(pwrite(file, &p, sizeof p, (off_t)(page * TIER_UNIT)), sizeof p);
    close(file);
}

static void a_page_that_lies_is_not_believed(void **state)
{
    (void)state;
    static const struct {
        size_t page; /* 0: the head, 1: segments, 2: the first of slots; 9: the last */
        lie change;
        const char *why;
    } lies[] = {
        {0, lie_version, "of another version"}, {0, lie_magic, "of another version"},
        {0, lie_page, "damaged"},               {0, lie_kind, "damaged"},
        {0, lie_tiers, "damaged"},              {0, lie_slots, "damaged"},
        {0, lie_all_slots, "damaged"},          {0, lie_close, "damaged"},
        {1, lie_version, "damaged"},            {1, lie_magic, "damaged"},
        {1, lie_kind, "damaged"},               {1, lie_more, "damaged"},
        {1, lie_none, "damaged"},               {1, lie_stride, "damaged"},
        {1, lie_no_stride, "damaged"},          {1, lie_unused, "damaged"},
        {2, lie_page, "damaged"},               {2, lie_close, "damaged"},
        {2, lie_fewer, "damaged"},              {2, lie_more, "damaged"},
        {2, lie_slot_twice, "damaged"},         {2, lie_order, "damaged"},
        {2, lie_name_twice, "damaged"},         {9, lie_beyond, "damaged"},
        {2, lie_between, "damaged"},            {9, lie_rewrites, "damaged"},
        {9, lie_format, "damaged"},             {9, lie_name, "damaged"},
        {9, lie_name_bytes, "damaged"},         {9, lie_payload, "damaged"},
        {9, lie_no_payload, "damaged"},         {9, lie_space, "damaged"},
        {9, lie_fewer, "damaged"},
    };
    make_store();
    size_t last = checkpoint_pages(0) - 1;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        fixture_copy(0, 1);
        tell(1, lies[i].page == 9 ? last : lies[i].page, lies[i].change);
        must_be_ignored(lies[i].why);
    }
}

/* The first directory's was taken in whole when the second's turns out to be damaged. */
static void damage_in_the_second_of_two_is_damage_in_both(void **state)
{
    (void)state;
    picture with = {.count = 0}, without = {.count = 0};
    open_and_listen("disk:@0:20blk,disk:@1:40blk");
    fill_with(0, 55, 65536);
    close_store();
    copy_directories(2);
    tell(3, checkpoint_pages(3) - 1, lie_fewer);
    open_as("disk:@2,disk:@3", "the checkpoint is damaged");
    take_picture(&with);
    close_store();
    copy_directories(2);
    remove_checkpoint(2);
    open_as("disk:@2,disk:@3", "there is no checkpoint");
    take_picture(&without);
    close_store();
    must_be_equal(&with, &without);
    let_go(&without);
}

/* Which of two copies of a name counts is for the headers to say. */
static void other_tiers_than_it_was_closed_with_are_read(void **state)
{
    (void)state;
    open_and_listen("disk:@0:20blk,disk:@1:40blk");
    fill_with(0, 55, 65536);
    close_store();
    open_as("disk:@1", "closed with other tiers");
    close_store();
    open_as("disk:@0:20blk,disk:@1:40blk", "closed with other tiers");
    close_store();
    open_as("dram:4blk,disk:@1,disk:@0", NULL);
    close_store();
    open_as("disk:@0", "closed with other tiers");
}

/* ---- when there is none ---- */

static void flip_in_data(uint64_t offset)
{
    char path[128];
    uint8_t byte;
    snprintf(path, sizeof path, "%s/data", fixture_path(0));
    int file = open(path, O_RDWR);
    assert_int_equal(pread(file, &byte, 1, (off_t)offset), 1);
    byte ^= 1;
    assert_int_equal(pwrite(file, &byte, 1, (off_t)offset), 1);
    close(file);
}

static void damage_is_found_at_each_opening_until_it_is_gone(void **state)
{
    (void)state;
    open_and_listen(alone);
    fill_with(0, 64, 65536);
    uint64_t offset = info_of(7).copies[0].offset_bytes;
    close_store();
    flip_in_data(offset + 200);
    open_as(alone, "the data was changed");
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(store_stat().damaged_slots, 1);
        assert_int_equal(exists(7, NULL), KVO_MISS);
        if (i == 2)
            assert_int_equal(put(7, 65536), KVO_STORED); /* into the only slot that is free */
        close_store();
        assert_non_null(strstr(said, "no checkpoint is written"));
        open_as(alone, "of another close");
    }
    assert_int_equal(store_stat().damaged_slots, 0);
    close_store();
    open_as(alone, NULL);
    assert_int_equal(get(7, 65536), KVO_OK);
}

static void where_it_cannot_be_written_the_close_is_as_good(void **state)
{
    (void)state;
    char path[128];
    open_and_listen(alone);
    fill_with(0, 10, 5000);
    snprintf(path, sizeof path, "%s/checkpoint", fixture_path(0));
    assert_int_equal(mkdir(path, 0700), 0);
    close_store();
    assert_non_null(strstr(said, "no checkpoint is written"));
    open_as(alone, "there is no checkpoint");
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(get(i, 5000), KVO_OK);
    close_store();
    assert_int_equal(rmdir(path), 0);
}

/* Of a tier's bytes 1/128 is for small files, which the policies of small blocks fill. */
static void many_small_blocks_have_none(void **state)
{
    (void)state;
    options.block_bytes = 4096;
    open_and_listen("disk:@0:1500blk");
    assert_int_equal(fill_with(0, 1500, 4096), 1500);
    close_store();
    assert_non_null(strstr(said, "no checkpoint is written"));
    open_and_listen("disk:@0:1500blk");
    assert_int_equal(store_stat().recovered_blocks, 1500);
    check_valid();
}

static uint64_t metadata(int direction)
{
    kvo_ledger_row rows[64];
    size_t count;
    uint64_t bytes = 0;
    assert_int_equal(kvo_ledger(store, rows, 64, &count), KVO_OK);
    for (size_t i = 0; i < count; i++)
        if (rows[i].direction == direction && rows[i].cause == KVO_CAUSE_METADATA)
            bytes += rows[i].bytes;
    return bytes;
}

static void its_bytes_are_in_the_ledger(void **state)
{
    (void)state;
    open_and_listen("disk:@0:1000blk");
    fill_with(0, 1000, 100);
    close_store();
    uint64_t bytes = checkpoint_pages(0) * TIER_UNIT;
    assert_true(bytes > 1000 * sizeof(disk_checkpoint_slot));
    open_as("disk:@0", NULL);
    uint64_t read = metadata(0), written = metadata(1);
    close_store();
    remove_checkpoint(0);
    open_as("disk:@0", "there is no checkpoint");
    /* That close wrote a checkpoint, and this opening read 1000 headers and the policies instead of it. */
    assert_in_range(metadata(1) - written, bytes, bytes + 64 * TIER_UNIT);
    uint64_t for_headers = metadata(0) - read;
    close_store();
    open_as("disk:@0", NULL);
    uint64_t by_checkpoint = metadata(0) - read - for_headers;
    assert_true(for_headers >= 1000 * TIER_UNIT);
    assert_in_range(by_checkpoint, bytes, bytes + 64 * TIER_UNIT);
}

/* ---- what else opens ---- */

static void a_reader_reads_the_headers(void **state)
{
    (void)state;
    make_store();
    fixture_copy(0, 1);
    flip(TIER_UNIT + 100, 1);
    options.flags = KVO_OPEN_READ_ONLY;
    kvo_verify_result verified;
    lines = 0;
    assert_int_equal(try_open(copied, NULL), KVO_OK);
    assert_int_equal(kvo_verify(store, NULL, NULL, &verified), KVO_OK);
    assert_int_equal(verified.slots, store_stat().blocks);
    assert_int_equal(verified.bad, 0);
    assert_int_equal(lines, 0);
    assert_int_equal(kvo_close(store, KVO_FOREVER), KVO_OK);
    store = NULL;
    options.flags = 0;
    must_be_ignored("the checkpoint is damaged");
}

static void too_few_records_are_refused_in_both_ways(void **state)
{
    (void)state;
    kvo_error error[2];
    open_and_listen("disk:@0:2000blk");
    fill_with(0, 1500, 64);
    close_store();
    options.blocks_max = 1;
    assert_int_equal(try_open("disk:@0", &error[0]), KVO_E_RANGE);
    remove_checkpoint(0);
    assert_int_equal(try_open("disk:@0", &error[1]), KVO_E_RANGE);
    assert_string_equal(error[0].text, error[1].text);
    options.blocks_max = 0;
    open_as("disk:@0", "there is no checkpoint"); /* an opening that failed changed nothing */
}

/* Policies come from it; they are also where a crash after it would look for them. */
static void policies_outlive_it(void *context)
{
    (void)context;
    open_as(alone, NULL);
    assert_int_equal(policy_of(110).priority, 88);
}

static void policies_and_uses_come_with_it(void **state)
{
    (void)state;
    kvo_policy p = {.priority = 88, .tenant = 5, .qos = 1};
    make_store();
    open_as(alone, NULL);
    set_policy(110, &p, KVO_POLICY_PRIORITY | KVO_POLICY_TENANT | KVO_POLICY_QOS);
    touch(111);
    uint64_t last = info_of(111).last_use;
    close_store();
    assert_child_ok(in_child(policies_outlive_it, NULL));
    open_as(alone, "not closed in order");
    assert_int_equal(policy_of(110).priority, 88);
    assert_int_equal(policy_of(110).tenant, 5);
    assert_int_equal(info_of(111).last_use, last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(the_same_store_comes_up_after_any_history),
        FIXTURE_TEST(a_flipped_bit_anywhere_is_noticed),
        FIXTURE_TEST(one_that_was_cut_short_is_noticed),
        FIXTURE_TEST(one_of_an_earlier_close_is_noticed),
        FIXTURE_TEST(one_of_a_copy_that_went_another_way_is_noticed),
        FIXTURE_TEST(one_of_another_directory_is_noticed),
        FIXTURE_TEST(changed_data_is_noticed),
        FIXTURE_TEST(after_a_crash_it_is_not_used),
        FIXTURE_TEST(an_opening_that_did_nothing_uses_it_up),
        FIXTURE_TEST(a_page_that_lies_is_not_believed),
        FIXTURE_TEST(damage_in_the_second_of_two_is_damage_in_both),
        FIXTURE_TEST(other_tiers_than_it_was_closed_with_are_read),
        FIXTURE_TEST(damage_is_found_at_each_opening_until_it_is_gone),
        FIXTURE_TEST(where_it_cannot_be_written_the_close_is_as_good),
        FIXTURE_TEST(many_small_blocks_have_none),
        FIXTURE_TEST(its_bytes_are_in_the_ledger),
        FIXTURE_TEST(a_reader_reads_the_headers),
        FIXTURE_TEST(too_few_records_are_refused_in_both_ways),
        FIXTURE_TEST(policies_and_uses_come_with_it),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    let_go(&by_headers);
    return failed;
}
