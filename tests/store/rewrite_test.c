/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites that fail, that a kill follows, that a remove meets. */
#include "faulty.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static const size_t bytes = 65536;

static void put_safe(uint64_t number)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = KVO_SAFE;
    assert_int_equal(put_as(number, bytes, 0, &o, NULL), KVO_STORED);
}

/* A slot whose header may name any block, and that somebody is writing: a rewrite has to wait for it. */
static uint32_t busy_slot(unsigned tier)
{
    store_lock(store);
    uint32_t slot = place_slot_take(&store->tiers[tier].space, store_stride(store, tier, bytes));
    store_stale_add(store, tier, slot, 0, false);
    store_unlock(store);
    return slot;
}

static void free_slot(unsigned tier, uint32_t slot)
{
    store_lock(store);
    place_slot_free(&store->tiers[tier].space, slot);
    store_unlock(store);
}

/* ---- one that gives up before it touched the old copies ---- */

static void a_rewrite_that_has_to_wait_leaves_the_block_as_it_was(void **state)
{
    (void)state;
    kvo_answer answer;
    open_store("dram:8blk,disk:@0:64blk");
    put_safe(1);
    uint32_t slot = busy_slot(1);
    assert_int_equal(rewrite(1, bytes, 1, 0, KVO_SEALED), KVO_BUSY);
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, 3);
    assert_int_equal(answer.level, KVO_SAFE);
    free_slot(1, slot);
    fill_with(200, 20, bytes); /* out of memory: what is on disk has to be whole */
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.tier, 1);
    assert_int_equal(get(1, bytes), KVO_OK);
    assert_int_equal(rewrite(1, bytes, 1, 0, KVO_SEALED), KVO_STORED);
    assert_int_equal(get_as(1, bytes, 1, NULL, NULL), KVO_OK);
    close_store();
}

static void waits_and_is_killed(void *context)
{
    (void)context;
    open_store("disk:@0:64blk");
    put_safe(1);
    busy_slot(0);
    _exit(rewrite(1, bytes, 1, 0, KVO_SEALED) == KVO_BUSY ? 0 : 1);
}

static void a_rewrite_that_failed_is_not_back_after_a_kill(void **state)
{
    (void)state;
    kvo_answer answer;
    assert_child_ok(in_child(waits_and_is_killed, NULL));
    open_store("disk:@0:64blk");
    assert_int_equal(get_as(1, bytes, 0, NULL, &answer), KVO_OK); /* the old bytes: asserted there */
    assert_int_equal(answer.generation, 1);
    close_store();
}

/* ---- one that fails while it puts dead headers over the old copies ---- */

static void a_copy_whose_header_may_be_dead_is_none(void **state)
{
    (void)state;
    kvo_answer answer;
    faulty_open("dram:8blk,disk:@0:64blk");
    put_safe(1);
    atomic_store(&faulty.page_writes, ALWAYS);
    assert_int_equal(rewrite(1, bytes, 1, 0, KVO_SEALED), KVO_E_IO);
    atomic_store(&faulty.page_writes, 0);
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, 1);
    assert_int_equal(answer.level, KVO_SEALED);
    assert_int_equal(get(1, bytes), KVO_OK);
    fill_with(200, 20, bytes); /* memory brings it down again */
    assert_int_equal(get(1, bytes), KVO_OK);
    check_valid();
    assert_true(tier_stat(1).max_delta <= 1);
    close_store();
    open_store("dram:8blk,disk:@0:64blk");
    assert_int_equal(get(1, bytes), KVO_OK);
    close_store();
}

/* How many one-page writes fail: the old copy's dead header, that and the new one's. */
static void fails_and_is_killed(void *context)
{
    faulty_open("disk:@0:64blk");
    put_safe(1);
    atomic_store(&faulty.page_writes, *(int *)context);
    int r = rewrite(1, bytes, 1, 0, KVO_SEALED);
    atomic_store(&faulty.page_writes, 0);
    _exit(r == KVO_E_IO && get(1, bytes) == KVO_MISS ? 0 : 1);
}

static void a_rewrite_that_failed_on_the_medium_costs_the_block_at_most(void **state)
{
    (void)state;
    int failing = 1;
    assert_child_ok(in_child(fails_and_is_killed, &failing));
    open_store("disk:@0:64blk");
    int r = get(1, bytes); /* never the bytes of the rewrite */
    assert_true(r == KVO_MISS || r == KVO_OK);
    close_store();
}

