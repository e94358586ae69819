/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that are opened again: elsewhere, smaller, larger, with others, by others; what an opening costs; which
   files there are, and which of them are flushed when something is called safe. */
#include "cases.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a golden set ---- */

enum { GOLDEN = 1000 };

static size_t golden_length(uint64_t number) { return 1 + number * 61 % 9000; }

static void put_golden(const char *tiers)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = KVO_WRITTEN;
    open_store(tiers);
    for (uint64_t i = 0; i < GOLDEN; i++)
        MUST(put_as(i, golden_length(i), 0, &o, NULL) == KVO_STORED);
}

static unsigned entries_of(const char *path)
{
    unsigned n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void check_golden(const char *tiers)
{
    open_store(tiers);
    uint32_t disk = store_stat().present_tier_count - 1;
    uint64_t written = tier_stat(disk).written_bytes;
    for (uint64_t i = 0; i < GOLDEN; i++)
        assert_int_equal(get(i, golden_length(i)), KVO_OK);
    assert_int_equal(tier_stat(disk).written_bytes, written); /* found, not made again */
    assert_int_equal(store_stat().digest_misses + store_stat().damaged_slots, 0);
    close_store();
    assert_true(entries_of(fixture_path(strstr(tiers, "@1") ? 1 : 0)) <= 11); /* the same few files */
}

static void puts_golden_and_dies(void *context)
{
    put_golden(context);
    kill(getpid(), SIGKILL);
}

static char disk_here[] = "dram:16blk,disk:@0:24M";

static void B066_a_restart_finds_everything_and_writes_nothing_again(void **state)
{
    (void)state;
    static const char *const memories[] = {"dram:16blk,disk:@0:24M", "dram:200blk,disk:@0:24M", "dram:4blk,disk:@0:24M",
                                           "disk:@0:24M", "dram:16blk,disk:@0"};
    for (int killed = 0; killed < 2; killed++) {
        if (killed) {
            assert_true(WIFSIGNALED(in_child(puts_golden_and_dies, disk_here)));
        } else {
            put_golden(disk_here);
            close_store();
        }
        for (int i = 0; i < 5; i++)
            check_golden(memories[i]);
        fixture_remove(1); /* a sibling: the directory is moved */
        assert_int_equal(rename(fixture_path(0), fixture_path(1)), 0);
        check_golden("dram:16blk,disk:@1:24M");
        assert_int_equal(rename(fixture_path(1), fixture_path(0)), 0);
        check_golden(disk_here);
        fixture_remove(0);
    }
}

static void checks_golden(void *context)
{
    open_store(context);
    for (uint64_t i = 0; i < GOLDEN; i++)
        MUST(get(i, golden_length(i)) == KVO_OK);
    MUST(store_stat().digest_misses == 0);
    MUST(kvo_close(store, KVO_FOREVER) == KVO_OK);
}

/* Other processes, which open other spaces first: numbers of spaces are the store's, labels are the users'. */
static void B047_another_process_gets_the_same_bytes(void **state)
{
    (void)state;
    assert_true(WIFSIGNALED(in_child(puts_golden_and_dies, disk_here)));
    assert_child_ok(in_child(checks_golden, disk_here));
    assert_child_ok(in_child(checks_golden, disk_here));
    kvo_error error = {{0}};
    assert_int_equal(try_open(disk_here, &error), KVO_OK);
    kvo_space other = open_space("another", BYTES);
    space = open_space("a", BYTES);
    assert_true(other != space);
    for (uint64_t i = 0; i < GOLDEN; i++)
        assert_int_equal(get(i, golden_length(i)), KVO_OK);
    kvo_space mine = space;
    space = other; /* the same names there are other blocks */
    assert_int_equal(cases_there(0, GOLDEN), 0);
    assert_int_equal(put_as(1, golden_length(1), 5, NULL, NULL), KVO_STORED);
    space = mine;
    assert_int_equal(get(1, golden_length(1)), KVO_OK);
    close_store();
    /* A sibling: two spaces, opened in the other order by the next one. */
    assert_int_equal(try_open(disk_here, &error), KVO_OK);
    space = open_space("another", BYTES);
    assert_int_equal(get_as(1, golden_length(1), 5, NULL, NULL), KVO_OK);
    space = open_space("a", BYTES);
    assert_int_equal(get(1, golden_length(1)), KVO_OK);
    close_store();
}

/* ---- what an opening costs ---- */

static base_env machine;
static _Atomic uint64_t opens, reads, flushes, directory_flushes;
static char flushed[32][32]; /* names of files, in the order in which they were opened */

static int count_open(base_env *env, const char *path, int flags, int *file, int *direct)
{
    (void)env;
    atomic_fetch_add(&opens, 1);
    return base_env_posix()->open(base_env_posix(), path, flags, file, direct);
}

static ssize_t count_read(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    atomic_fetch_add(&reads, 1);
    return base_env_posix()->read(base_env_posix(), file, iov, count, offset);
}

/* Which files of the directory a flush was for, by the descriptor. */
static int count_flush(base_env *env, int file)
{
    char link[64], path[512];
    (void)env;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, path, sizeof path - 1);
    uint64_t at = atomic_fetch_add(&flushes, 1);
    if (n > 0 && at < 32) {
        path[n] = 0;
        const char *slash = strrchr(path, '/');
        snprintf(flushed[at], sizeof flushed[at], "%.31s", slash ? slash + 1 : path);
    }
    return base_env_posix()->flush(base_env_posix(), file);
}

