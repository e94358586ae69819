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

/* What a status speaks of: the groups of the public enum. NONE: not a status. */
typedef enum base_status_group {
    BASE_GROUP_NONE,
    BASE_GROUP_DONE,
    BASE_GROUP_ANSWER,
    BASE_GROUP_CALLER,
    BASE_GROUP_DIRECTORY,
    BASE_GROUP_MACHINE
} base_status_group;
base_status_group base_status_group_of(int status);

#endif
