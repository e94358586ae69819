/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call that may fail fails, one after the other: the first one of a scenario, then the second, until a run in
 * which none is left to fail. Once, and from then on until the scenario's end; before anything was done, half done,
 * and done but denied. After each: the call said something that it may say, the store is in order, the ledger has
 * the bytes that went to files, whatever comes next works, no byte is wrong, nothing leaks, and what was said to be
 * written is there after the next opening.
 */
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct scenario {
    const char *name;
    const char *tiers;
    void (*prepare)(void); /* in a store that is open, before anything fails; NULL: there is none yet */
    void (*body)(void);    /* in an open store, unless `opens` */
    bool opens;            /* the body opens it, while calls fail */
    bool crashes;          /* what it finds is what a crash left */
    bool evicts;
    bool threads; /* carry transfers: which call is the nth depends on them a little */
} scenario;

static const scenario *now; /* NULL: none runs */
static const char *const how_texts[] = {"nothing done", "half done", "done and denied"};
static struct {
    long n, count;
    long made; /* in the scenario that ran last */
    nth_how how;
} call; /* the one that fails */
static long run_count;

/* ---- opening and closing ---- */

static void must_open(const char *tiers)
{
    kvo_error error = {{0}};
    int r = nth_try_open(tiers, &error);
    if (r != KVO_OK)
        fail_msg("open: %s: %s", kvo_status_name(r), error.text);
    space = open_space("a", ORACLE_BYTES);
}

static void nothing_leaks(void)
{
    assert_int_equal(atomic_load(&nth.files), 0);
    assert_int_equal(atomic_load(&nth.pieces), 0);
    assert_int_equal(atomic_load(&nth.memory_bytes), 0);
}

static int try_space(void)
{
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_error error = {{0}};
    config.label = "a";
    config.model = "m";
    config.block_positions = 16;
    config.block_bytes_max = ORACLE_BYTES;
    int r = kvo_space_open(store, &config, &space, &error);
    oracle_status("space", r, (const int[]){KVO_OK, KVO_E_IO, KVO_E_NO_SPACE, KVO_E_MEMORY}, 4);
    oracle_error_text("space", r, &error);
    return r;
}

/* Files that all end short are damaged, as far as anybody can tell. */
static void opening_said(int status, const kvo_error *error)
{
    const int may[] = {KVO_OK, KVO_E_IO, KVO_E_NO_SPACE, KVO_E_MEMORY, KVO_E_IN_USE, KVO_E_DAMAGED};
    bool ends_short = call.how == NTH_IN_PART && atomic_load(&nth.reads_failed) > 1;
    oracle_error_text("open", status, error);
    oracle_status(error->text[0] ? error->text : "open", status, may, ends_short ? 6 : 5);
}

/* Opens while calls fail. */
static bool opened(const char *tiers)
{
    kvo_error error = {{0}};
    int r = nth_try_open(tiers, &error);
    opening_said(r, &error);
    if (r == KVO_OK)
        return try_space() == KVO_OK;
    assert_true(oracle_disturbed());
    assert_null(store);
    nothing_leaks();
    return false;
}

/* A close while calls fail frees everything, whatever it says. */
static void close_anyhow(void)
{
    int r = kvo_close(store, 0);
    store = NULL;
    oracle_status("close", r, (const int[]){KVO_OK, KVO_SHORT, KVO_E_IO, KVO_E_NO_SPACE, KVO_E_MEMORY}, 5);
    if (!oracle_disturbed())
        assert_int_equal(r, KVO_OK);
    for (unsigned i = 0; i < ORACLE_BLOCKS; i++) {
        oracle_block *b = &oracle.blocks[i];
        b->kept |= r == KVO_OK && !oracle.evicts && !(b->may & ORACLE_MISS);
    }
    nothing_leaks();
}