static int count_flush_directory(base_env *env, const char *path)
{
    (void)env;
    atomic_fetch_add(&directory_flushes, 1);
    return base_env_posix()->flush_directory(base_env_posix(), path);
}

static int never_rename(base_env *env, const char *from, const char *to)
{
    (void)env;
    fail_msg("%s is renamed to %s", from, to);
    return -1;
}

static void open_counted(const char *tiers)
{
    machine = *base_env_posix();
    machine.open = count_open;
    machine.read = count_read;
    machine.flush = count_flush;
    machine.flush_directory = count_flush_directory;
    machine.rename = never_rename;
    atomic_store(&opens, 0);
    atomic_store(&reads, 0);
    atomic_store(&flushes, 0);
    atomic_store(&directory_flushes, 0);
    memset(flushed, 0, sizeof flushed);
    options.flags = KVO_OPEN_STEPPED;
    cases_open_on(&machine, tiers);
    options.flags = 0;
}

static uint64_t fills_a_directory;

static void fills_and_dies(void *context)
{
    (void)context;
    open_store("disk:@0:3100blk");
    fill_with(0, fills_a_directory, 32768);
    MUST(kvo_write_out(store) == KVO_OK); /* what was written since then is looked at whole */
    kill(getpid(), SIGKILL);
}

/* Counts, not time: after a close a few large reads, after a crash one page a slot and none twice. */
static void B031_an_opening_reads_each_header_once_and_opens_no_file_a_block(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {400, 3000};
    uint64_t files[2], after_close[2];
    options.block_bytes = 32768;
    for (int i = 0; i < 2; i++) {
        fills_a_directory = sizes[i];
        assert_true(WIFSIGNALED(in_child(fills_and_dies, NULL)));
        open_counted("disk:@0:3100blk");
        assert_int_equal(store_stat().recovered_blocks, sizes[i]);
        assert_true(store_stat().headers_read >= sizes[i] && store_stat().headers_read <= 3300);
        assert_true(atomic_load(&reads) <= 3300 + 100);
        close_store();
        open_counted("disk:@0:3100blk");
        assert_int_equal(store_stat().recovered_blocks, sizes[i]);
        assert_int_equal(store_stat().headers_read, 0);
        files[i] = atomic_load(&opens);
        after_close[i] = atomic_load(&reads);
        close_store();
        print_message("B031: %llu blocks: %llu files opened, %llu reads after a close\n", (unsigned long long)sizes[i],
                      (unsigned long long)files[i], (unsigned long long)after_close[i]);
        fixture_remove(0);
    }
    assert_int_equal(files[0], files[1]);
    assert_true(after_close[1] <= after_close[0] + 3000 * 152 / 65536 + 16);
}

