/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tier is to the store: facts, and a table of operations. A new tier is one folder and
 * one line in tiers.c. The store calls the wrappers below, which check what every tier may rely on;
 * a tier fills in the table. Operations of a persistent tier are NULL elsewhere.
 *
 * Results are 0 or negative errno values.
 */
#ifndef TIER_TIER_H
#define TIER_TIER_H

#include "base/env.h"
#include "block/identity.h"
#include "move/move.h"

#define TIER_UNIT 4096u
#define TIER_API 3
#define TIER_SEGMENTS_MAX 8u /* of a caller's memory that a transfer goes straight from or to */

typedef struct tier_medium tier_medium;
typedef struct tier_stream tier_stream;

typedef struct tier_facts {
    bool persistent;
    bool byte_addressable; /* memory() and readable() work; else payloads go through read and write */
    bool direct_io;
    uint32_t header_units; /* in front of each slot and each segment */
    uint32_t alignment;    /* of a caller's memory, to go straight; 0: nothing does */
} tier_facts;

/* How space is cut; the tier keeps it, placement fills it. */
typedef struct tier_geometry {
    uint32_t segment_units;
    uint32_t segment_count;
    uint32_t last_units;
} tier_geometry;

/* One block's transfer. */
typedef struct tier_io {
    uint32_t slot;
    uint32_t stride;
    uint32_t segment;
    uint32_t epoch;
    block_identity identity; /* write: goes into the header; read: must be what the header says */
    const uint8_t *space_digest;
    uint64_t policy, touch; /* write: a first version of them, until the policy page follows */
    uint32_t rewrites;
    uint32_t format;
    uint8_t delta[KVO_TIERS_MAX];
    uint8_t generation; /* write: set to the low bits of the write number; read: expected */
    void *memory;       /* aligned to TIER_UNIT, whole units; what follows the payload is zero on write */
    bool front;         /* the unit in front of memory is the transfer's as well */
    const kvo_segment *segments; /* instead of memory, if tier_straight(): exactly the payload */
    uint32_t segment_count;
    bool begun;         /* it went to the device, whatever came of it; false: not a byte of it */
    int result;         /* -EBADMSG: the header is not this block's */
    struct tier_io *next; /* the tier's, until it gives the transfer back */
} tier_io;

/* What a scan found in a slot. */
typedef enum tier_slot_state { TIER_SLOT_LIVE, TIER_SLOT_BAD, TIER_SEGMENT_BAD } tier_slot_state;
typedef struct tier_slot {
    tier_slot_state state;
    uint32_t slot, segment, stride, epoch;
    uint64_t write_number; /* of a bad header: what its bytes say */
    bool unfinished;       /* a crash may have cut this write short */
    const char *what;      /* BAD: what is wrong */
    block_identity identity;
    uint8_t space_digest[32];
    uint64_t policy, touch;
    uint32_t rewrites, format;
    uint8_t delta[KVO_TIERS_MAX];
} tier_slot;

/* Small files beside the blocks: whole contents, replaced whole, two copies. */
typedef enum tier_note { TIER_NOTE_LEDGER, TIER_NOTE_SPACES, TIER_NOTES } tier_note;

/* The store's own words in the superblock. */
typedef struct tier_state {
    uint64_t clock;       /* reference clock */
    uint64_t epoch_s;     /* wall clock that deadlines count from */
    uint64_t block_bytes; /* kvo_options.block_bytes of the first opening that said */
    uint64_t records_max; /* control records of the last opening: as many blocks may be here */
    char tiers[64];       /* names of the tiers of the last opening, "dram,disk" */
} tier_state;

/* Which close a checkpoint was written at. */
typedef struct tier_checkpoint {
    uint8_t id[16];       /* random; the same in all tiers that were closed together */
    uint32_t tier_count;  /* of them that are persistent; 0: there is no checkpoint that may be believed */
} tier_checkpoint;

