/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: one arena, mapped writable for the store and read-only for pins. */
#ifndef TIER_DRAM_H
#define TIER_DRAM_H

#include "tier/tier.h"

extern const tier_ops tier_dram;

#endif
