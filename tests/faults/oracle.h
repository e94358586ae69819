/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of each block while calls fail: which versions of its bytes a get may bring now, and which may be
 * there again after the next opening. Every call of a scenario goes through here, so that each status is one that
 * the call may give, and each byte is one that it may give.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include "nth.h"

enum { ORACLE_BLOCKS = 48, ORACLE_MISS = 1 << 7, ORACLE_BYTES = 8192 - 100 };

typedef struct oracle_block {
    uint8_t may;  /* versions, a bit each, that a get may bring; and ORACLE_MISS */
    uint8_t back; /* versions that may be found by the next opening, although a get misses now */
    bool kept;    /* said to be written: the next opening finds it */
} oracle_block;

typedef struct oracle_state {
    oracle_block blocks[ORACLE_BLOCKS];
    bool evicts; /* the last tier has not room for all: any block may have left */
} oracle_state;

extern oracle_state oracle;
extern long oracle_checked; /* payloads compared with what they must be */

void oracle_begin(bool evicts);
/* A call has failed since nth_arm(). */
bool oracle_disturbed(void);
/* The status is one of the `count` that the call may give in trouble; 0 or more of them without any. */
void oracle_status(const char *call, int status, const int *allowed, size_t count);
void oracle_error_text(const char *call, int status, const kvo_error *error);

int oracle_put(uint64_t number, uint32_t version, int level);
int oracle_get(uint64_t number);
int oracle_rewrite(uint64_t number, uint32_t version, int level);
int oracle_remove(uint64_t number, int level);
int oracle_remove_where(const kvo_target *target, uint64_t first, uint64_t count, int level);
int oracle_sync(int level);
void oracle_submitted_put(uint64_t number, uint32_t version, int status, int level);

/* After a close that said it was in order, or a crash; then all blocks are checked against what may be there. */
void oracle_reopened(void);

#endif
