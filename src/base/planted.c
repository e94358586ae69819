/* SPDX-License-Identifier: Apache-2.0 */
#include "base/planted.h"

#ifdef KVO_PLANTED_DEFECTS
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static base_planted_defect chosen;

/* A name that is unknown ends the process as Meson's tests report what is no failure but an error: declared with
   should_fail, a test of a defect that does not exist must not pass. */
static void choose(void)
{
#define PLANTED_NAME(name) #name,
    static const char *const names[] = {"NONE", PLANTED_LIST(PLANTED_NAME)};
#undef PLANTED_NAME
    const char *name = getenv("KVO_PLANTED");
    if (name == NULL)
        return;
    for (int i = 0; i < PLANTED_COUNT; i++)
        if (strcmp(name, names[i]) == 0) {
            chosen = (base_planted_defect)i;
            return;
        }
    fprintf(stderr, "kvonce: KVO_PLANTED=%s: no such defect\n", name);
    _Exit(99);
}

base_planted_defect base_planted(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}
#else
typedef int base_planted_unused; /* a file is not empty */
#endif
