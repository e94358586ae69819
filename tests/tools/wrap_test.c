/* SPDX-License-Identifier: Apache-2.0 */
/* Tiers that fail and tiers that are slow, as users have them: each rule does what docs/tiers.md says. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"

enum { BYTES = 65536, LINES = 64 };

static char lines[LINES][512];
static unsigned line_count;

static void keep_line(void *context, const char *line)
{
    (void)context;
    snprintf(lines[line_count++ % LINES], sizeof lines[0], "%s", line);
}

static bool was_logged(const char *words)
{
    for (unsigned i = 0; i < line_count && i < LINES; i++)
        if (strstr(lines[i], words))
            return true;
    return false;
}

/* '#' stands for the first directory. */
static int try_wrapped(const char *tiers, kvo_error *error)
{
    char text[1024];
    size_t n = 0;
    for (const char *p = tiers; *p; p++)
        n += (size_t)snprintf(text + n, sizeof text - n, *p == '#' ? "%s" : "%.1s", *p == '#' ? fixture_path(0) : p);
    kvo_options o = options;
    line_count = 0;
    o.flags |= fixture_stepped();
    o.on_log = keep_line;
    return kvo_open(text, &o, &store, error);
}

static void open_wrapped(const char *tiers)
{
    kvo_error error = {{0}};
    if (try_wrapped(tiers, &error) != KVO_OK)
        fail_msg("open: %s", error.text);
    space = open_space("a", BYTES);
}

