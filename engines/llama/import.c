/* SPDX-License-Identifier: Apache-2.0 */
/* What was gathered into the context, and back again. */
#include "restore.h"

#include <stdlib.h>
#include <string.h>

static bool positions_right(const restoring *r)
{
    kvo_llama *kv = r->kv;
    const int64_t tokens = (int64_t)r->end * kv->block_tokens;
    const int64_t first = kv->f.memory_seq_pos_min(kv->memory, r->sequence);
    const int64_t latest = llama_windowed(kv->shape) && tokens > kv->window ? tokens - kv->window : 0;

    return kv->f.memory_seq_pos_max(kv->memory, r->sequence) == tokens - 1 && first >= 0 && first <= latest;
}

/* Of the window's part, what is older than the window may have left already. */
static uint32_t first_to_compare(const restoring *r, uint32_t part)
{
    const size_t tokens = r->end * r->kv->block_tokens;

    return part == 0 || !r->steps ? 0 : (uint32_t)(tokens > r->kv->window ? tokens - r->kv->window : 0);
}

/* Every cell that was put in, once, and no other; with the bytes that were put in. */
static int compare_back(restoring *r, const kv_export *out)
{
    kvo_llama *kv = r->kv;
    const kv_shape *shape = kv->shape;
    uint32_t *cells = malloc(((size_t)r->view->parts[0].count + 1) * sizeof *cells);
    int why = cells == NULL ? KVO_LLAMA_ENGINE : KVO_LLAMA_COMPLETE;

    for (uint32_t i = 0; why == KVO_LLAMA_COMPLETE && i < shape->layout.part_count; i++) {
        const blob_cells *in = &r->view->parts[i], *back = &r->back_view->parts[i];
        const uint32_t from = first_to_compare(r, i), count = in->count - from;
        const int32_t first = (int32_t)from + (i == 0 ? 0 : (int32_t)(r->first * kv->block_tokens));

        if ((!r->steps && back->count != in->count) ||
            !blob_find(out->blob, &r->form, r->back_view, i, first, count, cells))
            why = KVO_LLAMA_POSITIONS;
        else if (!blob_rows_equal(&shape->layout.parts[i], kv->back.bytes, in, from, out->blob, back, cells, count))
            why = KVO_LLAMA_CHANGED;
    }
    free(cells);
    return why;
}

/* Whether the context is of the shape that was tried. */
static bool is_shape(kvo_llama *kv, const blob_form *form, const blob_layout *layout)
{
    kv_shape *found = llama_shape_of_rows(kv, form, layout);
    const bool same = found != NULL && memcmp(found->digest, kv->shape->digest, sizeof found->digest) == 0;

    free(found);
    return same;
}

static int read_back(restoring *r)
{
    kvo_llama *kv = r->kv;
    const uint64_t begin = llama_now();
    blob_form form = r->form;
    kv_export out;
    int why = KVO_LLAMA_COMPLETE;

    if (kv->learned && (kv->flags & KVO_LLAMA_TRUST_IMPORT) != 0)
        return KVO_LLAMA_COMPLETE;
    if (!llama_export(kv, r->sequence, 0, -1, &out))
        return KVO_LLAMA_ENGINE;
    if (kv->learned ? !blob_parse(out.blob, out.bytes, &r->form, r->back_layout, r->back_view)
                    : !blob_probe(out.blob, out.bytes, &form, r->back_layout, r->back_view))
        why = KVO_LLAMA_SHAPE;
    else if (kv->learned ? !blob_layouts_agree(r->back_layout, &kv->shape->layout)
                         : memcmp(&form, &r->form, sizeof form) != 0 || !is_shape(kv, &form, r->back_layout))
        why = KVO_LLAMA_SHAPE;
    else
        why = compare_back(r, &out);
    kv->stat.check_ns += llama_now() - begin;
    return why;
}

