/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk is full, and then it is not: file systems of a few MiB, filled from outside. Space is taken as it is written
 * (a file system without fallocate()), or it could not run out in the middle of a write. For root, who may mount.
 */
#include "store/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "loop.h"

#define MS 1000000u

enum { CYCLES = 20 };
static const size_t bytes = 65536;

/* ---- a small file system at fixture_path(3); the store is in it ---- */

static char tiers_text[256];

static const char *on_mounted(const char *before, const char *behind)
{
    snprintf(tiers_text, sizeof tiers_text, "%s%s/store%s", before, fixture_path(3), behind);
    return tiers_text;
}

static void mount_small(bool ext4, const char *options_of_mkfs)
{
    char image[160];
    assert_int_equal(mkdir(fixture_path(3), 0700), 0);
    if (!ext4) {
        assert_int_equal(mount("none", fixture_path(3), "tmpfs", 0, "size=24m"), 0);
        return;
    }
    snprintf(image, sizeof image, "%s.image", fixture_path(3));
    assert_true(loop_make(image, 32, options_of_mkfs));
    assert_true(loop_mount(image, fixture_path(3)));
}

static void unmount_small(void) { assert_true(loop_unmount(fixture_path(3))); }

static int teardown(void **state)
{
    machine_go_on();
    kvo_close(store, 0);
    store = NULL;
    umount2(fixture_path(3), MNT_DETACH);
    return fixture_teardown(state);
}

static const char *filler(void)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/filler", fixture_path(3));
    return path;
}

/* Somebody else takes all that is left, but for `left` bytes. */
static void fill_disk(size_t left)
{
    static const uint8_t page[4096] = {1};
    struct statvfs about;
    int file = open(filler(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(statvfs(fixture_path(3), &about), 0);
    uint64_t free_bytes = (uint64_t)about.f_bavail * about.f_bsize;
    for (uint64_t n = 0; n + left < free_bytes; n += sizeof page)
        if (write(file, page, sizeof page) < 0)
            break;
    if (left == 0)
        while (write(file, page, sizeof page) > 0) {}
    assert_int_equal(fsync(file), 0);
    close(file);
}

static void free_disk(void) { assert_int_equal(unlink(filler()), 0); }

static int put_at(uint64_t number, int level, uint64_t deadline_ns, kvo_answer *answer)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = level;
    o.deadline_ns = deadline_ns;
    return put_as(number, bytes, 0, &o, answer);
}

static bool says_no_room(int status) { return status == KVO_FULL || status == KVO_BUSY || status == KVO_SHORT; }

/* ---- full in the middle of a write, and freed again ---- */

typedef struct tally {
    uint64_t next;
    bool stored[2000];
    unsigned refused, freed, served;
} tally;

static int put_one(tally *t, uint64_t deadline_ns)
{
    int status = put_at(t->next, KVO_WRITTEN, deadline_ns, NULL);
    t->stored[t->next++] = status == KVO_STORED;
    return status;
}

/* What is there is served, from disk and from memory, whatever a write does. */
static void read_all(tally *t)
{
    for (uint64_t i = 0; i < t->next; i++) {
        int status = get(i, bytes);
        assert_true(status == KVO_OK || (status == KVO_MISS && !t->stored[i]));
        t->served += status == KVO_OK;
    }
}

static void one_cycle(tally *t)
{
    unsigned refused = 0;
    fill_disk(3 * bytes + 20000); /* the third or fourth block ends in the middle */
    for (int i = 0; i < 40 && refused < 3; i++) {
        int status = put_one(t, 100 * MS);
        if (status != KVO_STORED)
            assert_true(says_no_room(status));
        refused += status != KVO_STORED;
    }
    assert_int_equal(refused, 3);
    t->refused += refused;
    read_all(t);
    free_disk();
    /* No restart, and nothing remembered: the device is asked again. */
    int status = KVO_BUSY;
    for (int i = 0; i < 100 && status != KVO_STORED; i++)
        status = put_one(t, 1000 * MS);
    assert_int_equal(status, KVO_STORED);
    t->freed++;
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, 10000 * MS, NULL), KVO_OK);
    check_valid();
}

static void full_and_freed(bool ext4, const char *before)
{
    tally t = {.next = 0};
    mount_small(ext4, "-m 0");
    with_mover = true;
    options.write_out_ns = 5 * MS;
    machine_open(on_mounted(before, ":16M"), true);
    for (int i = 0; i < CYCLES; i++)
        one_cycle(&t);
    printf("%s on %s: full and freed %u times, %u puts told so, %u blocks read\n", before, ext4 ? "ext4" : "tmpfs",
           t.freed, t.refused, t.served);
    close_store();
    machine_open(on_mounted(before, ""), true);
    read_all(&t);
    assert_int_equal(store_stat().digest_misses, 0);
    close_store();
    unmount_small();
}

