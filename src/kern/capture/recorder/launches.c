/* Launches of kernels. */
#define _GNU_SOURCE
#include <unistd.h>

#include "arguments.h"
#include "handlers.h"
#include "memory.h"
#include "output.h"
#include "streams.h"

enum { MOST_ATTRIBUTES = 32 }; /* on the stack, which may be a small one */

struct launch {
    CUlaunchConfig config;
    CUfunction function;
    void **params, **extra;
    bool cooperative;
};

static void put_others(struct text *line, const CUlaunchAttribute *attributes, unsigned number, bool first) {
    const char *separator = first ? "\"other\":{" : ",\"other\":{";
    bool any = false;
    for (unsigned i = 0; i < number; i++) {
        unsigned id = (unsigned)attributes[i].id;
        if (id == CU_LAUNCH_ATTRIBUTE_IGNORE || id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION ||
            id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION || id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            continue;
        text_format(line, "%s\"%u\":", separator, id);
        text_hex(line, &attributes[i].value, sizeof attributes[i].value);
        separator = ",";
        any = true;
    }
    if (any)
        text_put(line, "}");
}

static void put_attributes(struct text *line, const CUlaunchAttribute *attributes, unsigned number, bool cooperative) {
    struct text inside = {0};
    const char *separator = "";
    for (unsigned i = 0; i < number; i++) {
        const CUlaunchAttributeValue *value = &attributes[i].value;
        if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            text_format(&inside, "%s\"cluster\":[%u,%u,%u]", separator, value->clusterDim.x, value->clusterDim.y,
                        value->clusterDim.z);
        else if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            text_format(&inside, "%s\"programmatic_stream_serialization\":%d", separator,
                        value->programmaticStreamSerializationAllowed);
        else if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            text_format(&inside, "%s\"cooperative\":%d", separator, value->cooperative);
        separator = inside.length ? "," : "";
    }
    if (cooperative)
        text_format(&inside, "%s\"cooperative\":1", separator);
    put_others(&inside, attributes, number, !inside.length);
    if (inside.length) {
        text_put(line, ",\"attributes\":{");
        text_bytes(line, inside.data, inside.length);
        text_put(line, "}");
    }
    line->incomplete |= inside.incomplete;
    text_free(&inside);
}

static void record(const struct call *call, const struct launch *launch) {
    const CUlaunchConfig *config = &launch->config;
    const struct kernel *kernel = kernel_of(launch->function, call);
    CUlaunchAttribute attributes[MOST_ATTRIBUTES];
    unsigned number = config->numAttrs;
    if (!kernel) {
        output_lost("a launch", "no memory is left for it");
        return;
    }
    if (number > MOST_ATTRIBUTES || (number && !memory_read(attributes, config->attrs, number * sizeof *attributes))) {
        output_lost("the attributes of a launch", "they are more than any launch has, or cannot be read");
        number = 0;
    }
    struct text line = {0};
    text_format(&line, "{\"record\":\"launch\",\"t\":%llu,\"thread\":%ld,\"context\":%u", (unsigned long long)call->now,
                (long)gettid(), call->context_id);
    put_stream(&line, call, config->hStream);
    text_format(&line, ",\"kernel\":%llu", (unsigned long long)kernel->number);
    text_dim3(&line, "grid", config->gridDimX, config->gridDimY, config->gridDimZ);
    text_dim3(&line, "block", config->blockDimX, config->blockDimY, config->blockDimZ);
    text_format(&line, ",\"shared\":%u", config->sharedMemBytes);
    put_attributes(&line, attributes, number, launch->cooperative);
    put_arguments(&line, kernel, launch->params, launch->extra);
    put_capturing(&line, call, config->hStream);
    text_put(&line, "}");
    output_launch(&line);
}

void on_launch(const struct call *call) {
    const cuLaunchKernel_params *p = call->params;
    struct launch launch = {
        .config = {.gridDimX = p->gridDimX, .gridDimY = p->gridDimY, .gridDimZ = p->gridDimZ, .blockDimX = p->blockDimX,
                   .blockDimY = p->blockDimY, .blockDimZ = p->blockDimZ, .sharedMemBytes = p->sharedMemBytes,
                   .hStream = p->hStream},
        .function = p->f, .params = p->kernelParams, .extra = p->extra};
    record(call, &launch);
}

void on_launch_cooperative(const struct call *call) {
    const cuLaunchCooperativeKernel_params *p = call->params;
    struct launch launch = {
        .config = {.gridDimX = p->gridDimX, .gridDimY = p->gridDimY, .gridDimZ = p->gridDimZ, .blockDimX = p->blockDimX,
                   .blockDimY = p->blockDimY, .blockDimZ = p->blockDimZ, .sharedMemBytes = p->sharedMemBytes,
                   .hStream = p->hStream},
        .function = p->f, .params = p->kernelParams, .cooperative = true};
    record(call, &launch);
}

void on_launch_ex(const struct call *call) {
    const cuLaunchKernelEx_params *p = call->params;
    struct launch launch = {.function = p->f, .params = p->kernelParams, .extra = p->extra};
    if (memory_read(&launch.config, p->config, sizeof launch.config))
        record(call, &launch);
    else
        output_lost("a launch", "its configuration cannot be read");
}

void on_launch_unrecorded(const struct call *call) {
    (void)call;
    output_lost("a launch", "those over several devices in one call, and by calls of before CUDA 4, are not recorded");
}
