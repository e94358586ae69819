/* SPDX-License-Identifier: Apache-2.0 */
/* Who may open what, what a wrong call gets, and what remains after fork(). */
#include "fixture.h"
#include "store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *in_directory(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", fixture_path(0), name);
    return path;
}

static void a_directory_is_private_and_opened_once(void **state)
{
    (void)state;
    struct stat about;
    open_store("disk:@0:16blk");
    assert_int_equal(stat(fixture_path(0), &about), 0);
    assert_int_equal(about.st_mode & 0777, 0700);
    kvo_store *first = store;
    open_is_refused("dram:4blk,disk:@0:16blk", KVO_E_IN_USE, "this process");
    open_is_refused("disk:@1:16blk,disk:@1:16blk", KVO_E_IN_USE, "this process");
    store = first; /* the failed attempts did not take its lock */
    put(1, 100);
    close_store();
    open_store("disk:@0:16blk");
    assert_int_equal(get(1, 100), KVO_OK);
}

static void open_in_child(void *context)
{
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)getppid());
    (void)context;
    execl("/proc/self/exe", "store_open_test", "--open", fixture_path(0), pid, (char *)NULL);
    _exit(9);
}

static int open_named(const char *path, const char *pid)
{
    kvo_error error = {{0}};
    kvo_store *other;
    char tiers[256];
    snprintf(tiers, sizeof tiers, "disk:%s", path);
    int r = kvo_open(tiers, NULL, &other, &error);
    return r == KVO_E_IN_USE && strstr(error.text, pid) ? 0 : 1;
}

static void another_process_is_told_whose_it_is(void **state)
{
    (void)state;
    open_store("disk:@0:16blk");
    assert_child_ok(in_child(open_in_child, NULL));
    put(1, 100);
    close_store();
}

static void call_everything(void *context)
{
    (void)context;
    kvo_answer a;
    kvo_names names = names_of(1, 1);
    kvo_target target = target_of(1, 1);
    uint8_t byte;
    uint64_t n;
    size_t count;
    kvo_segment segment = {&byte, 1};
    kvo_memory memory = {&segment, NULL};
    kvo_pin p = {.token = 1};
    kvo_stat stat = KVO_STAT_INIT;
    kvo_policy policy = KVO_POLICY_INIT;
    int bad = kvo_match(store, &names, &a, &count) != KVO_E_FORKED;
    bad += kvo_get(store, &names, &memory, NULL, &a) != KVO_E_FORKED;
    bad += kvo_put(store, &names, &memory, NULL, &a) != KVO_E_FORKED;
    bad += kvo_pin_blocks(store, &names, NULL, &p, &a) != KVO_E_FORKED;
    bad += kvo_unpin(store, &p, 1) != KVO_E_FORKED;
    bad += kvo_hold(store, &names, 1, &n, &a) != KVO_E_FORKED;
    bad += kvo_policy_set(store, &target, &policy, 1, &a, &n) != KVO_E_FORKED;
    bad += kvo_sync(store, NULL, KVO_WRITTEN, 0, NULL) != KVO_E_FORKED;
    bad += kvo_remove(store, &target, KVO_SEALED, 0, &a, &n) != KVO_E_FORKED;
    bad += kvo_stat_store(store, &stat) != KVO_E_FORKED;
    bad += kvo_write_out(store) != KVO_E_FORKED;
    bad += kvo_close(store, 0) != KVO_E_FORKED;
    _exit(bad);
}

static void a_child_that_inherits_a_store_is_told_so(void **state)
{
    (void)state;
    open_store("dram:16blk,disk:@0:16blk");
    put(1, 1);
    assert_child_ok(in_child(call_everything, NULL));
    assert_int_equal(get(1, 1), KVO_OK); /* the parent's is whole */
    close_store();
}

