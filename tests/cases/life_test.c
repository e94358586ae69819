/* SPDX-License-Identifier: Apache-2.0 */
/* Lives of blocks, reservations, pins, holds and jobs: who wins, who is left over, when it is seen. */
#include "cases.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faulty.h"

/* ---- fills of one name ---- */

enum { FILLERS = 4 };
static pthread_barrier_t round_begins;
static _Atomic unsigned winners, half_fills;
static _Atomic int winner;
static unsigned long rounds;

static void reserve_fill_and_seal(uint64_t number, unsigned version, uint64_t *random)
{
    uint8_t bytes[5000];
    uint32_t length = sizeof bytes;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_reservation r;
    kvo_answer answer;
    kvo_names names = names_of(number, 1);
    o.deadline_ns = 0;
    payload_make(bytes, sizeof bytes, number, version);
    MUST(kvo_reserve(store, &names, &length, &o, &r, &answer) == KVO_OK);
    if (answer.status != KVO_OK) { /* in progress, or somebody has won */
        MUST(answer.status == KVO_BUSY || answer.status == KVO_EXISTS);
        return;
    }
    uint32_t part = cases_draw(random, sizeof bytes);
    MUST(kvo_fill(store, &r, 0, bytes, part) == KVO_OK);
    if (cases_draw(random, 4) == 0) {
        MUST(kvo_abort(store, &r, 1, &answer) == KVO_OK && answer.status == KVO_OK);
        atomic_fetch_add(&half_fills, 1);
        return;
    }
    MUST(kvo_fill(store, &r, part, bytes + part, (uint32_t)sizeof bytes - part) == KVO_OK);
    MUST(kvo_seal(store, &r, 1, KVO_SEALED, 0, &answer) == KVO_OK && answer.status == KVO_STORED);
    MUST(atomic_exchange(&winner, (int)version) == -1); /* nobody else */
    atomic_fetch_add(&winners, 1);
}

static void read_whole(uint64_t number)
{
    uint8_t bytes[5000];
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_answer answer;
    kvo_names names = names_of(number, 1);
    kvo_segment segment = {bytes, sizeof bytes};
    kvo_memory to = {&segment, NULL};
    o.deadline_ns = 0;
    MUST(kvo_get(store, &names, &to, &o, &answer) == KVO_OK);
    MUST(answer.status == KVO_MISS || answer.status == KVO_BUSY || answer.status == KVO_OK);
    bool whole = answer.status != KVO_OK;
    for (unsigned v = 0; v < FILLERS && !whole; v++)
        whole = payload_is(bytes, sizeof bytes, number, v);
    MUST(whole);
}

static void fill_or_read(unsigned number)
{
    uint64_t random = cases_seed() * 64 + number;
    for (uint64_t name = 0; name < rounds; name++) {
        pthread_barrier_wait(&round_begins);
        for (int tries = 0; tries < 3; tries++)
            if (number < FILLERS)
                reserve_fill_and_seal(name, number, &random);
            else
                read_whole(name);
        if (pthread_barrier_wait(&round_begins) != PTHREAD_BARRIER_SERIAL_THREAD)
            continue;
        int version = atomic_exchange(&winner, -1);
        MUST(cases_get(name, 5000, (uint32_t)(version < 0 ? 0 : version), 0) == (version < 0 ? KVO_MISS : KVO_OK));
    }
}

static void B001_one_fill_of_a_name_wins_and_half_a_fill_is_never_seen(void **state)
{
    (void)state;
    rounds = cases_many("KVO_TEST_ROUNDS", TEST_SANITIZES ? 500 : 3000);
    atomic_store(&winner, -1);
    atomic_store(&winners, 0);
    open_store("dram:64blk,disk:@0:256blk"); /* the older ones leave meanwhile */
    pthread_barrier_init(&round_begins, NULL, FILLERS + 2);
    cases_threads(FILLERS + 2, fill_or_read);
    pthread_barrier_destroy(&round_begins);
    assert_true(atomic_load(&winners) > rounds / 2 && atomic_load(&half_fills) > 0);
    assert_int_equal(store_stat().reserved_blocks, 0);
    assert_int_equal(store_stat().digest_misses, 0);
    print_message("B001: %u fills won, %u ended half way\n", atomic_load(&winners), atomic_load(&half_fills));
    close_store();
}

