/* SPDX-License-Identifier: Apache-2.0 */
/* How blocks and policies are shown: ls and policy do it alike. */
#ifndef CLI_SHOW_H
#define CLI_SHOW_H

#include "json_out.h"
#include "kvonce.h"

/* "none", "keep", ...; ended by NULL: index = kvo_intent. */
extern const char *const cli_intents[];

void cli_show_policy_json(cli_out *out, const kvo_policy *policy);
/* "tenant 3, qos 1, priority 50, reuse 0, keep for 40 s" */
void cli_show_policy(const kvo_policy *policy);

#endif
