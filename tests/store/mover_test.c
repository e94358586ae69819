/* SPDX-License-Identifier: Apache-2.0 */
/* The mover: room is made ahead of need, by writes that were due anyway, and nothing spins. And what readers and
   touches do to blocks that are about to leave. */
#include "fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/store.h"

#define BYTES 65536u

static base_env machine;
static _Atomic uint64_t clock_reads, writes;
static atomic_bool broken;

static uint64_t counted_now(base_env *env)
{
    (void)env;
    atomic_fetch_add(&clock_reads, 1);
    return base_env_posix()->now_ns(base_env_posix());
}

static ssize_t counted_write(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    if (count > 1)
        atomic_fetch_add(&writes, 1);
    if (count > 1 && atomic_load(&broken))
        return -EIO;
    return base_env_posix()->write(base_env_posix(), file, iov, count, offset);
}

static void open_counted(uint64_t memory_blocks, uint64_t disk_blocks)
{
    kvo_tier_config tiers[2] = {KVO_TIER_CONFIG_INIT, KVO_TIER_CONFIG_INIT};
    tiers[0].kind = KVO_TIER_DRAM;
    tiers[0].capacity_blocks = memory_blocks;
    tiers[1].kind = KVO_TIER_DISK;
    tiers[1].capacity_blocks = disk_blocks;
    tiers[1].path = fixture_path(0);
    machine = *base_env_posix();
    machine.now_ns = counted_now;
    machine.write = counted_write;
    atomic_store(&broken, false);
    atomic_store(&writes, 0);
    with_mover = true;
    assert_int_equal(store_open(&machine, tiers, 2, &options, &store, NULL), KVO_OK);
    space = open_space("a", BYTES);
}

/* Until it has nothing left to do. */
static void settle(void)
{
    uint64_t before;
    bool busy;
    do {
        before = store_stat().demoted_ahead;
        usleep(20000);
        store_lock(store);
        busy = store->mover_asked || store->tiers[0].demoting;
        store_unlock(store);
    } while (busy || store_stat().demoted_ahead != before);
    check_valid();
}

static void the_next_victims_are_clean(void **state)
{
    (void)state;
    with_mover = true;
    open_store("dram:64blk,disk:@0:400blk");
    fill_with(0, 64, BYTES);
    settle();
    kvo_stat s = store_stat();
    assert_true(s.demoted_ahead > 0); /* before anybody had to make room */
    assert_int_equal(s.put_waits, 0);
    assert_int_equal(tier_stat(0).clean_discards, 0);
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(put(1000 + i, BYTES), KVO_STORED);
        settle();
    }
    assert_int_equal(store_stat().put_waits, 0); /* each found a discard ready */
    kvo_tier_stat memory = tier_stat(0), disk = tier_stat(1);
    assert_int_equal(memory.clean_discards, 50);
    assert_int_equal(memory.other_evictions, 0);
    assert_int_equal(disk.written_bytes, disk.life_bytes);
    assert_int_equal(disk.max_delta, 1);
    /* Not more than is needed: what was discarded, and what is kept ready. */
    assert_true(disk.lives <= 50 + store->tiers[0].ahead);
    close_store();
}

static void it_writes_nothing_while_there_is_room(void **state)
{
    (void)state;
    with_mover = true;
    open_store("dram:64blk,disk:@0:400blk");
    fill_with(0, 40, BYTES);
    settle();
    assert_int_equal(tier_stat(1).lives, 0);
    close_store();
}

static void a_stepped_store_has_none(void **state)
{
    (void)state;
    if (fixture_stepped() == 0)
        skip();
    open_store("dram:16blk,disk:@0:400blk");
    fill_with(0, 100, BYTES);
    assert_int_equal(store_stat().demoted_ahead, 0);
    assert_false(store->mover_runs);
    close_store();
}

static void it_sleeps_when_idle(void **state)
{
    (void)state;
    open_counted(32, 200);
    kvo_queue *queue;
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    fill_with(0, 100, BYTES);
    settle();
    uint64_t before = atomic_load(&clock_reads);
    usleep(300000);
    assert_true(atomic_load(&clock_reads) - before < 20);
    close_store();
}

