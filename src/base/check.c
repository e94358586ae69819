/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"

#ifdef KVO_CHECKS
#include <stdio.h>
#include <stdlib.h>

_Noreturn void base_check_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "kvonce: %s:%d: invariant broken: %s\n", file, line, expression);
    abort();
}
#else
typedef int base_check_unused; /* a file is not empty */
#endif
