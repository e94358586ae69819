/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Larger than llama_model_params and llama_context_params of any build. The callers of x86-64 and AArch64 pass
   such a struct in memory, so the library reads its own shorter one from the beginning. */
typedef union blob {
    unsigned char bytes[512];
    uint32_t first[4]; /* of a context: n_ctx, n_batch, n_ubatch, n_seq_max */
    void *alignment;
} blob;

typedef struct llama_batch {
    int32_t n_tokens;
    int32_t *token;
    float *embd;
    int32_t *pos;
    int32_t *n_seq_id;
    int32_t **seq_id;
    int8_t *logits;
} llama_batch;

typedef struct llama_chat_message {
    const char *role;
    const char *content;
} llama_chat_message;

struct llama_model;
struct llama_vocab;
struct llama_memory_i;
enum { LOG_ERROR = 4 }; /* ggml.h's */
typedef void log_callback(int level, const char *text, void *context);

/* llama.h's functions without `llama_`. */
typedef struct functions {
    void (*backend_init)(void);
    void (*log_set)(log_callback *callback, void *context);
    blob (*model_default_params)(void);
    blob (*context_default_params)(void);
    struct llama_model *(*model_load_from_file)(const char *path, blob parameters);
    void (*model_free)(struct llama_model *model);
    struct llama_context *(*init_from_model)(struct llama_model *model, blob parameters);
    void (*free)(struct llama_context *context);
    void (*set_n_threads)(struct llama_context *context, int32_t one, int32_t batch);
    uint32_t (*n_ctx)(const struct llama_context *context);
    uint32_t (*n_batch)(const struct llama_context *context);
    uint32_t (*n_ubatch)(const struct llama_context *context);
    uint32_t (*n_seq_max)(const struct llama_context *context);
    const struct llama_vocab *(*model_get_vocab)(const struct llama_model *model);
    int32_t (*vocab_n_tokens)(const struct llama_vocab *vocab);
    bool (*vocab_is_eog)(const struct llama_vocab *vocab, int32_t token);
    int32_t (*tokenize)(const struct llama_vocab *vocab, const char *text, int32_t bytes, int32_t *tokens,
                        int32_t capacity, bool add_special, bool parse_special);
    int32_t (*token_to_piece)(const struct llama_vocab *vocab, int32_t token, char *text, int32_t bytes,
                              int32_t strip, bool special);
    const char *(*model_chat_template)(const struct llama_model *model, const char *name);
    int32_t (*chat_apply_template)(const char *form, const llama_chat_message *messages, size_t count, bool reply,
                                   char *text, int32_t bytes);
    int32_t (*decode)(struct llama_context *context, llama_batch batch);
    float *(*get_logits_ith)(struct llama_context *context, int32_t index);
    struct llama_memory_i *(*get_memory)(const struct llama_context *context);
    void (*memory_clear)(struct llama_memory_i *memory, bool data);
} functions;

/* dlsym() gives a void *, which C does not turn into a pointer to a function: it is copied instead. */
#define FUNCTION(name) {"llama_" #name, offsetof(functions, name)}
static const struct {
    const char *symbol;
    size_t offset;
} table[] = {
    FUNCTION(backend_init),             FUNCTION(log_set),                  FUNCTION(model_default_params),
    FUNCTION(context_default_params),   FUNCTION(model_load_from_file),     FUNCTION(model_free),
    FUNCTION(init_from_model),          FUNCTION(free),                     FUNCTION(set_n_threads),
    FUNCTION(n_ctx),                    FUNCTION(n_batch),                  FUNCTION(n_ubatch),
    FUNCTION(n_seq_max),                FUNCTION(model_get_vocab),          FUNCTION(vocab_n_tokens),
    FUNCTION(vocab_is_eog),             FUNCTION(tokenize),                 FUNCTION(token_to_piece),
    FUNCTION(model_chat_template),      FUNCTION(chat_apply_template),      FUNCTION(decode),
    FUNCTION(get_logits_ith),           FUNCTION(get_memory),               FUNCTION(memory_clear),
};

struct engine {
    void *library;
    functions call;
    struct llama_model *model;
    struct llama_context *context;
    const struct llama_vocab *vocab;
    uint32_t batch_tokens;
    /* A batch. */
    int32_t *positions, *sequence_counts, **sequences, sequence;
    int8_t *wanted;
    char complaint[256]; /* the library's first error, for a message of ours */
};

