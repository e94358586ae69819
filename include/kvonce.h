/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvonce: a write-once store for the KV-cache blocks of LLM inference.
 *
 * A block is the K and V of a range of positions. It is computed once and never
 * changes, and the store is built on that: a block is *put* once under a name,
 * lies in one or more *tiers* (fastest first: memory, disk), is read with *get*,
 * and leaves by eviction or by *remove*. What belongs to a block:
 *
 *   payload    opaque bytes, 1 byte to 128 MiB. Sealed once, never written again.
 *   identity   space, name, kind, layers, head group, positions, length, digest.
 *   policy     tenant, QoS, priority, reuse, intent: changed in place at any time,
 *              in any state, on any tier, without touching a payload byte.
 *   mechanism  which tiers hold a copy, pins, transfers: the store's own business.
 *
 * A typical engine does, for each prompt:
 *
 *     kvo_match(store, &names, answers, &n);        // longest prefix stored
 *     kvo_get(store, &prefix, &memory, NULL, answers);   // its bytes
 *     ... compute the rest ...
 *     kvo_put(store, &rest, &memory, &options, answers);
 *
 * Conventions
 * -----------
 * - Calls take batches in parallel arrays and fill a caller-owned array with one
 *   kvo_answer a block. The call's own return value speaks of the batch (bad
 *   arguments, a store that a fork has orphaned); a block's fate is in its answer.
 *   A miss is an answer, not an error.
 * - What moves payload also exists as a job (kvo_submit_...), for engines that must not wait.
 * - All calls on one store may be made from any thread at the same time, except
 *   kvo_close(), which must be the last. No call is async-signal-safe.
 * - Durations and deadlines are nanoseconds from the call on a monotonic clock:
 *   0 = do not wait, KVO_FOREVER = wait without limit. Sizes are bytes.
 *   A transfer that a call has begun itself, for its bytes or its level, takes as long as the device
 *   does: who must not wait for a device that hangs submits jobs. Room in memory is another matter: what
 *   has to be written to make some is left to the store's own thread, and the call says KVO_BUSY in
 *   time (but with KVO_FOREVER, and in a store opened KVO_OPEN_STEPPED, it makes room itself).
 * - Memory passed in belongs to the store until the call returns, not longer; that of a submitted
 *   job until its report is taken.
 * - Structs that begin with `size` are set up by their _INIT macro; they only grow
 *   at the end, and a library accepts the shorter struct of an older program.
 * - A call uses up to 64 KiB of the caller's stack: give a thread that calls at least 128 KiB.
 * - After fork() the child's copy of a store answers KVO_E_FORKED to every call.
 * - Cost classes, named in each comment: *pure* reads memory only, takes no lock,
 *   allocates nothing; *control* may take a short lock, moves no payload; *data*
 *   copies payload and may do I/O.
 */
#ifndef KVONCE_H
#define KVONCE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVO_VERSION_MAJOR 0
#define KVO_VERSION_MINOR 1
#define KVO_VERSION_PATCH 0

#if defined(__GNUC__)
#define KVO_API __attribute__((visibility("default")))
#else
#define KVO_API
#endif

/* Limits of this version. */
#define KVO_TIERS_MAX 4            /* tiers of one store */
#define KVO_NAME_BYTES_MIN 16      /* shortest block name */
#define KVO_NAME_BYTES_MAX 64      /* longest block name */
#define KVO_PAYLOAD_BYTES_MAX (128u << 20)
#define KVO_SPACES_MAX 256         /* spaces of one store */
#define KVO_BATCH_MAX (1u << 20)   /* blocks in one call */
#define KVO_TENANT_OTHER 65535u    /* see kvo_options.tenants_max */
#define KVO_FOREVER UINT64_MAX
#define KVO_INFINITE UINT64_MAX    /* a capacity without bound (ghost stores only) */
#define KVO_NO_TIER 255

/* ---- Status ------------------------------------------------------------- */

/* Every value has a name and a text: kvo_status_name(), kvo_status_text(). */
typedef enum kvo_status {
    KVO_OK = 0,

    /* Answers about one block. */
    KVO_STORED = 1,  /* put: the block is new and stored at the level asked for */
    KVO_EXISTS = 2,  /* put: the name was there; nothing was written */
    KVO_MISS = 3,    /* not here, or not whole: compute it and put it again */
    KVO_PENDING = 4, /* reserved by somebody, not sealed yet */
    KVO_BUSY = 5,    /* no room or no access before the deadline, or the device does not answer; try again */
    KVO_FULL = 6,    /* no room, and none can be made while things stay as they are */
    KVO_REFUSED = 7, /* empty, or longer than its space or a slot of the first tier may be */
    KVO_SIZE = 8,    /* the length differs from the stored block's; nothing was copied */
    KVO_GONE = 9,    /* a handle, pin, hold or reservation that is no longer valid */
    KVO_SHORT = 10,  /* stored, but the level asked for was not reached in time */
    KVO_CANCELLED = 11, /* the job was cancelled before it came to this block; nothing was done */

    /* The caller's mistake. */
    KVO_E_ARGUMENT = 32,    /* a null pointer, a count or name length out of range */
    KVO_E_RANGE = 33,       /* a number out of its documented range */
    KVO_E_STATE = 34,       /* not allowed in this state (e.g. writing to a read-only store) */
    KVO_E_FORKED = 35,      /* this process inherited the store through fork() */
    KVO_E_UNSUPPORTED = 36, /* this store cannot do it (e.g. bytes from a ghost) */

    /* The directory. */
    KVO_E_NOT_FOUND = 48, /* no store there */
    KVO_E_IN_USE = 49,    /* open elsewhere; the text names the process */
    KVO_E_FOREIGN = 50,   /* the directory holds files that are not kvonce's */
    KVO_E_VERSION = 51,   /* written by another version of the format */
    KVO_E_DAMAGED = 52,   /* both copies of a needed page are unreadable */
    KVO_E_MISMATCH = 53,  /* a space of that label exists with another description */

    /* The machine. */
    KVO_E_MEMORY = 64,
    KVO_E_IO = 65,
    KVO_E_NO_SPACE = 66,
    KVO_E_PERMISSION = 67
} kvo_status;

/* Constant strings, never NULL, also for values that do not exist. Pure. */
KVO_API const char *kvo_status_name(int status);
KVO_API const char *kvo_status_text(int status);

/* "0.1.0". */
KVO_API const char *kvo_version(void);

/* One line for a person: what, where, what to do. Optional in every call that takes one. */
typedef struct kvo_error {
    char text[512];
} kvo_error;

/* ---- Sizes and tiers ---------------------------------------------------- */

