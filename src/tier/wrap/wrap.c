/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/wrap/wrap.h"

#include <errno.h>
#include <string.h>

#include "base/status.h"
#include "base/thread.h"

void wrap_wait(wrap *w, uint64_t ns)
{
    pthread_mutex_lock(&w->lock);
    while (base_cond_wait(&w->never, &w->lock, ns)) /* woken for nothing: the wait begins anew */
        continue;
    pthread_mutex_unlock(&w->lock);
}

/* What the store reads in the medium itself is that of the one behind. */
static void show(wrap *w)
{
    const tier_medium *behind = w->tier.behind;
    w->tier.facts = behind->facts;
    w->tier.geometry = behind->geometry;
    w->tier.data_bytes = behind->data_bytes;
    w->tier.control_bytes = behind->control_bytes + sizeof *w;
    w->tier.path = behind->path;
    w->tier.data_path = behind->data_path;
}

/* ---- opening and closing ---- */

static void wrap_close(tier_medium *t)
{
    wrap *w = wrap_of(t);
    base_env *env = w->env;
    wrap_rules_log(w);
    tier_close(t->behind);
    pthread_cond_destroy(&w->never);
    pthread_mutex_destroy(&w->lock);
    env->free(env, w, sizeof *w);
}

static int open_behind(wrap *w, const tier_config *config, kvo_error *error)
{
    kvo_tier_config behind = *config->config;
    tier_config c = *config;
    const char *rest = strchr(behind.wrappers, '+');
    behind.wrappers = rest ? rest + 1 : NULL;
    c.config = &behind;
    int r = wrap_rules_parse(w, config->config->wrappers, error);
    return r == KVO_OK ? tier_open(&c, &w->tier.behind, error) : r;
}

static int open_as(const tier_ops *ops, const tier_config *config, tier_medium **out, kvo_error *error)
{
    base_env *env = config->env;
    wrap *w = env->alloc(env, sizeof *w);
    if (w == NULL)
        return base_fail(error, KVO_E_MEMORY, "%s: no memory for the tier itself", ops->kind);
    w->tier.ops = ops;
    w->env = env;
    pthread_mutex_init(&w->lock, NULL);
    base_cond_init(&w->never);
    int r = open_behind(w, config, error);
    if (r != KVO_OK) {
        wrap_close(&w->tier);
        return r;
    }
    w->log = config->log;
    w->log_context = config->log_context;
    w->tier.state = w->tier.behind->state;
    w->tier.checkpoint = w->tier.behind->checkpoint;
    w->tier.unclean = w->tier.behind->unclean;
    w->tier.lost_copy = w->tier.behind->lost_copy;
    show(w);
    *out = &w->tier;
    return KVO_OK;
}

static int fault_open(const tier_config *config, tier_medium **out, kvo_error *error)
{
    return open_as(&tier_fault, config, out, error);
}

static int delay_open(const tier_config *config, tier_medium **out, kvo_error *error)
{
    return open_as(&tier_delay, config, out, error);
}

static int wrap_resize(tier_medium *t, const tier_geometry *geometry, kvo_error *error)
{
    int r = tier_resize(t->behind, geometry, error);
    show(wrap_of(t));
    return r;
}

static int wrap_begin(tier_medium *t, kvo_error *error) { return tier_begin(t->behind, error); }

static void *wrap_memory(tier_medium *t, uint32_t slot) { return tier_memory(t->behind, slot); }
static const void *wrap_readable(tier_medium *t, uint32_t slot) { return tier_readable(t->behind, slot); }
static bool wrap_direct_io(tier_medium *t) { return tier_direct_io(t->behind); }

/* ---- calls that are no transfers ---- */

/* false: it ends here, with *result. */
static bool passes(tier_medium *t, wrap_op op, int *result)
{
    wrap_verdict v = wrap_judge(wrap_of(t), op);
    if (v.delay_ns)
        wrap_wait(wrap_of(t), v.delay_ns);
    *result = v.error;
    return v.what == WRAP_NOTHING || v.what == WRAP_DELAY;
}

static int wrap_invalidate(tier_medium *t, const uint32_t *slots, size_t count)
{
    int r;
    return passes(t, WRAP_REMOVE, &r) ? t->behind->ops->invalidate(t->behind, slots, count) : r;
}

static int wrap_flush(tier_medium *t)
{
    int r;
    return passes(t, WRAP_FLUSH, &r) ? t->behind->ops->flush(t->behind) : r;
}

