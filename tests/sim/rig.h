/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store on a simulated medium, and an oracle beside it. Each name has versions that differ in bytes and
 * length, each policy that is set has a tenant of its own; so whatever is served or set after a crash says
 * where it comes from. What must be there after a crash is what the store itself had called written or safe.
 */
#ifndef SIM_RIG_H
#define SIM_RIG_H

#include "kvonce.h"
#include "medium.h"
#include "store/open.h"

enum {
    RIG_NAMES = 24,
    RIG_NAME_BYTES = 32,
    RIG_VERSIONS = 96,
    RIG_POLICIES = 160,
    RIG_BYTES_MAX = 12288,
    RIG_ABSENT = -1,
    RIG_DEATH = 0, /* of the process */
    RIG_POWER = 1, /* cut */
    RIG_CRASHES = 2
};

typedef struct rig_name {
    int now;    /* the version that the running store serves, or RIG_ABSENT */
    int newest; /* of all that were offered to a store */
    int floor[RIG_CRASHES]; /* the oldest that may be served after a crash of that kind */
    int gone[RIG_CRASHES];  /* the same for what no crash should have brought back, though nobody removed it */
    int must[RIG_CRASHES];  /* the one that has to be, or RIG_ABSENT */
    uint8_t life[RIG_VERSIONS];         /* of each version: a put begins one, a rewrite goes on with it */
    uint8_t first_policy[RIG_VERSIONS]; /* of each version: an earlier one is wrong */
    uint32_t moves; /* from a disk to the next one */
    int policy, policy_count;
    int policy_floor[RIG_CRASHES]; /* where must says so: an earlier one is wrong */
    uint16_t tenants[RIG_POLICIES];
    uint8_t policy_life[RIG_POLICIES];
} rig_name;

typedef struct rig_oracle {
    rig_name names[RIG_NAMES];
    uint64_t puts, puts_floor[RIG_CRASHES]; /* in the ledger */
} rig_oracle;

typedef struct rig_config {
    const char *tiers;
    uint32_t block_bytes;
} rig_config;

typedef struct rig {
    sim_medium *medium;
    const rig_config *config;
    kvo_store *store;
    kvo_space space;
    uint32_t ended; /* one bit a name: in the last close */
    int torn;    /* so many blocks may turn out to be overwritten */
    bool rotten; /* bits were flipped on the medium: nothing has to be there */
    bool faulty; /* a call may fail, a copy may be bad */
    rig_oracle oracle;
    uint16_t tenants; /* given out */
    uint8_t *bytes;
} rig;

/* What is being tried, for the line that a failure prints. */
extern char rig_doing[512];
extern bool rig_verbose;
void rig_start(void); /* of the program */
_Noreturn void rig_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

typedef struct rig_counts {
    uint64_t states[RIG_CRASHES]; /* that were reopened and looked at */
    uint64_t payloads;            /* compared */
    uint64_t overwritten; /* blocks of which an old header was left over new bytes: misses */
    uint64_t damaged;     /* states with a header that looked damaged */
    uint64_t operations, refused;
} rig_counts;
extern rig_counts rig_counted;

void rig_begin(rig *r, sim_medium *m, const rig_config *config);
void rig_end(rig *r);

/* Opens it, at rest: nothing happens but in calls. A kvo_status. */
int rig_try_open(rig *r, kvo_error *error);
void rig_open(rig *r); /* must say KVO_OK */
int rig_close(rig *r); /* in order; the oracle knows that all is safe if it says KVO_OK */
void rig_drop(rig *r); /* of a store whose medium has crashed: frees its memory */

/* Operations; the answer of the call, after the oracle has taken note. */
int rig_put(rig *r, unsigned name, int level);
int rig_get(rig *r, unsigned name);
int rig_policy(rig *r, unsigned name, int intent);
int rig_rewrite(rig *r, unsigned name, int level);
int rig_remove(rig *r, unsigned name, int level);
int rig_sync(rig *r, int level);
int rig_write_out(rig *r);

/* In the middle of what led from one to the other. */
void rig_between(rig_oracle *out, const rig_oracle *before, const rig_oracle *after);

/*
 * After a crash of that kind and a new opening: everything that is served, is missing or is set may be so
 * or the program ends. The oracle then knows what is there. With `whole`, no copy may be bad.
 */
void rig_check_crash(rig *r, int crash, bool whole);
void rig_check_valid(rig *r);
/* The next put, get, rewrite and remove do what they should. */
void rig_check_works(rig *r, unsigned fresh);

/* A digest of all that a store says it holds, not of where. */
uint64_t rig_listing(rig *r);

#endif
