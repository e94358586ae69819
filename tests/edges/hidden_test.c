/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that a rewrite hides, or that change hands, while somebody else removes, reads or rewrites them: each step is
   held where the other one comes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "faulty.h"
#include "tier/tier.h"

#define BYTES 65536u

static void put_at(uint64_t number, int level)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer;
    o.level = level;
    assert_int_equal(put_as(number, BYTES, 0, &o, &answer), KVO_STORED);
    assert_true(answer.level >= level);
}

static void wait_for_waiting(uint32_t threads)
{
    while (atomic_load(&store->waiting) < threads)
        usleep(100);
}

/* ---- a rewrite that a reader holds up ---- */

typedef struct hider {
    uint64_t number;
    uint32_t version;
    kvo_pin reader;
    pthread_t thread;
    int status;
    uint8_t bytes[BYTES];
} hider;

static void *hide(void *argument)
{
    hider *h = argument;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer;
    kvo_names names = names_of(h->number, 1);
    kvo_segment segment = {h->bytes, BYTES};
    kvo_memory memory = {&segment, NULL};
    o.deadline_ns = KVO_FOREVER;
    payload_make(h->bytes, BYTES, h->number, h->version);
    h->status = kvo_rewrite(store, &names, &memory, 0, &o, &answer) == KVO_OK ? answer.status : -1;
    return NULL;
}

static void hide_begin(hider *h, uint64_t number, uint32_t version)
{
    h->number = number;
    h->version = version;
    assert_int_equal(pin(number, &h->reader), KVO_OK);
    assert_int_equal(pthread_create(&h->thread, NULL, hide, h), 0);
    while (exists(number, NULL) != KVO_PENDING)
        usleep(100);
}

static void hide_end(hider *h)
{
    assert_int_equal(kvo_unpin(store, &h->reader, 1), KVO_OK);
    pthread_join(h->thread, NULL);
    assert_int_equal(h->status, KVO_STORED);
}

static hider first, second;

/* ---- removes of them ---- */

static int remove_now(kvo_target target, uint64_t deadline_ns, kvo_answer *answers)
{
    uint64_t removed = 9;
    int r = kvo_remove(store, &target, KVO_WRITTEN, deadline_ns, answers, &removed);
    assert_int_equal(removed, 0);
    return r;
}

static void a_remove_of_hidden_blocks_is_busy_however_they_are_named(void **state)
{
    (void)state;
    kvo_answer answers[4];
    kvo_policy policy = KVO_POLICY_INIT;
    open_store("dram:16blk,disk:@0:64blk");
    put_at(1, KVO_SAFE);
    put_at(2, KVO_SEALED);
    kvo_handle old = info_of(1).handle;
    assert_int_equal(rewrite(1, BYTES, 1, 0, KVO_SEALED), KVO_STORED);
    policy.tenant = 7;
    assert_int_equal(set_policy(1, &policy, KVO_POLICY_TENANT), KVO_OK);
    kvo_handle handles[4] = {info_of(1).handle, old, handle_make(99999, 1), 0};
    hide_begin(&first, 1, 2);
    hide_begin(&second, 2, 2);
    assert_int_equal(remove_now(target_of(1, 2), 0, NULL), KVO_BUSY);
    assert_int_equal(remove_now(target_of(1, 2), 1000000, answers), KVO_BUSY);
    assert_true(answers[0].status == KVO_BUSY && answers[1].status == KVO_BUSY);
    kvo_target target = {.by = KVO_BY_HANDLES, .handles = handles, .handle_count = 4};
    assert_int_equal(remove_now(target, 0, answers), KVO_BUSY);
    assert_int_equal(answers[0].status, KVO_BUSY);
    for (int i = 1; i < 4; i++)
        assert_int_equal(answers[i].status, KVO_GONE);
    target = (kvo_target){.by = KVO_BY_TENANT, .tenant = 7};
    assert_int_equal(remove_now(target, 0, NULL), KVO_BUSY);
    target = (kvo_target){.by = KVO_BY_ALL};
    assert_int_equal(remove_now(target, 1000000, NULL), KVO_BUSY);
    hide_end(&first);
    hide_end(&second);
    assert_int_equal(get_as(1, BYTES, 2, NULL, NULL), KVO_OK);
    assert_int_equal(get_as(2, BYTES, 2, NULL, NULL), KVO_OK);
    close_store();
}

