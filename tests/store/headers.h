/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large stores in little time and space: an environment in which a block's header is written and its payload is
 * left a hole, so that a directory of 200,000 slots of 64 KiB takes 800 MB; for the opening that fills the store,
 * with KVO_IO_THREADS, whose transfers go through the environment. Later openings and closes are as with payloads; a
 * get of such a block misses.
 */
#ifndef HEADERS_H
#define HEADERS_H

#include "base/env.h"

base_env *headers_env(void);

#endif
