/* SPDX-License-Identifier: Apache-2.0 */
/* From the store into the context: all bytes are checked before the first goes in, and read back afterwards. */
#include "adapter.h"

#include <stdlib.h>
#include <string.h>

/* One call's work, under the shape that the adapter has or tries. */
typedef struct restoring {
    kvo_llama *kv;
    int32_t sequence;
    const int32_t *tokens;
    size_t wanted;  /* blocks */
    size_t end;     /* of what goes in, in blocks */
    size_t first;   /* of the window's part */
    int why;        /* it does not end later */
    const uint8_t *names;
    blob_form form;
    blob_view *view, *back_view; /* of what is composed, of what is read back */
    blob_layout *back_layout;
} restoring;

/* ---- What is there ----------------------------------------------------------- */

static kvo_names names_of(const restoring *r, kvo_space space, size_t first, size_t end)
{
    return (kvo_names){.first = r->names + first * NAME_BYTES, .name_bytes = NAME_BYTES, .count = end - first,
                       .space = space};
}

static size_t matched(restoring *r, size_t limit)
{
    const kvo_names names = names_of(r, r->kv->shape->space, 0, limit);
    size_t count = 0;

    return kvo_match(r->kv->store, &names, NULL, &count) == KVO_OK ? count : 0;
}

/* The last end, at most `limit`, whose window is stored. */
static size_t last_windowed(restoring *r, size_t limit)
{
    kvo_llama *kv = r->kv;
    kvo_answer *answers = malloc((limit + 1) * sizeof *answers);
    const kvo_names names = names_of(r, kv->shape->window_space, 0, limit);
    size_t found = 0, run = 0; /* `run` blocks before i are all there */

    if (answers == NULL || kvo_exists(kv->store, &names, answers) != KVO_OK)
        limit = 0;
    for (size_t i = 0; i < limit; i++) {
        run = answers[i].status == KVO_OK ? run + 1 : 0;
        if (run > 0 && i + 1 - run <= llama_window_first(kv, i + 1))
            found = i + 1;
    }
    free(answers);
    return found;
}

/* Sets where a restore ends, and why not later. */
static void plan(restoring *r, size_t limit)
{
    const size_t base = matched(r, limit);

    if (base < limit)
        r->why = KVO_LLAMA_MISS;
    r->end = base;
    r->first = 0;
    if (!llama_windowed(r->kv->shape) || base == 0)
        return;
    r->end = last_windowed(r, base);
    r->first = llama_window_first(r->kv, r->end);
    if (r->end < base) {
        r->why = KVO_LLAMA_WINDOW;
        r->kv->wanted_end = base;
    }
}

/* ---- Out of the store ----------------------------------------------------------- */

static uint64_t damaged_so_far(kvo_llama *kv)
{
    kvo_stat stat = KVO_STAT_INIT;

    return kvo_stat_store(kv->store, &stat) == KVO_OK ? stat.digest_misses : 0;
}

static int why_of_get(int32_t status, bool damaged)
{
    switch (status) {
    case KVO_MISS:
        return damaged ? KVO_LLAMA_DAMAGED : KVO_LLAMA_MISS;
    case KVO_BUSY:
    case KVO_PENDING:
        return KVO_LLAMA_SLOW;
    case KVO_SIZE:
        return KVO_LLAMA_SHAPE;
    default:
        return KVO_LLAMA_ENGINE;
    }
}

/* Gets `names`; returns how many leading ones came, and why not all. */
static size_t get_blocks(restoring *r, const kvo_names *names, const kvo_memory *memory, int *why)
{
    kvo_llama *kv = r->kv;
    kvo_get_options options = KVO_GET_OPTIONS_INIT;
    kvo_answer *answers = malloc(names->count * sizeof *answers);
    const uint64_t damaged = damaged_so_far(kv), begin = llama_now();
    size_t count = 0;

    options.deadline_ns = kv->restore_ns;
    *why = KVO_LLAMA_ENGINE;
    if (answers != NULL && kvo_get(kv->store, names, memory, &options, answers) == KVO_OK) {
        while (count < names->count && answers[count].status == KVO_OK)
            count++;
        *why = count == names->count ? KVO_LLAMA_COMPLETE
                                     : why_of_get(answers[count].status, damaged_so_far(kv) > damaged);
    }
    free(answers);
    kv->stat.get_ns += llama_now() - begin;
    return count;
}