static engine *failed(engine *self, kvo_error *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    engine_close(self);
    return NULL;
}

/* ---- The library ----------------------------------------------------------- */

#define HOW_TO_GET_ONE \
    "build llama.cpp with shared libraries, or let tools/llama-parts.sh of kvonce's sources fetch one, " \
    "and give its path by --library or KVONCE_LLAMA_LIB"

static void *open_library(const char *path, kvo_error *error)
{
    const char *usual[] = {"libllama.so.0", "libllama.so"};
    if (path == NULL || *path == 0) {
        path = getenv("KVONCE_LLAMA_LIB");
    }
    if (path != NULL && *path != 0) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            (void)snprintf(error->text, sizeof error->text, "%s; %s", dlerror(), HOW_TO_GET_ONE);
        }
        return library;
    }
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        void *library = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
        if (library != NULL) {
            return library;
        }
    }
    (void)snprintf(error->text, sizeof error->text, "no libllama.so where the loader looks: %s", HOW_TO_GET_ONE);
    return NULL;
}

/* The name of the first function that the library lacks, or NULL. */
static const char *bind(engine *self)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        void *address = dlsym(self->library, table[i].symbol);
        if (address == NULL) {
            return table[i].symbol;
        }
        memcpy((char *)&self->call + table[i].offset, &address, sizeof address);
    }
    return NULL;
}

/* The score that a CPU backend gives itself on this machine; 0: it cannot run here. */
static int backend_score(const char *path)
{
    void *backend = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (backend == NULL) {
        return 0;
    }
    int (*score)(void) = NULL;
    void *address = dlsym(backend, "ggml_backend_score");
    memcpy(&score, &address, sizeof address);
    int value = score != NULL ? score() : 1;
    (void)dlclose(backend);
    return value;
}

