/* SPDX-License-Identifier: Apache-2.0 */
/* What `policy --set` says: "priority=90,intent=keep,intent_seconds=60". */
#ifndef CLI_POLICY_SET_H
#define CLI_POLICY_SET_H

#include "kvonce.h"

typedef struct cli_policy_change {
    kvo_policy policy;
    uint32_t mask; /* KVO_POLICY_... */
    int seconds_said;
} cli_policy_change;

/* 0, or -1 after a message: a field that is none, twice, or out of its range. */
int cli_policy_parse(cli_policy_change *change, const char *set);

#endif