static void close_well(void)
{
    check_valid();
    for (unsigned i = 0; i < ORACLE_BLOCKS; i++)
        oracle.blocks[i].kept |= !oracle.evicts && !(oracle.blocks[i].may & ORACLE_MISS);
    int r = kvo_close(store, KVO_FOREVER);
    store = NULL;
    assert_int_equal(r, KVO_OK);
    nothing_leaks();
}

/* ---- the ledger, recounted ---- */

/* Bytes to and from media, by the ledger, all causes. */
static uint64_t ledger_sum(int direction)
{
    kvo_ledger_row rows[256];
    size_t count;
    uint64_t bytes = 0;
    assert_int_equal(kvo_ledger(store, rows, 256, &count), KVO_OK);
    assert_true(count <= 256);
    for (size_t i = 0; i < count; i++)
        if (rows[i].direction == direction && strncmp(rows[i].tier, "disk", 4) == 0)
            bytes += rows[i].bytes;
    return bytes;
}

typedef struct sums {
    uint64_t ledger[2], files[2];
} sums;

static sums sums_now(void)
{
    return (sums){{ledger_sum(0), ledger_sum(1)}, {atomic_load(&nth.read_bytes), atomic_load(&nth.written_bytes)}};
}

static void ledger_agrees(const sums *before)
{
    sums after = sums_now();
    for (int i = 0; i < 2; i++)
        if (after.ledger[i] - before->ledger[i] != after.files[i] - before->files[i])
            fail_msg("%s: the ledger counted %llu bytes, files were asked for %llu", i ? "written" : "read",
                     (unsigned long long)(after.ledger[i] - before->ledger[i]),
                     (unsigned long long)(after.files[i] - before->files[i]));
}

/* ---- one run ---- */

static void get_all(void)
{
    for (uint64_t i = 0; i < ORACLE_BLOCKS; i++) {
        int status = oracle_get(i);
        if (status != KVO_OK && status != KVO_MISS)
            fail_msg("block %llu: in order again, and get says %s", (unsigned long long)i, kvo_status_name(status));
    }
}

/* Nothing fails any more. */
static void works_again(const sums *before)
{
    bool was_open = store != NULL;
    if (was_open)
        check_valid();
    else {
        must_open(now->tiers);
        oracle_reopened();
    }
    if (was_open && space == 0)
        space = open_space("a", ORACLE_BYTES);
    if (was_open && before)
        ledger_agrees(before);
    assert_int_equal(oracle_put(ORACLE_BLOCKS - 1, 3, KVO_WRITTEN), KVO_STORED);
    assert_int_equal(oracle_get(ORACLE_BLOCKS - 1), KVO_OK);
    get_all();
    for (uint64_t i = 0; i < ORACLE_BLOCKS / 2; i++) /* what is missing may be put again */
        if (oracle.blocks[i].may == ORACLE_MISS)
            assert_int_equal(oracle_put(i, 5, KVO_SEALED), KVO_STORED);
    assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
    close_well();
    must_open(now->tiers);
    oracle_reopened();
    get_all();
    close_well();
}

typedef struct prepared {
    nth_image *images[2];
    oracle_state oracle;
} prepared;

static int disks_of(const char *tiers) { return strstr(tiers, "@1") ? 2 : 1; }

static void prepare(prepared *p)
{
    nth_disarm();
    oracle_begin(now->evicts);
    fixture_remove(0);
    fixture_remove(1);
    if (now->prepare == NULL) {
        p->oracle = oracle;
        return;
    }
    must_open(now->tiers);
    now->prepare();
    if (!now->crashes)
        close_well();
    for (int i = 0; i < disks_of(now->tiers); i++)
        p->images[i] = nth_image_take(i);
    p->oracle = oracle;
    if (now->crashes) {
        kvo_close(store, 0);
        store = NULL;
    }
}