/*
 * Reads a size: a decimal number, optionally with a fraction, and a unit. K, M, G, T and
 * P are powers of 1024, in either case, and `KiB` and `KB` say the same as `K`; without a
 * unit it is bytes. "1.5G" is 1610612736. Refused (KVO_E_RANGE): a sign, nan, inf,
 * exponents, blanks, trailing junk, a fraction of a byte, 2^63 and more. Pure.
 */
KVO_API int kvo_parse_size(const char *text, uint64_t *bytes, kvo_error *error);

typedef enum kvo_tier_kind { KVO_TIER_DRAM = 1, KVO_TIER_DISK = 2 } kvo_tier_kind;

/* One tier. Give a capacity in bytes or in blocks, not both. */
typedef struct kvo_tier_config {
    size_t size;
    int kind;                 /* kvo_tier_kind */
    const char *path;         /* disk: the directory, 1 to 200 bytes; created with mode 0700 if missing */
    uint64_t capacity_bytes;  /* all included: for the first dram tier the control records
                                 of the whole store too. 0 with a disk that exists: as it is */
    uint64_t capacity_blocks; /* payload slots of kvo_options.block_bytes; KVO_INFINITE: ghost */
    uint64_t segment_bytes;   /* unit in which space changes its slot size; 0 = chosen: about 1/32 of
                                 the tier, 5 to 240 MiB, less below 40 MiB */
    const char *wrappers;     /* NULL; or what stands in front of the tier in a text, as
                                 "delay:read=5ms+fault:read=eio@0.01" (docs/tiers.md). Not with a ghost */
} kvo_tier_config;
#define KVO_TIER_CONFIG_INIT {sizeof(kvo_tier_config), 0, 0, 0, 0, 0, 0}

/*
 * Reads "dram:2G,disk:/path:20G": one to KVO_TIERS_MAX tiers, fastest first. A capacity is
 * a size, a count of blocks ("2000blk") or "inf"; "disk:/path" takes the size that the
 * directory has. A path may hold ':' but not ','. In front of a tier may stand wrappers, for tests:
 * "fault:read=eio@0.01+disk:/path:20G" (docs/tiers.md); their rules are checked at open. Paths and
 * wrappers are copied into `paths` (paths_bytes; strlen(text) + 1 is enough), and tiers[i].path and
 * .wrappers point there. Pure.
 */
KVO_API int kvo_parse_tiers(const char *text, kvo_tier_config tiers[KVO_TIERS_MAX], uint32_t *count,
                            char *paths, size_t paths_bytes, kvo_error *error);

/* ---- Opening and closing ------------------------------------------------ */

typedef struct kvo_store kvo_store;

typedef enum kvo_placement {
    KVO_PLACE_CREDIT = 0, /* last_use + (min(uses, 4) - 1) x slots of tier 0, in block
                             references; uses of names that left are remembered for a while */
    KVO_PLACE_LRU = 1     /* last_use alone */
} kvo_placement;

typedef enum kvo_hierarchy {
    KVO_INCLUSIVE = 0, /* a promoted block keeps its lower copy: written at most once */
    KVO_EXCLUSIVE = 1  /* it moves: for comparison, ghost stores only */
} kvo_hierarchy;

enum {
    KVO_OPEN_GHOST = 1 << 0,     /* records and decisions only; lengths, but no bytes */
    KVO_OPEN_READ_ONLY = 1 << 1, /* look, do not touch: no lock file is created, no byte
                                    written; disk tiers must exist and be closed by others */
    KVO_OPEN_MUST_EXIST = 1 << 2, /* KVO_E_NOT_FOUND instead of creating a directory */
    KVO_OPEN_STEPPED = 1 << 3    /* no mover: blocks are demoted in the call that needs the room, and
                                    put into a medium one after the other, so that the same calls
                                    give the same decisions. Ghosts always are */
};

/* What carries transfers of files. */
typedef enum kvo_io_engine {
    KVO_IO_AUTO = 0,   /* io_uring where the kernel allows it, else threads; threads too where each disk
                          tier lies on a file system in memory (tmpfs) and block_bytes is 1 MiB or
                          more, since there a request is a copy in the caller's thread. The
                          environment variable KVONCE_IO (auto, io_uring or threads) decides instead
                          if it is set and neither empty nor auto */
    KVO_IO_URING = 1,  /* kvo_open() fails with KVO_E_UNSUPPORTED where the kernel forbids it */
    KVO_IO_THREADS = 2 /* a pool of io_threads threads, one vectored call a block */
} kvo_io_engine;

typedef enum kvo_event_type {
    KVO_EVENT_SEAL = 1,    /* tier that received it */
    KVO_EVENT_WRITE = 2,   /* the lower tier, once published, before the upper copy's discard */
    KVO_EVENT_PROMOTE = 3, /* the tier it was promoted into */
    KVO_EVENT_DISCARD = 4, /* an eviction while a copy lies below */
    KVO_EVENT_DROP = 5,    /* an eviction with no copy below */
    KVO_EVENT_END = 6      /* no tier holds it any more; tier is KVO_NO_TIER */
} kvo_event_type;

/* Why a byte crossed a boundary; also why a block left. */
typedef enum kvo_cause {
    KVO_CAUSE_NONE = 0,
    KVO_CAUSE_PUT = 1,      /* a producer's block into the first tier */
    KVO_CAUSE_GET = 2,      /* to the caller */
    KVO_CAUSE_DEMOTE = 3,   /* into the next lower tier */
    KVO_CAUSE_PROMOTE = 4,  /* into the first tier */
    KVO_CAUSE_REWRITE = 5,  /* rule 7's exception */
    KVO_CAUSE_REPAIR = 6,   /* written again because the medium had destroyed the copy */
    KVO_CAUSE_FAILED = 7,   /* a write that did not complete, a read that brought nothing of use */
    KVO_CAUSE_METADATA = 8, /* slot and segment headers, policy, superblocks, ledger */
    KVO_CAUSE_PADDING = 9,  /* from the payload's end to the device's alignment */
    KVO_CAUSE_VERIFY = 10,  /* read by kvo_verify() */
    KVO_CAUSE_RECOVER = 11, /* read at open; also what an opening finds and the ledger does not tell, or misses */
    KVO_CAUSE_REMOVE = 12,  /* events only: removed by a caller */
    KVO_CAUSE_ORPHAN = 13,  /* events only: evicted with a resident child in that tier */
    KVO_CAUSE_YIELD = 14,   /* events only: anchoring yielded */
    KVO_CAUSE_RESIZE = 15,  /* events only: its segment changed slot size */
    KVO_CAUSE_EVICT = 16,   /* ledger only: left to make room, for none of the reasons above */
    KVO_CAUSE_UNREAD = 17,  /* ledger only: left since it cannot be read; an opening may find it again */
    KVO_CAUSE_COUNT = 18
} kvo_cause;
KVO_API const char *kvo_cause_name(int cause); /* "put", ...; "-" for NONE */

