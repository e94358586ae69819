/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STORE_OPEN_H
#define STORE_OPEN_H

#include "store/store.h"

/* kvo_open_tiers() on another environment, for tests. */
int store_open(base_env *env, const kvo_tier_config *tiers, uint32_t count, const kvo_options *options,
               kvo_store **store, kvo_error *error);

#endif
