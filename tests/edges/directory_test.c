/* SPDX-License-Identifier: Apache-2.0 */
/* Directories as people leave them, and machines that differ from this one: another file system, another limit, too
   many stores. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"
#include "tier/disk/format.h"

static const char tiers[] = "disk:@0:16blk";

static void make_store(uint64_t blocks)
{
    open_store(tiers);
    assert_int_equal(fill_with(1, blocks, 65536), blocks);
    close_store();
}

static const char *file_of(const char *name)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", fixture_path(0), name);
    return path;
}

static void refuse(uint32_t flags, int want, const char *what)
{
    kvo_error error = {{0}};
    options.flags = flags;
    int r = try_open(tiers, &error);
    if (r != want || strstr(error.text, what) == NULL)
        fail_msg("%d, \"%s\" lacks \"%s\"", r, error.text, what);
    assert_null(store);
    options.flags = 0;
}

/* ---- files that are not what they were ---- */

static void what_stands_for_a_file_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"lock", "super", "data", "policy", "ledger.a", "spaces.b"};
    make_store(1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char aside[160];
        snprintf(aside, sizeof aside, "%s-aside", fixture_path(0));
        assert_int_equal(rename(file_of(names[i]), aside), 0);
        assert_int_equal(symlink(aside, file_of(names[i])), 0);
        refuse(0, KVO_E_FOREIGN, "a symbolic link");
        assert_int_equal(unlink(file_of(names[i])), 0);
        assert_int_equal(mkfifo(file_of(names[i]), 0600), 0);
        refuse(0, KVO_E_FOREIGN, "no regular file");
        assert_int_equal(unlink(file_of(names[i])), 0);
        assert_int_equal(mkdir(file_of(names[i]), 0700), 0);
        refuse(0, KVO_E_FOREIGN, "a directory");
        assert_int_equal(rmdir(file_of(names[i])), 0);
        assert_int_equal(rename(aside, file_of(names[i])), 0);
    }
    open_store(tiers);
    assert_int_equal(get(1, 65536), KVO_OK);
    close_store();
}

static void a_link_to_nothing_is_said_to_be_one(void **state)
{
    (void)state;
    assert_int_equal(symlink("nowhere", fixture_path(0)), 0);
    refuse(0, KVO_E_NOT_FOUND, "symbolic link to nothing");
    refuse(KVO_OPEN_MUST_EXIST, KVO_E_NOT_FOUND, "no store there");
    assert_int_equal(unlink(fixture_path(0)), 0);
}

static void empty_a_file(const char *name)
{
    assert_int_equal(truncate(file_of(name), 0), 0);
}

/* Who asks for a store that must exist gets none that a crash left half made, whatever is there of it. */
static void what_was_never_finished_is_no_store(void **state)
{
    (void)state;
    assert_int_equal(mkdir(fixture_path(0), 0700), 0);
    refuse(KVO_OPEN_MUST_EXIST, KVO_E_NOT_FOUND, "no store there"); /* no lock */
    close(open(file_of("lock"), O_CREAT | O_WRONLY, 0600));
    refuse(KVO_OPEN_MUST_EXIST, KVO_E_NOT_FOUND, "no store there"); /* no superblock */
    make_store(0);
    empty_a_file("super");
    refuse(KVO_OPEN_MUST_EXIST, KVO_E_NOT_FOUND, "no store there"); /* an empty one, and all the rest */
    assert_int_equal(unlink(file_of("data")), 0);
    refuse(KVO_OPEN_MUST_EXIST, KVO_E_NOT_FOUND, "data"); /* and not even that */
    make_store(3); /* who may make one does */
    assert_int_equal(unlink(file_of("data")), 0);
    refuse(KVO_OPEN_READ_ONLY, KVO_E_NOT_FOUND, "data");
    refuse(KVO_OPEN_MUST_EXIST, KVO_E_NOT_FOUND, "data");
}

/* ---- other machines ---- */

static base_env machine;
static uint64_t device_now, inode_now, file_most;
static bool no_direct, no_lock_file;

static int id_of(base_env *env, const char *path, uint64_t id[2])
{
    (void)env, (void)path;
    id[0] = device_now;
    id[1] = inode_now;
    return 0;
}

