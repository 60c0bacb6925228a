// Loads and stores by space, width and cache policy; copies to shared memory.
#include <cuda_pipeline.h>
__constant__ int4 table[64];
__constant__ unsigned char bytes[256];
extern "C" __global__ void widths(char *c, short *s, int *i, long long *l, int4 *v, unsigned char *uc, unsigned short *us) {
    int n = threadIdx.x;
    c[n + 1] = c[n], s[n + 1] = s[n], i[n + 1] = i[n], l[n + 1] = l[n], v[n + 1] = v[n], uc[n + 1] = uc[n], us[n + 1] = us[n];
    i[n] = __ldg(i + 64 + n), v[n] = __ldcg(v + 3 + n), i[n + 5] = __ldcs(i + 96 + n), i[n + 6] = __ldlu(i + 98), i[7] = __ldcv(i + 99);
    __stcg(i + 100, 3), __stcs(v + 100, v[101]), __stwt(l + 9, l[10]), __stwb(s + 4, (short)4);
    volatile int *w = i;
    w[8] = w[9];
}
extern "C" __global__ void constants(int4 *out, const int *index) {
    out[threadIdx.x] = table[index[threadIdx.x]];
    out[64] = table[5];
    out[65].x = bytes[index[3]] + bytes[7];
}
extern "C" __global__ void local(int *out, int n) {
    int big[200];
    char small[64];
    long long wide[20];
    for (int i = 0; i < n; i++) big[i * 7 % 200] = i, small[i & 63] = i * 3, wide[i % 20] = big[i & 7];
    out[threadIdx.x] = big[n] + small[n & 63] + (int)wide[n % 20];
}
extern "C" __global__ void shared(int *out, int n) {
    extern __shared__ int dynamic[];
    __shared__ long long wide[64];
    __shared__ int4 quad[32];
    __shared__ unsigned char bytes[64];
    dynamic[threadIdx.x] = n, wide[n & 63] = n, quad[n & 31] = make_int4(n, 1, 2, 3), bytes[n & 63] = n;
    __syncthreads();
    out[threadIdx.x] = dynamic[n] + (int)wide[threadIdx.x] + quad[threadIdx.x].z + bytes[threadIdx.x] + quad[5].x;
}
extern "C" __global__ void pipelined(const float4 *in, float4 *out, const int *small) {
    __shared__ float4 a[64];
    __shared__ int b[64];
    __pipeline_memcpy_async(&a[threadIdx.x], &in[threadIdx.x], 16);
    __pipeline_memcpy_async(&b[threadIdx.x], &small[threadIdx.x], 4);
    __pipeline_memcpy_async(&a[32], &in[2], 16, 8);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[threadIdx.x] = a[b[threadIdx.x] & 63];
}
