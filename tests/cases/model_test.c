/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One name after the other through every state that a caller can bring it to, in random order, against a model that
 * knows each answer; what is no longer valid is used again and again. There is room for all, so nothing leaves by
 * itself.
 *
 *     KVO_TEST_STEPS: 1,000,000 in memory unless given, and a hundredth of it on a disk; KVO_TEST_SEED
 */
#include "cases.h"
#include "faulty.h"

enum { NAMES = 24, STALE = 16, LENGTH_MAX = 4096 };

typedef enum name_state { NONE, RESERVED, SEALED } name_state;

typedef struct name_model {
    name_state state;
    uint32_t version;
    uint32_t filled; /* of a reservation, from its begin */
    kvo_reservation reservation;
    kvo_handle handle; /* of the sealed block */
} name_model;

static name_model model[NAMES];
static kvo_reservation stale[STALE];
static kvo_handle gone[STALE]; /* of blocks that are no more, or were rewritten */
static unsigned stale_count, gone_count;
static kvo_queue *queue;
static uint64_t rng;
static uint32_t version;
static uint64_t illegal; /* calls that were, each with a defined answer */

static uint32_t draw(uint32_t below) { return cases_draw(&rng, below); }

/* Of a name: fixed, but for one put in eight. */
static uint32_t length_of(uint64_t number) { return 1 + (uint32_t)(number * 977 % (LENGTH_MAX - 1)); }

static void is(const char *what, uint64_t number, int status, int expected)
{
    if (status == expected)
        return;
    fprintf(stderr, "%s of name %llu in state %d: %s, expected %s\n", what, (unsigned long long)number,
            (int)model[number].state, kvo_status_name(status), kvo_status_name(expected));
    MUST(status == expected);
}

static const kvo_reservation *any_stale(void) { return &stale[draw(stale_count < STALE ? stale_count : STALE)]; }

static void becomes_stale(const kvo_reservation *r) { stale[stale_count++ % STALE] = *r; }

static void becomes_sealed(uint64_t number, uint32_t with, kvo_handle handle)
{
    MUST(handle != 0);
    model[number] = (name_model){.state = SEALED, .version = with, .handle = handle};
}

static void becomes_none(uint64_t number)
{
    gone[gone_count++ % STALE] = model[number].handle;
    model[number] = (name_model){0};
}

/* What a new block of the name must hear. */
static int as_a_put(uint64_t number, uint32_t bytes, int when_free)
{
    if (model[number].state == RESERVED)
        return KVO_BUSY;
    if (model[number].state == NONE)
        return when_free;
    return bytes == length_of(number) ? KVO_EXISTS : KVO_SIZE;
}

/* ---- the calls ---- */

static void step_reserve(uint64_t number)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    uint32_t bytes = length_of(number);
    kvo_reservation r;
    kvo_answer a;
    kvo_names names = names_of(number, 1);
    o.deadline_ns = 0;
    if (model[number].state == SEALED && draw(2))
        bytes++;
    MUST(kvo_reserve(store, &names, &bytes, &o, &r, &a) == KVO_OK);
    is("reserve", number, a.status, as_a_put(number, bytes, KVO_OK));
    MUST((a.status == KVO_OK) == (r.handle != 0));
    if (a.status == KVO_OK)
        model[number] = (name_model){.state = RESERVED, .version = ++version, .reservation = r};
}

static void step_fill(uint64_t number)
{
    name_model *m = &model[number];
    uint8_t bytes[LENGTH_MAX];
    uint32_t length = length_of(number);
    if (m->state != RESERVED) {
        if (stale_count)
            is("a stale fill", number, kvo_fill(store, any_stale(), 0, bytes, 0), KVO_GONE);
        illegal += stale_count > 0;
        return;
    }
    payload_make(bytes, length, number, m->version);
    if (draw(4) == 0) {
        is("a fill past the end", number, kvo_fill(store, &m->reservation, length, bytes, 1), KVO_E_RANGE);
        is("a fill past all", number, kvo_fill(store, &m->reservation, UINT32_MAX, bytes, 2), KVO_E_RANGE);
        illegal += 2;
    }
    uint32_t n = draw(length - m->filled + 1);
    is("fill", number, kvo_fill(store, &m->reservation, m->filled, bytes + m->filled, n), KVO_OK);
    m->filled += n;
}