static int open_there(base_env *env, const char *path, int flags, int *file, int *direct)
{
    (void)env;
    if (no_lock_file && strcmp(path + strlen(path) - 5, "/lock") == 0)
        return -EACCES;
    int r = base_env_posix()->open(base_env_posix(), path, no_direct ? flags & ~BASE_OPEN_DIRECT : flags, file, direct);
    if (r == 0 && direct && no_direct)
        *direct = 0;
    return r;
}

static void limits_there(base_env *env, base_limits *limits)
{
    (void)env;
    limits->file_bytes = file_most;
}

static int boot_unknown(base_env *env, uint8_t out[16])
{
    (void)env;
    memset(out, 0, 16);
    return 0;
}

static int open_on_machine(uint32_t flags, kvo_store **s, kvo_error *error)
{
    kvo_tier_config disk = KVO_TIER_CONFIG_INIT;
    kvo_options o = options;
    disk.kind = KVO_TIER_DISK;
    disk.path = fixture_path(0);
    disk.capacity_blocks = 16;
    o.flags = flags | KVO_OPEN_STEPPED;
    return store_open(&machine, &disk, 1, &o, s, error);
}

static void two_stores_of_one_machine_are_told_apart_by_device_and_inode(void **state)
{
    (void)state;
    kvo_store *second = NULL, *third = NULL;
    kvo_error error = {{0}};
    make_store(1);
    machine = *base_env_posix();
    machine.directory_id = id_of;
    device_now = 0; /* some file systems have no device */
    inode_now = 7;
    assert_int_equal(open_on_machine(KVO_OPEN_READ_ONLY, &store, &error), KVO_OK);
    assert_int_equal(open_on_machine(KVO_OPEN_READ_ONLY, &second, &error), KVO_E_IN_USE);
    assert_non_null(strstr(error.text, "already open in this process"));
    device_now = 5; /* the same inode of another */
    assert_int_equal(open_on_machine(KVO_OPEN_READ_ONLY, &second, &error), KVO_OK);
    inode_now = 8;
    assert_int_equal(open_on_machine(KVO_OPEN_READ_ONLY, &third, &error), KVO_OK);
    assert_int_equal(kvo_close(second, 0), KVO_OK);
    assert_int_equal(kvo_close(third, 0), KVO_OK);
}

static void a_process_has_at_most_256_directories_open(void **state)
{
    (void)state;
    enum { MOST = 256, EACH = 16 }; /* descriptors */
    static kvo_store *stores[MOST];
    kvo_error error = {{0}};
    kvo_store *more = NULL;
    options.pins_max = options.holds_max = options.tenants_max = options.io_threads = 1;
    options.io_engine = KVO_IO_THREADS;
    make_store(1);
    machine = *base_env_posix();
    machine.directory_id = id_of;
    device_now = 9;
    if (sysconf(_SC_OPEN_MAX) < MOST * EACH)
        print_message("%ld descriptors: as many stores as they are enough for\n", sysconf(_SC_OPEN_MAX));
    size_t most = sysconf(_SC_OPEN_MAX) < MOST * EACH ? (size_t)sysconf(_SC_OPEN_MAX) / EACH : MOST;
    for (size_t i = 0; i < most; i++) {
        inode_now = i + 1;
        assert_int_equal(open_on_machine(KVO_OPEN_READ_ONLY, &stores[i], &error), KVO_OK);
    }
    inode_now = MOST + 1;
    if (most == MOST) {
        assert_int_equal(open_on_machine(KVO_OPEN_READ_ONLY, &more, &error), KVO_E_IN_USE);
        assert_non_null(strstr(error.text, "too many"));
        assert_null(more);
    }
    for (size_t i = 0; i < most; i++)
        assert_int_equal(kvo_close(stores[i], 0), KVO_OK);
    assert_int_equal(open_on_machine(KVO_OPEN_READ_ONLY, &more, &error), KVO_OK);
    assert_int_equal(kvo_close(more, 0), KVO_OK);
}

