/* What the fake libcuda and the fake libcupti share: how a call of the driver is told to the subscriber. */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define __CUDA_API_VERSION_INTERNAL
#include <cupti_callbacks.h>
#include <cupti_driver_cbid.h>
#include <generated_cuda_meta.h>

/* Set in libcuda by libcupti while there is a subscriber. */
typedef void (*fake_hook)(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data);

#endif
