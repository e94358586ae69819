/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"
#include "base/names.h"
#include "base/options.h"
#include "base/status.h"
#include "base/text.h"

#include <string.h>

typedef enum field_type { FIELD_STRING = 1, FIELD_U32 = 2, FIELD_U64 = 3, FIELD_BYTES = 4 } field_type;

/* One field of a description. `id` and `type` are on the medium: never change or reuse one. */
typedef struct field {
    uint8_t id;
    uint8_t type; /* field_type */
    const char *name;
    size_t offset; /* in base_space_record */
} field;

#define FIELD(id, type, name) \
    { \
        id, FIELD_##type, #name, offsetof(base_space_record, name) \
    }

static const field fields[] = {
    FIELD(1, STRING, model),         FIELD(2, STRING, revision),       FIELD(3, STRING, dtype),
    FIELD(4, STRING, layout),        FIELD(5, STRING, quantisation),   FIELD(6, STRING, position_encoding),
    FIELD(7, STRING, engine),        FIELD(8, STRING, engine_version), FIELD(9, U32, block_positions),
    FIELD(10, U32, layers),          FIELD(11, U32, kv_heads),         FIELD(12, U32, head_size),
    FIELD(13, U64, block_bytes_max), FIELD(14, BYTES, extra),
};
enum { FIELD_COUNT = sizeof fields / sizeof fields[0], HEADER_BYTES = 8, FIELD_HEADER_BYTES = 4 };

static const void *field_in(const base_space_record *record, const field *f)
{
    return (const char *)record + f->offset;
}

static void *field_of(base_space_record *record, const field *f)
{
    return (char *)record + f->offset;
}

static uint64_t number_in(const base_space_record *record, const field *f)
{
    uint32_t small;
    uint64_t large;

    if (f->type == FIELD_U64) {
        memcpy(&large, field_in(record, f), sizeof large);
        return large;
    }
    memcpy(&small, field_in(record, f), sizeof small);
    return small;
}

/* ---- From a caller ------------------------------------------------------ */

static int label_is_valid(const char *label)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

    const size_t length = label == NULL ? 0 : strnlen(label, BASE_SPACE_LABEL_MAX + 1);
    return length > 0 && length <= BASE_SPACE_LABEL_MAX && strspn(label, allowed) == length;
}

/* NULL, or why not. A valid string has one form, so that equal descriptions have equal bytes. */
static const char *take_string(const char *given, char out[BASE_SPACE_STRING_MAX + 1])
{
    const size_t length = given == NULL ? 0 : strnlen(given, BASE_SPACE_STRING_MAX + 1);

    if (length > BASE_SPACE_STRING_MAX)
        return "is longer than 255 bytes; shorten it, or put it in extra";
    for (size_t i = 0; i < length;) {
        const size_t step = base_utf8_length(given + i, length - i);
        if (step == 0)
            return "is not UTF-8; encode it, or put it in extra";
        i += step;
    }
    if (length > 0)
        memcpy(out, given, length);
    return NULL;
}

static int take_strings(const kvo_space_config *config, base_space_record *record, kvo_error *error)
{
    const char *const given[] = {config->model,  config->revision,      config->dtype,
                                 config->layout, config->quantisation,  config->position_encoding,
                                 config->engine, config->engine_version};

    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        const char *why = take_string(given[i], field_of(record, &fields[i]));
        if (why != NULL)
            return base_fail(error, KVO_E_RANGE, "space \"%s\": %s %s", config->label, fields[i].name, why);
    }
    return KVO_OK;
}

static int take_numbers(const kvo_space_config *config, base_space_record *record, kvo_error *error)
{
    if (config->block_bytes_max < 1 || config->block_bytes_max > KVO_PAYLOAD_BYTES_MAX)
        return base_fail(error, KVO_E_RANGE, "space \"%s\": block_bytes_max is %llu; give 1 to %u",
                         config->label, (unsigned long long)config->block_bytes_max, KVO_PAYLOAD_BYTES_MAX);
    if (config->extra_bytes > BASE_SPACE_EXTRA_MAX)
        return base_fail(error, KVO_E_RANGE,
                         "space \"%s\": extra has %zu bytes; give at most %d, or a digest of it",
                         config->label, config->extra_bytes, BASE_SPACE_EXTRA_MAX);
    if (config->extra_bytes > 0 && config->extra == NULL)
        return base_fail(error, KVO_E_ARGUMENT, "space \"%s\": extra is NULL but has %zu bytes",
                         config->label, config->extra_bytes);
    record->block_positions = config->block_positions;
    record->layers = config->layers;
    record->kv_heads = config->kv_heads;
    record->head_size = config->head_size;
    record->block_bytes_max = config->block_bytes_max;
    record->extra_bytes = (uint32_t)config->extra_bytes;
    if (config->extra_bytes > 0)
        memcpy(record->extra, config->extra, config->extra_bytes);
    return KVO_OK;
}

