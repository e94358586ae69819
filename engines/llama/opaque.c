/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring bytes whose layout nobody knows. */
#include "restore.h"

#include <stdlib.h>
#include <string.h>

static size_t get_opaque(restoring *r, uint32_t *lengths)
{
    kvo_llama *kv = r->kv;
    const kvo_names names = llama_names_of(r, kv->shape->space, 0, r->end);
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
            got = llama_get_blocks(r, &names, &memory, &why);
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
            return why == KVO_LLAMA_NO_ROOM ? llama_why_refused(r) : why;
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

void llama_restore_opaque(restoring *r)
{
    uint32_t *lengths = malloc(r->wanted * sizeof *lengths);

    r->end = lengths == NULL ? 0 : llama_matched(r, r->wanted);
    if (r->end < r->wanted)
        r->why = KVO_LLAMA_MISS;
    if (r->end > 0)
        r->end = get_opaque(r, lengths);
    if (r->end > 0) {
        const int why = put_opaque(r, lengths);
        if (why != KVO_LLAMA_COMPLETE)
            llama_give_up(r, why);
    }
    free(lengths);
}

