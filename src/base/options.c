/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"
#include "kvonce.h"

#include <string.h>

/* No struct of the header comes near it: a larger `size` was never set. */
#define SIZE_LIMIT 4096u

int base_options_take(void *full, size_t full_bytes, const void *given)
{
    size_t bytes;

    if (given == NULL)
        return KVO_OK;
    memcpy(&bytes, given, sizeof bytes);
    if (bytes < sizeof bytes || bytes > SIZE_LIMIT)
        return KVO_E_ARGUMENT;
    for (size_t i = full_bytes; i < bytes; i++)
        if (((const unsigned char *)given)[i] != 0)
            return KVO_E_UNSUPPORTED;
    memcpy(full, given, bytes < full_bytes ? bytes : full_bytes);
    memcpy(full, &full_bytes, sizeof full_bytes);
    return KVO_OK;
}
