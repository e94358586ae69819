/* SPDX-License-Identifier: Apache-2.0 */
/* Between the caller's memory and media: what goes straight and what goes through staging, how often a
   payload is copied and asked for, and what happens to a batch when something goes wrong in its middle. */
#include "faulty.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { BLOCKS = 80, CUTS = 12 };

/* A payload in memory of its own, cut into segments. */
typedef struct shape {
    const char *name;
    size_t bytes;
    size_t off;        /* from a page's begin to each segment's */
    size_t cuts[CUTS]; /* bytes of segments but the last; 0 ends */
    bool straight;     /* to and from a disk */
} shape;

static const shape shapes[] = {
    {"whole pages", 65536, 0, {0}, true},
    {"no alignment", 65536, 1, {0}, false},
    {"an end inside a page", 65536 + 777, 0, {0}, true},
    {"less than a page", 100, 0, {0}, true},
    {"one byte", 1, 1, {0}, false},
    {"segments of pages", 8 * 4096, 0, {4096, 8192, 4096}, true},
    {"eight segments and an end", 9 * 4096 + 5, 0, {4096, 4096, 4096, 4096, 4096, 4096, 4096}, true},
    {"nine segments", 9 * 4096, 0, {4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096}, false},
    {"a segment that ends inside a page", 65536, 0, {4096, 1000, 4096}, false},
    {"odd, anywhere", 65537, 1, {17, 4096, 1}, false},
};

#define SHAPES (sizeof shapes / sizeof *shapes)

typedef struct cut {
    uint8_t *memory;
    kvo_segment segments[2 * CUTS];
    uint32_t count;
} cut;

static cut cut_make(const shape *what)
{
    cut c = {.memory = aligned_alloc(4096, 64 * 4096)};
    size_t at = 0, left = what->bytes;
    for (int i = 0; left; i++) {
        size_t n = what->cuts[i] && what->cuts[i] < left ? what->cuts[i] : left;
        c.segments[c.count++] = (kvo_segment){c.memory + at + what->off, n};
        c.segments[c.count++] = (kvo_segment){NULL, 0}; /* empty ones count for nothing */
        at = (at + what->off + n + 4095) / 4096 * 4096;
        left -= n;
    }
    return c;
}

static void cut_fill(cut *c, size_t bytes, uint64_t number)
{
    uint8_t *flat = malloc(bytes), *at = flat;
    payload_make(flat, bytes, number, 0);
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->segments[i].bytes)
            memcpy(c->segments[i].base, at, c->segments[i].bytes);
        at += c->segments[i].bytes;
    }
    free(flat);
}

static int cut_is(const cut *c, size_t bytes, uint64_t number)
{
    uint8_t *flat = malloc(bytes), *at = flat;
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->segments[i].bytes)
            memcpy(at, c->segments[i].base, c->segments[i].bytes);
        at += c->segments[i].bytes;
    }
    int same = payload_is(flat, bytes, number, 0);
    free(flat);
    return same;
}

static int put_cut(const cut *c, uint64_t number)
{
    kvo_answer answer;
    kvo_memory memory = {c->segments, &c->count};
    kvo_names names = names_of(number, 1);
    assert_int_equal(kvo_put(store, &names, &memory, NULL, &answer), KVO_OK);
    return answer.status;
}

static int get_cut(const cut *c, uint64_t number)
{
    kvo_answer answer;
    kvo_memory memory = {c->segments, &c->count};
    kvo_names names = names_of(number, 1);
    assert_int_equal(kvo_get(store, &names, &memory, NULL, &answer), KVO_OK);
    return answer.status;
}

/* ---- shapes ---- */

static void open_shapes(const char *tiers, int engine)
{
    options.io_engine = engine;
    options.block_bytes = 131072;
    if (engine == MOVE_SIMULATED)
        faulty_open(tiers);
    else
        open_store(tiers);
    space = open_space("b", 131072);
}

