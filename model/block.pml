/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a block, for spin: one name, two records, a memory of two slots above a disk of two. Each proctype is one
 * call of the store, or a part of one; -D says how many of each run beside each other (model_test.py has the sets), and
 * spin tries all their interleavings. What other threads can come between in the store is a step of its own here: what
 * is done under the store's lock, a compare-and-swap of a copy word, a read or write of a page or of a payload. Readers
 * look, pin and unpin without the lock: what is done under it in an order that matters to them is a step for each word.
 * "C:" names the functions that a step stands for; model_test.py checks that they exist.
 *
 * Nothing waits: who would have to gives up, as with a deadline of 0, so that all runs end. Payloads are numbers: each
 * put and each rewrite brings another version, and 0 is none, or half of one.
 *
 * Asserted:
 *   a reader is served the version that it pinned, whole, and one that was the name's at some moment of its call;
 *   a copy is found bad only where the medium destroyed it, and then the name is free, or has a better copy, at once;
 *   the name has one block, and the first seal wins;
 *   memory and slots that somebody reads or writes are neither freed nor written by others;
 *   a life is demoted once, repairs apart;
 *   what is held stays;
 *   were the process killed, or the power cut, at any moment: what was last reported written, or safe, is found;
 *   what was removed or rewritten at that level is not found, nor is half a version, nor one that nobody sealed.
 *
 * -DBREAK_NAME leaves out what this rests on, and must be found: model_test.py lists the names.
 */
#ifndef WRITERS
#define WRITERS 1
#endif
#ifndef READERS
#define READERS 0
#endif
#ifndef MOVERS
#define MOVERS 0
#endif
#ifndef EVICTORS
#define EVICTORS 0
#endif
#ifndef HOLDERS
#define HOLDERS 0
#endif
#ifndef SYNCERS
#define SYNCERS 0
#endif
#ifndef REMOVERS
#define REMOVERS 0
#endif
#ifndef REWRITERS
#define REWRITERS 0
#endif
#ifndef ROT
#define ROT 0
#endif

#define NONE 255
#define RECORDS 2
#define SLOTS 2
#define TORN 0 /* a payload */
#define DEAD 0 /* a header */

/* ---- the store ---- */

#define EMPTY 0
#define FILLING 1
#define VALID 2
#define BAD 3

typedef copy_word {
    byte state;
    byte slot;
    byte pins;
    bool moving
};

typedef block_record {
    bool used, sealed, doomed, held, repair;
    bool closed;      /* its copies have all the pins they can have */
    byte incarnation;
    byte version;     /* of the identity: its digest */
    byte delta;
    copy_word copy[2] /* above, below */
};

block_record record[RECORDS];
#define ABOVE(r) record[r].copy[0]
#define BELOW(r) record[r].copy[1]
#define LIVE(r) (record[r].used && record[r].sealed && !record[r].doomed)

byte arena[SLOTS];
bool arena_used[SLOTS];

bool locked; /* by who does something in several steps */

bool disk_used[SLOTS];
bool stale[SLOTS];   /* its header may say what no block's copy says, or soon not any more */
bool writing[SLOTS]; /* a block's write is on its way */
byte erasing;        /* dead headers on their way to stale slots */
byte turns;          /* of removes and rewrites */
byte doom_turn[2];   /* of removes that overwrite the headers of their block's copies; 0: not */

/* ---- the medium ---- */

/* Of each slot the header's version and write number, and the payload's version. */
typedef medium {
    byte header[SLOTS], number[SLOTS], payload[SLOTS]
};
medium disk;
medium flushed;      /* as of the last flush */
byte numbers;        /* write numbers given */
bool unsure[SLOTS];  /* a write is on its way or failed: the mark of completed writes is below its number */
bool settled[SLOTS]; /* nothing was written since the last flush: its mark is not below */

/* ---- what the outside world knows ---- */

#define BIT(v) (1 << (v))
byte current;      /* version of the name's sealed block; 0: none */
byte window[3];    /* of each reader: the versions that were current since its call began, one bit each */
byte sealed;       /* versions ever sealed, one bit each */
byte written;      /* version that was reported written and has not gone since; 0: none */
byte safe;         /* the same of safe */
byte gone_written; /* versions removed or rewritten at a level, one bit each */
byte gone_safe;
bool by_will;      /* a remove or a rewrite began */
bool rotten;       /* the medium destroyed a payload: what lies there promises no more */


