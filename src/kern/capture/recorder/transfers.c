/* Copies and fills of memory. */
#include <string.h>

#include "handlers.h"
#include "memory.h"
#include "output.h"
#include "pointers.h"
#include "streams.h"

enum { DATA_BYTES = 256 };

struct copy {
    uint64_t from, to, bytes;
    const char *kind;
    CUstream stream;
    bool scattered; /* the rows of the source do not lie one behind the other */
};

struct fill {
    uint64_t to, bytes;
    unsigned value, width;
    CUstream stream;
};

/* Calls that the headers of CUDA 12.8 do not have yet. */
struct batch_v2_params {
    CUdeviceptr *to, *from;
    size_t *sizes, count;
    void *attributes;
    size_t *attribute_indices, attribute_count;
    CUstream stream;
};

struct attributed_params {
    CUdeviceptr to, from;
    size_t bytes;
    void *attributes;
    CUstream stream;
};

static void begin(struct text *line, const char *record, const struct call *call, CUstream stream) {
    text_format(line, "{\"record\":\"%s\",\"t\":%llu", record, (unsigned long long)call->now);
    put_stream(line, call, stream);
}

static void record_copy(const struct call *call, struct copy copy) {
    unsigned char data[DATA_BYTES];
    struct text line = {0};
    if (!copy.bytes)
        return;
    begin(&line, "copy", call, copy.stream);
    text_format(&line, ",\"from\":%llu,\"to\":%llu,\"bytes\":%llu,\"kind\":\"%s\"", (unsigned long long)copy.from,
                (unsigned long long)copy.to, (unsigned long long)copy.bytes, copy.kind);
    bool small = copy.bytes <= sizeof data && !copy.scattered;
    struct location location = small ? location_of(copy.from) : (struct location){NOT_MEMORY, 0, 0};
    if (is_host(location.memory) && read_host(data, copy.from, location, (size_t)copy.bytes) == copy.bytes) {
        text_put(&line, ",\"data\":");
        text_hex(&line, data, (size_t)copy.bytes);
    }
    put_capturing(&line, call, copy.stream);
    text_put(&line, "}");
    output_line(&line);
}

static void record_fill(const struct call *call, struct fill fill) {
    struct text line = {0};
    if (!fill.bytes)
        return;
    begin(&line, "fill", call, fill.stream);
    text_format(&line, ",\"to\":%llu,\"bytes\":%llu,\"value\":%u,\"width\":%u", (unsigned long long)fill.to,
                (unsigned long long)fill.bytes, fill.value, fill.width);
    put_capturing(&line, call, fill.stream);
    text_put(&line, "}");
    output_line(&line);
}