/* ---- files ---- */

static bool was_flushed(const char *name)
{
    for (int i = 0; i < 32; i++)
        if (strcmp(flushed[i], name) == 0)
            return true;
    return false;
}

/* No file takes another's place (never_rename), so nothing hangs on the order of that; but a new file's name is flushed
   before anything in it is called safe. */
static void B068_files_are_flushed_with_their_names_before_a_block_is_called_safe(void **state)
{
    (void)state;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer;
    o.level = KVO_SAFE;
    open_counted("dram:8blk,disk:@0:64blk");
    space = open_space("a", BYTES);
    assert_int_equal(put_as(1, BYTES, 0, &o, &answer), KVO_STORED);
    assert_int_equal(answer.level, KVO_SAFE);
    assert_true(atomic_load(&directory_flushes) >= 2); /* its own entries, and the one in its parent */
    assert_true(was_flushed("super") && was_flushed("data"));
    uint64_t before = atomic_load(&flushes);
    assert_int_equal(drop(1, KVO_SAFE), KVO_OK); /* siblings: a remove, a rewrite, a close */
    assert_true(atomic_load(&flushes) > before);
    assert_int_equal(put(2, BYTES), KVO_STORED);
    before = atomic_load(&flushes);
    assert_int_equal(rewrite(2, BYTES, 1, 0, KVO_SAFE), KVO_STORED);
    assert_true(atomic_load(&flushes) > before);
    before = atomic_load(&flushes);
    close_store();
    assert_true(atomic_load(&flushes) > before);
    open_counted("dram:8blk,disk:@0:64blk");
    space = open_space("a", BYTES);
    assert_int_equal(get_as(2, BYTES, 1, NULL, NULL), KVO_OK);
    close_store();
}

static void B077_blocks_are_no_files(void **state)
{
    (void)state;
    options.block_bytes = 4096;
    options.blocks_max = 12000;
    open_store("disk:@0:10000blk");
    assert_int_equal(put(0, 100), KVO_STORED);
    unsigned files = entries_of(fixture_path(0));
    assert_int_equal(fill_with(1, 5000, 100), 5000);
    assert_int_equal(entries_of(fixture_path(0)), files);
    kvo_target all = {.by = KVO_BY_ALL};
    assert_int_equal(kvo_remove(store, &all, KVO_SAFE, KVO_FOREVER, NULL, NULL), KVO_OK);
    assert_int_equal(entries_of(fixture_path(0)), files); /* a sibling: nor is a removed one */
    close_store();
    assert_true(entries_of(fixture_path(0)) <= files + 1); /* the checkpoint */
}

/* ---- other capacities ---- */

static uint64_t disk_bytes(int which)
{
    char path[128];
    struct stat about;
    snprintf(path, sizeof path, "%s/data", fixture_path(which));
    assert_int_equal(stat(path, &about), 0);
    return (uint64_t)about.st_blocks * 512;
}

/* 100, 50, 150, none, back. */
static void B076_a_directory_has_what_it_is_configured_to_have(void **state)
{
    (void)state;
    const uint64_t slot = BYTES + 4096;
    open_store("dram:8blk,disk:@0:200blk");
    fill_with(0, 200, BYTES);
    close_store();
    uint64_t at_first = disk_bytes(0);
    open_store("dram:8blk,disk:@0:100blk");
    uint64_t left = cases_there(0, 200);
    assert_true(left >= 90 && left <= 100 && tier_stat(1).resident_blocks == left);
    for (uint64_t i = 0; i < 200; i++)
        assert_int_equal(get(i, BYTES), exists(i, NULL));
    close_store();
    assert_true(disk_bytes(0) <= at_first / 2 + 100 * 4096 + slot);
    open_store("dram:8blk,disk:@0:300blk");
    assert_int_equal(cases_there(0, 200), left);
    fill_with(1000, 150, BYTES);
    close_store();
    open_store("dram:8blk"); /* the tier is not configured: nobody touches it */
    assert_int_equal(store_stat().blocks, 0);
    fill_with(5000, 20, BYTES);
    kvo_close(store, 0);
    store = NULL;
    open_store("dram:8blk,disk:@0:300blk");
    assert_int_equal(cases_there(0, 200), left);
    assert_int_equal(cases_there(1000, 150), 150);
    for (uint64_t i = 0; i < 150; i++)
        assert_int_equal(get(1000 + i, BYTES), KVO_OK);
    assert_int_equal(cases_there(5000, 20), 0);
    close_store();
}

