/* The entry points of libcuda and libcupti, found in the process: neither is linked. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "output.h"

struct driver driver;
struct cupti cupti;

static const struct entry {
    const char *name;
    void *address;
    bool needed;
} DRIVER[] = {
    {"cuDriverGetVersion", &driver.DriverGetVersion, true},
    {"cuCtxGetDevice", &driver.CtxGetDevice, true},
    {"cuFuncGetModule", &driver.FuncGetModule, true},
    {"cuFuncGetName", &driver.FuncGetName, false},
    {"cuFuncGetAttribute", &driver.FuncGetAttribute, true},
    {"cuFuncGetParamInfo", &driver.FuncGetParamInfo, false},
    {"cuKernelGetLibrary", &driver.KernelGetLibrary, false},
    {"cuKernelGetName", &driver.KernelGetName, false},
    {"cuKernelGetAttribute", &driver.KernelGetAttribute, false},
    {"cuKernelGetParamInfo", &driver.KernelGetParamInfo, false},
    {"cuLibraryGetModule", &driver.LibraryGetModule, false},
    {"cuPointerGetAttributes", &driver.PointerGetAttributes, true},
    {"cuStreamIsCapturing", &driver.StreamIsCapturing, true},
    {"cuGraphGetNodes", &driver.GraphGetNodes, true},
    {"cuGraphNodeGetType", &driver.GraphNodeGetType, true},
    {"cuGraphChildGraphNodeGetGraph", &driver.GraphChildGraphNodeGetGraph, true},
    {"cuGraphKernelNodeGetParams_v2", &driver.GraphKernelNodeGetParams, true},
    {"cuGraphKernelNodeGetAttribute", &driver.GraphKernelNodeGetAttribute, true},
}, CUPTI[] = {
    {"cuptiGetVersion", &cupti.GetVersion, true},
    {"cuptiGetResultString", &cupti.GetResultString, true},
    {"cuptiSubscribe", &cupti.Subscribe, true},
    {"cuptiEnableCallback", &cupti.EnableCallback, true},
    {"cuptiGetStreamIdEx", &cupti.GetStreamIdEx, true},
};

static bool bind(const char *library, void *handle, const struct entry *entries, size_t count) {
    for (size_t i = 0; i < count; i++) {
        *(void **)entries[i].address = dlsym(handle, entries[i].name);
        if (entries[i].needed && !*(void **)entries[i].address) {
            output_log("nothing is recorded: %s has no %s", library, entries[i].name);
            return false;
        }
    }
    return true;
}

/* The one that is in the process already, since two copies in one process do not work; else the one that was named. */
static void *open_cupti(void) {
    static const char *const NAMES[] = {"libcupti.so.13", "libcupti.so.12"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        void *there = dlopen(NAMES[i], RTLD_NOW | RTLD_NOLOAD);
        if (there)
            return there;
    }
    const char *named = getenv("KERN_CUPTI");
    if (!named || !*named) {
        output_log("nothing is recorded: the program has no libcupti, and KERN_CUPTI names none");
        return NULL;
    }
    void *loaded = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (!loaded)
        output_log("nothing is recorded: %s", dlerror());
    return loaded;
}

bool driver_find(void) {
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!libcuda) {
        output_log("nothing is recorded: the program has no libcuda.so.1");
        return false;
    }
    if (!bind("libcuda.so.1", libcuda, DRIVER, sizeof DRIVER / sizeof *DRIVER))
        return false;
    void *libcupti = open_cupti();
    return libcupti && bind("libcupti", libcupti, CUPTI, sizeof CUPTI / sizeof *CUPTI);
}