static uint64_t address(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

void on_copy_to_device(const struct call *call) {
    const cuMemcpyHtoD_v2_params *p = call->params;
    record_copy(call, (struct copy){address(p->srcHost), p->dstDevice, p->ByteCount, "HtoD", NULL, false});
}

void on_copy_to_device_async(const struct call *call) {
    const cuMemcpyHtoDAsync_v2_params *p = call->params;
    record_copy(call, (struct copy){address(p->srcHost), p->dstDevice, p->ByteCount, "HtoD", p->hStream, false});
}

void on_copy_to_host(const struct call *call) {
    const cuMemcpyDtoH_v2_params *p = call->params;
    record_copy(call, (struct copy){p->srcDevice, address(p->dstHost), p->ByteCount, "DtoH", NULL, false});
}

void on_copy_to_host_async(const struct call *call) {
    const cuMemcpyDtoHAsync_v2_params *p = call->params;
    record_copy(call, (struct copy){p->srcDevice, address(p->dstHost), p->ByteCount, "DtoH", p->hStream, false});
}

void on_copy_on_device(const struct call *call) {
    const cuMemcpyDtoD_v2_params *p = call->params;
    record_copy(call, (struct copy){p->srcDevice, p->dstDevice, p->ByteCount, "DtoD", NULL, false});
}

void on_copy_on_device_async(const struct call *call) {
    const cuMemcpyDtoDAsync_v2_params *p = call->params;
    record_copy(call, (struct copy){p->srcDevice, p->dstDevice, p->ByteCount, "DtoD", p->hStream, false});
}

void on_copy(const struct call *call) {
    const cuMemcpy_params *p = call->params;
    record_copy(call, (struct copy){p->src, p->dst, p->ByteCount, "default", NULL, false});
}

void on_copy_async(const struct call *call) {
    const cuMemcpyAsync_params *p = call->params;
    record_copy(call, (struct copy){p->src, p->dst, p->ByteCount, "default", p->hStream, false});
}

void on_copy_attributed(const struct call *call) {
    const struct attributed_params *p = call->params;
    record_copy(call, (struct copy){p->from, p->to, p->bytes, "default", p->stream, false});
}

void on_copy_peer(const struct call *call) {
    const cuMemcpyPeer_params *p = call->params;
    record_copy(call, (struct copy){p->srcDevice, p->dstDevice, p->ByteCount, "DtoD", NULL, false});
}

void on_copy_peer_async(const struct call *call) {
    const cuMemcpyPeerAsync_params *p = call->params;
    record_copy(call, (struct copy){p->srcDevice, p->dstDevice, p->ByteCount, "DtoD", p->hStream, false});
}

static void record_batch(const struct call *call, const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes,
                         size_t count, CUstream stream) {
    for (size_t i = 0; i < count; i++) {
        struct copy copy = {.kind = "default", .stream = stream};
        CUdeviceptr ends[2];
        size_t bytes;
        if (!memory_read(&ends[0], from + i, sizeof ends[0]) || !memory_read(&ends[1], to + i, sizeof ends[1]) ||
            !memory_read(&bytes, sizes + i, sizeof bytes)) {
            output_lost("a batch of copies", "its list cannot be read");
            return;
        }
        copy.from = ends[0];
        copy.to = ends[1];
        copy.bytes = bytes;
        record_copy(call, copy);
    }
}

void on_copy_batch(const struct call *call) {
    const cuMemcpyBatchAsync_params *p = call->params;
    record_batch(call, p->dsts, p->srcs, p->sizes, p->count, p->hStream);
}

void on_copy_batch_v2(const struct call *call) {
    const struct batch_v2_params *p = call->params;
    record_batch(call, p->to, p->from, p->sizes, p->count, p->stream);
}

static const char *kind_of(CUmemorytype from, CUmemorytype to) {
    static const char *const KINDS[2][2] = {{"HtoH", "HtoD"}, {"DtoH", "DtoD"}};
    if (from == CU_MEMORYTYPE_UNIFIED || to == CU_MEMORYTYPE_UNIFIED)
        return "default";
    return KINDS[from != CU_MEMORYTYPE_HOST][to != CU_MEMORYTYPE_HOST];
}

/* The first byte of one side of a copy of several dimensions; 0 for an array, which has no address. */
static uint64_t corner(CUmemorytype type, const void *host, CUdeviceptr device, uint64_t offset) {
    if (type == CU_MEMORYTYPE_ARRAY)
        return 0;
    return (type == CU_MEMORYTYPE_HOST ? address(host) : device) + offset;
}

static void record_2d(const struct call *call, const CUDA_MEMCPY2D *at, CUstream stream) {
    CUDA_MEMCPY2D c;
    if (!memory_read(&c, at, sizeof c)) {
        output_lost("a copy", "its description cannot be read");
        return;
    }
    record_copy(call, (struct copy){
                          corner(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcY * c.srcPitch + c.srcXInBytes),
                          corner(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstY * c.dstPitch + c.dstXInBytes),
                          (uint64_t)c.WidthInBytes * c.Height, kind_of(c.srcMemoryType, c.dstMemoryType), stream,
                          c.srcPitch != c.WidthInBytes && c.Height > 1});
}

void on_copy_2d(const struct call *call) { record_2d(call, ((const cuMemcpy2D_v2_params *)call->params)->pCopy, NULL); }

void on_copy_2d_async(const struct call *call) {
    const cuMemcpy2DAsync_v2_params *p = call->params;
    record_2d(call, p->pCopy, p->hStream);
}

static void record_3d(const struct call *call, const CUDA_MEMCPY3D *at, CUstream stream) {
    CUDA_MEMCPY3D c;
    if (!memory_read(&c, at, sizeof c)) {
        output_lost("a copy", "its description cannot be read");
        return;
    }
    uint64_t from = (c.srcZ * c.srcHeight + c.srcY) * c.srcPitch + c.srcXInBytes;
    uint64_t to = (c.dstZ * c.dstHeight + c.dstY) * c.dstPitch + c.dstXInBytes;
    record_copy(call, (struct copy){corner(c.srcMemoryType, c.srcHost, c.srcDevice, from),
                                    corner(c.dstMemoryType, c.dstHost, c.dstDevice, to),
                                    (uint64_t)c.WidthInBytes * c.Height * c.Depth,
                                    kind_of(c.srcMemoryType, c.dstMemoryType), stream,
                                    (c.srcPitch != c.WidthInBytes && c.Height * c.Depth > 1) ||
                                        (c.srcHeight != c.Height && c.Depth > 1)});
}

void on_copy_3d(const struct call *call) { record_3d(call, ((const cuMemcpy3D_v2_params *)call->params)->pCopy, NULL); }

void on_copy_3d_async(const struct call *call) {
    const cuMemcpy3DAsync_v2_params *p = call->params;
    record_3d(call, p->pCopy, p->hStream);
}

void on_copy_unrecorded(const struct call *call) {
    (void)call;
    output_lost("a copy", "copies of arrays, and those of three dimensions by peers or in batches, are not recorded");
}

/* The value of one element is in `field`; both forms of a call begin with the same arguments. */
#define FILL(name, call_name, field, width, stream)                                                                   \
    void name(const struct call *call) {                                                                              \
        const call_name##_params *p = call->params;                                                                   \
        record_fill(call, (struct fill){p->dstDevice, (uint64_t)p->N * (width), p->field, width, stream});            \
    }

#define FILL_2D(name, call_name, field, width, stream)                                                                \
    void name(const struct call *call) {                                                                              \
        const call_name##_params *p = call->params;                                                                   \
        uint64_t bytes = (uint64_t)p->Width * p->Height * (width);                                                    \
        record_fill(call, (struct fill){p->dstDevice, bytes, p->field, width, stream});                               \
    }

FILL(on_fill_8, cuMemsetD8_v2, uc, 1, NULL)
FILL(on_fill_8_async, cuMemsetD8Async, uc, 1, p->hStream)
FILL(on_fill_16, cuMemsetD16_v2, us, 2, NULL)
FILL(on_fill_16_async, cuMemsetD16Async, us, 2, p->hStream)
FILL(on_fill_32, cuMemsetD32_v2, ui, 4, NULL)
FILL(on_fill_32_async, cuMemsetD32Async, ui, 4, p->hStream)
FILL_2D(on_fill_2d_8, cuMemsetD2D8_v2, uc, 1, NULL)
FILL_2D(on_fill_2d_8_async, cuMemsetD2D8Async, uc, 1, p->hStream)
FILL_2D(on_fill_2d_16, cuMemsetD2D16_v2, us, 2, NULL)
FILL_2D(on_fill_2d_16_async, cuMemsetD2D16Async, us, 2, p->hStream)
FILL_2D(on_fill_2d_32, cuMemsetD2D32_v2, ui, 4, NULL)
FILL_2D(on_fill_2d_32_async, cuMemsetD2D32Async, ui, 4, p->hStream)
