/* A libcupti for tests: one subscriber, which is notified of the calls that were enabled. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { IDS = 1024 };

static CUpti_CallbackFunc subscribed;
static void *subscribed_data;
static bool enabled[CUPTI_CB_DOMAIN_SIZE][IDS];

static void tell(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    if (subscribed && id < IDS && enabled[domain][id])
        subscribed(subscribed_data, domain, id, data);
}

CUptiResult cuptiGetVersion(uint32_t *version) {
    *version = 130001;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **string) {
    bool taken = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    *string = taken ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_UNKNOWN";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *data) {
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    fake_hook *hook = libcuda ? dlsym(libcuda, "fake_tell") : NULL;
    if (!hook || getenv("FAKE_CUPTI_TAKEN"))
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    *subscriber = (CUpti_SubscriberHandle)&subscribed;
    subscribed = callback;
    subscribed_data = data;
    *hook = tell;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) {
    if (subscriber != (CUpti_SubscriberHandle)&subscribed || id >= IDS)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (domain == CUPTI_CB_DOMAIN_RESOURCE && id == CUPTI_CBID_RESOURCE_MODULE_PROFILED && getenv("FAKE_NO_PROFILED"))
        return CUPTI_ERROR_INVALID_PARAMETER;
    enabled[domain][id] = enable;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t per_thread, uint32_t *id) {
    (void)context;
    if ((uintptr_t)stream == 0xbad)
        return CUPTI_ERROR_INVALID_PARAMETER;
    *id = stream ? (uint32_t)(uintptr_t)stream + 100 : per_thread ? 8 : 7;
    return CUPTI_SUCCESS;
}