static void step_seal(uint64_t number)
{
    name_model *m = &model[number];
    kvo_answer a;
    if (m->state != RESERVED)
        return;
    uint8_t bytes[LENGTH_MAX];
    uint32_t length = length_of(number);
    payload_make(bytes, length, number, m->version);
    is("fill", number, kvo_fill(store, &m->reservation, m->filled, bytes + m->filled, length - m->filled), KVO_OK);
    kvo_reservation r = m->reservation;
    MUST(kvo_seal(store, &r, 1, KVO_SEALED, 0, &a) == KVO_OK);
    is("seal", number, a.status, KVO_STORED);
    becomes_stale(&r);
    becomes_sealed(number, m->version, a.handle);
}

static void step_abort(uint64_t number)
{
    kvo_answer a;
    if (model[number].state != RESERVED)
        return;
    kvo_reservation r = model[number].reservation;
    MUST(kvo_abort(store, &r, 1, &a) == KVO_OK);
    is("abort", number, a.status, KVO_OK);
    becomes_stale(&r);
    model[number] = (name_model){0};
}

/* Seals, aborts and fills that come too late reach nothing. */
static void step_stale(uint64_t number)
{
    kvo_answer a;
    if (stale_count == 0)
        return;
    const kvo_reservation *r = any_stale();
    uint8_t byte = 0x5a;
    MUST(kvo_seal(store, r, 1, KVO_SEALED, 0, &a) == KVO_OK);
    is("a stale seal", number, a.status, KVO_GONE);
    MUST(kvo_abort(store, r, 1, &a) == KVO_OK);
    is("a stale abort", number, a.status, KVO_GONE);
    is("a stale fill", number, kvo_fill(store, r, 0, &byte, 1), KVO_GONE);
    illegal += 3;
}

static void step_put(uint64_t number)
{
    uint32_t bytes = length_of(number) + (model[number].state == SEALED && draw(2));
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer a;
    o.deadline_ns = 0;
    uint32_t with = ++version;
    int status = put_as(number, bytes, with, &o, &a);
    is("put", number, status, as_a_put(number, bytes, KVO_STORED));
    if (status == KVO_STORED)
        becomes_sealed(number, with, a.handle);
}

static void step_get(uint64_t number)
{
    static const int expected[] = {[NONE] = KVO_MISS, [RESERVED] = KVO_BUSY, [SEALED] = KVO_OK};
    static const int looked[] = {[NONE] = KVO_MISS, [RESERVED] = KVO_PENDING, [SEALED] = KVO_OK};
    name_model *m = &model[number];
    is("exists", number, exists(number, NULL), looked[m->state]);
    is("get", number, cases_get(number, length_of(number), m->version, 0), expected[m->state]);
    is("get of another length", number, cases_get(number, length_of(number) + 1, 0, 0),
       m->state == SEALED ? KVO_SIZE : expected[m->state]);
}

static void step_pin(uint64_t number)
{
    kvo_pin p, copy;
    if (!tier_stat(0).name[0] || strcmp(tier_stat(0).name, "dram") != 0)
        return;
    int status = pin(number, &p);
    is("pin", number, status,
       model[number].state == SEALED ? KVO_OK
       : model[number].state == NONE ? KVO_MISS
                                     : KVO_BUSY);
    if (status != KVO_OK)
        return;
    MUST(payload_is(p.memory, length_of(number), number, model[number].version));
    copy = p;
    is("unpin", number, kvo_unpin(store, &p, 1), KVO_OK);
    is("a second unpin", number, kvo_unpin(store, &copy, 1), KVO_GONE);
    illegal++;
}

static void step_remove(uint64_t number)
{
    int status = drop(number, KVO_SEALED);
    is("remove", number, status, model[number].state == SEALED ? KVO_OK : KVO_MISS);
    if (status == KVO_OK)
        becomes_none(number);
}

