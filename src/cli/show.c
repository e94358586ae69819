/* SPDX-License-Identifier: Apache-2.0 */
#include "show.h"

#include <stdio.h>

const char *const cli_intents[] = {"none", "keep", "prefetch", "demote", "drop", NULL};

static const char *intent_name(unsigned intent)
{
    return intent <= KVO_INTENT_DROP ? cli_intents[intent] : "?";
}

/* What is left of an intent, in whole seconds as they are kept. */
static unsigned long long seconds_left(const kvo_policy *policy)
{
    return policy->intent_ns / 1000000000u + (policy->intent_ns % 1000000000u != 0);
}

void cli_show_policy_json(cli_out *out, const kvo_policy *policy)
{
    cli_out_object(out, "policy");
    cli_out_u64(out, "tenant", policy->tenant);
    cli_out_u64(out, "qos", policy->qos);
    cli_out_u64(out, "priority", policy->priority);
    cli_out_u64(out, "reuse", policy->reuse);
    cli_out_text(out, "intent", intent_name(policy->intent));
    if (policy->intent_ns != 0) {
        cli_out_u64(out, "intent_seconds", seconds_left(policy));
    } else {
        cli_out_null(out, "intent_seconds");
    }
    cli_out_object_end(out);
}

void cli_show_policy(const kvo_policy *policy)
{
    printf("tenant %u, qos %u, priority %u, reuse %u", (unsigned)policy->tenant, (unsigned)policy->qos,
           (unsigned)policy->priority, (unsigned)policy->reuse);
    if (policy->intent != KVO_INTENT_NONE) {
        printf(", %s", intent_name(policy->intent));
    }
    if (policy->intent_ns != 0) {
        printf(" for %llu s", seconds_left(policy));
    }
}
