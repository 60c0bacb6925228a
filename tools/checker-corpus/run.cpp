// Launches one kernel of tests/checker/ as its case says, for compute-sanitizer to watch.
//
//     run CUBIN CASES KERNEL
//
// CASES is the text that sanitize.py makes of cases.json: a line for each case, with fields separated by '|': kernel, grid,
// block, dynamic shared memory, and the arguments, separated by ';'. The last line of the output is "end: " and the name of
// the driver's result. A launch that does not end is given up after DEADLINE_S, or 5 s.
#include <cuda.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static const int DEADLINE_S = getenv("DEADLINE_S") ? atoi(getenv("DEADLINE_S")) : 5;

static void finish(const char *result, int code) {
    printf("end: %s\n", result);
    fflush(stdout);
    _exit(code);
}

static void check(CUresult result, const char *call) {
    if (result == CUDA_SUCCESS)
        return;
    const char *name = nullptr;
    cuGetErrorName(result, &name);
    printf("%s failed\n", call);
    finish(name ? name : "unknown", 3);
}
#define CHECK(call) check(call, #call)

static std::vector<std::string> split(const std::string &text, char by) {
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, by);)
        parts.push_back(part);
    return parts;
}

static std::vector<std::string> find(const char *path, const char *kernel) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::vector<std::string> fields = split(line, '|');
        if (fields.size() == 5 && fields[0] == kernel)
            return fields;
    }
    finish("no such case", 2);
    return {};
}

// The values of the kernel's parameters, in the order of the arguments.
struct Arguments {
    std::vector<unsigned long long> values;
    std::vector<CUdeviceptr> freed;

    CUdeviceptr allocate(size_t bytes) {
        CUdeviceptr at = 0;
        CHECK(cuMemAlloc(&at, bytes));
        values.push_back(at);
        return at;
    }

    void add(const std::string &text) {
        std::stringstream stream(text);
        std::string kind;
        stream >> kind;
        std::vector<unsigned> words;
        for (std::string word; stream >> word;)
            words.push_back((unsigned)strtoll(word.c_str(), nullptr, 10));
        size_t bytes = words.empty() ? 0 : words[0];
        if (kind == "null")
            values.push_back(0);
        else if (kind == "u32")
            values.push_back(words.at(0));
        else if (kind == "none")
            allocate(bytes);
        else if (kind == "zero")
            CHECK(cuMemsetD8(allocate(bytes), 0, bytes));
        else if (kind == "freed")
            freed.push_back(allocate(bytes));
        else if (kind == "words")
            CHECK(cuMemcpyHtoD(allocate(4 * words.size()), words.data(), 4 * words.size()));
        else if (kind == "ramp") {
            std::vector<unsigned> ramp((bytes + 3) / 4);
            for (size_t k = 0; k < ramp.size(); k++)
                ramp[k] = (unsigned)k;
            CHECK(cuMemcpyHtoD(allocate(bytes), ramp.data(), bytes));
        } else
            finish("unknown argument", 2);
    }
};

static void dimensions(const std::string &text, unsigned *out) {
    sscanf(text.c_str(), "%u %u %u", &out[0], &out[1], &out[2]);
}

int main(int argc, char **argv) {
    if (argc != 4)
        finish("usage: run CUBIN CASES KERNEL", 2);
    std::vector<std::string> fields = find(argv[2], argv[3]);
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction kernel;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoad(&module, argv[1]));
    CHECK(cuModuleGetFunction(&kernel, module, argv[3]));
    Arguments arguments;
    for (const std::string &text : split(fields[4], ';'))
        arguments.add(text);
    for (CUdeviceptr at : arguments.freed)
        CHECK(cuMemFree(at));
    CHECK(cuCtxSynchronize());
    std::vector<void *> parameters;
    for (unsigned long long &value : arguments.values)
        parameters.push_back(&value);
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
    dimensions(fields[1], grid);
    dimensions(fields[2], block);
    std::thread([] {
        std::this_thread::sleep_for(std::chrono::seconds(DEADLINE_S));
        finish("deadline", 4);
    }).detach();
    CHECK(cuLaunchKernel(kernel, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                         (unsigned)atoi(fields[3].c_str()), nullptr, parameters.data(), nullptr));
    CHECK(cuCtxSynchronize());
    CHECK(cuDevicePrimaryCtxRelease(device));
    printf("end: CUDA_SUCCESS\n");
    return 0;
}
