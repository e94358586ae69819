/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "store/store.h"

int store_enter(kvo_store *s)
{
    if (s == NULL)
        return KVO_E_ARGUMENT;
    int64_t process = s->env->process(s->env);
    if (s->process == process)
        return KVO_OK;
    return s->closing == process ? KVO_E_STATE : KVO_E_FORKED;
}

int store_check_names(const kvo_store *s, const kvo_names *names)
{
    if (names == NULL || names->count > KVO_BATCH_MAX || (names->count && names->first == NULL))
        return KVO_E_ARGUMENT;
    if (names->name_bytes < KVO_NAME_BYTES_MIN || names->name_bytes > KVO_NAME_BYTES_MAX)
        return KVO_E_ARGUMENT;
    if (names->stride_bytes && names->stride_bytes < names->name_bytes)
        return KVO_E_ARGUMENT;
    if (names->space == 0 || names->space > KVO_SPACES_MAX || !s->spaces[names->space].used)
        return KVO_E_ARGUMENT;
    return names->kind <= KVO_KIND_STATE ? KVO_OK : KVO_E_ARGUMENT;
}

void store_clock_start(kvo_store *s, uint64_t epoch_s)
{
    uint64_t now = s->env->wall_s(s->env);
    s->epoch_s = epoch_s;
    s->opened_s = now > epoch_s ? now - epoch_s : 0;
    s->opened_ns = s->env->now_ns(s->env);
}

uint32_t store_now_s(kvo_store *s)
{
    uint64_t since = s->opened_s + (s->env->now_ns(s->env) - s->opened_ns) / 1000000000u;
    return since > POLICY_DEADLINE_MAX ? POLICY_DEADLINE_MAX : (uint32_t)since;
}

uint64_t store_deadline(kvo_store *s, uint64_t ns)
{
    if (ns == 0 || ns == KVO_FOREVER)
        return ns;
    uint64_t now = s->env->now_ns(s->env);
    return ns > KVO_FOREVER - 1 - now ? KVO_FOREVER - 1 : now + ns;
}

uint64_t store_patience(kvo_store *s, uint64_t ns) { return ns == 0 ? STORE_OVER : store_deadline(s, ns); }

/* Waits in steps: an environment may have a clock of its own, and the last unpin takes no lock when it
   sees nobody waiting, so its wake-up may just be missed. */
bool store_wait(kvo_store *s, uint64_t deadline)
{
    uint64_t now = s->env->now_ns(s->env), step = 50000000u;
    if (deadline != KVO_FOREVER && now >= deadline)
        return false;
    if (deadline != KVO_FOREVER && deadline - now < step)
        step = deadline - now;
    atomic_fetch_add(&s->waiting, 1);
    base_cond_wait(&s->changed, &s->lock, step);
    atomic_fetch_sub(&s->waiting, 1);
    return true;
}

void store_changed(kvo_store *s)
{
    atomic_fetch_add(&s->changes, 1);
    pthread_cond_broadcast(&s->changed);
    if (!atomic_load(&s->jobs.tell))
        return;
    pthread_mutex_lock(&s->jobs.lock);
    pthread_cond_signal(&s->jobs.wake);
    pthread_mutex_unlock(&s->jobs.lock);
}

void store_log(kvo_store *s, const char *format, ...)
{
    char line[512];
    va_list arguments;
    if (s->options.on_log == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    s->options.on_log(s->options.log_context, line);
}

void store_event(kvo_store *s, kvo_event_type type, kvo_cause cause, unsigned tier, uint32_t record)
{
    if (s->options.on_event == NULL)
        return;
    block_identity identity;
    identity_load(&s->identities[record], &identity);
    kvo_event e = {
        .reference = atomic_load(&s->clock),
        .type = (int)type,
        .cause = (int)cause,
        .tier = (uint8_t)tier,
        .name_bytes = identity.name_bytes,
        .payload_bytes = identity.payload_bytes,
        .name = identity.name,
    };
    s->options.on_event(s->options.event_context, &e);
}

void store_answer(const kvo_store *s, uint32_t record, kvo_answer *a)
{
    const block_record *r = &s->records[record];
    uint64_t life = word_load(&r->life);
    unsigned mask = block_tiers(r);
    a->tier_mask = (uint8_t)mask;
    a->tier = (uint8_t)block_fastest(mask);
    a->level = mask ? KVO_SEALED : 0;
    for (unsigned on = mask & s->persistent; on; on &= on - 1) {
        uint8_t level = copy_safe(word_load(&r->copy[__builtin_ctz(on)])) ? KVO_SAFE : KVO_WRITTEN;
        a->level = level > a->level ? level : a->level;
    }
    a->payload_bytes = identity_payload_of(&s->identities[record]);
    a->generation = life_rewrites(life) + 1;
    a->handle = handle_make(record, life_incarnation(life));
}
