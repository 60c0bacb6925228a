// A control loop in C++: each cycle writes a state, replays a captured graph, waits at most a cycle and reads the
// result; a fault is an exception with its report.
//
//   c++ -std=c++17 07_control_loop.cpp $(pkg-config --cflags --libs hcq) -o loop
//   HCQ_DEVICE=sim ./loop
#include <hcq.hpp>

#include <chrono>
#include <iostream>

#ifndef KERNELS
#define KERNELS "hcq/examples/kernels"
#endif

namespace {

constexpr std::uint32_t count = 64;
constexpr int cycles = 50;

int run()
{
    hcq::device device;
    const hcq::program program = device.load_files(
        {KERNELS "/examples.sm_80.cubin", KERNELS "/examples.sm_87.cubin", KERNELS "/examples.sm_90.cubin"});
    const hcq::kernel axpy = program.kernel("axpy");

    // State and input are the CPU's memory: the loop copies nothing across a bus.
    const hcq::buffer state = device.alloc_host(sizeof(float) * count);
    const hcq::buffer input = device.alloc_host(sizeof(float) * count);
    auto *states = static_cast<float *>(state.host_pointer());
    auto *inputs = static_cast<float *>(input.host_pointer());
    for (std::uint32_t i = 0; i < count; i++)
        states[i] = 0;

    // axpy(y, x, factor, n): state += factor * input, with the times of begin and end.
    hcq::graph_builder builder = device.graph();
    const hcq::timestamp begin = builder.timestamp();
    const hcq_node step = builder.launch(axpy, {1, count}, hcq::args(state, input, 1.0F, count));
    const hcq::timestamp end = builder.timestamp();
    const hcq::graph graph = builder.build();
    hcq::queue queue = device.queue();

    float expected = 0;
    for (int cycle = 0; cycle < cycles; cycle++) {
        // The gain of the second half is another one. Replays that run keep theirs; this loop has none.
        const float gain = cycle < cycles / 2 ? 1.0F : 0.5F;
        if (cycle == cycles / 2)
            graph.patch(step, 2, hcq::args(gain));
        for (std::uint32_t i = 0; i < count; i++)
            inputs[i] = static_cast<float>(cycle);
        queue.replay(graph).wait(std::chrono::seconds(10));
        expected += gain * static_cast<float>(cycle);
        for (std::uint32_t i = 0; i < count; i++) {
            if (states[i] != expected) {
                std::cerr << "cycle " << cycle << ": " << states[i] << ", not " << expected << '\n';
                return 1;
            }
        }
    }
    std::cerr << end.since(begin).count() << " ns on the GPU in the last cycle\n";
    std::cout << cycles << " cycles: the state is " << expected << '\n';

    // A launch whose arguments do not match is refused before it runs.
    try {
        queue.launch(axpy, {1, count}, hcq::args(state, input));
        return 1;
    } catch (const hcq::error &refused) {
        std::cout << refused.name() << ": " << refused.what() << '\n';
    }
    return 0;
}

} // namespace

int main()
{
    try {
        return run();
    } catch (const hcq::fault_error &fault) {
        std::cerr << "the GPU stopped in " << fault.kernel << ": " << fault.what() << '\n';
    } catch (const hcq::error &error) {
        std::cerr << error.name() << ": " << error.what() << '\n';
    }
    return 1;
}