int base_space_take(const kvo_space_config *config, base_space_record *record,
                    char label[BASE_SPACE_LABEL_MAX + 1], kvo_error *error)
{
    kvo_space_config full = KVO_SPACE_CONFIG_INIT;

    memset(record, 0, sizeof *record);
    int status = config == NULL ? KVO_E_ARGUMENT : base_options_take(&full, sizeof full, config);
    if (status == KVO_E_UNSUPPORTED)
        return base_fail(error, status, "space: the config has a field that this library (%s) does not know",
                         kvo_version());
    if (status != KVO_OK)
        return base_fail(error, status, "space: no config; set it up with KVO_SPACE_CONFIG_INIT");
    if (!label_is_valid(full.label)) {
        const char *shown = full.label == NULL ? "" : full.label;
        return base_fail(error, KVO_E_RANGE, "space: label %s; give 1 to 63 of A-Z a-z 0-9 . _ -",
                         base_quote(shown, strnlen(shown, 64)).text);
    }
    status = take_strings(&full, record, error);
    if (status == KVO_OK)
        status = take_numbers(&full, record, error);
    if (status == KVO_OK && label != NULL)
        memcpy(label, full.label, strlen(full.label) + 1);
    return status;
}

/* ---- Encoding ----------------------------------------------------------- */

static size_t field_bytes(const base_space_record *record, const field *f)
{
    switch (f->type) {
    case FIELD_STRING:
        return strnlen(field_in(record, f), BASE_SPACE_STRING_MAX);
    case FIELD_BYTES:
        return record->extra_bytes;
    default:
        return number_in(record, f) == 0 ? 0 : f->type == FIELD_U64 ? 8 : 4;
    }
}

static void encode_value(const base_space_record *record, const field *f, uint8_t *out, size_t bytes)
{
    if (f->type == FIELD_U32)
        base_put_u32(out, (uint32_t)number_in(record, f));
    else if (f->type == FIELD_U64)
        base_put_u64(out, number_in(record, f));
    else
        memcpy(out, field_in(record, f), bytes);
}

size_t base_space_record_encode(const base_space_record *record, uint8_t *out, size_t capacity)
{
    size_t used = HEADER_BYTES;

    if (capacity < HEADER_BYTES)
        return 0;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const size_t bytes = field_bytes(record, &fields[i]);
        if (bytes == 0)
            continue;
        if (capacity - used < FIELD_HEADER_BYTES + bytes)
            return 0;
        out[used] = fields[i].id;
        out[used + 1] = fields[i].type;
        base_put_u16(out + used + 2, (uint16_t)bytes);
        encode_value(record, &fields[i], out + used + FIELD_HEADER_BYTES, bytes);
        used += FIELD_HEADER_BYTES + bytes;
    }
    memcpy(out, "KVS1", 4);
    base_put_u32(out + 4, (uint32_t)(used - HEADER_BYTES));
    return used;
}

size_t base_space_encode(const kvo_space_config *config, uint8_t *out, size_t capacity)
{
    base_space_record record;

    if (base_space_take(config, &record, NULL, NULL) != KVO_OK)
        return 0;
    return base_space_record_encode(&record, out, capacity);
}

/* ---- Decoding ----------------------------------------------------------- */

static int decode_string(const uint8_t *bytes, size_t count, char *out)
{
    char copy[BASE_SPACE_STRING_MAX + 1] = {0};

    if (count > BASE_SPACE_STRING_MAX || memchr(bytes, 0, count) != NULL)
        return 0;
    memcpy(copy, bytes, count);
    return take_string(copy, out) == NULL;
}

