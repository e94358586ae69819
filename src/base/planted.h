/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deliberate defects, to prove that the tests notice. The build option `planted` compiles them in, and the
 * environment variable KVO_PLANTED, read once a process, turns one of them on by its name here; in every other
 * build each is the constant false. docs/testing.md says which test notices which.
 */
#ifndef BASE_PLANTED_H
#define BASE_PLANTED_H

#include <stdbool.h>

#define PLANTED_LIST(X)                                                                           \
    X(ANCHOR)         /* lower copies of resident blocks go, as in two ordinary tiers (rule 6) */ \
    X(DIGEST)         /* what arrives is not compared with its digest */                          \
    X(NAME)           /* the index compares 16 bits of a name's hash, not the name */             \
    X(LENGTH)         /* another length under a stored name counts as the same block */           \
    X(FIRST_SEAL)     /* a second put of a name stores a second block */                          \
    X(INCARNATION)    /* a record that is used again keeps its number: old handles pass */        \
    X(GENERATION)     /* of a copy below: off by one */                                           \
    X(PIN)            /* pins are not counted: what is being read may leave */                    \
    X(HOLD)           /* a hold keeps nothing */                                                  \
    X(EARLY_SEAL)     /* a block is sealed before its write has ended */                          \
    X(EARLY_DEMOTE)   /* a copy below counts before its write has ended */                        \
    X(EARLY_PROMOTE)  /* a copy above counts before its bytes have come */                        \
    X(FAILED_WRITE)   /* a failed write makes a copy */                                           \
    X(LEAK)           /* a demotion that failed keeps its slot */                                 \
    X(FLUSH)          /* "safe" does not flush the blocks */                                      \
    X(REMOVE)         /* a removed block's header stays on the medium */                          \
    X(STALE)          /* headers of evicted blocks are not remembered */                          \
    X(REWRITE)        /* the headers of the old bytes stay on the medium */                       \
    X(REWRITE_LOWER)  /* the copy of the old bytes below stays */                                 \
    X(WRITE_NUMBER)   /* of two slots with one name, the older one counts at the next opening */  \
    X(UNFINISHED)     /* a write that a crash cut short is taken without a look */                \
    X(MARK)           /* the mark of completed writes passes those in flight */                   \
    X(POLICY_PAGE)    /* policies are not written out */                                          \
    X(POLICY_TORN)    /* a policy record's checksum is ignored */                                 \
    X(POLICY_OTHER)   /* a policy record of an earlier block in the slot is taken */              \
    X(QUARANTINE)     /* a copy that was found bad stays */                                       \
    X(DEMOTE_TWICE)   /* a block that lies below is written there again */                        \
    X(LOSS)           /* what lies nowhere below is discarded like what does */                   \
    X(PARENT)         /* a parent leaves before its children */                                   \
    X(LOOKUP)         /* a look-up is a use */                                                    \
    X(LEDGER)         /* the bytes of a failed write count as demoted */                          \
    X(REPORT_TWICE)   /* a job's report is given out twice */                                     \
    X(TIMEOUT)        /* a call whose time is over says that the device is full */                \
    X(REPAIR)         /* a repair drops what is well */                                           \
    X(LOCK)           /* a directory is opened without its lock */

#define PLANTED_ENUM(name) PLANTED_##name,
typedef enum base_planted_defect { PLANTED_NONE, PLANTED_LIST(PLANTED_ENUM) PLANTED_COUNT } base_planted_defect;
#undef PLANTED_ENUM

#ifdef KVO_PLANTED_DEFECTS
base_planted_defect base_planted(void);
#define KVO_PLANTED(name) (base_planted() == PLANTED_##name)
#else
#define KVO_PLANTED(name) false
#endif

#endif