static void a_path_may_be_relative(void **state)
{
    (void)state;
    char was[4096];
    assert_non_null(getcwd(was, sizeof was));
    assert_int_equal(mkdir(fixture_path(0), 0700), 0);
    assert_int_equal(chdir(fixture_path(0)), 0);
    open_store("disk:here:16blk");
    assert_int_equal(put(1, 100), KVO_STORED);
    close_store();
    assert_int_equal(chdir(was), 0);
    open_store("disk:@0/here:16blk");
    assert_int_equal(get(1, 100), KVO_OK);
    close_store();
    open_is_refused("disk:@0/missing/here:16blk", KVO_E_NOT_FOUND, "create the one that it is to be in");
}

static uint32_t told_alignment;

static uint32_t direct_alignment(base_env *env, int file)
{
    (void)env, (void)file;
    return told_alignment;
}

/* What a file system tells is used where it is an alignment; else that of the format is, which suits all. */
static void alignments_that_are_none_are_not_used(void **state)
{
    (void)state;
    static const uint32_t told[][2] = {{0, 4096}, {8192, 4096}, {48, 4096}, {16, 64}, {512, 512}, {4096, 4096}};
    static base_env machine;
    kvo_tier_config config = KVO_TIER_CONFIG_INIT;
    machine = *base_env_posix();
    machine.direct_alignment = direct_alignment;
    config.kind = KVO_TIER_DISK;
    config.path = fixture_path(0);
    config.capacity_blocks = 16;
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        kvo_error error = {{0}};
        told_alignment = told[i][0];
        if (store_open(&machine, &config, 1, &options, &store, &error) != KVO_OK)
            fail_msg("open: %s", error.text);
        if (tier_stat(0).direct_io) /* else nobody asks */
            assert_int_equal(store->tiers[0].io->facts.alignment, told[i][1]);
        assert_int_equal(kvo_close(store, KVO_FOREVER), KVO_OK);
        store = NULL;
    }
}

static void foreign_files_are_refused(void **state)
{
    (void)state;
    mkdir(fixture_path(0), 0700);
    close(open(in_directory("diary.txt"), O_CREAT | O_WRONLY, 0600));
    open_is_refused("disk:@0:16blk", KVO_E_FOREIGN, "diary.txt");
    unlink(in_directory("diary.txt"));
    open_store("disk:@0:16blk");
}

static void what_must_exist_is_not_created(void **state)
{
    (void)state;
    options.flags = KVO_OPEN_MUST_EXIST;
    open_is_refused("disk:@0:16blk", KVO_E_NOT_FOUND, "no store");
    assert_int_not_equal(access(fixture_path(0), F_OK), 0);
    options.flags = KVO_OPEN_READ_ONLY;
    open_is_refused("disk:@0", KVO_E_NOT_FOUND, "no store");
    assert_int_not_equal(access(fixture_path(0), F_OK), 0);
    options.flags = 0;
    open_is_refused("disk:@0", KVO_E_ARGUMENT, "capacity"); /* there is none to take it from */
}

/* Whatever a crash left of a creation is an empty store, also for a second attempt. */
static void a_store_created_half_way_is_empty(void **state)
{
    (void)state;
    const char *const files[] = {"lock", "super", "data", "policy", "ledger.a", "ledger.b", "spaces.a", "spaces.b"};
    for (size_t n = 0; n <= 8; n++) {
        mkdir(fixture_path(0), 0700);
        for (size_t i = 0; i < n; i++)
            close(open(in_directory(files[i]), O_CREAT | O_WRONLY, 0600));
        open_store("disk:@0:16blk");
        assert_int_equal(store_stat().blocks, 0);
        put(1, 100);
        close_store();
        open_store("disk:@0");
        assert_int_equal(get(1, 100), KVO_OK);
        close_store();
        fixture_remove(0);
    }
}

/* All of it, so that a byte or a time that changes shows. */
static void print_state(char *out, size_t capacity)
{
    char command[256];
    snprintf(command, sizeof command, "cd %s && ls -la --time-style=full-iso | sed 1,3d && cat * | cksum",
             fixture_path(0));
    FILE *pipe = popen(command, "r");
    size_t n = fread(out, 1, capacity - 1, pipe);
    out[n] = 0;
    pclose(pipe);
    assert_true(n > 100);
}

