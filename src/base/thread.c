/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <signal.h>
#include <time.h>

int base_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int status = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status;
}

void base_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool base_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t sum = (uint64_t)until.tv_nsec + ns;
    until.tv_sec += (time_t)(sum / 1000000000u);
    until.tv_nsec = (long)(sum % 1000000000u);
    return pthread_cond_timedwait(condition, lock, &until) == 0;
}
