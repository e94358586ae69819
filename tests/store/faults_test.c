/* SPDX-License-Identifier: Apache-2.0 */
/* A read that fails, memory that runs short, a caller's buffer that changes: none of it is proof against a
   copy that somebody was told is safe. */
#include "faulty.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t bytes = 65536;

static void put_safe(uint64_t number)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer;
    o.level = KVO_SAFE;
    assert_int_equal(put_as(number, bytes, 0, &o, &answer), KVO_STORED);
    assert_int_equal(answer.level, KVO_SAFE);
}

/* Leaves the block on disk alone. */
static void push_down(const char *tiers, uint64_t number)
{
    kvo_answer answer;
    faulty_open(tiers);
    put_safe(number);
    fill_with(1000, 20, bytes);
    /* So that no later demotion needs its slot. */
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    assert_int_equal(exists(number, &answer), KVO_OK);
    assert_int_equal(answer.tier, store_stat().present_tier_count - 1);
}

static void one_error(const char *tiers)
{
    push_down(tiers, 1);
    atomic_store(&faulty.block_reads, 1);
    assert_int_equal(get(1, bytes), KVO_OK);
    assert_int_equal(atomic_load(&faulty.block_reads), 0);
    check_valid();
    assert_int_equal(get(1, bytes), KVO_OK);
    close_store();
}

static void an_error_that_passes_is_read_over(void **state)
{
    (void)state;
    one_error("disk:@0:64blk");
}

static void an_error_that_passes_is_read_over_on_the_way_up(void **state)
{
    (void)state;
    one_error("dram:4blk,disk:@0:64blk");
}

/* Its sector is bad and the rest of the device answers. */
static void cannot_be_read(const char *tiers)
{
    push_down(tiers, 1);
    atomic_store(&faulty.block_reads, ALWAYS);
    assert_int_not_equal(get(1, bytes), KVO_OK);
    check_valid();
    atomic_store(&faulty.block_reads, 0);
    close_store();
    open_store(tiers);
    assert_int_equal(get(1, bytes), KVO_OK);
    close_store();
}

static void a_copy_that_cannot_be_read_stays_for_the_next_open(void **state)
{
    (void)state;
    cannot_be_read("disk:@0:64blk");
}

static void a_copy_that_cannot_be_brought_up_stays_for_the_next_open(void **state)
{
    (void)state;
    cannot_be_read("dram:4blk,disk:@0:64blk");
}

static void killed_after_an_error(void *context)
{
    (void)context;
    faulty_open("disk:@0:64blk");
    put_safe(1);
    atomic_store(&faulty.block_reads, ALWAYS);
    if (get(1, bytes) == KVO_OK)
        _exit(1);
    atomic_store(&faulty.block_reads, 0);
    kvo_write_out(store);
    _exit(0);
}

static void a_copy_that_cannot_be_read_survives_a_kill(void **state)
{
    (void)state;
    assert_child_ok(in_child(killed_after_an_error, NULL));
    open_store("disk:@0:64blk");
    assert_int_equal(get(1, bytes), KVO_OK);
    close_store();
}

static void no_answer(const char *tiers)
{
    push_down(tiers, 1);
    atomic_store(&faulty.all_reads, ALWAYS);
    for (int i = 0; i < 3; i++)
        assert_int_equal(get(1, bytes), KVO_BUSY);
    check_valid();
    assert_int_equal(exists(1, NULL), KVO_OK);
    atomic_store(&faulty.all_reads, 0);
    assert_int_equal(get(1, bytes), KVO_OK);
    assert_true(store_stat().digest_misses == 0);
    close_store();
}

static void a_device_that_does_not_answer_is_busy(void **state)
{
    (void)state;
    no_answer("disk:@0:64blk");
}

static void a_device_below_memory_that_does_not_answer_is_busy(void **state)
{
    (void)state;
    no_answer("dram:4blk,disk:@0:64blk");
}

/* What could not be read is removed as what was evicted is. */
static void unreadable_then(void (*then)(void), int expected, uint32_t version)
{
    push_down("disk:@0:64blk", 1);
    atomic_store(&faulty.block_reads, ALWAYS);
    assert_int_not_equal(get(1, bytes), KVO_OK);
    atomic_store(&faulty.block_reads, 0);
    then();
    check_valid();
    close_store();
    open_store("disk:@0:64blk");
    assert_int_equal(get_as(1, bytes, version, NULL, NULL), expected);
    close_store();
}

