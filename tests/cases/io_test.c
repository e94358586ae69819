/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes on their way: many sessions, many readers, many pieces, awkward lengths, batches that overlap,
   slots that others have meanwhile. */
#include "cases.h"

#include <pthread.h>
#include <sched.h>

#include "faulty.h"

/* ---- sessions ---- */

enum { SESSIONS = 200, TURNS = 16, SESSION_BYTES = 8192 };

static _Atomic uint64_t verified, missed;

static void sessions_come_back(unsigned number)
{
    uint64_t random = cases_seed() * 100 + number;
    unsigned long visits = cases_many("KVO_TEST_ROUNDS", TEST_SANITIZES ? 30 : 80);
    while (visits--) {
        uint64_t session = cases_draw(&random, SESSIONS);
        cases_batch b = cases_batch_make(session * TURNS, TURNS, SESSION_BYTES, false);
        MUST(kvo_get(store, &b.names, &b.of, NULL, b.answers) == KVO_OK);
        for (size_t i = 0; i < TURNS; i++)
            if (b.answers[i].status == KVO_OK) {
                MUST(payload_is(b.segments[i].base, SESSION_BYTES, session * TURNS + i, 0));
                atomic_fetch_add(&verified, 1);
            } else {
                MUST(b.answers[i].status == KVO_MISS);
                atomic_fetch_add(&missed, 1);
                MUST(cases_put(session * TURNS + i, SESSION_BYTES, 0, KVO_FOREVER) <= KVO_EXISTS);
            }
        cases_batch_free(&b);
    }
}

static void return_to(const char *tiers)
{
    atomic_store(&verified, 0);
    atomic_store(&missed, 0);
    options.block_bytes = SESSION_BYTES;
    with_mover = true;
    for (int round = 0; round < 2; round++) {
        open_more(tiers);
        cases_threads(8, sessions_come_back);
        assert_int_equal(store_stat().digest_misses, 0);
        close_store();
    }
    print_message("B034: %s: %llu payloads verified, %llu computed, 0 wrong bytes\n", tiers,
                  (unsigned long long)atomic_load(&verified), (unsigned long long)atomic_load(&missed));
    assert_true(atomic_load(&verified) > 0 && atomic_load(&missed) > 0);
    fixture_remove(0);
}

static void B034_sessions_that_come_back_get_their_own_bytes(void **state)
{
    (void)state;
    return_to("dram:64blk,disk:@0:4096blk");
    return_to("dram:64blk,disk:@0:1024blk"); /* siblings: with evictions below, and with no memory in front */
    return_to("disk:@0:1024blk");
}

/* ---- one name, many producers ---- */

enum { PRODUCERS = 8, SAME = 64 };
static _Atomic uint64_t stored;

static void puts_the_same(unsigned number)
{
    uint64_t random = cases_seed() + 1000 * number;
    for (int batch = 0; batch < 4; batch++) {
        size_t count = SAME + 8;
        uint8_t *list = malloc(count * NAME_BYTES), *memory = malloc(count * 4096);
        kvo_segment *segments = calloc(count, sizeof *segments);
        kvo_answer *answers = calloc(count, sizeof *answers);
        for (size_t i = 0; i < count; i++) { /* in an order of its own, some twice, some absent */
            uint64_t n = (uint64_t)batch * SAME + (i < SAME ? (i * 13 + number * 7) % SAME : cases_draw(&random, SAME));
            name_of(n, list + i * NAME_BYTES);
            payload_make(memory + i * 4096, 4096, n, 0);
            segments[i] = (kvo_segment){memory + i * 4096, 4096};
        }
        kvo_names names = {.first = list, .name_bytes = NAME_BYTES, .count = count, .space = space};
        kvo_memory of = {segments, NULL};
        MUST(kvo_put(store, &names, &of, NULL, answers) == KVO_OK);
        for (size_t i = 0; i < count; i++) {
            MUST(answers[i].status == KVO_STORED || answers[i].status == KVO_EXISTS);
            MUST(i < SAME || answers[i].status == KVO_EXISTS); /* it was earlier in this batch */
            atomic_fetch_add(&stored, answers[i].status == KVO_STORED);
        }
        free(list);
        free(memory);
        free(segments);
        free(answers);
    }
}