typedef struct kvo_event {
    uint64_t reference; /* block references so far: a put counts its blocks one by one, a get or
                           touch all of its blocks when it begins */
    int type;           /* kvo_event_type */
    int cause;          /* kvo_cause; NONE for ordinary events */
    uint8_t tier;
    uint8_t name_bytes;
    uint32_t payload_bytes;
    const uint8_t *name; /* valid during the callback */
} kvo_event;

typedef struct kvo_options {
    size_t size;
    uint32_t flags;       /* KVO_OPEN_... */
    int placement;        /* kvo_placement */
    int hierarchy;        /* kvo_hierarchy */
    uint64_t block_bytes; /* the usual payload: what a "blk" of capacity is, and how many
                             control records a capacity in bytes gets. 0 = 64 KiB for the
                             latter, and no "blk" capacities. 1 .. KVO_PAYLOAD_BYTES_MAX */
    uint64_t blocks_max;  /* control records; 0 = from the capacities. Required if infinite */
    uint64_t write_out_ns; /* policies, recency and ledger of blocks on disk are written at
                              least this often while they change; 0 = 1 s, at most a day. What a crash can
                              lose of them is what changed since */
    uint32_t io_threads;   /* threads of KVO_IO_THREADS; 1 .. 64; 0 = 8, or, where each disk tier lies on
                              a file system in memory, one a processor, 2 to 4 */
    uint32_t tenants_max;  /* tenants with ledger rows of their own, the first ones seen; all
                              others share KVO_TENANT_OTHER's. 0 = 256; 1 .. 4096 */
    uint32_t pins_max;     /* pins at the same time; 0 = 16384 */
    uint32_t holds_max;    /* blocks on hold at the same time; 0 = 4096 */
    void (*on_event)(void *context, const kvo_event *event); /* in order, one at a time, under
                              the store's lock: must be quick and must not call the store */
    void *event_context;
    void (*on_log)(void *context, const char *line); /* one line a failure; may be NULL */
    void *log_context;
    int io_engine;         /* kvo_io_engine */
    uint32_t workers;      /* threads that run submitted jobs, started with the first queue;
                              0 = one a processor, 2 to 4; 2 .. 64 */
    uint64_t flight_bytes; /* payload in transfer to and from media at the same time; 0 = 256 MiB. Each
                              call lets one block through in any case */
} kvo_options;
#define KVO_OPTIONS_INIT {sizeof(kvo_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/*
 * Opens a store. `tiers` as for kvo_parse_tiers(); kvo_open_tiers() takes them as structs.
 * A disk tier is one directory, created if it is missing or empty, and opened by one process
 * at a time. A directory with more capacity than before grows, with less evicts what does not
 * fit. Everything that was *written* is found again, also after a crash.
 * On success *store is set; the caller closes it. On failure *store is NULL and error says
 * why. Options NULL = defaults. Data (reads one header page a slot, or after a close in order one
 * checkpoint instead).
 */
KVO_API int kvo_open(const char *tiers, const kvo_options *options, kvo_store **store, kvo_error *error);
KVO_API int kvo_open_tiers(const kvo_tier_config *tiers, uint32_t count, const kvo_options *options,
                           kvo_store **store, kvo_error *error);

/*
 * Closes a store: brings the blocks that only memory holds to the first persistent tier, within
 * deadline_ns and as far as it has room, writes out policies and ledger, flushes, and frees
 * everything. KVO_SHORT: not all of them got there (time, or memory holds more than the disk); what
 * was written stays. Any pin's memory becomes invalid. NULL is allowed. Queues that are still open are
 * closed first. KVO_BUSY: one of their jobs still runs at the deadline; the store stays open, its
 * queues take no more jobs, and it can be closed again. Or a device does not answer, which close waits for
 * until the deadline and 10 s at least: nothing is freed that it may still write, every other call
 * answers KVO_E_STATE from now on, and it can be closed again, which goes on with this close. Else, and unless
 * KVO_E_FORKED, the store is gone. Data.
 */
KVO_API int kvo_close(kvo_store *store, uint64_t deadline_ns);

/* ---- Spaces ------------------------------------------------------------- */

/*
 * A space is one model's KV in one geometry: everything that changes a payload's bytes
 * belongs in its description. Two descriptions are the same if all fields are equal.
 * Strings are UTF-8, at most 255 bytes, NULL = "". Numbers that do not apply are 0.
 */
typedef struct kvo_space_config {
    size_t size;
    const char *label;        /* unique in the store; 1 to 63 bytes of [A-Za-z0-9._-] */
    const char *model;        /* name or path, and revision: what weights */
    const char *revision;
    const char *dtype;        /* of K and V: "bf16", "fp8_e4m3", "mixed:..." */
    const char *layout;       /* "LBHNC", "rows", ... */
    const char *quantisation; /* of the weights, where it changes KV */
    const char *position_encoding;
    const char *engine;       /* and the version of its layout */
    const char *engine_version;
    uint32_t block_positions; /* positions (tokens) of a block */
    uint32_t layers;
    uint32_t kv_heads;
    uint32_t head_size;
    uint64_t block_bytes_max; /* the largest payload; 1 .. KVO_PAYLOAD_BYTES_MAX */
    const void *extra;        /* anything else that changes the bytes; up to 1024 bytes */
    size_t extra_bytes;
} kvo_space_config;
#define KVO_SPACE_CONFIG_INIT {sizeof(kvo_space_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

typedef uint32_t kvo_space; /* number of a space in its store; never 0 */

/*
 * Opens a space, or creates it. KVO_E_MISMATCH: the label is known with another description;
 * the error shows both. KVO_E_RANGE: a field, or a largest block that no tier's segment can
 * hold. Spaces need no closing. Control (writes one page when it creates).
 */
KVO_API int kvo_space_open(kvo_store *store, const kvo_space_config *config, kvo_space *space,
                           kvo_error *error);

/* SHA-256 of a description's canonical encoding (docs/names.md). KVO_E_RANGE: a field; KVO_E_MEMORY,
   KVO_E_UNSUPPORTED: the hash is not to be had. Control, without a lock. */
KVO_API int kvo_space_digest(const kvo_space_config *config, uint8_t digest[32]);

/* ---- Names -------------------------------------------------------------- */

typedef enum kvo_kind {
    KVO_KIND_RANGE = 0, /* K and V of a range of positions */
    KVO_KIND_STATE = 1  /* a recurrent state after a position; stands alone */
} kvo_kind;

/*
 * A batch of block names in one space. Two blocks are the same block if space, name, kind,
 * layers and head group are equal. Zero `kind` to `head_group` mean: a range, all layers,
 * all heads. In a list of parents (kvo_put_options.parents) a name of zeros says "none", so give
 * no block that name.
 */
