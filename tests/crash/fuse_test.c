/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse_test PASS_FS: a file system in a process that is stopped (SIGSTOP) under a store and goes on (public report
 * B006), with the engine that the machine has. For root, who may mount.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "store/fixture.h"

#define MS 1000000u

enum { BLOCKS = 40, ROUNDS = 5 };
static const size_t bytes = 65536;
static const char *pass_fs;
static pid_t server;

static void rest_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

/* ---- the file system: it shows fixture_path(2) at fixture_path(3) ---- */

static void serve(void)
{
    struct stat outside, inside;
    assert_int_equal(mkdir(fixture_path(2), 0700), 0);
    assert_int_equal(mkdir(fixture_path(3), 0700), 0);
    assert_int_equal(stat(fixture_path(3), &outside), 0);
    fflush(NULL);
    server = fork();
    assert_true(server >= 0);
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(pass_fs, pass_fs, fixture_path(2), fixture_path(3), (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 10000; i++, rest_ms(1))
        if (stat(fixture_path(3), &inside) == 0 && inside.st_dev != outside.st_dev)
            return;
    fail_msg("the file system did not come up");
}

static int teardown(void **state)
{
    kill(server, SIGCONT);
    kvo_close(store, 0);
    store = NULL;
    umount2(fixture_path(3), MNT_DETACH);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return fixture_teardown(state);
}

/* ---- a reader that does not wait ---- */

typedef struct reading {
    kvo_queue *queue;
    uint8_t memory[65536];
    kvo_segment segment;
    kvo_answer answer;
    kvo_report report;
} reading;

static void submit_get(reading *r, uint64_t number)
{
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_names names = names_of(number, 1);
    r->segment = (kvo_segment){r->memory, bytes};
    kvo_memory memory = {&r->segment, NULL};
    o.deadline_ns = 20 * MS;
    assert_int_equal(kvo_submit_get(r->queue, &names, &memory, &o, &r->answer, NULL, &r->report.job), KVO_OK);
}

static uint64_t find(bool in_memory)
{
    kvo_answer answer;
    uint64_t number = 0;
    while (exists(number, &answer) != KVO_OK || ((answer.tier_mask & 1) != 0) != in_memory)
        number++;
    return number;
}

static void stop_and_go_on(reading *r)
{
    size_t count = 0;
    uint64_t below = find(false);
    assert_int_equal(kill(server, SIGSTOP), 0);
    waitpid(server, NULL, WUNTRACED);
    submit_get(r, below);
    assert_int_equal(kvo_poll(r->queue, &r->report, 1, 200 * MS, &count), KVO_OK);
    assert_int_equal(count, 0);
    /* Memory serves, and says that nothing else is to be had. */
    uint64_t above = find(true);
    assert_int_equal(get(above, bytes), KVO_OK);
    assert_int_equal(touch(above), KVO_OK);
    assert_true(exists(below, NULL) == KVO_OK);
    assert_int_equal(kvo_drain(r->queue, 20 * MS), KVO_SHORT);
    assert_int_equal(kill(server, SIGCONT), 0);
    assert_int_equal(kvo_poll(r->queue, &r->report, 1, KVO_FOREVER, &count), KVO_OK);
    assert_int_equal(count, 1);
    /* It came back after its time, with the memory: late, or right. */
    assert_true(r->answer.status == KVO_OK || r->answer.status == KVO_BUSY);
    if (r->answer.status == KVO_OK)
        assert_true(payload_is(r->memory, bytes, below, 0));
    assert_int_equal(get(below, bytes), KVO_OK);
}

static void b006_a_stopped_file_system_keeps_nobody(void **state)
{
    (void)state;
    static reading r;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    char tiers[256];
    serve();
    snprintf(tiers, sizeof tiers, "dram:16blk,disk:%s/store:64blk", fixture_path(3));
    with_mover = true;
    open_store(tiers);
    o.level = KVO_SAFE;
    for (uint64_t i = 0; i < BLOCKS; i++)
        assert_int_equal(put_as(i, bytes, 0, &o, NULL), KVO_STORED);
    assert_int_equal(kvo_queue_open(store, NULL, &r.queue), KVO_OK);
    for (int i = 0; i < ROUNDS; i++)
        stop_and_go_on(&r);
    /* Stopped while it is closed: busy, nothing freed, and it ends when the device is back. */
    assert_int_equal(kill(server, SIGSTOP), 0);
    submit_get(&r, find(false));
    assert_int_equal(kvo_close(store, 50 * MS), KVO_BUSY);
    assert_int_equal(kill(server, SIGCONT), 0);
    assert_int_equal(kvo_close(store, KVO_FOREVER), KVO_OK);
    open_store(tiers);
    for (uint64_t i = 0; i < BLOCKS; i++)
        assert_int_equal(get(i, bytes), KVO_OK);
    assert_int_equal(store_stat().digest_misses, 0);
    close_store();
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(b006_a_stopped_file_system_keeps_nobody, fixture_setup, teardown),
    };
    const char *why = loop_ready();
    if (why == NULL && access("/dev/fuse", R_OK | W_OK) != 0)
        why = "no /dev/fuse";
    if (why) {
        printf("skipped: %s\n", why);
        return TEST_SKIPPED;
    }
    pass_fs = count > 1 ? arguments[1] : "pass_fs";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