/* Of so many calls one fails; each does without sanitizers, where a run is quick. Which ones depends on the pass. */
static long step(void)
{
    const char *text = getenv("KVO_TEST_STEP");
    long n = text ? atol(text) : TEST_SANITIZES ? 6 : 1;
    return n < 1 ? 1 : n;
}

/* false: there is no nth call. */
static bool run(const prepared *p, long n, long count, nth_how how)
{
    sums before;
    for (int i = 0; i < disks_of(now->tiers); i++)
        nth_image_restore(p->images[i], i);
    oracle = p->oracle;
    space = 0;
    call.n = n, call.count = count, call.how = how;
    nth_arm(0, 0, how);
    if (now->prepare)
        oracle_reopened();
    if (!now->opens) {
        must_open(now->tiers);
        before = sums_now();
    }
    nth_arm(n, count, how);
    now->body();
    bool fell = atomic_load(&nth.failed) != 0;
    call.made = atomic_load(&nth.calls);
    nth_disarm();
    works_again(now->opens ? NULL : &before);
    run_count++;
    return fell;
}

static void every_call(long count, nth_how how)
{
    prepared p = {{NULL, NULL}, {.evicts = false}};
    static long pass;
    long n = 1 + pass++ % step();
    prepare(&p);
    while (run(&p, n, count, how))
        n += step();
    for (int i = 0; i < 2; i++)
        nth_image_free(p.images[i]);
}

/* ---- what is there before ---- */

static void ten_blocks(void)
{
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(oracle_put(i, 0, i % 2 ? KVO_WRITTEN : KVO_SEALED), KVO_STORED);
    kvo_policy policy = KVO_POLICY_INIT;
    policy.priority = 70;
    assert_int_equal(set_policy(1, &policy, KVO_POLICY_PRIORITY), KVO_OK);
    assert_int_equal(oracle_sync(KVO_WRITTEN), KVO_OK);
}

/* ---- what is done ---- */

static void opens_and_closes(void)
{
    if (opened(now->tiers)) {
        oracle_put(20, 0, KVO_SEALED);
        oracle_get(1);
    }
    if (store)
        close_anyhow();
}

static void opens_with(const char *slots)
{
    char tiers[200];
    snprintf(tiers, sizeof tiers, "%s", now->tiers);
    memcpy(strstr(tiers, "64blk"), slots, 5);
    opened(tiers);
    if (store)
        close_anyhow();
}

static void opens_larger(void) { opens_with("96blk"); }
static void opens_smaller(void) { opens_with("48blk"); }

static void reserve_two(void)
{
    kvo_names names = names_of(24, 2);
    const uint32_t bytes[] = {ORACLE_BYTES, ORACLE_BYTES};
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_reservation reservations[2] = {{.handle = 0}, {.handle = 0}};
    kvo_answer answers[2];
    o.deadline_ns = 0;
    assert_int_equal(kvo_reserve(store, &names, bytes, &o, reservations, answers), KVO_OK);
    for (int i = 0; i < 2; i++) {
        if (answers[i].status != KVO_OK) {
            oracle_submitted_put(24 + (uint64_t)i, 0, answers[i].status, KVO_SEALED);
            continue;
        }
        payload_make(reservations[i].memory, ORACLE_BYTES, 24 + (uint64_t)i, 0);
    }
    if (reservations[0].handle) {
        assert_int_equal(kvo_seal(store, &reservations[0], 1, KVO_WRITTEN, 0, answers), KVO_OK);
        oracle_submitted_put(24, 0, answers[0].status, KVO_WRITTEN);
    }
    if (reservations[1].handle)
        assert_int_equal(kvo_abort(store, &reservations[1], 1, answers), KVO_OK);
}

static void stores(void)
{
    for (uint64_t i = 0; i < 4; i++)
        oracle_put(20 + i, 0, (int)(KVO_SEALED + i % 3));
    oracle_put(20, 0, KVO_WRITTEN); /* it exists, or did not get there */
    reserve_two();
    check_valid();
    for (uint64_t i = 0; i < 6; i++)
        oracle_get(20 + i);
}

