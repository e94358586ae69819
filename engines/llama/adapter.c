/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, closing, counting. */
#include "adapter.h"

#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WRITE_NS 60000000000u /* for a block to reach the disk, in the store's threads */
#define CLOSE_NS 10000000000u
#define KEPT_BYTES (64u << 20) /* of each buffer, between calls */

/* ---- Small things --------------------------------------------------------- */

void llama_log(kvo_llama *kv, const char *format, ...)
{
    char line[512];
    va_list more;

    if (kv->on_log == NULL)
        return;
    va_start(more, format);
    vsnprintf(line, sizeof line, format, more);
    va_end(more);
    kv->on_log(kv->log_context, line);
}

uint64_t llama_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t llama_left(const kvo_llama *kv)
{
    const uint64_t now = llama_now();

    return now < kv->until ? kv->until - now : 0;
}

int llama_no_memory(kvo_llama *kv)
{
    llama_log(kv, "no memory");
    return KVO_LLAMA_ENGINE;
}

/* Keeps what it has: fresh memory costs more than the copy into it. */
bool llama_room(kvo_llama *kv, kv_buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->capacity)
        return true;
    free(buffer->bytes);
    buffer->capacity = 0;
    buffer->bytes = malloc(bytes);
    if (buffer->bytes == NULL) {
        llama_log(kv, "no memory for %zu bytes", bytes);
        return false;
    }
    buffer->capacity = bytes;
    return true;
}

void llama_trim(kv_buffer *buffer)
{
    if (buffer->capacity <= KEPT_BYTES)
        return;
    free(buffer->bytes);
    *buffer = (kv_buffer){0};
}

int llama_may(const kvo_llama *kv, int32_t sequence, size_t token_count)
{
    if (sequence < 0 || (uint32_t)sequence >= kv->sequences || sequence == kv->scratch || token_count > INT32_MAX)
        return KVO_E_RANGE;
    const int status = kvo_match(kv->store, NULL, NULL, NULL);

    return status == KVO_E_FORKED || status == KVO_E_STATE ? status : KVO_OK;
}

bool llama_digest(const kv_piece *pieces, size_t count, uint8_t digest[32])
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool ok = hash != NULL && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1;

    for (size_t i = 0; ok && i < count; i++) {
        const uint64_t bytes = pieces[i].count;
        ok = EVP_DigestUpdate(hash, &bytes, sizeof bytes) == 1 &&
             EVP_DigestUpdate(hash, pieces[i].bytes, pieces[i].count) == 1;
    }
    ok = ok && EVP_DigestFinal_ex(hash, digest, NULL) == 1;
    EVP_MD_CTX_free(hash);
    return ok;
}

