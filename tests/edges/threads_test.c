/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and descriptors that the machine does not give: the nth of an opening, of a queue, of a close. Linked with
   --wrap, since the library asks for them beside its environment. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "fixture.h"

static _Atomic int threads_until; /* n: the nth from now cannot be started; 0: all can */
static bool no_events;
static unsigned refused;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    int left = atomic_load(&threads_until);
    if (left > 0 && atomic_fetch_sub(&threads_until, 1) == 1) {
        refused++;
        return EAGAIN;
    }
    return __real_pthread_create(thread, attributes, run, argument);
}

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags)
{
    if (no_events) {
        refused++;
        errno = EMFILE;
        return -1;
    }
    return __real_eventfd(count, flags);
}

static void an_opening_without_its_threads_says_so(void **state)
{
    (void)state;
    kvo_error error = {{0}};
    int n, r = KVO_E_MEMORY;
    with_mover = true;
    open_store("dram:8blk,disk:@0:16blk");
    assert_int_equal(put(1, 65536), KVO_STORED);
    assert_int_equal(kvo_sync(store, NULL, KVO_SAFE, KVO_FOREVER, NULL), KVO_OK);
    close_store();
    for (n = 1; r == KVO_E_MEMORY; n++) {
        unsigned before = refused;
        atomic_store(&threads_until, n);
        r = try_open("dram:8blk,disk:@0:16blk", &error);
        atomic_store(&threads_until, 0);
        assert_int_equal(r, refused == before ? KVO_OK : KVO_E_MEMORY);
        if (r == KVO_E_MEMORY)
            assert_non_null(strstr(error.text, "thread"));
        assert_true((store == NULL) == (r != KVO_OK));
    }
    assert_int_equal(r, KVO_OK);
    assert_true(n > 3); /* the keeper's and the mover's among them */
    space = open_space("a", 65536);
    assert_int_equal(get(1, 65536), KVO_OK);
    close_store();
}

static void a_close_without_its_thread_closes_itself(void **state)
{
    (void)state;
    open_store("dram:8blk,disk:@0:16blk");
    assert_int_equal(put(1, 65536), KVO_STORED);
    unsigned before = refused;
    atomic_store(&threads_until, 1);
    close_store();
    atomic_store(&threads_until, 0);
    assert_int_equal(refused, before + 1);
    open_store("dram:8blk,disk:@0:16blk");
    assert_int_equal(get(1, 65536), KVO_OK);
    assert_int_equal(store_stat().unclean_tiers, 0);
    close_store();
}

static void check_queue_works(kvo_queue *queue)
{
    kvo_answer answer;
    kvo_report report;
    size_t count;
    kvo_names names = names_of(1, 1);
    assert_int_equal(kvo_submit_exists(queue, &names, 0, &answer, NULL, NULL), KVO_OK);
    assert_int_equal(kvo_poll(queue, &report, 1, KVO_FOREVER, &count), KVO_OK);
    assert_true(count == 1 && report.status == KVO_OK && answer.status == KVO_OK);
}

static void a_queue_without_workers_is_none(void **state)
{
    (void)state;
    kvo_queue *queue = NULL;
    options.workers = 4;
    open_store("dram:8blk");
    assert_int_equal(put(1, 65536), KVO_STORED);
    no_events = true;
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_E_MEMORY);
    no_events = false;
    assert_null(queue);
    atomic_store(&threads_until, 1);
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_E_MEMORY);
    assert_null(queue);
    assert_int_equal(get(1, 65536), KVO_OK);
    atomic_store(&threads_until, 3); /* two do: the rest may come with the next queue */
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    atomic_store(&threads_until, 0);
    check_queue_works(queue);
    close_store();
    printf("%u threads and descriptors refused\n", refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(an_opening_without_its_threads_says_so),
        FIXTURE_TEST(a_close_without_its_thread_closes_itself),
        FIXTURE_TEST(a_queue_without_workers_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
