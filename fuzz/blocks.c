/* SPDX-License-Identifier: Apache-2.0 */
#include "blocks.h"

#include <string.h>

#include "block/digest.h"
#include "block/policy.h"

void block_name(unsigned number, uint8_t name[BLOCKS_NAME_BYTES])
{
    memset(name, 'n', BLOCKS_NAME_BYTES);
    name[BLOCKS_NAME_BYTES - 1] = (uint8_t)number;
}

int block_number(const uint8_t *name, size_t bytes)
{
    uint8_t is[BLOCKS_NAME_BYTES];
    if (bytes != BLOCKS_NAME_BYTES)
        return -1;
    block_name(name[BLOCKS_NAME_BYTES - 1], is);
    return memcmp(is, name, bytes) == 0 ? name[BLOCKS_NAME_BYTES - 1] : -1;
}

kvo_names block_names(unsigned number, kvo_space space)
{
    static uint8_t buffers[4][BLOCKS_NAME_BYTES];
    static unsigned turn;
    uint8_t *name = buffers[turn++ % 4];
    block_name(number, name);
    return (kvo_names){.first = name, .name_bytes = BLOCKS_NAME_BYTES, .count = 1, .space = space};
}

static uint8_t byte_at(size_t i, unsigned number, unsigned version)
{
    return (uint8_t)(i * 7 + (i >> 8) + number * 31 + version * 101);
}

void block_fill(uint8_t *bytes, size_t count, unsigned number, unsigned version)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = byte_at(i, number, version);
}

bool block_is(const uint8_t *bytes, size_t count, unsigned number, unsigned version)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != byte_at(i, number, version))
            return false;
    return true;
}

kvo_space blocks_space(kvo_store *store)
{
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_space space = 0;
    kvo_error error = {""};
    config.label = "a";
    config.model = "m";
    config.dtype = "bf16";
    config.block_positions = 16;
    config.block_bytes_max = BLOCKS_BYTES_MAX;
    int status = kvo_space_open(store, &config, &space, &error);
    return status == KVO_OK ? space : 0;
}

static kvo_put_options options_of(int level)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = level;
    o.deadline_ns = 0;
    return o;
}

int block_put(kvo_store *store, kvo_space space, unsigned number, unsigned version, size_t bytes, int level)
{
    static uint8_t payload[BLOCKS_BYTES_MAX];
    kvo_names names = block_names(number, space);
    kvo_segment segment = {payload, bytes};
    kvo_memory memory = {&segment, NULL};
    kvo_put_options o = options_of(level);
    kvo_answer answer = {.status = KVO_BUSY};
    block_fill(payload, bytes, number, version);
    int status = kvo_put(store, &names, &memory, &o, &answer);
    return status == KVO_OK ? answer.status : status;
}

int block_rewrite(kvo_store *store, kvo_space space, unsigned number, unsigned version, size_t bytes, int level)
{
    static uint8_t payload[BLOCKS_BYTES_MAX];
    kvo_names names = block_names(number, space);
    kvo_segment segment = {payload, bytes};
    kvo_memory memory = {&segment, NULL};
    kvo_put_options o = options_of(level);
    kvo_answer answer = {.status = KVO_BUSY};
    block_fill(payload, bytes, number, version);
    int status = kvo_rewrite(store, &names, &memory, version % 16, &o, &answer);
    return status == KVO_OK ? answer.status : status;
}

kvo_answer block_get(kvo_store *store, kvo_space space, unsigned number, uint8_t *bytes, size_t count)
{
    kvo_names names = block_names(number, space);
    kvo_segment segment = {bytes, count};
    kvo_memory memory = {&segment, NULL};
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_answer answer = {.status = KVO_BUSY};
    o.deadline_ns = 0;
    int status = kvo_get(store, &names, &memory, &o, &answer);
    if (status != KVO_OK)
        answer.status = status;
    return answer;
}

kvo_answer block_look(kvo_store *store, kvo_space space, unsigned number)
{
    kvo_names names = block_names(number, space);
    kvo_answer answer = {.status = KVO_BUSY};
    int status = kvo_exists(store, &names, &answer);
    MUST(status == KVO_OK, "a look-up: %s", kvo_status_name(status));
    return answer;
}

static void must_be_sound(kvo_store *store, const kvo_block_info *info)
{
    kvo_names names = {.first = info->name,
                       .name_bytes = info->name_bytes,
                       .count = 1,
                       .space = info->space,
                       .kind = info->kind,
                       .layer_first = info->layer_first,
                       .layer_count = info->layer_count,
                       .head_group = info->head_group};
    kvo_answer answer;
    MUST(info->payload_bytes > 0 && info->payload_bytes <= KVO_PAYLOAD_BYTES_MAX, "%u bytes", info->payload_bytes);
    MUST(kvo_exists(store, &names, &answer) == KVO_OK && answer.status == KVO_OK && answer.handle == info->handle,
         "a block that is listed is not found: %s", kvo_status_name(answer.status));
    MUST(answer.payload_bytes == info->payload_bytes, "two lengths of one block");
    MUST(policy_check(&info->policy, KVO_POLICY_ALL) == KVO_OK, "a policy that is none: qos %u, priority %u, reuse %u, "
         "intent %u", info->policy.qos, info->policy.priority, info->policy.reuse, info->policy.intent);
}

void blocks_must_be_sound(kvo_store *store)
{
    static kvo_block_info infos[8];
    uint64_t cursor = 0;
    char why[256];
    MUST(store_valid(store, why, sizeof why), "%s", why);
    for (size_t count = 1; count;) {
        MUST(kvo_walk(store, NULL, &cursor, infos, 8, &count) == KVO_OK, "a walk ends with an error");
        for (size_t i = 0; i < count; i++)
            must_be_sound(store, &infos[i]);
    }
}