void llama_hex(const uint8_t *bytes, size_t count, char *out)
{
    for (size_t i = 0; i < count; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static int fail(kvo_error *error, int status, const char *text)
{
    if (error != NULL)
        snprintf(error->text, sizeof error->text, "%s", text);
    return status;
}

/* ---- Opening ---------------------------------------------------------------- */

/* The fields that an older program's shorter struct has. */
static bool take_struct(void *to, size_t size, const void *from, size_t from_size)
{
    if (from_size < sizeof(size_t) || from_size > size)
        return false;
    memcpy(to, from, from_size);
    return true;
}

static int take_functions(kvo_llama_functions *to, const kvo_llama_functions *from, kvo_error *error)
{
    if (from == NULL || !take_struct(to, sizeof *to, from, from->size))
        return fail(error, KVO_E_ARGUMENT, "no table of functions, or of a size that this version does not know");
    if (to->get_memory == NULL || to->memory_seq_cp == NULL || to->memory_seq_rm == NULL ||
        to->memory_seq_pos_min == NULL || to->memory_seq_pos_max == NULL || to->state_seq_get_size_ext == NULL ||
        to->state_seq_get_data_ext == NULL || to->state_seq_set_data_ext == NULL || to->n_seq_max == NULL)
        return fail(error, KVO_E_UNSUPPORTED, "unsupported engine: a required function is missing");
    return KVO_OK;
}

/* Both go into the descriptions of spaces, which say what a text must be. */
static bool take_texts(kvo_llama *kv, const kvo_llama_options *options)
{
    kvo_space_config about = KVO_SPACE_CONFIG_INIT;
    uint8_t digest[32];

    about.label = "texts";
    about.revision = options->settings;
    about.engine_version = options->build;
    about.block_bytes_max = 1;
    if ((options->build != NULL && strlen(options->build) > BUILD_BYTES_MAX) ||
        kvo_space_digest(&about, digest) == KVO_E_RANGE)
        return false;
    if (options->settings != NULL)
        strcpy(kv->settings, options->settings);
    if (options->build != NULL)
        strcpy(kv->build, options->build);
    return true;
}

static int take_options(kvo_llama *kv, const kvo_llama_options *given, kvo_error *error)
{
    kvo_llama_options options = KVO_LLAMA_OPTIONS_INIT;

    if (given == NULL || !take_struct(&options, sizeof options, given, given->size) || options.model == NULL ||
        (options.salt == NULL && options.salt_bytes > 0))
        return fail(error, KVO_E_ARGUMENT, "no options, or no identity of the model in them");
    if (options.block_tokens > BLOCK_TOKENS_MAX || options.salt_bytes > sizeof kv->salt ||
        (options.flags & ~(uint32_t)(KVO_LLAMA_TRUST_IMPORT | KVO_LLAMA_MEMORY_ONLY)) != 0 ||
        !take_texts(kv, &options))
        return fail(error, KVO_E_RANGE, "block_tokens, salt_bytes, flags or a text out of range");
    memcpy(kv->model, options.model, sizeof kv->model);
    if (options.salt_bytes > 0)
        memcpy(kv->salt, options.salt, options.salt_bytes);
    kv->salt_bytes = options.salt_bytes;
    kv->tenant = options.tenant;
    kv->flags = options.flags;
    kv->block_tokens = options.block_tokens == 0 ? BLOCK_TOKENS_DEFAULT : options.block_tokens;
    kv->window_stride = options.window_stride_tokens;
    kv->restore_ns = options.restore_ns == 0 ? 30000000000u : options.restore_ns;
    kv->on_log = options.on_log;
    kv->log_context = options.log_context;
    return KVO_OK;
}

/* The length beyond which a model's positions are scaled in another way (LongRoPE), which depends on the context's
   size, not on the position; 0: not told. */
static uint64_t original_length(const kvo_llama *kv, const struct llama_model *model)
{
    char architecture[64], key[128], value[32];

    if (model == NULL || kv->f.model_meta_val_str == NULL ||
        kv->f.model_meta_val_str(model, "general.architecture", architecture, sizeof architecture) < 1)
        return 0;
    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", architecture);
    return kv->f.model_meta_val_str(model, key, value, sizeof value) < 1 ? 0 : strtoull(value, NULL, 10);
}

/* Where several sequences have a cache each, their blobs have several streams, and seq_cp aborts the process. */
static int look_at_context(kvo_llama *kv, kvo_error *error)
{
    const bool sized = kv->f.n_ctx != NULL && kv->f.n_ctx_seq != NULL;
    const struct llama_model *model = kv->f.get_model == NULL ? NULL : kv->f.get_model(kv->context);

    kv->memory = kv->f.get_memory(kv->context);
    kv->sequences = kv->f.n_seq_max(kv->context);
    if (kv->memory == NULL || kv->sequences == 0)
        return fail(error, KVO_E_UNSUPPORTED, "this context has no memory of a sequence");
    if (model != NULL && ((kv->f.model_is_recurrent != NULL && kv->f.model_is_recurrent(model)) ||
                          (kv->f.model_is_hybrid != NULL && kv->f.model_is_hybrid(model))))
        return fail(error, KVO_E_UNSUPPORTED, "recurrent and hybrid models have a state that cannot be cut");
    if (sized && kv->sequences > 1 && kv->f.n_ctx_seq(kv->context) != kv->f.n_ctx(kv->context))
        return fail(error, KVO_E_UNSUPPORTED,
                    "each sequence of this context has a cache of its own: set kv_unified, or n_seq_max to 1");
    kv->scratch = sized && kv->sequences > 1 ? (int32_t)kv->sequences - 1 : -1;
    if (kv->scratch >= 0 && kv->f.memory_seq_pos_max(kv->memory, kv->scratch) >= 0)
        return fail(error, KVO_E_STATE,
                    "the last sequence id holds tokens: it is the adapter's, raise n_seq_max by one");
    kv->told = model != NULL && kv->f.model_n_swa != NULL && kv->f.model_is_recurrent != NULL &&
               kv->f.model_is_hybrid != NULL;
    kv->positions = sized ? kv->f.n_ctx_seq(kv->context) : UINT32_MAX;
    if (model != NULL && kv->f.model_n_swa != NULL && kv->f.model_n_swa(model) > 0)
        kv->window = (uint32_t)kv->f.model_n_swa(model);
    if (kv->window_stride == 0)
        kv->window_stride = 4 * kv->window;
    const uint64_t original = original_length(kv, model);

    kv->beyond = original > 0 && kv->positions > original;
    return KVO_OK;
}

static int prepare(kvo_llama *kv, const kvo_llama_functions *functions, const kvo_llama_options *options,
                   kvo_error *error)
{
    int status = take_functions(&kv->f, functions, error);

    if (status == KVO_OK)
        status = take_options(kv, options, error);
    if (status == KVO_OK)
        status = look_at_context(kv, error);
    if (status != KVO_OK)
        return status;
    kv->cells = malloc(kv->block_tokens * sizeof *kv->cells);
    if (kv->cells == NULL)
        return KVO_E_MEMORY;
    return (kv->flags & KVO_LLAMA_MEMORY_ONLY) != 0 ? KVO_OK : kvo_queue_open(kv->store, NULL, &kv->queue);
}

static void free_all(kvo_llama *kv)
{
    llama_shape_use(kv, NULL, false);
    free(kv->chain.tokens);
    free(kv->chain.names);
    free(kv->blob.bytes);
    free(kv->back.bytes);
    free(kv->cells);
    free(kv);
}

int kvo_llama_open(kvo_store *store, struct llama_context *context, const kvo_llama_functions *functions,
                   const kvo_llama_options *options, kvo_llama **llama, kvo_error *error)
{
    kvo_llama *kv;
    int status;

    if (llama != NULL)
        *llama = NULL;
    if (store == NULL || context == NULL || llama == NULL)
        return fail(error, KVO_E_ARGUMENT, "no store, no context, or nowhere to put the adapter");
    kv = calloc(1, sizeof *kv);
    if (kv == NULL)
        return KVO_E_MEMORY;
    kv->store = store;
    kv->context = context;
    status = prepare(kv, functions, options, error);
    if (status != KVO_OK) {
        free_all(kv);
        return status;
    }
    *llama = kv;
    return KVO_OK;
}

/* ---- To disk, without waiting -------------------------------------------------- */

void llama_write_ahead(kvo_llama *kv, const kvo_names *names, bool counted)
{
    const kvo_target target = {.by = KVO_BY_NAMES, .names = *names};
    struct pending *pending;
    kvo_job job;

    if (kv->queue == NULL || kv->no_medium || names->count == 0)
        return;
    pending = malloc(sizeof *pending + names->count * sizeof *pending->answers);
    if (pending == NULL)
        return;
    pending->counted = counted;
    const int status = kvo_submit_sync(kv->queue, &target, KVO_WRITTEN, WRITE_NS, pending->answers, pending, &job);
    if (status != KVO_OK) {
        kv->no_medium = status == KVO_E_UNSUPPORTED;
        free(pending); /* the store writes it when it needs the room */
        return;
    }
    pending->next = kv->pending;
    kv->pending = pending;
}

static void drop_pending(kvo_llama *kv, const struct pending *done)
{
    for (struct pending **at = &kv->pending; *at != NULL; at = &(*at)->next)
        if (*at == done) {
            struct pending *next = (*at)->next;
            free(*at);
            *at = next;
            return;
        }
}

void llama_take_reports(kvo_llama *kv)
{
    kvo_report report;
    size_t count = 1;

    while (kv->queue != NULL && kvo_poll(kv->queue, &report, 1, 0, &count) == KVO_OK && count == 1) {
        const struct pending *pending = report.context;

        kv->stat.written_blocks += pending->counted ? report.ok_count : 0;
        kv->no_medium = kv->no_medium || report.status == KVO_E_UNSUPPORTED;
        drop_pending(kv, pending);
    }
}

/* ---- Closing ------------------------------------------------------------------- */

int kvo_llama_close(kvo_llama *kv, uint64_t deadline_ns)
{
    int status = KVO_OK;

    if (kv == NULL)
        return KVO_OK;
    if (kv->queue != NULL) {
        status = kvo_drain(kv->queue, deadline_ns);
        llama_take_reports(kv);
        if (status == KVO_OK && !kv->no_medium && kv->stat.written_blocks < kv->stat.saved_blocks)
            status = KVO_SHORT;
        if (kvo_queue_close(kv->queue, CLOSE_NS) == KVO_BUSY)
            kv->pending = NULL; /* a device hangs: these answers are the store's until it is closed */
    }
    while (kv->pending != NULL)
        drop_pending(kv, kv->pending);
    free_all(kv);
    return status;
}

/* ---- Counting ------------------------------------------------------------------ */

static void describe(const kvo_llama *kv, char *out, size_t capacity)
{
    const kv_shape *shape = kv->shape;
    const blob_part *part = &shape->layout.parts[0];
    char k[24], v[24];

    if (shape->kind == KVO_LLAMA_OPAQUE) {
        snprintf(out, capacity, "opaque, of build %.64s", shape->build);
        return;
    }
    snprintf(out, capacity, "%u layers, k %s %u B, v %s %u B%s, rotation %d %d%s", part->layer_count,
             blob_type_name(part->layers[0].k_type, k), part->layers[0].k_bytes,
             blob_type_name(part->layers[0].v_type, v), part->layers[0].v_bytes, part->transposed ? " transposed" : "",
             (int)part->n_rot_k, (int)part->n_rot_v, llama_windowed(shape) ? ", and a window's layers" : "");
}

int kvo_llama_stat_get(kvo_llama *kv, kvo_llama_stat *stat)
{
    if (kv == NULL || stat == NULL || stat->size < sizeof(size_t) || stat->size > sizeof *stat)
        return KVO_E_ARGUMENT;
    const size_t size = stat->size;

    llama_take_reports(kv);
    kv->stat.scratch = kv->scratch;
    kv->stat.block_tokens = kv->block_tokens;
    kv->stat.form = kv->learned ? kv->shape->kind : KVO_LLAMA_NOT_KNOWN;
    if (kv->learned) {
        describe(kv, kv->stat.layout, sizeof kv->stat.layout);
        kv->stat.token_bytes = (uint32_t)llama_token_bytes(kv->shape, 0);
        kv->stat.window_token_bytes = (uint32_t)llama_token_bytes(kv->shape, 1);
        kv->stat.window_tokens = llama_windowed(kv->shape) ? kv->window : 0;
    }
    memcpy(stat, &kv->stat, size);
    stat->size = size;
    return KVO_OK;
}