static void removes(void) { drop(1, KVO_SAFE); }

static void removes_all(void)
{
    kvo_target all = {.by = KVO_BY_ALL};
    assert_int_equal(kvo_remove(store, &all, KVO_SAFE, KVO_FOREVER, NULL, NULL), KVO_OK);
}

static void puts_again(void)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = KVO_SAFE;
    assert_int_equal(put_as(1, bytes, 1, &o, NULL), KVO_STORED);
}

static void a_copy_that_cannot_be_read_can_be_removed(void **state)
{
    (void)state;
    unreadable_then(removes, KVO_MISS, 0);
}

static void a_copy_that_cannot_be_read_goes_with_all(void **state)
{
    (void)state;
    unreadable_then(removes_all, KVO_MISS, 0);
}

static void a_later_put_counts_more_than_an_unreadable_copy(void **state)
{
    (void)state;
    unreadable_then(puts_again, KVO_OK, 1);
}

static int get_into(void *memory, uint64_t number, const kvo_get_options *o)
{
    kvo_answer answer;
    kvo_segment segment = {memory, bytes};
    kvo_memory target = {&segment, NULL};
    kvo_names names = names_of(number, 1);
    assert_int_equal(kvo_get(store, &names, &target, o, &answer), KVO_OK);
    assert_true(answer.status != KVO_OK || payload_is(memory, bytes, number, 0));
    return answer.status;
}

/* Every allocation of a store's first get fails in turn; into memory that goes through staging. */
static void short_memory(const char *tiers)
{
    int tries = 0;
    uint8_t *memory = malloc(bytes + 1);
    push_down(tiers, 1);
    for (bool failed = true; failed; tries++) {
        kvo_get_options o = KVO_GET_OPTIONS_INIT;
        o.no_promote = 1; /* or it were in memory after the first */
        close_store();
        faulty_open(tiers);
        atomic_store(&faulty.allocs_until, tries + 1);
        int r = get_into(memory + 1, 1, &o);
        failed = atomic_exchange(&faulty.allocs_until, 0) <= 0;
        assert_true(r == KVO_OK || r == KVO_BUSY || r == KVO_E_MEMORY);
        assert_int_equal(exists(1, NULL), KVO_OK);
        assert_int_equal(get_as(1, bytes, 0, &o, NULL), KVO_OK);
        check_valid();
    }
    assert_true(tries > 2);
    free(memory);
    close_store();
}

static void memory_that_runs_short_costs_nothing(void **state)
{
    (void)state;
    short_memory("disk:@0:64blk");
    fixture_remove(0);
    short_memory("dram:4blk,disk:@0:64blk");
}

/* ---- a buffer that changes while a get fills it ---- */

/* Memory of one page that shows at every address of a block: whatever is written there changes what was
   written before, as another thread's use of the buffer would. */
static void *shifting_memory(void)
{
    const size_t page = 4096;
    int file = memfd_create("shifting", MFD_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)page), 0);
    uint8_t *all = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    for (size_t at = 0; at < bytes; at += page)
        assert_ptr_equal(mmap(all + at, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0), all + at);
    close(file);
    return all;
}

static void into_shifting_memory(const char *tiers)
{
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_answer answer;
    uint8_t *memory = shifting_memory();
    kvo_segment segment = {memory, bytes};
    kvo_memory target = {&segment, NULL};
    kvo_names names = names_of(1, 1);
    open_store(tiers);
    put_safe(1);
    o.deadline_ns = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kvo_get(store, &names, &target, &o, &answer), KVO_OK);
        assert_int_equal(answer.status, KVO_BUSY); /* it never holds the block's bytes */
        check_valid();
    }
    munmap(memory, bytes);
    assert_int_equal(get(1, bytes), KVO_OK);
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.level, KVO_SAFE);
    assert_int_equal(store_stat().digest_misses, 0);
    close_store();
    open_store(tiers);
    assert_int_equal(get(1, bytes), KVO_OK);
    close_store();
}

