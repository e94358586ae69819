/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated medium itself: that it loses, keeps and tears what it says. */
#include "medium.h"
#include "test.h"

#include <errno.h>

static sim_medium m, cut;

static int setup(void **state)
{
    (void)state;
    sim_open(&m, 1);
    sim_open(&cut, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sim_close(&m);
    sim_close(&cut);
    return 0;
}

static int create(const char *path)
{
    int file;
    assert_int_equal(m.env.open(&m.env, path, BASE_OPEN_CREATE, &file, NULL), 0);
    return file;
}

static ssize_t write_at(int file, uint8_t value, size_t bytes, uint64_t offset)
{
    static uint8_t memory[65536];
    memset(memory, value, bytes);
    struct iovec iov = {memory, bytes};
    return m.env.write(&m.env, file, &iov, 1, offset);
}

/* How many units of so many bytes have this value throughout; `mixed` counts those that have several. */
static unsigned units_of(sim_medium *from, uint8_t value, size_t unit, unsigned *mixed)
{
    const sim_file *f = sim_image_find(&from->now, "/f");
    unsigned count = 0;
    for (uint64_t at = 0; f && at + unit <= f->size; at += unit) {
        bool same = memcmp(f->bytes + at, f->bytes + at + 1, unit - 1) == 0;
        count += same && f->bytes[at] == value;
        *mixed += !same;
    }
    return count;
}

enum { TRIES = 2000 };

static int durable_file(void)
{
    int file = create("/f");
    assert_int_equal(write_at(file, 1, 8 * 4096, 0), 8 * 4096);
    assert_int_equal(m.env.flush(&m.env, file), 0);
    assert_int_equal(m.env.flush_directory(&m.env, "/"), 0);
    return file;
}

static void what_is_flushed_stays(void **state)
{
    (void)state;
    durable_file();
    for (unsigned i = 0; i < TRIES; i++) {
        unsigned mixed = 0;
        sim_power_cut(&cut, &m, m.log_count, i);
        assert_int_equal(units_of(&cut, 1, 4096, &mixed), 8);
    }
}

static void what_is_not_is_lost_kept_torn_and_reordered(void **state)
{
    (void)state;
    unsigned none = 0, all = 0, torn = 0, sectors = 0, reordered = 0;
    int file = durable_file();
    write_at(file, 2, 2 * 4096, 0);
    write_at(file, 3, 2 * 4096, 0);
    for (unsigned i = 0; i < TRIES; i++) {
        unsigned mixed = 0, ignored = 0;
        sim_power_cut(&cut, &m, m.log_count, i);
        unsigned old = units_of(&cut, 1, 4096, &mixed), first = units_of(&cut, 2, 4096, &ignored);
        unsigned second = units_of(&cut, 3, 4096, &ignored);
        none += old == 8;
        all += second == 2;
        torn += mixed == 0 && old == 7;
        sectors += mixed != 0;
        reordered += first == 2;
        assert_true(mixed == 0 || cut.torn);
        ignored = 0;
        units_of(&cut, 1, 512, &ignored);
        assert_int_equal(ignored, 0); /* a sector is whole */
    }
    assert_true(none && all && torn && sectors && reordered);
}

static void a_process_that_dies_leaves_what_was_complete(void **state)
{
    (void)state;
    unsigned part = 0;
    int file = durable_file();
    write_at(file, 2, 4096, 0);
    size_t point = m.log_count;
    write_at(file, 3, 2 * 4096, 2 * 4096);
    for (unsigned i = 0; i < TRIES; i++) {
        unsigned mixed = 0;
        sim_die(&cut, &m, point, i);
        assert_int_equal(units_of(&cut, 2, 4096, &mixed), 1);
        part += mixed != 0;
        assert_int_equal(cut.boot, m.boot);
        /* It is as volatile as it was. */
        sim_medium later;
        sim_open(&later, i);
        sim_power_cut(&later, &cut, cut.log_count, i);
        assert_int_equal(later.boot, m.boot + 1);
        sim_close(&later);
    }
    assert_true(part > 0);
}

static void entries_need_their_directory_flushed(void **state)
{
    (void)state;
    unsigned lost = 0, kept = 0, inner = 0;
    int file = create("/f");
    write_at(file, 1, 4096, 0);
    m.env.flush(&m.env, file);
    assert_int_equal(m.env.make_directory(&m.env, "/d"), 0);
    create("/d/g");
    m.env.flush_directory(&m.env, "/d");
    for (unsigned i = 0; i < TRIES; i++) {
        sim_power_cut(&cut, &m, m.log_count, i);
        sim_file *f = sim_image_find(&cut.now, "/f");
        lost += f == NULL;
        kept += f != NULL;
        assert_true(sim_image_find(&cut.now, "/d") != NULL || sim_image_find(&cut.now, "/d/g") == NULL);
        inner += sim_image_find(&cut.now, "/d/g") != NULL;
    }
    assert_true(lost && kept && inner && inner < TRIES);
}

static void a_crash_stops_everything(void **state)
{
    (void)state;
    uint64_t bytes;
    int file = durable_file();
    m.crash_at = m.log_count + 1;
    assert_int_equal(write_at(file, 2, 4096, 0), 4096);
    assert_int_equal(write_at(file, 3, 4096, 0), -EIO);
    assert_int_equal(m.env.flush(&m.env, file), -EIO);
    assert_int_equal(m.env.file_bytes(&m.env, file, &bytes), -EIO);
    assert_true(m.dead);
}

static void faults_fall_as_often_as_asked(void **state)
{
    (void)state;
    int file = durable_file();
    uint64_t before = m.env.now_ns(&m.env);
    unsigned failed = 0, full = 0, shorter = 0;
    m.faults = (sim_faults){.write_errors = 100, .no_space = 100, .short_writes = 100, .delays = 100};
    for (unsigned i = 0; i < TRIES; i++) {
        ssize_t n = write_at(file, 4, 4096, 0);
        failed += n == -EIO;
        full += n == -ENOSPC;
        shorter += n >= 0 && n < 4096;
    }
    assert_true(failed > 100 && full > 100 && shorter > 100 && m.counts.delays > 100);
    assert_true(m.env.now_ns(&m.env) - before > 1000000000u);
    m.lost = true;
    assert_int_equal(write_at(file, 4, 4096, 0), -EIO);
    m.lost = false;
    m.faults = (sim_faults){0};
    assert_int_equal(write_at(file, 4, 4096, 0), 4096);
}

static void the_same_seed_gives_the_same_image(void **state)
{
    (void)state;
    int file = durable_file();
    for (uint8_t i = 2; i < 20; i++)
        write_at(file, i, 8 * 4096, 0);
    for (unsigned i = 0; i < 200; i++) {
        sim_medium again;
        sim_open(&again, 9);
        sim_power_cut(&cut, &m, m.log_count, i);
        sim_power_cut(&again, &m, m.log_count, i);
        sim_file *a = sim_image_find(&cut.now, "/f"), *b = sim_image_find(&again.now, "/f");
        assert_int_equal(a->size, b->size);
        assert_memory_equal(a->bytes, b->bytes, a->size);
        sim_close(&again);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_flushed_stays),
        TEST(what_is_not_is_lost_kept_torn_and_reordered),
        TEST(a_process_that_dies_leaves_what_was_complete),
        TEST(entries_need_their_directory_flushed),
        TEST(a_crash_stops_everything),
        TEST(faults_fall_as_often_as_asked),
        TEST(the_same_seed_gives_the_same_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
