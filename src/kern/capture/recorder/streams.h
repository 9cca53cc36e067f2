/* What a record says of a stream. */
#ifndef KERN_STREAMS_H
#define KERN_STREAMS_H

#include "call.h"
#include "text.h"

/* Write `,"stream":id`; nothing where CUPTI does not know it. */
void put_stream(struct text *line, const struct call *call, CUstream stream);

/* Write `,"capturing":true` where work given to the stream is being captured into a graph, and did not run. */
void put_capturing(struct text *line, const struct call *call, CUstream stream);

#endif
