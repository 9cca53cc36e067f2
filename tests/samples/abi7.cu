// abi7.cubin is this file compiled by NVRTC 12.4.127 with --gpu-architecture=sm_90a: the older ELF flavour of cubins.
extern "C" __global__ void __launch_bounds__(256) mixed(float *out, const float *in, int n, float f, long long l, unsigned char b) {
    __shared__ float shared[100];
    shared[threadIdx.x % 100] = in[n];
    __syncthreads();
    out[0] = shared[f > 0] + l + b;
}
extern "C" __global__ void nothing() {}
template <class T> __global__ void fill(T *out, int n) { out[n] = 1; }
template __global__ void fill<float>(float *, int);
