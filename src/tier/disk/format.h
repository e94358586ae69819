/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of docs/format.md. Little-endian; each ends in XXH3-64 of the 4088 bytes before. */
#ifndef DISK_FORMAT_H
#define DISK_FORMAT_H

#include <stddef.h>

#include "tier/tier.h"

#define DISK_FORMAT_VERSION 1u
/* Sequences and write numbers count writes: no store gets here, and none may go round. */
#define DISK_COUNT_MAX (UINT64_C(1) << 63)
#define DISK_SEGMENT_UNITS_MIN 3u /* a header, and a slot of one page */
#define DISK_MAGIC_SUPER "KVOSUPR1"
#define DISK_MAGIC_SEGMENT "KVOSEGM1"
#define DISK_MAGIC_SLOT "KVOSLOT1"
#define DISK_MAGIC_DEAD "KVODEAD1"
#define DISK_MAGIC_NOTE "KVONOTE1"
#define DISK_MAGIC_CHECKPOINT "KVOCKPT1"

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

/* A checkpoint is one head, then pages of segments, then pages of slots. */
typedef enum disk_checkpoint_kind {
    DISK_CHECKPOINT_HEAD,
    DISK_CHECKPOINT_SEGMENTS,
    DISK_CHECKPOINT_SLOTS
} disk_checkpoint_kind;

typedef struct disk_checkpoint_head {
    uint32_t tiers; /* directories that were closed together */
    uint32_t reserved;
    uint64_t sequence; /* of the superblock, clean, that it belongs to */
    uint64_t write_number;
    uint64_t slots;           /* that hold a block */
    uint64_t data_changed_ns; /* last change of `data` */
    uint64_t spaces_checksum; /* of the note's content */
} disk_checkpoint_head;

typedef struct disk_checkpoint_segment {
    uint32_t stride, epoch; /* as in the segment's header; 0, 0: never used */
} disk_checkpoint_segment;

typedef struct disk_checkpoint_slot {
    uint32_t slot;
    uint16_t rewrites;
    uint8_t format;
    uint8_t generation; /* low byte of its write number */
    uint64_t policy, touch; /* as they are now */
    block_identity identity;
} disk_checkpoint_slot;

#define DISK_CHECKPOINT_SEGMENTS_MAX 503u /* of a page */
#define DISK_CHECKPOINT_SLOTS_MAX 26u
#define DISK_POLICY_BYTES 64u /* of a policy record: the store's */

typedef struct disk_checkpoint {
    char magic[8];
    uint32_t version;
    uint32_t page; /* its own place in the file */
    uint8_t uuid[16];
    uint8_t close_id[16];
    uint32_t kind;
    uint32_t count; /* entries */
    uint64_t zero;
    union {
        disk_checkpoint_head head;
        disk_checkpoint_segment segments[DISK_CHECKPOINT_SEGMENTS_MAX];
        disk_checkpoint_slot slots[DISK_CHECKPOINT_SLOTS_MAX];
    } of;
    uint64_t checksum;
} disk_checkpoint;

static_assert(sizeof(disk_checkpoint_slot) == 152 && sizeof(disk_checkpoint_segment) == 8, "part of the format");
static_assert(sizeof(disk_checkpoint) == TIER_UNIT && offsetof(disk_checkpoint, of) == 64, "a page");
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
