// Atomic operations by type, scope and space, and fences.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <typename T> __device__ void integers(T *p, T *out, T v) {
    out[0] = atomicAdd(p, v), out[1] = atomicMin(p, v), out[2] = atomicMax(p, v), out[3] = atomicAnd(p, v);
    out[4] = atomicOr(p, v), out[5] = atomicXor(p, v), out[6] = atomicExch(p, v), out[7] = atomicCAS(p, v, (T)7);
    atomicAdd(p + 1, v), atomicMin(p + 2, v), atomicMax(p + 3, v), atomicOr(p + 4, v), atomicAnd(p + 5, v);
    out[8] = atomicAdd_block(p, v), out[9] = atomicAdd_system(p, v), out[10] = atomicCAS_system(p, v, (T)9);
    atomicXor_system(p, v), atomicMin_block(p, v);
}
template <typename T> __device__ void in_shared(T *out, T v) {
    __shared__ T s[64];
    s[threadIdx.x] = v;
    __syncthreads();
    integers<T>(s + (v & 31), out, v);
}
extern "C" __global__ void global_int(int *p, int *out, int v) { integers<int>(p + threadIdx.x, out, v); }
extern "C" __global__ void shared_int(int *out, int v) { in_shared<int>(out, v); }
extern "C" __global__ void global_unsigned(unsigned *p, unsigned *out, unsigned v) { integers<unsigned>(p + threadIdx.x, out, v); }
extern "C" __global__ void shared_unsigned(unsigned *out, unsigned v) { in_shared<unsigned>(out, v); }
extern "C" __global__ void global_u64(unsigned long long *p, unsigned long long *out, unsigned long long v) { integers<unsigned long long>(p + threadIdx.x, out, v); }
extern "C" __global__ void shared_u64(unsigned long long *out, unsigned long long v) { in_shared<unsigned long long>(out, v); }
extern "C" __global__ void floats(float *f, double *d, __half2 *h, __nv_bfloat162 *b, __half *s, unsigned *u, long long *l) {
    f[8] = atomicAdd(f, 1.5f), d[8] = atomicAdd(d, 2.5), h[8] = atomicAdd(h, h[1]), b[8] = atomicAdd(b, b[1]);
    s[8] = atomicAdd(s, s[1]);
    atomicAdd(f + 1, 2.0f), atomicAdd(d + 1, 2.0), atomicAdd(h + 2, h[3]), atomicAdd(b + 2, b[3]);
    u[8] = atomicInc(u, 100), u[9] = atomicDec(u, 100);
    atomicInc(u + 1, 7), l[2] = atomicMin(l, 8), l[3] = atomicMax(l + 1, -8);
    f[9] = atomicExch(f + 3, 1.0f);
    __shared__ float sf;
    __shared__ double sd;
    sf = 0, sd = 0;
    __syncthreads();
    f[10] = atomicAdd(&sf, f[2]), d[9] = atomicAdd(&sd, d[2]), atomicAdd(&sf, 1.0f);
    __threadfence();
    __threadfence_block();
    __threadfence_system();
}
extern "C" __global__ void generic(int *p, int which, int *out) {
    __shared__ int s;
    s = 0;
    int *q = which ? p : &s;
    out[0] = atomicAdd(q, 1), out[1] = atomicCAS(q, 1, 2), out[2] = *(volatile int *)q;
    atomicMax(q, 5);
    out[3] = s;
    out[4] = __isGlobal(q) + __isShared(q) * 2 + __isLocal(q) * 4 + __isConstant(q) * 8;
}
extern "C" __global__ void warp(int *p, unsigned *u) {
    int v = p[threadIdx.x];
    u[0] = __ballot_sync(~0u, v), u[1] = __any_sync(~0u, v), u[2] = __all_sync(~0u, v), u[3] = __activemask();
    u[4] = __match_any_sync(~0u, v), u[5] = __reduce_add_sync(~0u, v), u[6] = __reduce_min_sync(~0u, v);
    u[7] = __reduce_xor_sync(~0u, u[9]), u[8] = __shfl_xor_sync(~0u, v, 3) + __shfl_up_sync(~0u, v, 1, 16);
    int predicate;
    u[10] = __match_all_sync(~0u, (long long)v, &predicate);
    u[11] = __syncthreads_count(v) + __syncthreads_and(v) * 2 + __syncthreads_or(v) + predicate;
    if (v > 2) __syncwarp(p[1]);
    p[threadIdx.x] = v;
}
