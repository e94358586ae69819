/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a warm answer cannot go below, measured apart: the store's get of the same bytes in a fresh process, llama.cpp's
 * own import of one blob with the whole prefix, the decode of what is behind it. The demo sets the time to first token
 * beside their sum.
 *
 *     kvonce-llama-limits LIBRARY MODEL TIERS PROMPT_FILE [--raw]     a JSON object
 */
#include "session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct blocks {
    uint8_t *names; /* KVO_NAME_BYTES_MAX apart */
    kvo_segment *segments;
    size_t count;
    uint64_t bytes;
    kvo_names list;
} blocks;

/* The blocks before `end`, one a position; the store holds one prompt and its answer. */
static int find_blocks(kvo_store *store, size_t end, blocks *found)
{
    kvo_block_info info;
    uint64_t cursor = 0;
    size_t got = 0;
    *found = (blocks){.names = calloc(end, KVO_NAME_BYTES_MAX), .segments = calloc(end, sizeof *found->segments)};
    if (found->names == NULL || found->segments == NULL) {
        return fail("out of memory");
    }
    while (kvo_walk(store, NULL, &cursor, &info, 1, &got) == KVO_OK && got == 1) {
        if (info.kind != KVO_KIND_RANGE || info.positions == 0 || info.position >= end) { /* the adapter's notes, too */
            continue;
        }
        if (found->count == end || (found->count != 0 && found->list.space != info.space)) {
            return fail("the store holds more than one prompt");
        }
        memcpy(found->names + found->count * KVO_NAME_BYTES_MAX, info.name, KVO_NAME_BYTES_MAX);
        found->segments[found->count++].bytes = info.payload_bytes;
        found->bytes += info.payload_bytes;
        found->list = (kvo_names){.first = found->names, .name_bytes = info.name_bytes,
                                  .stride_bytes = KVO_NAME_BYTES_MAX, .count = found->count, .space = info.space,
                                  .kind = info.kind, .layer_first = info.layer_first,
                                  .layer_count = info.layer_count, .head_group = info.head_group};
    }
    return found->count != 0 ? 0 : fail("the store has nothing of this prompt");
}

/* Into memory that is aligned, and has been touched, as a restore's buffer may be. */
static int get_blocks(kvo_store *store, const blocks *found, uint64_t *taken_ns)
{
    uint8_t *memory = aligned_alloc(4096, (size_t)(found->bytes + found->count * 4096 + 4095) / 4096 * 4096);
    kvo_answer *answers = calloc(found->count, sizeof *answers);
    if (memory == NULL || answers == NULL) {
        free(memory);
        free(answers);
        return fail("out of memory");
    }
    memset(memory, 0, (size_t)(found->bytes + found->count * 4096));
    for (size_t i = 0, at = 0; i < found->count; at += (found->segments[i++].bytes + 4095) / 4096 * 4096) {
        found->segments[i].base = memory + at;
    }
    kvo_memory into = {found->segments, NULL};
    uint64_t begin = now_ns();
    (void)kvo_get(store, &found->list, &into, NULL, answers);
    *taken_ns = now_ns() - begin;
    int code = 0;
    for (size_t i = 0; i < found->count && code == 0; i++) {
        code = answers[i].status == KVO_OK ? 0 : fail("get: %s", kvo_status_text(answers[i].status));
    }
    free(memory);
    free(answers);
    return code;
}

/* The state of sequence 0, taken out, and put in again. */
static int import_blob(const session *self, uint64_t *taken_ns, size_t *bytes)
{
    kvo_llama_functions call = {.size = sizeof call};
    kvo_error error;
    if (kvo_llama_bind(engine_library(self->engine), &call, &error) != KVO_OK) {
        return fail("%s", error.text);
    }
    struct llama_context *context = engine_context(self->engine);
    *bytes = call.state_seq_get_size_ext(context, 0, 0);
    uint8_t *blob = malloc(*bytes);
    if (blob == NULL || call.state_seq_get_data_ext(context, blob, *bytes, 0, 0) != *bytes) {
        free(blob);
        return fail("the library does not export the sequence");
    }
    (void)call.memory_seq_rm(call.get_memory(context), 0, -1, -1);
    uint64_t begin = now_ns();
    size_t taken = call.state_seq_set_data_ext(context, blob, *bytes, 0, 0);
    *taken_ns = now_ns() - begin;
    free(blob);
    return taken == *bytes ? 0 : fail("the library does not import what it exported");
}

static int measure(session *self, const char *prompt)
{
    size_t count, restored = 0, blob_bytes = 0;
    uint64_t get_ns = 0, import_ns = 0, restore_ns = 0, begin = 0;
    blocks found = {0};
    int32_t *tokens = engine_tokenize(self->engine, prompt, strlen(prompt), 1, &count);
    int code = tokens == NULL || count == 0 ? fail("no tokens") : 0;
    if (code == 0) {
        code = find_blocks(self->store, count - 1 - (count - 1) % self->settings->block_tokens, &found);
    }
    if (code == 0) {
        code = get_blocks(self->store, &found, &get_ns);
    }
    if (code == 0) { /* the blocks are in memory now */
        begin = now_ns();
        code = kvo_llama_restore(self->kv, 0, tokens, count, &restored, NULL) == KVO_OK ? 0 : fail("restore failed");
        restore_ns = now_ns() - begin;
    }
    if (code == 0) {
        code = import_blob(self, &import_ns, &blob_bytes);
    }
    begin = now_ns();
    if (code == 0 && (code = decode(self, tokens, restored, count)) == 0) {
        int32_t next = engine_greedy(self->engine);
        uint64_t tail_ns = now_ns() - begin;
        printf("{\"blocks\":%zu,\"get_bytes\":%" PRIu64 ",\"get_s\":%.6f,\"blob_bytes\":%zu,\"import_s\":%.6f,"
               "\"restored_tokens\":%zu,\"tail_tokens\":%zu,\"tail_s\":%.6f,\"memory_s\":%.6f,\"tokens\":[%" PRId32
               "]}\n",
               found.count, found.bytes, (double)get_ns / 1e9, blob_bytes, (double)import_ns / 1e9, restored,
               count - restored, (double)tail_ns / 1e9, (double)(restore_ns + tail_ns) / 1e9, next);
    }
    free(found.names);
    free(found.segments);
    free(tokens);
    return code;
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc > 6 || (argc == 6 && strcmp(argv[5], "--raw") != 0)) {
        return fail("usage: kvonce-llama-limits LIBRARY MODEL TIERS PROMPT_FILE [--raw]");
    }
    setup settings = {.engine = {.library = argv[1], .model = argv[2]}, .store = argv[3], .prompt_file = argv[4],
                      .block_tokens = 64, .raw = argc == 6};
    session self;
    int code = open_session(&self, &settings);
    char *prompt = code == 0 ? read_prompt(&self) : NULL;
    code = prompt == NULL ? 2 : measure(&self, prompt);
    free(prompt);
    return close_session(&self, code);
}
