/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and bytes of replayed blocks. A name is 'r', three zeros, the scope in 4 bytes and the
 * id in 8, big-endian: never all zeros, which as a parent would mean none. The bytes follow from the
 * name alone: any process can tell whether it got the right ones, and no two names or offsets share a
 * run of them.
 */
#ifndef CLI_PAYLOAD_H
#define CLI_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

#define CLI_NAME_BYTES 16

void cli_name_write(uint8_t name[CLI_NAME_BYTES], uint32_t scope, uint64_t id);
/* 0 if it is not such a name. */
int cli_name_read(const uint8_t *name, size_t name_bytes, uint32_t *scope, uint64_t *id);

void cli_payload_fill(const uint8_t name[CLI_NAME_BYTES], void *payload, size_t bytes);
/* 1 if every byte is right. */
int cli_payload_is(const uint8_t name[CLI_NAME_BYTES], const void *payload, size_t bytes);

#endif