typedef struct kvo_names {
    const void *first;   /* the first name; opaque bytes, e.g. a prefix hash */
    size_t name_bytes;   /* KVO_NAME_BYTES_MIN .. KVO_NAME_BYTES_MAX, equal for all */
    size_t stride_bytes; /* from one name to the next; 0 = name_bytes */
    size_t count;        /* 0 .. KVO_BATCH_MAX */
    kvo_space space;
    uint8_t kind;        /* kvo_kind */
    uint16_t layer_first;
    uint16_t layer_count; /* 0 = to the last */
    uint16_t head_group;
} kvo_names;

/*
 * Names by prefix: names[i] = SHA-256 over names[i-1] and the tokens of block i, so a name
 * stands for all tokens up to its end. The chain starts from `parent` (32 bytes) or, if that is
 * NULL, from the space's digest, `seed` and the tenant's `salt` (0 to 255 bytes): unequal salts
 * never share a name. Only whole blocks get a name: *count = token_count / block_tokens, at
 * most names_capacity. Tokens are 32-bit ids. The encoding and test vectors are in
 * docs/names.md. `names` receives 32 bytes each. KVO_E_MEMORY, KVO_E_UNSUPPORTED: the hash is not to
 * be had. Control, without a lock; about one SHA-256 of 40 + 4 x block_tokens bytes a name.
 */
typedef struct kvo_chain {
    size_t size;
    const uint8_t *space_digest; /* 32 bytes, from kvo_space_digest() */
    uint64_t seed;
    const void *salt;
    size_t salt_bytes;
    const uint8_t *parent; /* name of the block before tokens[0], or NULL */
    uint32_t block_tokens; /* 1 .. 65535 */
} kvo_chain;
#define KVO_CHAIN_INIT {sizeof(kvo_chain), 0, 0, 0, 0, 0, 0}
KVO_API int kvo_chain_names(const kvo_chain *chain, const uint32_t *tokens, size_t token_count,
                            uint8_t *names, size_t names_capacity, size_t *count);

/* ---- Answers, memory, targets ------------------------------------------- */

/* A control record's number and generation. Never 0. A stale one answers KVO_GONE. */
typedef uint64_t kvo_handle;

typedef struct kvo_answer {
    int32_t status;    /* kvo_status */
    uint8_t tier;      /* fastest tier with a copy, or KVO_NO_TIER */
    uint8_t tier_mask; /* bit i: tier i has a copy */
    uint8_t level;     /* KVO_SEALED, KVO_WRITTEN or KVO_SAFE; 0 if none */
    uint8_t reserved;
    uint32_t payload_bytes;
    uint32_t generation; /* 1, and one more for each rewrite */
    kvo_handle handle;   /* 0 where there is none */
} kvo_answer;

/* How far a block is stored. */
enum {
    KVO_SEALED = 1,  /* complete in some tier; memory's are lost with the process */
    KVO_WRITTEN = 2, /* in a persistent tier: survives the process */
    KVO_SAFE = 3     /* and flushed: survives a power cut */
};

typedef struct kvo_segment {
    void *base;
    size_t bytes;
} kvo_segment;

/*
 * The memory of a batch: block i's payload is the concatenation of segment_counts[i]
 * segments, taken one after the other from `segments`. Any alignment and number of segments;
 * empty ones are allowed. segment_counts NULL = one segment a block. In a ghost store bases
 * are ignored and only the lengths count.
 */
typedef struct kvo_memory {
    const kvo_segment *segments;
    const uint32_t *segment_counts;
} kvo_memory;

/* Which blocks a call speaks of. */
typedef enum kvo_by {
    KVO_BY_NAMES = 1,    /* names */
    KVO_BY_HANDLES = 2,  /* handles, handle_count */
    KVO_BY_SEQUENCE = 3, /* all blocks whose creator's sequence is `sequence` */
    KVO_BY_TENANT = 4,   /* all blocks of `tenant` */
    KVO_BY_SPACE = 5,    /* all blocks of `space` */
    KVO_BY_ALL = 6
} kvo_by;

typedef struct kvo_target {
    int by; /* kvo_by */
    kvo_names names;
    const kvo_handle *handles;
    size_t handle_count;
    uint64_t sequence;
    uint32_t tenant;
    kvo_space space;
} kvo_target;

/* ---- Policy ------------------------------------------------------------- */

typedef enum kvo_intent {
    KVO_INTENT_NONE = 0,
    KVO_INTENT_KEEP = 1,     /* evicted after all blocks without it, until the deadline */
    KVO_INTENT_PREFETCH = 2, /* bring it into the first tier before the deadline, then keep */
    KVO_INTENT_DEMOTE = 3,   /* first to leave the first tier; stays below */
    KVO_INTENT_DROP = 4      /* remove it after its next get (unless it is in transfer until the get's
                                deadline); first to leave every tier */
} kvo_intent;

typedef struct kvo_policy {
    uint16_t tenant;    /* whose it is: accounting, and the target of by-tenant calls */
    uint8_t qos;        /* class 0 (background) .. 3 (critical); default 1 */
    uint8_t priority;   /* 0 .. 100; default 50 */
    uint8_t reuse;      /* the scheduler's estimate, 0 .. 100; default 0 */
    uint8_t intent;     /* kvo_intent */
    uint64_t intent_ns; /* deadline of the intent, from now; 0 = none. Kept in whole
                           seconds, rounded up; at most 2 years */
} kvo_policy;
#define KVO_POLICY_INIT {0, 1, 50, 0, 0, 0}

/* Which fields to set. */
enum {
    KVO_POLICY_TENANT = 1 << 0,
    KVO_POLICY_QOS = 1 << 1,
    KVO_POLICY_PRIORITY = 1 << 2,
    KVO_POLICY_REUSE = 1 << 3,
    KVO_POLICY_INTENT = 1 << 4, /* intent and intent_ns together */
    KVO_POLICY_ALL = 31
};

/*
 * Order of eviction, worst first: intent drop; intent demote (first tier only); all others;
 * intent keep or prefetch until its deadline. Within each: lower QoS, then lower priority,
 * then the lower score of the store's placement, where `reuse` r adds r / 25 uses
 * (KVO_PLACE_CREDIT). A block never goes before its children in the same tier.
 *
 * A policy is one 64-bit word, so a reader sees the whole old or the whole new one. It is
 * kept over a restart for blocks that have a copy on disk: at the next write-out, or by
 * kvo_sync(). It changes the next decision.
 *
 * answers (may be NULL) is filled for BY_NAMES and BY_HANDLES: KVO_OK, KVO_MISS, KVO_GONE.
 * *changed (may be NULL): blocks that were set. KVO_E_RANGE: a field out of range, nothing set.
 * Control: names and handles without a lock, except for an intent (other than none), which takes short
 * ones; one pass over all records for the others.
 */
