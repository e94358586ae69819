/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include "store/persist.h"

#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char rig_doing[512];
bool rig_verbose;
rig_counts rig_counted;

/* Also where an assertion of the library ends the program. */
static void say_what(int number)
{
    (void)number;
    if (write(2, rig_doing, strlen(rig_doing)) < 0 || write(2, "\n", 1) < 0)
        _exit(1);
}

void rig_start(void)
{
    rig_verbose = getenv("KVO_TEST_VERBOSE") != NULL;
    signal(SIGABRT, say_what);
    /* Stores come and go: mapping their memory anew each time would cost more than all else. */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

void rig_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    abort();
}

/* ---- names, versions, bytes ---- */

static void name_of(unsigned name, uint8_t out[RIG_NAME_BYTES])
{
    uint64_t random = name + 1;
    for (unsigned i = 0; i < RIG_NAME_BYTES; i++)
        out[i] = (uint8_t)sim_draw(&random, 256);
}

static kvo_names names_of(const rig *r, unsigned name, uint8_t bytes[RIG_NAME_BYTES])
{
    name_of(name, bytes);
    return (kvo_names){.first = bytes, .name_bytes = RIG_NAME_BYTES, .count = 1, .space = r->space};
}

static uint32_t length_of(const rig *r, unsigned name, int version)
{
    static const uint32_t lengths[] = {4096, 4000, 8192, 1, 4096, 8191, 12288, 513};
    uint32_t length = lengths[(name * 3 + (unsigned)version) % 8];
    return length <= r->config->block_bytes ? length : r->config->block_bytes;
}

/* The first byte alone tells two versions apart. */
static uint64_t word_of(unsigned name, int version, size_t i)
{
    uint64_t x = (uint64_t)name << 40 | (uint64_t)version << 20 | i;
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    return i ? x : (x & ~0xffull) | ((name * 101 + (unsigned)version) & 0xff);
}