/* Bytes that an operation wrote or read besides payload, for the ledger. */
typedef struct tier_account {
    void (*add)(void *context, bool write, uint64_t metadata_bytes, uint64_t padding_bytes);
    void *context;
} tier_account;

typedef struct tier_config {
    base_env *env;
    move_engine *engine;
    const kvo_tier_config *config;
    uint64_t block_bytes;
    bool read_only;
    bool must_exist;
    _Atomic uint64_t *write_number; /* store-wide; the tier raises it to what it holds at open */
    tier_account account;
    void (*log)(void *context, const char *line);
    void *log_context;
} tier_config;

typedef struct tier_ops {
    size_t size;
    int api;
    const char *kind;
    int (*open)(const tier_config *config, tier_medium **out, kvo_error *error); /* a kvo_status */
    /* After open, before all else: room for this geometry. geometry.segment_units is 0 before, or
       what the medium has and must stay. A kvo_status. */
    int (*resize)(tier_medium *t, const tier_geometry *geometry, kvo_error *error);
    /* The end of a successful opening: the medium says that it is in use, and a smaller size is made
       true. A kvo_status. */
    int (*begin)(tier_medium *t, kvo_error *error);
    void (*close)(tier_medium *t);
    void *(*memory)(tier_medium *t, uint32_t slot);
    const void *(*readable)(tier_medium *t, uint32_t slot);
    /* NULL: no memory. */
    tier_stream *(*stream_open)(tier_medium *t, bool write);
    void (*stream_close)(tier_stream *stream);
    bool (*full)(const tier_stream *stream, uint32_t payload_bytes);
    void (*add)(tier_stream *stream, tier_io *io); /* may finish it at once */
    tier_io *(*next)(tier_stream *stream, bool wait);
    int (*invalidate)(tier_medium *t, const uint32_t *slots, size_t count);
    int (*flush)(tier_medium *t);
    /* Headers of all slots; each() may be NULL for segments only. Stops at its non-zero return. */
    int (*scan)(tier_medium *t, int (*segment)(void *context, uint32_t segment, uint32_t stride, uint32_t epoch),
                int (*each)(void *context, const tier_slot *slot), void *context);
    /* The same for live slots, in the same order, from the checkpoint of the last close, and policies as they
       were then; before anything is written. Not 0: what it told so far is not to be relied on. */
    int (*checkpoint_scan)(tier_medium *t,
                           int (*segment)(void *context, uint32_t segment, uint32_t stride, uint32_t epoch),
                           int (*each)(void *context, const tier_slot *slot), void *context);
    /* All is flushed, and the next thing written is state_write(.., true). next() gives the live slots in
       order of place, `capacity` at a time, fewer only at the end. */
    int (*checkpoint_write)(tier_medium *t, const tier_checkpoint *close,
                            size_t (*next)(void *context, tier_slot *slots, size_t capacity), void *context);
    int (*policy_read)(tier_medium *t, uint64_t page, uint32_t pages, void *memory);
    int (*policy_write)(tier_medium *t, uint64_t page, uint32_t pages, const void *memory);
    int (*note_write)(tier_medium *t, tier_note which, const void *data, size_t bytes);
    /* *data is allocated with env->alloc(bytes rounded up to units); -ENOENT: none that is whole. */
    int (*note_read)(tier_medium *t, tier_note which, void **data, size_t *bytes);
    int (*state_write)(tier_medium *t, const tier_state *state, bool clean);
    /* What a segment has become, before a slot is written into it: older headers in it are void. Stride and epoch 0:
       it was never used. */
    int (*segment_write)(tier_medium *t, uint32_t segment, uint32_t stride, uint32_t epoch);
    bool (*direct_io)(tier_medium *t); /* the fact as it is now: a file system may refuse it late */
    /* The last unit of a payload as it is, with zeros behind the payload's end. */
    int (*pad)(tier_medium *t, uint32_t slot, uint32_t payload_bytes, const void *last_unit);
} tier_ops;