inline set_current(v)
{
    current = v;
    window[0] = window[0] | BIT(v);
    window[1] = window[1] | BIT(v);
    window[2] = window[2] | BIT(v)
}

inline report_none()
{
    written = 0;
    safe = 0
}

/* ---- records, copies, slots ---- */

#define FOUND(r) (record[r].used && !record[r].doomed)

/* C: index_find() */
inline find(r)
{
    assert(!(FOUND(0) && FOUND(1)));
    r = (FOUND(0) -> 0 : (FOUND(1) -> 1 : NONE))
}

/* C: block_in_transfer() */
#ifdef BREAK_TRANSFER
#define IN_TRANSFER(r) false
#else
#define IN_TRANSFER(r) (ABOVE(r).moving || BELOW(r).moving || ABOVE(r).state == FILLING || BELOW(r).state == FILLING)
#endif

#define RECORD_ROOM (!record[0].used || !record[1].used)
#define ARENA_ROOM (!arena_used[0] || !arena_used[1])
#define DISK_ROOM (!disk_used[0] || !disk_used[1])

/* C: place_slot_take() */
inline arena_take(m)
{
    m = (arena_used[0] -> 1 : 0);
    arena_used[m] = true
}

inline disk_take(d)
{
    if
    :: !disk_used[0] -> d = 0
    :: !disk_used[1] -> d = 1
    fi;
    disk_used[d] = true
}

inline copy_clear(word)
{
    word.state = EMPTY;
    word.slot = 0;
    word.moving = false
}

#ifdef BREAK_INCARNATION
#define NEXT(incarnation) incarnation
#else
#define NEXT(incarnation) ((incarnation + 1) % 8)
#endif

/* C: store_record_free() */
inline record_free(r)
{
    assert(ABOVE(r).state == EMPTY && BELOW(r).state == EMPTY);
    record[r].used = false;
    record[r].sealed = false;
    record[r].doomed = false;
    record[r].held = false;
    record[r].repair = false;
    record[r].version = 0;
    record[r].delta = 0;
    record[r].incarnation = NEXT(record[r].incarnation)
}

/* C: store_doom() */
inline doom(r)
{
    record[r].doomed = true;
    set_current(0)
}

/* C: store_end() */
inline end_block(r)
{
    if
    :: LIVE(r) -> set_current(0)
    :: else
    fi;
    record_free(r)
}

/* C: store_copy_drop() */
inline arena_drop(r)
{
    assert(ABOVE(r).pins == 0 && ABOVE(r).state == VALID);
    arena_used[ABOVE(r).slot] = false;
    copy_clear(ABOVE(r))
}

/* C: store_stale_add() */
inline stale_add(d)
{
#ifndef BREAK_STALE
    stale[d] = true
#else
    skip
#endif
}

inline disk_drop(r)
{
    assert(BELOW(r).pins == 0 && (BELOW(r).state == VALID || BELOW(r).state == BAD) && !writing[BELOW(r).slot]);
    disk_used[BELOW(r).slot] = false;
    copy_clear(BELOW(r))
}

/* C: store_reap() */
inline reap(r)
{
    if
    :: record[r].doomed && ABOVE(r).state == VALID && ABOVE(r).pins == 0 && !ABOVE(r).moving -> arena_drop(r)
    :: else
    fi;
    if
    :: BELOW(r).state == BAD && BELOW(r).pins == 0 && !BELOW(r).moving ->
        stale_add(BELOW(r).slot);
        disk_drop(r)
    :: record[r].doomed && BELOW(r).state == VALID && BELOW(r).pins == 0 && !BELOW(r).moving ->
        disk_drop(r)
    :: else
    fi;
    if
    :: record[r].used && record[r].sealed && ABOVE(r).state == EMPTY && BELOW(r).state == EMPTY -> end_block(r)
    :: else
    fi
}

#ifdef BREAK_PIN
#define ONE_PIN 0
#else
#define ONE_PIN 1
#endif

/* Who was the last reader, also of what is to go, sees to it, unless the record is another block's by then.
   C: store_unpin(), block_unpin() */