typedef struct remover {
    kvo_target target;
    kvo_answer answers[4];
    uint64_t removed;
    pthread_t thread;
    int r;
} remover;

static void *removes(void *argument)
{
    remover *m = argument;
    m->r = kvo_remove(store, &m->target, KVO_WRITTEN, KVO_FOREVER, m->answers, &m->removed);
    return NULL;
}

static remover the_remover;

static void remove_begin(uint64_t from, size_t count)
{
    the_remover.target = target_of(from, count);
    assert_int_equal(pthread_create(&the_remover.thread, NULL, removes, &the_remover), 0);
}

/* It has found 1 and 2, and waits for 3: what happens to those meanwhile happened before it, for all that anybody can
   tell. */
static void what_is_rewritten_while_a_remove_waits_goes_too(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:64blk");
    for (uint64_t i = 1; i <= 3; i++)
        put_at(i, KVO_SAFE);
    hide_begin(&first, 3, 1);
    remove_begin(1, 3);
    wait_for_waiting(2);
    assert_int_equal(rewrite(1, BYTES, 5, 0, KVO_SAFE), KVO_STORED);
    assert_int_equal(drop(2, KVO_WRITTEN), KVO_OK);
    hide_end(&first);
    pthread_join(the_remover.thread, NULL);
    assert_int_equal(the_remover.r, KVO_OK);
    assert_int_equal(the_remover.answers[0].status, KVO_OK);
    assert_int_equal(the_remover.answers[1].status, KVO_MISS);
    assert_int_equal(the_remover.answers[2].status, KVO_OK);
    assert_int_equal(the_remover.removed, 2);
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(exists(i, NULL), KVO_MISS);
    fixture_copy(0, 1); /* nor is it back after a crash */
    kvo_store *here = store;
    open_store("disk:@1");
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(exists(i, NULL), KVO_MISS);
    close_store();
    store = here;
    close_store();
}

/* By tenant all that are his go, also in a new life; by handle only the life that it is of. */
static void what_changes_while_a_remove_waits_is_looked_at_again(bool by_handle)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_reservation reservation;
    kvo_answer answer;
    const uint32_t bytes = BYTES;
    open_store("dram:16blk,disk:@0:64blk");
    for (uint64_t i = 1; i <= 3; i++)
        put_at(i, KVO_SAFE);
    kvo_names names = names_of(60, 1);
    assert_int_equal(kvo_reserve(store, &names, &bytes, NULL, &reservation, &answer), KVO_OK);
    const kvo_handle handles[4] = {info_of(1).handle, info_of(2).handle, reservation.handle, info_of(3).handle};
    hide_begin(&first, 3, 1);
    the_remover.target = by_handle ? (kvo_target){.by = KVO_BY_HANDLES, .handles = handles, .handle_count = 4}
                                   : (kvo_target){.by = KVO_BY_TENANT};
    assert_int_equal(pthread_create(&the_remover.thread, NULL, removes, &the_remover), 0);
    wait_for_waiting(2);
    assert_int_equal(rewrite(1, BYTES, 5, 0, KVO_SEALED), KVO_STORED);
    assert_int_equal(drop(2, KVO_WRITTEN), KVO_OK);
    o.policy.tenant = 9;
    assert_int_equal(put_as(50, BYTES, 0, &o, NULL), KVO_STORED); /* in the record of 2 */
    hide_end(&first);
    pthread_join(the_remover.thread, NULL);
    assert_int_equal(the_remover.r, KVO_OK);
    assert_int_equal(the_remover.removed, by_handle ? 0 : 2);
    for (int i = 0; by_handle && i < 4; i++)
        assert_int_equal(the_remover.answers[i].status, KVO_GONE);
    assert_int_equal(get_as(1, BYTES, 5, NULL, NULL), by_handle ? KVO_OK : KVO_MISS);
    assert_int_equal(get_as(3, BYTES, 1, NULL, NULL), by_handle ? KVO_OK : KVO_MISS);
    assert_int_equal(get(50, BYTES), KVO_OK);
    assert_int_equal(kvo_abort(store, &reservation, 1, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_OK);
    close_store();
    fixture_remove(0);
}

