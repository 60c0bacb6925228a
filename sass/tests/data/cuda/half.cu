// Half precision and bfloat16, alone and in pairs; fp8 conversions.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
template <typename P, typename S> __device__ void pairs(P *p, S *s, float *f, int *i) {
    int n = threadIdx.x;
    P a = p[n], b = p[n + 1], c = p[n + 2];
    p[0] = __hadd2(a, b), p[1] = __hmul2(a, b), p[2] = __hfma2(a, b, c), p[3] = __hsub2(a, b), p[4] = __h2div(a, b);
    p[5] = __hmax2(a, b), p[6] = __hmin2_nan(a, b), p[7] = __hneg2(a), p[8] = __habs2(a), p[9] = __hfma2_relu(a, b, c);
    p[10] = __hadd2_sat(a, b), p[11] = h2exp(a), p[12] = h2log(a), p[13] = h2sqrt(a), p[14] = h2rcp(a), p[15] = h2sin(a);
    p[16] = __hlt2(a, b), p[17] = __hequ2(a, b), p[18] = __lowhigh2highlow(a), p[19] = __low2half2_or(a), p[20] = h2floor(a);
    i[0] = __hbeq2(a, b), i[1] = __hbltu2(a, b), i[2] = __hgt(s[n], s[n + 1]), i[3] = __hisnan(s[n]);
    s[0] = __hadd(s[n], s[n + 1]), s[1] = __hdiv(s[n], s[n + 1]), s[2] = hexp(s[n]), s[3] = __hfma(s[n], s[n + 1], s[n + 2]);
    f[0] = (float)s[n], s[4] = (S)f[n], i[4] = (int)s[n + 4], s[5] = (S)i[n + 9], s[6] = hrint(s[n]), s[7] = __hmax(s[n], s[n + 1]);
}
__device__ __half2 __low2half2_or(__half2 a) { return __low2half2(a); }
__device__ __nv_bfloat162 __low2half2_or(__nv_bfloat162 a) { return __high2bfloat162(a); }
extern "C" __global__ void halves(__half2 *p, __half *s, float *f, int *i) {
    pairs(p, s, f, i);
    s[20] = __double2half(f[7]), s[21] = __float2half_rz(f[8]), s[22] = __ll2half_rn(i[3]), f[9] = __half22float2(p[33]).y;
    p[30] = __floats2half2_rn(f[10], f[11]);
}
extern "C" __global__ void bfloats(__nv_bfloat162 *p, __nv_bfloat16 *s, float *f, int *i) {
    pairs(p, s, f, i);
    p[30] = __floats2bfloat162_rn(f[10], f[11]);
}
extern "C" __global__ void eights(__nv_fp8x2_e4m3 *a, __nv_fp8x2_e5m2 *b, float2 *f, __half2 *h) {
    int n = threadIdx.x;
    a[0] = __nv_fp8x2_e4m3(f[n]), b[0] = __nv_fp8x2_e5m2(f[n + 1]), h[0] = __half2(a[n]), h[1] = __half2(b[n]);
    a[1] = __nv_fp8x2_e4m3(h[n]), f[0] = (float2)b[n + 4];
}