static void B085_a_batch_with_names_that_are_there_or_come_twice_stores_the_rest(void **state)
{
    (void)state;
    static const char *const tiers[] = {"dram:300blk", "disk:@0:300blk", "dram:300blk,disk:@1:300blk"};
    for (int t = 0; t < 3; t++) {
        atomic_store(&stored, 0);
        open_store(tiers[t]);
        for (uint64_t i = 0; i < 10; i++)
            assert_int_equal(put(i * 20, 4096), KVO_STORED); /* some are there before */
        cases_threads(PRODUCERS, puts_the_same);
        assert_int_equal(atomic_load(&stored) + 10, 4 * SAME);
        assert_int_equal(store_stat().blocks, 4 * SAME);
        assert_int_equal(tier_stat(0).written_bytes, 4 * SAME * 4096);
        assert_int_equal(store_stat().digest_conflicts, 0);
        for (uint64_t i = 0; i < 4 * SAME; i++)
            assert_int_equal(get(i, 4096), KVO_OK);
        close_store();
    }
}

/* A sibling: one of the batch is there with another length, one is too long, one has none. */
static void B085_what_is_wrong_with_one_of_a_batch_is_its_own(void **state)
{
    (void)state;
    open_store("dram:64blk,disk:@0:64blk");
    cases_batch b = cases_batch_make(0, 16, 4096, true);
    assert_int_equal(put(3, 5000), KVO_STORED);
    b.segments[7].bytes = 65537;
    b.segments[9].bytes = 0;
    b.segments[11].base = NULL;
    b.segments[7].base = malloc(65537);
    memset(b.segments[7].base, 1, 65537);
    assert_int_equal(kvo_put(store, &b.names, &b.of, NULL, b.answers), KVO_OK);
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(b.answers[i].status, i == 3    ? KVO_SIZE
                                              : i == 7  ? KVO_REFUSED
                                              : i == 9  ? KVO_REFUSED
                                              : i == 11 ? KVO_E_ARGUMENT
                                                        : KVO_STORED);
    free(b.segments[7].base);
    cases_batch_free(&b);
    for (uint64_t i = 0; i < 16; i++)
        assert_int_equal(get(i, i == 3 ? 5000 : 4096), i == 7 || i == 9 || i == 11 ? KVO_MISS : KVO_OK);
    close_store();
}

/* ---- lengths ---- */

/* Blocks that end anywhere in a page beside others that do: none of them touches its neighbour. */
static void B112_an_odd_length_leaves_its_neighbours_as_they_were(void **state)
{
    (void)state;
    enum { COUNT = 24 };
    static const size_t lengths[] = {1000001, 1, 4095, 4096, 4097, 999999, 511, 65537};
    static const char *const tiers[] = {"disk:@0:40M", "dram:8M,disk:@0:40M"};
    static const int engines[] = {KVO_IO_AUTO, KVO_IO_THREADS};
    options.block_bytes = 1000001;
    for (int t = 0; t < 4; t++) {
        options.io_engine = engines[t / 2];
        open_more(tiers[t % 2]);
        for (uint64_t i = 0; i < COUNT; i++)
            assert_int_equal(put(i, lengths[i % 8]), KVO_STORED);
        for (uint64_t i = 0; i < COUNT; i += 2)
            assert_int_equal(drop(i, KVO_WRITTEN), KVO_OK);
        for (uint64_t i = 0; i < COUNT; i += 2) { /* between the ones that are there, of the next length */
            assert_int_equal(put(100 + i, lengths[(i + 3) % 8]), KVO_STORED);
            for (uint64_t k = 1; k < COUNT; k += 2)
                if (k + 2 >= i && k <= i + 2)
                    assert_int_equal(get(k, lengths[k % 8]), KVO_OK);
        }
        assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
        close_store();
        options.flags = KVO_OPEN_READ_ONLY;
        open_more(tiers[t % 2]);
        kvo_verify_result result;
        assert_int_equal(kvo_verify(store, NULL, NULL, &result), KVO_OK);
        assert_int_equal(result.bad, 0);
        assert_int_equal(result.slots, COUNT);
        for (uint64_t i = 0; i < COUNT; i++)
            assert_int_equal(get(i % 2 ? i : 100 + i, lengths[(i % 2 ? i : i + 3) % 8]), KVO_OK);
        close_store();
        options.flags = 0;
        fixture_remove(0);
    }
}

