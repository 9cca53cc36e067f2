/* The library's entry: libcuda loads it at cuInit, it subscribes to CUPTI, and CUPTI calls it from then on. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
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

/* While the recorder works in a thread, no signal is taken there and the thread cannot be cancelled: a handler that
   exits or jumps, or a thread that ends, would leave a lock behind that nobody opens. */
struct calm {
    sigset_t signals;
    int cancel;
};

static struct calm be_calm(void) {
    struct calm before;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before.signals);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before.cancel);
    return before;
}

static void be_as(const struct calm *before) {
    pthread_setcancelstate(before->cancel, NULL);
    pthread_sigmask(SIG_SETMASK, &before->signals, NULL);
}

static void on_module(CUpti_CallbackId id, const CUpti_ResourceData *data) {
    const CUpti_ModuleResourceData *module = data->resourceDescriptor;
    struct calm before = be_calm();
    if (id == CUPTI_CBID_RESOURCE_MODULE_PROFILED)
        module_profiled(module->moduleId);
    else if (id == CUPTI_CBID_RESOURCE_MODULE_LOADED && module->pCubin && module->cubinSize)
        module_loaded(module->moduleId, module->pCubin, module->cubinSize);
    else if (id == CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING)
        module_unloading(module->moduleId);
    be_as(&before);
}

/* Lazily loaded handles can be asked about on the call's exit only. One that ends may be given out again before. */
static void on_driver_call(CUpti_CallbackId id, const CUpti_CallbackData *data) {
    const struct traced *traced = id < MOST_IDS ? by_id[id] : NULL;
    if (!traced)
        return;
    bool enters = data->callbackSite == CUPTI_API_ENTER;
    if (enters)
        *data->correlationData = modules_mark();
    if (enters != traced->on_entry || (!enters && *(const CUresult *)data->functionReturnValue != CUDA_SUCCESS))
        return;
    struct call call = {data->functionParams, data->symbolName,       data->context, data->contextUid,
                        traced->per_thread,   *data->correlationData, output_now()};
    struct calm before = be_calm();
    inside = true;
    traced->handle(&call);
    inside = false;
    be_as(&before);
}

static void on_callback(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    (void)unused;
    int error = errno;
    if (!output_recording())
        return;
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
        on_module(id, data); /* a question of the recorder's own may be what loads a module */
    } else if (domain == CUPTI_CB_DOMAIN_DRIVER_API && !inside) {
        on_driver_call(id, data);
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
            output_log("not all modules are reported: CUPTI's module event %u: %s", MODULE_EVENTS[i], reason(result));
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
    struct calm before = be_calm();
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
    be_as(&before);
    errno = error;
    return 1;
}

__attribute__((destructor)) static void finish(void) {
    if (!output_recording())
        return;
    struct calm before = be_calm();
    output_end();
    be_as(&before);
}
