/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of a sequence's state, without an engine: blobs are written here by the description in blob.h, byte by
 * byte, in every form and for several caches, and read, cut, damaged and composed again.
 */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#include "blob.h"

enum { CELLS_MAX = 80, BLOB_MAX = 1 << 17, SEQUENCE = 3 };

/* What a cache holds: a position a cell, in the cells' order. */
typedef struct cache {
    uint32_t count;
    int32_t positions[CELLS_MAX];
} cache;

typedef struct subject {
    const char *name;
    blob_layout layout;
    blob_form form;
    cache caches[BLOB_PARTS_MAX];
    uint8_t blob[BLOB_MAX];
    size_t bytes, meta[BLOB_MAX / 8]; /* of them, which are no rows */
    size_t meta_count;
} subject;

static subject s;
static blob_layout layout;
static blob_view view;

/* ---- A writer of its own ------------------------------------------------------ */

/* A byte of a row, by where it belongs; finite as a half and as a scale. */
static uint8_t row_byte(uint32_t part, uint32_t layer, int32_t position, bool v, uint32_t at)
{
    const uint32_t sum = part * 7919u + layer * 104729u + (uint32_t)position * 1299709u + v * 15485863u + at * 31u;

    return (uint8_t)((sum * 2654435761u >> 24) & 0x3f);
}

static void add(const void *bytes, size_t count, bool meta)
{
    assert_true(s.bytes + count <= sizeof s.blob);
    memcpy(s.blob + s.bytes, bytes, count);
    for (size_t i = 0; meta && i < count; i++)
        s.meta[s.meta_count++] = s.bytes + i;
    s.bytes += count;
}

static void add32(uint32_t value)
{
    add(&value, sizeof value, true);
}

static void add64(uint64_t value)
{
    add(&value, sizeof value, true);
}

static void add_row(uint32_t part, uint32_t layer, int32_t position, bool v, uint32_t from, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t byte = row_byte(part, layer, position, v, from + i);
        add(&byte, 1, false);
    }
}

static void add_v(uint32_t part, const blob_part *p, uint32_t layer)
{
    const blob_layer *l = &p->layers[layer];
    const cache *c = &s.caches[part];

    add32((uint32_t)l->v_type);
    if (!p->transposed) {
        add64(l->v_bytes);
        for (uint32_t i = 0; i < c->count; i++)
            add_row(part, layer, c->positions[i], true, 0, l->v_bytes);
        return;
    }
    add32(l->v_element_bytes);
    add32(l->v_bytes / l->v_element_bytes);
    for (uint32_t at = 0; at < l->v_bytes; at += l->v_element_bytes)
        for (uint32_t i = 0; i < c->count; i++)
            add_row(part, layer, c->positions[i], true, at, l->v_element_bytes);
}

static void add_part(uint32_t part)
{
    static const uint8_t ext[12] = {0};
    const blob_part *p = &s.layout.parts[part];
    const cache *c = &s.caches[part];

    add32(1);
    add32(c->count);
    if (c->count == 0)
        return;
    for (uint32_t i = 0; i < c->count; i++) {
        add32((uint32_t)c->positions[i]);
        add32(1);
        add(ext, s.form.ext_bytes, false);
        add32(SEQUENCE);
    }
    add32(p->transposed);
    add32(p->layer_count);
    if (s.form.rotation) {
        add32(p->n_rot_k);
        add32(p->n_rot_v);
    }
    for (uint32_t j = 0; j < p->layer_count; j++) {
        add32((uint32_t)p->layers[j].k_type);
        add64(p->layers[j].k_bytes);
        for (uint32_t i = 0; i < c->count; i++)
            add_row(part, j, c->positions[i], false, 0, p->layers[j].k_bytes);
    }
    for (uint32_t j = 0; j < p->layer_count; j++)
        add_v(part, p, j);
}