static void step_rewrite(uint64_t number)
{
    static const int expected[] = {[NONE] = KVO_MISS, [RESERVED] = KVO_BUSY, [SEALED] = KVO_STORED};
    kvo_answer a;
    uint32_t with = ++version;
    int status = rewrite(number, length_of(number), with, 0, KVO_SEALED);
    is("rewrite", number, status, expected[model[number].state]);
    if (status != KVO_STORED)
        return;
    gone[gone_count++ % STALE] = model[number].handle;
    is("exists", number, exists(number, &a), KVO_OK);
    becomes_sealed(number, with, a.handle);
}

static int touch_handle(kvo_handle handle)
{
    kvo_answer a;
    kvo_target t = {.by = KVO_BY_HANDLES, .handles = &handle, .handle_count = 1};
    MUST(kvo_touch(store, &t, &a) == KVO_OK);
    return a.status;
}

static void step_handles(uint64_t number)
{
    static const int expected[] = {[NONE] = KVO_MISS, [RESERVED] = KVO_MISS, [SEALED] = KVO_OK};
    is("touch", number, touch(number), expected[model[number].state]);
    if (model[number].state == SEALED)
        is("touch by handle", number, touch_handle(model[number].handle), KVO_OK);
    if (gone_count) {
        is("touch by a handle that is gone", number, touch_handle(gone[draw(gone_count < STALE ? gone_count : STALE)]),
           KVO_GONE);
        illegal++;
    }
}

/* A put that is cancelled at once: before it, beside it, after it. */
static void step_cancel(uint64_t number)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    cases_batch b = cases_batch_make(number, 1, length_of(number), false);
    kvo_report report;
    kvo_job job;
    size_t count;
    uint32_t with = ++version;
    o.deadline_ns = draw(2) ? 0 : 200000;
    payload_make(b.memory, b.bytes, number, with);
    MUST(kvo_submit_put(queue, &b.names, &b.of, &o, b.answers, NULL, &job) == KVO_OK);
    for (uint32_t i = draw(200); i; i--)
        exists(number, NULL);
    int cancelled = kvo_cancel(queue, job);
    MUST(cancelled == KVO_OK || cancelled == KVO_GONE);
    MUST(kvo_poll(queue, &report, 1, KVO_FOREVER, &count) == KVO_OK && count == 1 && report.job == job);
    int status = b.answers[0].status;
    if (status == KVO_CANCELLED)
        MUST(report.status == KVO_CANCELLED && cancelled == KVO_OK);
    else if (status != KVO_BUSY || o.deadline_ns == 0) /* or it was late */
        is("a put that is cancelled", number, status, as_a_put(number, (uint32_t)b.bytes, KVO_STORED));
    is("a cancel of what is over", number, kvo_cancel(queue, job), KVO_GONE);
    illegal++;
    if (status == KVO_STORED)
        becomes_sealed(number, with, b.answers[0].handle);
    cases_batch_free(&b);
}

/* ---- */

static void (*const steps[])(uint64_t number) = {step_reserve, step_reserve, step_fill,    step_fill,   step_seal,
                                                 step_abort,   step_stale,   step_put,     step_get,    step_get,
                                                 step_pin,     step_remove,  step_rewrite, step_handles};

static void walk_model(const char *tiers, unsigned long count)
{
    memset(model, 0, sizeof model);
    stale_count = gone_count = 0;
    rng = cases_seed();
    illegal = 0;
    options.workers = 2;
    options.block_bytes = 65536;
    open_store(tiers);
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    for (unsigned long i = 0; i < count; i++) {
        uint64_t number = draw(NAMES);
        if (draw(40) == 0)
            step_cancel(number);
        else
            steps[draw(sizeof steps / sizeof *steps)](number);
        if (i % 1000 == 0)
            check_valid();
    }
    uint64_t sealed = 0, reserved = 0;
    for (uint64_t n = 0; n < NAMES; n++) {
        sealed += model[n].state == SEALED;
        reserved += model[n].state == RESERVED;
    }
    assert_int_equal(store_stat().blocks, sealed);
    assert_int_equal(store_stat().reserved_blocks, reserved);
    assert_int_equal(store_stat().pinned_blocks, 0);
    print_message("B059: %s: %lu steps, %llu calls that were not allowed, each answered\n", tiers, count,
                  (unsigned long long)illegal);
    assert_int_equal(kvo_queue_close(queue, KVO_FOREVER), KVO_OK);
    close_store();
}