static void round_trips(const char *tiers, int engine, bool memory_first)
{
    open_shapes(tiers, engine);
    bool direct = !memory_first && tier_stat(0).direct_io;
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *what = &shapes[i];
        cut c = cut_make(what);
        kvo_stat before = store_stat();
        cut_fill(&c, what->bytes, i);
        assert_int_equal(put_cut(&c, i), KVO_STORED);
        assert_int_equal(put_cut(&c, i), KVO_EXISTS);
        for (uint32_t k = 0; k < c.count; k++)
            if (c.segments[k].bytes)
                memset(c.segments[k].base, 0xee, c.segments[k].bytes);
        assert_int_equal(get_cut(&c, i), KVO_OK);
        assert_true(cut_is(&c, what->bytes, i));
        kvo_stat after = store_stat();
        uint64_t copies = after.payload_copies - before.payload_copies;
        if (memory_first || direct)
            assert_int_equal(copies, !memory_first && what->straight ? 0 : 2);
        if (!memory_first) {
            assert_int_equal(after.transfers - before.transfers, 2);
            assert_int_equal(after.submissions - before.submissions, 2);
        }
        assert_int_equal(after.digest_conflicts, 0);
        free(c.memory);
    }
    close_store();
    open_shapes(tiers, engine == MOVE_SIMULATED ? engine : KVO_IO_THREADS); /* and each other's */
    for (size_t i = 0; i < SHAPES; i++) {
        cut c = cut_make(&shapes[i]);
        assert_int_equal(get_cut(&c, i), KVO_OK);
        assert_true(cut_is(&c, shapes[i].bytes, i));
        free(c.memory);
    }
    close_store();
    fixture_remove(0);
}

static void every_shape_of_memory_comes_back_and_is_copied_as_often_as_said(void **state)
{
    (void)state;
    const int engines[] = {KVO_IO_AUTO, KVO_IO_THREADS, MOVE_SIMULATED};
    for (size_t i = 0; i < 3; i++) {
        round_trips("disk:@0:20M", engines[i], false);
        round_trips("dram:20M,disk:@0:20M", engines[i], true);
    }
}

/* ---- batches ---- */

static uint8_t *batch_memory(size_t count, size_t bytes, kvo_segment *segments, uint64_t first)
{
    uint8_t *memory = aligned_alloc(4096, count * 65536);
    for (size_t i = 0; i < count; i++) {
        segments[i] = (kvo_segment){memory + i * 65536 + 65536 - bytes, bytes};
        payload_make(segments[i].base, bytes, first + i, 0);
    }
    return memory;
}

static size_t count_of(const kvo_answer *answers, size_t count, int status)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += answers[i].status == status;
    return n;
}

/* The disk is smaller than the batch: its own blocks on their way are victims too, once they have landed. */
static void a_batch_larger_than_the_disk_goes_through(void **state)
{
    (void)state;
    kvo_segment segments[BLOCKS];
    kvo_answer answers[BLOCKS];
    uint8_t *memory = batch_memory(BLOCKS, 65536, segments, 0);
    open_store("disk:@0:8blk");
    kvo_names names = names_of(0, BLOCKS);
    kvo_memory of = {segments, NULL};
    assert_int_equal(kvo_put(store, &names, &of, NULL, answers), KVO_OK);
    assert_int_equal(count_of(answers, BLOCKS, KVO_STORED), BLOCKS);
    check_valid();
    close_store();
    free(memory);
}