static void a_buffer_that_changes_costs_no_copy(void **state)
{
    (void)state;
    into_shifting_memory("dram:16blk,disk:@0:64blk");
    fixture_remove(0);
    into_shifting_memory("disk:@0:64blk");
}

/* ---- a mover's source ---- */

static void damage(uint64_t number)
{
    char path[128];
    block_identity key;
    uint64_t life;
    kvo_names names = names_of(number, 1);
    identity_key(&names, 0, &key);
    uint32_t record = index_find(&store->index, &key, &life);
    uint64_t slot = copy_slot(word_load(&store->records[record].copy[0]));
    snprintf(path, sizeof path, "%s/data", fixture_path(0));
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(slot * 4096 + 4096 + 100), SEEK_SET), 0);
    assert_true(fputs("damage", file) > 0);
    assert_int_equal(fclose(file), 0);
}

/* Between two disks: what does not match is not written below, and is in nobody's way. */
static void a_damaged_source_is_not_moved(void **state)
{
    (void)state;
    open_store("disk:@0:4blk,disk:@1:64blk");
    put_safe(1);
    damage(1);
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(put(100 + i, bytes), KVO_STORED);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_equal(get(1, bytes), KVO_MISS);
    assert_int_equal(store_stat().digest_misses, 1);
    assert_int_equal(tier_stat(1).io_errors, 0);
    close_store();
}

static int put_at_once(uint64_t number)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.deadline_ns = 0;
    return put_as(number, bytes, 0, &o, NULL);
}

static void a_source_that_does_not_answer_stays(void **state)
{
    (void)state;
    faulty_open("disk:@0:4blk,disk:@1:64blk");
    for (uint64_t i = 0; i < 4; i++)
        put_safe(i);
    atomic_store(&faulty.all_reads, ALWAYS);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_not_equal(put_at_once(100 + i), KVO_STORED);
    check_valid();
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(exists(i, NULL), KVO_OK);
    atomic_store(&faulty.all_reads, 0);
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(put(200 + i, bytes), KVO_STORED);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(get(i, bytes), KVO_OK);
    close_store();
}

/* ---- a prefetch that has no room ---- */

static void a_prefetch_without_room_reads_nothing(void **state)
{
    (void)state;
    kvo_pin pins[4];
    kvo_policy policy = KVO_POLICY_INIT;
    options.write_out_ns = 1000000;
    push_down("dram:4blk,disk:@0:64blk", 1);
    for (uint64_t i = 0; i < 4; i++) {
        put_safe(10 + i);
        assert_int_equal(pin(10 + i, &pins[i]), KVO_OK);
    }
    long before = atomic_load(&faulty.reads_made);
    policy.intent = KVO_INTENT_PREFETCH;
    assert_int_equal(set_policy(1, &policy, KVO_POLICY_INTENT), KVO_OK);
    usleep(400000); /* many rounds of the keeper */
    assert_int_equal(atomic_load(&faulty.reads_made), before);
    assert_int_equal(kvo_unpin(store, pins, 4), KVO_OK);
    kvo_answer answer = {.tier = 1};
    for (int i = 0; i < 3000 && answer.tier != 0; i++) {
        usleep(10000);
        exists(1, &answer);
    }
    assert_int_equal(answer.tier, 0); /* once there is room */
    close_store();
}

/* ---- a segment header that cannot be written ---- */

/* Bytes of a write that failed are counted, of one that never began they are not. */
static void what_was_not_begun_is_not_counted_as_written(void **state)
{
    (void)state;
    faulty_open("disk:@0:64blk");
    atomic_store(&faulty.page_writes, 1);
    assert_int_equal(put(1, bytes), KVO_E_IO);
    assert_int_equal(atomic_load(&faulty.page_writes), 0);
    assert_int_equal(tier_stat(0).failed_bytes, 0);
    atomic_store(&faulty.block_writes, 1);
    assert_int_equal(put(1, bytes), KVO_E_IO);
    assert_int_equal(tier_stat(0).failed_bytes, bytes);
    assert_int_equal(tier_stat(0).io_errors, 2);
    close_store();
    fixture_remove(0);
    faulty_open("dram:4blk,disk:@0:64blk");
    assert_int_equal(put(1, bytes), KVO_STORED);
    for (int i = 0; i < 2; i++) {
        atomic_store(i ? &faulty.block_writes : &faulty.page_writes, 1);
        assert_int_not_equal(kvo_sync(store, NULL, KVO_WRITTEN, 0, NULL), KVO_OK);
        assert_int_equal(tier_stat(1).failed_bytes, (size_t)i * bytes);
    }
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    close_store();
}