/* The best CPU backend of a folder: libggml-cpu.so or one of its variants. */
static int best_backend(const char *folder, char best[PATH_MAX])
{
    int best_score = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        char path[PATH_MAX];
        size_t length = strlen(entry->d_name);
        if (strncmp(entry->d_name, "libggml-cpu", 11) != 0 || strcmp(entry->d_name + length - 3, ".so") != 0 ||
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path) {
            continue;
        }
        int score = backend_score(path);
        if (score > best_score) {
            best_score = score;
            memcpy(best, path, sizeof path);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return best_score;
}

/* Builds that load their backends at run time have no device yet: the CPU's lies beside libllama, or in bin/ next
   to its folder. -1: there is none. */
static int load_backend(const engine *self)
{
    size_t (*device_count)(void) = NULL;
    void *(*load)(const char *path) = NULL;
    void *address = dlsym(self->library, "ggml_backend_dev_count");
    memcpy(&device_count, &address, sizeof address);
    if (device_count == NULL || device_count() != 0) {
        return 0;
    }
    address = dlsym(self->library, "ggml_backend_load");
    memcpy(&load, &address, sizeof address);
    Dl_info where;
    char folder[PATH_MAX], best[PATH_MAX];
    void *function = NULL;
    memcpy(&function, &self->call.decode, sizeof function);
    if (load == NULL || dladdr(function, &where) == 0 || strrchr(where.dli_fname, '/') == NULL) {
        return -1;
    }
    int length = (int)(strrchr(where.dli_fname, '/') - where.dli_fname);
    (void)snprintf(folder, sizeof folder, "%.*s", length, where.dli_fname);
    if (best_backend(folder, best) == 0) {
        (void)snprintf(folder, sizeof folder, "%.*s/../bin", length, where.dli_fname);
        if (best_backend(folder, best) == 0) {
            return -1;
        }
    }
    return load(best) != NULL ? 0 : -1;
}

/* Keeps the first error, which tells most, and says nothing. */
static void on_log(int level, const char *text, void *context)
{
    engine *self = context;
    if (level == LOG_ERROR && self->complaint[0] == 0) {
        (void)snprintf(self->complaint, sizeof self->complaint, "%s", text);
        self->complaint[strcspn(self->complaint, "\n")] = 0;
    }
}

/* ---- Model and context ------------------------------------------------------ */

/* Where the fields of engine_pinned lie, by what llama_version() says: a test trusts the two builds that it
   has fetched by digest, and checks what arrived. */
static int pin_fields(const engine *self, const engine_pinned *pinned, blob *parameters)
{
    static const struct {
        const char *version;
        uint8_t flash, type_k, type_v, unified, full_window;
    } builds[] = {{"0.6.0-dev", 52, 104, 108, 141, 140}, {"-", 44, 96, 100, 125, 124}};
    for (size_t i = 0; i < sizeof builds / sizeof builds[0]; i++) {
        if (strcmp(builds[i].version, engine_version(self)) != 0) {
            continue;
        }
        const struct {
            int value;
            size_t offset, bytes;
        } fields[] = {{pinned->flash, builds[i].flash, 4},
                      {pinned->type_k, builds[i].type_k, 4},
                      {pinned->type_v, builds[i].type_v, 4},
                      {pinned->unified, builds[i].unified, 1},
                      {pinned->full_window, builds[i].full_window, 1}};
        for (size_t field = 0; field < sizeof fields / sizeof fields[0]; field++) {
            if (fields[field].value >= 0) {
                memcpy(parameters->bytes + fields[field].offset, &fields[field].value, fields[field].bytes);
            }
        }
        return 0;
    }
    return -1;
}

static engine *open_context(engine *self, const engine_options *options, kvo_error *error)
{
    uint32_t batch = options->batch_tokens != 0 ? options->batch_tokens : 512;
    const uint32_t wanted[4] = {options->context_tokens != 0 ? options->context_tokens : 4096, batch, batch,
                                options->sequences != 0 ? options->sequences : 1};
    blob parameters = self->call.context_default_params();
    memcpy(parameters.first, wanted, sizeof wanted);
    if (options->pinned != NULL && pin_fields(self, options->pinned, &parameters) != 0) {
        return failed(self, error, "llama.cpp %s: not one of the builds whose fields are known",
                      engine_version(self));
    }
    self->context = self->call.init_from_model(self->model, parameters);
    if (self->context == NULL) {
        return failed(self, error, "%s: no context of %u tokens: %s", options->model, wanted[0],
                      self->complaint);
    }
    /* The library rounds a context up, and a batch down to it. */
    self->batch_tokens = self->call.n_batch(self->context);
    if (self->call.n_ctx(self->context) < wanted[0] || self->call.n_ctx(self->context) > wanted[0] + 1023 ||
        self->batch_tokens > batch || self->call.n_ubatch(self->context) > batch ||
        self->batch_tokens + 1023 < (batch < wanted[0] ? batch : wanted[0]) ||
        self->call.n_seq_max(self->context) != wanted[3]) {
        return failed(self, error, "llama.cpp %s did not take its parameters as expected: this build is not supported",
                      engine_version(self));
    }
    int threads = options->threads != 0 ? options->threads : 1;
    self->call.set_n_threads(self->context, threads, threads);
    return self;
}

static int allocate_batch(engine *self)
{
    size_t count = self->batch_tokens;
    self->positions = calloc(count, sizeof *self->positions);
    self->sequence_counts = calloc(count, sizeof *self->sequence_counts);
    self->sequences = calloc(count, sizeof *self->sequences);
    self->wanted = calloc(count, sizeof *self->wanted);
    if (self->positions == NULL || self->sequence_counts == NULL || self->sequences == NULL || self->wanted == NULL) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        self->sequence_counts[i] = 1;
        self->sequences[i] = &self->sequence;
    }
    return 0;
}

engine *engine_open(const engine_options *options, kvo_error *error)
{
    engine *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return failed(NULL, error, "out of memory");
    }
    self->library = open_library(options->library, error);
    if (self->library == NULL) {
        engine_close(self);
        return NULL;
    }
    const char *missing = bind(self);
    if (missing != NULL) {
        return failed(self, error, "this libllama has no %s: it is too old, or another engine; %s", missing,
                      HOW_TO_GET_ONE);
    }
    self->call.log_set(on_log, self);
    if (load_backend(self) != 0) {
        return failed(self, error, "no libggml-cpu*.so that runs here, beside libllama or in ../bin of its folder");
    }
    self->call.backend_init();
    self->complaint[0] = 0;
    self->model = self->call.model_load_from_file(options->model, self->call.model_default_params());
    if (self->model == NULL) {
        return failed(self, error, "%s: cannot be loaded as a GGUF model: %s", options->model, self->complaint);
    }
    self->vocab = self->call.model_get_vocab(self->model);
    if (open_context(self, options, error) == NULL) {
        return NULL;
    }
    return allocate_batch(self) == 0 ? self : failed(self, error, "out of memory");
}

