/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes: their digests, their spaces, and the records by which a new process finds them before it has exported. */
#include "adapter.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_MAGIC 0x31524c4bu /* "KLR1" */
#define RECORD_HEAD_BYTES 280
#define RECORD_BYTES_MAX (RECORD_HEAD_BYTES + BLOB_LAYOUT_BYTES_MAX)
#define RECORD_BEGIN_BYTES 16 /* of a name, common to those of one model */
#define KEEP_NS (400u * 86400u * 1000000000ull)

bool llama_windowed(const kv_shape *shape)
{
    return shape->kind == KVO_LLAMA_ROWS && shape->layout.part_count > 1;
}

size_t llama_token_bytes(const kv_shape *shape, uint32_t part)
{
    if (shape->kind != KVO_LLAMA_ROWS || part >= shape->layout.part_count)
        return 0;
    return blob_token_bytes(&shape->layout.parts[part]);
}

/* ---- Spaces ---------------------------------------------------------------- */

/* Texts that a description points to. */
typedef struct description {
    kvo_space_config config;
    char model[65], dtype[64], label[64];
    uint8_t extra[32];
} description;

static bool describe(const kvo_llama *kv, const kv_shape *shape, uint32_t part, description *out)
{
    const blob_part *rows = &shape->layout.parts[part];
    const bool opaque = shape->kind == KVO_LLAMA_OPAQUE;
    uint8_t *layout = malloc(BLOB_LAYOUT_BYTES_MAX);
    char k[24], v[24];

    if (layout == NULL)
        return false;
    const kv_piece pieces[] = {{layout, opaque ? 0 : blob_layout_write(&shape->layout, layout)},
                            {&kv->window, sizeof kv->window},
                            {&kv->beyond, sizeof kv->beyond},
                            {&shape->sequences, opaque ? sizeof shape->sequences : 0},
                            {&shape->block_bytes, opaque ? sizeof shape->block_bytes : 0}};
    const bool ok = llama_digest(pieces, sizeof pieces / sizeof *pieces, out->extra);

    free(layout);
    llama_hex(kv->model, sizeof kv->model, out->model);
    if (!opaque)
        snprintf(out->dtype, sizeof out->dtype, "k %s v %s", blob_type_name(rows->layers[0].k_type, k),
                 blob_type_name(rows->layers[0].v_type, v));
    out->config = (kvo_space_config)KVO_SPACE_CONFIG_INIT;
    out->config.label = out->label;
    out->config.model = out->model;
    out->config.revision = kv->settings;
    out->config.dtype = opaque ? NULL : out->dtype;
    out->config.layout = opaque ? "opaque" : part == 0 ? "rows" : "rows of a window";
    out->config.engine = "llama.cpp";
    out->config.engine_version = shape->build;
    out->config.block_positions = kv->block_tokens;
    out->config.layers = opaque ? 0 : rows->layer_count;
    out->config.block_bytes_max = opaque ? shape->block_bytes : kv->block_tokens * (uint64_t)blob_token_bytes(rows);
    out->config.extra = out->extra;
    out->config.extra_bytes = sizeof out->extra;
    return ok;
}

static bool set_digest(const kvo_llama *kv, kv_shape *shape)
{
    description about;

    if (!describe(kv, shape, 0, &about))
        return false;
    strcpy(about.label, "none");
    return kvo_space_digest(&about.config, shape->digest) == KVO_OK;
}

static int open_space(kvo_llama *kv, const kv_shape *shape, uint32_t part, kvo_space *space)
{
    description about;
    kvo_error error = {""};
    char hex[41];

    if (!describe(kv, shape, part, &about))
        return KVO_E_MEMORY;
    llama_hex(shape->digest, 20, hex);
    snprintf(about.label, sizeof about.label, "llama%s-%s", part == 0 ? "" : "-window", hex);
    const int status = kvo_space_open(kv->store, &about.config, space, &error);

    if (status != KVO_OK)
        llama_log(kv, "no space for these blocks: %s", error.text);
    return status;
}

int llama_shape_open(kvo_llama *kv, kv_shape *shape)
{
    int status = shape->space == 0 ? open_space(kv, shape, 0, &shape->space) : KVO_OK;

    if (status == KVO_OK && llama_windowed(shape) && shape->window_space == 0)
        status = open_space(kv, shape, 1, &shape->window_space);
    return status;
}

/* ---- Shapes ------------------------------------------------------------------ */

/* The file that holds a function. The program itself is known there by its first argument only, which may be any
   text, or the name of another file. */
