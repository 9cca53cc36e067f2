// residual += x; x = residual / sqrt(mean(residual^2) + eps) · weight: the same as vLLM's fused_add_rms_norm, one block
// per row, eight elements per thread. It is launched while the preceding matrix product is still running, and lets the
// next one begin to load its weights at once: both wait for what they read.
typedef unsigned int u32;

struct alignas(16) Eight {
    u32 pair[4];  // two bf16 each
};

__device__ static float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ static float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// The nearest bf16 of each, ties to even; a NaN stays one.
__device__ static u32 pack(float first, float second) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

__device__ static Eight load_fresh(const Eight* from) {
    uint4 found = __ldcg(reinterpret_cast<const uint4*>(from));
    return {{found.x, found.y, found.z, found.w}};
}

extern "C" __global__ void __launch_bounds__(1024)
add_norm(Eight* x, Eight* residual, const Eight* weight, int rows, int width, float eps) {
    int vectors = width / 8, at = blockIdx.x * vectors + threadIdx.x;
    bool inside = threadIdx.x < vectors && blockIdx.x < rows;
    Eight gain = inside ? weight[threadIdx.x] : Eight{}, sum = {};
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    float squares = 0.0f;
    if (inside) {
        Eight one = load_fresh(residual + at), other = load_fresh(x + at);
        for (int i = 0; i < 4; i++) {
            sum.pair[i] = pack(low(one.pair[i]) + low(other.pair[i]), high(one.pair[i]) + high(other.pair[i]));
            squares += low(sum.pair[i]) * low(sum.pair[i]) + high(sum.pair[i]) * high(sum.pair[i]);
        }
        residual[at] = sum;
    }
    __shared__ float part[32];
    for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, offset);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = squares;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < blockDim.x / 32; warp++) total += part[warp];
    if (!inside) return;
    float scale = rsqrtf(total / width + eps);
    Eight y;
    for (int i = 0; i < 4; i++)
        y.pair[i] = pack(low(sum.pair[i]) * scale * low(gain.pair[i]), high(sum.pair[i]) * scale * high(gain.pair[i]));
    x[at] = y;
}