static void payload_make(uint8_t *out, uint32_t bytes, unsigned name, int version)
{
    for (uint32_t i = 0; i < bytes; i += 8) {
        uint64_t word = word_of(name, version, i / 8);
        memcpy(out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

static bool payload_is(const uint8_t *bytes, uint32_t length, unsigned name, int version)
{
    for (uint32_t i = 0; i < length; i += 8) {
        uint64_t word = word_of(name, version, i / 8);
        if (memcmp(bytes + i, &word, length - i < 8 ? length - i : 8) != 0)
            return false;
    }
    return true;
}

/* ---- opening and closing ---- */

void rig_begin(rig *r, sim_medium *m, const rig_config *config)
{
    *r = (rig){.medium = m, .config = config};
    r->bytes = aligned_alloc(4096, RIG_BYTES_MAX);
    for (unsigned i = 0; i < RIG_NAMES; i++)
        r->oracle.names[i] = (rig_name){.now = RIG_ABSENT, .newest = -1, .must = {RIG_ABSENT, RIG_ABSENT}};
}

void rig_end(rig *r)
{
    if (r->store)
        rig_drop(r);
    free(r->bytes);
}

static void on_log(void *context, const char *line)
{
    (void)context;
    if (rig_verbose)
        fprintf(stderr, "  log: %s\n", line);
}

/* Blocks that left, also in a close, and blocks that a disk gave to the next one. */
static void on_event(void *context, const kvo_event *event)
{
    rig *r = context;
    uint8_t bytes[RIG_NAME_BYTES];
    bool ends = event->type == KVO_EVENT_END;
    bool moves = event->type == KVO_EVENT_WRITE && event->tier > (strncmp(r->config->tiers, "dram", 4) == 0);
    for (unsigned i = 0; (ends || moves || rig_verbose) && i < RIG_NAMES; i++) {
        name_of(i, bytes);
        if (memcmp(bytes, event->name, RIG_NAME_BYTES) != 0)
            continue;
        if (rig_verbose)
            fprintf(stderr, "    event %d (%s) of name %u, tier %u\n", event->type, kvo_cause_name(event->cause), i,
                    event->tier);
        r->ended |= (uint32_t)ends << i;
        r->oracle.names[i].moves += moves;
    }
}

int rig_try_open(rig *r, kvo_error *error)
{
    char paths[256];
    uint32_t count;
    kvo_tier_config tiers[KVO_TIERS_MAX];
    kvo_options o = KVO_OPTIONS_INIT;
    o.flags = KVO_OPEN_STEPPED;
    o.block_bytes = r->config->block_bytes;
    o.write_out_ns = 86400ull * 1000000000u;
    o.pins_max = o.holds_max = o.tenants_max = 4;
    o.io_engine = MOVE_SIMULATED;
    o.on_log = on_log;
    o.on_event = on_event;
    o.event_context = r;
    if (kvo_parse_tiers(r->config->tiers, tiers, &count, paths, sizeof paths, error) != KVO_OK)
        rig_fail("tiers: %s", error->text);
    int status = store_open(&r->medium->env, tiers, count, &o, &r->store, error);
    if (status != KVO_OK)
        return status;
    store_keeper_stop(r->store); /* it would work at moments of its own */
    kvo_space_config c = KVO_SPACE_CONFIG_INIT;
    c.label = "a";
    c.model = "m";
    c.block_positions = 16;
    c.block_bytes_max = r->config->block_bytes;
    status = kvo_space_open(r->store, &c, &r->space, error);
    if (status != KVO_OK)
        rig_drop(r);
    return status;
}

void rig_open(rig *r)
{
    kvo_error error = {{0}};
    int status = rig_try_open(r, &error);
    if (status != KVO_OK)
        rig_fail("open says %s: %s", kvo_status_name(status), error.text);
}

void rig_drop(rig *r)
{
    bool lost = r->medium->lost;
    r->medium->lost = true;
    kvo_close(r->store, 0);
    r->medium->lost = lost;
    r->store = NULL;
    memset(r->medium->handles, 0, sizeof r->medium->handles);
    if (r->medium->allocated_bytes)
        rig_fail("%zu bytes of memory are left after a close", r->medium->allocated_bytes);
}

/* ---- what the store says ---- */

/* A call may fail: by a fault, or since the medium has crashed under it. */
static bool may_fail(const rig *r) { return r->faulty || r->medium->dead; }

static kvo_answer exists(rig *r, unsigned name)
{
    uint8_t bytes[RIG_NAME_BYTES];
    kvo_names names = names_of(r, name, bytes);
    kvo_answer a;
    if (kvo_exists(r->store, &names, &a) != KVO_OK)
        rig_fail("exists");
    return a;
}

/* After a call: what is called written or safe now. */
static void take_levels(rig *r)
{
    for (unsigned i = 0; i < RIG_NAMES; i++) {
        rig_name *n = &r->oracle.names[i];
        kvo_answer a = exists(r, i);
        if (a.status == KVO_OK && n->now == RIG_ABSENT)
            rig_fail("name %u is there, and was not put", i);
        if (a.status != KVO_OK)
            n->now = RIG_ABSENT;
        bool there = a.status == KVO_OK && !r->rotten;
        n->must[RIG_DEATH] = there && a.level >= KVO_WRITTEN ? n->now : RIG_ABSENT;
        n->must[RIG_POWER] = there && a.level >= KVO_SAFE ? n->now : RIG_ABSENT;
    }
    rig_counted.operations++;
}

static int say(const char *what, unsigned name, int level, int status)
{
    if (rig_verbose)
        fprintf(stderr, "  %s %u level %d: %s\n", what, name, level, kvo_status_name(status));
    return status;
}

static kvo_target target_of(rig *r, unsigned name, uint8_t bytes[RIG_NAME_BYTES])
{
    return (kvo_target){.by = KVO_BY_NAMES, .names = names_of(r, name, bytes)};
}

/* The bytes that are served under a name, and their version; RIG_ABSENT: none. */
static int read_version(rig *r, unsigned name)
{
    uint8_t name_bytes[RIG_NAME_BYTES];
    kvo_names names = names_of(r, name, name_bytes);
    kvo_answer a = exists(r, name);
    if (a.status != KVO_OK)
        return RIG_ABSENT;
    uint32_t length = a.payload_bytes;
    if (length > RIG_BYTES_MAX)
        rig_fail("name %u has %u bytes", name, length);
    memset(r->bytes, 0x5a, length);
    kvo_segment segment = {r->bytes, length};
    kvo_memory memory = {&segment, NULL};
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = 0;
    kvo_get(r->store, &names, &memory, &o, &a);
    if (a.status != KVO_OK && !may_fail(r) && !r->torn)
        rig_fail("name %u is there, and get says %s", name, kvo_status_name(a.status));
    if (a.status != KVO_OK && r->torn && !may_fail(r)) {
        if (a.status != KVO_MISS || exists(r, name).status != KVO_MISS)
            rig_fail("name %u: get says %s, and then it is still there", name, kvo_status_name(a.status));
        rig_counted.overwritten++;
        r->torn--;
    }
    if (a.status != KVO_OK)
        return RIG_ABSENT;
    rig_counted.payloads++;
    for (int v = r->oracle.names[name].newest; v >= 0; v--)
        if (length_of(r, name, v) == length && payload_is(r->bytes, length, name, v))
            return v;
    rig_fail("WRONG BYTES: name %u, %u bytes of no version of it", name, length);
}

/* ---- operations ---- */

static void new_version(rig *r, rig_name *n, bool life)
{
    n->newest++;
    if (life) {
        n->tenants[n->policy_count] = ++r->tenants;
        n->policy = n->policy_count++;
    }
    n->life[n->newest] = (uint8_t)(n->newest ? n->life[n->newest - 1] + life : 0);
    n->first_policy[n->newest] = (uint8_t)n->policy;
    if (life)
        n->policy_life[n->policy] = n->life[n->newest];
}

static bool can_version(const rig_name *n) { return n->newest + 1 < RIG_VERSIONS && n->policy_count < RIG_POLICIES; }

static kvo_put_options options_of(const rig *r, unsigned name, int level)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = level;
    o.deadline_ns = 0;
    o.policy.tenant = r->oracle.names[name].tenants[r->oracle.names[name].policy];
    return o;
}

/* What one flush of everything makes of what is written. */
static void all_flushed(rig *r)
{
    for (unsigned i = 0; i < RIG_NAMES; i++) {
        rig_name *n = &r->oracle.names[i];
        n->floor[RIG_POWER] = n->floor[RIG_DEATH];
    }
}

int rig_put(rig *r, unsigned name, int level)
{
    rig_name *n = &r->oracle.names[name];
    uint8_t bytes[RIG_NAME_BYTES];
    kvo_names names = names_of(r, name, bytes);
    if (!can_version(n))
        return KVO_EXISTS;
    bool new = n->now == RIG_ABSENT;
    if (new)
        new_version(r, n, true);
    int version = new ? n->newest : n->now;
    kvo_segment segment = {r->bytes, length_of(r, name, version)};
    kvo_memory memory = {&segment, NULL};
    kvo_put_options o = options_of(r, name, level);
    kvo_answer a;
    payload_make(r->bytes, length_of(r, name, version), name, version);
    r->oracle.puts++;
    kvo_put(r->store, &names, &memory, &o, &a);
    if (!may_fail(r) && a.status == KVO_EXISTS && new)
        rig_fail("put of name %u, which was not there, says EXISTS", name);
    if (a.status == KVO_STORED || a.status == KVO_SHORT)
        n->now = version;
    if (a.status == KVO_STORED && level == KVO_SAFE)
        all_flushed(r);
    take_levels(r);
    if (a.status == KVO_STORED && exists(r, name).level < level)
        rig_fail("put at level %d says STORED, and the level is %u", level, exists(r, name).level);
    return say("put", name, level, a.status);
}

int rig_get(rig *r, unsigned name)
{
    int had = r->oracle.names[name].now, version = read_version(r, name);
    if (version != had && !(may_fail(r) && version == RIG_ABSENT))
        rig_fail("name %u: version %d is served, not %d", name, version, had);
    take_levels(r);
    return say("get", name, 0, version == RIG_ABSENT ? KVO_MISS : KVO_OK);
}

int rig_policy(rig *r, unsigned name, int intent)
{
    rig_name *n = &r->oracle.names[name];
    uint8_t bytes[RIG_NAME_BYTES];
    kvo_target target = target_of(r, name, bytes);
    kvo_policy policy = KVO_POLICY_INIT;
    kvo_answer a;
    if (n->now == RIG_ABSENT || n->policy_count == RIG_POLICIES)
        return KVO_MISS;
    policy.tenant = n->tenants[n->policy_count] = ++r->tenants;
    policy.intent = (uint8_t)intent;
    kvo_policy_set(r->store, &target, &policy, KVO_POLICY_TENANT | KVO_POLICY_INTENT, &a, NULL);
    if (a.status != KVO_OK)
        rig_fail("policy of name %u, which is there: %s", name, kvo_status_name(a.status));
    n->policy_life[n->policy_count] = n->life[n->now];
    n->policy = n->policy_count++;
    take_levels(r);
    return say("policy", name, intent, a.status);
}

int rig_rewrite(rig *r, unsigned name, int level)
{
    rig_name *n = &r->oracle.names[name];
    uint8_t bytes[RIG_NAME_BYTES];
    kvo_names names = names_of(r, name, bytes);
    if (n->now == RIG_ABSENT || !can_version(n))
        return KVO_MISS;
    new_version(r, n, false);
    int version = n->newest;
    kvo_segment segment = {r->bytes, length_of(r, name, version)};
    kvo_memory memory = {&segment, NULL};
    kvo_put_options o = options_of(r, name, level);
    kvo_answer a;
    payload_make(r->bytes, length_of(r, name, version), name, version);
    n->life[version] = n->life[n->now];
    kvo_rewrite(r->store, &names, &memory, 3, &o, &a);
    if (a.status == KVO_STORED || a.status == KVO_SHORT) {
        n->now = version;
        n->floor[RIG_DEATH] = version;
    }
    if (a.status == KVO_STORED && level == KVO_SAFE)
        all_flushed(r);
    take_levels(r);
    return say("rewrite", name, level, a.status);
}

int rig_remove(rig *r, unsigned name, int level)
{
    rig_name *n = &r->oracle.names[name];
    uint8_t bytes[RIG_NAME_BYTES];
    kvo_target target = target_of(r, name, bytes);
    kvo_answer a;
    int status = kvo_remove(r->store, &target, level, 0, &a, NULL);
    if (!may_fail(r) && (status != KVO_OK || a.status != (n->now == RIG_ABSENT ? KVO_MISS : KVO_OK)))
        rig_fail("remove of name %u says %s, answer %s", name, kvo_status_name(status), kvo_status_name(a.status));
    if (status == KVO_OK && (a.status == KVO_OK || a.status == KVO_MISS)) {
        n->floor[RIG_DEATH] = n->newest + 1;
        if (level == KVO_SAFE)
            n->floor[RIG_POWER] = n->newest + 1;
    }
    take_levels(r);
    if (status == KVO_OK && n->now != RIG_ABSENT)
        rig_fail("name %u is there after its removal", name);
    return say("remove", name, level, status);
}

static void written_out(rig *r, int level)
{
    for (int crash = RIG_DEATH; crash <= (level == KVO_SAFE ? RIG_POWER : RIG_DEATH); crash++) {
        r->oracle.puts_floor[crash] = r->oracle.puts;
        for (unsigned i = 0; i < RIG_NAMES; i++)
            r->oracle.names[i].policy_floor[crash] = r->oracle.names[i].policy;
    }
}

int rig_sync(rig *r, int level)
{
    int status = kvo_sync(r->store, NULL, level, 0, NULL);
    if (status == KVO_OK && level == KVO_SAFE)
        all_flushed(r);
    if (status == KVO_OK)
        written_out(r, level);
    take_levels(r);
    for (unsigned i = 0; status == KVO_OK && i < RIG_NAMES; i++)
        if (r->oracle.names[i].now != RIG_ABSENT && exists(r, i).level < level)
            rig_fail("sync says that all is at level %d, and name %u is at %u", level, i, exists(r, i).level);
    return say("sync", 0, level, status);
}

int rig_write_out(rig *r)
{
    int status = kvo_write_out(r->store);
    if (status == KVO_OK)
        written_out(r, KVO_WRITTEN);
    take_levels(r);
    return status;
}

int rig_close(rig *r)
{
    rig_oracle *o = &r->oracle;
    r->ended = 0;
    int status = kvo_close(r->store, 0);
    r->store = NULL;
    memset(r->medium->handles, 0, sizeof r->medium->handles);
    if (r->medium->allocated_bytes)
        rig_fail("%zu bytes of memory are left after a close", r->medium->allocated_bytes);
    if (status == KVO_OK) {
        all_flushed(r);
        written_out(r, KVO_SAFE);
    }
    for (unsigned i = 0; i < RIG_NAMES; i++) {
        if (r->ended >> i & 1)
            o->names[i].now = RIG_ABSENT;
        for (int crash = 0; crash < RIG_CRASHES; crash++)
            o->names[i].must[crash] = status == KVO_OK && !r->rotten ? o->names[i].now : RIG_ABSENT;
    }
    return say("close", 0, 0, status);
}

/* ---- the oracle ---- */

static int least(int a, int b) { return a < b ? a : b; }

void rig_between(rig_oracle *out, const rig_oracle *before, const rig_oracle *after)
{
    *out = *after;
    for (int crash = 0; crash < RIG_CRASHES; crash++) {
        out->puts_floor[crash] = before->puts_floor[crash];
        for (unsigned i = 0; i < RIG_NAMES; i++) {
            rig_name *n = &out->names[i];
            const rig_name *b = &before->names[i];
            n->floor[crash] = least(n->floor[crash], b->floor[crash]);
            n->gone[crash] = least(n->gone[crash], b->gone[crash]);
            n->policy_floor[crash] = least(n->policy_floor[crash], b->policy_floor[crash]);
            /* A rewrite that was given up may have been cut short before it took its bytes back. What was safe on
               one disk and goes to the next is safe again with the next flush only. */
            bool moved = crash == RIG_POWER && n->moves != b->moves;
            if (n->must[crash] != b->must[crash] || n->newest != b->newest || moved)
                n->must[crash] = RIG_ABSENT;
        }
    }
}

static void check_policy(rig *r, unsigned name, int version, unsigned tenant, int crash)
{
    rig_name *n = &r->oracle.names[name];
    int i = n->policy_count - 1;
    while (i >= 0 && n->tenants[i] != tenant)
        i--;
    if (i < 0)
        rig_fail("name %u has a policy that was never its own (tenant %u)", name, tenant);
    if (n->policy_life[i] != n->life[version] || i < n->first_policy[version])
        rig_fail("name %u, version %d, has policy %d, which is not of this version (%d on)", name, version, i,
                 n->first_policy[version]);
    if (n->must[crash] != RIG_ABSENT && i < n->policy_floor[crash])
        rig_fail("name %u has policy %d, and %d was written out", name, i, n->policy_floor[crash]);
    n->policy = i;
    for (int c = 0; c < RIG_CRASHES; c++)
        n->policy_floor[c] = least(n->policy_floor[c], i);
}

static void check_name(rig *r, unsigned name, int crash)
{
    rig_name *n = &r->oracle.names[name];
    uint8_t bytes[RIG_NAME_BYTES];
    kvo_target target = target_of(r, name, bytes);
    kvo_policy policy;
    kvo_answer a;
    kvo_policy_get(r->store, &target, &policy, &a); /* first: a block to be dropped goes with the get */
    kvo_answer there = exists(r, name);
    int version = read_version(r, name);
    if (rig_verbose)
        fprintf(stderr, "  found name %u: %s, version %d of %d, floor %d\n", name, kvo_status_name(there.status),
                version, n->newest, n->floor[crash]);
    if (r->medium->dead) /* by what a get of a block to be dropped writes */
        return;
    if (n->must[crash] != RIG_ABSENT && version != n->must[crash])
        rig_fail("name %u: version %d must be there, and %d is (%d is the newest)", name, n->must[crash], version,
                 n->newest);
    if (version != RIG_ABSENT && version < n->floor[crash])
        rig_fail("name %u: version %d came back, and %d is the oldest that may be (%d is the newest)", name, version,
                 n->floor[crash], n->newest);
    /* Nobody removed it, but a crash took it. A segment's header that is torn when it is written again lets what the
       segment held before be seen once more. */
    if (version != RIG_ABSENT && version < n->gone[crash] && !r->medium->torn)
        rig_fail("name %u: version %d came back after a crash that had taken it", name, version);
    n->now = version;
    if (crash == RIG_POWER) { /* what was not flushed never happened */
        n->floor[RIG_DEATH] = n->floor[RIG_POWER];
        n->gone[RIG_DEATH] = n->gone[RIG_POWER];
    }
    if (version != RIG_ABSENT)
        check_policy(r, name, version, policy.tenant, crash);
    if (version == RIG_ABSENT && !r->faulty) {
        n->gone[RIG_DEATH] = n->newest + 1;
        if (crash == RIG_POWER)
            n->gone[RIG_POWER] = n->newest + 1;
    }
}

void rig_check_valid(rig *r)
{
    char why[256];
    if (!store_valid(r->store, why, sizeof why))
        rig_fail("the store is not valid: %s", why);
}

void rig_check_crash(rig *r, int crash, bool whole)
{
    kvo_stat stat = KVO_STAT_INIT;
    rig_check_valid(r);
    kvo_stat_store(r->store, &stat);
    /* Of the ledger's two copies a power cut may tear both. */
    if (stat.puts > r->oracle.puts || (whole && crash == RIG_DEATH && stat.puts < r->oracle.puts_floor[crash]))
        rig_fail("the ledger has %llu puts: there were %llu, and %llu were written out", (unsigned long long)stat.puts,
                 (unsigned long long)r->oracle.puts, (unsigned long long)r->oracle.puts_floor[crash]);
    r->oracle.puts = stat.puts;
    r->oracle.puts_floor[RIG_DEATH] = r->oracle.puts_floor[RIG_POWER] = 0;
    /* A slot that is reused: what a crash leaves may be the old header over new bytes. Such a block was evicted,
       removed or rewritten, nothing needs it, and its digest tells. */
    enum { overwritten = RIG_NAMES };
    r->torn = overwritten;
    for (unsigned i = 0; i < RIG_NAMES; i++)
        check_name(r, i, crash);
    uint64_t misses = (uint64_t)(overwritten - r->torn);
    uint64_t had = stat.digest_misses; /* in earlier lives */
    r->torn = 0;
    kvo_stat_store(r->store, &stat);
    stat.digest_misses -= had;
    /* With two disks, such a copy may have another one below, which was served. A header of which only the end
       is new shows no number, so nothing tells it from damage. */
    bool too_many = strstr(r->config->tiers, "/1") ? stat.digest_misses < misses : stat.digest_misses != misses;
    if (whole && ((stat.damaged_slots && !r->medium->torn) || too_many))
        rig_fail("%llu damaged slots, %llu bad payloads of which %llu were to be expected",
                 (unsigned long long)stat.damaged_slots, (unsigned long long)stat.digest_misses,
                 (unsigned long long)misses);
    rig_counted.damaged += stat.damaged_slots != 0;
    take_levels(r);
}

void rig_check_works(rig *r, unsigned fresh)
{
    int status = rig_put(r, fresh, KVO_WRITTEN);
    if (status != KVO_STORED && status != KVO_EXISTS)
        rig_fail("the next put says %s", kvo_status_name(status));
    if (rig_get(r, fresh) != KVO_OK)
        rig_fail("the next get misses");
    if (rig_rewrite(r, fresh, KVO_SEALED) != KVO_STORED || rig_get(r, fresh) != KVO_OK)
        rig_fail("the next rewrite fails");
    if (rig_remove(r, fresh, KVO_WRITTEN) != KVO_OK)
        rig_fail("the next remove fails");
    rig_check_valid(r);
}

/* ---- listings ---- */

static uint64_t mix(uint64_t sum, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return sum;
}

uint64_t rig_listing(rig *r)
{
    kvo_block_info infos[32];
    uint64_t cursor = 0, sum = 0;
    for (size_t n = 1; n;) {
        if (kvo_walk(r->store, NULL, &cursor, infos, 32, &n) != KVO_OK)
            rig_fail("walk");
        for (size_t i = 0; i < n; i++) {
            const kvo_block_info *b = &infos[i];
            uint64_t one = mix(0xcbf29ce484222325u, b->identity, sizeof b->identity);
            one = mix(one, &b->policy.tenant, sizeof b->policy.tenant);
            one = mix(one, &b->last_use, sizeof b->last_use);
            one = mix(one, &b->uses, sizeof b->uses);
            one = mix(one, &b->generation, sizeof b->generation);
            one = mix(one, b->delta, sizeof b->delta);
            for (uint32_t k = 0; k < b->copy_count; k++)
                one = mix(mix(one, &b->copies[k].tier, 2), &b->copies[k].slot, sizeof b->copies[k].slot);
            sum += one; /* in whatever order */
        }
    }
    return sum;
}