static void puts_neighbours(unsigned number)
{
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t name = i * 4 + number;
        size_t bytes = 4096 * (1 + name % 3) + 1 + name % 777;
        MUST(cases_put(name, bytes, 0, KVO_FOREVER) == KVO_STORED);
        uint64_t last = name - 4;
        MUST(i == 0 || cases_get(last, 4096 * (1 + last % 3) + 1 + last % 777, 0, KVO_FOREVER) == KVO_OK);
    }
}

/* A sibling: writers of slots side by side at the same time. */
static void B112_slots_that_are_written_side_by_side_share_no_page(void **state)
{
    (void)state;
    open_store("disk:@0:300blk");
    cases_threads(4, puts_neighbours);
    for (uint64_t name = 0; name < 240; name++)
        assert_int_equal(get(name, 4096 * (1 + name % 3) + 1 + name % 777), KVO_OK);
    close_store();
}

/* ---- readers ---- */

enum { READERS = 50, COLD = 64, COLD_BYTES = 8192 };
static _Atomic uint64_t all_ok;
static bool overlapping;

static void reads_the_prefix(unsigned number)
{
    uint64_t first = overlapping ? number % 2 * COLD / 2 : 0;
    cases_batch b = cases_batch_make(first, overlapping ? COLD / 2 + COLD / 4 : COLD, COLD_BYTES, false);
    if (first + b.count > COLD)
        b.names.count = b.count = (size_t)(COLD - first);
    MUST(kvo_get(store, &b.names, &b.of, NULL, b.answers) == KVO_OK);
    MUST(cases_batch_count(&b, KVO_OK) == b.count && cases_batch_right(&b, first));
    atomic_fetch_add(&all_ok, 1);
    cases_batch_free(&b);
}

static void read_cold(bool in_halves, int failing)
{
    options.block_bytes = COLD_BYTES;
    overlapping = in_halves;
    open_more("disk:@0:256blk");
    for (uint64_t i = 0; i < COLD; i++)
        assert_int_equal(put(i, COLD_BYTES), KVO_STORED);
    close_store();
    faulty_open("dram:256blk,disk:@0:256blk");
    space = open_space("b", COLD_BYTES);
    atomic_store(&faulty.all_reads, failing);
    atomic_store(&all_ok, 0);
    cases_threads(READERS, reads_the_prefix);
    assert_int_equal(atomic_load(&all_ok), READERS);
    assert_int_equal(tier_stat(1).read_bytes, (COLD + (unsigned)failing) * COLD_BYTES); /* each block once */
    assert_int_equal(tier_stat(1).promotions, COLD);
    close_store();
    fixture_remove(0);
}

static void B115_a_cold_prefix_is_read_once_for_all_who_ask(void **state)
{
    (void)state;
    options.io_engine = KVO_IO_THREADS;
    read_cold(false, 0);
    read_cold(true, 0);
    read_cold(false, 3); /* siblings: who reads it first has trouble; who asked first is cancelled */
}

/* Reads of blocks wait behind a gate. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned at_the_gate;

static void wait_at_the_gate(void)
{
    atomic_fetch_add(&at_the_gate, 1);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

/* The first job is cancelled while its first reads run: these run to their end, its other half is the others'. */
static void B115_who_waits_for_a_reader_that_is_cancelled_is_served(void **state)
{
    (void)state;
    enum { JOBS = 12 };
    kvo_queue *queue;
    kvo_job jobs[JOBS];
    cases_batch batches[JOBS];
    kvo_report report;
    size_t count;
    open_store("disk:@0:256blk");
    assert_int_equal(fill_with(0, COLD, BYTES), COLD);
    close_store();
    options.io_engine = KVO_IO_THREADS;
    faulty_open("dram:256blk,disk:@0:256blk");
    space = open_space("a", BYTES);
    faulty.during = wait_at_the_gate;
    atomic_store(&at_the_gate, 0);
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < JOBS; i++) {
        batches[i] = cases_batch_make(0, COLD, BYTES, false);
        assert_int_equal(kvo_submit_get(queue, &batches[i].names, &batches[i].of, NULL, batches[i].answers, NULL,
                                        &jobs[i]),
                         KVO_OK);
        while (atomic_load(&at_the_gate) == 0) /* those of the first one */
            sched_yield();
    }
    assert_int_equal(kvo_cancel(queue, jobs[0]), KVO_OK);
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(kvo_poll(queue, &report, 1, KVO_FOREVER, &count), KVO_OK);
    size_t begun = cases_batch_count(&batches[0], KVO_OK);
    assert_true(begun > 0 && begun < COLD);
    assert_int_equal(cases_batch_count(&batches[0], KVO_CANCELLED), COLD - begun);
    for (int i = 1; i < JOBS; i++) {
        assert_int_equal(cases_batch_count(&batches[i], KVO_OK), COLD);
        assert_true(cases_batch_right(&batches[i], 0));
    }
    assert_int_equal(tier_stat(1).read_bytes, COLD * BYTES);
    faulty.during = NULL;
    for (int i = 0; i < JOBS; i++)
        cases_batch_free(&batches[i]);
    close_store();
}

