/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct status_row {
    int status;
    base_status_group group;
    const char *name;
    const char *text;
} status_row;

#define ROW(status, group, text) \
    { \
        status, BASE_GROUP_##group, #status, text \
    }

static const status_row status_table[] = {
    ROW(KVO_OK, DONE, "done"),

    ROW(KVO_STORED, ANSWER, "new, and stored at the level asked for"),
    ROW(KVO_EXISTS, ANSWER, "the name was stored before; nothing was written"),
    ROW(KVO_MISS, ANSWER, "not stored here; compute it and put it"),
    ROW(KVO_PENDING, ANSWER, "somebody is filling it; not readable yet"),
    ROW(KVO_BUSY, ANSWER, "no room or no access before the deadline; try again"),
    ROW(KVO_FULL, ANSWER, "no room, and none can be made as things stand"),
    ROW(KVO_REFUSED, ANSWER, "too large for every tier, or its space was removed"),
    ROW(KVO_SIZE, ANSWER, "the length differs from the stored block's; nothing was copied"),
    ROW(KVO_GONE, ANSWER, "the handle, pin, hold or reservation is no longer valid"),
    ROW(KVO_SHORT, ANSWER, "the level asked for was not reached in time"),
    ROW(KVO_CANCELLED, ANSWER, "the job was cancelled before it came to this block; nothing was done"),

    ROW(KVO_E_ARGUMENT, CALLER, "a null pointer, or a count or length out of range"),
    ROW(KVO_E_RANGE, CALLER, "a value out of its documented range"),
    ROW(KVO_E_STATE, CALLER, "not allowed in this state of the store"),
    ROW(KVO_E_FORKED, CALLER, "this process inherited the store through fork(); open it again here"),
    ROW(KVO_E_UNSUPPORTED, CALLER, "this store cannot do it"),

    ROW(KVO_E_NOT_FOUND, DIRECTORY, "no store there"),
    ROW(KVO_E_IN_USE, DIRECTORY, "the directory is open in another process or store"),
    ROW(KVO_E_FOREIGN, DIRECTORY, "the directory holds files that are not kvonce's"),
    ROW(KVO_E_VERSION, DIRECTORY, "written by another version of the format"),
    ROW(KVO_E_DAMAGED, DIRECTORY, "both copies of a needed page are unreadable"),
    ROW(KVO_E_MISMATCH, DIRECTORY, "a space of that label exists with another description"),

    ROW(KVO_E_MEMORY, MACHINE, "not enough memory"),
    ROW(KVO_E_IO, MACHINE, "input or output failed"),
    ROW(KVO_E_NO_SPACE, MACHINE, "no space left on the device, or a quota or file size limit"),
    ROW(KVO_E_PERMISSION, MACHINE, "permission denied, or a read-only file system"),
};

static const status_row *find_row(int status)
{
    static const status_row unknown = {-1, BASE_GROUP_NONE, "KVO_?", "not a status of this version"};

    for (size_t i = 0; i < sizeof status_table / sizeof status_table[0]; i++)
        if (status_table[i].status == status)
            return &status_table[i];
    return &unknown;
}

const char *kvo_status_name(int status)
{
    return find_row(status)->name;
}

const char *kvo_status_text(int status)
{
    return find_row(status)->text;
}

base_status_group base_status_group_of(int status)
{
    return find_row(status)->group;
}

const char *kvo_cause_name(int cause)
{
    static const char *const names[KVO_CAUSE_COUNT] = {
        [KVO_CAUSE_NONE] = "-",          [KVO_CAUSE_PUT] = "put",         [KVO_CAUSE_GET] = "get",
        [KVO_CAUSE_DEMOTE] = "demote",   [KVO_CAUSE_PROMOTE] = "promote", [KVO_CAUSE_REWRITE] = "rewrite",
        [KVO_CAUSE_REPAIR] = "repair",   [KVO_CAUSE_FAILED] = "failed",   [KVO_CAUSE_METADATA] = "metadata",
        [KVO_CAUSE_PADDING] = "padding", [KVO_CAUSE_VERIFY] = "verify",   [KVO_CAUSE_RECOVER] = "recover",
        [KVO_CAUSE_REMOVE] = "remove",   [KVO_CAUSE_ORPHAN] = "orphan",   [KVO_CAUSE_YIELD] = "yield",
        [KVO_CAUSE_RESIZE] = "resize",
        [KVO_CAUSE_EVICT] = "evict",
        [KVO_CAUSE_UNREAD] = "unread",
    };

    return cause >= 0 && cause < KVO_CAUSE_COUNT ? names[cause] : "?";
}

#define TEXT(x) #x
#define VALUE(x) TEXT(x)

const char *kvo_version(void)
{
    return VALUE(KVO_VERSION_MAJOR) "." VALUE(KVO_VERSION_MINOR) "." VALUE(KVO_VERSION_PATCH);
}

int base_fail(kvo_error *error, int status, const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        va_start(arguments, format);
        int length = vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
        if (length < 0)
            error->text[0] = '\0';
        else if ((size_t)length >= sizeof error->text)
            memcpy(error->text + sizeof error->text - 4, "...", 4);
    }
    return status;
}

int base_status_of_errno(int negative_errno)
{
    switch (-negative_errno) {
    case 0:
        return KVO_OK;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return KVO_E_NO_SPACE;
    case EACCES:
    case EPERM:
    case EROFS:
        return KVO_E_PERMISSION;
    case ENOMEM:
        return KVO_E_MEMORY;
    case ENOENT:
        return KVO_E_NOT_FOUND;
    default:
        return KVO_E_IO;
    }
}
