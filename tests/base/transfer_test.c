/* SPDX-License-Identifier: Apache-2.0 */
#include "base/transfer.h"
#include "test.h"

#include <errno.h>
#include <limits.h>

/* A file whose requests are interrupted, and cut anywhere. */
static struct {
    uint8_t content[5000];
    size_t end;      /* of the file */
    unsigned random; /* decides where a request is cut */
    int longest;     /* pieces in one request */
} cut;

static unsigned draw(void)
{
    cut.random = cut.random * 1103515245u + 12345u;
    return cut.random >> 8;
}

static ssize_t cut_request(const struct iovec *iov, int count, off_t offset, int writes)
{
    size_t budget = 1 + draw() % 40;
    size_t at = (size_t)offset;

    if (draw() % 4 == 0) {
        errno = EINTR;
        return -1;
    }
    if (count > cut.longest)
        cut.longest = count;
    for (int i = 0; i < count && budget > 0; i++) {
        size_t bytes = iov[i].iov_len < budget ? iov[i].iov_len : budget;
        if (bytes > cut.end - at)
            bytes = cut.end - at;
        if (writes)
            memcpy(cut.content + at, iov[i].iov_base, bytes);
        else
            memcpy(iov[i].iov_base, cut.content + at, bytes);
        at += bytes;
        budget -= bytes;
        if (bytes < iov[i].iov_len)
            break;
    }
    return (ssize_t)(at - (size_t)offset);
}

static ssize_t cut_read(int file, const struct iovec *iov, int count, off_t offset)
{
    (void)file;
    return cut_request(iov, count, offset, 0);
}

static ssize_t cut_write(int file, const struct iovec *iov, int count, off_t offset)
{
    (void)file;
    return cut_request(iov, count, offset, 1);
}

/* Cuts memory into pieces of 0 to 9 bytes; returns their count. */
static int cut_up(uint8_t *memory, size_t bytes, struct iovec *iov, int capacity)
{
    int count = 0;

    while (bytes > 0 && count < capacity - 1) {
        const size_t piece = draw() % 10;
        const size_t here = piece < bytes ? piece : bytes;
        iov[count++] = (struct iovec){memory, here};
        memory += here;
        bytes -= here;
    }
    iov[count++] = (struct iovec){memory, bytes};
    return count;
}

static void transfers_survive_short_counts_and_interrupts(void **state)
{
    (void)state;
    static uint8_t out[4900], in[4900];
    static struct iovec iov[5000];

    for (unsigned seed = 1; seed <= 200; seed++) {
        cut.random = seed;
        cut.end = sizeof cut.content;
        memset(cut.content, 0, sizeof cut.content);
        memset(in, 0, sizeof in);
        for (size_t i = 0; i < sizeof out; i++)
            out[i] = (uint8_t)draw();
        int count = cut_up(out, sizeof out, iov, 5000);
        assert_int_equal(base_transfer(cut_write, 3, iov, count, 50), sizeof out);
        assert_memory_equal(cut.content + 50, out, sizeof out);
        assert_int_equal(cut.content[49] | cut.content[4950], 0);
        count = cut_up(in, sizeof in, iov, 5000);
        assert_int_equal(base_transfer(cut_read, 3, iov, count, 50), sizeof in);
        assert_memory_equal(in, out, sizeof in);
        cut.end = 60 + draw() % 1000;
        assert_int_equal(base_transfer(cut_read, 3, iov, count, 50), cut.end - 50);
    }
    assert_in_range(cut.longest, 2, IOV_MAX);
}

static void nothing_to_transfer_asks_for_nothing(void **state)
{
    (void)state;
    struct iovec empty[2] = {{NULL, 0}, {NULL, 0}};

    assert_int_equal(base_transfer(NULL, 3, empty, 2, 0), 0);
    assert_int_equal(base_transfer(NULL, 3, empty, 0, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_survive_short_counts_and_interrupts),
        cmocka_unit_test(nothing_to_transfer_asks_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
