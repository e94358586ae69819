/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a directory that are whole and cannot be, and openings whose nth read or allocation fails. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fixture.h"
#include "tier/disk/format.h"

#define BYTES 60000u
static const char one_disk[] = "disk:@0:64blk", two_disks[] = "disk:@0:64blk,disk:@1:64blk";

/* ---- pages ---- */

static int open_file(int which, const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", fixture_path(which), name);
    int file = open(path, O_RDWR);
    assert_true(file >= 0);
    return file;
}

static void page_read(int which, const char *name, uint64_t offset, void *page)
{
    int file = open_file(which, name);
    assert_int_equal(pread(file, page, TIER_UNIT, (off_t)offset), TIER_UNIT);
    close(file);
}

static void page_write(int which, const char *name, uint64_t offset, const void *page)
{
    int file = open_file(which, name);
    assert_int_equal(pwrite(file, page, TIER_UNIT, (off_t)offset), TIER_UNIT);
    close(file);
}

/* With a good checksum again. */
static void page_seal_and_write(int which, const char *name, uint64_t offset, void *page)
{
    disk_page_seal(page);
    page_write(which, name, offset, page);
}

static void no_checkpoint(int which)
{
    char path[160];
    snprintf(path, sizeof path, "%s/checkpoint", fixture_path(which));
    assert_int_equal(unlink(path), 0);
}

/* Blocks 1 .. 10, closed; the places of them in the first tier that has them. */
static uint64_t place[11], below; /* of block 1 on the second disk */
static void make(const char *tiers)
{
    open_store(tiers);
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    for (uint64_t i = 1; i <= 10; i++)
        place[i] = info_of(i).copies[0].offset_bytes;
    close_store();
}

static int open_as(uint32_t flags, const char *tiers)
{
    kvo_error error = {{0}};
    options.flags = flags;
    int r = try_open(tiers, &error);
    options.flags = 0;
    if (r == KVO_OK)
        space = open_space("a", 65536);
    return r;
}

static int served(void)
{
    int n = 0;
    for (uint64_t i = 1; i <= 10; i++)
        n += get(i, BYTES) == KVO_OK;
    return n;
}

static void a_header_of_another_place_or_store_is_no_header(void **state)
{
    (void)state;
    disk_slot page;
    open_store(one_disk);
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    for (uint64_t i = 1; i <= 10; i++)
        place[i] = info_of(i).copies[0].offset_bytes;
    page_read(0, "data", place[2], &page);
    page_write(0, "data", place[1], &page); /* misdirected */
    page_read(0, "data", place[3], &page);
    page.uuid[0] ^= 1;
    page_seal_and_write(0, "data", place[3], &page);
    assert_int_equal(get(1, BYTES), KVO_MISS);
    assert_int_equal(get(3, BYTES), KVO_MISS);
    assert_int_equal(served(), 8);
    check_valid();
    close_store();
}

static void a_block_of_a_space_that_cannot_be_is_foreign(void **state)
{
    (void)state;
    static const uint16_t spaces[] = {0, KVO_SPACES_MAX + 1, 9};
    make(one_disk);
    no_checkpoint(0);
    for (int i = 0; i < 3; i++) {
        disk_slot page;
        page_read(0, "data", place[1], &page);
        page.identity.space = spaces[i];
        page.identity.key_hash = identity_hash(&page.identity);
        page_seal_and_write(0, "data", place[1], &page);
        assert_int_equal(open_as(0, one_disk), KVO_E_MISMATCH);
        assert_int_equal(open_as(KVO_OPEN_READ_ONLY, one_disk), KVO_OK);
        assert_int_equal(store_stat().damaged_slots, 1);
        assert_int_equal(served(), 9);
        close_store();
    }
}