static void puts_into_it_and_is_killed(void *context)
{
    (void)context;
    open_store("disk:@0:64blk");
    put_safe(2);
    abandon_store();
    _exit(0);
}

/* The close before the kill must not tell the next opening that the header is there. */
static void a_segment_without_its_header_gets_it_after_a_close(void **state)
{
    (void)state;
    faulty_open("disk:@0:64blk");
    atomic_store(&faulty.page_writes, 1);
    assert_int_equal(put(1, bytes), KVO_E_IO);
    assert_int_equal(atomic_load(&faulty.page_writes), 0);
    close_store();
    assert_child_ok(in_child(puts_into_it_and_is_killed, NULL));
    open_store("disk:@0:64blk");
    assert_int_equal(get(2, bytes), KVO_OK);
    close_store();
}

/* Nor for a name that is not there: what an earlier remove left to be flushed may be its. */
static void no_remove_is_safe_before_its_flush(void **state)
{
    (void)state;
    faulty_open("disk:@0:64blk");
    for (int as_job = 0; as_job < 2; as_job++) {
        kvo_target target = target_of(1, 2);
        kvo_answer answers[2];
        kvo_queue *queue;
        kvo_report report = {.status = -1};
        size_t count;
        put_safe(1);
        assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
        atomic_store(&faulty.flushes, ALWAYS);
        if (as_job) {
            assert_int_equal(kvo_submit_remove(queue, &target, KVO_SAFE, KVO_FOREVER, answers, NULL, &report.job),
                             KVO_OK);
            assert_int_equal(kvo_poll(queue, &report, 1, KVO_FOREVER, &count), KVO_OK);
        } else {
            report.status = kvo_remove(store, &target, KVO_SAFE, KVO_FOREVER, answers, NULL);
        }
        assert_int_equal(report.status, KVO_SHORT);
        assert_int_equal(answers[0].status, KVO_SHORT);
        assert_int_equal(answers[1].status, KVO_SHORT);
        atomic_store(&faulty.flushes, 0);
        assert_int_equal(kvo_remove(store, &target, KVO_SAFE, KVO_FOREVER, answers, NULL), KVO_OK);
        assert_int_equal(answers[0].status, KVO_MISS);
        assert_int_equal(kvo_queue_close(queue, KVO_FOREVER), KVO_OK);
    }
    close_store();
}

/* ---- removes beside each other ---- */

/* Of removes in the middle of another call, on whatever thread: nothing is asserted there. */
static int second_status, second_answer, third_status;

static void remove_too(void)
{
    kvo_answer answer;
    kvo_target target = target_of(1, 1);
    faulty.during_page = NULL;
    second_status = kvo_remove(store, &target, KVO_WRITTEN, 0, &answer, NULL);
    second_answer = answer.status;
}

/* As for want of room, but the slot stays free. */
static void evict(uint64_t number)
{
    uint32_t record = handle_record(info_of(number).handle);
    store_lock(store);
    assert_true(store_copy_drop(store, record, 0, true, KVO_CAUSE_EVICT));
    store_end(store, record, KVO_CAUSE_NONE);
    store_unlock(store);
}

/* Who finds nothing may not say that it is gone while the header of what was there is being overwritten: killed in
   that moment, the store has the block again. */
static void no_remove_ends_before_one_that_is_at_the_same_header(void **state)
{
    (void)state;
    faulty_open("disk:@0:64blk");
    for (int evicted = 0; evicted < 2; evicted++) {
        assert_int_equal(put(1, bytes), KVO_STORED);
        if (evicted)
            evict(1);
        second_status = second_answer = -1;
        faulty.during_page = remove_too;
        assert_int_equal(drop(1, KVO_WRITTEN), evicted ? KVO_MISS : KVO_OK);
        assert_int_equal(second_status, KVO_SHORT);
        assert_int_equal(second_answer, KVO_SHORT);
        assert_int_equal(store->tiers[0].stale.count, 0);
        assert_int_equal(drop(1, KVO_WRITTEN), KVO_MISS);
    }
    assert_null(store->erasures);
    check_valid();
    close_store();
}

