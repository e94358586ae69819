/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file of a directory is damaged, and the directory is opened. FUZZ_FILE says which; one target each: super, data
 * (slot and segment headers), checkpoint, policy, ledger, spaces.
 *
 * Input: flags, then edits: page, offset 16, count, bytes. A count of 0 cuts the file off there. Damage as media do it:
 * no wrong byte, no name that nobody put, no block lost but where it was hit, a policy that was set, and it opens.
 * With SEALED checksums are made good again, so that what lies behind them is reached: then what is served must
 * match its digest, and the store must stay in order.
 */
#include "blocks.h"

#include <stdlib.h>
#include <string.h>

#include "block/digest.h"
#include "store/persist.h"
#include "tier/disk/format.h"

#ifndef FUZZ_FILE
#error "FUZZ_FILE: super, data, checkpoint, policy, ledger or spaces"
#endif

enum { SEALED = 1, CRASHED = 2, NO_CHECKPOINT = 4, READ_ONLY = 8, SMALLER = 16 };
enum { BLOCKS = 20, BLOCK_BYTES = 8192, EDITS_MAX = 16, UNIT = 4096, PAGES_MAX = 512 };

static const char *const file_name = FUZZ_FILE;
static bool is_file(const char *name) { return strcmp(file_name, name) == 0; }
/* Whose whole copies or records cost nothing else when they are lost. */
static bool is_dispensable(void) { return is_file("checkpoint") || is_file("policy") || is_file("ledger"); }

/* ---- the directory: a few sizes, a rewrite, removals, policies; closed in order, or crashed ---- */

static machine closed, crashed;
static kvo_space space;
static struct {
    uint32_t bytes; /* 0: it was removed */
    unsigned version;
    uint32_t first_page, pages; /* in `data` */
} blocks[BLOCKS];

static kvo_policy policy_of(unsigned i)
{
    kvo_policy p = KVO_POLICY_INIT;
    p.tenant = (uint16_t)(i % 3);
    p.qos = (uint8_t)(i % 4);
    p.priority = (uint8_t)(i * 5);
    p.reuse = (uint8_t)(100 - i);
    p.intent = i % 5 == 1 ? KVO_INTENT_KEEP : KVO_INTENT_NONE;
    return p;
}

static int open_on(machine *m, uint32_t flags, uint64_t capacity, kvo_store **store, kvo_error *error)
{
    kvo_options o = KVO_OPTIONS_INIT;
    kvo_tier_config tier = KVO_TIER_CONFIG_INIT;
    tier.kind = KVO_TIER_DISK;
    tier.path = "/s";
    tier.capacity_blocks = capacity;
    o.flags = flags | KVO_OPEN_STEPPED;
    o.block_bytes = BLOCK_BYTES;
    o.write_out_ns = 86400ull * 1000000000u;
    o.io_engine = (int)MOVE_SIMULATED;
    o.tenants_max = 4;
    o.pins_max = o.holds_max = 16;
    return store_open(&m->env, &tier, 1, &o, store, error);
}

static void fill(kvo_store *store)
{
    static const uint32_t sizes[] = {1, 4096, 5000, 8192};
    space = blocks_space(store);
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i].bytes = sizes[i % 4];
        MUST(block_put(store, space, i, 0, blocks[i].bytes, KVO_WRITTEN) == KVO_STORED, "block %u", i);
        kvo_target target = {.by = KVO_BY_NAMES, .names = block_names(i, space)};
        kvo_policy policy = policy_of(i);
        MUST(kvo_policy_set(store, &target, &policy, KVO_POLICY_ALL, NULL, NULL) == KVO_OK, "policy %u", i);
    }
    for (unsigned i = 3; i < BLOCKS; i += 7) {
        kvo_target target = {.by = KVO_BY_NAMES, .names = block_names(i, space)};
        MUST(kvo_remove(store, &target, KVO_WRITTEN, 0, NULL, NULL) == KVO_OK, "remove %u", i);
        blocks[i].bytes = 0;
    }
    MUST(block_rewrite(store, space, 5, 1, 6000, KVO_WRITTEN) == KVO_STORED, "rewrite");
    blocks[5].bytes = 6000;
    blocks[5].version = 1;
    MUST(kvo_write_out(store) == KVO_OK, "write-out");
}