static void it_goes_further_ahead_when_puts_are_many(void **state)
{
    (void)state;
    open_counted(256, 2000);
    uint32_t most = 0;
    for (uint64_t i = 0; i < 1500; i++) {
        assert_int_equal(put(i, BYTES), KVO_STORED);
        store_lock(store);
        most = store->tiers[0].ahead > most ? store->tiers[0].ahead : most;
        store_unlock(store);
    }
    assert_true(most > 4 && most <= 64);
    for (unsigned i = 0; i < 30; i++) { /* slow ones need little */
        usleep(10000);
        assert_int_equal(put(10000 + i, BYTES), KVO_STORED);
        settle();
    }
    assert_true(store->tiers[0].ahead < most);
    close_store();
}

static void a_broken_disk_is_not_hammered(void **state)
{
    (void)state;
    open_counted(32, 200);
    fill_with(0, 20, BYTES);
    settle();
    atomic_store(&broken, true);
    kvo_put_options now = KVO_PUT_OPTIONS_INIT;
    now.deadline_ns = 0;
    uint64_t stored = 0;
    for (uint64_t i = 100; i < 140; i++)
        stored += put_as(i, BYTES, 0, &now, NULL) == KVO_STORED;
    assert_true(stored >= 12 && stored < 40);
    settle();
    uint64_t before = atomic_load(&writes);
    usleep(300000);
    assert_int_equal(atomic_load(&writes), before);
    for (uint64_t i = 0; i < 20; i++) /* nothing sealed is lost */
        assert_int_equal(get(i, BYTES), KVO_OK);
    atomic_store(&broken, false);
    for (uint64_t i = 200; i < 260; i++)
        assert_int_equal(put(i, BYTES), KVO_STORED);
    settle();
    assert_true(tier_stat(1).max_delta <= 1);
    close_store();
}

static void held_below_it_gives_up_and_comes_back(void **state)
{
    (void)state;
    kvo_answer answers[24];
    uint64_t hold;
    kvo_put_options now = KVO_PUT_OPTIONS_INIT;
    now.deadline_ns = 0;
    open_counted(8, 16);
    fill_with(0, 24, BYTES);
    kvo_names all = names_of(0, 24);
    assert_int_equal(kvo_hold(store, &all, KVO_FOREVER, &hold, answers), KVO_OK);
    unsigned left = 24; /* slots that hold no held block run out */
    int status;
    while ((status = put_as(1000 + left, BYTES, 0, &now, NULL)) == KVO_STORED && --left) {}
    assert_true(status == KVO_BUSY || status == KVO_FULL);
    settle();
    assert_int_equal(kvo_release(store, hold), KVO_OK);
    for (uint64_t i = 200; i < 240; i++)
        assert_int_equal(put(i, BYTES), KVO_STORED);
    settle();
    close_store();
}

/* What a segment of another size has left is no room. */
static void one_block_of_another_size_does_not_stop_it(void **state)
{
    (void)state;
    kvo_tier_config tiers[2] = {KVO_TIER_CONFIG_INIT, KVO_TIER_CONFIG_INIT};
    kvo_put_options keep = KVO_PUT_OPTIONS_INIT;
    tiers[0].kind = KVO_TIER_DRAM;
    tiers[0].capacity_bytes = 4u << 20;
    tiers[0].segment_bytes = 1u << 20;
    tiers[1].kind = KVO_TIER_DISK;
    tiers[1].capacity_blocks = 200;
    tiers[1].path = fixture_path(0);
    with_mover = true;
    assert_int_equal(store_open(base_env_posix(), tiers, 2, &options, &store, NULL), KVO_OK);
    space = open_space("a", BYTES);
    keep.policy.intent = KVO_INTENT_KEEP;
    assert_int_equal(put_as(1, 4096, 0, &keep, NULL), KVO_STORED);
    for (uint64_t i = 0; i < 30; i++) {
        fill_with(100 + 4 * i, 4, BYTES);
        settle();
    }
    assert_true(store_stat().demoted_ahead > 0);
    assert_int_equal(tier_stat(0).other_evictions, 0);
    close_store();
}

/* ---- many at once ---- */

#define PAGE 4096u

static _Atomic uint64_t next_put; /* UINT64_MAX: no more */

/* Uses the blocks that leave next. */
static void *touches(void *unused)
{
    uint8_t names[16][NAME_BYTES];
    for (uint64_t next; (next = atomic_load(&next_put)) != UINT64_MAX;) {
        for (uint64_t i = 0; i < 16; i++)
            name_of(next < 16 ? i : next - 15 + i, names[i]);
        kvo_target target = {.by = KVO_BY_NAMES};
        target.names = (kvo_names){.first = names, .name_bytes = NAME_BYTES, .count = 16, .space = space};
        for (unsigned i = 0; i < 200; i++)
            if (kvo_touch(store, &target, NULL) != KVO_OK)
                abort();
    }
    return unused;
}

