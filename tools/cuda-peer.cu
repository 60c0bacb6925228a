// The peer of hcq-bench and llm-bench on a desktop GPU: the same kernels and sizes through CUDA's driver API and cuBLAS, timed in the same way (host
// wall clock around the work and its wait, medians), with the GPU's clocks up.
//
//   nvcc -O3 -arch=native tools/cuda-peer.cu -o cuda-peer -lcuda -lcublas && ./cuda-peer
//   ./cuda-peer loop HZ SECONDS [load] [poll]  the loop of hcq-bench loop
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <ctime>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
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

int64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

void row(const char *name, std::vector<double> v) {
    std::printf("  %-22s min %9.2f  p50 %9.2f  p99 %9.2f  p99.99 %9.2f  max %9.2f  us\n", name, at(v, 0), at(v, 0.5), at(v, 0.99), at(v, 0.9999),
                at(v, 1));
}

// At each tick a kernel on 64 values, a wait, and their result in memory of the host that the GPU writes itself.
void control_loop(cudaStream_t stream, int64_t hz, int64_t seconds, bool load, bool poll) {
    int64_t launched = 0;
    constexpr int kValues = 64;
    float *input, *other, *result;
    for (float **p : {&input, &other, &result}) CHECK(cudaHostAlloc(p, 4 * kValues, cudaHostAllocMapped));
    for (int i = 0; i < kValues; i++) input[i] = other[i] = static_cast<float>(i);
    auto tick = [&](float value) {
        input[0] = value;
        add_f32<<<1, 256, 0, stream>>>(reinterpret_cast<float4 *>(input), reinterpret_cast<float4 *>(other), reinterpret_cast<float4 *>(result),
                                       kValues / 4);
        launched = now_ns();
        CHECK(cudaStreamSynchronize(stream));
        float sums[kValues];
        std::memcpy(sums, result, sizeof sums);
        if (sums[0] != value || sums[kValues - 1] != 2.0f * (kValues - 1)) std::fprintf(stderr, "the sums are wrong\n"), std::exit(1);
    };
    for (int i = 0; i < 100; i++) tick(static_cast<float>(i));
    std::atomic<bool> ended{false};
    std::vector<std::thread> others;
    for (unsigned i = 0; load && i < std::thread::hardware_concurrency(); i++)
        others.emplace_back([&] {
            std::vector<uint64_t> words(1 << 18, 1);
            while (!ended)
                for (auto &word : words) {
                    uint64_t next = word * 0x9e3779b9u;
                    *const_cast<volatile uint64_t *>(&word) = next << 7 | next >> 57;
                }
        });
    const int64_t period = 1'000'000'000 / hz, count = std::max<int64_t>(seconds * 1'000'000'000 / period, 1);
    std::vector<double> wake_up, launch, work, response;
    int64_t missed = 0, start = now_ns() + period;
    for (int64_t i = 0; i < count;) {
        const int64_t due = start + i * period;
        const timespec until{due / 1'000'000'000, due % 1'000'000'000};
        while (poll && now_ns() < due) {
        }
        while (!poll && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
        }
        const int64_t began = now_ns();
        tick(static_cast<float>(i));
        const int64_t end = now_ns();
        wake_up.push_back((began - due) / 1e3);
        launch.push_back((launched - began) / 1e3);
        work.push_back((end - began) / 1e3);
        response.push_back((end - due) / 1e3);
        const int64_t next = std::max((end - start) / period + 1, i + 1);
        missed += std::min(next, count) - std::min(i + 1, count);
        i = next;
    }
    ended = true;
    for (auto &thread : others) thread.join();
    std::printf("%lld Hz%s, %s: %zu ticks, %lld missed\n", static_cast<long long>(hz), poll ? ", polled" : "", load ? "every core busy" : "no other load", work.size(),
                static_cast<long long>(missed));
    row("wake-up", wake_up);
    row("launch", launch);
    row("launch + wait + read", work);
    row("response", response);
    for (float *p : {input, other, result}) CHECK(cudaFreeHost(p));
}

}  // namespace

int main(int count, char **words) {
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
    if (count >= 4 && std::string(words[1]) == "loop") {
        const std::vector<std::string> how(words + 4, words + count);
        const auto asked = [&](const char *word) { return std::find(how.begin(), how.end(), word) != how.end(); };
        control_loop(stream, std::atoll(words[2]), std::atoll(words[3]), asked("load"), asked("poll"));
        return 0;
    }
    graphs(stream);
    products(stream);
    addition(stream);
    copy_and_launch(stream);
    return 0;
}
