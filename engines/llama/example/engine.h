/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A llama.cpp engine without llama.h: finds libllama at run time, loads a model, decodes batches. What
 * the example and the tests drive the adapter with. A program of yours includes its own llama.h and
 * needs none of this.
 *
 * llama.cpp's parameter structs change without notice, so they are handled here as blobs that are
 * larger than any of them: the library fills in its defaults, the four fields that never moved are
 * set, and its getters are asked whether they arrived. One library a process: all builds call
 * themselves libllama.so.0.
 */
#ifndef KVONCE_ENGINE_H
#define KVONCE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include <kvonce.h>

typedef struct engine engine;

/*
 * For tests only: fields that move from build to build. Their places are known for the two builds of
 * tools/llama-parts.sh, anything else is refused. -1 = the library's default. What arrived is for the
 * caller to see: of kv types and flash attention in an exported blob, of `unified` in n_ctx_seq.
 */
typedef struct engine_pinned {
    int flash;   /* 0, 1 */
    int type_k;  /* ggml_type: 1 = f16, 8 = q8_0 */
    int type_v;
    int unified;  /* 0, 1 */
    int full_window; /* swa_full: 0, 1 */
} engine_pinned;
#define ENGINE_PINNED_INIT {-1, -1, -1, -1, -1}

typedef struct engine_options {
    const char *library;     /* path of libllama; NULL: $KVONCE_LLAMA_LIB, else where the loader looks */
    const char *model;       /* a GGUF file */
    uint32_t context_tokens; /* 0 = 4096 */
    uint32_t batch_tokens;   /* the most of one decode; 0 = 512 */
    uint32_t sequences;      /* n_seq_max; 0 = 1 */
    int threads;             /* 0 = 1 */
    const engine_pinned *pinned; /* NULL outside of tests */
} engine_options;

/* NULL: error says why in one line, and where a library can be had. */
engine *engine_open(const engine_options *options, kvo_error *error);
void engine_close(engine *engine);

/* For kvo_llama_open() and kvo_llama_bind(). */
struct llama_context *engine_context(const engine *engine);
void *engine_library(const engine *engine);
/* What llama_version() says; "-" from builds that have none. */
const char *engine_version(const engine *engine);
uint32_t engine_context_tokens(const engine *engine);
uint32_t engine_batch_tokens(const engine *engine);
uint32_t engine_vocabulary(const engine *engine);

/*
 * The tokens of a text, with the model's first token if it has one and `first` is set; names of special
 * tokens in the text become these tokens. A list for free(), NULL: no memory.
 */
int32_t *engine_tokenize(const engine *engine, const char *text, size_t bytes, int first, size_t *count);
/* A token as text, with a NUL; cut at `bytes`. Returns its length. */
size_t engine_text(const engine *engine, int32_t token, char *text, size_t bytes);
/* A token that ends an answer. */
int engine_is_end(const engine *engine, int32_t token);

/*
 * Messages in the form of the model's own template. roles[i]: "system", "user", "assistant"; `reply`: with
 * the beginning of an answer. A string for free(); NULL: the model has no template that this library knows.
 */
char *engine_chat(const engine *engine, const char *const *roles, const char *const *texts, size_t count, int reply);

/*
 * One llama_decode(): tokens at positions `position` and following of a sequence; at most batch_tokens.
 * Logits are made for the last one. 0; 1: no room in the context; else an error of the library.
 */
int engine_decode(engine *engine, int32_t sequence, const int32_t *tokens, size_t count, size_t position);
/* Decodes a token and forgets it: a model's first decode takes long, since its weights come from the file then. */
int engine_warm_up(engine *engine);
/* Of the last token decoded; engine_vocabulary() of them, valid until the next decode. */
const float *engine_logits(const engine *engine);
/* The likeliest next token; the lowest id among equals. */
int32_t engine_greedy(const engine *engine);

#endif
