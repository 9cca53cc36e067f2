/* Which words are addresses, of what memory, and what lies behind those of the host. */
#ifndef KERN_POINTERS_H
#define KERN_POINTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text.h"

enum memory { NOT_MEMORY, DEVICE, MANAGED, PINNED, HOST };

struct location {
    enum memory memory;
    uint64_t base, size; /* its allocation, or the mapping */
};

struct location location_of(uint64_t address);

/* Whether the processor reads this memory itself. */
bool is_host(enum memory memory);

/* Up to `size` bytes behind an address of the host's memory; the number read, 0 where that cannot be done. */
size_t read_host(void *to, uint64_t address, struct location location, size_t size);

/* The addresses among a launch's parameters, as they are written. */
struct pointers {
    struct text *line;
    bool any;
    size_t host_words;
};

/* Write an object for each 8-byte aligned word of a parameter that is an address.

   Inside a larger parameter only what the driver knows is written: the padding of a struct keeps what the stack held
   before, and that is full of addresses of the program's own memory. Such words are counted in `host_words`.

   `offset` is where the parameter begins among all, `param` its index, or negative for a buffer that is not cut. */
void put_pointers(struct pointers *pointers, const unsigned char *bytes, size_t size, size_t offset, long param);

#endif
