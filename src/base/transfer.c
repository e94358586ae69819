/* SPDX-License-Identifier: Apache-2.0 */
#include "base/transfer.h"

#include <errno.h>
#include <limits.h>

/* What is left of a transfer: iov[0] from `skip` on, and all behind it. */
typedef struct rest {
    const struct iovec *iov;
    int count;
    size_t skip;
} rest;

/* Also steps over empty pieces, so that a request of nothing is not taken for the end of the file. */
static void advance(rest *left, size_t bytes)
{
    left->skip += bytes;
    while (left->count > 0 && left->skip >= left->iov->iov_len) {
        left->skip -= left->iov->iov_len;
        left->iov++;
        left->count--;
    }
}

static ssize_t request_once(base_request *request, int file, const rest *left, off_t offset)
{
    if (left->skip == 0)
        return request(file, left->iov, left->count < IOV_MAX ? left->count : IOV_MAX, offset);
    const struct iovec piece = {(char *)left->iov->iov_base + left->skip, left->iov->iov_len - left->skip};
    return request(file, &piece, 1, offset);
}

ssize_t base_transfer(base_request *request, int file, const struct iovec *iov, int count, uint64_t offset)
{
    rest left = {iov, count, 0};
    ssize_t total = 0;

    advance(&left, 0);
    while (left.count > 0) {
        const ssize_t bytes = request_once(request, file, &left, (off_t)offset + total);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes < 0)
            return -errno;
        if (bytes == 0)
            break;
        advance(&left, (size_t)bytes);
        total += bytes;
    }
    return total;
}