KVO_API int kvo_policy_set(kvo_store *store, const kvo_target *target, const kvo_policy *policy,
                           uint32_t mask, kvo_answer *answers, uint64_t *changed);

/* Reads back, BY_NAMES or BY_HANDLES, one policy and one answer a block. intent_ns is what is
   left. Pure. */
KVO_API int kvo_policy_get(kvo_store *store, const kvo_target *target, kvo_policy *policies,
                           kvo_answer *answers);

/* ---- Look-up ------------------------------------------------------------ */

/*
 * The longest prefix: looks names up in order until one is not there, and sets *matched to
 * how many were. answers[0 .. *matched) say where each is; the rest are KVO_MISS, the first
 * of them KVO_PENDING if it is being filled. For KVO_KIND_STATE, whose objects stand
 * alone, *matched is one more than the last that is there. `answers` may be NULL.
 * Rule 8: pins nothing, moves nothing, no recency. A block may be gone by the time of the
 * get, which then says KVO_MISS. Pure.
 */
KVO_API int kvo_match(kvo_store *store, const kvo_names *names, kvo_answer *answers, size_t *matched);

/* Each name for itself: KVO_OK, KVO_PENDING or KVO_MISS. Pure. */
KVO_API int kvo_exists(kvo_store *store, const kvo_names *names, kvo_answer *answers);

/*
 * Counts a use of each block, as a get would: for blocks that an engine found in its own
 * memory. The first name becomes the most recent, so that a chain's tail goes before its
 * head. Takes BY_NAMES and BY_HANDLES. KVO_OK, KVO_MISS, KVO_GONE. Control, without a lock.
 */
KVO_API int kvo_touch(kvo_store *store, const kvo_target *target, kvo_answer *answers);

/* ---- Put, reserve, get -------------------------------------------------- */

typedef struct kvo_put_options {
    size_t size;
    int level;             /* report when KVO_SEALED (default), KVO_WRITTEN or KVO_SAFE */
    uint64_t deadline_ns;  /* for room, for others' transfers and for the level; default 30 s */
    kvo_policy policy;     /* of new blocks */
    uint64_t sequence;     /* the creator's sequence id; 0 = none */
    uint32_t position;     /* of the first block: first position of a range, or the state's */
    const uint32_t *positions; /* one a block instead; or NULL = each block_positions further */
    int chained;           /* names[i-1] is the parent of names[i] */
    const void *parent;    /* parent of names[0] when chained; NULL = it has none */
    const void *parents;   /* one a block when not chained, at parents_stride_bytes; a name of
                              zeros = none; NULL = unknown. Never guessed from the order */
    size_t parents_stride_bytes; /* 0 = name_bytes */
    int trust_name;        /* do not compare the bytes of a block that exists with its digest */
} kvo_put_options;
#define KVO_PUT_OPTIONS_INIT \
    {sizeof(kvo_put_options), KVO_SEALED, 30000000000u, KVO_POLICY_INIT, 0, 0, 0, 0, 0, 0, 0, 0}

/*
 * Stores blocks. Per block: KVO_STORED; KVO_EXISTS (first seal wins, nothing is written;
 * counts as a use; other bytes under the name are counted in kvo_stat.digest_conflicts);
 * KVO_SIZE (exists with another length); KVO_BUSY (no room in time: everything is pinned,
 * held or moving; or the same name is being filled by another); KVO_FULL (the lower tiers
 * cannot take what must leave); KVO_REFUSED; KVO_SHORT (stored, level not reached in time).
 * Blocks are taken in order; a name twice in a batch exists the second time. options NULL =
 * defaults. Takes the payload's digest and copies it once; where the first tier is a disk, not at all
 * from memory that the device can read itself (aligned, whole pages). Data.
 */
KVO_API int kvo_put(kvo_store *store, const kvo_names *names, const kvo_memory *memory,
                    const kvo_put_options *options, kvo_answer *answers);

/*
 * For producers that write in place. kvo_reserve() gives writable memory of bytes[i] a
 * block, aligned to 4096, invisible to everybody (others see KVO_PENDING) until kvo_seal().
 * Answers as for put; KVO_OK = reserved. Fill by writing to .memory, or with kvo_fill(), which
 * checks the range. kvo_seal() takes the digest and publishes (KVO_STORED); the memory
 * must not be written from the moment it is called. kvo_abort() gives the room back. A
 * reservation is used up by seal and abort; using it again answers KVO_GONE. Close aborts the
 * rest. In a ghost store .memory is NULL. Data.
 */
typedef struct kvo_reservation {
    kvo_handle handle; /* 0: not reserved */
    void *memory;
    uint32_t payload_bytes;
    uint32_t token;
} kvo_reservation;
KVO_API int kvo_reserve(kvo_store *store, const kvo_names *names, const uint32_t *bytes,
                        const kvo_put_options *options, kvo_reservation *reservations,
                        kvo_answer *answers);
KVO_API int kvo_fill(kvo_store *store, const kvo_reservation *reservation, uint32_t offset_bytes,
                     const void *data, uint32_t bytes);
KVO_API int kvo_seal(kvo_store *store, const kvo_reservation *reservations, size_t count, int level,
                     uint64_t deadline_ns, kvo_answer *answers);
KVO_API int kvo_abort(kvo_store *store, const kvo_reservation *reservations, size_t count,
                      kvo_answer *answers);

typedef struct kvo_get_options {
    size_t size;
    uint64_t deadline_ns; /* for others' transfers and for room; default 30 s */
    int no_promote;       /* read a lower tier's copy without bringing it into the first */
} kvo_get_options;
#define KVO_GET_OPTIONS_INIT {sizeof(kvo_get_options), 30000000000u, 0}

/*
 * Copies payloads into the caller's memory and checks the digest of what arrived there.
 * Per block: KVO_OK; KVO_MISS (not here, or the copy was bad: it is quarantined and counted,
 * and the buffer's content is undefined); KVO_SIZE (the buffer is not exactly the block's
 * length; nothing was copied); KVO_BUSY. .tier is the tier that served it. A block found
 * below is promoted into the first tier if room can be made; several readers of one missing
 * block share one transfer. Counts a use; the first name becomes the most recent. Data.
 */
KVO_API int kvo_get(kvo_store *store, const kvo_names *names, const kvo_memory *memory,
                    const kvo_get_options *options, kvo_answer *answers);

/* ---- Pins and holds ----------------------------------------------------- */

