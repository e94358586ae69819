/* SPDX-License-Identifier: Apache-2.0 */
/* kvo_repair() where the device itself fails: what cannot be read is not given up, what cannot be written is said. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "faulty.h"

enum { BYTES = 60000 };

typedef struct said {
    unsigned count;
    char what[64], remedy[64];
    uint64_t offset;
} said;

static void keep(void *context, const kvo_bad_slot *bad)
{
    said *s = context;
    s->count++;
    s->offset = bad->offset_bytes;
    snprintf(s->what, sizeof s->what, "%s", bad->what);
    snprintf(s->remedy, sizeof s->remedy, "%s", bad->remedy);
}

static int repair(said *s, kvo_verify_result *result)
{
    memset(s, 0, sizeof *s);
    return kvo_repair(store, keep, s, result);
}

static void reopen(const char *wrappers)
{
    char tiers[128];
    snprintf(tiers, sizeof tiers, "%s%sdisk:@0", wrappers, *wrappers ? "+" : "");
    options.flags = 0;
    open_store(tiers);
}

/* Blocks 1 .. 10, closed; the place of block 1. */
static uint64_t make_store(void)
{
    open_store("disk:@0:8M");
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    uint64_t at = info_of(1).copies[0].offset_bytes;
    close_store();
    return at;
}

static uint64_t segment_bytes(void)
{
    char path[128];
    uint32_t units = 0;
    snprintf(path, sizeof path, "%s/super", fixture_path(0));
    int file = open(path, O_RDONLY);
    assert_true(file >= 0 && pread(file, &units, sizeof units, 48) == sizeof units && units != 0);
    close(file);
    return units * 4096ull;
}

static void damage(uint64_t offset)
{
    char path[128];
    uint8_t byte = 0;
    snprintf(path, sizeof path, "%s/data", fixture_path(0));
    int file = open(path, O_RDWR);
    assert_true(file >= 0 && pread(file, &byte, 1, (off_t)offset) == 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(file, &byte, 1, (off_t)offset), 1);
    close(file);
}

static void check_all(uint64_t first)
{
    for (uint64_t i = 1; i <= 10; i++)
        assert_int_equal(get(i, BYTES), i < first ? KVO_MISS : KVO_OK);
}

static void what_cannot_be_read_stays(void **state)
{
    (void)state;
    said s;
    kvo_verify_result result;
    make_store();
    reopen("fault:read=eio@3..5");
    assert_int_equal(repair(&s, &result), KVO_OK);
    assert_int_equal(result.bad, 3);
    assert_int_equal(result.repaired, 0);
    assert_string_equal(s.what, "cannot be read");
    assert_string_equal(s.remedy, "left as it is");
    check_all(1);
    close_store();
    reopen("");
    check_all(1);
    assert_int_equal(repair(&s, &result), KVO_OK);
    assert_int_equal(result.bad, 0);
    close_store();
}

static void a_bad_payload_goes_and_its_block_may_be_put_again(void **state)
{
    (void)state;
    said s;
    kvo_verify_result result;
    uint64_t at = make_store();
    damage(at + 4096 + 100);
    reopen("");
    assert_int_equal(repair(&s, &result), KVO_OK);
    assert_true(s.count == 1 && result.bad == 1 && result.repaired == 1 && result.slots == 10 && s.offset == at);
    assert_string_equal(s.what, "payload digest");
    assert_string_equal(s.remedy, "made void");
    assert_int_equal(exists(1, NULL), KVO_MISS);
    check_valid();
    assert_int_equal(repair(&s, &result), KVO_OK);
    assert_true(s.count == 0 && result.bad == 0);
    check_all(2);
    assert_int_equal(put(1, BYTES), KVO_STORED);
    check_all(1);
    close_store();
}

static void unreadable(uint64_t from, uint64_t bytes)
{
    faulty_unreadable_from = from;
    faulty_unreadable_bytes = bytes;
}

/* Where one of them cannot be read, the others are served, and it is once it can be read. */
static void check_repair_leaves(uint64_t from, uint64_t bytes, const char *what)
{
    said s;
    kvo_verify_result result;
    unreadable(from, bytes);
    options.flags = 0;
    faulty_open("disk:@0");
    assert_int_equal(repair(&s, &result), KVO_OK);
    assert_int_equal(result.repaired, 0);
    if (what) {
        assert_int_equal(s.count, 1);
        assert_string_equal(s.what, what);
        assert_string_equal(s.remedy, "left as it is");
    }
    close_store();
    unreadable(0, 0);
    reopen("");
    check_all(1);
    assert_int_equal(repair(&s, &result), KVO_OK);
    close_store();
}

/* A segment's header is not made void because the slots that would tell what it was cannot be read. */
static void a_segment_of_which_nothing_can_be_read_stays(void **state)
{
    (void)state;
    uint64_t at = make_store();
    damage(at - 4096 + 33); /* block 1 is its first */
    check_repair_leaves(at, segment_bytes() - 4096, "segment header, and slots that tell it cannot be read");
}

