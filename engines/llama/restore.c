/* SPDX-License-Identifier: Apache-2.0 */
/* From the store into the context: all bytes are checked before the first goes in, and read back afterwards. */
#include "restore.h"

#include <stdlib.h>
#include <string.h>

/* ---- What is there ----------------------------------------------------------- */

kvo_names llama_names_of(const restoring *r, kvo_space space, size_t first, size_t end)
{
    return (kvo_names){.first = r->names + first * NAME_BYTES, .name_bytes = NAME_BYTES, .count = end - first,
                       .space = space};
}

size_t llama_matched(restoring *r, size_t limit)
{
    const kvo_names names = llama_names_of(r, r->kv->shape->space, 0, limit);
    size_t count = 0;

    return kvo_match(r->kv->store, &names, NULL, &count) == KVO_OK ? count : 0;
}

/* The last end, at most `limit`, whose window is stored. *all: so are the window cells of all blocks before it. */
static size_t last_windowed(restoring *r, size_t limit, bool *all)
{
    kvo_llama *kv = r->kv;
    kvo_answer *answers = malloc((limit + 1) * sizeof *answers);
    const kvo_names names = llama_names_of(r, kv->shape->window_space, 0, limit);
    size_t found = 0, run = 0; /* `run` blocks before i are all there */

    if (answers == NULL)
        (void)llama_no_memory(kv);
    if (answers == NULL || kvo_exists(kv->store, &names, answers) != KVO_OK)
        limit = 0;
    for (size_t i = 0; i < limit; i++) {
        run = answers[i].status == KVO_OK ? run + 1 : 0;
        if (run > 0 && i + 1 - run <= llama_window_first(kv, i + 1)) {
            found = i + 1;
            *all = run == i + 1;
        }
    }
    free(answers);
    return found;
}

/* Sets where a restore ends, and why not later. */
static void plan(restoring *r, size_t limit)
{
    const size_t base = llama_matched(r, limit);

    if (base < limit)
        r->why = KVO_LLAMA_MISS;
    r->end = base;
    r->first = 0;
    r->steps = false;
    if (!llama_windowed(r->kv->shape) || base == 0)
        return;
    r->end = last_windowed(r, base, &r->steps);
    r->steps = r->steps && r->kv->scratch >= 0 && llama_window_first(r->kv, r->end) > 0;
    r->first = r->steps ? 0 : llama_window_first(r->kv, r->end);
    if (r->end < base) {
        r->why = KVO_LLAMA_WINDOW;
        r->kv->wanted_end = base;
    }
}

/* ---- Rows --------------------------------------------------------------------- */

/* Each round that fails has lost at least one block. */
static void restore_rows(restoring *r)
{
    size_t limit = r->wanted;
    int why = KVO_LLAMA_COMPLETE;

    plan(r, limit);
    while (r->end > 0 && !llama_gather(r, &limit, &why)) {
        plan(r, limit);
        r->why = why;
    }
    if (r->end == 0)
        return;
    why = llama_put_in(r);
    if (why != KVO_LLAMA_COMPLETE)
        llama_give_up(r, why);
}

/* ---- Shapes ---------------------------------------------------------------------- */

static void restore_shape(restoring *r, const blob_form *form)
{
    r->why = KVO_LLAMA_COMPLETE;
    r->end = 0;
    r->form = *form;
    r->names = llama_chain(r->kv, r->tokens, r->wanted);
    if (r->names == NULL)
        r->why = llama_no_memory(r->kv);
    else if (r->kv->shape->kind == KVO_LLAMA_OPAQUE)
        llama_restore_opaque(r);
    else
        restore_rows(r);
}

/* One candidate, composed as the build that wrote it does, then as the others do. */
static bool try_shape(restoring *r)
{
    kv_shape *shape = r->kv->shape;
    blob_form form = shape->form;

    restore_shape(r, &form);
    if (r->why == KVO_LLAMA_SHAPE && shape->kind == KVO_LLAMA_ROWS) {
        form.rotation = !form.rotation;
        restore_shape(r, &form);
    }
    shape->form = form;
    return r->end > 0;
}