/* A sibling: memory is made smaller than what is pinned to be there by intents, and larger again. */
static void B076_memory_may_change_its_size_as_well(void **state)
{
    (void)state;
    static const char *const tiers[] = {"dram:64blk,disk:@0:200blk", "dram:8blk,disk:@0:200blk",
                                        "dram:150blk,disk:@0:200blk", "disk:@0:200blk", "dram:64blk,disk:@0:200blk"};
    open_store(tiers[0]);
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.policy.intent = KVO_INTENT_KEEP;
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(put_as(i, BYTES, 0, &o, NULL), KVO_STORED);
    close_store();
    for (int t = 1; t < 5; t++) {
        open_store(tiers[t]);
        for (uint64_t i = 0; i < 100; i++)
            assert_int_equal(get(i, BYTES), KVO_OK);
        assert_int_equal(put((uint64_t)t * 1000, BYTES), KVO_STORED);
        close_store();
    }
}

/* ---- more than one disk ---- */

static uint64_t served(uint64_t count)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < count; i++) {
        int status = get(i, BYTES);
        assert_true(status == KVO_OK || status == KVO_MISS);
        n += status == KVO_OK;
    }
    return n;
}

/* A block is where its directory is, whatever the directory's place in the list and its path. */
static void B144_blocks_are_found_in_whatever_order_disks_are_listed(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    open_store("disk:@0:40blk,disk:@1:80blk");
    fill_with(0, COUNT, BYTES);
    close_store();
    open_store("disk:@1:80blk,disk:@0:40blk"); /* the order is changed */
    uint64_t all = served(COUNT);
    assert_true(all >= 80);
    close_store();
    assert_int_equal(rename(fixture_path(0), fixture_path(3)), 0); /* one is mounted elsewhere, a third is added */
    open_store("disk:@3:40blk,disk:@1:80blk,disk:@2:200blk");
    assert_int_equal(served(COUNT), all);
    fill_with(1000, 150, BYTES); /* and used: what leaves the others is there */
    check_valid();
    assert_true(tier_stat(2).resident_blocks > 0);
    uint64_t there = cases_there(1000, 150);
    assert_int_equal(there, 150);
    close_store();
    open_store("disk:@1:80blk,disk:@2:200blk"); /* the first is taken away */
    uint64_t less = served(COUNT);
    assert_true(less + cases_there(1000, 150) > 0);
    for (uint64_t i = 0; i < 150; i++)
        assert_int_equal(get(1000 + i, BYTES), exists(1000 + i, NULL));
    close_store();
}

/* A sibling: a disk comes back, and meanwhile its names were made anew with other bytes, and some of these removed
   again. The later write counts, and a disk that was not there when its block was removed still has it
   (docs/operations.md). */