static void reads(void)
{
    kvo_pin p = {.token = 0};
    kvo_answer answers[4];
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = 0;
    for (uint64_t i = 0; i < 4; i++)
        oracle_get(i);
    kvo_names names = names_of(4, 1);
    int r = kvo_pin_blocks(store, &names, &o, &p, answers);
    if (r == KVO_OK && answers[0].status == KVO_OK) {
        assert_true(payload_is(p.memory, ORACLE_BYTES, 4, 0));
        oracle_checked++;
        assert_int_equal(kvo_unpin(store, &p, 1), KVO_OK);
    }
    names = names_of(5, 4);
    r = kvo_prefetch(store, &names, &o, answers);
    assert_true(r == KVO_OK || r == KVO_E_UNSUPPORTED);
    check_valid();
    for (uint64_t i = 0; i < 12; i++)
        oracle_get(i);
}

static void changes(void)
{
    oracle_rewrite(1, 1, KVO_SEALED);
    oracle_rewrite(2, 1, KVO_WRITTEN);
    oracle_remove(3, KVO_SEALED);
    oracle_remove(4, KVO_WRITTEN);
    oracle_put(4, 2, KVO_SEALED);
    oracle_rewrite(4, 4, KVO_SAFE);
    for (uint64_t i = 1; i < 5; i++)
        oracle_get(i);
}

static void removes(void)
{
    kvo_target tenant = {.by = KVO_BY_TENANT, .tenant = 1}, sequence = {.by = KVO_BY_SEQUENCE, .sequence = 1};
    kvo_target all = {.by = KVO_BY_ALL};
    oracle_remove_where(&tenant, 1, 3, KVO_WRITTEN);
    oracle_remove_where(&sequence, 0, 4, KVO_SAFE);
    oracle_put(1, 1, KVO_WRITTEN);
    oracle_remove_where(&all, 0, 1, KVO_WRITTEN);
    oracle_put(2, 1, KVO_SEALED);
}

static void writes_out(void)
{
    kvo_policy policy = KVO_POLICY_INIT;
    kvo_target all = {.by = KVO_BY_ALL};
    kvo_tenant_stat tenants[8];
    size_t count;
    policy.priority = 10;
    assert_int_equal(kvo_policy_set(store, &all, &policy, KVO_POLICY_PRIORITY, NULL, NULL), KVO_OK);
    int r = kvo_write_out(store);
    oracle_status("write_out", r, (const int[]){KVO_OK, KVO_E_IO, KVO_E_NO_SPACE, KVO_E_MEMORY}, 4);
    oracle_sync(KVO_SAFE);
    oracle_put(20, 0, KVO_SEALED);
    oracle_sync(KVO_WRITTEN);
    r = kvo_stat_tenants(store, tenants, 8, &count);
    assert_true(r == KVO_OK || r == KVO_E_MEMORY);
    assert_int_equal(policy_of(1).priority, 10);
}

static void fills(void)
{
    for (uint64_t i = 10; i < 40; i++)
        oracle_put(i, 0, KVO_SEALED);
    check_valid();
    for (uint64_t i = 0; i < 40; i += 3)
        oracle_get(i);
}

static void put_job(kvo_queue *queue, uint64_t number)
{
    static uint8_t memory[ORACLE_BYTES];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer;
    kvo_report report;
    size_t count = 0;
    kvo_names names = names_of(number, 1);
    kvo_segment segment = {memory, sizeof memory};
    kvo_memory from = {&segment, NULL};
    o.level = KVO_WRITTEN;
    o.deadline_ns = 0;
    payload_make(memory, sizeof memory, number, 0);
    int r = kvo_submit_put(queue, &names, &from, &o, &answer, NULL, NULL);
    oracle_status("submit", r, (const int[]){KVO_OK, KVO_E_MEMORY}, 2);
    if (r != KVO_OK)
        return;
    assert_int_equal(kvo_poll(queue, &report, 1, KVO_FOREVER, &count), KVO_OK);
    assert_int_equal(count, 1);
    oracle_status("report", report.status, (const int[]){KVO_OK, KVO_E_MEMORY, KVO_E_IO}, 3);
    oracle_submitted_put(number, 0, answer.status, KVO_WRITTEN);
}