inline unpin(r, word, last)
{
    atomic {
        word.pins = word.pins - ONE_PIN;
        last = (word.pins == 0 && (word.state == BAD || record[r].doomed) -> record[r].incarnation : NONE)
    }
    if
    :: last == NONE
    :: last != NONE -> atomic {
        !locked;
        if
        :: record[r].used && record[r].incarnation == last -> reap(r)
        :: else
        fi
       }
    fi
}

#ifdef BREAK_KNOWN
#define KNOWN(d) skip
#else
#define KNOWN(d) stale_add(d)
#endif

/* Nothing is left of the block but a bad copy. It goes with its last reader, and until then a remove of the name, which
   finds no block, finds the header. C: doom_bad() */
inline doom_bad(r)
{
    doom(r);
    KNOWN(BELOW(r).slot)
}

/* Its copy below is none any more. C: store_retire(), allow_repair() */
inline lose_below(r)
{
    report_none();
    if
    :: ABOVE(r).state == EMPTY -> doom_bad(r)
    :: ABOVE(r).state != EMPTY && BELOW(r).state == VALID -> record[r].repair = true
    :: else
    fi;
    BELOW(r).state = BAD
}

/* ---- a put: reserve, fill, seal ---- */

#ifdef BREAK_FIRST_SEAL
#define NAME_FREE(r) true
#else
#define NAME_FREE(r) (r == NONE)
#endif

proctype writer(byte version)
{
    byte r, m;
    atomic { /* C: store_reserve(), name_taken(), record_begin() */
        !locked;
        find(r);
        if
        :: NAME_FREE(r) && RECORD_ROOM && ARENA_ROOM ->
            r = (record[0].used -> 1 : 0);
            arena_take(m);
            record[r].used = true;
            record[r].version = version;
            ABOVE(r).state = FILLING;
            ABOVE(r).slot = m
        :: else -> goto done /* KVO_EXISTS, KVO_BUSY */
        fi
    }
    arena[m] = TORN; /* C: digest_gather() */
    if
    :: arena[m] = version
    :: atomic { /* C: store_abort() */
        !locked;
        arena_used[m] = false;
        copy_clear(ABOVE(r));
        record_free(r);
        goto done
       }
    fi;
    atomic { /* C: store_seal(): what is sealed has a copy */
        !locked;
        locked = true;
        assert(!record[r].sealed && current == 0);
        ABOVE(r).state = VALID
    }
    atomic {
        locked = false;
        record[r].sealed = true;
        sealed = sealed | BIT(version);
        set_current(version)
    }
done:
    skip
}

/* ---- a get, or a pin: look, pin, bring up or read past memory, check, unpin ---- */

#ifdef BREAK_CLOSE
#define CAN_PIN(r, word) (word.state == VALID)
#else
#define CAN_PIN(r, word) (word.state == VALID && !record[r].closed)
#endif
#ifdef BREAK_DIGEST
#define MATCHES(bytes, version) true
#else
#define MATCHES(bytes, version) (bytes == version)
#endif
#ifdef BREAK_EARLY_PROMOTE
#define COMING VALID
#else
#define COMING FILLING
#endif

/* The payload, if the header is the block's. C: finish_read(), disk_header_check() */
#define READ(r) (disk.header[BELOW(r).slot] == record[r].version -> disk.payload[BELOW(r).slot] : TORN)

