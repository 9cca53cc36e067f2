/* Kernels by the handles that launches name: symbol, module, attributes, parameter layout. */
#ifndef KERN_KERNELS_H
#define KERN_KERNELS_H

#include "call.h"
#include "modules.h"

struct parameter {
    size_t offset, size; /* bytes */
};

struct kernel {
    uint64_t number; /* K of the records */
    const struct image *image;
    bool has_layout;
    struct parameter *params;
    size_t param_count, params_size; /* the sum of the sizes */
    char *body;                      /* its record, but for the number */
    struct kernel *next;
};

/* The kernel of a CUfunction or CUkernel, recorded when it is new; NULL where memory ran out. */
const struct kernel *kernel_of(CUfunction handle, const struct call *call);

#endif
