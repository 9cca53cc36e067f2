/* The library's entry: libcuda loads it at cuInit, it subscribes to CUPTI, and CUPTI calls it from then on. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "handlers.h"
#include "modules.h"
#include "output.h"

enum { MOST_IDS = 4096 };

static const struct traced *by_id[MOST_IDS];
static __thread bool inside; /* the recorder's own calls of the driver are not recorded */

static void on_module(CUpti_CallbackId id, const CUpti_ResourceData *data) {
    const CUpti_ModuleResourceData *module = data->resourceDescriptor;
    if (id == CUPTI_CBID_RESOURCE_MODULE_PROFILED)
        module_profiled(module->moduleId);
    else if (id == CUPTI_CBID_RESOURCE_MODULE_LOADED && module->pCubin && module->cubinSize)
        module_loaded(module->moduleId, module->pCubin, module->cubinSize);
    else if (id == CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING)
        module_unloading(module->moduleId);
}

/* Lazily loaded handles can be asked about on the call's exit only. */
static void on_driver_call(CUpti_CallbackId id, const CUpti_CallbackData *data) {
    const struct traced *traced = id < MOST_IDS ? by_id[id] : NULL;
    if (!traced)
        return;
    if (data->callbackSite == CUPTI_API_ENTER) {
        *data->correlationData = modules_mark();
    } else if (*(const CUresult *)data->functionReturnValue == CUDA_SUCCESS) {
        struct call call = {data->functionParams, data->symbolName,   data->context, data->contextUid,
                            traced->per_thread,   *data->correlationData, output_now()};
        traced->handle(&call);
    }
}

static void on_callback(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    (void)unused;
    int error = errno;
    if (!output_recording())
        return;
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
        on_module(id, data); /* a question of the recorder's own may be what loads a module */
    } else if (domain == CUPTI_CB_DOMAIN_DRIVER_API && !inside) {
        inside = true;
        on_driver_call(id, data);
        inside = false;
    }
    errno = error;
}

/* The arguments of this process, each ended by a NUL. */
static struct text read_command(void) {
    struct text command = {0};
    char piece[1024];
    ssize_t size;
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    while (file >= 0 && (size = read(file, piece, sizeof piece)) > 0)
        text_bytes(&command, piece, (size_t)size);
    if (file >= 0)
        close(file);
    text_bytes(&command, "", 1);
    return command;
}

static void put_command(struct text *line) {
    struct text command = read_command();
    text_put(line, ",\"command\":[");
    for (size_t at = 0; !command.incomplete && at + 1 < command.length; at += strlen(command.data + at) + 1) {
        if (at)
            text_put(line, ",");
        text_string(line, command.data + at, strlen(command.data + at));
    }
    text_put(line, "]");
    text_free(&command);
}

static void say_process(void) {
    int driver_version = 0;
    uint32_t cupti_version = 0;
    struct text line = {0};
    driver.DriverGetVersion(&driver_version);
    cupti.GetVersion(&cupti_version);
    text_format(&line, "{\"record\":\"process\",\"format\":1,\"pid\":%d,\"t\":%llu", (int)getpid(),
                (unsigned long long)output_now());
    put_command(&line);
    text_format(&line, ",\"driver\":%d,\"cupti\":%u}", driver_version, cupti_version);
    output_line(&line);
}

static const char *reason(CUptiResult result) {
    const char *string = NULL;
    return cupti.GetResultString(result, &string) == CUPTI_SUCCESS && string ? string : "an unknown error";
}

/* An older CUPTI does not know the calls that it cannot see made. */
static void enable(CUpti_SubscriberHandle subscriber) {
    static const CUpti_CallbackId MODULE_EVENTS[] = {CUPTI_CBID_RESOURCE_MODULE_LOADED,
                                                     CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING,
                                                     CUPTI_CBID_RESOURCE_MODULE_PROFILED};
    for (size_t i = 0; i < sizeof MODULE_EVENTS / sizeof *MODULE_EVENTS; i++) {
        CUptiResult result = cupti.EnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, MODULE_EVENTS[i]);
        if (result != CUPTI_SUCCESS)
            output_log("modules are not told whole: CUPTI's module event %u: %s", MODULE_EVENTS[i], reason(result));
    }
    for (size_t i = 0; i < TRACED_COUNT; i++) {
        by_id[TRACED[i].id] = &TRACED[i];
        CUptiResult result = cupti.EnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, TRACED[i].id);
        if (result != CUPTI_SUCCESS && result != CUPTI_ERROR_INVALID_PARAMETER)
            output_log("a call is not recorded: CUPTI's driver call %u: %s", TRACED[i].id, reason(result));
    }
}

__attribute__((visibility("default"))) int InitializeInjection(void) {
    static bool started;
    const char *dump = getenv("KERN_CAPTURE_DIR");
    int error = errno;
    if (started || !dump || !*dump || !output_open(dump))
        goto done;
    started = true;
    inside = true;
    CUpti_SubscriberHandle subscriber;
    if (driver_find()) {
        CUptiResult result = cupti.Subscribe(&subscriber, on_callback, NULL);
        if (result != CUPTI_SUCCESS)
            output_log("nothing is recorded: cuptiSubscribe: %s", reason(result));
        else if (output_start()) {
            say_process();
            enable(subscriber);
        }
    }
    inside = false;
done:
    errno = error;
    return 1;
}

__attribute__((destructor)) static void finish(void) {
    if (!output_recording())
        return;
    struct text line = {0};
    text_format(&line, "{\"record\":\"end\",\"t\":%llu,\"launches\":%llu}", (unsigned long long)output_now(),
                (unsigned long long)launches_recorded());
    output_line(&line);
    output_stop();
}