static void a_tenant_goes_with_all_lives_and_a_handle_with_its_own(void **state)
{
    (void)state;
    what_changes_while_a_remove_waits_is_looked_at_again(false);
    what_changes_while_a_remove_waits_is_looked_at_again(true);
}

static void what_is_rewritten_while_a_remove_waits_may_be_short_of_its_level(void **state)
{
    (void)state;
    faulty_open("dram:16blk,disk:@0:64blk");
    put_at(1, KVO_SAFE);
    put_at(2, KVO_SEALED);
    hide_begin(&first, 2, 1);
    remove_begin(1, 2);
    wait_for_waiting(2);
    assert_int_equal(rewrite(1, BYTES, 5, 0, KVO_SAFE), KVO_STORED);
    atomic_store(&faulty.page_writes, ALWAYS);
    hide_end(&first);
    pthread_join(the_remover.thread, NULL);
    atomic_store(&faulty.page_writes, 0);
    assert_int_equal(the_remover.r, KVO_SHORT);
    assert_int_equal(the_remover.answers[0].status, KVO_SHORT);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_equal(drop(1, KVO_SAFE), KVO_MISS); /* now its header is dead */
    close_store();
    open_store("dram:16blk,disk:@0:64blk");
    assert_int_equal(exists(1, NULL), KVO_MISS);
    close_store();
}

static atomic_bool stop_rewriting;

static void *rewrites_on(void *argument)
{
    hider *h = argument;
    while (!atomic_load(&stop_rewriting)) {
        h->version++;
        hide(h);
    }
    return NULL;
}

/* A block that is there all the time is removed, at whichever step of a rewrite the remove comes by. */
static void no_remove_misses_a_block_that_is_being_shown(void **state)
{
    (void)state;
    const kvo_target tenant = {.by = KVO_BY_TENANT};
    const char *rounds = getenv("KVO_TEST_ROUNDS");
    unsigned left = rounds ? (unsigned)strtoul(rounds, NULL, 10) : 2000;
    uint64_t removed;
    open_store("dram:16blk");
    atomic_store(&stop_rewriting, false);
    first.number = 1;
    assert_int_equal(pthread_create(&first.thread, NULL, rewrites_on, &first), 0);
    for (; left; left--) {
        assert_int_equal(put(1, 64), KVO_STORED);
        kvo_target target = left % 2 ? target_of(1, 1) : tenant;
        assert_int_equal(kvo_remove(store, &target, KVO_SEALED, KVO_FOREVER, NULL, &removed), KVO_OK);
        assert_int_equal(removed, 1);
        assert_int_equal(exists(1, NULL), KVO_MISS);
    }
    atomic_store(&stop_rewriting, true);
    pthread_join(first.thread, NULL);
    close_store();
}

/* ---- a transfer that is held ---- */

static atomic_bool held, go;
static pthread_t holds_only;

static void hold_here(void)
{
    if (!pthread_equal(pthread_self(), holds_only) || atomic_exchange(&held, true))
        return;
    while (!atomic_load(&go))
        usleep(100);
}

static void *syncs(void *result)
{
    kvo_target target = target_of(1, 1);
    *(int *)result = kvo_sync(store, &target, KVO_WRITTEN, KVO_FOREVER, NULL);
    return NULL;
}

