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

#if defined(__SANITIZE_THREAD__)
#define TEST_SANITIZES_THREADS 1
#elif defined(__has_feature)
#define TEST_SANITIZES_THREADS __has_feature(thread_sanitizer)
#else
#define TEST_SANITIZES_THREADS 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define TEST_SANITIZES 1
#elif defined(__has_feature)
#define TEST_SANITIZES (TEST_SANITIZES_THREADS || __has_feature(address_sanitizer))
#else
#define TEST_SANITIZES TEST_SANITIZES_THREADS
#endif

#define TEST_SKIPPED 77 /* exit code */

#endif
