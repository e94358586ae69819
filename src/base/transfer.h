/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_TRANSFER_H
#define BASE_TRANSFER_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* One positioned request, as preadv() and pwritev() answer it: a count, or -1 and errno. */
typedef ssize_t base_request(int file, const struct iovec *iov, int count, off_t offset);

/*
 * Repeats `request` until all of iov is transferred: continues after short counts, retries
 * EINTR, and asks for at most IOV_MAX pieces at a time. Returns the bytes transferred, short
 * only where a request answered 0 (the end of a file), or a negative errno value.
 */
ssize_t base_transfer(base_request *request, int file, const struct iovec *iov, int count, uint64_t offset);

#endif