static void remove_badly(void)
{
    kvo_target target = target_of(1, 1);
    faulty.during = NULL;
    atomic_store(&faulty.page_writes, 1);
    second_status = kvo_remove(store, &target, KVO_WRITTEN, 0, NULL, NULL);
    third_status = kvo_remove(store, &target, KVO_WRITTEN, 0, NULL, NULL);
}

/* The header stays, and the copy goes when its reader has ended: a later remove still reaches the header. */
static void a_remove_that_was_short_can_be_repeated_also_when_the_copy_was_read_meanwhile(void **state)
{
    (void)state;
    faulty_open("disk:@0:64blk");
    put(1, bytes);
    faulty.during = remove_badly;
    assert_int_equal(get(1, bytes), KVO_OK);
    assert_int_equal(second_status, KVO_SHORT);
    assert_int_equal(third_status, KVO_SHORT); /* it is being read */
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_equal(store->tiers[0].stale.count, 1);
    assert_int_equal(drop(1, KVO_WRITTEN), KVO_MISS);
    assert_int_equal(store->tiers[0].stale.count, 0);
    check_valid();
    close_store();
}

static void find_it_bad_and_remove(void)
{
    faulty.during = NULL;
    uint8_t payload[1 << 16];
    kvo_segment segment = {payload, bytes};
    kvo_memory memory = {&segment, NULL};
    kvo_answer answer;
    kvo_names names = names_of(1, 1);
    atomic_store(&faulty.block_reads, ALWAYS);
    kvo_get(store, &names, &memory, NULL, &answer);
    atomic_store(&faulty.block_reads, 0);
    remove_too();
}

static void no_remove_ends_while_a_copy_that_was_found_bad_is_read(void **state)
{
    (void)state;
    faulty_open("disk:@0:64blk");
    put(1, bytes);
    faulty.during = find_it_bad_and_remove;
    assert_int_equal(get(1, bytes), KVO_OK);
    assert_int_equal(second_status, KVO_SHORT);
    assert_int_equal(second_answer, KVO_SHORT);
    assert_int_equal(store->tiers[0].stale.count, 1);
    assert_int_equal(drop(1, KVO_WRITTEN), KVO_MISS);
    assert_int_equal(store->tiers[0].stale.count, 0);
    check_valid();
    close_store();
}

/* ---- when a copy counts ---- */

/* Of block 1, what anybody could see while its bytes were on their way. */
static int seen_status, seen_tiers, seen_count;

static void look(void)
{
    kvo_answer answer;
    seen_status = exists(1, &answer);
    seen_tiers = answer.tier_mask;
    seen_count++;
}

static void watch_from_here(void)
{
    seen_count = 0;
    faulty.during = look;
}