static void b018_a_full_tmpfs_below_memory_is_asked_again(void **state)
{
    (void)state;
    full_and_freed(false, "dram:16blk,disk:");
}

static void b018_a_full_tmpfs_alone_is_asked_again(void **state)
{
    (void)state;
    full_and_freed(false, "disk:");
}

static void b018_a_full_ext4_below_memory_is_asked_again(void **state)
{
    (void)state;
    full_and_freed(true, "dram:16blk,disk:");
}

static void b018_a_full_ext4_alone_is_asked_again(void **state)
{
    (void)state;
    full_and_freed(true, "disk:");
}

/* ---- full when it is opened ---- */

static void b079_an_open_without_room_leaves_nothing_in_the_way(void **state)
{
    (void)state;
    kvo_error error;
    mount_small(true, "-m 0");
    for (int i = 0; i < 5; i++) {
        fill_disk(i % 2 ? 0 : 100000);
        assert_int_equal(kvo_open(on_mounted("disk:", ":4M"), NULL, &store, &error), KVO_E_NO_SPACE);
        assert_non_null(strstr(error.text, fixture_path(3)));
        free_disk();
        assert_int_equal(kvo_open(on_mounted("disk:", ":4M"), &options, &store, &error), KVO_OK);
        space = open_space("a", bytes);
        assert_int_equal(put_at(1, KVO_SAFE, KVO_FOREVER, NULL), KVO_STORED);
        close_store();
        /* One that is there opens on a full disk too, and serves. */
        fill_disk(0);
        assert_int_equal(kvo_open(on_mounted("disk:", ""), &options, &store, &error), KVO_OK);
        space = open_space("a", bytes);
        assert_int_equal(get(1, bytes), KVO_OK);
        kvo_close(store, KVO_FOREVER);
        free_disk();
        char command[200];
        snprintf(command, sizeof command, "rm -rf '%s/store'", fixture_path(3));
        assert_int_equal(system(command), 0);
    }
    store = NULL;
    unmount_small();
}

/* ---- others on the same file system ---- */

static void b074_nobody_elses_room_is_taken(void **state)
{
    (void)state;
    kvo_error error;
    struct statvfs before, after;
    mount_small(true, "-m 0");
    assert_int_equal(kvo_open(on_mounted("disk:", ""), &options, &store, &error), KVO_E_ARGUMENT); /* no bound */
    options.block_bytes = bytes;
    assert_int_equal(try_open(on_mounted("dram:8blk,disk:", ":8M"), &error), KVO_OK);
    space = open_space("a", bytes);
    assert_int_equal(put_at(0, KVO_SAFE, KVO_FOREVER, NULL), KVO_STORED);
    assert_int_equal(statvfs(fixture_path(3), &before), 0);
    for (uint64_t i = 1; i < 1280; i++) /* ten times as much as it holds */
        assert_int_equal(put_at(i, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_STORED);
    assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
    assert_int_equal(statvfs(fixture_path(3), &after), 0);
    assert_true((before.f_bavail - after.f_bavail) * before.f_bsize < 256 * 1024); /* policies and ledger */
    close_store();
    unmount_small();
}

static void b078_blocks_cost_no_inodes(void **state)
{
    (void)state;
    kvo_error error;
    struct statvfs before, after;
    mount_small(true, "-N 64");
    options.block_bytes = 4096;
    assert_int_equal(kvo_open(on_mounted("disk:", ":16M"), &options, &store, &error), KVO_OK);
    space = open_space("a", 4096);
    assert_int_equal(statvfs(fixture_path(3), &before), 0);
    size_t stored = 0;
    for (uint64_t i = 0; i < 5000; i++)
        stored += put(i, 4096) == KVO_STORED;
    assert_int_equal(stored, 5000);
    assert_int_equal(statvfs(fixture_path(3), &after), 0);
    assert_int_equal(before.f_ffree, after.f_ffree);
    close_store();
    unmount_small();
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fixture_setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(b018_a_full_tmpfs_below_memory_is_asked_again),
        TEST(b018_a_full_tmpfs_alone_is_asked_again),
        TEST(b018_a_full_ext4_below_memory_is_asked_again),
        TEST(b018_a_full_ext4_alone_is_asked_again),
        TEST(b079_an_open_without_room_leaves_nothing_in_the_way),
        TEST(b074_nobody_elses_room_is_taken),
        TEST(b078_blocks_cost_no_inodes),
    };
    const char *why = loop_ready();
    if (why) {
        printf("skipped: %s\n", why);
        return TEST_SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