static void note_places(kvo_store *store)
{
    static kvo_block_info infos[BLOCKS];
    uint64_t cursor = 0;
    size_t count;
    MUST(kvo_walk(store, NULL, &cursor, infos, BLOCKS, &count) == KVO_OK, "a walk");
    for (size_t i = 0; i < count; i++) {
        int number = block_number(infos[i].name, infos[i].name_bytes);
        MUST(number >= 0 && number < BLOCKS && infos[i].copy_count == 1, "a block of the walk");
        blocks[number].first_page = (uint32_t)(infos[i].copies[0].offset_bytes / UNIT);
        blocks[number].pages = 1 + (infos[i].payload_bytes + UNIT - 1) / UNIT;
    }
}

static void build(void)
{
    static bool built;
    static machine m;
    kvo_store *store;
    kvo_error error;
    if (built)
        return;
    built = true;
    machine_begin(&m);
    MUST(open_on(&m, 0, 32, &store, &error) == KVO_OK, "%s", error.text);
    fill(store);
    note_places(store);
    machine_copy(&crashed, &m);
    MUST(kvo_close(store, KVO_FOREVER) == KVO_OK, "close");
    machine_copy(&closed, &m);
    machine_end(&m);
}

/* ---- damage ---- */

static bool hit[PAGES_MAX]; /* pages of `data` */

static machine_file *file_to_edit(machine *m, unsigned page)
{
    char path[MACHINE_PATH_BYTES] = "/s/";
    strcat(path, file_name);
    if (is_file("ledger") || is_file("spaces"))
        strcat(path, page & 128 ? ".b" : ".a");
    return machine_find(m, path);
}

static unsigned page_of(unsigned page) { return is_file("ledger") || is_file("spaces") ? page & 127 : page; }

static void edit(machine_file *f, fuzz_input *input, unsigned page)
{
    uint64_t at = (uint64_t)page * UNIT + fuzz_u16(input) % UNIT;
    unsigned count = fuzz_u8(input) % 65;
    if (is_file("data"))
        hit[page] = true;
    if (count == 0 && at < f->size) {
        for (unsigned i = page; is_file("data") && i < PAGES_MAX; i++)
            hit[i] = true;
        f->size = at;
    }
    for (; count > 0; count--, at++) {
        uint8_t byte = fuzz_u8(input);
        if (at < f->size)
            f->bytes[at] = byte;
        if (is_file("data") && at / UNIT < PAGES_MAX)
            hit[at / UNIT] = true;
    }
}

static void seal_page(machine_file *f, unsigned page)
{
    uint8_t *at = f->bytes + (uint64_t)page * UNIT;
    bool header = is_file("super") || is_file("checkpoint") || memcmp(at, "KVO", 3) == 0;
    if (is_file("policy"))
        for (unsigned i = 0; i < POLICY_PER_PAGE; i++)
            store_policy_seal((policy_record *)(void *)at + i);
    else if (header)
        disk_page_seal(at);
}

/* A note's first page has the checksum of all that follows. */
static void seal_note(machine_file *f)
{
    disk_note *head = (disk_note *)(void *)f->bytes;
    if (f->size < UNIT)
        return;
    if (head->bytes <= f->size - UNIT)
        head->content_checksum = disk_checksum(f->bytes + UNIT, head->bytes);
    disk_page_seal(head);
}

