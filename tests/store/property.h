/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle of the property test. Each name belongs to one thread, which alone puts, rewrites and
 * removes it, so its versions only rise; everybody else reads, pins, touches and sets policies.
 * What the store may do: miss, and say busy. What it may not: serve a version below `floor` (as read
 * before the call) or above `newest` (as read after it).
 */
#ifndef PROPERTY_H
#define PROPERTY_H

#include "fixture.h"

enum { PROPERTY_NAMES = 128, PROPERTY_THREADS_MAX = 4, PROPERTY_PINS = 4, PROPERTY_BYTES_MAX = 65536 };

typedef struct property_name {
    _Atomic uint32_t floor, newest;
} property_name;

typedef struct property_pin {
    kvo_pin pin;
    uint64_t number;
    uint32_t floor, newest, version;
} property_pin;

typedef struct property_thread {
    unsigned number, count;
    uint64_t random;
    uint8_t *memory; /* of a batch: 8 payloads */
    property_pin pins[PROPERTY_PINS];
    uint64_t hold;
    char doing[32];
} property_thread;

extern property_name property_names[PROPERTY_NAMES];
extern uint64_t property_seed;
extern bool property_disk; /* the store has a persistent tier */

uint32_t property_draw(property_thread *t, uint32_t limit); /* below limit */
size_t property_length(uint64_t number, uint32_t version);
uint64_t property_own(property_thread *t); /* a name of its own */
uint64_t property_any(property_thread *t);

/* Stops the program with the seed: a failed assertion would leave the other threads behind. */
_Noreturn void property_fail(const char *file, int line, const char *what);
#define MUST(x) ((x) ? (void)0 : property_fail(__FILE__, __LINE__, #x))

/* One random call and its checks. */
void property_step(property_thread *t);
/* Unpins, and checks what was pinned; releases holds. */
void property_let_go(property_thread *t);
/* The version of these bytes, from `floor` to `newest`; stops the program if there is none. */
uint32_t property_version(const void *bytes, size_t length, uint64_t number, uint32_t floor, uint32_t newest);

#endif
