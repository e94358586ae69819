/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka with the headers that it needs but does not include. */
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TEST_SKIPPED 77 /* exit code */

#endif
