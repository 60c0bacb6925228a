// The peer of hcq-bench and llm-bench on a desktop GPU: the same kernels and sizes through CUDA's driver API and cuBLAS, timed in the same way (host
// wall clock around the work and its wait, medians), with the GPU's clocks up.
//
//   nvcc -O3 -arch=native tools/cuda-peer.cu -o cuda-peer -lcuda -lcublas && ./cuda-peer
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define CHECK(call)                                                                         \
    do {                                                                                    \
        int status = static_cast<int>(call);                                                \
        if (status != 0) {                                                                  \
            std::fprintf(stderr, "line %d: %s: status %d\n", __LINE__, #call, status);      \
            std::exit(1);                                                                   \
        }                                                                                   \
    } while (0)

__global__ void write_one(unsigned *out, unsigned value) {
    if ((threadIdx.x | blockIdx.x) == 0) *out = value;
}
__global__ void add_one(unsigned *out, unsigned value) {
    volatile unsigned *word = out;
    if ((threadIdx.x | blockIdx.x) == 0) *word = *word + value;
}
__global__ void __launch_bounds__(256) add_f32(const float4 *a, const float4 *b, float4 *c, unsigned n) {
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) {
        float4 x = a[i], y = b[i];
        c[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }
}

namespace {

constexpr unsigned kNodes = 230;
constexpr unsigned kAddresses = 48;
constexpr unsigned kBatch = 20;
constexpr size_t kMib = size_t{1} << 20;

double now_us() {
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

double at(std::vector<double> v, double share) {
    std::sort(v.begin(), v.end());
    return v[std::min(v.size() - 1, static_cast<size_t>(v.size() * share))];
}

void report(const char *name, const std::vector<double> &v, const char *unit) {
    std::printf("%-48s p50 %10.3f  p99 %10.3f  %s\n", name, at(v, 0.5), at(v, 0.99), unit);
}

std::vector<double> times(unsigned count, const std::function<void()> &work) {
    work();
    std::vector<double> all;
    for (unsigned i = 0; i < count; i++) {
        double began = now_us();
        work();
        all.push_back(now_us() - began);
    }
    return all;
}

// The words of hcq-bench: in pages of 4 KiB, then in pages of 2 MiB.
size_t word_at(size_t i) {
    return i < kAddresses / 2 ? i * 4096 : (i - kAddresses / 2 + 1) * 2 * kMib + (i - kAddresses / 2) % 7 * 128;
}

// Median microseconds per kernel of a graph of launches that follow each other.
double graph(cudaStream_t stream, void (*kernel)(unsigned *, unsigned), unsigned *word) {
    cudaGraph_t recorded;
    cudaGraphExec_t ready;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (unsigned i = 0; i < kNodes; i++) kernel<<<1, 32, 0, stream>>>(word, 1);
    CHECK(cudaStreamEndCapture(stream, &recorded));
    CHECK(cudaGraphInstantiate(&ready, recorded, 0));
    auto all = times(33, [&] {
        CHECK(cudaGraphLaunch(ready, stream));
        CHECK(cudaStreamSynchronize(stream));
    });
    CHECK(cudaGraphExecDestroy(ready));
    CHECK(cudaGraphDestroy(recorded));
    return at(all, 0.5) / kNodes;
}

void graphs(cudaStream_t stream) {
    unsigned char *data;
    CHECK(cudaMalloc(&data, word_at(kAddresses)));
    std::vector<double> store, load_store;
    for (size_t i = 0; i < kAddresses; i++) {
        store.push_back(graph(stream, write_one, reinterpret_cast<unsigned *>(data + word_at(i))));
        load_store.push_back(graph(stream, add_one, reinterpret_cast<unsigned *>(data + word_at(i))));
    }
    report("graph of 230, per kernel, 48 addresses", store, "us");
    report("graph of 230 of load + store, 48 addresses", load_store, "us");
    CHECK(cudaFree(data));
}

void products(cudaStream_t stream) {
    cublasHandle_t blas;
    CHECK(cublasCreate(&blas));
    CHECK(cublasSetStream(blas, stream));
    for (int n : {1024, 2048, 4096}) {
        size_t count = static_cast<size_t>(n) * n;
        std::vector<__half> host(count);
        for (size_t i = 0; i < count; i++) host[i] = __float2half((static_cast<float>(i * 37 % 101) - 50.0f) / 64.0f);
        __half *x, *w;
        float *out;
        CHECK(cudaMalloc(&x, 2 * count));
        CHECK(cudaMalloc(&w, 2 * count));
        CHECK(cudaMalloc(&out, 4 * count));
        CHECK(cudaMemcpy(x, host.data(), 2 * count, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(w, host.data(), 2 * count, cudaMemcpyHostToDevice));
        float one = 1, zero = 0;
        auto all = times(30, [&] {
            for (unsigned i = 0; i < kBatch; i++)
                CHECK(cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, w, CUDA_R_16F, n, x, CUDA_R_16F, n, &zero, out, CUDA_R_32F,
                                   n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
            CHECK(cudaStreamSynchronize(stream));
        });
        for (double &t : all) t = 2.0 * n * n * n * kBatch / t / 1e6;
        char name[64];
        std::snprintf(name, sizeof name, "f16 matrix product, %d", n);
        report(name, all, "TFLOP/s");
        CHECK(cudaFree(x));
        CHECK(cudaFree(w));
        CHECK(cudaFree(out));
    }
    CHECK(cublasDestroy(blas));
}

void addition(cudaStream_t stream) {
    constexpr unsigned kValues = 10'000'000;
    float4 *a, *b, *c;
    for (float4 **p : {&a, &b, &c}) {
        CHECK(cudaMalloc(p, 4 * size_t{kValues}));
        CHECK(cudaMemset(*p, 0, 4 * size_t{kValues}));
    }
    auto all = times(30, [&] {
        for (unsigned i = 0; i < kBatch; i++) add_f32<<<(kValues / 4 + 255) / 256, 256, 0, stream>>>(a, b, c, kValues / 4);
        CHECK(cudaStreamSynchronize(stream));
    });
    for (double &t : all) t = 12.0 * kValues * kBatch / t / 1e3;
    report("addition of 10000000 f32, read + written", all, "GB/s");
    for (float4 *p : {a, b, c}) CHECK(cudaFree(p));
}

void copy_and_launch(cudaStream_t stream) {
    void *from, *to;
    CHECK(cudaMalloc(&from, 16 * kMib));
    CHECK(cudaMallocHost(&to, 16 * kMib));
    auto copies = times(100, [&] {
        CHECK(cudaMemcpyAsync(to, from, 16 * kMib, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
    });
    for (double &t : copies) t = 16.0 * kMib / t / 1e3;
    report("D2H 16 MiB pinned", copies, "GB/s");
    auto launches = times(10'000, [&] {
        write_one<<<1, 32, 0, stream>>>(static_cast<unsigned *>(from), 1);
        CHECK(cudaStreamSynchronize(stream));
    });
    report("launch + wait", launches, "us");
    CHECK(cudaFree(from));
    CHECK(cudaFreeHost(to));
}

}  // namespace

int main() {
    CHECK(cudaSetDeviceFlags(cudaDeviceScheduleSpin));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    unsigned *word;
    CHECK(cudaMalloc(&word, 4));
    for (double began = now_us(); now_us() - began < 1.5e6;) {
        for (int i = 0; i < 1000; i++) write_one<<<1024, 1024, 0, stream>>>(word, 1);
        CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaFree(word));
    graphs(stream);
    products(stream);
    addition(stream);
    copy_and_launch(stream);
    return 0;
}