static const char *file_of(const void *address)
{
    struct link_map *map = NULL;
    Dl_info where;

    if (dladdr1(address, &where, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
        return "";
    return map->l_name[0] == 0 ? "/proc/self/exe" : where.dli_fname;
}

/* By its content: versions are not told apart by their names. */
static bool find_build(kvo_llama *kv)
{
    struct llama_memory_i *(*function)(const struct llama_context *) = kv->f.get_memory;
    void *address;
    uint8_t digest[32];

    if (kv->build[0] != 0)
        return true;
    memcpy(&address, &function, sizeof address);
    if (llama_file_digest(file_of(address), digest, NULL) != KVO_OK) {
        llama_log(kv, "the library's file was not found: name the build in the options");
        return false;
    }
    llama_hex(digest, sizeof digest, kv->build);
    return true;
}

static bool needs_build(const blob_layout *layout)
{
    for (uint32_t i = 0; i < layout->part_count; i++)
        if (layout->parts[i].n_rot_k == BLOB_ROTATION_UNKNOWN || layout->parts[i].n_rot_v == BLOB_ROTATION_UNKNOWN)
            return true;
    return false;
}

/* What such a build does not tell may also have been switched off. */
static void set_build(const kvo_llama *kv, kv_shape *shape)
{
    const char *off = getenv("LLAMA_ATTN_ROT_DISABLE");

    snprintf(shape->build, sizeof shape->build, "%.*s%s", BUILD_BYTES_MAX, kv->build,
             off != NULL && strcmp(off, "0") != 0 ? " unrotated" : "");
}

bool llama_shape_ours(kvo_llama *kv, const kv_shape *candidate)
{
    kv_shape ours;

    if (candidate->kind == KVO_LLAMA_OPAQUE && (kv->scratch < 0 || candidate->sequences != kv->sequences))
        return false;
    if (candidate->build[0] == 0)
        return true;
    if (!find_build(kv))
        return false;
    set_build(kv, &ours);
    return strcmp(ours.build, candidate->build) == 0;
}

static kv_shape *finish(kvo_llama *kv, kv_shape *made)
{
    if (set_digest(kv, made))
        return made;
    llama_log(kv, "no digest of the cache's layout");
    free(made);
    return NULL;
}

kv_shape *llama_shape_of_rows(kvo_llama *kv, const blob_form *form, const blob_layout *layout)
{
    const bool bound = needs_build(layout);
    kv_shape *made = bound && !find_build(kv) ? NULL : calloc(1, sizeof *made);

    if (made == NULL)
        return NULL;
    made->kind = KVO_LLAMA_ROWS;
    made->form = *form;
    made->layout = *layout;
    if (bound)
        set_build(kv, made);
    return finish(kv, made);
}

kv_shape *llama_shape_opaque(kvo_llama *kv, uint32_t block_bytes)
{
    kv_shape *made = find_build(kv) ? calloc(1, sizeof *made) : NULL;

    if (made == NULL)
        return NULL;
    made->kind = KVO_LLAMA_OPAQUE;
    made->block_bytes = block_bytes;
    made->sequences = kv->sequences;
    set_build(kv, made);
    return finish(kv, made);
}

void llama_shape_use(kvo_llama *kv, kv_shape *shape, bool learned)
{
    if (kv->shape != shape) {
        free(kv->shape);
        llama_chain_forget(kv);
    }
    kv->shape = shape;
    kv->learned = shape != NULL && learned;
}

/* ---- Records ------------------------------------------------------------------- */

static bool record_space(kvo_llama *kv, kvo_space *space)
{
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_error error = {""};

    config.label = "llama-layouts";
    config.engine = "llama.cpp";
    config.layout = "layouts 1";
    config.block_bytes_max = RECORD_BYTES_MAX;
    if (kvo_space_open(kv->store, &config, space, &error) == KVO_OK)
        return true;
    llama_log(kv, "no space for layouts: %s", error.text);
    return false;
}

/* Names begin alike for the shapes of one model with the same settings, and end with the shape's digest: so which
   there are, and whether one is there, is known without reading any. */
static bool record_names_begin(const kvo_llama *kv, uint8_t name[NAME_BYTES])
{
    const kv_piece pieces[] = {{"layout", 6},
                            {kv->model, sizeof kv->model},
                            {kv->settings, strlen(kv->settings)},
                            {&kv->block_tokens, sizeof kv->block_tokens}};

    return llama_digest(pieces, sizeof pieces / sizeof *pieces, name);
}

static size_t record_write(const kv_shape *shape, uint8_t *out)
{
    const uint32_t head[] = {RECORD_MAGIC, (uint32_t)shape->kind, shape->block_bytes, shape->sequences};
    const uint8_t form[] = {shape->form.header, shape->form.rotation, shape->form.ext_bytes, shape->form.part_count};

    memset(out, 0, RECORD_HEAD_BYTES);
    memcpy(out, head, sizeof head);
    memcpy(out + sizeof head, form, sizeof form);
    memcpy(out + sizeof head + sizeof form, shape->build, strlen(shape->build));
    return RECORD_HEAD_BYTES +
           (shape->kind == KVO_LLAMA_ROWS ? blob_layout_write(&shape->layout, out + RECORD_HEAD_BYTES) : 0);
}

/* The store has checked the bytes; but another version may have written them. */
static kv_shape *record_read(kvo_llama *kv, const uint8_t *bytes, size_t count)
{
    uint32_t head[4];
    uint8_t form[4];
    kv_shape *made = count < RECORD_HEAD_BYTES ? NULL : calloc(1, sizeof *made);

    if (made == NULL)
        return NULL;
    memcpy(head, bytes, sizeof head);
    memcpy(form, bytes + sizeof head, sizeof form);
    memcpy(made->build, bytes + sizeof head + sizeof form, sizeof made->build - 1);
    made->kind = (int)head[1];
    made->block_bytes = head[2];
    made->sequences = head[3];
    made->form = (blob_form){form[0] == 1, form[1] == 1, form[2], form[3]};
    const bool rows = made->kind == KVO_LLAMA_ROWS &&
                      blob_layout_read(bytes + RECORD_HEAD_BYTES, count - RECORD_HEAD_BYTES, &made->layout) &&
                      made->form.ext_bytes <= 12 && made->form.part_count == made->layout.part_count;

    if (head[0] == RECORD_MAGIC && (rows || (made->kind == KVO_LLAMA_OPAQUE && made->block_bytes > 0)))
        return finish(kv, made);
    free(made);
    return NULL;
}

static kv_shape *record_get(kvo_llama *kv, const kvo_block_info *info, uint8_t *bytes)
{
    const kvo_names names = {.first = info->name, .name_bytes = NAME_BYTES, .count = 1, .space = info->space};
    const kvo_segment segment = {bytes, info->payload_bytes};
    const kvo_memory memory = {&segment, NULL};
    kvo_get_options options = KVO_GET_OPTIONS_INIT;
    kvo_answer answer;

    options.deadline_ns = llama_left(kv);
    if (info->payload_bytes > RECORD_BYTES_MAX ||
        kvo_get(kv->store, &names, &memory, &options, &answer) != KVO_OK || answer.status != KVO_OK)
        return NULL;
    return record_read(kv, bytes, segment.bytes);
}

size_t llama_records_load(kvo_llama *kv, kv_shape *shapes[RECORDS_MAX])
{
    uint8_t *bytes = malloc(RECORD_BYTES_MAX), begin[NAME_BYTES];
    kvo_target all = {.by = KVO_BY_SPACE};
    kvo_block_info info;
    uint64_t cursor = 0;
    size_t found = 1, count = 0;
    bool more = bytes != NULL && record_names_begin(kv, begin) && record_space(kv, &all.space);

    while (more && count < RECORDS_MAX) {
        more = kvo_walk(kv->store, &all, &cursor, &info, 1, &found) == KVO_OK && found == 1;
        if (more && info.name_bytes == NAME_BYTES && memcmp(info.name, begin, RECORD_BEGIN_BYTES) == 0) {
            shapes[count] = record_get(kv, &info, bytes);
            count += shapes[count] != NULL;
        }
    }
    free(bytes);
    return count;
}

bool llama_record_keep(kvo_llama *kv, const kv_shape *shape)
{
    uint8_t name[NAME_BYTES], *bytes = malloc(RECORD_BYTES_MAX);
    kvo_names names = {.first = name, .name_bytes = sizeof name, .count = 1};
    kvo_put_options options = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer = {.status = KVO_BUSY};

    options.deadline_ns = 0;
    options.trust_name = 1;
    options.policy = (kvo_policy){kv->tenant, 3, 100, 100, KVO_INTENT_KEEP, KEEP_NS};
    if (bytes != NULL && record_names_begin(kv, name) && record_space(kv, &names.space)) {
        const kvo_segment segment = {bytes, record_write(shape, bytes)};
        const kvo_memory memory = {&segment, NULL};

        memcpy(name + RECORD_BEGIN_BYTES, shape->digest, sizeof name - RECORD_BEGIN_BYTES);
        if (kvo_put(kv->store, &names, &memory, &options, &answer) == KVO_OK && answer.status == KVO_STORED)
            llama_write_ahead(kv, &names, false);
    }
    free(bytes);
    return answer.status == KVO_STORED || answer.status == KVO_EXISTS;
}