void engine_close(engine *self)
{
    if (self == NULL) {
        return;
    }
    if (self->context != NULL) {
        self->call.free(self->context);
    }
    if (self->model != NULL) {
        self->call.model_free(self->model);
    }
    if (self->call.log_set != NULL) {
        self->call.log_set(NULL, NULL);
    }
    free(self->positions);
    free(self->sequence_counts);
    free(self->sequences);
    free(self->wanted);
    free(self); /* the library stays: its backends do not bear being unloaded */
}

struct llama_context *engine_context(const engine *self)
{
    return self->context;
}

void *engine_library(const engine *self)
{
    return self->library;
}

const char *engine_version(const engine *self)
{
    const char *(*version)(void) = NULL;
    void *address = dlsym(self->library, "llama_version");
    memcpy(&version, &address, sizeof address);
    return version != NULL ? version() : "-";
}

uint32_t engine_context_tokens(const engine *self)
{
    return self->call.n_ctx(self->context);
}

uint32_t engine_batch_tokens(const engine *self)
{
    return self->batch_tokens;
}

uint32_t engine_vocabulary(const engine *self)
{
    return (uint32_t)self->call.vocab_n_tokens(self->vocab);
}

/* ---- Text and tokens -------------------------------------------------------- */

int32_t *engine_tokenize(const engine *self, const char *text, size_t bytes, int first, size_t *count)
{
    *count = 0;
    if (bytes > INT32_MAX / 2) {
        return NULL;
    }
    /* No tokeniser makes more tokens than bytes, but for the ones that it adds. */
    size_t capacity = bytes + 8;
    int32_t *tokens = malloc(capacity * sizeof *tokens);
    int32_t made = tokens == NULL ? -1
                                  : self->call.tokenize(self->vocab, text, (int32_t)bytes, tokens, (int32_t)capacity,
                                                        first != 0, true);
    if (made < 0) {
        free(tokens);
        return NULL;
    }
    *count = (size_t)made;
    return tokens;
}

size_t engine_text(const engine *self, int32_t token, char *text, size_t bytes)
{
    int32_t length = self->call.token_to_piece(self->vocab, token, text, (int32_t)bytes - 1, 0, false);
    text[length > 0 ? length : 0] = 0;
    return length > 0 ? (size_t)length : 0;
}

int engine_is_end(const engine *self, int32_t token)
{
    return self->call.vocab_is_eog(self->vocab, token);
}

char *engine_chat(const engine *self, const char *const *roles, const char *const *texts, size_t count, int reply)
{
    const char *form = self->call.model_chat_template(self->model, NULL);
    llama_chat_message *messages = calloc(count + 1, sizeof *messages);
    char *text = NULL;
    int32_t length = -1;
    if (form != NULL && messages != NULL) {
        for (size_t i = 0; i < count; i++) {
            messages[i] = (llama_chat_message){roles[i], texts[i]};
        }
        length = self->call.chat_apply_template(form, messages, count, reply != 0, NULL, 0);
    }
    if (length >= 0 && (text = malloc((size_t)length + 1)) != NULL) {
        (void)self->call.chat_apply_template(form, messages, count, reply != 0, text, length);
        text[length] = 0;
    }
    free(messages);
    return text;
}

/* ---- Decoding --------------------------------------------------------------- */

int engine_decode(engine *self, int32_t sequence, const int32_t *tokens, size_t count, size_t position)
{
    if (count == 0 || count > self->batch_tokens) {
        return -1;
    }
    self->sequence = sequence;
    for (size_t i = 0; i < count; i++) {
        self->positions[i] = (int32_t)(position + i);
        self->wanted[i] = i + 1 == count;
    }
    llama_batch batch = {.n_tokens = (int32_t)count, .pos = self->positions, .n_seq_id = self->sequence_counts,
                         .seq_id = self->sequences, .logits = self->wanted};
    memcpy(&batch.token, &tokens, sizeof tokens); /* it only reads them */
    return self->call.decode(self->context, batch);
}

int engine_warm_up(engine *self)
{
    const int32_t token = 0;
    int status = engine_decode(self, 0, &token, 1, 0);
    self->call.memory_clear(self->call.get_memory(self->context), true);
    return status;
}

const float *engine_logits(const engine *self)
{
    return self->call.get_logits_ith(self->context, -1);
}

int32_t engine_greedy(const engine *self)
{
    const float *logits = engine_logits(self);
    uint32_t count = engine_vocabulary(self), best = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return (int32_t)best;
}