proctype reader(byte self)
{
    byte r, m, before, version, bytes, last;
    bool below;
    atomic { /* C: look() */
        window[self] = BIT(current);
        find(r);
        if
        :: r != NONE && record[r].sealed -> before = record[r].incarnation
        :: else -> goto done
        fi
    }
    atomic { /* C: pin_fastest(), block_pin() */
        if
        :: CAN_PIN(r, ABOVE(r)) -> ABOVE(r).pins = ABOVE(r).pins + ONE_PIN
        :: !CAN_PIN(r, ABOVE(r)) && CAN_PIN(r, BELOW(r)) -> below = true; BELOW(r).pins = BELOW(r).pins + ONE_PIN
        :: else -> goto done
        fi
    }
    atomic {
        if
        :: LIVE(r) && record[r].incarnation == before -> version = record[r].version
        :: else -> goto leave
        fi
    }
    if
    :: !below -> goto serve
    :: below
    fi;
    atomic { /* C: claim_room() */
        !locked;
        if
        :: ABOVE(r).state == EMPTY && ARENA_ROOM ->
            arena_take(m);
            ABOVE(r).slot = m;
            ABOVE(r).state = COMING
        :: true -> goto past
        fi
    }
    arena[m] = TORN; /* C: read_tier() */
    bytes = READ(r);
    arena[m] = bytes;
    atomic { /* C: check(), publish(), promoted() */
        !locked;
        if
        :: MATCHES(bytes, version) ->
            ABOVE(r).state = VALID;
            ABOVE(r).pins = ABOVE(r).pins + ONE_PIN;
            below = false
        :: else ->
            arena_used[m] = false;
            copy_clear(ABOVE(r));
            goto bad
        fi
    }
    unpin(r, BELOW(r), last);
serve:
    bytes = arena[ABOVE(r).slot]; /* C: deliver_copy() */
    assert(bytes == version);
    atomic { /* a pin's memory is as it was, and a copy's last byte of the same version as its first */
        bytes = arena[ABOVE(r).slot];
        assert(bytes == version && (window[self] & BIT(version)));
        goto leave
    }
past:
    atomic { /* C: read_below() */
        bytes = READ(r);
        if
        :: MATCHES(bytes, version) -> assert(bytes == version && (window[self] & BIT(version))); goto leave
        :: else
        fi
    }
bad:
    atomic { /* C: read_failed(), store_quarantine(), store_reap() */
        !locked;
        if
        :: record[r].doomed
        :: else ->
            assert(rotten);
            lose_below(r)
        fi;
        assert(record[r].doomed || ABOVE(r).state != EMPTY);
        BELOW(r).pins = BELOW(r).pins - ONE_PIN;
        reap(r);
        goto done
    }
leave:
    if
    :: below -> unpin(r, BELOW(r), last)
    :: !below -> unpin(r, ABOVE(r), last)
    fi;
done:
    skip
}

/* ---- demotion ---- */

/* What lies on the medium from the first to the last moment of a write, and may stay when it fails: in any order of
   the pages nothing, or only bytes that count for nothing, or the header, or all. C: begin_write(), disk_header_fill() */
inline write_begin(to, bytes)
{
    writing[to] = true;
    unsure[to] = true;
    settled[to] = false;
    numbers++;
    if
    :: true
    :: disk.payload[to] = TORN
    :: disk.header[to] = bytes; disk.number[to] = numbers; disk.payload[to] = TORN
    :: disk.header[to] = bytes; disk.number[to] = numbers; disk.payload[to] = bytes
    fi
}

proctype mover()
{
    byte r, d, version, number;
    atomic { /* C: demotion_begin(), demotion_room() */
        !locked;
        find(r);
        if
        :: r != NONE && record[r].sealed && ABOVE(r).state == VALID && !ABOVE(r).moving && BELOW(r).state == EMPTY &&
           DISK_ROOM ->
            ABOVE(r).moving = true;
            disk_take(d);
            BELOW(r).slot = d;
#ifdef BREAK_EARLY_DEMOTE
            BELOW(r).state = VALID;
            written = record[r].version
#else
            BELOW(r).state = FILLING
#endif
        :: else -> goto done
        fi
    }
    atomic {
        version = record[r].version;
        write_begin(d, version);
        number = numbers
    }
    if
    :: atomic { /* C: finish_write(), demoted_ok(), store_copy_set(), store_stale_forget(), unmove() */
        !locked;
        assert(LIVE(r) && ABOVE(r).state == VALID && ABOVE(r).moving && arena[ABOVE(r).slot] == record[r].version);
        disk.header[d] = record[r].version;
        disk.number[d] = number;
        disk.payload[d] = arena[ABOVE(r).slot];
        writing[d] = false;
        unsure[d] = false;
        record[r].delta = (record[r].repair -> record[r].delta : record[r].delta + 1);
        record[r].repair = false;
        assert(record[r].delta <= 1);
        BELOW(r).state = VALID;
        stale[d] = false;
        ABOVE(r).moving = false;
        written = record[r].version
       }
    :: atomic { /* C: demoted_badly(), unmove() */
        !locked;
        writing[d] = false;
        stale_add(d);
        disk_used[d] = false;
        copy_clear(BELOW(r));
        ABOVE(r).moving = false
       }
    fi;
done:
    skip
}

