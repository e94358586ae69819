/* SPDX-License-Identifier: Apache-2.0 */
/* What the library's threads have in common. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Signals of the program are not for our threads. 0 or an errno value. */
int base_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* A condition that base_cond_wait() can time. */
void base_cond_init(pthread_cond_t *condition);
/* At most ns of the machine's monotonic clock. false: they have passed. */
bool base_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t ns);

#endif