static void a_superblock_of_no_segments_is_damage(void **state)
{
    (void)state;
    make(one_disk);
    for (uint64_t copy = 0; copy < 2; copy++) {
        disk_super page;
        page_read(0, "super", copy * TIER_UNIT, &page);
        page.segment_count = 0;
        page_seal_and_write(0, "super", copy * TIER_UNIT, &page);
    }
    assert_int_equal(open_as(0, one_disk), KVO_E_DAMAGED);
}

static void a_note_that_was_never_written_cannot_be_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"spaces.a", "spaces.b"};
    make(one_disk);
    for (int i = 0; i < 2; i++) {
        disk_note page;
        page_read(0, names[i], 0, &page);
        page.sequence = 0;
        page_seal_and_write(0, names[i], 0, &page);
        if (i == 0) { /* the other one is enough */
            assert_int_equal(open_as(KVO_OPEN_READ_ONLY, one_disk), KVO_OK);
            assert_int_equal(served(), 10);
            close_store();
        }
    }
    assert_int_equal(open_as(0, one_disk), KVO_E_DAMAGED);
}

/* Of a segment that had another slot size before, a header with a bad first byte shows by the rest what it is. */
static void a_header_without_its_magic_is_damage_also_in_a_segment_that_turned(void **state)
{
    (void)state;
    disk_slot page;
    uint64_t at = 0;
    open_store(one_disk);
    fill_with(1, 100, 65536);
    fill_with(1000, 1500, 4096);
    for (uint64_t i = 1000; at == 0 && i < 2500; i++) {
        kvo_block_info info = info_of(i);
        if (info.copy_count == 0)
            continue;
        page_read(0, "data", info.copies[0].offset_bytes, &page);
        if (page.epoch > 1)
            at = info.copies[0].offset_bytes;
    }
    assert_true(at > 0);
    uint64_t blocks = store_stat().blocks;
    close_store();
    no_checkpoint(0);
    page.magic[0] ^= 1;
    page_write(0, "data", at, &page);
    open_store(one_disk);
    assert_int_equal(store_stat().damaged_slots, 1);
    assert_int_equal(store_stat().blocks, blocks - 1);
    close_store();
}

/* The segment's header is damaged: what its slots tell of it must be possible. */
static void a_slot_too_short_to_be_one_tells_nothing_of_its_segment(void **state)
{
    (void)state;
    disk_slot page;
    make(one_disk);
    no_checkpoint(0);
    page_read(0, "data", place[1] - TIER_UNIT, &page);
    page.magic[0] ^= 1;
    page_write(0, "data", place[1] - TIER_UNIT, &page); /* block 1 is its first */
    page_read(0, "data", place[5], &page);
    page.stride = 1;
    page.epoch += 5;
    page_seal_and_write(0, "data", place[5], &page);
    assert_int_equal(open_as(0, one_disk), KVO_OK);
    assert_int_equal(served(), 9);
    close_store();
}

/* ---- copies on two disks ---- */

/* The same blocks on both. */
static void make_both(void)
{
    const kvo_target all = {.by = KVO_BY_ALL};
    kvo_policy policy = KVO_POLICY_INIT;
    kvo_answer answer;
    open_store(two_disks);
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    policy.intent = KVO_INTENT_DEMOTE;
    assert_int_equal(kvo_policy_set(store, &all, &policy, KVO_POLICY_INTENT, NULL, NULL), KVO_OK);
    for (uint64_t i = 1; i <= 10; i++)
        do
            assert_int_equal(exists(i, &answer), KVO_OK);
        while (answer.tier_mask != 3);
    for (uint64_t i = 1; i <= 10; i++)
        place[i] = info_of(i).copies[0].offset_bytes;
    below = info_of(1).copies[1].offset_bytes;
    close_store();
}