/* Rows go to where the engine will read them, block by block; V that is transposed there goes to `v` first. */
static void place(const blob_part *part, const blob_cells *where, uint8_t *blob, uint8_t *v, uint32_t tokens,
                  size_t blocks, kvo_segment *segments)
{
    for (size_t i = 0; i < blocks; i++) {
        size_t v_layer = 0;

        for (uint32_t j = 0; j < part->layer_count; j++) {
            const blob_layer *layer = &part->layers[j];
            const size_t k_bytes = (size_t)tokens * layer->k_bytes, v_bytes = (size_t)tokens * layer->v_bytes;
            uint8_t *v_to = part->transposed ? v + v_layer : blob + where->v_at[j];

            *segments++ = (kvo_segment){blob + where->k_at[j] + i * k_bytes, k_bytes};
            *segments++ = (kvo_segment){v_to + i * v_bytes, v_bytes};
            v_layer += part->transposed ? blocks * v_bytes : 0;
        }
    }
}

/* Leading blocks without infinities and NaN: what holds them was stored by somebody else, or long ago. */
static size_t finite_blocks(const blob_part *part, const kvo_segment *segments, size_t blocks)
{
    for (size_t i = 0; i < blocks; i++)
        for (uint32_t j = 0; j < part->layer_count; j++, segments += 2)
            if (!blob_finite(part->layers[j].k_type, segments[0].base, segments[0].bytes) ||
                !blob_finite(part->layers[j].v_type, segments[1].base, segments[1].bytes))
                return i;
    return blocks;
}

/* So that it is computed again. */
static void remove_block(restoring *r, const kvo_names *names, size_t block)
{
    kvo_target target = {.by = KVO_BY_NAMES, .names = *names};

    target.names.first = (const uint8_t *)names->first + block * NAME_BYTES;
    target.names.count = 1;
    (void)kvo_remove(r->kv->store, &target, KVO_SEALED, 0, NULL, NULL);
    llama_log(r->kv, "a stored block holds infinities or NaN: removed");
}

static void turn(const blob_part *part, const blob_cells *where, uint8_t *blob, const uint8_t *v)
{
    for (uint32_t j = 0; part->transposed && j < part->layer_count; j++) {
        const blob_layer *layer = &part->layers[j];

        blob_transpose(blob + where->v_at[j], v, where->count, layer->v_bytes / layer->v_element_bytes,
                       layer->v_element_bytes);
        v += (size_t)where->count * layer->v_bytes;
    }
}

/* Blocks first .. end - 1 of a part; returns how many leading ones came. */
static size_t gather(restoring *r, uint32_t part_number, kvo_space space, size_t first, size_t end, int *why)
{
    kvo_llama *kv = r->kv;
    const blob_part *part = &kv->shape->layout.parts[part_number];
    const blob_cells *where = &r->view->parts[part_number];
    const size_t count = end - first, each = 2 * (size_t)part->layer_count;
    const size_t v_bytes = part->transposed ? where->count * blob_token_bytes(part) : 0;
    kvo_segment *segments = malloc(count * each * sizeof *segments);
    uint32_t *counts = malloc(count * sizeof *counts);
    const kvo_names names = names_of(r, space, first, end);
    const kvo_memory memory = {segments, counts};
    size_t got = 0;

    *why = KVO_LLAMA_ENGINE;
    if (segments != NULL && counts != NULL && llama_room(&kv->blob, v_bytes)) {
        for (size_t i = 0; i < count; i++)
            counts[i] = (uint32_t)each;
        place(part, where, kv->back.bytes, kv->blob.bytes, kv->block_tokens, count, segments);
        got = get_blocks(r, &names, &memory, why);
        const size_t finite = finite_blocks(part, segments, got);
        if (finite < got) {
            remove_block(r, &names, finite);
            *why = KVO_LLAMA_NOT_FINITE;
            got = finite;
        }
        if (got == count)
            turn(part, where, kv->back.bytes, kv->blob.bytes);
    }
    free(segments);
    free(counts);
    return got;
}