static void a_name_twice_in_a_batch_exists_the_second_time(void **state)
{
    (void)state;
    enum { COUNT = 20 };
    const uint64_t deadlines[] = {0, 1000000000};
    for (int way = 0; way < 2; way++) {
        kvo_segment segments[COUNT];
        kvo_answer answers[COUNT];
        uint8_t bytes[COUNT][NAME_BYTES];
        uint8_t *memory = batch_memory(COUNT, way ? 65535 : 65536, segments, 0);
        kvo_put_options o = KVO_PUT_OPTIONS_INIT;
        open_store("disk:@0:64blk");
        kvo_names names = {.first = bytes, .name_bytes = NAME_BYTES, .count = COUNT, .space = space};
        for (uint64_t i = 0; i < COUNT; i++)
            name_of(i / 2, bytes[i]);
        o.deadline_ns = deadlines[way];
        kvo_memory of = {segments, NULL};
        assert_int_equal(kvo_put(store, &names, &of, &o, answers), KVO_OK);
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(answers[i].status, i % 2 ? KVO_EXISTS : KVO_STORED);
            assert_true(answers[i].handle == answers[i & ~(size_t)1].handle);
        }
        assert_int_equal(store_stat().digest_conflicts, COUNT / 2);
        close_store();
        fixture_remove(0);
        free(memory);
    }
}

/* Some writes of a batch fail; each answer says how its own block fared, and nothing else suffers. */
static void a_write_that_fails_in_a_batch_costs_its_block_alone(void **state)
{
    (void)state;
    const int engines[] = {KVO_IO_THREADS, MOVE_SIMULATED};
    for (int way = 0; way < 4; way++) {
        kvo_segment segments[BLOCKS];
        kvo_answer answers[BLOCKS];
        uint8_t *memory = batch_memory(BLOCKS, way & 1 ? 65535 : 65536, segments, 0);
        options.io_engine = engines[way / 2];
        faulty_open("disk:@0:200blk");
        kvo_names names = names_of(0, BLOCKS);
        kvo_memory of = {segments, NULL};
        atomic_store(&faulty.block_writes, 5);
        assert_int_equal(kvo_put(store, &names, &of, NULL, answers), KVO_OK);
        assert_int_equal(count_of(answers, BLOCKS, KVO_E_IO), 5);
        assert_int_equal(count_of(answers, BLOCKS, KVO_STORED), BLOCKS - 5);
        for (size_t i = 0; i < BLOCKS; i++)
            assert_int_equal(exists(i, NULL), answers[i].status == KVO_STORED ? KVO_OK : KVO_MISS);
        assert_int_equal(tier_stat(0).io_errors, 5);
        check_valid();
        names = names_of(0, BLOCKS);
        assert_int_equal(kvo_put(store, &names, &of, NULL, answers), KVO_OK);
        assert_int_equal(count_of(answers, BLOCKS, KVO_STORED), 5);
        assert_int_equal(count_of(answers, BLOCKS, KVO_EXISTS), BLOCKS - 5);
        close_store();
        options.io_engine = KVO_IO_AUTO;
        open_store("disk:@0:200blk");
        for (size_t i = 0; i < BLOCKS; i++)
            assert_int_equal(get(i, way & 1 ? 65535 : 65536), KVO_OK);
        close_store();
        fixture_remove(0);
        free(memory);
    }
}

static void reads_that_fail_once_in_a_batch_are_read_again(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        kvo_segment segments[BLOCKS];
        kvo_answer answers[BLOCKS];
        uint8_t *memory = batch_memory(BLOCKS, way ? 65535 : 65536, segments, 0);
        kvo_names names = names_of(0, BLOCKS);
        kvo_memory of = {segments, NULL};
        options.io_engine = MOVE_SIMULATED;
        faulty_open("disk:@0:200blk");
        assert_int_equal(kvo_put(store, &names, &of, NULL, answers), KVO_OK);
        memset(memory, 0, BLOCKS * 65536);
        atomic_store(&faulty.block_reads, 3);
        names = names_of(0, BLOCKS);
        assert_int_equal(kvo_get(store, &names, &of, NULL, answers), KVO_OK);
        /* The same block may have met two of them. */
        assert_in_range(count_of(answers, BLOCKS, KVO_OK), BLOCKS - 1, BLOCKS);
        for (size_t i = 0; i < BLOCKS; i++)
            if (answers[i].status == KVO_OK)
                assert_true(payload_is(segments[i].base, segments[i].bytes, i, 0));
        check_valid();
        close_store();
        fixture_remove(0);
        free(memory);
    }
}