/*
 * A pin is a pointer to a block's payload in memory, checked once against its digest. The
 * memory is mapped read-only (a write faults) and stays as it is until kvo_unpin() or
 * kvo_close(), whatever happens to the block: eviction passes it by, and a block removed
 * under a pin leaves when the last pin does. Answers as for get; also KVO_BUSY when
 * pins_max or a block's 4095 pins are reached. Needs a memory tier first
 * (KVO_E_UNSUPPORTED). Data.
 */
typedef struct kvo_pin {
    const void *memory;
    uint64_t token; /* 0: not pinned */
    uint32_t payload_bytes;
    uint32_t reserved;
} kvo_pin;
KVO_API int kvo_pin_blocks(kvo_store *store, const kvo_names *names, const kvo_get_options *options,
                           kvo_pin *pins, kvo_answer *answers);
/* Unpins and clears tokens. A token that is not (or no longer) a pin is skipped and the call
   answers KVO_GONE; nobody else's pin changes. Control. */
KVO_API int kvo_unpin(kvo_store *store, kvo_pin *pins, size_t count);

/*
 * A hold keeps blocks from eviction, in whatever tiers they are, until it is released or
 * duration_ns is over (1 ns .. KVO_FOREVER). One token for the batch: *hold, 0 if no block was
 * there. Answers: KVO_OK, KVO_MISS, KVO_BUSY (holds_max reached). Remove and rewrite ignore
 * holds. Control.
 */
KVO_API int kvo_hold(kvo_store *store, const kvo_names *names, uint64_t duration_ns, uint64_t *hold,
                     kvo_answer *answers);
KVO_API int kvo_release(kvo_store *store, uint64_t hold); /* KVO_GONE: released or expired */

/* ---- Sync, remove, rewrite ---------------------------------------------- */

/*
 * Brings blocks to a level: KVO_WRITTEN (a copy in a persistent tier) or KVO_SAFE (flushed,
 * one flush a tier and call), and writes out their policies. target NULL = all. answers for
 * BY_NAMES and BY_HANDLES: KVO_OK, KVO_MISS, KVO_GONE, KVO_SHORT. Returns KVO_SHORT if any block did
 * not get there in time, KVO_E_UNSUPPORTED without a persistent tier. Data.
 */
KVO_API int kvo_sync(kvo_store *store, const kvo_target *target, int level, uint64_t deadline_ns,
                     kvo_answer *answers);

/*
 * Removes blocks from every tier. When it returns no look-up finds them; at level
 * KVO_WRITTEN they are not back after a process crash, at KVO_SAFE not after a power cut.
 * Pinned memory stays readable until its last unpin. BY_SPACE removes the blocks, not
 * the space. answers as for sync, where KVO_SHORT also stands for a name that is not there, if what an
 * earlier remove or an eviction left of it did not get to the level; *removed (may be NULL) counts. Data.
 */
KVO_API int kvo_remove(kvo_store *store, const kvo_target *target, int level, uint64_t deadline_ns,
                       kvo_answer *answers, uint64_t *removed);

/*
 * The explicit exception to write-once: new bytes, possibly of another length, under a name
 * that is stored. Raises the generation, drops every other copy (on disk before the new
 * one is visible, so the old bytes never come back), and is accounted apart. Handles go
 * stale, holds end. format is a free code, 0 .. 15, kept with the block. Answers: KVO_STORED,
 * KVO_MISS (no such block: put it), KVO_BUSY (pinned, reserved or moving until the deadline),
 * KVO_FULL (no room for the new bytes), KVO_REFUSED (as for put, or rewritten 4095 times); the old
 * bytes are still served after each of these. An error of a medium (KVO_E_IO) may cost the block,
 * never shows old bytes for new. Look-ups may say KVO_PENDING, and for a moment KVO_MISS, while it is
 * being rewritten. Data.
 */
KVO_API int kvo_rewrite(kvo_store *store, const kvo_names *names, const kvo_memory *memory,
                        uint32_t format, const kvo_put_options *options, kvo_answer *answers);

/*
 * Brings blocks into the first tier, without counting a use. KVO_OK: there now; KVO_MISS;
 * KVO_BUSY: no room in time; none is taken from blocks that an intent keeps. .tier is where it came
 * from. KVO_E_UNSUPPORTED where the first tier is no memory. options->no_promote is ignored. Data.
 */
KVO_API int kvo_prefetch(kvo_store *store, const kvo_names *names, const kvo_get_options *options,
                         kvo_answer *answers);

/* ---- Jobs: the same calls without waiting -------------------------------- */

/*
 * A queue takes jobs from one consumer and gives it their reports: any number of queues a store,
 * each with job numbers, an event descriptor and reports of its own. Submitting does no work on
 * payloads and does not wait: threads of the store run the jobs (kvo_options.workers), long ones in
 * slices (but for a sync, which is one), so that none keeps the others waiting.
 *
 * - A batch is queued whole or not at all (KVO_BUSY: jobs_max; take reports first. KVO_E_STATE: the
 *   queue is being closed. KVO_E_MEMORY). Other mistakes are those of the blocking call, at once,
 *   and nothing is queued.
 * - Each queued job gets exactly one report, whatever happens to it. Until kvo_poll() has
 *   returned that, payload memory and `answers` belong to the store; names, handles, segments and
 *   options are copied and free at once.
 * - Deadlines count from the submit. What is not begun by then answers KVO_BUSY; a transfer that runs is
 *   not cut short, so that memory comes back with the report and is the caller's alone. 0: each
 *   block is tried once, whenever its turn is.
 * - Jobs run in no particular order, and several at a time; where order matters, wait for a report.
 */
typedef struct kvo_queue kvo_queue;
typedef uint64_t kvo_job; /* counts from 1 in its queue; 0 = none */

typedef struct kvo_queue_options {
    size_t size;
    uint32_t jobs_max; /* whose report is not taken yet; 0 = 1024; 1 .. 65536 */
} kvo_queue_options;
#define KVO_QUEUE_OPTIONS_INIT {sizeof(kvo_queue_options), 0}

typedef struct kvo_report {
    kvo_job job;
    void *context;       /* as submitted */
    int32_t status;      /* what the blocking call would have returned, or KVO_CANCELLED: asked for in
                            time to leave something undone; the answers say what */
    uint32_t reserved;
    kvo_answer *answers; /* as submitted; each one is filled if the call fills them */
    size_t count;        /* of answers; 0 where a target names no blocks */
    size_t ok_count;     /* answers KVO_OK, KVO_STORED or KVO_EXISTS */
    uint64_t removed;    /* by a remove */
    uint64_t hold;       /* by an exists that holds: the token for kvo_release(); 0 = none */
    uint64_t waited_ns;  /* from the submit to the first work on it */
    uint64_t taken_ns;   /* from the submit to the end */
} kvo_report;