/* A sibling: whole, but the medium did not take it. */
static void B001_a_fill_that_its_medium_did_not_take_is_a_miss_and_leaves_the_name_free(void **state)
{
    (void)state;
    uint32_t length = BYTES;
    kvo_reservation r;
    kvo_answer answer;
    faulty_open("disk:@0:64blk");
    for (int round = 0; round < 20; round++) {
        kvo_names names = names_of(1, 1);
        assert_int_equal(kvo_reserve(store, &names, &length, NULL, &r, &answer), KVO_OK);
        payload_make(r.memory, BYTES, 1, 0);
        atomic_store(&faulty.block_writes, ALWAYS);
        assert_int_equal(kvo_seal(store, &r, 1, KVO_SEALED, 0, &answer), KVO_OK);
        assert_true(answer.status >= KVO_E_IO);
        atomic_store(&faulty.block_writes, 0);
        assert_int_equal(exists(1, NULL), KVO_MISS);
        assert_int_equal(store_stat().reserved_blocks, 0);
        check_valid();
    }
    assert_int_equal(put_as(1, BYTES, 1, NULL, NULL), KVO_STORED);
    assert_int_equal(get_as(1, BYTES, 1, NULL, NULL), KVO_OK);
    close_store();
}

/* ---- what somebody leaves behind ---- */

enum { LEFT = 40 };

static void reserve_half(kvo_reservation *r, kvo_answer *answers)
{
    uint32_t lengths[LEFT];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.deadline_ns = 0;
    for (int i = 0; i < LEFT; i++)
        lengths[i] = BYTES;
    kvo_names names = names_of(0, LEFT);
    MUST(kvo_reserve(store, &names, lengths, &o, r, answers) == KVO_OK);
    for (int i = 0; i < LEFT; i++)
        if (answers[i].status == KVO_OK)
            memset(r[i].memory, 0xab, BYTES / 2);
}

static const char *left_in;

static void reserves_and_dies(void *context)
{
    kvo_reservation r[LEFT];
    kvo_answer answers[LEFT];
    (void)context;
    open_store(left_in);
    reserve_half(r, answers);
    for (int i = 0; i < LEFT; i++)
        MUST(answers[i].status == KVO_OK);
    kill(getpid(), SIGKILL);
}

static void B012_what_a_killed_process_had_reserved_is_free_at_once(void **state)
{
    (void)state;
    static const char *const tiers[] = {"dram:64blk,disk:@0:64blk", "disk:@0:64blk"};
    for (int t = 0; t < 2; t++) {
        left_in = tiers[t];
        int status = in_child(reserves_and_dies, NULL);
        assert_true(WIFSIGNALED(status));
        open_store(left_in);
        assert_int_equal(store_stat().reserved_blocks, 0);
        assert_int_equal(tier_stat(0).used_bytes, 0);
        for (uint64_t i = 0; i < LEFT; i++) {
            assert_int_equal(exists(i, NULL), KVO_MISS);
            assert_int_equal(put(i, BYTES), KVO_STORED);
        }
        close_store();
        fixture_remove(0);
    }
}

static kvo_reservation left_ones[LEFT];
static kvo_answer left_answers[LEFT];

static void reserves_and_ends(unsigned number)
{
    (void)number;
    reserve_half(left_ones, left_answers);
}

/* A sibling: a thread that ended. They have no owner but who has the tokens, they cost no more than their room,
   nobody waits for them past a deadline, and close ends them. */
static void B012_what_a_thread_left_reserved_is_bounded_and_can_be_given_back(void **state)
{
    (void)state;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answers[LEFT];
    o.deadline_ns = 0;
    open_store("dram:32blk");
    cases_threads(1, reserves_and_ends);
    size_t given = 0;
    for (int i = 0; i < LEFT; i++) {
        assert_true(left_answers[i].status == KVO_OK || left_answers[i].status == KVO_BUSY);
        given += left_answers[i].status == KVO_OK;
    }
    assert_int_equal(given, 32);
    assert_int_equal(put_as(0, BYTES, 0, &o, NULL), KVO_BUSY);
    assert_int_equal(put_as(1000, BYTES, 0, &o, NULL), KVO_BUSY);
    assert_int_equal(get_as(0, BYTES, 0, &(kvo_get_options){sizeof(kvo_get_options), 0, 0}, NULL), KVO_BUSY);
    assert_int_equal(kvo_abort(store, left_ones, LEFT / 2, answers), KVO_OK);
    assert_int_equal(store_stat().reserved_blocks, 32 - LEFT / 2);
    assert_int_equal(put_as(1000, BYTES, 0, &o, NULL), KVO_STORED);
    assert_int_equal(put_as(0, BYTES, 0, &o, NULL), KVO_STORED);
    close_store(); /* with the other half */
}

