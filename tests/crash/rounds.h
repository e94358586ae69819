/* SPDX-License-Identifier: Apache-2.0 */
/* What the loops of crashes share: chance, time, directories, the two processes of a round. */
#ifndef CRASH_ROUNDS_H
#define CRASH_ROUNDS_H

#include <sys/types.h>

#include "life.h"

extern uint64_t rounds_seed; /* KVO_TEST_SEED, or the time */

void rounds_begin(void);
uint32_t rounds_draw(uint32_t below);
uint64_t rounds_asked(const char *name, uint64_t otherwise); /* a number of the environment */
uint64_t rounds_now_us(void);
void rounds_rest_us(uint64_t us);

bool rounds_directory(char *path, size_t bytes, const char *name); /* below TMPDIR or /tmp */
void rounds_remove(const char *path);

/* The writer in a process of its own; it dies with this one. */
pid_t rounds_write(const life *l);
/* Until the writer gets there, or ends. */
void rounds_wait_for(pid_t child, const life *l, uint32_t phase);
/* Whether it was killed, and had not ended before. */
bool rounds_kill(pid_t child, const life *l);
void rounds_check(const life *l, bool verifies, bool closes);

#endif