static void B144_a_disk_that_comes_back_serves_no_older_bytes(void **state)
{
    (void)state;
    enum { COUNT = 100, REMOVED = 5, ANEW = 20 };
    uint64_t away[COUNT], count = 0;
    kvo_put_options written = KVO_PUT_OPTIONS_INIT;
    written.level = KVO_WRITTEN;
    open_store("disk:@0:40blk,disk:@1:80blk");
    fill_with(0, COUNT, BYTES);
    close_store();
    open_store("disk:@1:80blk,disk:@2:200blk");
    for (uint64_t i = 0; i < COUNT; i++)
        if (exists(i, NULL) == KVO_MISS)
            away[count++] = i;
    assert_true(count >= ANEW);
    for (uint64_t i = 0; i < ANEW; i++)
        assert_int_equal(put_as(away[i], BYTES, 1, &written, NULL), KVO_STORED);
    for (uint64_t i = 0; i < REMOVED; i++)
        assert_int_equal(drop(away[i], KVO_SAFE), KVO_OK);
    close_store();
    for (int round = 0; round < 2; round++) { /* as it was found, so it stays */
        open_store("disk:@0:40blk,disk:@1:80blk,disk:@2:200blk");
        check_valid();
        for (uint64_t i = 0; i < REMOVED; i++)
            assert_int_equal(get(away[i], BYTES), KVO_OK);
        for (uint64_t i = REMOVED; i < ANEW; i++)
            assert_int_equal(get_as(away[i], BYTES, 1, NULL, NULL), KVO_OK);
        for (uint64_t i = ANEW; i < count; i++)
            assert_int_equal(get(away[i], BYTES), KVO_OK);
        close_store();
    }
}

/* ---- a clear ---- */

static _Atomic bool cleared;

/* Puts go on while all is removed; of those names some may be there afterwards. */
static void *puts_meanwhile(void *context)
{
    (void)context;
    for (uint64_t i = 0; !atomic_load(&cleared); i++)
        cases_put(1000 + i % 200, BYTES, 0, 0);
    return NULL;
}

/* Nothing that was sealed before it is served after it: not from memory, nor the disk, nor the next process. */
static void clears_and_dies(void *context)
{
    enum { COUNT = 40 };
    pthread_t putter;
    kvo_pin held;
    uint64_t removed = 0;
    kvo_target all = {.by = KVO_BY_ALL};
    with_mover = true;
    open_store(context);
    MUST(fill_with(0, COUNT, BYTES) == COUNT);
    while (pin(7, &held) == KVO_BUSY) /* it may be on its way down */
        sched_yield();
    MUST(held.token);
    MUST(pthread_create(&putter, NULL, puts_meanwhile, NULL) == 0);
    MUST(kvo_remove(store, &all, KVO_WRITTEN, KVO_FOREVER, NULL, &removed) == KVO_OK);
    MUST(removed >= COUNT && cases_there(0, COUNT) == 0);
    MUST(payload_is(held.memory, BYTES, 7, 0)); /* its reader is safe */
    atomic_store(&cleared, true);
    pthread_join(putter, NULL);
    MUST(payload_is(held.memory, BYTES, 7, 0));
    MUST(kvo_unpin(store, &held, 1) == KVO_OK);
    MUST(cases_there(0, COUNT) == 0);
    for (uint64_t i = 0; i < COUNT; i++)
        MUST(cases_get(i, BYTES, 0, 0) == KVO_MISS);
    kill(getpid(), SIGKILL);
}

static void B121_a_clear_during_puts_holds_in_each_tier_and_after_a_kill(void **state)
{
    (void)state;
    static char tiers[] = "dram:16blk,disk:@0:512blk";
    for (int i = 0; i < 10; i++) {
        int ended = in_child(clears_and_dies, tiers);
        assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
        open_store(tiers);
        assert_int_equal(cases_there(0, 40), 0);
        close_store();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(B031_an_opening_reads_each_header_once_and_opens_no_file_a_block),
        FIXTURE_TEST(B047_another_process_gets_the_same_bytes),
        FIXTURE_TEST(B066_a_restart_finds_everything_and_writes_nothing_again),
        FIXTURE_TEST(B068_files_are_flushed_with_their_names_before_a_block_is_called_safe),
        FIXTURE_TEST(B076_a_directory_has_what_it_is_configured_to_have),
        FIXTURE_TEST(B076_memory_may_change_its_size_as_well),
        FIXTURE_TEST(B077_blocks_are_no_files),
        FIXTURE_TEST(B121_a_clear_during_puts_holds_in_each_tier_and_after_a_kill),
        FIXTURE_TEST(B144_a_disk_that_comes_back_serves_no_older_bytes),
        FIXTURE_TEST(B144_blocks_are_found_in_whatever_order_disks_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