static void B059_each_call_in_each_state_has_the_answer_of_a_model(void **state)
{
    (void)state;
    walk_model("dram:64blk", cases_many("KVO_TEST_STEPS", TEST_SANITIZES ? 20000 : 1000000));
}

/* Siblings: the states of a medium, and memory in front of one. */
static void B059_and_so_it_has_on_a_disk(void **state)
{
    (void)state;
    unsigned long count = cases_many("KVO_TEST_STEPS", TEST_SANITIZES ? 20000 : 1000000) / 100;
    walk_model("disk:@0:64blk", count);
    fixture_remove(0);
    walk_model("dram:64blk,disk:@0:64blk", count);
}

/* ---- credits ---- */

/* Jobs over a disk of which reads and writes fail, 30 of 100 cancelled: what is left in the end is what was before. */
static void B060_failures_and_cancels_return_every_slot_and_credit(void **state)
{
    (void)state;
    enum { DEPTH = 16 };
    cases_batch batches[DEPTH];
    kvo_report report;
    size_t count;
    unsigned long jobs = cases_many("KVO_TEST_ROUNDS", TEST_SANITIZES ? 300 : 1500), cancelled = 0, failed = 0;
    rng = cases_seed();
    options.io_engine = KVO_IO_THREADS;
    options.flight_bytes = 4 * BYTES; /* few: a lost one would stop it */
    faulty_open("dram:12blk,disk:@0:64blk");
    assert_int_equal(fill_with(0, 60, BYTES), 60);
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    for (unsigned long done = 0; done < jobs; done += DEPTH) {
        for (int i = 0; i < DEPTH; i++) {
            kvo_job job;
            uint64_t first = draw(56);
            cases_batch *b = &batches[i];
            *b = cases_batch_make(first, 4, BYTES, true);
            atomic_store(&faulty.block_reads, (int)draw(4));
            atomic_store(&faulty.block_writes, (int)draw(2));
            kvo_get_options g = KVO_GET_OPTIONS_INIT;
            kvo_put_options p = KVO_PUT_OPTIONS_INIT;
            g.deadline_ns = p.deadline_ns = draw(3) * 10000000u;
            int kind = (int)draw(3);
            int r = kind == 0   ? kvo_submit_prefetch(queue, &b->names, &g, b->answers, NULL, &job)
                    : kind == 1 ? kvo_submit_put(queue, &b->names, &b->of, &p, b->answers, NULL, &job)
                                : kvo_submit_get(queue, &b->names, &b->of, &g, b->answers, NULL, &job);
            assert_int_equal(r, KVO_OK);
            if (draw(100) < 30)
                cancelled += kvo_cancel(queue, job) == KVO_OK;
        }
        for (int i = 0; i < DEPTH; i++) {
            assert_int_equal(kvo_poll(queue, &report, 1, KVO_FOREVER, &count), KVO_OK);
            failed += report.ok_count < report.count;
        }
        for (int i = 0; i < DEPTH; i++)
            cases_batch_free(&batches[i]);
    }
    memset(&faulty, 0, sizeof faulty);
    uint64_t pending;
    assert_int_equal(kvo_pending(queue, &pending), KVO_OK);
    assert_int_equal(pending, 0);
    kvo_stat stat = store_stat();
    assert_int_equal(stat.reserved_blocks + stat.pinned_blocks + stat.held_blocks, 0);
    assert_true(cancelled > 0 && failed > 0);
    check_valid();
    cases_batch all = cases_batch_make(0, 56, BYTES, true);
    kvo_put_options p = KVO_PUT_OPTIONS_INIT;
    p.deadline_ns = KVO_FOREVER;
    assert_int_equal(kvo_put(store, &all.names, &all.of, &p, all.answers), KVO_OK);
    assert_int_equal(cases_batch_count(&all, KVO_STORED) + cases_batch_count(&all, KVO_EXISTS), 56);
    memset(all.memory, 0, all.count * all.bytes);
    assert_int_equal(kvo_get(store, &all.names, &all.of, NULL, all.answers), KVO_OK);
    assert_int_equal(cases_batch_count(&all, KVO_OK), 56);
    assert_true(cases_batch_right(&all, 0));
    cases_batch_free(&all);
    kvo_target everything = {.by = KVO_BY_ALL};
    assert_int_equal(kvo_remove(store, &everything, KVO_WRITTEN, KVO_FOREVER, NULL, NULL), KVO_OK);
    assert_int_equal(tier_stat(0).used_bytes + tier_stat(1).used_bytes, 0); /* every slot is free */
    print_message("B060: %lu jobs, %lu cancelled, %lu with failures\n", jobs, cancelled, failed);
    assert_int_equal(kvo_queue_close(queue, KVO_FOREVER), KVO_OK);
    close_store();
}