/* ---- eviction ---- */

#ifdef BREAK_ANCHOR
#define ANCHORED(r) false
#else
#define ANCHORED(r) (ABOVE(r).state != EMPTY)
#endif
#define IDLE(word) (word.state == VALID && word.pins == 0 && !word.moving)

proctype evictor()
{
    byte r;
    atomic { /* C: judge(), victim_stands(), room_evict(), store_end_without() */
        !locked;
        find(r);
        if
        :: r != NONE && record[r].sealed && !record[r].held && IDLE(ABOVE(r)) && BELOW(r).state == VALID ->
            arena_drop(r)
        :: r != NONE && record[r].sealed && !record[r].held && IDLE(ABOVE(r)) && BELOW(r).state != VALID ->
            arena_drop(r); /* C: yield(), leave() */
            if
            :: BELOW(r).state == EMPTY -> end_block(r)
            :: else -> doom_bad(r)
            fi
        :: r != NONE && record[r].sealed && !record[r].held && IDLE(BELOW(r)) && !ANCHORED(r) ->
            stale_add(BELOW(r).slot);
            disk_drop(r);
            report_none();
            if
            :: ABOVE(r).state == EMPTY -> end_block(r)
            :: else
            fi
        :: else
        fi
    }
}

/* ---- a hold ---- */

proctype holder()
{
    byte r, before;
    atomic { /* C: hold_one() */
        !locked;
        find(r);
        if
        :: r != NONE && LIVE(r) ->
            before = record[r].incarnation;
#ifndef BREAK_HOLD
            record[r].held = true
#endif
        :: else -> goto done
        fi
    }
    atomic { /* C: entry_free() */
        !locked;
        assert(by_will || rotten || (LIVE(r) && record[r].incarnation == before));
        if
        :: record[r].used && record[r].incarnation == before -> record[r].held = false
        :: else
        fi
    }
done:
    skip
}

/* ---- level safe ---- */

/* C: tier_flush() */
inline flush()
{
    d_step {
        flushed.header[0] = disk.header[0];
        flushed.number[0] = disk.number[0];
        flushed.payload[0] = disk.payload[0];
        settled[0] = !writing[0];
        flushed.header[1] = disk.header[1];
        flushed.number[1] = disk.number[1];
        flushed.payload[1] = disk.payload[1];
        settled[1] = !writing[1]
    }
}

proctype syncer()
{
    byte r, before, slot;
    atomic { /* C: set_level() */
        find(r);
        if
        :: r != NONE && record[r].sealed && BELOW(r).state == VALID ->
            before = record[r].incarnation;
            slot = BELOW(r).slot
        :: else -> goto done
        fi
    }
#ifndef BREAK_FLUSH
    flush(); /* C: flush_all() */
#endif
    atomic { /* what was removed, rewritten or evicted meanwhile is not reported */
        if
        :: LIVE(r) && record[r].incarnation == before && BELOW(r).state == VALID && BELOW(r).slot == slot ->
            safe = record[r].version
        :: else
        fi
    }
done:
    skip
}

/* ---- headers off the medium ---- */

inline dead(d)
{
    numbers++;
    disk.header[d] = DEAD;
    disk.number[d] = numbers;
    unsure[d] = false;
    settled[d] = false
}

/* One stale slot: off the table and in use, written, free again; or back on the table where the medium did not take
   it. One that is in use fails it: -ETIMEDOUT. C: take_slot(), invalidate(), disk_invalidate() */
inline erase(d, failed)
{
    if
    :: atomic { !locked && stale[d] && !disk_used[d] -> disk_used[d] = true; stale[d] = false; erasing++ }
        atomic {
            !locked;
            if
            :: dead(d)
            :: stale[d] = true; failed = true
            fi;
            disk_used[d] = false;
            erasing--
        }
    :: atomic { stale[d] && disk_used[d] -> failed = true }
    :: !stale[d]
    fi
}

#ifdef BREAK_ERASURE
#define OTHERS_ERASE(turn) false
#else
/* C: others_erase() */
#define OTHERS_ERASE(turn) (erasing > 0 || (doom_turn[0] && doom_turn[0] < turn) || (doom_turn[1] && doom_turn[1] < turn))
#endif