static void a_reader_changes_no_byte(void **state)
{
    (void)state;
    char before[4096], after[4096];
    open_store("dram:4blk,disk:@0:32blk");
    fill_with(0, 30, 5000);
    close_store();
    print_state(before, sizeof before);
    options.flags = KVO_OPEN_READ_ONLY;
    options.write_out_ns = 1000000;
    open_store("dram:4blk,disk:@0");
    for (unsigned i = 0; i < 30; i++)
        assert_int_equal(get(i, 5000), KVO_OK);
    kvo_verify_result verified;
    assert_int_equal(kvo_verify(store, NULL, NULL, &verified), KVO_OK);
    assert_int_equal(verified.slots, 30);
    assert_int_equal(verified.bad, 0);
    kvo_target target = target_of(0, 1);
    kvo_policy policy = KVO_POLICY_INIT;
    assert_int_equal(kvo_remove(store, &target, KVO_SEALED, 0, NULL, NULL), KVO_E_STATE);
    assert_int_equal(kvo_policy_set(store, &target, &policy, 1, NULL, NULL), KVO_E_STATE);
    assert_int_equal(kvo_touch(store, &target, NULL), KVO_E_STATE);
    assert_int_equal(kvo_write_out(store), KVO_E_STATE);
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, 0, NULL), KVO_E_STATE);
    check_valid();
    assert_int_equal(kvo_close(store, KVO_FOREVER), KVO_OK);
    store = NULL;
    print_state(after, sizeof after);
    assert_string_equal(before, after);
}

static void a_space_that_differs_shows_both(void **state)
{
    (void)state;
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_error error = {{0}};
    kvo_space other = 7;
    open_store("dram:16blk,disk:@0:16blk");
    close_store();
    open_store("dram:16blk,disk:@0:16blk");
    config.label = "a";
    config.model = "another-model";
    config.block_positions = 16;
    config.block_bytes_max = 65536;
    assert_int_equal(kvo_space_open(store, &config, &other, &error), KVO_E_MISMATCH);
    assert_int_equal(other, 0);
    assert_non_null(strstr(error.text, "another-model"));
    assert_non_null(strstr(error.text, "\"m\""));
    config.label = "";
    assert_int_equal(kvo_space_open(store, &config, &other, NULL), KVO_E_RANGE);
    config.label = "huge";
    config.block_bytes_max = KVO_PAYLOAD_BYTES_MAX;
    assert_int_equal(kvo_space_open(store, &config, &other, &error), KVO_E_RANGE);
}

/* A program compiled with an older header: its structs end earlier. */
static void shorter_structs_are_accepted(void **state)
{
    (void)state;
    kvo_answer a;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_get_options g = KVO_GET_OPTIONS_INIT;
    options.size = offsetof(kvo_options, io_threads);
    open_store("dram:16blk");
    options.size = sizeof options;
    o.size = offsetof(kvo_put_options, sequence);
    o.trust_name = 1; /* beyond its size: not read */
    o.level = KVO_SEALED;
    assert_int_equal(put_as(1, 100, 0, &o, &a), KVO_STORED);
    put_as(1, 100, 3, &o, &a);
    assert_int_equal(store_stat().digest_conflicts, 1);
    g.size = sizeof g.size;
    assert_int_equal(get_as(1, 100, 0, &g, &a), KVO_OK);
    kvo_stat stat = KVO_STAT_INIT;
    stat.size = offsetof(kvo_stat, blocks_max);
    stat.blocks_max = 12345;
    assert_int_equal(kvo_stat_store(store, &stat), KVO_OK);
    assert_int_equal(stat.blocks, 1);
    assert_int_equal(stat.blocks_max, 12345);
}