static int decode_value(const field *f, const uint8_t *bytes, size_t count, base_space_record *record)
{
    void *out = field_of(record, f);

    if (f->type == FIELD_STRING)
        return decode_string(bytes, count, out);
    if (f->type == FIELD_BYTES) {
        if (count > BASE_SPACE_EXTRA_MAX)
            return 0;
        record->extra_bytes = (uint32_t)count;
        memcpy(out, bytes, count);
        return 1;
    }
    if (count != (f->type == FIELD_U64 ? 8u : 4u))
        return 0;
    if (f->type == FIELD_U64)
        memcpy(out, &(uint64_t){base_get_u64(bytes)}, 8);
    else
        memcpy(out, &(uint32_t){base_get_u32(bytes)}, 4);
    return number_in(record, f) != 0;
}

static int decode_fields(const uint8_t *bytes, size_t count, base_space_record *record)
{
    unsigned last_id = 0;

    for (size_t at = 0; at < count;) {
        if (count - at < FIELD_HEADER_BYTES)
            return 0;
        const unsigned id = bytes[at];
        const size_t length = base_get_u16(bytes + at + 2);
        if (id <= last_id || id > FIELD_COUNT || bytes[at + 1] != fields[id - 1].type || length == 0)
            return 0;
        at += FIELD_HEADER_BYTES;
        if (length > count - at || !decode_value(&fields[id - 1], bytes + at, length, record))
            return 0;
        at += length;
        last_id = id;
    }
    return record->block_bytes_max >= 1 && record->block_bytes_max <= KVO_PAYLOAD_BYTES_MAX;
}

int base_space_decode(const uint8_t *bytes, size_t count, base_space_record *record)
{
    memset(record, 0, sizeof *record);
    if (count < HEADER_BYTES || memcmp(bytes, "KVS", 3) != 0)
        return KVO_E_DAMAGED;
    if (bytes[3] != '1')
        return KVO_E_VERSION;
    if (base_get_u32(bytes + 4) != count - HEADER_BYTES)
        return KVO_E_DAMAGED;
    return decode_fields(bytes + HEADER_BYTES, count - HEADER_BYTES, record) ? KVO_OK : KVO_E_DAMAGED;
}

/* ---- For people --------------------------------------------------------- */

/* Up to 16 bytes are shown; more as their digest, so that a difference is seen wherever it lies. */
static void add_bytes(base_text *text, const uint8_t *bytes, size_t count)
{
    uint8_t digest[32] = {0};

    if (count <= 16) {
        base_text_add_hex(text, bytes, count);
        return;
    }
    const int status = base_sha256(bytes, count, digest);
    base_text_add(text, "sha256:");
    base_text_add_hex(text, digest, status == KVO_OK ? 16 : 0);
    base_text_add(text, "/%zu", count);
}

static void add_value(base_text *text, const base_space_record *record, const field *f)
{
    if (f->type == FIELD_STRING)
        base_text_add_quoted(text, field_in(record, f), field_bytes(record, f));
    else if (f->type == FIELD_BYTES)
        add_bytes(text, field_in(record, f), field_bytes(record, f));
    else
        base_text_add(text, "%llu", (unsigned long long)number_in(record, f));
}

int base_space_record_describe(const base_space_record *record, char *out, size_t capacity)
{
    base_text text = base_text_begin(out, capacity);

    for (size_t i = 0; i < FIELD_COUNT; i++) {
        base_text_add(&text, "%s%s=", i == 0 ? "" : " ", fields[i].name);
        add_value(&text, record, &fields[i]);
    }
    return (int)text.length;
}

int base_space_describe(const kvo_space_config *config, char *out, size_t capacity)
{
    base_space_record record;

    if (base_space_take(config, &record, NULL, NULL) != KVO_OK)
        return -1;
    return base_space_record_describe(&record, out, capacity);
}

int base_space_difference(const base_space_record *is, const base_space_record *is_not, char *out,
                          size_t capacity)
{
    base_text text = base_text_begin(out, capacity);
    int count = 0;

    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const field *f = &fields[i];
        const size_t bytes = field_bytes(is, f);
        if (bytes == field_bytes(is_not, f) && memcmp(field_in(is, f), field_in(is_not, f), bytes) == 0)
            continue;
        base_text_add(&text, "%s%s=", count++ == 0 ? "" : " ", f->name);
        add_value(&text, is, f);
        base_text_add(&text, " (not ");
        add_value(&text, is_not, f);
        base_text_add(&text, ")");
    }
    return count;
}
