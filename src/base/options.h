/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include <stddef.h>

/*
 * Takes a caller's struct that begins with `size_t size`, whatever version of the header it was
 * compiled with. `full` holds the defaults (its _INIT macro) and keeps them for the fields that an
 * older, shorter struct lacks; full->size ends as full_bytes. given NULL = all defaults.
 *
 * KVO_E_ARGUMENT: `size` was not set. KVO_E_UNSUPPORTED: a newer, longer struct uses a field that
 * this library does not know.
 */
int base_options_take(void *full, size_t full_bytes, const void *given);

#endif