static void a_rewrite_that_failed_is_not_back_after_a_close(void **state)
{
    (void)state;
    for (int failing = 1; failing <= 2; failing++) {
        faulty_open("disk:@0:64blk");
        put_safe(1);
        atomic_store(&faulty.page_writes, failing);
        assert_int_equal(rewrite(1, bytes, 1, 0, KVO_SEALED), KVO_E_IO);
        assert_int_equal(atomic_exchange(&faulty.page_writes, 0), 0);
        assert_int_equal(get(1, bytes), KVO_MISS);
        check_valid();
        close_store();
        open_store("disk:@0:64blk");
        assert_int_equal(get(1, bytes), KVO_MISS);
        assert_int_equal(put(1, bytes), KVO_STORED);
        close_store();
        fixture_remove(0);
    }
}

/* The new bytes themselves cannot be written: the old ones stay. */
static void a_rewrite_whose_bytes_cannot_be_written_changes_nothing(void **state)
{
    (void)state;
    faulty_open("disk:@0:64blk");
    put_safe(1);
    atomic_store(&faulty.block_writes, ALWAYS);
    assert_int_equal(rewrite(1, bytes, 1, 0, KVO_SEALED), KVO_E_IO);
    atomic_store(&faulty.block_writes, 0);
    assert_int_equal(get(1, bytes), KVO_OK);
    close_store();
    open_store("disk:@0:64blk");
    assert_int_equal(get(1, bytes), KVO_OK);
    close_store();
}

/* Every allocation of a rewrite fails in turn: the old bytes or the new ones, and the answer says which. */
static void short_memory(const char *tiers)
{
    uint32_t version = 0;
    int tries = 0;
    faulty_open(tiers);
    put_safe(1);
    for (bool failed = true; failed; tries++) {
        atomic_store(&faulty.allocs_until, tries + 1);
        int r = rewrite(1, bytes, version + 1, 0, KVO_SEALED);
        failed = atomic_exchange(&faulty.allocs_until, 0) <= 0;
        assert_true(r == KVO_STORED || r == KVO_E_MEMORY);
        version += r == KVO_STORED;
        assert_int_equal(get_as(1, bytes, version, NULL, NULL), KVO_OK);
        check_valid();
    }
    assert_true(tries > 1);
    close_store();
    open_store(tiers);
    assert_int_equal(get_as(1, bytes, version, NULL, NULL), KVO_OK);
    close_store();
    fixture_remove(0);
}

static void a_rewrite_short_of_memory_keeps_the_old_bytes(void **state)
{
    (void)state;
    short_memory("disk:@0:64blk");
    short_memory("dram:8blk,disk:@0:64blk");
}

/* ---- limits ---- */

static void the_4096th_rewrite_is_refused(void **state)
{
    (void)state;
    open_store("dram:4blk");
    assert_int_equal(put(1, 8), KVO_STORED);
    for (unsigned i = 1; i <= 4095; i++)
        assert_int_equal(rewrite(1, 8, i, 0, KVO_SEALED), KVO_STORED);
    assert_int_equal(rewrite(1, 8, 5000, 0, KVO_SEALED), KVO_REFUSED);
    assert_int_equal(get_as(1, 8, 4095, NULL, NULL), KVO_OK);
    close_store();
}

/* ---- a remove while the block is hidden ---- */

static uint8_t the_name[NAME_BYTES];

static kvo_names the_names(void)
{
    return (kvo_names){.first = the_name, .name_bytes = NAME_BYTES, .count = 1, .space = space};
}

static void *rewrites(void *status)
{
    static uint8_t new[65536];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer;
    kvo_names names = the_names();
    kvo_segment segment = {new, bytes};
    kvo_memory memory = {&segment, NULL};
    payload_make(new, bytes, 1, 1);
    o.deadline_ns = KVO_FOREVER;
    int r = kvo_rewrite(store, &names, &memory, 0, &o, &answer);
    *(int *)status = r == KVO_OK ? answer.status : r;
    return NULL;
}

static void hidden_behind(kvo_pin *reader, pthread_t *thread, int *status)
{
    name_of(1, the_name);
    open_store("dram:8blk,disk:@0:64blk");
    put_safe(1);
    assert_int_equal(pin(1, reader), KVO_OK); /* the rewrite waits for it */
    assert_int_equal(pthread_create(thread, NULL, rewrites, status), 0);
    while (exists(1, NULL) != KVO_PENDING)
        usleep(100);
}

