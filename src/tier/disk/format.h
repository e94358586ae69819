/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of docs/format.md. Little-endian; each ends in XXH3-64 of the 4088 bytes before. */
#ifndef DISK_FORMAT_H
#define DISK_FORMAT_H

#include <stddef.h>

#include "tier/tier.h"

#define DISK_FORMAT_VERSION 1u
#define DISK_SEGMENT_UNITS_MIN 3u /* a header, and a slot of one page */
#define DISK_MAGIC_SUPER "KVOSUPR1"
#define DISK_MAGIC_SEGMENT "KVOSEGM1"
#define DISK_MAGIC_SLOT "KVOSLOT1"
#define DISK_MAGIC_DEAD "KVODEAD1"
#define DISK_MAGIC_NOTE "KVONOTE1"

typedef struct disk_super {
    char magic[8];
    uint32_t version;
    uint32_t clean; /* 1: closed in order, every slot's header is true */
    uint8_t uuid[16];
    uint64_t sequence; /* the copy with the higher one counts */
    uint64_t created_s;
    uint32_t segment_units;
    uint32_t segment_count;
    uint32_t last_units;
    uint32_t reserved;
    uint64_t write_number; /* all writes up to this one were given out */
    uint64_t mark_written; /* all writes up to this one were complete */
    uint64_t mark_flushed; /* and flushed */
    uint8_t boot_id[16];   /* mark_written counts only on the same boot */
    tier_state state;
    uint8_t zero[4088 - 200];
    uint64_t checksum;
} disk_super;

typedef struct disk_segment {
    char magic[8];
    uint32_t version;
    uint32_t segment;
    uint8_t uuid[16];
    uint32_t stride;
    uint32_t epoch;
    uint8_t zero[4088 - 40];
    uint64_t checksum;
} disk_segment;

typedef struct disk_slot {
    char magic[8]; /* DISK_MAGIC_SLOT, or DISK_MAGIC_DEAD: what was here is gone */
    uint32_t version;
    uint32_t slot; /* its own place: a misdirected write shows */
    uint8_t uuid[16];
    uint64_t write_number;
    uint32_t stride;
    uint32_t epoch;   /* of the segment */
    uint32_t rewrites;
    uint32_t format;
    uint8_t delta[8]; /* demotions into tier i, this one included */
    uint64_t policy;
    uint64_t touch;
    uint64_t stored_bytes; /* after the header; = payload_bytes in format 0 */
    uint8_t space_digest[32];
    uint8_t pad[8];
    block_identity identity;
    uint8_t zero[4088 - 256];
    uint64_t checksum;
} disk_slot;

typedef struct disk_note {
    char magic[8];
    uint32_t version;
    uint32_t which;
    uint8_t uuid[16];
    uint64_t sequence;
    uint64_t bytes;
    uint64_t content_checksum; /* XXH3-64 of the bytes that follow this page */
    uint8_t zero[4088 - 56];
    uint64_t checksum;
} disk_note;

static_assert(sizeof(tier_state) == 96, "part of the format");
static_assert(sizeof(disk_super) == TIER_UNIT && offsetof(disk_super, state) == 104, "a page");
static_assert(sizeof(disk_segment) == TIER_UNIT, "a page");
static_assert(sizeof(disk_slot) == TIER_UNIT && offsetof(disk_slot, identity) == 128, "a page");
static_assert(sizeof(disk_note) == TIER_UNIT, "a page");

/* Sets and checks the checksum at a page's end. */
void disk_page_seal(void *page);
bool disk_page_whole(const void *page);
bool disk_page_zero(const void *page);
uint64_t disk_checksum(const void *data, size_t bytes);

#endif
