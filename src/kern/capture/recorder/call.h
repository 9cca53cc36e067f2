/* One call of the driver, as the handlers of calls see it: most when it returned with success. */
#ifndef KERN_CALL_H
#define KERN_CALL_H

#include "driver.h"

struct call {
    const void *params; /* the call's arguments, a struct of generated_cuda_meta.h */
    const char *symbol; /* of launches; may be NULL */
    CUcontext context;
    uint32_t context_id;
    bool per_thread; /* the default stream is the thread's own */
    uint64_t mark;   /* modules_mark() before the call */
    uint64_t now;    /* when it returned, ns */
};

#endif
