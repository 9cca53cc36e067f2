/* Kernels by the handles that launches name: symbol, module, attributes, parameter layout. */
#define _GNU_SOURCE
#include "kernels.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

enum { MOST_PARAMS = 32768 }; /* of a byte each, they fill the room that a kernel has */

/* What the driver says of a handle. Launches take a CUkernel for a CUfunction; each answers to its own calls only. */
struct facts {
    char *symbol;
    CUmodule module;
    struct parameter *params;
    size_t param_count;
    bool has_layout;
};

struct slot {
    CUfunction handle;
    const struct kernel *kernel;
};

static struct {
    pthread_mutex_t lock;
    struct slot *slots; /* open addressing, a power of two */
    size_t used, capacity;
    uint64_t epoch; /* of the modules when the slots were filled */
    struct kernel *kernels;
    uint64_t count;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
    const char *name;
    CUfunction_attribute id;
} ATTRIBUTES[] = {
    {"registers", CU_FUNC_ATTRIBUTE_NUM_REGS},
    {"static_shared", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES},
    {"constant", CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES},
    {"local", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES},
    {"max_threads", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {"ptx_version", CU_FUNC_ATTRIBUTE_PTX_VERSION},
    {"binary_version", CU_FUNC_ATTRIBUTE_BINARY_VERSION},
};

static size_t first_slot(CUfunction handle) {
    return (size_t)((uintptr_t)handle * 0x9e3779b97f4a7c15u >> 20) & (table.capacity - 1);
}

static struct slot *slot_of(CUfunction handle) {
    size_t at = first_slot(handle);
    while (table.slots[at].handle && table.slots[at].handle != handle)
        at = (at + 1) & (table.capacity - 1);
    return &table.slots[at];
}

static bool grow(void) {
    struct slot *old = table.slots;
    size_t count = table.capacity;
    struct slot *slots = calloc(count ? 2 * count : 256, sizeof *slots);
    if (!slots)
        return false;
    table.slots = slots;
    table.capacity = count ? 2 * count : 256;
    for (size_t i = 0; i < count; i++)
        if (old[i].handle)
            *slot_of(old[i].handle) = old[i];
    free(old);
    return true;
}

/* Forget the handles where a module was unloaded since: they may be given out again. */
static void renew(uint64_t epoch) {
    if (table.epoch != epoch && table.slots)
        memset(table.slots, 0, table.capacity * sizeof *table.slots);
    if (table.epoch != epoch)
        table.used = 0;
    table.epoch = epoch;
}

static const struct kernel *look_up(CUfunction handle, uint64_t epoch) {
    pthread_mutex_lock(&table.lock);
    renew(epoch);
    const struct kernel *kernel = table.slots ? slot_of(handle)->kernel : NULL;
    pthread_mutex_unlock(&table.lock);
    return kernel;
}

static void keep(CUfunction handle, const struct kernel *kernel, uint64_t epoch) {
    if (table.epoch != epoch || ((table.used + 1) * 2 > table.capacity && !grow()))
        return;
    struct slot *slot = slot_of(handle);
    table.used += !slot->handle;
    *slot = (struct slot){handle, kernel};
}

static char *symbol_of(CUfunction handle, const char *reported) {
    const char *name = reported;
    if (!name && driver.FuncGetName && driver.FuncGetName(&name, handle) != CUDA_SUCCESS)
        name = NULL;
    if (!name && driver.KernelGetName && driver.KernelGetName(&name, (CUkernel)handle) != CUDA_SUCCESS)
        name = NULL;
    return strdup(name ? name : "");
}

static CUmodule module_handle(CUfunction handle, bool *is_function) {
    CUmodule module = NULL;
    CUlibrary library = NULL;
    *is_function = driver.FuncGetModule(&module, handle) == CUDA_SUCCESS;
    if (*is_function)
        return module;
    if (driver.KernelGetLibrary && driver.LibraryGetModule &&
        driver.KernelGetLibrary(&library, (CUkernel)handle) == CUDA_SUCCESS &&
        driver.LibraryGetModule(&module, library) == CUDA_SUCCESS)
        return module;
    return NULL;
}

static CUresult param_info(CUfunction handle, bool is_function, size_t index, struct parameter *param) {
    if (is_function)
        return driver.FuncGetParamInfo ? driver.FuncGetParamInfo(handle, index, &param->offset, &param->size)
                                       : CUDA_ERROR_NOT_SUPPORTED;
    return driver.KernelGetParamInfo
               ? driver.KernelGetParamInfo((CUkernel)handle, index, &param->offset, &param->size)
               : CUDA_ERROR_NOT_SUPPORTED;
}

/* The driver answers for each parameter, and CUDA_ERROR_INVALID_VALUE after the last one. */
static void ask_layout(CUfunction handle, bool is_function, struct facts *facts) {
    struct parameter param;
    size_t capacity = 0;
    CUresult result;
    while ((result = param_info(handle, is_function, facts->param_count, &param)) == CUDA_SUCCESS) {
        if (facts->param_count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            struct parameter *params =
                capacity <= MOST_PARAMS ? realloc(facts->params, capacity * sizeof *params) : NULL;
            if (!params)
                return;
            facts->params = params;
        }
        facts->params[facts->param_count++] = param;
    }
    facts->has_layout = result == CUDA_ERROR_INVALID_VALUE;
}

static bool attribute(CUfunction handle, bool is_function, CUfunction_attribute id, int *value) {
    CUdevice device;
    if (is_function)
        return driver.FuncGetAttribute(value, id, handle) == CUDA_SUCCESS;
    return driver.KernelGetAttribute && driver.CtxGetDevice(&device) == CUDA_SUCCESS &&
           driver.KernelGetAttribute(value, id, (CUkernel)handle, device) == CUDA_SUCCESS;
}

static void put_attributes(struct text *body, CUfunction handle, bool is_function) {
    const char *separator = "";
    text_put(body, ",\"attributes\":{");
    for (size_t i = 0; i < sizeof ATTRIBUTES / sizeof *ATTRIBUTES; i++) {
        int value;
        if (!attribute(handle, is_function, ATTRIBUTES[i].id, &value))
            continue;
        text_format(body, "%s\"%s\":%d", separator, ATTRIBUTES[i].name, value);
        separator = ",";
    }
    text_put(body, "}");
}

static void put_layout(struct text *body, const struct facts *facts) {
    if (!facts->has_layout) {
        text_put(body, ",\"params\":null,\"layout\":null}");
        return;
    }
    text_put(body, ",\"params\":[");
    for (size_t i = 0; i < facts->param_count; i++)
        text_format(body, "%s[%zu,%zu]", i ? "," : "", facts->params[i].offset, facts->params[i].size);
    text_put(body, "],\"layout\":\"driver\"}");
}

/* Tell the module, from the surest source that knows it, and remember which handle is its own. */
static const struct image *find_image(const struct facts *facts, const struct call *call, struct text *body) {
    uint32_t id;
    const struct image *image = NULL;
    const char *found = NULL;
    if (module_profiled_since(call->mark, &id) && (image = module_image(id))) {
        module_tie(facts->module, id);
        found = "profiled";
    } else if ((image = module_of_handle(facts->module)) && image_holds(image, facts->symbol)) {
        found = "handle";
    } else if (module_loaded_since(call->mark, &id) && (image = module_image(id)) &&
               image_holds(image, facts->symbol)) {
        module_tie(facts->module, id);
        found = "loading";
    }
    if (found) {
        text_format(body, ",\"module\":\"%s\",\"found\":\"%s\"", image->sha256, found);
        return image;
    }
    size_t count;
    const struct image **holding = modules_holding(facts->symbol, &count);
    image = count == 1 ? holding[0] : NULL;
    if (image) {
        module_tie_image(facts->module, image);
        text_format(body, ",\"module\":\"%s\",\"found\":\"symbol\"", image->sha256);
    } else {
        text_put(body, ",\"module\":null,\"found\":null,\"candidates\":[");
        for (size_t i = 0; i < count; i++)
            text_format(body, "%s\"%s\"", i ? "," : "", holding[i]->sha256);
        text_put(body, "]");
    }
    free(holding);
    return image;
}

/* The kernel with this record, made and written if it is new; the caller holds the lock. */
static const struct kernel *record(struct text *body, struct facts *facts, const struct image *image) {
    for (struct kernel *kernel = table.kernels; kernel; kernel = kernel->next)
        if (!strcmp(kernel->body, body->data))
            return kernel;
    struct kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel)
        return NULL;
    *kernel = (struct kernel){.number = table.count++, .image = image, .has_layout = facts->has_layout};
    kernel->params = facts->params;
    kernel->param_count = facts->param_count;
    for (size_t i = 0; i < facts->param_count; i++)
        kernel->params_size += facts->params[i].size;
    facts->params = NULL;
    kernel->body = body->data;
    kernel->next = table.kernels;
    table.kernels = kernel;
    *body = (struct text){0};
    struct text line = {0};
    text_format(&line, "{\"record\":\"kernel\",\"kernel\":%llu", (unsigned long long)kernel->number);
    text_put(&line, kernel->body);
    output_line(&line);
    return kernel;
}