static void hold_in(pthread_t *thread, void *(*run)(void *), void *argument)
{
    atomic_store(&held, false);
    atomic_store(&go, false);
    store_lock(store); /* so that nothing is transferred before it is known who */
    assert_int_equal(pthread_create(thread, NULL, run, argument), 0);
    holds_only = *thread;
    faulty.during = hold_here;
    store_unlock(store);
    while (!atomic_load(&held))
        usleep(100);
}

static void a_remove_that_waited_for_a_transfer_may_be_short(void **state)
{
    (void)state;
    pthread_t thread;
    int synced = -1;
    options.io_engine = KVO_IO_THREADS;
    options.flight_bytes = 1; /* the caller makes the calls */
    faulty_open("dram:16blk,disk:@0:64blk");
    put_at(2, KVO_SAFE); /* the segment has its header */
    put_at(1, KVO_SEALED);
    holds_only = 0;
    hold_in(&thread, syncs, &synced);
    remove_begin(1, 1);
    wait_for_waiting(1);
    atomic_store(&faulty.page_writes, ALWAYS);
    atomic_store(&go, true);
    pthread_join(thread, NULL);
    pthread_join(the_remover.thread, NULL);
    atomic_store(&faulty.page_writes, 0);
    faulty.during = NULL;
    assert_int_equal(the_remover.r, KVO_SHORT);
    assert_int_equal(the_remover.answers[0].status, KVO_SHORT);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    check_valid();
    close_store();
}

/* ---- copies that are found bad ---- */

static void spoil_memory(uint64_t number)
{
    uint8_t *memory = tier_memory(store->tiers[0].io, info_of(number).copies[0].slot);
    memory[100] ^= 1;
}

static void spoil_medium(int which, uint64_t offset)
{
    char path[160];
    static const uint8_t junk[512] = {0xdb, 1, 2, 3};
    snprintf(path, sizeof path, "%s/data", fixture_path(which));
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)offset + 8192, SEEK_SET), 0);
    assert_int_equal(fwrite(junk, 1, sizeof junk, f), sizeof junk);
    assert_int_equal(fclose(f), 0);
}

static void a_pin_is_of_the_right_bytes(void **state)
{
    (void)state;
    kvo_pin p;
    open_store("dram:16blk");
    put_at(1, KVO_SEALED);
    spoil_memory(1);
    assert_int_equal(pin(1, &p), KVO_MISS);
    assert_int_equal(store_stat().digest_misses, 1);
    assert_int_equal(put(1, BYTES), KVO_STORED);
    assert_int_equal(pin(1, &p), KVO_OK);
    assert_true(payload_is(p.memory, BYTES, 1, 0));
    assert_int_equal(kvo_unpin(store, &p, 1), KVO_OK);
    close_store();
}

static void a_rewrite_waits_for_who_reads_a_bad_copy(void **state)
{
    (void)state;
    kvo_pin p;
    open_store("dram:16blk,disk:@0:64blk");
    put_at(1, KVO_SAFE);
    assert_int_equal(pin(1, &p), KVO_OK);
    spoil_memory(1);
    assert_int_equal(get(1, BYTES), KVO_OK); /* from the disk */
    assert_int_equal(rewrite(1, BYTES, 1, 0, KVO_SEALED), KVO_BUSY);
    assert_int_equal(get(1, BYTES), KVO_OK);
    assert_int_equal(kvo_unpin(store, &p, 1), KVO_OK);
    assert_int_equal(rewrite(1, BYTES, 1, 0, KVO_SAFE), KVO_STORED);
    assert_int_equal(get_as(1, BYTES, 1, NULL, NULL), KVO_OK);
    close_store();
}

