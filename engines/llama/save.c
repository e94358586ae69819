/* SPDX-License-Identifier: Apache-2.0 */
/* From the context into the store's memory. */
#include "adapter.h"

#include <stdlib.h>
#include <string.h>

/* One call's work. */
typedef struct saving {
    kvo_llama *kv;
    int32_t sequence;
    size_t blocks;         /* full ones of the prompt */
    size_t kept_end;       /* 0, or where a restore shall be able to end */
    const uint8_t *names;
    bool exported;         /* all of the sequence, once */
    kv_export all;
    blob_layout *layout;   /* of the export at hand, and where it has what */
    blob_view *view;
    uint8_t *stored[BLOB_PARTS_MAX]; /* names that go to disk */
    size_t stored_count[BLOB_PARTS_MAX];
} saving;

/* ---- Learning the shape ------------------------------------------------------ */

static int export_some(saving *s, size_t block, kv_export *out)
{
    kvo_llama *kv = s->kv;
    const int32_t first = (int32_t)(block * kv->block_tokens);

    if (kv->scratch >= 0)
        return llama_export(kv, s->sequence, first, first + (int32_t)kv->block_tokens, out) ? KVO_LLAMA_COMPLETE
                                                                                          : KVO_LLAMA_ENGINE;
    if (!s->exported && !llama_export(kv, s->sequence, 0, -1, &s->all))
        return KVO_LLAMA_ENGINE;
    s->exported = true;
    *out = s->all;
    return KVO_LLAMA_COMPLETE;
}

/* Bytes of unknown layout are taken as they are, but never a state that cannot be cut. */
static bool may_be_opaque(const kvo_llama *kv)
{
    return kv->scratch >= 0 && kv->told && kv->window == 0;
}

static int refuse(kvo_llama *kv, int why, const char *what)
{
    llama_log(kv, "nothing is saved: %s", what);
    kv->refused = why;
    return why;
}

static int adopt(kvo_llama *kv, kv_shape *made)
{
    const int status = made == NULL ? KVO_E_MEMORY : llama_shape_open(kv, made);

    if (status == KVO_OK) {
        llama_shape_use(kv, made, true);
        return KVO_LLAMA_COMPLETE;
    }
    free(made);
    if (status == KVO_E_RANGE || status == KVO_FULL || status == KVO_E_MISMATCH)
        return refuse(kv, KVO_LLAMA_NO_ROOM, "the store has no space for such blocks");
    return status == KVO_E_MEMORY ? llama_no_memory(kv) : KVO_LLAMA_ENGINE;
}

/* Two exports must tell the same. */
static int learn(saving *s)
{
    kvo_llama *kv = s->kv;
    blob_form form, again;
    blob_layout *first = calloc(1, sizeof *first);
    kv_export out;
    int why = first == NULL ? llama_no_memory(kv) : export_some(s, 0, &out);

    if (why == KVO_LLAMA_COMPLETE && out.bytes <= BLOB_EMPTY_BYTES_MAX)
        why = KVO_LLAMA_POSITIONS; /* tells nothing of the layout */
    if (why != KVO_LLAMA_COMPLETE) {
        free(first);
        return why;
    }
    bool known = blob_probe(out.blob, out.bytes, &form, first, s->view) && s->view->sequence == out.sequence;

    s->exported = false;
    why = export_some(s, 0, &out);
    if (why == KVO_LLAMA_COMPLETE) {
        known = blob_probe(out.blob, out.bytes, &again, s->layout, s->view) && known &&
                memcmp(&form, &again, sizeof form) == 0 && blob_layouts_agree(first, s->layout) && form.ext_bytes == 0;
        if (known && form.part_count > 1 && kv->window == 0)
            why = refuse(kv, KVO_LLAMA_UNKNOWN,
                         "the model has a sliding window, and the engine does not tell how long it is");
        else if (known && form.part_count > 1 && s->layout->parts[1].layer_count == 0)
            why = KVO_LLAMA_WINDOW;
        else if (known)
            why = adopt(kv, llama_shape_of_rows(kv, &form, s->layout));
        else if (may_be_opaque(kv))
            why = adopt(kv, llama_shape_opaque(kv, (uint32_t)out.bytes));
        else
            why = refuse(kv, KVO_LLAMA_UNKNOWN, "the engine's export has an unknown layout");
    }
    free(first);
    return why;
}