static void a_file_system_without_direct_io_goes_through_the_page_cache(void **state)
{
    (void)state;
    kvo_error error = {{0}};
    machine = *base_env_posix();
    machine.open = open_there;
    no_direct = true;
    assert_int_equal(open_on_machine(0, &store, &error), KVO_OK);
    no_direct = false;
    space = open_space("a", 65536);
    assert_int_equal(tier_stat(0).direct_io, 0);
    for (uint64_t i = 1; i <= 10; i++)
        assert_int_equal(put(i, 65536 - i), KVO_STORED);
    for (uint64_t i = 1; i <= 10; i++)
        assert_int_equal(get(i, 65536 - i), KVO_OK);
    close_store();
    open_store(tiers);
    assert_int_equal(get(3, 65533), KVO_OK);
    close_store();
}

/* Somebody who may not open the lock, and of the store there is no superblock: nothing is there, for him too. */
static void a_reader_without_rights_finds_no_store_either(void **state)
{
    (void)state;
    kvo_error error = {{0}};
    make_store(2);
    machine = *base_env_posix();
    machine.open = open_there;
    no_lock_file = true;
    assert_int_equal(open_on_machine(KVO_OPEN_READ_ONLY, &store, &error), KVO_OK);
    space = open_space("a", 65536);
    assert_int_equal(get(1, 65536), KVO_OK);
    close_store();
    assert_int_equal(unlink(file_of("super")), 0);
    assert_int_equal(open_on_machine(KVO_OPEN_READ_ONLY, &store, &error), KVO_E_NOT_FOUND);
    assert_null(store);
    no_lock_file = false;
}

static void a_limit_on_files_is_told_before_it_kills(void **state)
{
    (void)state;
    kvo_error error = {{0}};
    machine = *base_env_posix();
    machine.limits = limits_there;
    file_most = 1 << 20;
    assert_int_equal(open_on_machine(0, &store, &error), KVO_E_NO_SPACE);
    assert_non_null(strstr(error.text, "ulimit -f"));
    assert_null(store);
    file_most = UINT64_MAX;
    assert_int_equal(open_on_machine(0, &store, &error), KVO_OK);
    space = open_space("a", 65536);
    close_store();
    file_most = 1 << 20; /* who only reads writes nothing */
    assert_int_equal(open_on_machine(KVO_OPEN_READ_ONLY, &store, &error), KVO_OK);
    assert_int_equal(kvo_close(store, 0), KVO_OK);
    store = NULL;
}

static void put_and_leave(void *context)
{
    (void)context;
    kvo_error error = {{0}};
    assert_int_equal(open_on_machine(0, &store, &error), KVO_OK);
    space = open_space("a", 65536);
    assert_int_equal(put(1, 65536), KVO_STORED);
    assert_int_equal(kvo_write_out(store), KVO_OK);
    abandon_store();
}

/* Then what was written and not flushed may be gone with a power cut, and is read before it counts. */
static void a_machine_that_does_not_tell_its_boots_may_have_been_off(void **state)
{
    (void)state;
    kvo_error error = {{0}};
    machine = *base_env_posix();
    machine.boot_id = boot_unknown;
    assert_child_ok(in_child(put_and_leave, NULL));
    assert_int_equal(open_on_machine(0, &store, &error), KVO_OK);
    space = open_space("a", 65536);
    kvo_ledger_row rows[64];
    size_t count;
    uint64_t looked_at = 0;
    assert_int_equal(kvo_ledger(store, rows, 64, &count), KVO_OK);
    for (size_t i = 0; i < count; i++)
        if (rows[i].direction == LEDGER_READ && rows[i].cause == KVO_CAUSE_RECOVER)
            looked_at += rows[i].operations;
    assert_int_equal(looked_at, 1);
    assert_int_equal(get(1, 65536), KVO_OK);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(what_stands_for_a_file_is_named),
        FIXTURE_TEST(a_link_to_nothing_is_said_to_be_one),
        FIXTURE_TEST(what_was_never_finished_is_no_store),
        FIXTURE_TEST(two_stores_of_one_machine_are_told_apart_by_device_and_inode),
        FIXTURE_TEST(a_process_has_at_most_256_directories_open),
        FIXTURE_TEST(a_file_system_without_direct_io_goes_through_the_page_cache),
        FIXTURE_TEST(a_reader_without_rights_finds_no_store_either),
        FIXTURE_TEST(a_limit_on_files_is_told_before_it_kills),
        FIXTURE_TEST(a_machine_that_does_not_tell_its_boots_may_have_been_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
