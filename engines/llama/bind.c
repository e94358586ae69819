/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's functions by name. */
#include "kvonce_llama.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define ENTRY(member, needed) {"llama_" #member, offsetof(kvo_llama_functions, member), needed}

static const struct entry {
    const char *name;
    size_t offset;
    bool required;
} entries[] = {
    ENTRY(get_memory, true),
    ENTRY(memory_seq_cp, true),
    ENTRY(memory_seq_rm, true),
    ENTRY(memory_seq_pos_min, true),
    ENTRY(memory_seq_pos_max, true),
    ENTRY(state_seq_get_size_ext, true),
    ENTRY(state_seq_get_data_ext, true),
    ENTRY(state_seq_set_data_ext, true),
    ENTRY(n_seq_max, true),
    ENTRY(n_ctx, false),
    ENTRY(n_ctx_seq, false),
    ENTRY(get_model, false),
    ENTRY(model_n_swa, false),
    ENTRY(model_is_recurrent, false),
    ENTRY(model_is_hybrid, false),
    ENTRY(memory_clear, false),
    ENTRY(version, false),
    ENTRY(model_meta_val_str, false),
};

int kvo_llama_bind(void *handle, kvo_llama_functions *functions, kvo_error *error)
{
    if (functions == NULL)
        return KVO_E_ARGUMENT;
    memset(functions, 0, sizeof *functions);
    functions->size = sizeof *functions;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *found = dlsym(handle == NULL ? RTLD_DEFAULT : handle, entries[i].name);

        if (found == NULL && entries[i].required) {
            if (error != NULL)
                snprintf(error->text, sizeof error->text,
                         "unsupported engine: it has no %s(); llama.cpp of 2026 and its builds have", entries[i].name);
            return KVO_E_UNSUPPORTED;
        }
        memcpy((char *)functions + entries[i].offset, &found, sizeof found);
    }
    return KVO_OK;
}

const char *kvo_llama_why_text(int why)
{
    static const char *const texts[KVO_LLAMA_WHY_COUNT] = {
        [KVO_LLAMA_COMPLETE] = "complete",
        [KVO_LLAMA_MISS] = "not stored",
        [KVO_LLAMA_DAMAGED] = "stored bytes were damaged",
        [KVO_LLAMA_SHAPE] = "stored for another cache layout",
        [KVO_LLAMA_NO_ROOM] = "no room",
        [KVO_LLAMA_SLOW] = "not delivered in time",
        [KVO_LLAMA_POSITIONS] = "the context holds other positions",
        [KVO_LLAMA_CHANGED] = "the context gave back other bytes",
        [KVO_LLAMA_NOT_FINITE] = "infinities or NaN",
        [KVO_LLAMA_WINDOW] = "cells of the sliding window are missing",
        [KVO_LLAMA_UNKNOWN] = "unknown layout",
        [KVO_LLAMA_ENGINE] = "the engine or the store failed",
    };

    return why >= 0 && why < KVO_LLAMA_WHY_COUNT ? texts[why] : "no such cause";
}
