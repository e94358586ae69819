/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring bytes whose layout nobody knows. */
#include "restore.h"

#include <stdlib.h>
#include <string.h>

/* Blocks into kv->back, one behind the other; returns how many leading ones came. */
static size_t get_opaque(restoring *r)
{
    kvo_llama *kv = r->kv;
    const size_t bytes = kv->shape->block_bytes;
    const kvo_names names = llama_names_of(r, kv->shape->space, 0, r->end);
    kvo_segment *segments = malloc(r->end * sizeof *segments);
    const kvo_memory memory = {segments, NULL};
    int why = segments == NULL ? llama_no_memory(kv) : KVO_LLAMA_ENGINE;
    size_t got = 0;

    if (segments != NULL && llama_room(kv, &kv->back, r->end * bytes)) {
        for (size_t i = 0; i < r->end; i++)
            segments[i] = (kvo_segment){kv->back.bytes + i * bytes, bytes};
        got = llama_get_blocks(r, &names, &memory, &why);
    }
    if (why != KVO_LLAMA_COMPLETE)
        r->why = why;
    free(segments);
    return got;
}

/* Block by block, through the scratch id, in ascending order: in another order the sums are rounded in another way. */
static int put_opaque(restoring *r)
{
    kvo_llama *kv = r->kv;
    const size_t bytes = kv->shape->block_bytes;

    for (size_t i = 0; i < r->end; i++) {
        const uint8_t *block = kv->back.bytes + i * bytes;
        const int32_t first = (int32_t)(i * kv->block_tokens), end = first + (int32_t)kv->block_tokens;
        const int why = llama_import(kv, kv->scratch, block, bytes);
        kv_export out;

        if (why != KVO_LLAMA_COMPLETE)
            return why == KVO_LLAMA_NO_ROOM ? llama_why_refused(r) : why;
        if (kv->f.memory_seq_pos_min(kv->memory, kv->scratch) != first ||
            kv->f.memory_seq_pos_max(kv->memory, kv->scratch) != end - 1)
            return KVO_LLAMA_POSITIONS;
        kv->f.memory_seq_cp(kv->memory, kv->scratch, r->sequence, -1, -1);
        llama_empty(kv, kv->scratch);
        if (!llama_export(kv, r->sequence, first, end, &out))
            return KVO_LLAMA_ENGINE;
        if (out.bytes != bytes || memcmp(out.blob, block, bytes) != 0)
            return KVO_LLAMA_CHANGED;
    }
    return KVO_LLAMA_COMPLETE;
}

void llama_restore_opaque(restoring *r)
{
    r->end = llama_matched(r, r->wanted);
    if (r->end < r->wanted)
        r->why = KVO_LLAMA_MISS;
    if (r->end > 0)
        r->end = get_opaque(r);
    if (r->end > 0) {
        const int why = put_opaque(r);
        if (why != KVO_LLAMA_COMPLETE)
            llama_give_up(r, why);
    }
}
