/* The host device's kernel ABI: what a kernel receives, and how its file says so without being loaded.
 *
 * A kernel is one exported function. It runs the whole grid, on at most `launch->threads` threads, and must give
 * the same bytes for any number of them. `params[i]` points at parameter i's value, as kernelParams does for
 * cuLaunchKernel. `types` lists the parameters, comma-separated: ptr i32 u32 i64 f32 u8.
 *
 *     KERN_KERNEL(scale_f32, "ptr,ptr,f32") {
 *         float *out = KERN_ARG(float *, 0);
 *         const float *in = KERN_ARG(const float *, 1);
 *         ...
 *     }
 *
 * Section .kern.abi holds one string a kernel, "scale_f32(ptr,ptr,f32)"; section .kern.target the instruction set
 * that the file was compiled for. Compile with -DKERN_TARGET='"x86-64-v3"' -fvisibility=hidden -shared -fPIC.
 */
#ifndef KERN_HOST_H
#define KERN_HOST_H
#include <stdint.h>

typedef struct {
    uint32_t x, y, z;
} kern_dim3;

typedef struct {
    kern_dim3 grid, block;
    uint32_t shared_mem; /* bytes */
    uint32_t threads;    /* at least 1 */
} kern_launch;

#define KERN_KERNEL(name, types)                                                                 \
    static const char kern_abi_##name[]                                                          \
        __attribute__((section(".kern.abi"), used, aligned(1))) = #name "(" types ")";           \
    __attribute__((visibility("default"))) void name(const kern_launch *launch, void *const *params)

#define KERN_ARG(type, i) (*(type const *)params[i])

#ifndef KERN_TARGET
#error compile with the instruction set that the file needs, such as -DKERN_TARGET='"x86-64-v3"'
#endif
static const char kern_target[] __attribute__((section(".kern.target"), used, aligned(1))) = KERN_TARGET;

#endif