/* ---- pieces ---- */

static void in_pieces(uint64_t number, size_t bytes, uint32_t pieces, bool with_empty_ones)
{
    uint32_t each = with_empty_ones ? 2 : 1, n = 0;
    uint8_t *memory = malloc(bytes), *back = malloc(bytes);
    kvo_segment *segments = calloc((size_t)pieces * each, sizeof *segments);
    kvo_answer answer;
    kvo_names names = names_of(number, 1);
    kvo_memory of = {segments, &n};
    payload_make(memory, bytes, number, 0);
    for (int way = 0; way < 2; way++) {
        size_t at = 0;
        n = 0;
        for (uint32_t i = 0; i < pieces; i++) {
            size_t length = bytes * (i + 1) / pieces - at;
            segments[n++] = (kvo_segment){(way ? back : memory) + at, length};
            if (with_empty_ones)
                segments[n++] = (kvo_segment){i % 2 ? NULL : memory, 0};
            at += length;
        }
        if (way == 0)
            assert_int_equal(kvo_put(store, &names, &of, NULL, &answer), KVO_OK);
        else
            assert_int_equal(kvo_get(store, &names, &of, NULL, &answer), KVO_OK);
        assert_int_equal(answer.status, way ? KVO_OK : KVO_STORED);
    }
    assert_memory_equal(memory, back, bytes);
    free(memory);
    free(back);
    free(segments);
}

static void B123_a_block_may_come_in_any_number_of_pieces(void **state)
{
    (void)state;
    static const uint32_t pieces[] = {1, 2, 1024, 1025, 5000};
    static const char *const tiers[] = {"dram:64blk", "disk:@0:64blk", "dram:4blk,disk:@0:64blk"};
    static const int engines[] = {KVO_IO_AUTO, KVO_IO_THREADS};
    for (int t = 0; t < 6; t++) {
        options.io_engine = engines[t / 3];
        open_store(tiers[t % 3]);
        for (uint64_t i = 0; i < 5; i++)
            for (uint64_t k = 0; k < 2; k++) {
                in_pieces(i * 10 + k, BYTES, pieces[i], k);
                in_pieces(i * 10 + 5 + k, 5000, pieces[i], k); /* a byte each */
            }
        close_store();
        fixture_remove(0);
    }
}

/* A sibling: a batch of 2,000 blocks, which a device may be given at once. */
static void B123_a_batch_may_have_any_number_of_small_blocks(void **state)
{
    (void)state;
    static const char *const tiers[] = {"dram:300blk,disk:@0:300blk", "disk:@0:300blk"};
    options.blocks_max = 2500;
    for (int t = 0; t < 2; t++) {
        open_store(tiers[t]);
        cases_batch b = cases_batch_make(0, 2000, 700, true);
        assert_int_equal(kvo_put(store, &b.names, &b.of, NULL, b.answers), KVO_OK);
        assert_int_equal(cases_batch_count(&b, KVO_STORED), 2000);
        memset(b.memory, 0, b.count * b.bytes);
        assert_int_equal(kvo_get(store, &b.names, &b.of, NULL, b.answers), KVO_OK);
        assert_int_equal(cases_batch_count(&b, KVO_OK), 2000);
        assert_true(cases_batch_right(&b, 0));
        cases_batch_free(&b);
        close_store();
        fixture_remove(0);
    }
}

/* ---- hits beside writes ---- */

enum { RESIDENT = 100 };
static uint64_t patience_ns; /* for a block that others move */

