/* What a record says of a stream. */
#include "streams.h"

void put_stream(struct text *line, const struct call *call, CUstream stream) {
    uint32_t id;
    if (cupti.GetStreamIdEx(call->context, stream, call->per_thread, &id) == CUPTI_SUCCESS)
        text_format(line, ",\"stream\":%u", id);
}

void put_capturing(struct text *line, const struct call *call, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUstream asked = stream || !call->per_thread ? stream : CU_STREAM_PER_THREAD;
    if (driver.StreamIsCapturing(asked, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
        text_put(line, ",\"capturing\":true");
}