static void victims_are_used_while_room_is_made(void **state)
{
    (void)state;
    pthread_t threads[3];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    options.block_bytes = PAGE;
    open_more("dram:16blk,disk:@0:64blk");
    atomic_store(&next_put, 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, touches, NULL), 0);
    for (uint64_t i = 0; i < 1500; i++) {
        atomic_store(&next_put, i);
        assert_int_equal(put_as(i, PAGE, 0, &o, NULL), KVO_STORED);
    }
    atomic_store(&next_put, UINT64_MAX);
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    check_valid();
    close_store();
}

static void *reads_and_puts(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    uint8_t name[NAME_BYTES], memory[PAGE] = {0};
    for (unsigned i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        name_of((seed >> 33) % 12, name);
        kvo_names names = {.first = name, .name_bytes = NAME_BYTES, .count = 1, .space = space};
        kvo_segment segment = {memory, sizeof memory};
        kvo_memory where = {.segments = &segment};
        kvo_answer answer;
        if (kvo_get(store, &names, &where, NULL, &answer) != KVO_OK)
            abort();
        if (answer.status == KVO_MISS && kvo_put(store, &names, &where, NULL, &answer) != KVO_OK)
            abort();
    }
    return NULL;
}

/* Two that read a block bring it up once, and its copy below goes with the last of them. */
static void an_exclusive_ghost_moves_what_others_read(void **state)
{
    (void)state;
    pthread_t threads[4];
    options.flags |= KVO_OPEN_GHOST;
    options.hierarchy = KVO_EXCLUSIVE;
    options.block_bytes = PAGE;
    open_more("dram:4blk,disk:@0:16blk");
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reads_and_puts, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    check_valid();
    for (uint64_t i = 0; i < 12; i++) {
        kvo_answer answer;
        if (exists(i, &answer) == KVO_OK)
            assert_true(answer.tier_mask == 1 || answer.tier_mask == 2);
    }
    close_store();
}

static void *churn(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument * 7919;
    static const size_t lengths[] = {BYTES, 4096, 30000};
    uint8_t *memory = malloc(BYTES), name[NAME_BYTES];
    for (unsigned i = 0; i < 1500; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t number = (seed >> 33) % 200;
        size_t bytes = lengths[number % 3];
        name_of(number, name);
        kvo_names names = {.first = name, .name_bytes = NAME_BYTES, .count = 1, .space = space};
        kvo_segment segment = {memory, bytes};
        kvo_memory where = {.segments = &segment};
        kvo_answer answer;
        bool reads = (seed >> 20) % 3 != 0;
        if (!reads)
            payload_make(memory, bytes, number, 0);
        int r = reads ? kvo_get(store, &names, &where, NULL, &answer) : kvo_put(store, &names, &where, NULL, &answer);
        if (r != KVO_OK || (reads && answer.status == KVO_OK && !payload_is(memory, bytes, number, 0)))
            abort();
        if (!reads && answer.status != KVO_STORED && answer.status != KVO_EXISTS)
            abort();
    }
    free(memory);
    return NULL;
}

static void rule_6_holds_beside_it(void **state)
{
    (void)state;
    pthread_t threads[4];
    with_mover = true;
    open_store("dram:32blk,disk:@0:60blk,disk:@1:150blk");
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    settle();
    for (uint32_t t = 1; t < 3; t++) {
        kvo_tier_stat tier = tier_stat(t);
        assert_true(tier.max_delta <= 1);
        assert_int_equal(tier.written_bytes, tier.life_bytes);
    }
    assert_true(store_stat().demoted_ahead > 0);
    assert_int_equal(store_stat().digest_misses, 0);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(the_next_victims_are_clean),
        FIXTURE_TEST(it_writes_nothing_while_there_is_room),
        FIXTURE_TEST(a_stepped_store_has_none),
        FIXTURE_TEST(it_sleeps_when_idle),
        FIXTURE_TEST(it_goes_further_ahead_when_puts_are_many),
        FIXTURE_TEST(a_broken_disk_is_not_hammered),
        FIXTURE_TEST(held_below_it_gives_up_and_comes_back),
        FIXTURE_TEST(one_block_of_another_size_does_not_stop_it),
        FIXTURE_TEST(victims_are_used_while_room_is_made),
        FIXTURE_TEST(an_exclusive_ghost_moves_what_others_read),
        FIXTURE_TEST(rule_6_holds_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