static void hits_or_writes(unsigned number)
{
    if (number >= 4) {
        for (uint64_t i = 0; i < 60; i++)
            MUST(cases_put(10000 * (uint64_t)number + i, BYTES, 0, KVO_FOREVER) == KVO_STORED);
        return;
    }
    for (int round = 0; round < 8; round++)
        for (uint64_t i = 0; i < RESIDENT; i++) {
            MUST(exists((i * 7 + number) % RESIDENT, NULL) == KVO_OK);
            MUST(cases_get((i * 7 + number) % RESIDENT, BYTES, 0, patience_ns) == KVO_OK);
        }
}

static void B130_what_is_resident_is_a_hit_while_others_write(void **state)
{
    (void)state;
    static const char *const tiers[] = {"dram:400blk", "disk:@0:400blk", "dram:150blk,disk:@1:600blk"};
    for (int t = 0; t < 3; t++) { /* siblings: on a disk; where the writers make blocks of the readers move */
        with_mover = t == 2;
        patience_ns = t == 2 ? KVO_FOREVER : 0;
        open_store(tiers[t]);
        assert_int_equal(fill_with(0, RESIDENT, BYTES), RESIDENT);
        cases_threads(8, hits_or_writes);
        assert_int_equal(store_stat().get_misses, 0);
        close_store();
    }
}

/* ---- what leaves meanwhile ---- */

static void gets_and_puts(unsigned number)
{
    uint64_t random = cases_seed() + number;
    for (int i = 0; i < (TEST_SANITIZES ? 300 : 1500); i++) {
        uint64_t name = cases_draw(&random, 8);
        int status = number % 2 ? cases_put(name, BYTES, 0, 1000000) : cases_get(name, BYTES, 0, 1000000);
        MUST(status == KVO_OK || status == KVO_STORED || status == KVO_EXISTS || status == KVO_MISS ||
             status == KVO_BUSY || status == KVO_FULL);
    }
}

/* A sibling of one in cases_eviction: the block that is evicted is on its way up, for somebody else. */
static void B061_what_is_being_promoted_may_be_evicted(void **state)
{
    (void)state;
    with_mover = true;
    open_store("dram:2blk,disk:@0:4blk");
    cases_threads(4, gets_and_puts);
    check_valid();
    kvo_close(store, KVO_FOREVER);
    store = NULL;
}

static void overwrites_or_reads(unsigned number)
{
    uint64_t random = cases_seed() * 7 + number;
    for (int i = 0; i < (TEST_SANITIZES ? 200 : 1000); i++) {
        uint64_t name = cases_draw(&random, 48);
        int status = number < 2 ? cases_put(name, BYTES, 0, 1000000000u) : cases_get(name, BYTES, 0, 1000000000u);
        MUST(status != KVO_SIZE && status < KVO_E_ARGUMENT);
    }
}

static void B111_a_slot_that_others_have_meanwhile_is_a_miss(void **state)
{
    (void)state;
    static const char *const tiers[] = {"disk:@0:16blk", "dram:2blk,disk:@0:16blk"};
    for (int t = 0; t < 2; t++) {
        with_mover = t;
        open_store(tiers[t]);
        cases_threads(6, overwrites_or_reads);
        assert_int_equal(store_stat().digest_misses, 0); /* it is noticed before, not by luck */
        assert_true(cases_evictions(store_stat().present_tier_count - 1) > 100);
        check_valid(); /* used bytes are a recount */
        close_store();
        fixture_remove(0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(B034_sessions_that_come_back_get_their_own_bytes),
        FIXTURE_TEST(B085_a_batch_with_names_that_are_there_or_come_twice_stores_the_rest),
        FIXTURE_TEST(B085_what_is_wrong_with_one_of_a_batch_is_its_own),
        FIXTURE_TEST(B112_an_odd_length_leaves_its_neighbours_as_they_were),
        FIXTURE_TEST(B112_slots_that_are_written_side_by_side_share_no_page),
        FIXTURE_TEST(B115_a_cold_prefix_is_read_once_for_all_who_ask),
        FIXTURE_TEST(B115_who_waits_for_a_reader_that_is_cancelled_is_served),
        FIXTURE_TEST(B123_a_block_may_come_in_any_number_of_pieces),
        FIXTURE_TEST(B123_a_batch_may_have_any_number_of_small_blocks),
        FIXTURE_TEST(B061_what_is_being_promoted_may_be_evicted),
        FIXTURE_TEST(B111_a_slot_that_others_have_meanwhile_is_a_miss),
        FIXTURE_TEST(B130_what_is_resident_is_a_hit_while_others_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
