// A CUDA program for `nvdiag trace --submissions`: a copy, two launches on a stream, and a graph of three
// launches that is replayed twice. Prints the sum that it expects and the one that it got.
//
//     nvcc -o cuda_launch diag/tests/programs/cuda_launch.cu
//     nvdiag trace --submissions --qmd qmds -- ./cuda_launch
#include <cstdio>
#include <cstdlib>
#include <vector>

static void check(cudaError_t error, const char *call) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
        std::exit(1);
    }
}
#define CHECK(call) check(call, #call)

__global__ void add(float *values, float addend, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] += addend;
}

int main() {
    const int count = 1000;
    std::vector<float> host(count, 1.0f);
    float *values;
    cudaStream_t stream;
    CHECK(cudaMalloc(&values, count * sizeof(float)));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemcpyAsync(values, host.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream));
    add<<<8, 128, 0, stream>>>(values, 2.0f, count);
    add<<<4, 256, 0, stream>>>(values, 4.0f, count);
    CHECK(cudaStreamSynchronize(stream));

    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 3; i++) add<<<8, 128, 0, stream>>>(values, 8.0f, count);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 2; i++) CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaMemcpyAsync(host.data(), values, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    float sum = 0;
    for (float value : host) sum += value;
    std::printf("%g of %g\n", sum, count * 55.0);
    return sum == count * 55.0 ? 0 : 1;
}