static void *gets(void *status)
{
    void *memory = aligned_alloc(4096, BYTES);
    kvo_names names = names_of(1, 1);
    kvo_segment segment = {memory, BYTES};
    kvo_memory where = {&segment, NULL};
    kvo_answer answer;
    *(int *)status = kvo_get(store, &names, &where, NULL, &answer) == KVO_OK ? answer.status : -1;
    free(memory);
    return NULL;
}

/* He came before the rewrite hid the block, and finds its only copy bad after: the block ends, and the rewrite with
   it. */
static void a_reader_who_finds_a_hidden_block_bad_ends_it(void **state)
{
    (void)state;
    pthread_t reader;
    int found = -1;
    options.io_engine = KVO_IO_THREADS;
    options.flight_bytes = 1;
    faulty_open("disk:@0:64blk");
    put_at(1, KVO_SAFE);
    uint64_t at = info_of(1).copies[0].offset_bytes;
    hold_in(&reader, gets, &found);
    spoil_medium(0, at);
    first.number = 1;
    assert_int_equal(pthread_create(&first.thread, NULL, hide, &first), 0);
    while (exists(1, NULL) != KVO_PENDING)
        usleep(100);
    wait_for_waiting(1);
    atomic_store(&go, true);
    pthread_join(reader, NULL);
    pthread_join(first.thread, NULL);
    faulty.during = NULL;
    assert_int_equal(found, KVO_MISS);
    assert_int_equal(first.status, KVO_MISS);
    check_valid();
    assert_int_equal(store_stat().blocks, 0);
    assert_int_equal(put(1, BYTES), KVO_STORED);
    assert_int_equal(get(1, BYTES), KVO_OK);
    close_store();
}

static int found_below = -1;

static void get_once(void)
{
    faulty.during = NULL;
    gets(&found_below);
}

/* The same where another disk has it: then the rewrite goes on. */
static void a_copy_that_rots_under_a_rewrite_is_no_copy_any_more(void **state)
{
    (void)state;
    kvo_policy policy = KVO_POLICY_INIT;
    kvo_answer answer;
    faulty_open("disk:@0:16blk,disk:@1:64blk");
    put_at(1, KVO_SAFE);
    policy.intent = KVO_INTENT_DEMOTE;
    assert_int_equal(set_policy(1, &policy, KVO_POLICY_INTENT), KVO_OK);
    do
        assert_int_equal(exists(1, &answer), KVO_OK);
    while (answer.tier_mask != 3);
    spoil_medium(0, info_of(1).copies[0].offset_bytes);
    faulty.during = get_once; /* the new bytes are on their way */
    assert_int_equal(rewrite(1, BYTES, 1, 0, KVO_SAFE), KVO_STORED);
    assert_int_equal(found_below, KVO_OK);
    check_valid();
    assert_int_equal(store_stat().digest_misses, 1);
    assert_int_equal(get_as(1, BYTES, 1, NULL, NULL), KVO_OK);
    close_store();
    open_store("disk:@0:16blk,disk:@1:64blk");
    assert_int_equal(get_as(1, BYTES, 1, NULL, NULL), KVO_OK);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_remove_of_hidden_blocks_is_busy_however_they_are_named),
        FIXTURE_TEST(what_is_rewritten_while_a_remove_waits_goes_too),
        FIXTURE_TEST(a_tenant_goes_with_all_lives_and_a_handle_with_its_own),
        FIXTURE_TEST(what_is_rewritten_while_a_remove_waits_may_be_short_of_its_level),
        FIXTURE_TEST(no_remove_misses_a_block_that_is_being_shown),
        FIXTURE_TEST(a_remove_that_waited_for_a_transfer_may_be_short),
        FIXTURE_TEST(a_pin_is_of_the_right_bytes),
        FIXTURE_TEST(a_rewrite_waits_for_who_reads_a_bad_copy),
        FIXTURE_TEST(a_reader_who_finds_a_hidden_block_bad_ends_it),
        FIXTURE_TEST(a_copy_that_rots_under_a_rewrite_is_no_copy_any_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