static void put_and_leave(void *context)
{
    (void)context;
    open_store("disk:@0:8M");
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    abandon_store();
}

/* After a crash, what no mark speaks for is not unfinished because it cannot be read. */
static void what_a_crash_left_and_cannot_be_read_stays(void **state)
{
    (void)state;
    assert_child_ok(in_child(put_and_leave, NULL));
    options.flags = KVO_OPEN_READ_ONLY;
    open_store("disk:@0");
    uint64_t at = info_of(10).copies[0].offset_bytes;
    close_store();
    fixture_copy(0, 1);
    check_repair_leaves(at, 4096, "header cannot be read");
    fixture_remove(0);
    fixture_copy(1, 0);
    check_repair_leaves(at + 4096, 4096, NULL);
}

/* A header that a checkpoint told for good: the block's copy goes with it. */
static void a_header_that_broke_under_the_store_is_made_void(void **state)
{
    (void)state;
    said s;
    kvo_verify_result result;
    uint64_t at = make_store();
    reopen("");
    damage(at + 200);
    assert_int_equal(repair(&s, &result), KVO_OK);
    assert_true(s.count == 1 && result.repaired == 1);
    assert_string_equal(s.what, "header checksum");
    check_valid();
    check_all(2);
    close_store();
    reopen("");
    assert_int_equal(store_stat().damaged_slots, 0);
    check_all(2);
    close_store();
}

static void bytes_behind_a_payload_cost_nothing(void **state)
{
    (void)state;
    said s;
    kvo_verify_result result;
    uint64_t at = make_store();
    damage(at + 4096 + BYTES + 5);
    reopen("");
    assert_int_equal(repair(&s, &result), KVO_OK);
    assert_true(s.count == 1 && result.repaired == 1);
    assert_string_equal(s.remedy, "written again");
    assert_int_equal(repair(&s, &result), KVO_OK);
    assert_int_equal(s.count, 0);
    check_all(1);
    close_store();
}

static void a_repair_that_cannot_be_written_says_so(void **state)
{
    (void)state;
    said s;
    kvo_verify_result result;
    uint64_t at = make_store();
    damage(at + 4096 + 100);
    reopen("fault:remove=eio@..1");
    assert_int_equal(repair(&s, &result), KVO_E_IO);
    assert_int_equal(repair(&s, &result), KVO_OK); /* and can be done again */
    check_all(2);
    close_store();
}

/* Nothing in it tells what it was, and nothing needs to. */
static void the_header_of_a_segment_that_was_never_used_is_zero_again(void **state)
{
    (void)state;
    said s;
    kvo_verify_result result;
    uint8_t page[4096] = {0}, zero[4096] = {0};
    char path[128];
    make_store();
    damage(segment_bytes() + 40);
    reopen("");
    assert_int_equal(repair(&s, &result), KVO_OK);
    assert_true(s.count == 1 && result.repaired == 1);
    assert_string_equal(s.remedy, "written again");
    check_all(1);
    close_store();
    snprintf(path, sizeof path, "%s/data", fixture_path(0));
    int file = open(path, O_RDONLY);
    assert_true(file >= 0 && pread(file, page, sizeof page, (off_t)segment_bytes()) == sizeof page);
    close(file);
    assert_memory_equal(page, zero, sizeof page);
}

/* What a repair would write over: the ends of payloads, headers of segments. */
static void what_cannot_be_written_is_left_and_said(void **state)
{
    (void)state;
    said s;
    kvo_verify_result result;
    for (uint64_t bad = 2; bad <= 4; bad += 2) {
        uint64_t at = make_store();
        damage(at + 4096 + BYTES + 5);
        damage(at + 16 * 4096 + 4096 + BYTES + 5); /* the next one's */
        if (bad == 4) {
            damage(segment_bytes() + 40);
            damage(2 * segment_bytes() + 40);
        }
        options.flags = 0;
        faulty_open("disk:@0");
        atomic_store(&faulty.page_writes, ALWAYS);
        assert_int_equal(repair(&s, &result), KVO_E_IO);
        assert_true(result.bad == bad && result.repaired == 0);
        assert_string_equal(s.remedy, "left as it is");
        atomic_store(&faulty.page_writes, 0);
        check_all(1);
        assert_int_equal(repair(&s, &result), KVO_OK);
        assert_true(result.bad == bad && result.repaired == bad);
        assert_int_equal(repair(&s, &result), KVO_OK);
        assert_int_equal(result.bad, 0);
        check_all(1);
        close_store();
        fixture_remove(0);
    }
}

