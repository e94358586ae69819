/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assertions of the rules. Compiled in with the build option `checks`; without it the library
 * never aborts.
 */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#ifdef KVO_CHECKS
_Noreturn void base_check_failed(const char *expression, const char *file, int line);
#define KVO_ASSERT(x) ((x) ? (void)0 : base_check_failed(#x, __FILE__, __LINE__))
#else
#define KVO_ASSERT(x) ((void)sizeof(!(x)))
#endif

#endif