/* ---- One block ------------------------------------------------------------------ */

static bool is_stored(kvo_llama *kv, kvo_space space, const uint8_t *name)
{
    const kvo_names names = {.first = name, .name_bytes = NAME_BYTES, .count = 1, .space = space};
    kvo_answer answer;

    return kvo_exists(kv->store, &names, &answer) == KVO_OK && answer.status == KVO_OK;
}

static int why_of_put(kvo_llama *kv, int32_t status)
{
    if (status == KVO_BUSY || status == KVO_FULL || status == KVO_PENDING)
        return KVO_LLAMA_NO_ROOM;
    llama_log(kv, "a block was not stored: %s", kvo_status_text(status));
    return KVO_LLAMA_ENGINE;
}

static kvo_put_options put_options(const saving *s, uint32_t part, size_t block)
{
    kvo_put_options options = KVO_PUT_OPTIONS_INIT;

    options.deadline_ns = 0;
    options.policy.tenant = s->kv->tenant;
    options.position = (uint32_t)(block * s->kv->block_tokens);
    options.chained = part == 0;
    options.parent = block == 0 ? NULL : s->names + (block - 1) * NAME_BYTES;
    options.trust_name = 1; /* another context's rounding may differ: the first one's is as good */
    return options;
}

/* Fills the store's own memory: rows, or all of an export of unknown layout. */
static int fill(saving *s, uint32_t part, const kv_export *out, uint8_t *memory, uint32_t bytes)
{
    kvo_llama *kv = s->kv;
    const blob_part *rows = &kv->shape->layout.parts[part];

    if (kv->shape->kind == KVO_LLAMA_OPAQUE) {
        memcpy(memory, out->blob, bytes);
        return KVO_LLAMA_COMPLETE;
    }
    blob_take_rows(out->blob, rows, &s->view->parts[part], kv->cells, kv->block_tokens, memory);
    return blob_rows_finite(rows, memory, kv->block_tokens) ? KVO_LLAMA_COMPLETE : KVO_LLAMA_NOT_FINITE;
}

static void count_stored(saving *s, uint32_t part, size_t block, uint32_t bytes)
{
    kvo_llama_stat *stat = &s->kv->stat;

    memcpy(s->stored[part] + NAME_BYTES * s->stored_count[part]++, s->names + block * NAME_BYTES, NAME_BYTES);
    stat->saved_blocks++;
    stat->saved_bytes += bytes;
    stat->saved_tokens += part == 0 ? s->kv->block_tokens : 0;
}

static int store(saving *s, uint32_t part, size_t block, const kv_export *out)
{
    kvo_llama *kv = s->kv;
    const kvo_names names = {.first = s->names + block * NAME_BYTES, .name_bytes = NAME_BYTES, .count = 1,
                             .space = part == 0 ? kv->shape->space : kv->shape->window_space};
    const kvo_put_options options = put_options(s, part, block);
    const uint32_t bytes = kv->shape->kind == KVO_LLAMA_OPAQUE
                               ? (uint32_t)out->bytes
                               : (uint32_t)(kv->block_tokens * llama_token_bytes(kv->shape, part));
    kvo_reservation place;
    kvo_answer answer;
    int why;

    if (kvo_reserve(kv->store, &names, &bytes, &options, &place, &answer) != KVO_OK)
        return KVO_LLAMA_ENGINE;
    if (answer.status == KVO_EXISTS)
        return KVO_LLAMA_COMPLETE;
    if (answer.status != KVO_OK)
        return why_of_put(kv, answer.status);
    why = fill(s, part, out, place.memory, bytes);
    if (why != KVO_LLAMA_COMPLETE) {
        (void)kvo_abort(kv->store, &place, 1, &answer);
        return why;
    }
    if (kvo_seal(kv->store, &place, 1, KVO_SEALED, 0, &answer) != KVO_OK)
        return KVO_LLAMA_ENGINE;
    if (answer.status != KVO_STORED)
        return why_of_put(kv, answer.status);
    count_stored(s, part, block, bytes);
    return KVO_LLAMA_COMPLETE;
}

