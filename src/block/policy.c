/* SPDX-License-Identifier: Apache-2.0 */
#include "block/policy.h"

int policy_check(const kvo_policy *p, uint32_t mask)
{
    if (mask & ~(uint32_t)KVO_POLICY_ALL)
        return KVO_E_RANGE;
    if ((mask & KVO_POLICY_QOS) && p->qos > 3)
        return KVO_E_RANGE;
    if ((mask & KVO_POLICY_PRIORITY) && p->priority > 100)
        return KVO_E_RANGE;
    if ((mask & KVO_POLICY_REUSE) && p->reuse > 100)
        return KVO_E_RANGE;
    if ((mask & KVO_POLICY_INTENT) && (p->intent > KVO_INTENT_DROP || p->intent_ns > POLICY_INTENT_NS_MAX))
        return KVO_E_RANGE;
    return KVO_OK;
}

static uint64_t deadline_after(uint64_t ns, uint32_t now_s)
{
    if (ns == 0)
        return 0;
    uint64_t end = now_s + ns / 1000000000u + (ns % 1000000000u != 0);
    return end > POLICY_DEADLINE_MAX ? POLICY_DEADLINE_MAX : end;
}

policy_change policy_change_of(const kvo_policy *p, uint32_t mask, uint32_t now_s)
{
    uint64_t clear = 0, set = 0;
    if (mask & KVO_POLICY_TENANT) {
        clear |= 0xffffull;
        set |= p->tenant;
    }
    if (mask & KVO_POLICY_QOS) {
        clear |= 3ull << 16;
        set |= (uint64_t)p->qos << 16;
    }
    if (mask & KVO_POLICY_PRIORITY) {
        clear |= 127ull << 18;
        set |= (uint64_t)p->priority << 18;
    }
    if (mask & KVO_POLICY_REUSE) {
        clear |= 127ull << 25;
        set |= (uint64_t)p->reuse << 25;
    }
    if (mask & KVO_POLICY_INTENT) {
        clear |= 7ull << 32 | (uint64_t)POLICY_DEADLINE_MAX << 35;
        set |= (uint64_t)p->intent << 32 | deadline_after(p->intent_ns, now_s) << 35;
    }
    return (policy_change){clear, set};
}

void policy_unpack(uint64_t w, uint32_t now_s, kvo_policy *p)
{
    uint32_t deadline = policy_deadline(w);
    *p = (kvo_policy){
        .tenant = (uint16_t)policy_tenant(w),
        .qos = (uint8_t)policy_qos(w),
        .priority = (uint8_t)policy_priority(w),
        .reuse = (uint8_t)policy_reuse(w),
        .intent = (uint8_t)policy_intent_at(w, now_s),
    };
    if (p->intent != KVO_INTENT_NONE && deadline > now_s)
        p->intent_ns = (uint64_t)(deadline - now_s) * 1000000000u;
    if (p->intent_ns > POLICY_INTENT_NS_MAX) /* the wall clock was set back: what is told may be set again */
        p->intent_ns = POLICY_INTENT_NS_MAX;
}
