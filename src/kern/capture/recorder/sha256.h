/* SHA-256 (FIPS 180-4). */
#ifndef KERN_SHA256_H
#define KERN_SHA256_H

#include <stddef.h>

/* The hash of `count` bytes as 64 hexadecimal digits and a NUL. */
void sha256(const void *bytes, size_t count, char digits[65]);

#endif