/* Composes the blob of the plan with all its rows, or changes the plan to what could be had and says false. */
static bool gather_all(restoring *r)
{
    kvo_llama *kv = r->kv;
    const kv_shape *shape = kv->shape;
    const uint32_t tokens = kv->block_tokens;
    const bool windowed = llama_windowed(shape);
    const uint32_t counts[] = {(uint32_t)r->end * tokens, windowed ? (uint32_t)(r->end - r->first) * tokens : 0};
    const int32_t firsts[] = {0, (int32_t)(r->first * tokens)};
    const size_t bytes = blob_arrange(&r->form, &shape->layout, counts, r->view);
    size_t limit = r->end;
    int why = KVO_LLAMA_ENGINE;

    if (bytes == 0 || !llama_room(&kv->back, bytes)) {
        r->why = KVO_LLAMA_ENGINE;
        r->end = 0;
        return false;
    }
    blob_compose(&r->form, &shape->layout, firsts, r->sequence, r->view, kv->back.bytes);
    limit = gather(r, 0, shape->space, 0, r->end, &why);
    if (limit == r->end && windowed) {
        limit = r->first + gather(r, 1, shape->window_space, r->first, r->end, &why);
        const bool gone = why == KVO_LLAMA_MISS || why == KVO_LLAMA_DAMAGED || why == KVO_LLAMA_NOT_FINITE;

        limit = why == KVO_LLAMA_COMPLETE ? r->end : gone ? limit : 0;
    }
    if (limit == r->end)
        return true;
    r->why = why;
    plan(r, limit);
    r->why = why;
    return false;
}

/* ---- Into the context --------------------------------------------------------- */

