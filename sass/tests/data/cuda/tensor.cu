// Tensor cores by the WMMA interface, with every element type.
#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
using namespace nvcuda;
template <int M, int N, int K, typename A, typename E, typename C>
__device__ void multiply(const E *a, const E *b, C *c) {
    wmma::fragment<wmma::matrix_a, M, N, K, A, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, A, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, M, N, K, C> fc;
    wmma::load_matrix_sync(fa, a, K);
    wmma::load_matrix_sync(fb, b, K);
    wmma::load_matrix_sync(fc, c, N, wmma::mem_row_major);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, N, wmma::mem_row_major);
}
extern "C" __global__ void half_half(const half *a, const half *b, half *c) { multiply<16, 16, 16, half>(a, b, c); }
extern "C" __global__ void half_float(const half *a, const half *b, float *c) { multiply<32, 8, 16, half>(a, b, c); }
extern "C" __global__ void bf16_float(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) {
    multiply<8, 32, 16, __nv_bfloat16>(a, b, c);
}
extern "C" __global__ void tf32(const float *a, const float *b, float *c) {
    multiply<16, 16, 8, wmma::precision::tf32>(a, b, c);
}
extern "C" __global__ void bytes(const signed char *a, const signed char *b, int *c) {
    multiply<16, 16, 16, signed char>(a, b, c);
}
extern "C" __global__ void unsigned_bytes(const unsigned char *a, const unsigned char *b, int *c) {
    multiply<32, 8, 16, unsigned char>(a, b, c);
}
extern "C" __global__ void nibbles(const int *a, const int *b, int *c) {
    multiply<8, 8, 32, wmma::experimental::precision::s4>(a, b, c);
}
extern "C" __global__ void doubles(const double *a, const double *b, double *c) { multiply<8, 8, 4, double>(a, b, c); }
#if __CUDA_ARCH__ >= 890
extern "C" __global__ void eighths(const unsigned *a, const unsigned *b, float *c) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
                 : "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]), "r"(b[4]), "r"(b[5]));
}
#endif