/* How much of the prompt is stored under a candidate. */
static size_t promise(restoring *r, kv_shape *candidate)
{
    kvo_llama *kv = r->kv;

    if (!llama_shape_ours(kv, candidate) || (llama_windowed(candidate) && kv->window == 0) ||
        llama_shape_open(kv, candidate) != KVO_OK)
        return 0;
    kv->shape = candidate;
    llama_chain_forget(kv);
    r->names = llama_chain(kv, r->tokens, r->wanted);
    const size_t count = r->names == NULL ? 0 : llama_matched(r, r->wanted);

    kv->shape = NULL;
    return count;
}

/* Nothing was exported yet, so the layout is not known: the candidates with the longest prefix come first. */
static void try_shapes(restoring *r)
{
    kvo_llama *kv = r->kv;
    kv_shape *candidates[RECORDS_MAX];
    size_t promised[RECORDS_MAX];
    const size_t count = llama_records_load(kv, candidates);
    kv_shape *found = NULL;
    int why = KVO_LLAMA_MISS;

    for (size_t i = 0; i < count; i++)
        promised[i] = promise(r, candidates[i]);
    for (size_t round = 0; round < count && found == NULL; round++) {
        size_t best = 0;

        for (size_t i = 1; i < count; i++)
            best = promised[i] > promised[best] ? i : best;
        if (promised[best] == 0)
            break;
        promised[best] = 0;
        kv->shape = candidates[best];
        llama_chain_forget(kv);
        if (try_shape(r))
            found = candidates[best];
        kv->shape = NULL;
        why = r->why;
    }
    for (size_t i = 0; i < count; i++)
        if (candidates[i] != found)
            free(candidates[i]);
    r->why = why;
    kv->recorded = found != NULL;
    if (found != NULL)
        llama_shape_use(kv, found, true);
}

/* ---- The call ---------------------------------------------------------------------- */

static void restore(restoring *r)
{
    r->view = calloc(1, sizeof *r->view);
    r->back_view = calloc(1, sizeof *r->back_view);
    r->back_layout = calloc(1, sizeof *r->back_layout);
    if (r->view == NULL || r->back_view == NULL || r->back_layout == NULL)
        r->why = llama_no_memory(r->kv);
    else if (r->kv->refused != 0)
        r->why = r->kv->refused;
    else if (r->kv->learned)
        restore_shape(r, &r->kv->shape->form);
    else
        try_shapes(r);
    free(r->view);
    free(r->back_view);
    free(r->back_layout);
}

static void count_restored(const restoring *r)
{
    kvo_llama *kv = r->kv;
    const uint64_t tokens = (uint64_t)r->end * kv->block_tokens;

    kv->stat.restores++;
    kv->stat.restore_why[r->why]++;
    kv->stat.restored_tokens += tokens;
    if (r->end == 0)
        return;
    kv->stat.restored_blocks += r->end + (llama_windowed(kv->shape) ? r->end - r->first : 0);
    kv->stat.restored_bytes += kv->shape->kind == KVO_LLAMA_OPAQUE
                                   ? (uint64_t)r->end * kv->shape->block_bytes
                                   : tokens * llama_token_bytes(kv->shape, 0) + (r->end - r->first) * kv->block_tokens *
                                                                                    llama_token_bytes(kv->shape, 1);
}

int kvo_llama_restore(kvo_llama *kv, int32_t sequence, const int32_t *tokens, size_t token_count, size_t *restored,
                      int *why)
{
    const uint64_t begin = llama_now();
    restoring r = {.kv = kv, .sequence = sequence, .tokens = tokens, .why = KVO_LLAMA_COMPLETE};

    if (restored != NULL)
        *restored = 0;
    if (kv == NULL || restored == NULL || (tokens == NULL && token_count > 0))
        return KVO_E_ARGUMENT;
    const int status = llama_may(kv, sequence, token_count);

    if (status != KVO_OK)
        return status;
    kv->until = kv->restore_ns > UINT64_MAX - begin ? UINT64_MAX : begin + kv->restore_ns;
    llama_empty(kv, sequence);
    const size_t most = token_count > kv->positions ? kv->positions : token_count;

    r.wanted = most == 0 ? 0 : (most - 1) / kv->block_tokens;
    if (r.wanted > 0)
        restore(&r);
    kv->chain.done = r.end < kv->chain.done ? r.end : kv->chain.done; /* the rest may have left the store */
    count_restored(&r);
    llama_trim(&kv->blob);
    llama_trim(&kv->back);
    *restored = r.end * kv->block_tokens;
    if (why != NULL)
        *why = r.why;
    kv->stat.restore_ns += llama_now() - begin;
    return KVO_OK;
}
