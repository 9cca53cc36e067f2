/* Reading the program's own memory at addresses that may be bad. */
#ifndef KERN_MEMORY_H
#define KERN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct piece {
    const void *from;
    size_t size;
};

/* Copy `size` bytes; false (and nothing promised of `to`) where one of them cannot be read. */
bool memory_read(void *to, const void *from, size_t size);

/* Copy pieces one behind the other into `to`; false where a byte of them cannot be read. */
bool memory_gather(void *to, const struct piece *pieces, size_t count);

/* Copy up to `size` bytes of memory that the driver mapped, which the first way may not reach; the number copied. */
size_t memory_read_pinned(void *to, const void *from, size_t size);

/* The mapping of the process that holds an address, as of the last time that one had to be looked up. */
bool memory_mapping(uint64_t address, uint64_t *base, uint64_t *size);

#endif
