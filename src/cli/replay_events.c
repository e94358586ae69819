/* SPDX-License-Identifier: Apache-2.0 */
/* Events of the store: written to a file, and the names that each tier received counted. */
#include "common.h"
#include "payload.h"
#include "replay.h"

#include <errno.h>
#include <string.h>

int cli_events_start(cli_events *events, const char *path)
{
    events->path = path;
    if (path == NULL) {
        return 0;
    }
    events->file = fopen(path, "w");
    if (events->file == NULL) {
        return cli_fail("--events: %s: %s", path, strerror(errno));
    }
    (void)setvbuf(events->file, NULL, _IOFBF, 1 << 18);
    return 0;
}

static const char *event_name(int type)
{
    static const char *const names[] = {"?", "seal", "write", "promote", "discard", "drop", "end"};
    return type > 0 && type < (int)(sizeof names / sizeof names[0]) ? names[type] : names[0];
}

static void write_line(cli_events *events, const kvo_event *event)
{
    char tier[8] = "-";
    char name[2 * KVO_NAME_BYTES_MAX + 1];
    if (event->tier != KVO_NO_TIER) {
        (void)snprintf(tier, sizeof tier, "%u", (unsigned)event->tier);
    }
    (void)fprintf(events->file, "%llu %s %s %s %lu %s\n", (unsigned long long)event->reference,
                  event_name(event->type), tier, cli_hex_text(event->name, event->name_bytes, name),
                  (unsigned long)event->payload_bytes, kvo_cause_name(event->cause));
}

/* Repairs, rewrites and failed writes are not in written_bytes, so not here either. */
static int is_write(const kvo_event *event)
{
    int type = event->type == KVO_EVENT_SEAL || event->type == KVO_EVENT_WRITE || event->type == KVO_EVENT_PROMOTE;
    int apart = event->cause == KVO_CAUSE_REWRITE || event->cause == KVO_CAUSE_REPAIR ||
                event->cause == KVO_CAUSE_FAILED;
    return type && !apart && event->tier < KVO_TIERS_MAX;
}

void cli_events_take(void *context, const kvo_event *event)
{
    cli_events *events = context;
    uint32_t scope;
    uint64_t id;
    if (!atomic_load_explicit(&events->open, memory_order_relaxed)) {
        return;
    }
    if (is_write(event) && cli_name_read(event->name, event->name_bytes, &scope, &id)) {
        (void)cli_ids_mark(&events->written, scope, id, event->tier);
    }
    if (events->file != NULL) {
        write_line(events, event);
    }
}

int cli_events_finish(cli_events *events)
{
    int result = 0;
    if (events->file != NULL) {
        int failed = ferror(events->file);
        if (fclose(events->file) != 0 || failed) {
            result = cli_fail("--events: %s: %s", events->path, errno != 0 ? strerror(errno) : "write error");
        }
        events->file = NULL;
    }
    return result;
}