/* Cells that are free and hold NaN still reach other sequences' sums, so what may be wrong is wiped where possible. */
void llama_give_up(restoring *r, int why)
{
    kvo_llama *kv = r->kv;

    llama_empty(kv, r->sequence);
    if (kv->scratch >= 0)
        llama_empty(kv, kv->scratch);
    if (why != KVO_LLAMA_NO_ROOM && why != KVO_LLAMA_SHAPE && kv->f.memory_clear != NULL &&
        llama_alone(kv, r->sequence))
        kv->f.memory_clear(kv->memory, true);
    r->end = 0;
    r->why = why;
}

/* The engine only says no: what it is about follows from what else the context holds. */
int llama_why_refused(const restoring *r)
{
    kvo_llama *kv = r->kv;
    uint64_t used = (uint64_t)r->end * kv->block_tokens;

    if (kv->learned)
        return KVO_LLAMA_NO_ROOM;
    for (uint32_t i = 0; i < kv->sequences; i++) {
        const int32_t last = kv->f.memory_seq_pos_max(kv->memory, (int32_t)i);
        used += last < 0 ? 0 : (uint64_t)last + 1;
    }
    return used > kv->positions ? KVO_LLAMA_NO_ROOM : KVO_LLAMA_SHAPE;
}

static int put_whole(restoring *r)
{
    const int why = llama_import(r->kv, r->sequence, r->kv->back.bytes, r->view->bytes);

    return why == KVO_LLAMA_NO_ROOM ? llama_why_refused(r) : why;
}

/* One block's blob from the whole one. */
static void cut_block(restoring *r, size_t block, const blob_view *view, uint8_t *blob, uint8_t *rows)
{
    kvo_llama *kv = r->kv;

    for (uint32_t i = 0; i < kv->block_tokens; i++)
        kv->cells[i] = (uint32_t)block * kv->block_tokens + i;
    for (uint32_t i = 0; i < kv->shape->layout.part_count; i++) {
        const blob_part *part = &kv->shape->layout.parts[i];

        blob_take_rows(kv->back.bytes, part, &r->view->parts[i], kv->cells, kv->block_tokens, rows);
        blob_put_rows(blob, part, &view->parts[i], rows);
    }
}

/*
 * A window's cells are used in turns, and in which order they lie decides how sums are rounded. Where all of
 * them are stored, they go in as they came: block by block, each pushing out what its window no longer holds.
 */
static int put_steps(restoring *r)
{
    kvo_llama *kv = r->kv;
    const blob_layout *layout = &kv->shape->layout;
    const uint32_t counts[] = {kv->block_tokens, kv->block_tokens};
    blob_view *view = malloc(sizeof *view);
    const size_t bytes = view == NULL ? 0 : blob_arrange(&r->form, layout, counts, view);
    const size_t token_bytes = blob_token_bytes(&layout->parts[0]) + blob_token_bytes(&layout->parts[1]);
    int why = bytes > 0 && llama_room(&kv->blob, bytes + kv->block_tokens * token_bytes) ? KVO_LLAMA_COMPLETE : KVO_LLAMA_ENGINE;

    for (size_t i = 0; why == KVO_LLAMA_COMPLETE && i < r->end; i++) {
        const int32_t first = (int32_t)(i * kv->block_tokens), firsts[] = {first, first};

        blob_compose(&r->form, layout, firsts, kv->scratch, view, kv->blob.bytes);
        cut_block(r, i, view, kv->blob.bytes, kv->blob.bytes + bytes);
        why = llama_import(kv, kv->scratch, kv->blob.bytes, bytes);
        if (why == KVO_LLAMA_NO_ROOM)
            why = llama_why_refused(r);
        else if (why == KVO_LLAMA_COMPLETE)
            kv->f.memory_seq_cp(kv->memory, kv->scratch, r->sequence, -1, -1);
        llama_empty(kv, kv->scratch);
    }
    free(view);
    return why;
}

int llama_put_in(restoring *r)
{
    const int why = r->steps ? put_steps(r) : put_whole(r);

    if (why != KVO_LLAMA_COMPLETE)
        return why;
    return positions_right(r) ? read_back(r) : KVO_LLAMA_POSITIONS;
}