/* All rows of the ledger for one direction and cause. */
static kvo_ledger_row rows_of(const char *tier, int direction, int cause)
{
    kvo_ledger_row rows[256], sum = {.cause = cause};
    size_t count;
    assert_int_equal(kvo_ledger(store, rows, 256, &count), KVO_OK);
    for (size_t i = 0; i < count && i < 256; i++)
        if (strcmp(rows[i].tier, tier) == 0 && rows[i].direction == direction && rows[i].cause == cause) {
            sum.bytes += rows[i].bytes;
            sum.operations += rows[i].operations;
        }
    return sum;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- fault ---- */

/* A read is tried twice, and so is one whose bytes are wrong in the caller's memory: two faults, one miss. */
static void reads_that_fail_are_misses(void **state)
{
    (void)state;
    open_wrapped("fault:read=eio@..2+disk:#:8M");
    assert_int_equal(fill_with(1, 3, BYTES), 3);
    assert_int_equal(get(1, BYTES), KVO_MISS);
    assert_int_equal(get(2, BYTES), KVO_OK);
    assert_int_equal(get(3, BYTES), KVO_OK);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_equal(put(1, BYTES), KVO_STORED);
    assert_int_equal(get(1, BYTES), KVO_OK);
    kvo_tier_stat t = tier_stat(0);
    assert_int_equal(t.injected, 2);
    assert_int_equal(t.io_errors, 1);
    assert_int_equal(rows_of("disk", 0, KVO_CAUSE_FAILED).bytes, 2 * BYTES);
    close_store();
    assert_true(was_logged("fault read=eio@..2: 2 of 5 calls"));
}

static void every_nth_write_fails(void **state)
{
    (void)state;
    open_wrapped("fault:write=enospc@3+disk:#:8M");
    for (uint64_t i = 1; i <= 9; i++) {
        int status = put(i, BYTES);
        assert_true(i % 3 ? status == KVO_STORED : status != KVO_STORED && status != KVO_EXISTS);
    }
    for (uint64_t i = 1; i <= 9; i++)
        assert_int_equal(get(i, BYTES), i % 3 ? KVO_OK : KVO_MISS);
    assert_int_equal(tier_stat(0).injected, 3);
    assert_int_equal(tier_stat(0).failed_bytes, 3 * BYTES);
    assert_int_equal(tier_stat(0).written_bytes, 6 * BYTES);
    assert_int_equal(put(3, BYTES), KVO_STORED);
    close_store();
}

/* The medium, or the way to it, harms bytes and says nothing. */
static void harm_is_a_miss(const char *rule)
{
    char tiers[128];
    snprintf(tiers, sizeof tiers, "fault:%s+disk:#:8M", rule);
    open_wrapped(tiers);
    assert_int_equal(put(1, BYTES), KVO_STORED);
    assert_int_equal(put(2, BYTES - 100), KVO_STORED);
    assert_int_equal(get(1, BYTES), KVO_MISS);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_equal(get(2, BYTES - 100), KVO_OK);
    assert_int_equal(put(1, BYTES), KVO_STORED);
    assert_int_equal(get(1, BYTES), KVO_OK);
    assert_int_equal(tier_stat(0).injected, rule[0] == 'r' ? 2 : 1);
    close_store();
    fixture_remove(0);
}

static void harmed_bytes_are_misses(void **state)
{
    (void)state;
    harm_is_a_miss("read=flip@..2");
    harm_is_a_miss("read=short@..2");
    harm_is_a_miss("write=flip@..1");
    harm_is_a_miss("write=torn@..1");
    harm_is_a_miss("write=lost@..1");
}

/* A reader with memory that the device can use itself: what arrived there is checked there. */
static void a_flip_in_the_callers_memory_is_a_miss(void **state)
{
    (void)state;
    open_wrapped("fault:read=flip+disk:#:8M");
    assert_int_equal(put(1, BYTES), KVO_STORED);
    uint8_t *memory = aligned_alloc(4096, BYTES);
    kvo_segment halves[2] = {{memory, BYTES / 2}, {memory + BYTES / 2, BYTES / 2}};
    uint32_t two = 2;
    kvo_memory to = {halves, &two};
    kvo_names names = names_of(1, 1);
    kvo_answer answer;
    assert_int_equal(kvo_get(store, &names, &to, NULL, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_MISS);
    assert_true(store_stat().digest_misses >= 1);
    free(memory);
    close_store();
}

static void remove_twice(void *context)
{
    (void)context;
    open_wrapped("fault:remove=lost@..1+disk:#:8M");
    assert_int_equal(fill_with(1, 2, BYTES), 2);
    assert_int_equal(drop(1, KVO_WRITTEN), KVO_OK);
    assert_int_equal(drop(2, KVO_WRITTEN), KVO_OK);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    abandon_store();
}

/* What a device does that loses a dead header: exactly this, or the rule would show nothing. */
static void a_lost_remove_comes_back_after_a_crash(void **state)
{
    (void)state;
    assert_child_ok(in_child(remove_twice, NULL));
    open_store("disk:@0");
    assert_int_equal(get(1, BYTES), KVO_OK);
    assert_int_equal(get(2, BYTES), KVO_MISS);
    close_store();
}

static void removes_and_flushes_that_fail_say_so(void **state)
{
    (void)state;
    kvo_target all = {.by = KVO_BY_ALL};
    open_wrapped("fault:remove=eio@..1:flush=eio@..1:flush=lost@3+disk:#:8M");
    assert_int_equal(fill_with(1, 2, BYTES), 2);
    assert_int_equal(drop(1, KVO_WRITTEN), KVO_SHORT);
    assert_int_not_equal(kvo_sync(store, &all, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
    assert_int_equal(kvo_sync(store, &all, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
    assert_int_equal(tier_stat(0).injected, 2);
    assert_int_equal(get(2, BYTES), KVO_OK);
    close_store();
}

static void an_opening_that_cannot_read_says_so(void **state)
{
    (void)state;
    kvo_error error = {{0}};
    open_wrapped("fault+disk:#:8M");
    assert_int_equal(put(1, BYTES), KVO_STORED);
    close_store();
    assert_int_equal(try_wrapped("fault:meta=eio+disk:#", &error), KVO_E_IO);
    assert_non_null(strstr(error.text, fixture_path(0)));
    open_wrapped("disk:#");
    assert_int_equal(get(1, BYTES), KVO_OK);
    close_store();
}

/* Its calls 60 to 90 find no device; those after them do. */
static void a_device_goes_and_comes_back(void **state)
{
    (void)state;
    open_wrapped("dram:12blk,disk:#:8M");
    size_t stored = fill_with(1, 40, BYTES);
    close_store();
    open_wrapped("dram:12blk,fault:any=enodev@60..90+disk:#");
    unsigned ok = 0, not_ok = 0;
    for (int round = 0; round < 8; round++)
        for (uint64_t i = 1; i <= stored; i++) {
            int status = get(i, BYTES);
            ok += status == KVO_OK;
            not_ok += status != KVO_OK;
        }
    for (uint64_t i = 1; i <= stored; i++)
        assert_int_equal(get(i, BYTES), KVO_OK); /* none was given up */
    assert_true(ok > 0 && not_ok > 0);
    assert_int_equal(tier_stat(1).injected, 31);
    assert_int_equal(put(100, BYTES), KVO_STORED);
    close_store();
}

/* ---- the same again ---- */

static uint64_t misses_with(const char *tiers)
{
    uint64_t missed = 0;
    fixture_remove(0);
    open_wrapped(tiers);
    assert_int_equal(fill_with(1, 60, BYTES), 60);
    for (uint64_t i = 1; i <= 60; i++)
        missed |= (uint64_t)(get(i, BYTES) == KVO_MISS) << i;
    close_store();
    return missed;
}

static void a_seed_gives_the_same_faults(void **state)
{
    (void)state;
    uint64_t a = misses_with("fault:read=flip@0.3:seed=7+disk:#:8M");
    assert_true(a != 0 && a != UINT64_MAX >> 4 << 1); /* some of 1 to 60 */
    assert_true(misses_with("fault:read=flip@0.3:seed=7+disk:#:8M") == a);
    assert_true(misses_with("fault:read=flip@0.3:seed=8+disk:#:8M") != a);
    assert_int_equal(misses_with("fault:seed=8+disk:#:8M"), 0);
}

static void wrong_rules_are_named(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "fault:read+disk:#:8M",          "fault:reads=eio+disk:#:8M",      "fault:read=efoo+disk:#:8M",
        "fault:read=lost+disk:#:8M",     "fault:any=flip+disk:#:8M",       "fault:read=eio@+disk:#:8M",
        "fault:read=eio@0+disk:#:8M",    "fault:read=eio@1.0+disk:#:8M",   "fault:read=eio@0.0+disk:#:8M",
        "fault:read=eio@-1+disk:#:8M",   "fault:read=eio@9..5+disk:#:8M",  "fault:read=eio@..+disk:#:8M",
        "fault:read=eio@..0+disk:#:8M",  "fault:read=eio@0..4+disk:#:8M",  "fault:seed=+disk:#:8M",
        "fault:seed=0x1+disk:#:8M",      "fault:read=eio:+disk:#:8M",      "fault:+disk:#:8M",
        "fault:read=eioo+disk:#:8M",     "fault:read=5ms+disk:#:8M",       "delay:read=eio+disk:#:8M",
        "delay:read=5+disk:#:8M",        "delay:read=5m+disk:#:8M",        "delay:read=5ms..1ms+disk:#:8M",
        "delay:read=2h+disk:#:8M",       "delay:read=4000s+disk:#:8M",     "delay:read=hang1+disk:#:8M",
        "delay:read=5ms..+disk:#:8M",    "fault:read=eio@99999999999999999999+disk:#:8M",
        "fault:read=eio@0.1234567891+disk:#:8M"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kvo_error error = {{0}};
        int r = try_wrapped(wrong[i], &error);
        if (r != KVO_E_RANGE || strncmp(error.text, wrong[i], 5) != 0)
            fail_msg("%s: %d, %s", wrong[i], r, error.text);
        assert_int_not_equal(access(fixture_path(0), F_OK), 0);
    }
    options.flags = KVO_OPEN_GHOST;
    assert_int_equal(try_wrapped("fault+dram:100blk", NULL), KVO_E_UNSUPPORTED);
}

static void sixteen_rules_are_the_most(void **state)
{
    (void)state;
    char tiers[512] = "fault";
    kvo_error error = {{0}};
    for (int i = 0; i < 16; i++)
        strcat(tiers, ":read=eio@..1");
    char more[600];
    snprintf(more, sizeof more, "%s:seed=3+disk:#:8M", tiers);
    open_wrapped(more);
    close_store();
    snprintf(more, sizeof more, "%s:read=eio+disk:#:8M", tiers);
    assert_int_equal(try_wrapped(more, &error), KVO_E_RANGE);
}

/* ---- what is on the medium ---- */

static void the_medium_is_that_of_the_tier_behind(void **state)
{
    (void)state;
    open_wrapped("dram:12blk,delay:write=1us+fault:write=eio@1000+disk:#:8M");
    assert_int_equal(fill_with(1, 40, BYTES), 40);
    assert_string_equal(tier_stat(1).name, "disk");
    assert_string_equal(tier_stat(1).path, fixture_path(0));
    close_store();
    open_store("dram:12blk,disk:@0");
    for (uint64_t i = 1; i <= 40; i++)
        assert_int_equal(get(i, BYTES), KVO_OK);
    assert_int_equal(tier_stat(1).injected, 0);
    assert_int_equal(tier_stat(1).lives, 40);
    close_store();
}

static void four_tiers_may_be_wrapped(void **state)
{
    (void)state;
    kvo_error error = {{0}};
    char tiers[512];
    snprintf(tiers, sizeof tiers, "fault+dram:12blk,delay:write=1us+fault+dram:12blk,delay+disk:#:4M,fault+disk:%s:8M",
             fixture_path(1));
    open_wrapped(tiers);
    assert_int_equal(fill_with(1, 60, BYTES), 60);
    for (uint64_t i = 1; i <= 60; i++)
        assert_int_equal(get(i, BYTES), KVO_OK);
    assert_true(tier_stat(1).injected > 0);
    assert_int_equal(kvo_close(store, KVO_FOREVER), KVO_OK);
    store = NULL;
    assert_int_equal(try_wrapped("dram:9blk,dram:9blk,dram:9blk,dram:9blk,fault+dram:9blk", &error), KVO_E_RANGE);
}

/* Between two memory tiers bytes go through calls, which rules can hit. */
static void a_second_memory_may_fail(void **state)
{
    (void)state;
    open_wrapped("dram:12blk,fault:read=flip@2+dram:60blk");
    size_t stored = fill_with(1, 30, BYTES), ok = 0;
    for (uint64_t i = 1; i <= stored; i++)
        ok += get(i, BYTES) == KVO_OK;
    assert_int_equal(stored, 30);
    assert_true(tier_stat(1).injected > 0 && ok < stored);
    assert_int_equal(store_stat().digest_misses, tier_stat(1).injected);
    assert_int_equal(kvo_close(store, 0), KVO_OK);
    store = NULL;
}

/* ---- everything at once ---- */

static uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    return *x ^= *x << 17;
}

typedef struct tally {
    uint64_t gets, served, injected;
} tally;

/* get() and get_as() fail the test where a byte is not the last version's. */
static void random_step(uint64_t *x, uint32_t *versions, unsigned names, tally *t)
{
    uint64_t number = next_random(x) % names;
    unsigned what = (unsigned)(next_random(x) % 100);
    int status;
    if (what < 40) {
        put_as(number + 1, BYTES, versions[number], NULL, NULL);
    } else if (what < 90) {
        t->gets++;
        t->served += get_as(number + 1, BYTES, versions[number], NULL, NULL) == KVO_OK;
    } else if (what < 95) {
        status = rewrite(number + 1, BYTES, versions[number] + 1, 0, KVO_SEALED);
        /* An error may have cost the block; then a put brings the new version. */
        if (status == KVO_STORED || (status == KVO_E_IO && exists(number + 1, NULL) == KVO_MISS))
            versions[number]++;
    } else {
        drop(number + 1, KVO_WRITTEN);
    }
}

/* An opening may fail too; then the next seed's. What is printed reproduces it. */
static void open_faulty(unsigned round)
{
    kvo_error error;
    int r = KVO_E_IO;
    open_wrapped(round % 2 ? "dram:12blk,disk:#:2M" : "dram:12blk,disk:#:8M"); /* for its space */
    close_store();
    for (unsigned seed = round; r != KVO_OK; seed += 1000) {
        char tiers[256];
        snprintf(tiers, sizeof tiers,
                 "dram:12blk,delay:read=1us..50us@0.1+fault:read=flip@0.1:write=flip@0.1:write=torn@0.05:read=eio@0.02:"
                 "write=enospc@0.05:meta=eio@0.05:flush=eio@0.1:seed=%u+disk:#",
                 seed);
        print_message("round %u: %s\n", round, tiers);
        r = try_wrapped(tiers, &error);
        assert_true(r == KVO_OK || r == KVO_E_IO);
    }
    space = open_space("a", BYTES);
}

static void no_wrong_byte_whatever_happens(void **state)
{
    (void)state;
    enum { NAMES = 60 };
    const char *rounds_text = getenv("KVO_TEST_ROUNDS"), *steps_text = getenv("KVO_TEST_STEPS");
    unsigned rounds = rounds_text ? (unsigned)atoi(rounds_text) : 6;
    unsigned steps = steps_text ? (unsigned)atoi(steps_text) : 1000;
    tally t = {0, 0, 0};
    for (unsigned round = 1; round <= rounds; round++) {
        uint32_t versions[NAMES] = {0};
        uint64_t x = round * 0x9e3779b97f4a7c15u;
        with_mover = round % 3 == 0;
        open_faulty(round);
        for (unsigned i = 0; i < steps; i++)
            random_step(&x, versions, NAMES, &t);
        check_valid();
        t.injected += tier_stat(1).injected;
        kvo_close(store, KVO_FOREVER);
        store = NULL;
        open_store("dram:12blk,disk:@0");
        for (unsigned i = 0; i < NAMES; i++)
            get_as(i + 1, BYTES, versions[i], NULL, NULL);
        close_store();
        fixture_remove(0);
    }
    assert_true(t.served > 0 && t.injected > 0);
    printf("%llu gets, %llu served, %llu faults injected, 0 wrong bytes\n", (unsigned long long)t.gets,
           (unsigned long long)t.served, (unsigned long long)t.injected);
}

/* ---- delay ---- */

#define LONG_NS 2000000000u

/* With memory of its own: the fixture's is the main thread's. */
static void *get_one(void *status)
{
    static uint8_t memory[BYTES];
    kvo_segment segment = {memory, BYTES};
    kvo_memory to = {&segment, NULL};
    kvo_names names = names_of(1, 1);
    kvo_answer answer;
    int r = kvo_get(store, &names, &to, NULL, &answer);
    bool right = r == KVO_OK && answer.status == KVO_OK && payload_is(memory, BYTES, 1, 0);
    *(int *)status = right ? KVO_OK : KVO_MISS;
    return NULL;
}

static void wait_for_injected(unsigned tier, uint64_t count)
{
    while (tier_stat(tier).injected < count)
        usleep(1000);
}

static void a_delayed_read_takes_its_time(void **state)
{
    (void)state;
    open_wrapped("delay:read=30ms:flush=20ms+disk:#:8M");
    assert_int_equal(put(1, BYTES), KVO_STORED);
    uint64_t begin = now_ns();
    assert_int_equal(get(1, BYTES), KVO_OK);
    assert_true(now_ns() - begin >= 30000000u);
    kvo_target all = {.by = KVO_BY_ALL};
    begin = now_ns();
    assert_int_equal(kvo_sync(store, &all, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
    assert_true(now_ns() - begin >= 20000000u);
    close_store();
}

/* Transfers of one batch wait together, not one after the other. */
static void delays_of_a_batch_overlap(void **state)
{
    (void)state;
    enum { COUNT = 32 };
    open_wrapped("delay:read=200ms+disk:#:8M");
    assert_int_equal(fill_with(1, COUNT, BYTES), COUNT);
    kvo_segment segments[COUNT];
    kvo_answer answers[COUNT];
    uint8_t *memory = aligned_alloc(4096, COUNT * BYTES);
    for (size_t i = 0; i < COUNT; i++)
        segments[i] = (kvo_segment){memory + i * BYTES, BYTES};
    kvo_names names = names_of(1, COUNT);
    kvo_memory to = {segments, NULL};
    uint64_t begin = now_ns();
    assert_int_equal(kvo_get(store, &names, &to, NULL, answers), KVO_OK);
    assert_true(now_ns() - begin < COUNT * 200000000ull / 2);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(answers[i].status == KVO_OK && payload_is(segments[i].base, BYTES, 1 + i, 0));
    assert_int_equal(tier_stat(0).injected, COUNT);
    free(memory);
    close_store();
}

/* Rule 10: who waits for another's transfer answers at the deadline, and what hung goes on afterwards. */
static void deadlines_hold_while_the_device_hangs(void **state)
{
    (void)state;
    open_wrapped("dram:12blk,disk:#:8M");
    fill_with(1, 40, BYTES);
    close_store();
    open_wrapped("dram:12blk,delay:read=2s@..1+disk:#:8M");
    int status = -1;
    pthread_t other;
    uint64_t begin = now_ns();
    pthread_create(&other, NULL, get_one, &status);
    wait_for_injected(1, 1);
    kvo_get_options brief = KVO_GET_OPTIONS_INIT;
    brief.deadline_ns = 1000000;
    int busy = get_as(1, BYTES, 0, &brief, NULL);
    assert_true(busy == KVO_BUSY || now_ns() - begin >= LONG_NS);
    assert_int_equal(get(2, BYTES), KVO_OK); /* others go on */
    assert_int_equal(exists(1, NULL), KVO_OK);
    pthread_join(other, NULL);
    assert_int_equal(status, KVO_OK);
    assert_int_equal(get(1, BYTES), KVO_OK);
    close_store();
}

/* A job that waits for the device is not given up: its memory is still the device's. */
static void a_queue_says_busy_while_the_device_hangs(void **state)
{
    (void)state;
    open_wrapped("delay:read=2s@..1+disk:#:8M");
    assert_int_equal(put(1, BYTES), KVO_STORED);
    static uint8_t memory[BYTES];
    kvo_segment segment = {memory, BYTES};
    kvo_memory to = {&segment, NULL};
    kvo_names names = names_of(1, 1);
    kvo_get_options brief = KVO_GET_OPTIONS_INIT;
    brief.deadline_ns = 1000000;
    kvo_answer answer;
    kvo_queue *queue;
    kvo_job job;
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    uint64_t begin = now_ns();
    assert_int_equal(kvo_submit_get(queue, &names, &to, &brief, &answer, NULL, &job), KVO_OK);
    while (tier_stat(0).injected < 1)
        if (now_ns() - begin > brief.deadline_ns * 1000 && tier_stat(0).injected == 0)
            break; /* it came too late to begin, and said busy */
    int closed = kvo_queue_close(queue, 0);
    assert_true(closed == KVO_BUSY || now_ns() - begin >= LONG_NS || tier_stat(0).injected == 0);
    if (closed == KVO_BUSY)
        assert_int_equal(kvo_queue_close(queue, KVO_FOREVER), KVO_OK);
    assert_int_equal(get(1, BYTES), KVO_OK);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(reads_that_fail_are_misses),
        FIXTURE_TEST(every_nth_write_fails),
        FIXTURE_TEST(harmed_bytes_are_misses),
        FIXTURE_TEST(a_flip_in_the_callers_memory_is_a_miss),
        FIXTURE_TEST(a_lost_remove_comes_back_after_a_crash),
        FIXTURE_TEST(removes_and_flushes_that_fail_say_so),
        FIXTURE_TEST(an_opening_that_cannot_read_says_so),
        FIXTURE_TEST(a_device_goes_and_comes_back),
        FIXTURE_TEST(a_seed_gives_the_same_faults),
        FIXTURE_TEST(wrong_rules_are_named),
        FIXTURE_TEST(sixteen_rules_are_the_most),
        FIXTURE_TEST(the_medium_is_that_of_the_tier_behind),
        FIXTURE_TEST(four_tiers_may_be_wrapped),
        FIXTURE_TEST(a_second_memory_may_fail),
        FIXTURE_TEST(no_wrong_byte_whatever_happens),
        FIXTURE_TEST(a_delayed_read_takes_its_time),
        FIXTURE_TEST(delays_of_a_batch_overlap),
        FIXTURE_TEST(deadlines_hold_while_the_device_hangs),
        FIXTURE_TEST(a_queue_says_busy_while_the_device_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