static void get_job(kvo_queue *queue, uint64_t number)
{
    static uint8_t memory[ORACLE_BYTES];
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_answer answer;
    kvo_report report;
    size_t count = 0;
    kvo_names names = names_of(number, 1);
    kvo_segment segment = {memory, sizeof memory};
    kvo_memory to = {&segment, NULL};
    o.deadline_ns = 0;
    int r = kvo_submit_get(queue, &names, &to, &o, &answer, NULL, NULL);
    if (r != KVO_OK)
        return;
    assert_int_equal(kvo_poll(queue, &report, 1, KVO_FOREVER, &count), KVO_OK);
    assert_int_equal(count, 1);
    if (answer.status == KVO_OK) {
        assert_true(payload_is(memory, sizeof memory, number, 0));
        oracle_checked++;
    }
}

static void jobs(void)
{
    kvo_queue *queue = NULL;
    kvo_report report;
    size_t count;
    int r = kvo_queue_open(store, NULL, &queue);
    oracle_status("queue", r, (const int[]){KVO_OK, KVO_E_MEMORY}, 2);
    if (r != KVO_OK)
        return;
    for (uint64_t i = 0; i < 3; i++) {
        put_job(queue, 20 + i);
        get_job(queue, i);
    }
    if (kvo_submit_sync(queue, NULL, KVO_WRITTEN, 0, NULL, NULL, NULL) == KVO_OK) {
        assert_int_equal(kvo_poll(queue, &report, 1, KVO_FOREVER, &count), KVO_OK);
        oracle_status("sync", report.status,
                      (const int[]){KVO_OK, KVO_SHORT, KVO_E_IO, KVO_E_NO_SPACE, KVO_E_MEMORY}, 5);
    }
    assert_int_equal(kvo_queue_close(queue, KVO_FOREVER), KVO_OK);
}

static void verifies(void)
{
    kvo_error error = {{0}};
    kvo_verify_result result = {.bad = 0};
    options.flags = KVO_OPEN_READ_ONLY;
    int r = nth_try_open(now->tiers, &error);
    options.flags = 0;
    opening_said(r, &error);
    if (store == NULL)
        return;
    r = kvo_verify(store, NULL, NULL, &result);
    oracle_status("verify", r, (const int[]){KVO_OK, KVO_E_IO, KVO_E_MEMORY}, 3);
    if (!oracle_disturbed())
        assert_true(result.slots == 10 && result.bad == 0);
    kvo_close(store, 0);
    store = NULL;
    nothing_leaks();
}

