/* SPDX-License-Identifier: Apache-2.0 */
/* A policy record as it lies in a disk tier's policy file (docs/format.md). */
#ifndef STORE_PERSIST_H
#define STORE_PERSIST_H

#include "store/store.h"

typedef struct policy_record {
    uint64_t key_hash;
    uint64_t policy;
    uint64_t touch;
    uint32_t slot;
    uint32_t generation; /* low byte of the slot's write number */
    uint8_t delta[8];
    uint64_t reserved[2];
    uint64_t checksum; /* XXH3-64 of the 56 bytes before */
} policy_record;

static_assert(sizeof(policy_record) == 64, "part of the format");
#define POLICY_PER_PAGE (TIER_UNIT / sizeof(policy_record))

uint64_t store_policy_checksum(const policy_record *p);
void store_policy_seal(policy_record *p);

#endif
