/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's calls, each with what its answer must be. */
#include "adapter.h"

static bool export_whole(kvo_llama *kv, int32_t sequence, kv_export *out)
{
    const size_t bytes = kv->f.state_seq_get_size_ext(kv->context, sequence, 0);

    if (bytes == 0 || !llama_room(kv, &kv->blob, bytes))
        return false;
    out->blob = kv->blob.bytes;
    out->bytes = kv->f.state_seq_get_data_ext(kv->context, kv->blob.bytes, bytes, sequence, 0);
    out->sequence = sequence;
    return out->bytes == bytes;
}

bool llama_export(kvo_llama *kv, int32_t sequence, int32_t first, int32_t end, kv_export *out)
{
    const uint64_t begin = llama_now();
    bool whole;

    if (first == 0 && end == -1) {
        whole = export_whole(kv, sequence, out);
    } else {
        llama_empty(kv, kv->scratch);
        kv->f.memory_seq_cp(kv->memory, sequence, kv->scratch, first, end);
        whole = export_whole(kv, kv->scratch, out);
        llama_empty(kv, kv->scratch);
    }
    kv->stat.export_ns += llama_now() - begin;
    if (!whole)
        llama_log(kv, "the engine did not export sequence %d, positions %d to %d", sequence, first, end);
    return whole;
}

/* The engine drops what the sequence held first. What it refuses leaves no cells. */
int llama_import(kvo_llama *kv, int32_t sequence, const uint8_t *blob, size_t bytes)
{
    const uint64_t begin = llama_now();
    const size_t used = kv->f.state_seq_set_data_ext(kv->context, blob, bytes, sequence, 0);

    kv->stat.import_ns += llama_now() - begin;
    if (used != bytes && used != 0)
        llama_log(kv, "the engine took %zu of %zu bytes", used, bytes);
    return used == bytes ? KVO_LLAMA_COMPLETE : used == 0 ? KVO_LLAMA_NO_ROOM : KVO_LLAMA_ENGINE;
}

void llama_empty(kvo_llama *kv, int32_t sequence)
{
    (void)kv->f.memory_seq_rm(kv->memory, sequence, -1, -1);
}

bool llama_alone(kvo_llama *kv, int32_t sequence)
{
    for (uint32_t i = 0; i < kv->sequences; i++)
        if ((int32_t)i != sequence && kv->f.memory_seq_pos_max(kv->memory, (int32_t)i) >= 0)
            return false;
    return true;
}