/* A slot that a reservation has is nobody's to make void: it is written when that is sealed. */
static void a_bad_header_under_a_reservation_is_left_to_it(void **state)
{
    (void)state;
    said s;
    kvo_verify_result result;
    const uint32_t bytes = BYTES;
    kvo_reservation reservations[200];
    kvo_answer answers[200];
    size_t count = 0;
    uint64_t at = make_store();
    damage(at + 200);
    reopen("");
    assert_int_equal(store_stat().damaged_slots, 1);
    do { /* until it is taken */
        kvo_names names = names_of(100 + count, 1);
        assert_int_equal(kvo_reserve(store, &names, &bytes, NULL, &reservations[count], &answers[count]), KVO_OK);
        assert_int_equal(answers[count].status, KVO_OK);
        payload_make(reservations[count].memory, BYTES, 100 + count, 0);
        assert_true(++count < 200);
    } while (!place_slot_used(&store->tiers[0].space, (uint32_t)(at / 4096)));
    assert_int_equal(repair(&s, &result), KVO_OK);
    assert_true(s.count == 1 && s.offset == at);
    assert_int_equal(kvo_seal(store, reservations, count, KVO_WRITTEN, 0, answers), KVO_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(get(100 + i, BYTES), KVO_OK);
    assert_int_equal(repair(&s, &result), KVO_OK);
    assert_int_equal(s.count, 0);
    check_all(2);
    close_store();
}

/* Its write there will be a repair; one above it, where it lies well, is none. */
static void a_copy_that_goes_below_a_good_one_may_be_written_there_again(void **state)
{
    (void)state;
    said s;
    kvo_verify_result result;
    int done = -1;
    open_store("disk:@0:4blk,disk:@1:16blk,disk:@2:64blk");
    assert_int_equal(fill_with(1, 10, BYTES), 10);
    kvo_block_info info = info_of(1);
    assert_true(info.copy_count == 1 && info.copies[0].tier == 1);
    uint32_t record = handle_record(info.handle);
    store_lock(store);
    store_demote(store, &record, 1, 2, &done);
    store_unlock(store);
    assert_int_equal(done, KVO_OK);
    info = info_of(1);
    assert_int_equal(info.copy_count, 2);
    char path[128];
    uint8_t byte = 0;
    snprintf(path, sizeof path, "%s/data", fixture_path(2));
    int file = open(path, O_RDWR);
    off_t offset = (off_t)info.copies[1].offset_bytes + 4096 + 100;
    assert_true(file >= 0 && pread(file, &byte, 1, offset) == 1);
    byte ^= 1;
    assert_int_equal(pwrite(file, &byte, 1, offset), 1);
    close(file);
    assert_int_equal(repair(&s, &result), KVO_OK);
    assert_int_equal(result.repaired, 1);
    assert_int_equal(info_of(1).copy_count, 1);
    uint64_t life = word_load(&store->records[record].life);
    assert_true(life_has(life, life_repair_flag(2)) && !life_has(life, life_repair_flag(1)));
    assert_int_equal(get(1, BYTES), KVO_OK);
    check_valid();
    close_store();
}

static void it_is_for_stores_that_nobody_else_uses(void **state)
{
    (void)state;
    said s;
    kvo_verify_result result;
    make_store();
    options.flags = KVO_OPEN_READ_ONLY;
    open_store("disk:@0");
    assert_int_equal(repair(&s, &result), KVO_E_STATE);
    assert_int_equal(kvo_verify(store, NULL, NULL, &result), KVO_OK);
    assert_int_equal(result.unclean, 0);
    close_store();
    options.flags = 0;
    open_store("dram:20blk,disk:@0");
    assert_int_equal(repair(&s, &result), KVO_E_UNSUPPORTED);
    assert_int_equal(kvo_repair(store, NULL, NULL, NULL), KVO_E_ARGUMENT);
    close_store();
    with_mover = true;
    open_store("disk:@0");
    assert_int_equal(repair(&s, &result), KVO_E_STATE);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(what_cannot_be_read_stays),
        FIXTURE_TEST(a_bad_payload_goes_and_its_block_may_be_put_again),
        FIXTURE_TEST(a_segment_of_which_nothing_can_be_read_stays),
        FIXTURE_TEST(what_a_crash_left_and_cannot_be_read_stays),
        FIXTURE_TEST(a_header_that_broke_under_the_store_is_made_void),
        FIXTURE_TEST(bytes_behind_a_payload_cost_nothing),
        FIXTURE_TEST(a_repair_that_cannot_be_written_says_so),
        FIXTURE_TEST(the_header_of_a_segment_that_was_never_used_is_zero_again),
        FIXTURE_TEST(what_cannot_be_written_is_left_and_said),
        FIXTURE_TEST(a_bad_header_under_a_reservation_is_left_to_it),
        FIXTURE_TEST(a_copy_that_goes_below_a_good_one_may_be_written_there_again),
        FIXTURE_TEST(it_is_for_stores_that_nobody_else_uses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
