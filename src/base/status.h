/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "kvonce.h"

/* Formats one line into error (may be NULL) and returns status, so that a failure reads
   `return base_fail(error, KVO_E_RANGE, "...", ...)`. */
int base_fail(kvo_error *error, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The status for a negative errno value: ENOSPC, EDQUOT, EFBIG -> NO_SPACE; EACCES, EPERM,
   EROFS -> PERMISSION; ENOMEM -> MEMORY; ENOENT -> NOT_FOUND; everything else -> IO. */
int base_status_of_errno(int negative_errno);

#endif