static int wrap_scan(tier_medium *t, int (*segment)(void *, uint32_t, uint32_t, uint32_t),
                     int (*each)(void *, const tier_slot *), void *context)
{
    int r;
    return passes(t, WRAP_META, &r) ? t->behind->ops->scan(t->behind, segment, each, context) : r;
}

static int wrap_checkpoint_scan(tier_medium *t, int (*segment)(void *, uint32_t, uint32_t, uint32_t),
                                int (*each)(void *, const tier_slot *), void *context)
{
    int r;
    return passes(t, WRAP_META, &r) ? t->behind->ops->checkpoint_scan(t->behind, segment, each, context) : r;
}

static int wrap_checkpoint_write(tier_medium *t, const tier_checkpoint *close,
                                 size_t (*next)(void *, tier_slot *, size_t), void *context)
{
    int r;
    return passes(t, WRAP_META, &r) ? t->behind->ops->checkpoint_write(t->behind, close, next, context) : r;
}

/* Memory keeps no policies; who asks whether it still answers gets none, as without a wrapper. */
static int wrap_policy_read(tier_medium *t, uint64_t page, uint32_t pages, void *memory)
{
    int r;
    if (t->behind->ops->policy_read == NULL)
        return -EOPNOTSUPP;
    return passes(t, WRAP_META, &r) ? t->behind->ops->policy_read(t->behind, page, pages, memory) : r;
}

static int wrap_policy_write(tier_medium *t, uint64_t page, uint32_t pages, const void *memory)
{
    int r;
    return passes(t, WRAP_META, &r) ? t->behind->ops->policy_write(t->behind, page, pages, memory) : r;
}

static int wrap_note_write(tier_medium *t, tier_note which, const void *data, size_t bytes)
{
    int r;
    return passes(t, WRAP_META, &r) ? t->behind->ops->note_write(t->behind, which, data, bytes) : r;
}

static int wrap_note_read(tier_medium *t, tier_note which, void **data, size_t *bytes)
{
    int r;
    return passes(t, WRAP_META, &r) ? t->behind->ops->note_read(t->behind, which, data, bytes) : r;
}

static int wrap_state_write(tier_medium *t, const tier_state *state, bool clean)
{
    int r;
    t->state = *state;
    return passes(t, WRAP_META, &r) ? t->behind->ops->state_write(t->behind, state, clean) : r;
}

static int wrap_segment_write(tier_medium *t, uint32_t segment, uint32_t stride, uint32_t epoch)
{
    int r;
    return passes(t, WRAP_META, &r) ? t->behind->ops->segment_write(t->behind, segment, stride, epoch) : r;
}

static int wrap_pad(tier_medium *t, uint32_t slot, uint32_t payload_bytes, const void *last_unit)
{
    int r;
    return passes(t, WRAP_META, &r) ? t->behind->ops->pad(t->behind, slot, payload_bytes, last_unit) : r;
}

/* One mechanism under two names: they differ in what their rules may say. */
#define WRAP_TABLE(name, open_it)                                                                     \
    const tier_ops tier_##name = {.size = sizeof(tier_ops),                                           \
                                  .api = TIER_API,                                                    \
                                  .kind = #name,                                                      \
                                  .open = open_it,                                                    \
                                  .resize = wrap_resize,                                              \
                                  .begin = wrap_begin,                                                \
                                  .close = wrap_close,                                                \
                                  .memory = wrap_memory,                                              \
                                  .readable = wrap_readable,                                          \
                                  .stream_open = wrap_stream_open,                                    \
                                  .stream_close = wrap_stream_close,                                  \
                                  .full = wrap_full,                                                  \
                                  .add = wrap_add,                                                    \
                                  .next = wrap_next,                                                  \
                                  .invalidate = wrap_invalidate,                                      \
                                  .flush = wrap_flush,                                                \
                                  .scan = wrap_scan,                                                  \
                                  .checkpoint_scan = wrap_checkpoint_scan,                            \
                                  .checkpoint_write = wrap_checkpoint_write,                          \
                                  .policy_read = wrap_policy_read,                                    \
                                  .policy_write = wrap_policy_write,                                  \
                                  .note_write = wrap_note_write,                                      \
                                  .note_read = wrap_note_read,                                        \
                                  .state_write = wrap_state_write,                                    \
                                  .segment_write = wrap_segment_write,                                \
                                  .direct_io = wrap_direct_io,                                        \
                                  .pad = wrap_pad}

WRAP_TABLE(fault, fault_open);
WRAP_TABLE(delay, delay_open);