static void a_remove_does_not_miss_a_block_that_a_rewrite_hides(void **state)
{
    (void)state;
    kvo_pin reader;
    pthread_t thread;
    int status = -1;
    hidden_behind(&reader, &thread, &status);
    assert_int_equal(drop(1, KVO_SAFE), KVO_BUSY); /* deadline 0 */
    assert_int_equal(kvo_unpin(store, &reader, 1), KVO_OK);
    pthread_join(thread, NULL);
    assert_int_equal(status, KVO_STORED);
    assert_int_equal(get_as(1, bytes, 1, NULL, NULL), KVO_OK);
    assert_int_equal(drop(1, KVO_SAFE), KVO_OK);
    close_store();
    open_store("dram:8blk,disk:@0:64blk");
    assert_int_equal(exists(1, NULL), KVO_MISS);
    close_store();
}

static void *removes(void *status)
{
    kvo_answer answer;
    kvo_target target = {.by = KVO_BY_NAMES, .names = the_names()};
    kvo_remove(store, &target, KVO_SAFE, KVO_FOREVER, &answer, NULL);
    *(int *)status = answer.status;
    return NULL;
}

static void a_remove_waits_for_a_block_that_a_rewrite_hides(void **state)
{
    (void)state;
    kvo_pin reader;
    pthread_t thread, remover;
    int status = -1, removed = -1;
    hidden_behind(&reader, &thread, &status);
    assert_int_equal(pthread_create(&remover, NULL, removes, &removed), 0);
    usleep(20000);
    assert_int_equal(kvo_unpin(store, &reader, 1), KVO_OK);
    pthread_join(thread, NULL);
    pthread_join(remover, NULL);
    assert_int_equal(status, KVO_STORED);
    assert_int_equal(removed, KVO_OK);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    close_store();
}

/* ---- readers that found the block before ---- */

static bool pins_any(block_record *r, unsigned tiers)
{
    uint64_t copy;
    for (unsigned t = 0; t < tiers; t++)
        if (block_pin(r, t, &copy)) {
            block_unpin(r, t);
            return true;
        }
    return false;
}

/* Once its readers are gone, its copies are still there but nobody gets at them, nor calls the block gone. */
static void a_hidden_block_cannot_be_pinned(void **state)
{
    (void)state;
    pthread_t thread;
    kvo_answer answer;
    int status = -1;
    name_of(1, the_name);
    open_store("dram:8blk,disk:@0:64blk");
    put_safe(1);
    assert_int_equal(exists(1, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, 3);
    block_record *r = &store->records[handle_record(answer.handle)];
    uint32_t slot = busy_slot(1); /* the rewrite waits for it, after its readers */
    assert_int_equal(pthread_create(&thread, NULL, rewrites, &status), 0);
    while (exists(1, NULL) != KVO_PENDING || atomic_load(&store->waiting) == 0)
        usleep(100);
    assert_false(pins_any(r, 2));
    assert_int_equal(block_tiers(r), 3);
    assert_int_equal(exists(1, NULL), KVO_PENDING);
    assert_int_equal(drop(1, KVO_SEALED), KVO_BUSY);
    free_slot(1, slot);
    pthread_join(thread, NULL);
    assert_int_equal(status, KVO_STORED);
    assert_int_equal(get_as(1, bytes, 1, NULL, NULL), KVO_OK);
    check_valid();
    close_store();
}

static atomic_bool done;

static void *reads_all_the_time(void *unused)
{
    static _Thread_local uint8_t memory[65536];
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = 0;
    while (!atomic_load(&done)) {
        kvo_answer answer;
        kvo_names names = the_names();
        kvo_segment segment = {memory, 8};
        kvo_memory m = {&segment, NULL};
        if (kvo_get(store, &names, &m, &o, &answer) != KVO_OK || (answer.status != KVO_OK && answer.status != KVO_BUSY))
            abort();
    }
    return unused;
}

/* They find it in every state there is: never gone, and no count is lost. */
static void rewrites_among_readers(void **state)
{
    (void)state;
    pthread_t threads[4];
    uint32_t version = 0;
    name_of(1, the_name);
    open_store("dram:4blk");
    assert_int_equal(put(1, 8), KVO_STORED);
    atomic_store(&done, false);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reads_all_the_time, NULL), 0);
    for (unsigned i = 0; i < 3000; i++)
        version += rewrite(1, 8, version + 1, 0, KVO_SEALED) == KVO_STORED;
    atomic_store(&done, true);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    check_valid();
    assert_int_equal(get_as(1, 8, version, NULL, NULL), KVO_OK);
    close_store();
}