/* C: store_invalidate_stale(), invalidate_tier() */
inline invalidate_stale(turn, failed)
{
    erase(0, failed);
    erase(1, failed);
    atomic { !locked; failed = failed || stale[0] || stale[1] || OTHERS_ERASE(turn) }
}

#ifdef BREAK_REMOVE
#define INVALIDATES_ON_REMOVE false
#else
#define INVALIDATES_ON_REMOVE true
#endif
#ifdef BREAK_REWRITE
#define INVALIDATES_ON_REWRITE false
#else
#define INVALIDATES_ON_REWRITE true
#endif

/* C: store_invalidate_copies() */
inline invalidate_copies(r, does, failed)
{
    atomic {
        if
        :: BELOW(r).state == EMPTY || !does
        :: BELOW(r).state != EMPTY && does -> dead(BELOW(r).slot)
        :: BELOW(r).state != EMPTY && does -> failed = true
        fi
    }
}

/* ---- a remove ---- */

proctype remover(byte self)
{
    byte r, turn, going;
    bool failed, undead;
    atomic { /* C: doom(), store_doom(), store_erasure_begin() */
        !locked;
        find(r);
        going = sealed;
        turns++;
        turn = turns;
        if
        :: r == NONE
        :: r != NONE && record[r].sealed && !IN_TRANSFER(r) ->
            by_will = true;
            report_none();
            doom(r);
            doom_turn[self] = turn;
            ABOVE(r).moving = ABOVE(r).state != EMPTY;
            BELOW(r).moving = BELOW(r).state != EMPTY
        :: else -> goto done /* KVO_BUSY */
        fi
    }
    invalidate_stale(turn, failed);
    if
    :: r != NONE ->
        invalidate_copies(r, INVALIDATES_ON_REMOVE, undead);
        atomic { /* C: let_go(), store_erasure_end() */
            !locked;
            ABOVE(r).moving = false;
            BELOW(r).moving = false;
#ifndef BREAK_NOTE
            if
            :: undead && BELOW(r).state != EMPTY -> BELOW(r).state = BAD; stale_add(BELOW(r).slot)
            :: else
            fi;
#endif
            doom_turn[self] = 0;
            reap(r)
        }
    :: else
    fi;
    atomic {
        if
        :: failed || undead -> goto done /* KVO_SHORT */
        :: else -> gone_written = gone_written | going
        fi
    }
    flush(); /* C: store_remove_flush() */
    gone_safe = gone_safe | going;
done:
    skip
}

/* ---- a rewrite ---- */

#ifdef BREAK_HIDE
#define UNREAD(r) true
#else
#define UNREAD(r) (ABOVE(r).pins == 0 && BELOW(r).pins == 0 && ABOVE(r).state != FILLING)
#endif