static void wrong_names(kvo_names names)
{
    kvo_answer a[2];
    uint8_t byte = 1;
    uint64_t n;
    uint32_t bytes = 1;
    size_t count;
    kvo_reservation r;
    kvo_pin p;
    kvo_segment segment = {&byte, 1};
    kvo_memory memory = {&segment, NULL};
    assert_int_equal(kvo_match(store, &names, a, &count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_exists(store, &names, a), KVO_E_ARGUMENT);
    assert_int_equal(kvo_put(store, &names, &memory, NULL, a), KVO_E_ARGUMENT);
    assert_int_equal(kvo_get(store, &names, &memory, NULL, a), KVO_E_ARGUMENT);
    assert_int_equal(kvo_rewrite(store, &names, &memory, 0, NULL, a), KVO_E_ARGUMENT);
    assert_int_equal(kvo_reserve(store, &names, &bytes, NULL, &r, a), KVO_E_ARGUMENT);
    assert_int_equal(kvo_pin_blocks(store, &names, NULL, &p, a), KVO_E_ARGUMENT);
    assert_int_equal(kvo_hold(store, &names, 1, &n, a), KVO_E_ARGUMENT);
}

static void wrong_arguments_are_answered(void **state)
{
    (void)state;
    kvo_answer a;
    size_t count;
    uint64_t n = 0;
    kvo_names names, good;
    open_store("dram:16blk");
    good = names_of(1, 1);
    names = good, names.first = NULL;
    wrong_names(names);
    names = good, names.name_bytes = 15;
    wrong_names(names);
    names = good, names.name_bytes = 65;
    wrong_names(names);
    names = good, names.stride_bytes = 31;
    wrong_names(names);
    names = good, names.space = 0;
    wrong_names(names);
    names = good, names.space = 200;
    wrong_names(names);
    names = good, names.space = 70000;
    wrong_names(names);
    names = good, names.kind = 2;
    wrong_names(names);
    names = good, names.count = KVO_BATCH_MAX + 1;
    wrong_names(names);
    assert_int_equal(kvo_match(NULL, &good, &a, &count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_match(store, NULL, &a, &count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_match(store, &good, &a, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_exists(store, &good, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_put(store, &good, NULL, NULL, &a), KVO_E_ARGUMENT);
    assert_int_equal(kvo_get(store, &good, NULL, NULL, &a), KVO_E_ARGUMENT);
    assert_int_equal(kvo_sync(store, NULL, 9, 0, NULL), KVO_E_RANGE);
    assert_int_equal(kvo_walk(store, NULL, &n, NULL, 0, &count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_walk(store, NULL, NULL, NULL, 1, &count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_unpin(store, NULL, 1), KVO_E_ARGUMENT);
    assert_int_equal(kvo_fill(store, NULL, 0, "", 1), KVO_E_ARGUMENT);
    assert_int_equal(kvo_stat_tier(store, 9, &(kvo_tier_stat){0}), KVO_E_RANGE);
    assert_int_equal(kvo_stat_store(store, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_verify(store, NULL, NULL, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_close(NULL, 0), KVO_OK);
    check_valid();
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_directory_is_private_and_opened_once),
        FIXTURE_TEST(another_process_is_told_whose_it_is),
        FIXTURE_TEST(a_child_that_inherits_a_store_is_told_so),
        FIXTURE_TEST(a_path_may_be_relative),
        FIXTURE_TEST(alignments_that_are_none_are_not_used),
        FIXTURE_TEST(foreign_files_are_refused),
        FIXTURE_TEST(what_must_exist_is_not_created),
        FIXTURE_TEST(a_store_created_half_way_is_empty),
        FIXTURE_TEST(a_reader_changes_no_byte),
        FIXTURE_TEST(a_space_that_differs_shows_both),
        FIXTURE_TEST(shorter_structs_are_accepted),
        FIXTURE_TEST(wrong_arguments_are_answered),
    };
    if (count == 4 && strcmp(arguments[1], "--open") == 0)
        return open_named(arguments[2], arguments[3]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