static void a_reader_is_told_the_most_demotions_that_a_header_tells(void **state)
{
    (void)state;
    disk_slot page;
    make_both();
    page_read(0, "data", place[1], &page);
    page.delta[1] = 1; /* as after a demotion past the second disk, and a later one to it */
    page_seal_and_write(0, "data", place[1], &page);
    page_read(1, "data", below, &page);
    page.delta[1] = 0;
    page_seal_and_write(1, "data", below, &page);
    assert_int_equal(open_as(KVO_OPEN_READ_ONLY, two_disks), KVO_OK);
    assert_int_equal(info_of(1).delta[1], 1);
    close_store();
}

static char last_line[256];
static void keep_line(void *context, const char *line)
{
    (void)context;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void checkpoints_that_contradict_each_other_are_not_believed(void **state)
{
    (void)state;
    disk_checkpoint page;
    make_both();
    page_read(1, "checkpoint", 2 * TIER_UNIT, &page); /* head, segments, slots */
    assert_true(page.kind == DISK_CHECKPOINT_SLOTS && page.count == 10);
    page.of.slots[3].identity.sequence ^= 1;
    page_seal_and_write(1, "checkpoint", 2 * TIER_UNIT, &page);
    options.on_log = keep_line;
    open_store(two_disks);
    assert_non_null(strstr(last_line, "the checkpoint is damaged"));
    assert_int_equal(store_stat().damaged_slots, 0);
    assert_int_equal(served(), 10);
    close_store();
}

/* ---- openings that fail somewhere ---- */

static base_env machine;
static _Atomic int reads_until, allocs_until, headers_change;

static ssize_t read_there(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    int left = atomic_load(&reads_until);
    if (left > 0 && atomic_fetch_sub(&reads_until, 1) == 1)
        return -ENXIO;
    ssize_t n = base_env_posix()->read(base_env_posix(), file, iov, count, offset);
    if (iov_bytes(iov, count) > BYTES && atomic_load(&headers_change) > 0 && atomic_fetch_sub(&headers_change, 1) > 0)
        memset(iov[0].iov_base, 0, 64);
    return n;
}

static void *alloc_there(base_env *env, size_t bytes)
{
    (void)env;
    int left = atomic_load(&allocs_until);
    if (left > 0 && atomic_fetch_sub(&allocs_until, 1) == 1)
        return NULL;
    return base_env_posix()->alloc(base_env_posix(), bytes);
}

static int open_there(uint32_t flags)
{
    kvo_tier_config disk = KVO_TIER_CONFIG_INIT;
    kvo_options o = options;
    kvo_error error = {{0}};
    machine = *base_env_posix();
    machine.read = read_there;
    machine.alloc = alloc_there;
    disk.kind = KVO_TIER_DISK;
    disk.path = fixture_path(0);
    disk.capacity_blocks = 64;
    o.flags = flags | KVO_OPEN_STEPPED;
    int r = store_open(&machine, &disk, 1, &o, &store, &error);
    assert_true(r == KVO_OK || error.text[0] != 0);
    return r;
}

static void put_and_leave(void *context)
{
    (void)context;
    open_store(one_disk);
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    abandon_store();
}

static void close_and_look_again(void)
{
    kvo_close(store, KVO_FOREVER);
    store = NULL;
    open_store(one_disk);
    assert_int_equal(served(), 10);
    close_store();
}

/* A device that goes away at the nth read of an opening: it fails, or has all; and the next one has all. */
static void an_opening_whose_nth_read_fails_loses_nothing(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (int header = 0; header < 2; header++) { /* of the segment: good, damaged */
        fixture_remove(0);
        assert_child_ok(in_child(put_and_leave, NULL));
        if (header) {
            disk_slot page;
            options.flags = KVO_OPEN_READ_ONLY;
            open_store(one_disk);
            uint64_t first = info_of(1).copies[0].offset_bytes;
            close_store();
            options.flags = 0;
            page_read(0, "data", first - TIER_UNIT, &page);
            page.magic[0] ^= 1;
            page_write(0, "data", first - TIER_UNIT, &page);
        }
        fixture_copy(0, 3);
        for (int n = 1, left = 0; left == 0; n += n < 80 ? 1 : 41) {
            atomic_store(&reads_until, n);
            int r = open_there(0);
            left = atomic_exchange(&reads_until, 0);
            failed += r != KVO_OK;
            if (r == KVO_OK && left == 0) {
                space = open_space("a", 65536);
                assert_true(served() == 10 || store_stat().blocks < 10);
                kvo_close(store, KVO_FOREVER);
            }
            store = NULL;
            fixture_remove(0);
            fixture_copy(3, 0);
            if (left) {
                open_store(one_disk);
                assert_int_equal(served(), 10);
                close_store();
            }
        }
        fixture_remove(3);
    }
    assert_true(failed > 20);
    print_message("%u openings failed\n", failed);
}

/* Short of memory: as above. The second copy of the spaces is to be written again besides. */
static void an_opening_whose_nth_allocation_fails_loses_nothing(void **state)
{
    (void)state;
    unsigned failed = 0;
    disk_note page;
    assert_child_ok(in_child(put_and_leave, NULL));
    page_read(0, "spaces.b", 0, &page);
    page.magic[0] ^= 1;
    page_write(0, "spaces.b", 0, &page);
    fixture_copy(0, 3);
    for (int n = 1, done = 0; !done; n++) {
        fixture_remove(0);
        fixture_copy(3, 0);
        atomic_store(&allocs_until, n);
        int r = open_there(0);
        done = atomic_exchange(&allocs_until, 0) > 0;
        failed += r != KVO_OK;
        if (r != KVO_OK) {
            assert_null(store);
            open_store(one_disk);
        } else {
            space = open_space("a", 65536);
        }
        /* One that could not be read waits for the next time. */
        assert_true(served() >= (r == KVO_OK && !done ? 9 : 10));
        close_and_look_again();
    }
    assert_true(failed > 10);
    print_message("%u openings failed\n", failed);
}

/* A header that is another one when it is read with its payload: what was there then is not known. */
static void a_header_that_changes_between_two_reads_is_not_trusted(void **state)
{
    (void)state;
    kvo_verify_result result;
    assert_child_ok(in_child(put_and_leave, NULL));
    atomic_store(&headers_change, 1);
    assert_int_equal(open_there(0), KVO_OK);
    atomic_store(&headers_change, 0);
    space = open_space("a", 65536);
    assert_int_equal(store_stat().unfinished_slots, 1);
    assert_int_equal(served(), 9);
    close_store();
    assert_int_equal(open_there(KVO_OPEN_READ_ONLY), KVO_OK);
    atomic_store(&headers_change, 1);
    assert_int_equal(kvo_verify(store, NULL, NULL, &result), KVO_OK);
    atomic_store(&headers_change, 0);
    assert_int_equal(result.bad, 1);
    assert_int_equal(kvo_verify(store, NULL, NULL, &result), KVO_OK);
    assert_int_equal(result.bad, 0);
    assert_int_equal(kvo_close(store, 0), KVO_OK);
    store = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_header_of_another_place_or_store_is_no_header),
        FIXTURE_TEST(a_block_of_a_space_that_cannot_be_is_foreign),
        FIXTURE_TEST(a_superblock_of_no_segments_is_damage),
        FIXTURE_TEST(a_note_that_was_never_written_cannot_be_whole),
        FIXTURE_TEST(a_header_without_its_magic_is_damage_also_in_a_segment_that_turned),
        FIXTURE_TEST(a_slot_too_short_to_be_one_tells_nothing_of_its_segment),
        FIXTURE_TEST(a_reader_is_told_the_most_demotions_that_a_header_tells),
        FIXTURE_TEST(checkpoints_that_contradict_each_other_are_not_believed),
        FIXTURE_TEST(an_opening_whose_nth_read_fails_loses_nothing),
        FIXTURE_TEST(an_opening_whose_nth_allocation_fails_loses_nothing),
        FIXTURE_TEST(a_header_that_changes_between_two_reads_is_not_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