static void write_blob(void)
{
    s.bytes = s.meta_count = 0;
    if (s.form.header) {
        add32(0xaf143cd8u);
        add32(SEQUENCE);
    }
    for (uint32_t i = 0; i < s.form.part_count; i++)
        add_part(i);
}

/* ---- Subjects ------------------------------------------------------------------ */

static void set_part(uint32_t part, uint32_t layers, int32_t k_type, uint32_t k_bytes, int32_t v_type, uint32_t v_bytes,
                     uint32_t element_bytes, uint32_t rotation)
{
    blob_part *p = &s.layout.parts[part];

    memset(p, 0, sizeof *p);
    p->layer_count = layers;
    p->transposed = element_bytes > 0;
    p->n_rot_k = k_type == 8 ? rotation : 0;
    p->n_rot_v = v_type == 8 ? rotation : 0;
    for (uint32_t i = 0; i < layers; i++)
        p->layers[i] = (blob_layer){k_type, v_type, k_bytes, v_bytes, element_bytes};
}

static void set_cells(uint32_t part, int32_t first, uint32_t count)
{
    s.caches[part].count = count;
    for (uint32_t i = 0; i < count; i++)
        s.caches[part].positions[i] = first + (int32_t)i;
}

enum { KINDS = 6, FORMS = 12 };

static void make(int kind, int form)
{
    static const uint8_t exts[] = {0, 8, 12};
    static const char *const names[KINDS] = {"f16", "f16 transposed", "q8_0", "q8_0 and f16 transposed",
                                             "a window", "a window that has moved on"};

    memset(&s, 0, sizeof s);
    s.name = names[kind];
    s.form = (blob_form){(form & 1) == 0, (form & 2) == 0, exts[form / 4], kind >= 4 ? 2 : 1};
    s.layout.part_count = s.form.part_count;
    const uint32_t rotation = s.form.rotation ? 64 : BLOB_ROTATION_UNKNOWN;

    if (kind == 0 || kind >= 4)
        set_part(0, 3, 1, 32, 1, 48, 0, rotation);
    else if (kind == 1)
        set_part(0, 3, 1, 32, 1, 48, 2, rotation);
    else if (kind == 2)
        set_part(0, 2, 8, 68, 8, 34, 0, rotation);
    else
        set_part(0, 2, 8, 68, 30, 16, 2, rotation);
    s.layout.parts[0].layers[1].k_bytes *= 2; /* layers may differ */
    set_cells(0, 64, 10);
    if (kind >= 4) {
        set_part(1, 5, 1, 64, 1, 64, 0, rotation);
        set_cells(1, kind == 4 ? 64 : 70, kind == 4 ? 10 : 4);
    }
    write_blob();
}

static void expect_rows(uint32_t part, int32_t first, uint32_t count)
{
    const blob_part *p = &s.layout.parts[part];
    uint32_t cells[CELLS_MAX];
    const size_t bytes = count * blob_token_bytes(p);
    uint8_t *rows = malloc(bytes), *at = rows;

    assert_true(blob_find(s.blob, &s.form, &view, part, first, count, cells));
    blob_take_rows(s.blob, p, &view.parts[part], cells, count, rows);
    if (count == view.parts[part].count) { /* put back, they are as they were */
        static uint8_t copy[BLOB_MAX];
        memcpy(copy, s.blob, s.bytes);
        memset(copy + view.parts[part].k_at[0], 0, count * (size_t)p->layers[0].k_bytes);
        memset(copy + view.parts[part].v_at[0], 0, count * (size_t)p->layers[0].v_bytes);
        blob_put_rows(copy, p, &view.parts[part], rows);
        assert_true(cells[1] != 1 || memcmp(copy, s.blob, s.bytes) == 0); /* unless the cells are in disorder */
    }
    assert_true(blob_rows_finite(p, rows, count));
    for (uint32_t j = 0; j < p->layer_count; j++)
        for (int v = 0; v < 2; v++)
            for (uint32_t i = 0; i < count; i++)
                for (uint32_t b = 0; b < (v ? p->layers[j].v_bytes : p->layers[j].k_bytes); b++)
                    assert_int_equal(*at++, row_byte(part, j, first + (int32_t)i, v == 1, b));
    assert_ptr_equal(at, rows + bytes);
    free(rows);
}

