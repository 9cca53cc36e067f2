// Reads n vectors of 16 bytes once, for the rate alone; the sum keeps the compiler from dropping the loads.
extern "C" __global__ void __launch_bounds__(512) read(const uint4 *in, unsigned long long n, unsigned *out)
{
    unsigned sum = 0;
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        uint4 a = __ldcs(in + i), b = __ldcs(in + i + step), c = __ldcs(in + i + 2 * step), d = __ldcs(in + i + 3 * step);
        sum ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w;
        sum ^= c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    for (; i < n; i += step) {
        uint4 a = __ldcs(in + i);
        sum ^= a.x ^ a.y ^ a.z ^ a.w;
    }
    if (sum == 0x12345)
        *out = sum;
}