static bool positions_right(const restoring *r)
{
    kvo_llama *kv = r->kv;
    const int64_t tokens = (int64_t)r->end * kv->block_tokens;
    const int64_t first = kv->f.memory_seq_pos_min(kv->memory, r->sequence);
    const int64_t latest = llama_windowed(kv->shape) && tokens > kv->window ? tokens - kv->window : 0;

    return kv->f.memory_seq_pos_max(kv->memory, r->sequence) == tokens - 1 && first >= 0 && first <= latest;
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
        const int32_t first = i == 0 ? 0 : (int32_t)(r->first * kv->block_tokens);

        if (back->count != in->count || !blob_find(out->blob, &r->form, r->back_view, i, first, in->count, cells))
            why = KVO_LLAMA_POSITIONS;
        else if (!blob_rows_equal(&shape->layout.parts[i], kv->back.bytes, in, out->blob, back, cells))
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
static void give_up(restoring *r, int why)
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
static int why_refused(const restoring *r)
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

static int put_in(restoring *r)
{
    kvo_llama *kv = r->kv;

    const int why = llama_import(kv, r->sequence, kv->back.bytes, r->view->bytes);

    if (why != KVO_LLAMA_COMPLETE)
        return why == KVO_LLAMA_NO_ROOM ? why_refused(r) : why;
    return positions_right(r) ? read_back(r) : KVO_LLAMA_POSITIONS;
}

/* ---- Rows --------------------------------------------------------------------- */

/* Each round that fails has lost at least one block. */
static void restore_rows(restoring *r)
{
    plan(r, r->wanted);
    while (r->end > 0 && !gather_all(r))
        ;
    if (r->end == 0)
        return;
    const int why = put_in(r);

    if (why != KVO_LLAMA_COMPLETE)
        give_up(r, why);
}

/* ---- Bytes of unknown layout --------------------------------------------------- */

static size_t get_opaque(restoring *r, uint32_t *lengths)
{
    kvo_llama *kv = r->kv;
    const kvo_names names = names_of(r, kv->shape->space, 0, r->end);
    kvo_answer *answers = malloc(r->end * sizeof *answers);
    kvo_segment *segments = malloc(r->end * sizeof *segments);
    const kvo_memory memory = {segments, NULL};
    size_t bytes = 0, got = 0;
    int why = KVO_LLAMA_ENGINE;

    if (answers != NULL && segments != NULL && kvo_exists(kv->store, &names, answers) == KVO_OK) {
        for (size_t i = 0; i < r->end; i++) {
            lengths[i] = answers[i].payload_bytes;
            bytes += lengths[i];
        }
        if (llama_room(&kv->back, bytes)) {
            bytes = 0;
            for (size_t i = 0; i < r->end; bytes += lengths[i++])
                segments[i] = (kvo_segment){kv->back.bytes + bytes, lengths[i]};
            got = get_blocks(r, &names, &memory, &why);
        }
    }
    if (why != KVO_LLAMA_COMPLETE)
        r->why = why;
    free(answers);
    free(segments);
    return got;
}

/* Block by block, through the scratch id, in ascending order: in another order the sums are rounded in another way. */
static int put_opaque(restoring *r, const uint32_t *lengths)
{
    kvo_llama *kv = r->kv;
    const uint8_t *block = kv->back.bytes;

    for (size_t i = 0; i < r->end; block += lengths[i++]) {
        const int32_t first = (int32_t)(i * kv->block_tokens), end = first + (int32_t)kv->block_tokens;
        kv_export out;

        const int why = llama_import(kv, kv->scratch, block, lengths[i]);

        if (why != KVO_LLAMA_COMPLETE)
            return why == KVO_LLAMA_NO_ROOM ? why_refused(r) : why;
        if (kv->f.memory_seq_pos_min(kv->memory, kv->scratch) != first ||
            kv->f.memory_seq_pos_max(kv->memory, kv->scratch) != end - 1)
            return KVO_LLAMA_POSITIONS;
        kv->f.memory_seq_cp(kv->memory, kv->scratch, r->sequence, -1, -1);
        llama_empty(kv, kv->scratch);
        if (!llama_export(kv, r->sequence, first, end, &out))
            return KVO_LLAMA_ENGINE;
        if (out.bytes != lengths[i] || memcmp(out.blob, block, lengths[i]) != 0)
            return KVO_LLAMA_CHANGED;
    }
    return KVO_LLAMA_COMPLETE;
}

static void restore_opaque(restoring *r)
{
    uint32_t *lengths = malloc(r->wanted * sizeof *lengths);

    r->end = lengths == NULL ? 0 : matched(r, r->wanted);
    if (r->end < r->wanted)
        r->why = KVO_LLAMA_MISS;
    if (r->end > 0)
        r->end = get_opaque(r, lengths);
    if (r->end > 0) {
        const int why = put_opaque(r, lengths);
        if (why != KVO_LLAMA_COMPLETE)
            give_up(r, why);
    }
    free(lengths);
}

/* ---- Shapes ---------------------------------------------------------------------- */

static void restore_shape(restoring *r, const blob_form *form)
{
    r->why = KVO_LLAMA_COMPLETE;
    r->end = 0;
    r->form = *form;
    r->names = llama_chain(r->kv, r->tokens, r->wanted);
    if (r->names == NULL)
        r->why = KVO_LLAMA_ENGINE;
    else if (r->kv->shape->kind == KVO_LLAMA_OPAQUE)
        restore_opaque(r);
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
        !llama_shape_open(kv, candidate))
        return 0;
    kv->shape = candidate;
    llama_chain_forget(kv);
    r->names = llama_chain(kv, r->tokens, r->wanted);
    const size_t count = r->names == NULL ? 0 : matched(r, r->wanted);

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
        r->why = KVO_LLAMA_ENGINE;
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
    if (!llama_in_range(kv, sequence, token_count))
        return KVO_E_RANGE;
    llama_empty(kv, sequence);
    const size_t most = token_count > kv->positions ? kv->positions : token_count;

    r.wanted = most == 0 ? 0 : (most - 1) / kv->block_tokens;
    if (r.wanted > 0)
        restore(&r);
    kv->chain.done = r.end < kv->chain.done ? r.end : kv->chain.done; /* the rest may have left the store */
    count_restored(&r);
    *restored = r.end * kv->block_tokens;
    if (why != NULL)
        *why = r.why;
    kv->stat.restore_ns += llama_now() - begin;
    return KVO_OK;
}
