/* The bytes of a launch's parameters, however they were passed. */
#ifndef KERN_ARGUMENTS_H
#define KERN_ARGUMENTS_H

#include "kernels.h"
#include "text.h"

/* Write `"via":…`, `"params":…`, `"bytes":…`, `"pointers":…`, as far as they are known and apply. */
void put_arguments(struct text *line, const struct kernel *kernel, void **params, void **extra);

#endif