static const scenario scenarios[] = {
    {.name = "new", .tiers = "dram:16blk,disk:@0:64blk", .body = opens_and_closes, .opens = true},
    {.name = "new, two disks", .tiers = "disk:@0:16blk,disk:@1:64blk", .body = opens_and_closes, .opens = true},
    {.name = "again", .tiers = "dram:16blk,disk:@0:64blk", .prepare = ten_blocks,
     .body = opens_and_closes, .opens = true},
    {.name = "again, two disks", .tiers = "disk:@0:16blk,disk:@1:64blk", .prepare = ten_blocks,
     .body = opens_and_closes, .opens = true},
    {.name = "after a crash", .tiers = "disk:@0:64blk", .prepare = ten_blocks, .body = opens_and_closes, .opens = true,
     .crashes = true},
    {.name = "after a crash, two disks", .tiers = "disk:@0:16blk,disk:@1:64blk", .prepare = ten_blocks,
     .body = opens_and_closes, .opens = true, .crashes = true},
    {.name = "larger", .tiers = "dram:16blk,disk:@0:64blk", .prepare = ten_blocks, .body = opens_larger, .opens = true},
    {.name = "smaller", .tiers = "dram:16blk,disk:@0:64blk", .prepare = ten_blocks,
     .body = opens_smaller, .opens = true},
    {.name = "verify", .tiers = "disk:@0:64blk", .prepare = ten_blocks, .body = verifies, .opens = true},
    {.name = "puts", .tiers = "dram:16blk,disk:@0:64blk", .prepare = ten_blocks, .body = stores},
    {.name = "puts, a disk", .tiers = "disk:@0:64blk", .prepare = ten_blocks, .body = stores},
    {.name = "reads", .tiers = "dram:16blk,disk:@0:64blk", .prepare = ten_blocks, .body = reads},
    {.name = "reads, a disk", .tiers = "disk:@0:64blk", .prepare = ten_blocks, .body = reads},
    {.name = "changes", .tiers = "dram:16blk,disk:@0:64blk", .prepare = ten_blocks, .body = changes},
    {.name = "changes, a disk", .tiers = "disk:@0:64blk", .prepare = ten_blocks, .body = changes},
    {.name = "removes", .tiers = "dram:16blk,disk:@0:64blk", .prepare = ten_blocks, .body = removes},
    {.name = "removes, a disk", .tiers = "disk:@0:64blk", .prepare = ten_blocks, .body = removes},
    {.name = "write-out", .tiers = "dram:16blk,disk:@0:64blk", .prepare = ten_blocks, .body = writes_out},
    {.name = "demotions", .tiers = "dram:12blk,disk:@0:64blk", .prepare = ten_blocks, .body = fills},
    {.name = "demotions, two disks", .tiers = "disk:@0:12blk,disk:@1:64blk", .prepare = ten_blocks, .body = fills},
    {.name = "evictions", .tiers = "dram:8blk,disk:@0:24blk", .prepare = ten_blocks, .body = fills, .evicts = true},
    {.name = "demotions, threads", .tiers = "disk:@0:12blk,disk:@1:64blk", .prepare = ten_blocks, .body = fills,
     .threads = true},
    {.name = "jobs", .tiers = "dram:16blk,disk:@0:64blk", .prepare = ten_blocks, .body = jobs},
};

static const struct {
    nth_how how;
    long count;
} passes[] = {{NTH_NOTHING, 1}, {NTH_IN_PART, 1}, {NTH_ALTHOUGH, 1}, {NTH_NOTHING, 1L << 40}, {NTH_IN_PART, 1L << 40}};

static void every_call_of_every_scenario_fails(void **state)
{
    (void)state;
    const char *only = getenv("KVO_TEST_SCENARIO");
    options.block_bytes = 8192;
    options.pins_max = options.holds_max = 16;
    options.tenants_max = 4;
    options.workers = 2;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        now = &scenarios[i];
        if (only && strcmp(only, now->name) != 0)
            continue;
        nth_threads = now->threads;
        for (size_t k = 0; k < sizeof passes / sizeof *passes; k++)
            every_call(passes[k].count, passes[k].how);
        print_message("%s: %ld calls\n", now->name, call.made);
    }
    now = NULL;
    print_message("%ld runs, each with one failed call or all from one on\n", run_count);
    printf("counted: %ld injected faults, %ld payloads compared, 0 wrong bytes\n", atomic_load(&nth.total_failed),
           oracle_checked);
}

static int teardown(void **state)
{
    if (now)
        print_error("scenario \"%s\", call %ld, %s, %s\n", now->name, call.n, how_texts[call.how],
                    call.count == 1 ? "once" : "from then on");
    nth_disarm();
    return fixture_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_call_of_every_scenario_fails, nth_setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