static bool damage(machine *m, fuzz_input *input, unsigned flags)
{
    memset(hit, 0, sizeof hit);
    for (unsigned i = 0; i < EDITS_MAX && input->left; i++) {
        unsigned byte = fuzz_u8(input), page = page_of(byte);
        machine_file *f = file_to_edit(m, byte);
        if (f == NULL)
            return false;
        edit(f, input, page);
        if (flags & SEALED && (is_file("ledger") || is_file("spaces")))
            seal_note(f);
        else if (flags & SEALED && (page + 1ull) * UNIT <= f->size)
            seal_page(f, page);
    }
    return true;
}

/* ---- what must hold ---- */

static bool was_hit(unsigned i)
{
    for (uint32_t page = 0; page < blocks[i].pages; page++)
        if (hit[blocks[i].first_page + page])
            return true;
    return false;
}

static bool same(const kvo_policy *a, const kvo_policy *b)
{
    return a->tenant == b->tenant && a->qos == b->qos && a->priority == b->priority && a->reuse == b->reuse &&
           a->intent == b->intent && a->intent_ns == b->intent_ns;
}

static void must_be_its_policy(kvo_store *store, unsigned i)
{
    kvo_target target = {.by = KVO_BY_NAMES, .names = block_names(i, space)};
    kvo_policy is, set = policy_of(i), put = KVO_POLICY_INIT;
    kvo_answer answer;
    MUST(kvo_policy_get(store, &target, &is, &answer) == KVO_OK, "policy %u", i);
    if (answer.status == KVO_MISS)
        return;
    bool as_set = same(&is, &set);
    MUST(as_set || same(&is, &put), "block %u has a policy that it never had", i);
    MUST(as_set || is_file("policy") || is_file("data"), "block %u lost its policy", i);
}

/* A block that did not lie where the damage is must be there; any that is there has the right bytes. */
static void check_block(kvo_store *store, unsigned i, bool sealed)
{
    static uint8_t bytes[BLOCKS_BYTES_MAX], digest[16];
    kvo_answer found = block_look(store, space, i);
    if (!sealed && blocks[i].bytes == 0)
        MUST(found.status == KVO_MISS, "block %u came back", i);
    if (!sealed && blocks[i].bytes && !was_hit(i))
        MUST(found.status == KVO_OK, "block %u is lost: %s", i, kvo_status_name(found.status));
    if (found.status != KVO_OK || found.payload_bytes > sizeof bytes)
        return;
    if (!sealed)
        must_be_its_policy(store, i);
    static kvo_block_info info;
    kvo_target target = {.by = KVO_BY_HANDLES, .handles = &found.handle, .handle_count = 1};
    uint64_t cursor = 0;
    size_t count;
    /* Before the get: with an intent of DROP it is the last. */
    MUST(kvo_walk(store, &target, &cursor, &info, 1, &count) == KVO_OK && count == 1, "no info of block %u", i);
    kvo_answer got = block_get(store, space, i, bytes, found.payload_bytes);
    if (got.status != KVO_OK) {
        MUST(got.status == KVO_MISS || got.status == KVO_BUSY, "block %u: %s", i, kvo_status_name(got.status));
        MUST(sealed || was_hit(i), "block %u cannot be read", i);
        return;
    }
    if (!sealed)
        MUST(found.payload_bytes == blocks[i].bytes && block_is(bytes, blocks[i].bytes, i, blocks[i].version),
             "block %u has wrong bytes", i);
    digest_of(bytes, found.payload_bytes, digest);
    MUST(memcmp(info.digest, digest, 16) == 0, "block %u does not match its digest", i);
}

/* A read that says miss is a miss from then on, and the name can be put again. */
static void check_healing(kvo_store *store, unsigned i)
{
    static uint8_t bytes[BLOCKS_BYTES_MAX];
    if (block_look(store, space, i).status != KVO_MISS)
        return;
    int status = block_put(store, space, i, 3, 100, KVO_WRITTEN);
    MUST(status == KVO_STORED || status == KVO_FULL || status == KVO_BUSY, "put again: %s", kvo_status_name(status));
    if (status != KVO_STORED)
        return;
    kvo_answer got = block_get(store, space, i, bytes, 100);
    MUST(got.status == KVO_OK && block_is(bytes, 100, i, 3), "block %u, put again: %s", i, kvo_status_name(got.status));
}