/* Reservations are written from where they were filled. */
static void seals_of_a_batch_copy_nothing(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    kvo_reservation reservations[COUNT];
    kvo_answer answers[COUNT];
    uint32_t bytes[COUNT];
    open_store("disk:@0:100blk");
    kvo_names names = names_of(0, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        bytes[i] = (uint32_t)(65536 - i * 7);
    assert_int_equal(kvo_reserve(store, &names, bytes, NULL, reservations, answers), KVO_OK);
    for (size_t i = 0; i < COUNT; i++)
        payload_make(reservations[i].memory, bytes[i], i, 0);
    reservations[7].memory = NULL; /* the store knows where it was */
    assert_int_equal(kvo_seal(store, reservations, COUNT, KVO_WRITTEN, KVO_FOREVER, answers), KVO_OK);
    assert_int_equal(count_of(answers, COUNT, KVO_STORED), COUNT);
    assert_int_equal(store_stat().payload_copies, 0);
    assert_int_equal(kvo_seal(store, reservations, COUNT, KVO_SEALED, 0, answers), KVO_OK);
    assert_int_equal(count_of(answers, COUNT, KVO_GONE), COUNT);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(get(i, bytes[i]), KVO_OK);
    close_store();
}

/* More in flight than the bound lets: it takes longer, that is all. */
static void a_small_bound_of_bytes_in_flight_is_enough(void **state)
{
    (void)state;
    kvo_segment segments[BLOCKS];
    kvo_answer answers[BLOCKS];
    options.flight_bytes = 1;
    for (int way = 0; way < 2; way++) {
        uint8_t *memory = batch_memory(BLOCKS, way ? 65535 : 65536, segments, 0);
        open_store("disk:@0:40blk,disk:@1:200blk");
        kvo_names names = names_of(0, BLOCKS);
        kvo_memory of = {segments, NULL};
        assert_int_equal(kvo_put(store, &names, &of, NULL, answers), KVO_OK);
        assert_int_equal(count_of(answers, BLOCKS, KVO_STORED), BLOCKS);
        assert_int_equal(kvo_get(store, &names, &of, NULL, answers), KVO_OK);
        assert_int_equal(count_of(answers, BLOCKS, KVO_OK), BLOCKS);
        close_store();
        fixture_remove(0);
        fixture_remove(1);
        free(memory);
    }
}

/* ---- memory that the device cannot use ---- */

/* Read-only memory as a source is fine; none as a destination is the caller's fault and costs no copy. */
static void memory_that_cannot_be_written_is_a_source(void **state)
{
    (void)state;
    uint8_t *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    kvo_segment segment = {memory, 65536};
    kvo_memory of = {&segment, NULL};
    kvo_answer answer;
    open_store("disk:@0:64blk");
    kvo_names names = names_of(5, 1);
    payload_make(memory, 65536, 5, 0);
    assert_int_equal(mprotect(memory, 65536, PROT_READ), 0);
    assert_int_equal(kvo_put(store, &names, &of, NULL, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_STORED);
    munmap(memory, 65536);
    assert_int_equal(get(5, 65536), KVO_OK);
    close_store();
}

static int setup(void **state)
{
    int r = fixture_setup(state);
    with_mover = true; /* a stepped store has one put in flight */
    return r;
}

#define STRAIGHT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STRAIGHT_TEST(every_shape_of_memory_comes_back_and_is_copied_as_often_as_said),
        STRAIGHT_TEST(a_batch_larger_than_the_disk_goes_through),
        STRAIGHT_TEST(a_name_twice_in_a_batch_exists_the_second_time),
        STRAIGHT_TEST(a_write_that_fails_in_a_batch_costs_its_block_alone),
        STRAIGHT_TEST(reads_that_fail_once_in_a_batch_are_read_again),
        STRAIGHT_TEST(seals_of_a_batch_copy_nothing),
        STRAIGHT_TEST(a_small_bound_of_bytes_in_flight_is_enough),
        STRAIGHT_TEST(memory_that_cannot_be_written_is_a_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