/* ---- Tests ----------------------------------------------------------------------- */

static void every_form_is_found_out(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int form = 0; form < FORMS; form++) {
            blob_form found;

            make(kind, form);
            assert_true(blob_probe(s.blob, s.bytes, &found, &layout, &view));
            assert_memory_equal(&found, &s.form, sizeof found);
            assert_true(blob_layouts_agree(&layout, &s.layout));
            assert_int_equal(view.sequence, SEQUENCE);
            for (uint32_t i = 0; i < s.form.part_count; i++)
                expect_rows(i, s.caches[i].positions[0], s.caches[i].count);
            expect_rows(0, 66, 5); /* a slice */
        }
}

static void a_blob_ends_where_it_ends(void **state)
{
    size_t refused = 0;

    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int form = 0; form < FORMS; form++) {
            blob_form found;

            make(kind, form);
            assert_true(blob_parse(s.blob, s.bytes, &s.form, &layout, &view));
            const size_t last = layout.parts[0].layer_count - 1;
            const size_t last_bytes = view.parts[0].count * (size_t)layout.parts[0].layers[last].v_bytes;
            const size_t first_part = view.parts[0].v_at[last] + last_bytes;

            for (size_t cut = 0; cut < s.bytes; cut++) {
                /* In a block of its own, so that a sanitizer sees a read behind its end. */
                uint8_t *copy = malloc(cut + 1);
                memcpy(copy, s.blob, cut);
                uint8_t *exact = realloc(copy, cut == 0 ? 1 : cut);
                assert_false(blob_parse(exact, cut, &s.form, &layout, &view));
                if (cut % 7 == 0 && cut != first_part) /* which is whole, of a model without a window */
                    assert_false(blob_probe(exact, cut, &found, &layout, &view));
                free(exact);
                refused++;
            }
            s.blob[s.bytes] = 0;
            assert_false(blob_parse(s.blob, s.bytes + 1, &s.form, &layout, &view));
        }
    printf("%zu truncations, all refused\n", refused);
}

/* Whether a blob still is what it was, as far as the adapter asks. */
static bool accepted(void)
{
    uint32_t cells[CELLS_MAX];
    bool good = blob_parse(s.blob, s.bytes, &s.form, &layout, &view) && blob_layouts_agree(&layout, &s.layout) &&
                view.sequence == SEQUENCE;

    for (uint32_t i = 0; good && i < s.form.part_count; i++)
        good = view.parts[i].count == s.caches[i].count &&
               blob_find(s.blob, &s.form, &view, i, s.caches[i].positions[0], s.caches[i].count, cells);
    return good;
}

/* Of what is not quantised the rotation says nothing, so it may be any number of up to 25 bits; all else counts. */
static void every_flipped_bit_of_metadata_is_noticed(void **state)
{
    size_t noticed = 0;

    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int form = 0; form < FORMS; form++) {
            size_t idle = 0, taken = 0;

            make(kind, form);
            for (uint32_t i = 0; s.form.rotation && i < s.form.part_count; i++)
                idle += (s.layout.parts[i].n_rot_k == 0 ? 25u : 0u) + (s.layout.parts[i].n_rot_v == 0 ? 25u : 0u);
            assert_true(accepted());
            for (size_t i = 0; i < 8 * s.meta_count; i++) {
                s.blob[s.meta[i / 8]] ^= (uint8_t)(1 << i % 8);
                taken += accepted();
                s.blob[s.meta[i / 8]] ^= (uint8_t)(1 << i % 8);
            }
            assert_int_equal(taken, idle);
            noticed += 8 * s.meta_count - idle;
        }
    printf("%zu flipped bits of metadata, all noticed\n", noticed);
}