/* KVO_E_MEMORY, KVO_E_RANGE. The first queue of a store starts its workers. Control. */
KVO_API int kvo_queue_open(kvo_store *store, const kvo_queue_options *options, kvo_queue **queue);
/*
 * Cancels what is left, waits until no job runs, and frees the queue; reports that were not taken are
 * gone with it. KVO_BUSY: a job still runs at the deadline, for instance because a device does not
 * give memory back; the queue stays, takes no jobs, and can be closed again. NULL is allowed. Must
 * be the last call on the queue. Data.
 */
KVO_API int kvo_queue_close(kvo_queue *queue, uint64_t deadline_ns);

KVO_API int kvo_submit_put(kvo_queue *queue, const kvo_names *names, const kvo_memory *memory,
                           const kvo_put_options *options, kvo_answer *answers, void *context, kvo_job *job);
KVO_API int kvo_submit_get(kvo_queue *queue, const kvo_names *names, const kvo_memory *memory,
                           const kvo_get_options *options, kvo_answer *answers, void *context, kvo_job *job);
KVO_API int kvo_submit_prefetch(kvo_queue *queue, const kvo_names *names, const kvo_get_options *options,
                                kvo_answer *answers, void *context, kvo_job *job);
/* For engines that ask through their completion loop: kvo_exists(), or, with hold_ns (from when it runs),
   kvo_hold(), so that what is there stays until the get. kvo_exists() itself never waits. */
KVO_API int kvo_submit_exists(kvo_queue *queue, const kvo_names *names, uint64_t hold_ns, kvo_answer *answers,
                              void *context, kvo_job *job);
/* target NULL = all. answers may be NULL, and are filled for BY_NAMES and BY_HANDLES. */
KVO_API int kvo_submit_sync(kvo_queue *queue, const kvo_target *target, int level, uint64_t deadline_ns,
                            kvo_answer *answers, void *context, kvo_job *job);
KVO_API int kvo_submit_remove(kvo_queue *queue, const kvo_target *target, int level, uint64_t deadline_ns,
                              kvo_answer *answers, void *context, kvo_job *job);

/* A request: what the job has not begun is left undone (KVO_CANCELLED), a slice or a sync that runs runs
   to its end. The report comes as always. KVO_GONE: no such job, or its report is already there.
   Control. */
KVO_API int kvo_cancel(kvo_queue *queue, kvo_job job);

/* Takes up to `capacity` reports, in order of completion, waiting up to timeout_ns for the first
   while a job is pending. *count may be 0. Control. */
KVO_API int kvo_poll(kvo_queue *queue, kvo_report *reports, size_t capacity, uint64_t timeout_ns,
                     size_t *count);

/* A descriptor for poll(2) or epoll that is readable while reports wait. It belongs to the queue; only
   kvo_poll() makes it unreadable, so do not read it. -1: no queue, or a forked child. Control. */
KVO_API int kvo_queue_event(const kvo_queue *queue);

/* *count: jobs whose report is not taken yet. Control. */
KVO_API int kvo_pending(kvo_queue *queue, uint64_t *count);

/* Waits until every job submitted before has its report ready to be taken. KVO_SHORT: not in time. */
KVO_API int kvo_drain(kvo_queue *queue, uint64_t deadline_ns);

/* ---- What is in it ------------------------------------------------------ */

typedef struct kvo_tier_stat {
    char name[16]; /* "dram", "disk"; a second one of a kind is "disk2" */
    char path[256];
    int present;   /* 0: a tier of earlier runs, known from the ledger only */
    int direct_io; /* disk: transfers go past the page cache; 0 also once the file system has refused that late */
    uint64_t capacity_bytes;  /* for payload and its headers; KVO_INFINITE */
    uint64_t capacity_blocks; /* slots of block_bytes, or of 64 KiB if that is unset */
    uint64_t used_bytes;
    uint64_t resident_blocks;
    /* Totals since the store was created, except max_delta (of what was seen since open). */
    uint64_t hits;          /* gets and pins served from here */
    uint64_t read_bytes;    /* payload read from it */
    uint64_t written_bytes; /* payload written to it: put, demote, promote */
    uint64_t repair_bytes;
    uint64_t rewrite_bytes;
    uint64_t failed_bytes;
    uint64_t metadata_bytes; /* all that is written and not payload */
    uint64_t lives;          /* block lives that entered it */
    uint64_t life_bytes;     /* their payload */
    uint64_t clean_discards; /* evictions with a copy below */
    uint64_t other_evictions; /* evictions with none below */
    uint64_t orphans;        /* evictions of a block with a resident child here */
    uint64_t anchor_yields;
    uint64_t promotions;     /* out of it */
    uint64_t io_errors;      /* kvo_ledger() has the tier's operations, their denominator */
    uint32_t max_delta;      /* most demotions of one life into it */
    uint64_t injected;       /* faults and delays by its wrappers, since open */
} kvo_tier_stat;

