/* Which calls of the driver are recorded, and by which function. */
#ifndef KERN_CALLS_H
#define KERN_CALLS_H

#include "call.h"

struct traced {
    CUpti_CallbackId id;
    void (*handle)(const struct call *call);
    bool per_thread; /* its default stream is the thread's own */
    bool on_entry;   /* reported before it runs, whether it succeeds or not */
};

extern const struct traced TRACED[];
extern const size_t TRACED_COUNT;

#endif
