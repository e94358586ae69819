/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DISK_INTERNAL_H
#define DISK_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "tier/disk/disk.h"
#include "tier/disk/format.h"

#define DISK_BATCH 64u   /* transfers handed to the engine at once */

typedef struct disk_note_file {
    int file[2];
    uint64_t sequence[2]; /* 0: not whole */
    uint64_t checksum[2]; /* of the content */
    int damaged;          /* copies at open */
} disk_note_file;

/* What the medium says of a segment. */
typedef struct disk_segment_now {
    uint32_t stride, epoch;
    bool known; /* by a header that is whole; else by its slots, and it is written again */
} disk_segment_now;

/* A stream or batch while it writes: the lowest of its write numbers that is not complete. */
typedef struct disk_writer {
    struct disk_writer *next, **at;
    uint64_t lowest;
} disk_writer;

typedef struct disk {
    tier_medium tier;
    base_env *env;
    move_engine *engine;
    tier_account account;
    void (*log)(void *context, const char *line);
    void *log_context;
    char *path;
    char *data_path;
    size_t path_bytes;
    bool read_only;
    bool may_create;
    bool listed; /* in the process-wide list of open directories */
    uint64_t id[2];
    int lock_file, super_file, data_file, policy_file;
    int checkpoint_file; /* -1: there is none yet */
    uint64_t checkpoint_slots; /* that the checkpoint found at open has */
    disk_note_file notes[TIER_NOTES];
    _Atomic uint64_t *write_number;
    disk_super super; /* the last one written or read */
    bool crashed;     /* not closed in order last time */
    bool recovered;   /* what the crash left unfinished is dealt with: marks may pass it */
    bool half_created; /* open for reading: a directory whose creation a crash cut short */
    uint64_t mark;    /* slots written after this may be unfinished (after a crash) */

    atomic_bool left_direct; /* the log has said that the file system refused O_DIRECT after it took it */
    pthread_mutex_t lock; /* those below */
    struct disk_writer *writers; /* with writes on their way */
    uint64_t failed; /* lowest number of a block's write that did not complete, of this opening; 0: none */
    uint64_t flushed;
    uint64_t super_written, super_flushed; /* sequences: of the last write that succeeded, and that was flushed */
    disk_segment_now *on_medium;
    size_t on_medium_bytes;
    tier_stream *idle; /* streams */
} disk;

/* Epochs of a segment come round again, to 2, after 2^32 - 1; 0 is before all of them. */
static inline bool disk_epoch_before(uint32_t a, uint32_t b) { return b != 0 && (a == 0 || (int32_t)(a - b) < 0); }

static inline disk *disk_of(tier_medium *t) { return (disk *)t; }

/* One page or run of pages, whole; 0 or negative errno. Counted as metadata. */
int disk_pages_write(disk *d, int file, uint64_t offset, const void *memory, size_t bytes);
int disk_pages_read(disk *d, int file, uint64_t offset, void *memory, size_t bytes);
void disk_log(disk *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* All writes up to this number are complete. Under d->lock. */
uint64_t disk_mark(disk *d);

/* The first of `count` new write numbers, which are on their way until the end. */
uint64_t disk_numbers_begin(disk *d, size_t count, disk_writer *writer);
void disk_numbers_end(disk *d, disk_writer *writer);

/* stream.c */
tier_stream *disk_stream_open(tier_medium *t, bool write);
void disk_stream_close(tier_stream *stream);
bool disk_full(const tier_stream *stream, uint32_t payload_bytes);
void disk_add(tier_stream *stream, tier_io *io);
tier_io *disk_next(tier_stream *stream, bool wait);
void disk_streams_free(disk *d);

/* Whether `data` still goes past the page cache; says in the log that it does not any more. */
bool disk_direct_io(tier_medium *t);

/* One file of the directory: a kvo_status. */
int disk_file_open(disk *d, const char *name, int flags, int *file, int *direct, kvo_error *error);

/* slots.c */
void disk_header_fill(const disk *d, const tier_io *io, uint64_t number, disk_slot *h);
/* The header must be this block's, here, whole, and of the write that memory knows: 0 or -EBADMSG. */
int disk_header_check(const disk *d, const tier_io *io, const disk_slot *h);
/* A segment says its slot size before a slot of that size is written into it. */
int disk_segment_ready(disk *d, const tier_io *io);
int disk_segment_write(tier_medium *t, uint32_t segment, uint32_t stride, uint32_t epoch);
int disk_invalidate(tier_medium *t, const uint32_t *slots, size_t count);
int disk_pad(tier_medium *t, uint32_t slot, uint32_t payload_bytes, const void *last_unit);

/* scan.c */
int disk_scan(tier_medium *t, int (*segment)(void *, uint32_t, uint32_t, uint32_t),
              int (*each)(void *, const tier_slot *), void *context);
bool disk_identity_fits(const block_identity *identity, uint32_t stride);
uint32_t disk_slots_of(const tier_geometry *g, uint32_t segment, uint32_t stride);

/* checkpoint.c */
void disk_checkpoint_find(disk *d);
int disk_checkpoint_scan(tier_medium *t, int (*segment)(void *, uint32_t, uint32_t, uint32_t),
                         int (*each)(void *, const tier_slot *), void *context);
int disk_checkpoint_write(tier_medium *t, const tier_checkpoint *close,
                          size_t (*next)(void *, tier_slot *, size_t), void *context);

/* super.c */
int disk_super_load(disk *d, kvo_error *error);  /* a kvo_status; KVO_E_NOT_FOUND: no store yet */
uint64_t disk_super_next(const disk *d);         /* sequence of the next one stored */
int disk_super_store(disk *d, bool clean);       /* 0 or negative errno */
int disk_super_flush(disk *d);
int disk_state_write(tier_medium *t, const tier_state *state, bool clean);

/* notes.c */
void disk_notes_load(disk *d);
/* The copy of the spaces that does not say what the other one does, 0 or 1; or -1. */
int disk_spaces_lost(const disk *d);
int disk_spaces_heal(disk *d); /* writes it again; 0 or negative errno */
int disk_note_write(tier_medium *t, tier_note which, const void *data, size_t bytes);
int disk_note_read(tier_medium *t, tier_note which, void **data, size_t *bytes);
uint64_t disk_note_checksum(const disk *d, tier_note which); /* of the newer copy's content; 0 = none */
int disk_policy_read(tier_medium *t, uint64_t page, uint32_t pages, void *memory);
int disk_policy_write(tier_medium *t, uint64_t page, uint32_t pages, const void *memory);

#endif