proctype rewriter(byte version)
{
    byte r, m, turn, going;
    bool failed, undead, to_safe;
    atomic { /* C: begin(), mark() */
        !locked;
        find(r);
        if
        :: r != NONE && record[r].sealed && !IN_TRANSFER(r) && BELOW(r).state != BAD && ARENA_ROOM ->
            arena_take(m);
            ABOVE(r).moving = ABOVE(r).state == VALID;
            BELOW(r).moving = BELOW(r).state == VALID
        :: else -> goto done
        fi
    }
    arena[m] = TORN; /* C: fill() */
    arena[m] = version;
    atomic { !locked; record[r].sealed = false } /* C: hide() */
    atomic { /* C: close_copies() */
        !locked;
        if
        :: !record[r].doomed && UNREAD(r) -> record[r].closed = true
        :: else -> goto lost /* its only copy was found bad, or it is read */
        fi;
        going = sealed;
        by_will = true;
        report_none(); /* from here a crash costs the block */
        ABOVE(r).moving = ABOVE(r).state != EMPTY;
        BELOW(r).moving = BELOW(r).state != EMPTY;
        turns++;
        turn = turns
    }
    invalidate_stale(turn, failed); /* C: forget_old() */
    if
    :: failed -> goto lost
    :: else
    fi;
    invalidate_copies(r, INVALIDATES_ON_REWRITE, undead);
    if
    :: undead -> goto lost
    :: else
    fi;
    if
    :: true
    :: to_safe = true; flush()
    fi;
    atomic { /* C: show(), store_copy_end() */
        !locked;
        locked = true;
        assert(!record[r].doomed);
        record[r].incarnation = NEXT(record[r].incarnation);
        record[r].delta = 0;
        record[r].repair = false
    }
    atomic {
        if
        :: ABOVE(r).state != EMPTY -> arena_drop(r)
        :: else
        fi;
        if
        :: BELOW(r).state != EMPTY -> disk_drop(r)
        :: else
        fi;
        record[r].closed = false;
        record[r].version = version
    }
    atomic {
        ABOVE(r).slot = m;
        ABOVE(r).state = VALID
    }
    atomic {
        locked = false;
        record[r].sealed = true;
        sealed = sealed | BIT(version);
        set_current(version);
        gone_written = gone_written | going;
        gone_safe = (to_safe -> gone_safe | going : gone_safe);
        goto done
    }
lost:
    atomic { /* C: give_up(), reopen() */
        !locked;
        locked = true;
        arena_used[m] = false;
        record[r].closed = false
    }
    record[r].sealed = true;
    atomic {
        ABOVE(r).moving = false;
        BELOW(r).moving = false;
        if
        :: undead -> lose_below(r) /* C: store_lose_media(): its header may be dead, or not */
        :: else
        fi;
        reap(r);
        locked = false
    }
done:
    skip
}

/* ---- the medium fails: a bit of some payload turns ---- */

proctype rot()
{
    atomic {
        rotten = true;
        if
        :: disk.payload[0] = TORN
        :: disk.payload[1] = TORN
        fi
    }
}

/* ---- killed, or without power, at any moment ---- */

#ifdef BREAK_UNSURE
#define TRUSTED(k) true
#else
#define TRUSTED(k) (!unsure[k] && (ways == 0 || settled[k]))
#endif
#ifdef BREAK_WRITE_NUMBER
#define LATER(number, best) (best == 0 || number < best)
#else
#define LATER(number, best) (number > best)
#endif

/* As of the last flush, where that page's bit says so. */
#define LEFT(part, k, bit) ((ways >> bit) & 1 -> flushed.part[k] : disk.part[k])

/* It looks and changes nothing, so it may look in each state. Bits of `ways`: of a slot's header, and of its payload,
   what was there at the last flush is left, not what was written since; all 0 is what a killed process leaves. */
active proctype crash()
{
    byte k, ways, header, number, best, found;
    bool whole;
end:
    do
    :: d_step {
        ways = 0;
        do
        :: ways < 16 ->
            found = 0;
            best = 0;
            k = 0;
            do
            :: k < SLOTS -> /* C: found_live(), check_unsure(): of one name the later write counts, if it is whole */
                header = LEFT(header, k, (2 * k));
                number = LEFT(number, k, (2 * k));
                whole = LEFT(payload, k, (2 * k + 1)) == header;
                if
                :: header != DEAD && LATER(number, best) ->
                    best = number;
                    assert(whole || rotten || !TRUSTED(k));
                    found = (whole -> header : 0)
                :: else
                fi;
                k++
            :: else -> break
            od;
            assert(found == 0 || (sealed & BIT(found)));
            assert(rotten || safe == 0 || found == safe);
            assert(found == 0 || !(gone_safe & BIT(found)));
            assert(rotten || written == 0 || found == written || ways);
            assert(found == 0 || !(gone_written & BIT(found)) || ways);
            ways++
        :: else -> break
        od;
        k = 0; ways = 0; header = 0; number = 0; best = 0; found = 0; whole = false
       }
    od
}

#define RUN(count, call) do :: k < count -> run call; k++ :: else -> k = 0; break od

init {
    byte k;
    atomic {
        settled[0] = true;
        settled[1] = true;
        RUN(WRITERS, writer(k + 1));
        RUN(READERS, reader(k));
        RUN(MOVERS, mover());
        RUN(EVICTORS, evictor());
        RUN(HOLDERS, holder());
        RUN(SYNCERS, syncer());
        RUN(REMOVERS, remover(k));
        RUN(REWRITERS, rewriter(WRITERS + k + 1));
        RUN(ROT, rot())
    }
}