/* A hook of a write that is on its way, and nothing is published before it has ended. */
static void a_copy_counts_when_its_bytes_have_come_not_before(void **state)
{
    (void)state;
    faulty_open("dram:4blk,disk:@0:64blk");
    put(1, bytes);
    watch_from_here();
    kvo_target target = target_of(1, 1);
    assert_int_equal(kvo_sync(store, &target, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    assert_true(seen_count == 1 && seen_status == KVO_OK);
    assert_int_equal(seen_tiers, 1); /* memory alone */
    faulty.during = NULL;
    fill_with(1000, 20, bytes);
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    look();
    assert_int_equal(seen_tiers, 2);
    watch_from_here();
    assert_int_equal(get(1, bytes), KVO_OK);
    assert_true(seen_count == 1 && seen_status == KVO_OK);
    assert_int_equal(seen_tiers, 2); /* the disk alone */
    faulty.during = NULL;
    look();
    assert_int_equal(seen_tiers, 3);
    close_store();

    faulty_open("disk:@1:64blk");
    watch_from_here();
    assert_int_equal(put(1, bytes), KVO_STORED);
    assert_int_equal(seen_count, 1);
    assert_int_equal(seen_status, KVO_PENDING);
    faulty.during = NULL;
    close_store();
}

static void writes_out(void)
{
    touch(1); /* something to write out */
    kvo_write_out(store);
}

static void ends_in_a_write(void *context)
{
    (void)context;
    faulty_open("disk:@0:64blk");
    put_safe(1);
    faulty.during = writes_out;
    atomic_store(&faulty.ends, 1);
    put(2, bytes);
    _exit(1);
}

/* The superblock tells how far writes are complete; it may be written while one is on its way. */
static void a_write_that_ends_half_way_is_unfinished_also_if_the_mark_was_written_meanwhile(void **state)
{
    (void)state;
    assert_child_ok(in_child(ends_in_a_write, NULL));
    open_store("disk:@0:64blk");
    assert_int_equal(store_stat().unfinished_slots, 1);
    assert_int_equal(store_stat().damaged_slots, 0);
    assert_int_equal(exists(2, NULL), KVO_MISS);
    assert_int_equal(get(1, bytes), KVO_OK);
    assert_int_equal(put(2, bytes), KVO_STORED);
    assert_int_equal(get(2, bytes), KVO_OK);
    assert_int_equal(store_stat().digest_misses, 0);
    close_store();
}

/* Whatever reports "safe" leaves nothing behind that a power cut could take. */
static void what_is_safe_was_flushed(void **state)
{
    (void)state;
    static const char *const hierarchies[] = {"dram:8blk,disk:@0:64blk", "disk:@1:64blk"};
    for (int i = 0; i < 2; i++) {
        faulty_open(hierarchies[i]);
        put_safe(1);
        assert_int_equal(faulty_unflushed(), 0);
        fill_with(10, 5, bytes);
        kvo_target target = target_of(10, 5);
        assert_int_equal(kvo_sync(store, &target, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
        assert_int_equal(faulty_unflushed(), 0);
        assert_int_equal(drop(11, KVO_WRITTEN), KVO_OK);
        assert_true(faulty_unflushed() > 0); /* as it should not be asked for */
        assert_int_equal(drop(10, KVO_SAFE), KVO_OK);
        assert_int_equal(faulty_unflushed(), 0);
        assert_int_equal(rewrite(1, bytes, 1, 0, KVO_SAFE), KVO_STORED);
        assert_int_equal(faulty_unflushed(), 0);
        close_store();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(an_error_that_passes_is_read_over),
        FIXTURE_TEST(an_error_that_passes_is_read_over_on_the_way_up),
        FIXTURE_TEST(a_copy_that_cannot_be_read_stays_for_the_next_open),
        FIXTURE_TEST(a_copy_that_cannot_be_brought_up_stays_for_the_next_open),
        FIXTURE_TEST(a_copy_that_cannot_be_read_survives_a_kill),
        FIXTURE_TEST(a_device_that_does_not_answer_is_busy),
        FIXTURE_TEST(a_device_below_memory_that_does_not_answer_is_busy),
        FIXTURE_TEST(a_copy_that_cannot_be_read_can_be_removed),
        FIXTURE_TEST(a_copy_that_cannot_be_read_goes_with_all),
        FIXTURE_TEST(a_later_put_counts_more_than_an_unreadable_copy),
        FIXTURE_TEST(memory_that_runs_short_costs_nothing),
        FIXTURE_TEST(a_buffer_that_changes_costs_no_copy),
        FIXTURE_TEST(a_damaged_source_is_not_moved),
        FIXTURE_TEST(a_source_that_does_not_answer_stays),
        FIXTURE_TEST(a_prefetch_without_room_reads_nothing),
        FIXTURE_TEST(what_was_not_begun_is_not_counted_as_written),
        FIXTURE_TEST(a_segment_without_its_header_gets_it_after_a_close),
        FIXTURE_TEST(no_remove_is_safe_before_its_flush),
        FIXTURE_TEST(no_remove_ends_before_one_that_is_at_the_same_header),
        FIXTURE_TEST(a_remove_that_was_short_can_be_repeated_also_when_the_copy_was_read_meanwhile),
        FIXTURE_TEST(no_remove_ends_while_a_copy_that_was_found_bad_is_read),
        FIXTURE_TEST(a_copy_counts_when_its_bytes_have_come_not_before),
        FIXTURE_TEST(a_write_that_ends_half_way_is_unfinished_also_if_the_mark_was_written_meanwhile),
        FIXTURE_TEST(what_is_safe_was_flushed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
