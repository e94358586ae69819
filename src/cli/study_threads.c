/* SPDX-License-Identifier: Apache-2.0 */
#include "study.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

typedef struct study_crew {
    pthread_barrier_t start;
    atomic_int over;
} study_crew;

int study_over(const study_worker *worker)
{
    return atomic_load_explicit(&worker->crew->over, memory_order_relaxed);
}

void study_sample(study_worker *worker, double value)
{
    worker->offered++;
    if (worker->sample_count < worker->sample_room) {
        worker->samples[worker->sample_count++] = value;
        return;
    }
    uint64_t place = cli_random(&worker->random) % worker->offered;
    if (place < worker->sample_room) {
        worker->samples[place] = value;
    }
}

int study_processor(unsigned n)
{
    cpu_set_t may;
    if (sched_getaffinity(0, sizeof may, &may) != 0 || CPU_COUNT(&may) == 0) {
        return -1;
    }
    n %= (unsigned)CPU_COUNT(&may);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET((unsigned)i, &may) && n-- == 0) {
            return i;
        }
    }
    return -1;
}

static void settle_on(unsigned n)
{
    const int processor = study_processor(n);
    cpu_set_t one;
    if (processor >= 0) {
        CPU_ZERO(&one);
        CPU_SET((unsigned)processor, &one);
        (void)pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    }
}

static void *work(void *argument)
{
    study_worker *worker = argument;
    settle_on(worker->processor);
    (void)pthread_barrier_wait(&worker->crew->start);
    worker->run(worker);
    return NULL;
}

int study_run_workers(study_worker *workers, size_t count, double seconds, double *took)
{
    study_crew crew = {.over = 0};
    pthread_t *threads = cli_alloc(count, sizeof *threads);
    const struct timespec pause = {0, 5000000};
    int code = 0;
    (void)pthread_barrier_init(&crew.start, NULL, (unsigned)count + 1);
    for (size_t i = 0; i < count; i++) {
        workers[i].crew = &crew;
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0) {
            exit(cli_fail("cannot start a thread")); /* those that wait for it would wait for ever */
        }
    }
    (void)pthread_barrier_wait(&crew.start);
    const double begin = bench_now();
    while (bench_now() < begin + seconds && bench_stopped() == 0) {
        (void)nanosleep(&pause, NULL);
    }
    atomic_store(&crew.over, 1);
    for (size_t i = 0; i < count; i++) {
        (void)pthread_join(threads[i], NULL);
        code = code != 0 ? code : workers[i].code;
    }
    if (took != NULL) {
        *took = bench_now() - begin;
    }
    (void)pthread_barrier_destroy(&crew.start);
    free(threads);
    return code != 0 ? code : bench_stopped();
}
