/* Which words are addresses, of what memory, and what lies behind those of the host. */
#ifndef KERN_POINTERS_H
#define KERN_POINTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text.h"

enum { DATA_BYTES = 256 };

enum memory { NOT_MEMORY, DEVICE, MANAGED, PINNED, HOST };

struct place {
    enum memory memory;
    uint64_t base, size; /* its allocation, or the mapping */
};

struct place place_of(uint64_t address);

/* Whether the processor reads this memory itself. */
bool is_host(enum memory memory);

/* Up to `size` bytes behind an address of the host's memory; the number read, 0 where that cannot be done. */
size_t read_host(void *to, uint64_t address, struct place place, size_t size);

/* Write an object for each 8-byte aligned word of a parameter that is an address, each after a comma but the first.

   `offset` is the parameter's place among all, `param` its index, or negative for a buffer that is not cut. */
void put_pointers(struct text *line, const unsigned char *bytes, size_t size, size_t offset, long param, bool *first);

#endif