/* Numbers that make a careless product overflow. */
static void absurd_numbers_are_refused(void **state)
{
    static const uint64_t absurd[] = {0,          0xffffffffu, 0x7fffffffu, 0x80000000u,
                                      UINT64_MAX, UINT64_MAX / 12 + 1, UINT64_MAX / 10 + 1, (uint64_t)1 << 63};

    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t value = 0; value < sizeof absurd / sizeof *absurd; value++) {
            make(kind, 0);
            for (size_t i = 0; i < s.meta_count; i += 4) {
                uint8_t before[8];
                const size_t at = s.meta[i], bytes = i + 7 < s.meta_count && s.meta[i + 7] == at + 7 ? 8 : 4;

                for (size_t width = 4; width <= bytes; width += 4) {
                    memcpy(before, s.blob + at, width);
                    memcpy(s.blob + at, &absurd[value], width);
                    if (memcmp(before, s.blob + at, width) != 0 && accepted())
                        assert_true(s.layout.parts[0].n_rot_k == 0 || s.layout.parts[0].n_rot_v == 0);
                    memcpy(s.blob + at, before, width);
                }
            }
        }
}

static void what_is_composed_is_what_an_engine_writes(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int form = 0; form < FORMS; form++) {
            blob_view made;
            uint8_t *out;
            size_t bytes;

            make(kind, form);
            const uint32_t counts[] = {s.caches[0].count, s.caches[1].count};
            const int32_t firsts[] = {s.caches[0].positions[0], s.caches[1].positions[0]};
            bytes = blob_arrange(&s.form, &s.layout, counts, &made);
            assert_int_equal(bytes, s.bytes);
            out = malloc(bytes);
            memset(out, 0xee, bytes);
            blob_compose(&s.form, &s.layout, firsts, SEQUENCE, &made, out);
            assert_true(blob_parse(s.blob, s.bytes, &s.form, &layout, &view));
            for (uint32_t i = 0; i < s.form.part_count; i++)
                for (uint32_t j = 0; j < s.layout.parts[i].layer_count; j++) {
                    const blob_layer *l = &s.layout.parts[i].layers[j];
                    assert_int_equal(made.parts[i].k_at[j], view.parts[i].k_at[j]);
                    assert_int_equal(made.parts[i].v_at[j], view.parts[i].v_at[j]);
                    memcpy(out + made.parts[i].k_at[j], s.blob + view.parts[i].k_at[j], counts[i] * (size_t)l->k_bytes);
                    memcpy(out + made.parts[i].v_at[j], s.blob + view.parts[i].v_at[j], counts[i] * (size_t)l->v_bytes);
                }
            assert_memory_equal(out, s.blob, bytes);
            free(out);
        }
}

static void cells_are_found_in_any_order_and_once(void **state)
{
    uint32_t cells[CELLS_MAX];

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        make(kind, 0);
        for (uint32_t i = 0; i < s.caches[0].count; i++)
            s.caches[0].positions[i] = 64 + (int32_t)(i * 7 % s.caches[0].count);
        write_blob();
        assert_true(blob_parse(s.blob, s.bytes, &s.form, &layout, &view));
        expect_rows(0, 64, s.caches[0].count);
        expect_rows(0, 67, 4);
        assert_false(blob_find(s.blob, &s.form, &view, 0, 63, 2, cells));
        assert_false(blob_find(s.blob, &s.form, &view, 0, 64, s.caches[0].count + 1, cells));
        s.caches[0].positions[4] = s.caches[0].positions[2]; /* one twice, one missing */
        write_blob();
        assert_true(blob_parse(s.blob, s.bytes, &s.form, &layout, &view));
        assert_false(blob_find(s.blob, &s.form, &view, 0, 64, s.caches[0].count, cells));
    }
}