/* ---- a copy that is found bad while its block is being rewritten ---- */

static base_env machine_2;
static atomic_bool rots;
static int found = -1;

/* The moment between the beginning and the hiding: the new bytes are on their way. */
static ssize_t rot_and_read(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    base_env *real = base_env_posix();
    (void)env;
    if (iov_bytes(iov, count) > bytes && atomic_exchange(&rots, false)) {
        static _Alignas(4096) uint8_t junk[4096];
        uint8_t *memory = aligned_alloc(4096, bytes);
        struct iovec one = {junk, sizeof junk};
        kvo_names names = names_of(1, 1);
        kvo_segment segment = {memory, bytes};
        kvo_memory where = {&segment, NULL};
        kvo_answer answer;
        uint64_t slot = (uint64_t)copy_slot(word_load(&store->records[0].copy[0])) * TIER_UNIT;
        memset(junk, 0xdb, sizeof junk);
        assert_int_equal(real->write(real, file, &one, 1, slot + 8192), sizeof junk);
        assert_int_equal(kvo_get(store, &names, &where, NULL, &answer), KVO_OK);
        found = answer.status;
        free(memory);
    }
    return real->write(real, file, iov, count, offset);
}

static void a_copy_that_rots_meanwhile_stops_no_rewrite(void **state)
{
    (void)state;
    kvo_tier_config disk = KVO_TIER_CONFIG_INIT;
    disk.kind = KVO_TIER_DISK;
    disk.path = fixture_path(0);
    disk.capacity_blocks = 16;
    machine_2 = *base_env_posix();
    machine_2.write = rot_and_read;
    assert_int_equal(store_open(&machine_2, &disk, 1, &options, &store, NULL), KVO_OK);
    space = open_space("a", bytes);
    assert_int_equal(put(1, bytes), KVO_STORED);
    atomic_store(&rots, true);
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.deadline_ns = KVO_FOREVER;
    uint8_t *memory = malloc(bytes);
    payload_make(memory, bytes, 1, 1);
    kvo_names names = names_of(1, 1);
    kvo_segment segment = {memory, bytes};
    kvo_memory where = {&segment, NULL};
    kvo_answer answer;
    assert_int_equal(kvo_rewrite(store, &names, &where, 0, &o, &answer), KVO_OK);
    free(memory);
    assert_int_equal(found, KVO_MISS); /* and its name is free */
    assert_int_equal(answer.status, KVO_MISS);
    check_valid();
    assert_int_equal(store_stat().blocks, 0);
    assert_int_equal(tier_stat(0).used_bytes, 0);
    assert_int_equal(put(1, bytes), KVO_STORED);
    assert_int_equal(get(1, bytes), KVO_OK);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_rewrite_that_has_to_wait_leaves_the_block_as_it_was),
        FIXTURE_TEST(a_rewrite_that_failed_is_not_back_after_a_kill),
        FIXTURE_TEST(a_copy_whose_header_may_be_dead_is_none),
        FIXTURE_TEST(a_rewrite_that_failed_on_the_medium_costs_the_block_at_most),
        FIXTURE_TEST(a_rewrite_that_failed_is_not_back_after_a_close),
        FIXTURE_TEST(a_rewrite_whose_bytes_cannot_be_written_changes_nothing),
        FIXTURE_TEST(a_rewrite_short_of_memory_keeps_the_old_bytes),
        FIXTURE_TEST(the_4096th_rewrite_is_refused),
        FIXTURE_TEST(a_remove_does_not_miss_a_block_that_a_rewrite_hides),
        FIXTURE_TEST(a_remove_waits_for_a_block_that_a_rewrite_hides),
        FIXTURE_TEST(a_hidden_block_cannot_be_pinned),
        FIXTURE_TEST(rewrites_among_readers),
        FIXTURE_TEST(a_copy_that_rots_meanwhile_stops_no_rewrite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