static void check_walk(kvo_store *store, bool sealed)
{
    static kvo_block_info infos[2 * BLOCKS];
    uint64_t cursor = 0;
    size_t count;
    blocks_must_be_sound(store);
    MUST(kvo_walk(store, NULL, &cursor, infos, 2 * BLOCKS, &count) == KVO_OK, "a walk");
    for (size_t i = 0; i < count && !sealed; i++) {
        int number = block_number(infos[i].name, infos[i].name_bytes);
        MUST(number >= 0 && number < BLOCKS, "a name that nobody put");
    }
}

static void on_bad(void *context, const kvo_bad_slot *bad)
{
    ++*(uint64_t *)context;
    MUST(bad->file && bad->what && bad->offset_bytes % UNIT == 0, "a bad slot without a place");
}

static void check_read_only(kvo_store *store)
{
    kvo_verify_result result;
    uint64_t told = 0;
    MUST(kvo_verify(store, on_bad, &told, &result) == KVO_OK && result.bad == told, "verify counts %llu, tells %llu",
         (unsigned long long)result.bad, (unsigned long long)told);
}

static void check_store(kvo_store *store, unsigned flags)
{
    bool sealed = flags & SEALED, opened = blocks_space(store) == space;
    MUST(opened || sealed || is_file("spaces"), "the space is not known");
    check_walk(store, sealed || flags & SMALLER);
    if (flags & READ_ONLY)
        check_read_only(store);
    for (unsigned i = 0; opened && i < BLOCKS && !(flags & SMALLER); i++)
        check_block(store, i, sealed);
    for (unsigned i = 0; opened && i < BLOCKS && !(flags & (READ_ONLY | SMALLER)); i++)
        check_healing(store, i);
    check_walk(store, sealed || flags & SMALLER);
}

/* NULL where it does not open, which must be said in words. */
static kvo_store *open_damaged(machine *m, unsigned flags)
{
    kvo_store *store = NULL;
    kvo_error error = {""};
    uint64_t capacity = flags & READ_ONLY ? 0 : flags & SMALLER ? 12 : 32;
    int status = open_on(m, flags & READ_ONLY ? KVO_OPEN_READ_ONLY : 0, capacity, &store, &error);
    if (status == KVO_OK)
        return store;
    MUST(store == NULL, "a store with an error");
    fuzz_must_be_line(error.text);
    MUST((flags & SEALED && !is_dispensable()) || is_file("super") || is_file("spaces"), "it does not open: %s",
         error.text);
    return NULL;
}

static void open_again(machine *m, bool sealed)
{
    kvo_store *store = NULL;
    kvo_error error = {""};
    MUST(open_on(m, 0, 0, &store, &error) == KVO_OK, "it does not open again: %s", error.text);
    check_walk(store, sealed);
    MUST(kvo_close(store, 0) == KVO_OK, "it does not close again");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static machine m;
    fuzz_input input = {data, bytes};
    unsigned flags = fuzz_u8(&input);
    build();
    machine_copy(&m, flags & CRASHED ? &crashed : &closed);
    if (flags & NO_CHECKPOINT)
        machine_remove(&m, "/s/checkpoint");
    if (damage(&m, &input, flags)) {
        kvo_store *store = open_damaged(&m, flags);
        if (store) {
            check_store(store, flags);
            MUST(kvo_close(store, 0) == KVO_OK, "it does not close");
        }
        machine_must_be_idle(&m);
        if (store && !(flags & READ_ONLY))
            open_again(&m, flags & SEALED || flags & SMALLER);
    }
    machine_must_be_idle(&m);
    machine_end(&m);
    return 0;
}
