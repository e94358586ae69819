/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks from the store, each compared with its digest, to where the engine will read them. */
#include "restore.h"

#include <stdlib.h>
#include <string.h>

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

size_t llama_get_blocks(restoring *r, const kvo_names *names, const kvo_memory *memory, int *why)
{
    kvo_llama *kv = r->kv;
    kvo_get_options options = KVO_GET_OPTIONS_INIT;
    kvo_answer *answers = malloc(names->count * sizeof *answers);
    const uint64_t damaged = damaged_so_far(kv), begin = llama_now();
    size_t count = 0;

    options.deadline_ns = llama_left(kv);
    *why = answers == NULL ? llama_no_memory(kv) : KVO_LLAMA_ENGINE;
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
            v_layer += blocks * v_bytes;
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
    const kvo_names names = llama_names_of(r, space, first, end);
    const kvo_memory memory = {segments, counts};
    size_t got = 0;

    *why = segments == NULL || counts == NULL ? llama_no_memory(kv) : KVO_LLAMA_ENGINE;
    if (segments != NULL && counts != NULL && llama_room(kv, &kv->blob, v_bytes)) {
        for (size_t i = 0; i < count; i++)
            counts[i] = (uint32_t)each;
        place(part, where, kv->back.bytes, kv->blob.bytes, kv->block_tokens, count, segments);
        got = llama_get_blocks(r, &names, &memory, why);
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

bool llama_gather(restoring *r, size_t *limit, int *why)
{
    kvo_llama *kv = r->kv;
    const kv_shape *shape = kv->shape;
    const uint32_t tokens = kv->block_tokens;
    const bool windowed = llama_windowed(shape);
    const uint32_t counts[] = {(uint32_t)r->end * tokens, windowed ? (uint32_t)(r->end - r->first) * tokens : 0};
    const int32_t firsts[] = {0, (int32_t)(r->first * tokens)};
    const size_t bytes = blob_arrange(&r->form, &shape->layout, counts, r->view);

    *why = KVO_LLAMA_ENGINE;
    *limit = 0;
    if (bytes == 0 || !llama_room(kv, &kv->back, bytes))
        return false;
    blob_compose(&r->form, &shape->layout, firsts, r->sequence, r->view, kv->back.bytes);
    *limit = gather(r, 0, shape->space, 0, r->end, why);
    if (*limit < r->end || !windowed)
        return *limit == r->end;
    *limit = r->first + gather(r, 1, shape->window_space, r->first, r->end, why);
    const bool gone = *why == KVO_LLAMA_MISS || *why == KVO_LLAMA_DAMAGED || *why == KVO_LLAMA_NOT_FINITE;

    if (*why != KVO_LLAMA_COMPLETE && !gone)
        *limit = 0; /* such a block would be planned with again, and again */
    return *why == KVO_LLAMA_COMPLETE;
}