static void rows_are_compared_in_any_order(void **state)
{
    static subject a;
    static blob_view a_view;
    uint32_t cells[CELLS_MAX];

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        make(kind, 0);
        a = s;
        assert_true(blob_parse(a.blob, a.bytes, &a.form, &layout, &a_view));
        for (uint32_t i = 0; i < s.caches[0].count; i++)
            s.caches[0].positions[i] = 64 + (int32_t)(i * 3 % s.caches[0].count);
        for (int order = 0; order < 2; order++) {
            if (order == 0)
                s = a;
            write_blob();
            assert_true(blob_parse(s.blob, s.bytes, &s.form, &layout, &view));
            assert_true(blob_find(s.blob, &s.form, &view, 0, 64, s.caches[0].count, cells));
            const blob_part *p = &s.layout.parts[0];
            const uint32_t last = p->layer_count - 1;
            const size_t last_bytes = s.caches[0].count * (size_t)p->layers[last].v_bytes;
            const size_t places[] = {view.parts[0].k_at[0], view.parts[0].v_at[last],
                                     view.parts[0].v_at[last] + last_bytes - 1};

            assert_true(blob_rows_equal(p, a.blob, &a_view.parts[0], 0, s.blob, &view.parts[0], cells,
                                              s.caches[0].count));
            assert_true(blob_rows_equal(p, a.blob, &a_view.parts[0], 3, s.blob, &view.parts[0], cells + 3, 4));
            assert_false(blob_rows_equal(p, a.blob, &a_view.parts[0], 3, s.blob, &view.parts[0], cells + 2, 4));
            for (size_t i = 0; i < 3; i++) {
                s.blob[places[i]] ^= 1;
                assert_false(blob_rows_equal(p, a.blob, &a_view.parts[0], 0, s.blob, &view.parts[0], cells,
                                              s.caches[0].count));
                s.blob[places[i]] ^= 1;
            }
            make(kind, 0);
            for (uint32_t i = 0; i < s.caches[0].count; i++)
                s.caches[0].positions[i] = 64 + (int32_t)(i * 3 % s.caches[0].count);
        }
    }
}

static void numbers_that_are_not_finite_are_seen(void **state)
{
    static const struct {
        int32_t type;
        uint32_t row_bytes, at;
        uint32_t value, width; /* NaN or infinity */
    } cases[] = {{0, 64, 60, 0x7fc00000u, 4}, {0, 64, 0, 0xff800000u, 4}, {1, 64, 62, 0x7e00, 2}, {1, 64, 0, 0xfc00, 2},
                 {30, 64, 2, 0x7fc0, 2},      {30, 64, 62, 0xff80, 2},    {8, 68, 34, 0x7e00, 2}, {8, 68, 0, 0x7c00, 2},
                 {3, 40, 22, 0x7e00, 2},      {2, 36, 18, 0x7c00, 2},     {7, 48, 26, 0xfe00, 2},
                 {6, 44, 22, 0x7e00, 2},      {20, 36, 18, 0x7e00, 2}};
    uint8_t rows[2 * 2 * 68];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int v = 0; v < 2; v++) {
            blob_part *p = &s.layout.parts[0];
            const size_t at = (v ? 2 * cases[i].row_bytes : 0) + cases[i].row_bytes + cases[i].at;

            set_part(0, 1, cases[i].type, cases[i].row_bytes, cases[i].type, cases[i].row_bytes, 0, 0);
            memset(rows, 0x11, sizeof rows);
            assert_true(blob_rows_finite(p, rows, 2));
            memcpy(rows + at, &cases[i].value, cases[i].width);
            assert_false(blob_rows_finite(p, rows, 2));
        }
}