/* Reads the export's plan; it must be this context's shape and this sequence. */
static int read_plan(saving *s, const kv_export *out)
{
    const kv_shape *shape = s->kv->shape;

    if (shape->kind == KVO_LLAMA_OPAQUE) /* with a cell too few it is shorter */
        return out->bytes == shape->block_bytes ? KVO_LLAMA_COMPLETE : KVO_LLAMA_SHAPE;
    if (!blob_parse(out->blob, out->bytes, &shape->form, s->layout, s->view) ||
        !blob_layouts_agree(s->layout, &shape->layout))
        return KVO_LLAMA_SHAPE;
    return s->view->sequence == out->sequence ? KVO_LLAMA_COMPLETE : KVO_LLAMA_POSITIONS;
}

/* Cells of a block in a part, where an export of one block has these only. */
static bool find_cells(saving *s, uint32_t part, size_t block)
{
    kvo_llama *kv = s->kv;

    return (kv->scratch < 0 || part > 0 || s->view->parts[part].count == kv->block_tokens) &&
           blob_find(s->kv->blob.bytes, &kv->shape->form, s->view, part, (int32_t)(block * kv->block_tokens),
                     kv->block_tokens, kv->cells);
}

static int save_block(saving *s, size_t block, bool base, bool window)
{
    const bool rows = s->kv->shape->kind == KVO_LLAMA_ROWS;
    kv_export out;
    int why = export_some(s, block, &out);

    if (why == KVO_LLAMA_COMPLETE)
        why = read_plan(s, &out);
    if (why == KVO_LLAMA_COMPLETE && base)
        why = !rows || find_cells(s, 0, block) ? store(s, 0, block, &out) : KVO_LLAMA_POSITIONS;
    if (why == KVO_LLAMA_COMPLETE && window)
        why = find_cells(s, 1, block) ? store(s, 1, block, &out) : KVO_LLAMA_WINDOW;
    return why;
}

/* ---- All blocks ------------------------------------------------------------------- */

/* Goes on behind the first block that fails only where it was the window's cells that did: its base rows are there. */
static int save_blocks(saving *s, size_t from)
{
    kvo_llama *kv = s->kv;
    const bool windowed = llama_windowed(kv->shape);
    int worst = KVO_LLAMA_COMPLETE;

    for (size_t i = from; i < s->blocks; i++) {
        const uint8_t *name = s->names + i * NAME_BYTES;
        const bool base = !is_stored(kv, kv->shape->space, name);
        const bool window = windowed && llama_window_needed(kv, i, s->kept_end) &&
                            !is_stored(kv, kv->shape->window_space, name);
        const int why = base || window ? save_block(s, i, base, window) : KVO_LLAMA_COMPLETE;

        kv->stat.existing_blocks += !base && i >= kv->chain.done;
        if (why != KVO_LLAMA_COMPLETE)
            worst = why;
        if (why != KVO_LLAMA_COMPLETE && why != KVO_LLAMA_WINDOW)
            break;
        if (i == kv->chain.done)
            kv->chain.done++;
    }
    return worst;
}

static void to_disk(saving *s)
{
    kvo_llama *kv = s->kv;

    for (uint32_t part = 0; part < BLOB_PARTS_MAX; part++) {
        const kvo_names names = {.first = s->stored[part], .name_bytes = NAME_BYTES, .count = s->stored_count[part],
                                 .space = part == 0 ? kv->shape->space : kv->shape->window_space};
        if (names.count > 0)
            llama_write_ahead(kv, &names, true);
    }
    llama_take_reports(kv);
}