typedef struct kvo_stat {
    size_t size;
    uint32_t tier_count; /* kvo_stat_tier() knows this many, the present ones first */
    uint32_t present_tier_count;
    uint64_t blocks;
    uint64_t blocks_max;
    uint64_t references;        /* the reference clock: block references so far */
    uint64_t puts, put_exists, put_busy, put_full;
    uint64_t put_waits;         /* puts that waited for room */
    uint64_t gets, get_misses;
    uint64_t payloads_verified; /* the denominator of the next one */
    uint64_t digest_misses;     /* copies that did not match and were quarantined */
    uint64_t digest_conflicts;  /* puts of a stored name with other bytes; of put_exists, which are compared
                                   unless put with trust_name */
    uint64_t rewrites, removes;
    uint64_t pinned_blocks, held_blocks, reserved_blocks;
    uint64_t control_bytes;     /* all memory but payload's, transfers' and submitted jobs' */
    uint64_t recovered_blocks;  /* found at open */
    uint64_t unfinished_slots;  /* at open: writes that a crash cut short */
    uint64_t damaged_slots;     /* at open: unreadable slot headers */
    /* The data plane, since open. */
    int io_engine;              /* kvo_io_engine chosen; 0: a ghost */
    int io_registered;          /* 1: staging memory is registered with the kernel (io_uring, and
                                   RLIMIT_MEMLOCK allows it); 0: it is not, or was not used yet */
    uint64_t transfers;         /* blocks written to or read from media */
    uint64_t submissions;       /* requests handed to the kernel for them: one each, more where the
                                   kernel returned a part */
    uint64_t payload_copies;    /* payloads copied by the processor */
    uint64_t demoted_ahead;     /* blocks that the mover brought down before room was needed */
    uint64_t record_bytes;      /* one control record: policy and mechanism of a block */
    uint64_t headers_read;      /* at open, of slots, used or not: the denominator of unfinished_slots and
                                   damaged_slots; 0: a checkpoint told instead, and they are 0 too */
    uint32_t unclean_tiers;     /* at open: present ones that were not closed in order */
} kvo_stat;
#define KVO_STAT_INIT \
    {sizeof(kvo_stat), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
                       0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* Counters are exact at rest and may be a moment apart under load. Control. */
KVO_API int kvo_stat_store(kvo_store *store, kvo_stat *stat);
KVO_API int kvo_stat_tier(kvo_store *store, uint32_t index, kvo_tier_stat *stat);

typedef struct kvo_space_stat {
    kvo_space space;
    char label[64];
    char description[1024]; /* one line */
    uint8_t digest[32];
    uint64_t block_bytes_max;
    uint64_t blocks;
    uint64_t payload_bytes;
} kvo_space_stat;
typedef struct kvo_tenant_stat {
    uint32_t tenant;
    uint64_t blocks;
    uint64_t payload_bytes;
    uint64_t resident_blocks[KVO_TIERS_MAX];
} kvo_tenant_stat;
/* Fill up to `capacity` entries; *count is how many there are. One pass over all records. Control. */
KVO_API int kvo_stat_spaces(kvo_store *store, kvo_space_stat *stats, size_t capacity, size_t *count);
KVO_API int kvo_stat_tenants(kvo_store *store, kvo_tenant_stat *stats, size_t capacity, size_t *count);

/*
 * Rule 11: each byte that crossed a tier's boundary, once; and each copy that left, of which no byte moves. So
 * in each tier, in blocks and in bytes, what was written by put, demote, promote, rewrite and repair, with what
 * openings found (written, recover), less all that left, is what is there.
 */
typedef struct kvo_ledger_row {
    char tier[16];
    int direction; /* 0 = read from the tier, 1 = written to it, 2 = left it: to make room (evict, orphan, yield,
                      resize), because of a remove, a rewrite, a failed copy (failed, unread) or a move
                      (promote), or missed by an opening (recover): memory's at each, others' after a crash */
    int cause;     /* kvo_cause */
    uint32_t tenant;
    uint64_t bytes;
    uint64_t operations;
} kvo_ledger_row;
/* Fills up to `capacity` rows that are not zero; *count is how many there are. Kept over restarts;
   a crash loses what happened since the last write-out. Control. */
KVO_API int kvo_ledger(kvo_store *store, kvo_ledger_row *rows, size_t capacity, size_t *count);

typedef struct kvo_copy_info {
    uint8_t tier;
    uint8_t format;
    uint16_t pins;
    uint32_t slot;         /* byte offset in the tier / 4096 */
    uint64_t offset_bytes; /* of the slot in the tier's file or arena */
} kvo_copy_info;

typedef struct kvo_block_info {
    kvo_handle handle;
    kvo_space space;
    uint8_t name[KVO_NAME_BYTES_MAX];
    uint8_t name_bytes;
    uint8_t kind;
    uint16_t layer_first, layer_count, head_group;
    uint64_t sequence;
    uint32_t position, positions;
    uint32_t payload_bytes;
    uint8_t digest[16]; /* XXH3-128 of the payload, canonical (big-endian) form */
    uint8_t identity[128]; /* the identity record as it lies on every medium */
    int has_parent;
    kvo_handle parent;  /* 0: none, or not here */
    kvo_policy policy;
    uint64_t last_use;  /* reference clock */
    uint32_t uses;
    uint32_t generation; /* 1 + rewrites */
    uint8_t delta[KVO_TIERS_MAX]; /* demotions in this life into tier i, as the store that wrote the
                                     block counted its tiers; [0] is 0 */
    uint32_t copy_count;
    kvo_copy_info copies[KVO_TIERS_MAX];
} kvo_block_info;

/*
 * Lists blocks, sealed ones only. Start with *cursor = 0; each call fills up to `capacity`
 * entries that match `filter` (NULL = all; BY_SEQUENCE, BY_TENANT, BY_SPACE; BY_NAMES and
 * BY_HANDLES ignore the cursor) and moves the cursor; *count = 0 is the end. A block that
 * stays for the whole walk is listed once; one that comes or goes may or may not be. Control.
 */
KVO_API int kvo_walk(kvo_store *store, const kvo_target *filter, uint64_t *cursor,
                     kvo_block_info *infos, size_t capacity, size_t *count);

typedef struct kvo_bad_slot {
    const char *file;      /* path; valid during the callback */
    uint64_t offset_bytes; /* of the slot in it */
    const char *what;      /* "payload digest", "header checksum", ... */
    const uint8_t *name;   /* NULL where the header does not tell */
    uint8_t name_bytes;
    const char *remedy;    /* what kvo_repair() does about it, or has done: "made void", "written again",
                              "left as it is" */
} kvo_bad_slot;
typedef struct kvo_verify_result {
    uint64_t slots;      /* that hold a block */
    uint64_t bad;
    uint64_t unfinished; /* cut short by a crash: not damage */
    uint64_t repaired;   /* of the bad ones, by kvo_repair() */
    uint64_t unclean;    /* directories that were not closed in order before this opening */
} kvo_verify_result;
/*
 * Reads every slot of every disk tier and checks header, payload and padding, and that both copies of
 * the spaces are whole. Changes nothing. For a store opened READ_ONLY, where no slot changes meanwhile;
 * KVO_E_STATE otherwise. Data.
 */
KVO_API int kvo_verify(kvo_store *store, void (*on_bad)(void *context, const kvo_bad_slot *bad),
                       void *context, kvo_verify_result *result);

/*
 * The same for a store opened to write, and mends what it finds, so that the next look finds nothing:
 * a slot whose header or payload is damaged is made void (its block is a miss, and may be put again); a
 * segment's header, zeros behind a payload and a copy of the spaces (which each opening does) are written
 * again, where all that matters of them is known.
 * A block whose payload is whole stays, whatever else is wrong. Left as they are: what cannot be read now,
 * since it may be whole, and pages of another version. All is flushed at the end; the close writes a new
 * checkpoint. Doing it twice changes nothing more. For KVO_OPEN_STEPPED (KVO_E_STATE otherwise) and disk
 * tiers alone (KVO_E_UNSUPPORTED), and while nothing else is called. KVO_E_IO and others: a repair could
 * not be written. Data.
 */
KVO_API int kvo_repair(kvo_store *store, void (*on_bad)(void *context, const kvo_bad_slot *bad),
                       void *context, kvo_verify_result *result);

/* Writes out policies, recency and ledger now, as the store does by itself every write_out_ns. Data. */
KVO_API int kvo_write_out(kvo_store *store);

#ifdef __cplusplus
}
#endif
#endif