static void transposing_twice_is_nothing(void **state)
{
    static const size_t sizes[][3] = {{1, 1, 2}, {64, 192, 2}, {31, 33, 2}, {100, 7, 4}, {3, 65, 1}, {40, 40, 8}};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t rows = sizes[i][0], columns = sizes[i][1], width = sizes[i][2], bytes = rows * columns * width;
        uint8_t *a = malloc(bytes), *b = malloc(bytes), *c = malloc(bytes);

        for (size_t j = 0; j < bytes; j++)
            a[j] = (uint8_t)(j * 37 + j / 251);
        blob_transpose(b, a, rows, columns, width);
        for (size_t j = 0; j < rows * columns; j++)
            assert_memory_equal(b + (j % columns * rows + j / columns) * width, a + j * width, width);
        blob_transpose(c, b, columns, rows, width);
        assert_memory_equal(c, a, bytes);
        free(a);
        free(b);
        free(c);
    }
}

static void a_layout_is_read_as_it_was_written(void **state)
{
    static uint8_t out[BLOB_LAYOUT_BYTES_MAX + 1];

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        make(kind, 0);
        const size_t bytes = blob_layout_write(&s.layout, out);

        assert_true(blob_layout_read(out, bytes, &layout) && blob_layouts_agree(&layout, &s.layout));
        for (size_t cut = 0; cut < bytes; cut++)
            assert_false(blob_layout_read(out, cut, &layout));
        assert_false(blob_layout_read(out, bytes + 1, &layout));
    }
    s.layout.part_count = BLOB_PARTS_MAX;
    for (uint32_t i = 0; i < BLOB_PARTS_MAX; i++)
        set_part(i, BLOB_LAYERS_MAX, 1, 2, 1, 2, 2, 0);
    assert_int_equal(blob_layout_write(&s.layout, out), BLOB_LAYOUT_BYTES_MAX);
    assert_true(blob_layout_read(out, BLOB_LAYOUT_BYTES_MAX, &layout));
}

static void layouts_differ_in_anything_that_counts(void **state)
{
    (void)state;
    make(4, 0);
    layout = s.layout;
    assert_true(blob_layouts_agree(&layout, &s.layout));
    for (int i = 0; i < 9; i++) {
        blob_part *p = &layout.parts[i % 2];
        layout = s.layout;
        switch (i) {
        case 0: p->layers[2].k_type = 30; break;
        case 1: p->layers[4].v_type = 30; break;
        case 2: p->layers[0].k_bytes += 2; break;
        case 3: p->layers[0].v_bytes += 2; break;
        case 4: p->layers[1].v_element_bytes = 2; break;
        case 5: p->transposed = 1; break;
        case 6: p->layer_count--; break;
        case 7: p->n_rot_k = 64; break;
        default: layout.part_count = 1; break;
        }
        assert_false(blob_layouts_agree(&layout, &s.layout));
    }
    layout = s.layout;
    layout.parts[1].layer_count = 0; /* not seen yet */
    assert_true(blob_layouts_agree(&layout, &s.layout));
    layout.parts[1] = s.layout.parts[1];
    layout.parts[0].n_rot_k = BLOB_ROTATION_UNKNOWN;
    assert_true(blob_layouts_agree(&layout, &s.layout));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_found_out),
        cmocka_unit_test(a_blob_ends_where_it_ends),
        cmocka_unit_test(every_flipped_bit_of_metadata_is_noticed),
        cmocka_unit_test(absurd_numbers_are_refused),
        cmocka_unit_test(what_is_composed_is_what_an_engine_writes),
        cmocka_unit_test(cells_are_found_in_any_order_and_once),
        cmocka_unit_test(rows_are_compared_in_any_order),
        cmocka_unit_test(numbers_that_are_not_finite_are_seen),
        cmocka_unit_test(transposing_twice_is_nothing),
        cmocka_unit_test(a_layout_is_read_as_it_was_written),
        cmocka_unit_test(layouts_differ_in_anything_that_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