static int save_with(saving *s, const int32_t *tokens)
{
    kvo_llama *kv = s->kv;
    int why = kv->refused != 0 ? kv->refused : kv->learned ? KVO_LLAMA_COMPLETE : learn(s);

    if (why != KVO_LLAMA_COMPLETE)
        return why;
    kv->recorded = kv->recorded || llama_record_keep(kv, kv->shape);
    s->names = llama_chain(kv, tokens, s->blocks);
    if (s->names == NULL)
        return llama_no_memory(kv);
    size_t from = kv->chain.done;

    if (s->kept_end > 0 && llama_windowed(kv->shape) && llama_window_first(kv, s->kept_end) < from)
        from = llama_window_first(kv, s->kept_end);
    if (from >= s->blocks)
        return KVO_LLAMA_COMPLETE;
    for (uint32_t part = 0; part < BLOB_PARTS_MAX; part++)
        s->stored[part] = malloc((s->blocks - from) * NAME_BYTES);
    if (s->stored[0] == NULL || s->stored[1] == NULL)
        return llama_no_memory(kv);
    why = save_blocks(s, from);
    to_disk(s);
    return why;
}

/* ---- The calls ---------------------------------------------------------------------- */

static bool nothing_new(kvo_llama *kv, const int32_t *tokens, size_t blocks)
{
    return blocks == 0 ||
           (kv->learned && kv->recorded && kv->chain.done >= blocks && llama_chain(kv, tokens, blocks) != NULL &&
            kv->chain.done >= blocks);
}

/* *done: leading blocks that the store has been given. */
static int save(kvo_llama *kv, int32_t sequence, const int32_t *tokens, size_t count, bool end, size_t *done)
{
    const size_t blocks = count / kv->block_tokens;
    saving s = {.kv = kv, .sequence = sequence, .blocks = blocks, .kept_end = end ? blocks : 0};
    int why = KVO_LLAMA_COMPLETE;

    if (kv->f.memory_seq_pos_max(kv->memory, sequence) != (int32_t)count - 1)
        return KVO_LLAMA_POSITIONS;
    kv->stat.saves++;
    s.layout = calloc(1, sizeof *s.layout);
    s.view = calloc(1, sizeof *s.view);
    why = s.layout == NULL || s.view == NULL ? llama_no_memory(kv) : save_with(&s, tokens);
    *done = s.names == NULL ? 0 : kv->chain.done < blocks ? kv->chain.done : blocks;
    free(s.layout);
    free(s.view);
    free(s.stored[0]);
    free(s.stored[1]);
    llama_trim(&kv->blob);
    return why;
}

static int save_call(kvo_llama *kv, int32_t sequence, const int32_t *tokens, size_t count, size_t *stored, int *why,
                     bool end)
{
    const uint64_t begin = llama_now();
    int result = KVO_LLAMA_COMPLETE;

    if (stored != NULL)
        *stored = 0;
    if (kv == NULL || (tokens == NULL && count > 0))
        return KVO_E_ARGUMENT;
    const int status = llama_may(kv, sequence, count);

    if (status != KVO_OK)
        return status;
    const size_t blocks = count / kv->block_tokens;
    const bool windows = end && kv->window > 0 && blocks > 0;
    size_t done = blocks;

    if (windows || !nothing_new(kv, tokens, blocks)) {
        done = 0;
        result = save(kv, sequence, tokens, count, end, &done);
        kv->stat.save_why[result]++;
    }
    if (stored != NULL)
        *stored = done * kv->block_tokens;
    if (why != NULL)
        *why = result;
    kv->stat.save_ns += llama_now() - begin;
    return KVO_OK;
}

int kvo_llama_save(kvo_llama *kv, int32_t sequence, const int32_t *tokens, size_t token_count, size_t *stored, int *why)
{
    return save_call(kv, sequence, tokens, token_count, stored, why, false);
}

int kvo_llama_save_end(kvo_llama *kv, int32_t sequence, const int32_t *tokens, size_t token_count, size_t *stored,
                       int *why)
{
    return save_call(kv, sequence, tokens, token_count, stored, why, true);
}
