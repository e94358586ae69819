/* SPDX-License-Identifier: Apache-2.0 */
/* What was gathered into the context, and back again. */
#include "restore.h"

#include <stdlib.h>
#include <string.h>

#define READ_TOKENS 256

static bool positions_right(const restoring *r)
{
    kvo_llama *kv = r->kv;
    const int64_t tokens = (int64_t)r->end * kv->block_tokens;
    const int64_t first = kv->f.memory_seq_pos_min(kv->memory, r->sequence);
    const int64_t latest = llama_windowed(kv->shape) && tokens > kv->window ? tokens - kv->window : 0;

    return kv->f.memory_seq_pos_max(kv->memory, r->sequence) == tokens - 1 && first >= 0 && first <= latest;
}

/* Positions from .. end - 1 of a read-back: every cell that was put in, once, and no other, with the bytes that were
   put in. Where cells went in step by step, those older than the window may have left already. */
static int compare_back(restoring *r, const kv_export *out, int64_t from, int64_t end, uint32_t *cells)
{
    kvo_llama *kv = r->kv;
    const int64_t window_at = (int64_t)r->end * kv->block_tokens - kv->window;

    for (uint32_t i = 0; i < kv->shape->layout.part_count; i++) {
        const blob_cells *in = &r->view->parts[i], *back = &r->back_view->parts[i];
        const int64_t in_at = i == 0 ? 0 : (int64_t)(r->first * kv->block_tokens);
        const bool moved = i > 0 && r->steps;
        const int64_t wanted_at = moved && window_at > in_at ? window_at : in_at;
        const int64_t first = from > wanted_at ? from : wanted_at;
        const uint32_t count = first < end ? (uint32_t)(end - first) : 0;

        if ((!moved && back->count != count) ||
            !blob_find(out->blob, &r->form, r->back_view, i, (int32_t)first, count, cells))
            return KVO_LLAMA_POSITIONS;
        if (!blob_rows_equal(&kv->shape->layout.parts[i], kv->back.bytes, in, (uint32_t)(first - in_at), out->blob,
                             back, cells, count))
            return KVO_LLAMA_CHANGED;
    }
    return KVO_LLAMA_COMPLETE;
}

/* Whether the context is of the shape that was tried. */
static bool is_shape(kvo_llama *kv, const blob_form *form, const blob_layout *layout)
{
    kv_shape *found = llama_shape_of_rows(kv, form, layout);
    const bool same = found != NULL && memcmp(found->digest, kv->shape->digest, sizeof found->digest) == 0;

    free(found);
    return same;
}

/* Reads the plan of an export; where the shape is only tried, the export must show it. */
static bool plan_of(restoring *r, const kv_export *out, bool probe)
{
    kvo_llama *kv = r->kv;
    blob_form form;

    if (probe)
        return blob_probe(out->blob, out->bytes, &form, r->back_layout, r->back_view) &&
               memcmp(&form, &r->form, sizeof form) == 0 && is_shape(kv, &form, r->back_layout);
    return blob_parse(out->blob, out->bytes, &r->form, r->back_layout, r->back_view) &&
           blob_layouts_agree(r->back_layout, &kv->shape->layout);
}

/* Through the scratch id some blocks at a time, which stay in the processor's cache; from the last, which shows the
   window's layout, too. */
static int read_back_all(restoring *r, uint32_t *cells)
{
    kvo_llama *kv = r->kv;
    const int64_t all = (int64_t)r->end * kv->block_tokens;
    const int64_t most = kv->scratch < 0 ? all : kv->block_tokens > READ_TOKENS ? kv->block_tokens : READ_TOKENS;
    int why = KVO_LLAMA_COMPLETE;

    for (int64_t end = all; end > 0 && why == KVO_LLAMA_COMPLETE;) {
        const int64_t from = end > most ? end - most : 0;
        kv_export out;

        if (!llama_export(kv, r->sequence, (int32_t)from, kv->scratch < 0 ? -1 : (int32_t)end, &out))
            return KVO_LLAMA_ENGINE;
        why = plan_of(r, &out, !kv->learned && end == all) ? compare_back(r, &out, from, end, cells) : KVO_LLAMA_SHAPE;
        end = from;
    }
    return why;
}

static int read_back(restoring *r)
{
    kvo_llama *kv = r->kv;
    const uint64_t begin = llama_now();
    uint32_t *cells;
    int why;

    if (kv->learned && (kv->flags & KVO_LLAMA_TRUST_IMPORT) != 0)
        return KVO_LLAMA_COMPLETE;
    cells = malloc(((size_t)r->view->parts[0].count + 1) * sizeof *cells);
    why = cells == NULL ? llama_no_memory(kv) : read_back_all(r, cells);
    free(cells);
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
    const bool room = bytes > 0 && llama_room(kv, &kv->blob, bytes + kv->block_tokens * token_bytes);
    int why = room ? KVO_LLAMA_COMPLETE : view == NULL ? llama_no_memory(kv) : KVO_LLAMA_ENGINE;

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