struct tier_medium {
    const tier_ops *ops;
    tier_facts facts;
    tier_geometry geometry;
    tier_state state;     /* as read at open */
    tier_checkpoint checkpoint; /* as read at open, to write */
    bool unclean;         /* at open: it had not been closed in order */
    const char *lost_copy; /* at open: which file of the spaces was damaged, by no crash; or NULL */
    uint64_t data_bytes;
    size_t control_bytes; /* memory of the medium itself */
    const char *path;     /* NULL in memory */
    const char *data_path;
    _Atomic uint64_t transfers, submissions; /* of blocks, and the requests that they took */
    _Atomic uint64_t copies;                 /* payloads that the processor copied for them */
    uint64_t scanned;                        /* slots whose headers scans read, used or not */
    tier_medium *behind;                     /* that this one wraps, and that keeps the counts above; or NULL */
    _Atomic uint64_t injected;               /* faults and delays, of this one alone */
};

/* A tier's own stream begins with this. */
struct tier_stream {
    tier_medium *tier;
    bool write;
    uint32_t in_flight;
    tier_stream *next; /* the tier's: idle ones */
};

/* The table of tiers: by kvo_tier_kind; NULL = unknown. */
const tier_ops *tier_ops_of(int kind);
/* Of tiers that wrap a tier: the first one in kvo_tier_config.wrappers; NULL = unknown. */
const tier_ops *tier_wrapper_of(const char *wrappers);
/* The medium behind all wrappers, which counts. */
static inline const tier_medium *tier_innermost(const tier_medium *t)
{
    while (t->behind)
        t = t->behind;
    return t;
}
uint64_t tier_injected(const tier_medium *t); /* by all wrappers */

/* Wrappers. */
int tier_open(const tier_config *config, tier_medium **out, kvo_error *error);
int tier_resize(tier_medium *t, const tier_geometry *geometry, kvo_error *error);
int tier_begin(tier_medium *t, kvo_error *error);
void tier_close(tier_medium *t);
void *tier_memory(tier_medium *t, uint32_t slot);
const void *tier_readable(tier_medium *t, uint32_t slot);

/*
 * Blocks on their way, several at a time, for one thread. An io and its memory are the tier's from add
 * to next, which gives finished ones back in any order; NULL: none in flight, or none yet and wait is
 * false. While it is full() one has to come back first; a stream with none in flight never is. Close
 * when none is. In a write, a number in flight holds back the mark of completed writes.
 */
tier_stream *tier_stream_open(tier_medium *t, bool write); /* NULL: no memory */
void tier_stream_close(tier_stream *stream);               /* NULL is allowed */
bool tier_stream_full(const tier_stream *stream, uint32_t payload_bytes);
void tier_stream_add(tier_stream *stream, tier_io *io);
tier_io *tier_stream_next(tier_stream *stream, bool wait);
/* Whether a payload in these segments can go straight from or to them: aligned, whole units each but for
   the last one's end, and not too many. */
bool tier_straight(const tier_medium *t, const kvo_segment *segments, uint32_t count);
/* All of them, in one stream. */
void tier_write(tier_medium *t, tier_io *ios, size_t count);
void tier_read(tier_medium *t, tier_io *ios, size_t count);
int tier_invalidate(tier_medium *t, const uint32_t *slots, size_t count);
int tier_flush(tier_medium *t);
bool tier_direct_io(tier_medium *t); /* as it is now */

static inline uint64_t tier_units(const tier_geometry *g)
{
    return g->segment_count ? (uint64_t)(g->segment_count - 1) * g->segment_units + g->last_units : 0;
}
static inline uint64_t tier_payload_span(uint32_t payload_bytes)
{
    return ((uint64_t)payload_bytes + TIER_UNIT - 1) / TIER_UNIT * TIER_UNIT;
}

#endif
