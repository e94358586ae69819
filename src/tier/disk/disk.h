/* SPDX-License-Identifier: Apache-2.0 */
/* A directory: one large preallocated file of slots and a few small ones. docs/format.md. */
#ifndef TIER_DISK_H
#define TIER_DISK_H

#include "tier/tier.h"

extern const tier_ops tier_disk;

#endif
