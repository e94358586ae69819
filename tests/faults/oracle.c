/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>

oracle_state oracle;
long oracle_checked;

enum { VERSIONS = 7, ALL_VERSIONS = (1 << VERSIONS) - 1 };

void oracle_begin(bool evicts)
{
    memset(&oracle, 0, sizeof oracle);
    oracle.evicts = evicts;
    for (unsigned i = 0; i < ORACLE_BLOCKS; i++)
        oracle.blocks[i].may = ORACLE_MISS;
}

bool oracle_disturbed(void) { return atomic_load(&nth.failed) != 0; }

void oracle_status(const char *call, int status, const int *allowed, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (allowed[i] == status)
            return;
    fail_msg("%s: says %s", call, kvo_status_name(status));
}

#define STATUS(call, status, ...) \
    oracle_status(call, status, (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

void oracle_error_text(const char *call, int status, const kvo_error *error)
{
    if (status == KVO_OK)
        return;
    size_t length = strnlen(error->text, sizeof error->text);
    if (length < 10 || length == sizeof error->text || strchr(error->text, '\n'))
        fail_msg("%s says %s with the text \"%.100s\"", call, kvo_status_name(status), error->text);
    if (getenv("KVO_TEST_SHOW"))
        fprintf(stderr, "%s: %s\n", kvo_status_name(status), error->text);
}

/* A put that was in order puts one version there. */
static void stored(oracle_block *b, uint32_t version, bool written)
{
    b->back |= b->may & ALL_VERSIONS;
    b->may = (uint8_t)(1 << version | (oracle.evicts ? ORACLE_MISS : 0));
    if (written)
        b->back = 0;
    b->kept = written && !oracle.evicts;
}

void oracle_submitted_put(uint64_t number, uint32_t version, int status, int level)
{
    oracle_block *b = &oracle.blocks[number];
    bool there = (b->may & ALL_VERSIONS) != 0;
    if (!oracle_disturbed() && !oracle.evicts)
        STATUS("put", status, (b->may & ORACLE_MISS) ? KVO_STORED : KVO_EXISTS, there ? KVO_EXISTS : KVO_STORED);
    STATUS("put", status, KVO_STORED, KVO_EXISTS, KVO_BUSY, KVO_FULL, KVO_SHORT, KVO_E_IO, KVO_E_NO_SPACE,
           KVO_E_MEMORY);
    if (status == KVO_EXISTS || (status == KVO_SHORT && !(b->may & ORACLE_MISS))) {
        assert_true(there || b->back);
        b->may &= (uint8_t)~(oracle.evicts ? 0 : ORACLE_MISS);
        b->kept |= status == KVO_EXISTS && level >= KVO_WRITTEN && !oracle.evicts;
    } else if (status == KVO_STORED || status == KVO_SHORT)
        stored(b, version, status == KVO_STORED && level >= KVO_WRITTEN);
    else
        b->back |= (uint8_t)(1 << version);
}

int oracle_put(uint64_t number, uint32_t version, int level)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = level;
    o.deadline_ns = 0;
    o.policy.tenant = (uint16_t)(number % 3);
    o.sequence = number % 4 + 1;
    int status = put_as(number, ORACLE_BYTES, version, &o, NULL);
    oracle_submitted_put(number, version, status, level);
    return status;
}

/* Which of the versions that it may be these bytes are. */
static uint8_t version_of(uint64_t number, const void *memory, uint8_t may)
{
    for (unsigned v = 0; v < VERSIONS; v++)
        if ((may >> v & 1) && payload_is(memory, ORACLE_BYTES, number, v))
            return (uint8_t)(1 << v);
    fail_msg("block %llu: WRONG BYTES (may be %#x)", (unsigned long long)number, may);
    return 0;
}

int oracle_get(uint64_t number)
{
    static _Alignas(4096) uint8_t memory[8192];
    oracle_block *b = &oracle.blocks[number];
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_answer answer;
    kvo_names names = names_of(number, 1);
    uint8_t *to = memory + (number % 2 ? 32 : 0); /* straight, and through staging */
    kvo_segment segment = {to, ORACLE_BYTES};
    kvo_memory target = {&segment, NULL};
    o.deadline_ns = 0;
    memset(memory, 0x5a, sizeof memory);
    assert_int_equal(kvo_get(store, &names, &target, &o, &answer), KVO_OK);
    STATUS("get", answer.status, KVO_OK, KVO_MISS, KVO_BUSY, KVO_E_MEMORY, KVO_E_IO);
    if (answer.status == KVO_OK) {
        oracle_checked++;
        b->may = (uint8_t)(version_of(number, to, b->may & ALL_VERSIONS) | (oracle.evicts ? ORACLE_MISS : 0));
    } else if (answer.status == KVO_MISS) {
        if (!(b->may & ORACLE_MISS) && !oracle_disturbed())
            fail_msg("block %llu is missing", (unsigned long long)number);
        b->back |= b->may & ALL_VERSIONS; /* what cannot be read stays for the next opening */
        b->may = ORACLE_MISS;
    } else if (!oracle_disturbed())
        fail_msg("block %llu: get says %s", (unsigned long long)number, kvo_status_name(answer.status));
    return answer.status;
}

int oracle_rewrite(uint64_t number, uint32_t version, int level)
{
    oracle_block *b = &oracle.blocks[number];
    int status = rewrite(number, ORACLE_BYTES, version, 0, level);
    STATUS("rewrite", status, KVO_STORED, KVO_MISS, KVO_BUSY, KVO_FULL, KVO_SHORT, KVO_E_IO, KVO_E_NO_SPACE,
           KVO_E_MEMORY);
    if (!oracle_disturbed())
        STATUS("rewrite", status, (b->may & ORACLE_MISS) ? KVO_MISS : KVO_STORED, KVO_STORED);
    if (status == KVO_STORED || status == KVO_SHORT) {
        stored(b, version, status == KVO_STORED && level >= KVO_WRITTEN);
        b->back = 0; /* the old bytes are off the media before the new ones are shown */
    } else if (status == KVO_MISS) {
        assert_true((b->may & ORACLE_MISS) || oracle_disturbed());
        b->back |= b->may & ALL_VERSIONS;
        b->may = ORACLE_MISS;
    } else if (status == KVO_E_IO || status == KVO_E_NO_SPACE || status == KVO_E_MEMORY) {
        b->may |= ORACLE_MISS; /* it may cost the block */
        b->back |= (uint8_t)(1 << version);
        b->kept = false;
    }
    return status;
}

static void removed(oracle_block *b, int status, int level)
{
    if (status == KVO_BUSY)
        return;
    if (status == KVO_OK && level >= KVO_WRITTEN)
        b->back = 0;
    else
        b->back |= b->may & ALL_VERSIONS;
    b->may = ORACLE_MISS;
    b->kept = false;
}

int oracle_remove(uint64_t number, int level)
{
    oracle_block *b = &oracle.blocks[number];
    kvo_answer answer;
    kvo_target target = target_of(number, 1);
    int status = kvo_remove(store, &target, level, 0, &answer, NULL);
    status = status == KVO_OK ? answer.status : status; /* the call says if the level was not reached */
    STATUS("remove", status, KVO_OK, KVO_MISS, KVO_BUSY, KVO_SHORT, KVO_E_IO, KVO_E_NO_SPACE, KVO_E_MEMORY);
    if (!oracle_disturbed())
        STATUS("remove", status, (b->may & ORACLE_MISS) ? KVO_MISS : KVO_OK, KVO_OK);
    removed(b, status, level);
    return status;
}

int oracle_remove_where(const kvo_target *target, uint64_t first, uint64_t step, int level)
{
    int status = kvo_remove(store, target, level, 0, NULL, NULL);
    STATUS("remove", status, KVO_OK, KVO_BUSY, KVO_SHORT, KVO_E_IO, KVO_E_NO_SPACE, KVO_E_MEMORY);
    if (!oracle_disturbed())
        assert_int_equal(status, KVO_OK);
    for (uint64_t i = first; i < ORACLE_BLOCKS; i += step)
        removed(&oracle.blocks[i], status, level);
    return status;
}

int oracle_sync(int level)
{
    int status = kvo_sync(store, NULL, level, 0, NULL);
    STATUS("sync", status, KVO_OK, KVO_SHORT, KVO_E_IO, KVO_E_NO_SPACE, KVO_E_MEMORY);
    if (!oracle_disturbed() && !oracle.evicts)
        assert_int_equal(status, KVO_OK);
    for (unsigned i = 0; status == KVO_OK && i < ORACLE_BLOCKS; i++)
        oracle.blocks[i].kept |= !(oracle.blocks[i].may & ORACLE_MISS);
    return status;
}

void oracle_reopened(void)
{
    for (unsigned i = 0; i < ORACLE_BLOCKS; i++) {
        oracle_block *b = &oracle.blocks[i];
        b->may |= b->back;
        if (b->kept)
            b->may &= (uint8_t)~ORACLE_MISS;
        else
            b->may |= ORACLE_MISS;
        b->back = 0;
    }
}
