/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ENV_POSIX_LIMITS_H
#define BASE_ENV_POSIX_LIMITS_H

#include "base/env.h"

void base_posix_limits(base_env *env, base_limits *limits);

#endif