static void hold_and_forget(uint64_t first, size_t count, uint64_t duration_ns, int expected)
{
    uint64_t hold;
    kvo_answer answers[64];
    kvo_names names = names_of(first, count);
    assert_int_equal(kvo_hold(store, &names, duration_ns, &hold, answers), KVO_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(answers[i].status, expected);
}

static void B013_a_hold_that_nobody_releases_ends_with_its_time(void **state)
{
    (void)state;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    options.holds_max = 64;
    open_store("dram:48blk");
    for (uint64_t i = 0; i < 48; i++) {
        o.policy.tenant = (uint16_t)(i % 3);
        assert_int_equal(put_as(i, BYTES, 0, &o, NULL), KVO_STORED);
    }
    for (int round = 0; round < 2000; round++) { /* more than holds_max in all */
        hold_and_forget((uint64_t)round % 48, 1, 1, KVO_OK);
        if (round % 100 == 0)
            check_valid();
    }
    hold_and_forget(0, 48, 50000000, KVO_OK); /* everything */
    o.deadline_ns = 60000000000u; /* returns, because the holds end */
    assert_int_equal(put_as(1000, BYTES, 0, &o, NULL), KVO_STORED);
    uint64_t hold;
    kvo_answer answer;
    kvo_names none = names_of(5000, 1);
    assert_int_equal(kvo_hold(store, &none, 1, &hold, &answer), KVO_OK); /* looks at what is over */
    assert_int_equal(store_stat().held_blocks, 0);
    o.deadline_ns = 0;
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(put_as(2000 + i, BYTES, 0, &o, NULL), KVO_STORED);
    close_store();
}

/* Siblings: the limit is an answer, a job's hold ends as well, and pins, which do not end, are bounded. */
static void B013_forgotten_holds_and_pins_are_bounded(void **state)
{
    (void)state;
    kvo_queue *queue;
    kvo_report report;
    size_t count;
    kvo_pin pins[8], more;
    options.holds_max = 16;
    options.pins_max = 8;
    open_store("dram:48blk");
    assert_int_equal(fill_with(0, 48, BYTES), 48);
    hold_and_forget(0, 16, KVO_FOREVER, KVO_OK);
    hold_and_forget(20, 4, KVO_FOREVER, KVO_BUSY);
    assert_int_equal(store_stat().held_blocks, 16);
    assert_int_equal(drop(0, KVO_SEALED), KVO_OK); /* remove takes no notice of it */
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(cases_put(1000 + i, BYTES, 0, 0), KVO_STORED);
    assert_int_equal(cases_there(1, 15), 15);
    close_store();

    options.holds_max = 0;
    open_store("dram:16blk");
    assert_int_equal(fill_with(0, 16, BYTES), 16);
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    cases_batch b = cases_batch_make(0, 16, BYTES, false);
    assert_int_equal(kvo_submit_exists(queue, &b.names, 20000000, b.answers, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_poll(queue, &report, 1, KVO_FOREVER, &count), KVO_OK);
    assert_true(report.hold != 0 && report.ok_count == 16);
    assert_int_equal(cases_put(100, BYTES, 0, KVO_FOREVER), KVO_STORED);
    assert_int_equal(kvo_release(store, report.hold), KVO_GONE);
    cases_batch_free(&b);

    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(pin(100, &pins[i]), KVO_OK);
    assert_int_equal(pin(100, &more), KVO_BUSY);
    assert_int_equal(store_stat().pinned_blocks, 8);
    assert_int_equal(cases_put(101, BYTES, 0, 0), KVO_STORED);
    assert_int_equal(kvo_unpin(store, pins, 8), KVO_OK);
    assert_int_equal(store_stat().pinned_blocks, 0);
    close_store();
}

/* ---- seen when it is whole ---- */

static void B033_a_block_is_not_seen_before_its_seal(void **state)
{
    (void)state;
    enum { LARGE = 1 << 20, PIECE = 60000 };
    uint32_t length = LARGE;
    kvo_reservation r;
    kvo_answer answers[3];
    size_t matched, count;
    uint64_t cursor;
    kvo_block_info info;
    options.block_bytes = LARGE;
    static const char *const tiers[] = {"dram:8blk,disk:@0:16blk", "disk:@0:16blk"};
    for (int t = 0; t < 2; t++) {
        uint8_t *bytes = malloc(LARGE);
        payload_make(bytes, LARGE, 2, 0);
        open_more(tiers[t]);
        fill_with(1, 1, LARGE);
        fill_with(3, 1, LARGE);
        kvo_names names = names_of(2, 1);
        assert_int_equal(kvo_reserve(store, &names, &length, NULL, &r, answers), KVO_OK);
        for (uint32_t at = 0; at < LARGE; at += PIECE) {
            uint32_t n = LARGE - at < PIECE ? LARGE - at : PIECE;
            assert_int_equal(kvo_fill(store, &r, at, bytes + at, n), KVO_OK);
            assert_int_equal(exists(2, NULL), KVO_PENDING);
            assert_int_equal(cases_get(2, LARGE, 0, 0), KVO_BUSY);
            kvo_names all = names_of(1, 3);
            assert_int_equal(kvo_match(store, &all, answers, &matched), KVO_OK);
            assert_int_equal(matched, 1);
            kvo_target target = target_of(2, 1);
            cursor = 0;
            assert_int_equal(kvo_walk(store, &target, &cursor, &info, 1, &count), KVO_OK);
            assert_int_equal(count, 0);
        }
        assert_int_equal(kvo_seal(store, &r, 1, KVO_SEALED, 0, answers), KVO_OK);
        assert_int_equal(answers[0].status, KVO_STORED);
        assert_int_equal(get(2, LARGE), KVO_OK);
        close_store();
        fixture_remove(0);
        free(bytes);
    }
}

/* A medium whose writes of blocks wait behind a gate. */
static base_env machine;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned at_the_gate;

static ssize_t write_through_the_gate(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    if (iov_bytes(iov, count) > BYTES) {
        atomic_fetch_add(&at_the_gate, 1);
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
    }
    return base_env_posix()->write(base_env_posix(), file, iov, count, offset);
}

static void open_gated(const char *tiers)
{
    machine = *base_env_posix();
    machine.write = write_through_the_gate;
    atomic_store(&at_the_gate, 0);
    options.flags = KVO_OPEN_STEPPED;
    cases_open_on(&machine, tiers);
    space = open_space("a", BYTES);
}

static void puts_one(unsigned number)
{
    (void)number;
    MUST(cases_put(1, BYTES, 0, KVO_FOREVER) == KVO_STORED);
}

static void syncs_all(unsigned number)
{
    (void)number;
    MUST(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL) == KVO_OK);
}

static void *in_thread(void *body)
{
    (*(void (**)(unsigned))body)(0);
    return NULL;
}

static void B033_a_copy_is_not_seen_before_its_write_has_ended(void **state)
{
    (void)state;
    pthread_t thread;
    kvo_answer answer;
    void (*body)(unsigned) = puts_one;
    open_gated("disk:@0:16blk");
    pthread_mutex_lock(&gate);
    assert_int_equal(pthread_create(&thread, NULL, in_thread, &body), 0);
    while (atomic_load(&at_the_gate) == 0)
        usleep(100);
    assert_int_equal(exists(1, &answer), KVO_PENDING);
    assert_int_equal(answer.tier_mask, 0);
    assert_int_equal(cases_get(1, BYTES, 0, 1000000), KVO_BUSY);
    assert_int_equal(cases_put(1, BYTES, 3, 1000000), KVO_BUSY);
    pthread_mutex_unlock(&gate);
    pthread_join(thread, NULL);
    assert_int_equal(get(1, BYTES), KVO_OK);
    close_store();

    /* A sibling: a demotion; what is above is served meanwhile, and nobody says that it is written. */
    open_gated("dram:16blk,disk:@0:16blk");
    assert_int_equal(put(2, BYTES), KVO_STORED);
    pthread_mutex_lock(&gate);
    body = syncs_all;
    assert_int_equal(pthread_create(&thread, NULL, in_thread, &body), 0);
    while (atomic_load(&at_the_gate) == 0)
        usleep(100);
    assert_int_equal(exists(2, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, 1);
    assert_int_equal(answer.level, KVO_SEALED);
    assert_int_equal(cases_get(2, BYTES, 0, 0), KVO_OK);
    pthread_mutex_unlock(&gate);
    pthread_join(thread, NULL);
    assert_int_equal(exists(2, &answer), KVO_OK);
    assert_int_equal(answer.tier_mask, 3);
    assert_int_equal(answer.level, KVO_WRITTEN);
    close_store();
}

/* ---- whose memory it is ---- */

static void scribble_and_free(cases_batch *b)
{
    memset(b->memory, 0xff, b->count * b->bytes);
    memset(b->list, 0xff, b->count * NAME_BYTES);
    memset(b->segments, 0xff, b->count * sizeof *b->segments);
    cases_batch_free(b);
}

static void B036_memory_of_a_put_is_the_callers_again_when_it_returns(void **state)
{
    (void)state;
    static const char *const tiers[] = {"dram:8blk,disk:@0:128blk", "disk:@0:128blk"};
    with_mover = true;
    for (int t = 0; t < 2; t++) {
        kvo_queue *queue;
        kvo_report report;
        size_t count;
        open_store(tiers[t]);
        for (uint64_t i = 0; i < 60; i += 6) {
            cases_batch b = cases_batch_make(i, 6, BYTES, true);
            assert_int_equal(kvo_put(store, &b.names, &b.of, NULL, b.answers), KVO_OK);
            assert_int_equal(cases_batch_count(&b, KVO_STORED), 6);
            scribble_and_free(&b);
        }
        /* A sibling: a job, whose memory comes with the report, its lists at once. */
        assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
        cases_batch b = cases_batch_make(60, 20, BYTES, true);
        assert_int_equal(kvo_submit_put(queue, &b.names, &b.of, NULL, b.answers, NULL, NULL), KVO_OK);
        memset(b.list, 0xff, b.count * NAME_BYTES);
        memset(b.segments, 0xff, b.count * sizeof *b.segments);
        assert_int_equal(kvo_poll(queue, &report, 1, KVO_FOREVER, &count), KVO_OK);
        assert_int_equal(report.ok_count, 20);
        scribble_and_free(&b);
        /* Another: a fill. */
        uint32_t length = BYTES;
        uint8_t *bytes = malloc(BYTES);
        kvo_reservation r;
        kvo_answer answer;
        kvo_names names = names_of(80, 1);
        assert_int_equal(kvo_reserve(store, &names, &length, NULL, &r, &answer), KVO_OK);
        payload_make(bytes, BYTES, 80, 0);
        assert_int_equal(kvo_fill(store, &r, 0, bytes, BYTES), KVO_OK);
        memset(bytes, 0xff, BYTES);
        free(bytes);
        assert_int_equal(kvo_seal(store, &r, 1, KVO_SEALED, 0, &answer), KVO_OK);
        for (uint64_t i = 0; i <= 80; i++)
            assert_int_equal(get(i, BYTES), KVO_OK);
        assert_int_equal(store_stat().digest_misses, 0);
        assert_true(store_stat().payloads_verified > 0);
        close_store();
        fixture_remove(0);
    }
}

static void puts_pins_and_lets_go(unsigned number)
{
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t name = 1000 * (uint64_t)number + i;
        kvo_pin p;
        kvo_answer answer;
        kvo_names names = names_of(name, 1);
        MUST(cases_put(name, BYTES, 0, KVO_FOREVER) == KVO_STORED);
        MUST(kvo_pin_blocks(store, &names, NULL, &p, &answer) == KVO_OK);
        if (answer.status == KVO_OK) {
            MUST(payload_is(p.memory, BYTES, name, 0));
            MUST(kvo_unpin(store, &p, 1) == KVO_OK);
        }
        MUST(i < 20 || cases_get(name - 20, BYTES, 0, KVO_FOREVER) == KVO_OK);
    }
}

/* What goes down is kept by the transfer itself, whoever lets it go. */
static void B036_a_block_on_its_way_down_needs_no_pin_of_its_reader(void **state)
{
    (void)state;
    with_mover = true;
    open_store("dram:8blk,disk:@0:512blk");
    cases_threads(4, puts_pins_and_lets_go);
    assert_int_equal(store_stat().pinned_blocks, 0);
    assert_int_equal(store_stat().digest_misses, 0);
    assert_true(store_stat().payloads_verified > 0);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(B001_one_fill_of_a_name_wins_and_half_a_fill_is_never_seen),
        FIXTURE_TEST(B001_a_fill_that_its_medium_did_not_take_is_a_miss_and_leaves_the_name_free),
        FIXTURE_TEST(B012_what_a_killed_process_had_reserved_is_free_at_once),
        FIXTURE_TEST(B012_what_a_thread_left_reserved_is_bounded_and_can_be_given_back),
        FIXTURE_TEST(B013_a_hold_that_nobody_releases_ends_with_its_time),
        FIXTURE_TEST(B013_forgotten_holds_and_pins_are_bounded),
        FIXTURE_TEST(B033_a_block_is_not_seen_before_its_seal),
        FIXTURE_TEST(B033_a_copy_is_not_seen_before_its_write_has_ended),
        FIXTURE_TEST(B036_memory_of_a_put_is_the_callers_again_when_it_returns),
        FIXTURE_TEST(B036_a_block_on_its_way_down_needs_no_pin_of_its_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