static const struct kernel *resolve(CUfunction handle, const struct call *call, uint64_t epoch) {
    struct facts facts = {.symbol = symbol_of(handle, call->symbol)};
    struct text body = {0};
    bool is_function;
    if (!facts.symbol)
        return NULL;
    facts.module = module_handle(handle, &is_function);
    ask_layout(handle, is_function, &facts);
    text_put(&body, ",\"symbol\":");
    text_string(&body, facts.symbol, strlen(facts.symbol));
    const struct image *image = find_image(&facts, call, &body);
    put_attributes(&body, handle, is_function);
    put_layout(&body, &facts);
    text_bytes(&body, "", 1);
    const struct kernel *kernel = NULL;
    if (!body.incomplete) {
        pthread_mutex_lock(&table.lock);
        kernel = record(&body, &facts, image);
        if (kernel)
            keep(handle, kernel, epoch);
        pthread_mutex_unlock(&table.lock);
    }
    text_free(&body);
    free(facts.params);
    free(facts.symbol);
    return kernel;
}

const struct kernel *kernel_of(CUfunction handle, const struct call *call) {
    uint32_t id;
    uint64_t epoch = modules_epoch();
    const struct kernel *kernel = look_up(handle, epoch);
    const struct image *ran = kernel && module_profiled_since(call->mark, &id) ? module_image(id) : NULL;
    return kernel && (!ran || ran == kernel->image) ? kernel : resolve(handle, call, epoch);
}
