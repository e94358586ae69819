/* SPDX-License-Identifier: Apache-2.0 */
#include "policy_set.h"

#include "common.h"
#include "options.h"
#include "show.h"

#include <stdlib.h>
#include <string.h>

enum { SET_TENANT, SET_QOS, SET_PRIORITY, SET_REUSE, SET_INTENT, SET_SECONDS };
static const char *const set_names[] = {"tenant", "qos", "priority", "reuse", "intent", "intent_seconds", NULL};

static int set_intent(cli_policy_change *change, const char *value)
{
    for (int i = 0; cli_intents[i] != NULL; i++) {
        if (strcmp(cli_intents[i], value) == 0) {
            change->policy.intent = (uint8_t)i;
            return 0;
        }
    }
    (void)cli_fail("--set intent: \"%s\" is not none, keep, prefetch, demote or drop", value);
    return -1;
}

static int set_field(cli_policy_change *change, int field, const char *value)
{
    uint64_t number = 0;
    int result = 0;
    switch (field) {
    case SET_TENANT:
        result = cli_number("--set tenant", value, 0, UINT16_MAX, 0, &number);
        change->policy.tenant = (uint16_t)number;
        break;
    case SET_QOS:
        result = cli_number("--set qos", value, 0, 3, 0, &number);
        change->policy.qos = (uint8_t)number;
        break;
    case SET_PRIORITY:
        result = cli_number("--set priority", value, 0, 100, 0, &number);
        change->policy.priority = (uint8_t)number;
        break;
    case SET_REUSE:
        result = cli_number("--set reuse", value, 0, 100, 0, &number);
        change->policy.reuse = (uint8_t)number;
        break;
    case SET_INTENT:
        return set_intent(change, value);
    default:
        result = cli_number("--set intent_seconds", value, 1, 2 * 365 * 86400, 0, &number);
        change->policy.intent_ns = number * 1000000000u;
        change->seconds_said = 1;
    }
    return result;
}

/* One "field=value"; the text is cut at the '='. */
static int set_one(cli_policy_change *change, char *text)
{
    char *equals = strchr(text, '=');
    if (equals != NULL) {
        *equals = 0;
        for (int field = 0; set_names[field] != NULL; field++) {
            if (strcmp(set_names[field], text) != 0) {
                continue;
            }
            uint32_t bit = 1u << field;
            if (field == SET_SECONDS ? change->seconds_said : (change->mask & bit) != 0) {
                break;
            }
            change->mask |= field != SET_SECONDS ? bit : 0;
            return set_field(change, field, equals + 1);
        }
    }
    (void)cli_fail("--set: \"%s\" is no field, or twice: tenant, qos, priority, reuse, intent, intent_seconds", text);
    return -1;
}

int cli_policy_parse(cli_policy_change *change, const char *set)
{
    char *text = memcpy(cli_alloc(strlen(set) + 1, 1), set, strlen(set) + 1);
    int result = 0;
    memset(change, 0, sizeof *change);
    for (char *at = text; at != NULL && result == 0;) {
        char *comma = strchr(at, ',');
        if (comma != NULL) {
            *comma = 0;
        }
        result = set_one(change, at);
        at = comma != NULL ? comma + 1 : NULL;
    }
    free(text);
    if (result == 0 && change->seconds_said && !(change->mask & KVO_POLICY_INTENT)) {
        (void)cli_fail("--set: intent_seconds goes with intent");
        result = -1;
    }
    return result;
}