/* ---- handles ---- */

/* Handles over demotion, promotion, eviction, removal, rewrite and a second life of the name. */
static void B109_a_handle_is_its_block_s_wherever_that_lies_and_nobody_else_s(void **state)
{
    (void)state;
    enum { HELD = 64, BLOCKS = 40 };
    struct {
        uint64_t number;
        kvo_handle handle;
        bool over; /* said to be gone once: for ever */
    } held[HELD] = {{0}};
    unsigned long steps_left = cases_many("KVO_TEST_STEPS", TEST_SANITIZES ? 600 : 3000), gone_seen = 0, below = 0;
    rng = cases_seed();
    open_store("dram:4blk,disk:@0:12blk");
    for (unsigned long i = 0; i < steps_left; i++) {
        uint64_t number = draw(BLOCKS);
        kvo_answer a;
        switch (draw(8)) {
        case 0:
            drop(number, KVO_SEALED);
            break;
        case 1:
            if (exists(number, &a) == KVO_OK) { /* the one version that gets expect */
                rewrite(number, BYTES, 0, 0, KVO_SEALED);
            }
            break;
        case 2:
        case 3:
            get(number, BYTES);
            break;
        default:
            put(number, BYTES);
        }
        if (exists(number, &a) == KVO_OK && draw(3) == 0) {
            size_t at = draw(HELD);
            held[at].number = number;
            held[at].handle = a.handle;
            held[at].over = false;
        }
        for (int tries = 0; tries < 4; tries++) {
            size_t at = draw(HELD);
            if (held[at].handle == 0)
                continue;
            bool same = exists(held[at].number, &a) == KVO_OK && a.handle == held[at].handle;
            kvo_policy policy = {.tenant = (uint16_t)held[at].number, .qos = 1, .priority = 50};
            kvo_target t = {.by = KVO_BY_HANDLES, .handles = &held[at].handle, .handle_count = 1};
            kvo_answer said;
            uint64_t changed;
            below += same && a.tier == 1;
            assert_int_equal(kvo_policy_set(store, &t, &policy, KVO_POLICY_TENANT, &said, &changed), KVO_OK);
            assert_int_equal(said.status, same ? KVO_OK : KVO_GONE);
            assert_int_equal(changed, same);
            assert_true(!(same && held[at].over));
            held[at].over = !same;
            gone_seen += !same;
        }
        if (i % 100 == 0)
            check_valid(); /* each tier's counters are a recount */
    }
    assert_true(gone_seen > 0 && below > 0);
    for (uint64_t n = 0; n < BLOCKS; n++) {
        kvo_policy p;
        kvo_answer a;
        kvo_target t = target_of(n, 1);
        assert_int_equal(kvo_policy_get(store, &t, &p, &a), KVO_OK);
        assert_true(a.status == KVO_MISS || p.tenant == 0 || p.tenant == n); /* no block has another's policy */
    }
    print_message("B109: %lu steps, %lu stale handles refused, %lu found below memory\n", steps_left, gone_seen, below);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(B059_each_call_in_each_state_has_the_answer_of_a_model),
        FIXTURE_TEST(B059_and_so_it_has_on_a_disk),
        FIXTURE_TEST(B060_failures_and_cancels_return_every_slot_and_credit),
        FIXTURE_TEST(B109_a_handle_is_its_block_s_wherever_that_lies_and_nobody_else_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
