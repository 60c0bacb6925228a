// What hcq.hpp adds to hcq.h: owners that may be empty, containers, lists of arguments that are filled again.
#include <hcq.hpp>

#include <array>
#include <iostream>
#if __cplusplus >= 202002L
#include <span>
#endif

#ifndef KERNELS
#define KERNELS "hcq/examples/kernels"
#endif

namespace {

int mistakes = 0;

void expect(bool holds, const char *what)
{
    if (!holds) {
        std::cerr << "not so: " << what << '\n';
        mistakes++;
    }
}

template <class F> void fails(hcq_status status, const char *what, F call)
{
    try {
        call();
    } catch (const hcq::error &error) {
        if (error.status() != status)
            std::cerr << error.name() << ": " << error.what() << '\n';
        expect(error.status() == status, what);
        return;
    }
    expect(false, what);
}

// A program's own class has a device before it is opened.
struct robot {
    hcq::device device{nullptr};
    hcq::queue queue;
};

void empty_owners()
{
    robot robot;
    expect(!robot.device && !robot.queue, "empty at first");
    fails(HCQ_ERROR_HANDLE_NULL, "an empty device allocates", [&] { robot.device.alloc(4); });
    fails(HCQ_ERROR_HANDLE_NULL, "an empty queue submits", [&] { robot.queue.submit(); });
    robot.device = hcq::device();
    robot.queue = robot.device.queue();
    robot.queue.submit().wait(std::chrono::seconds(10));
    const hcq::device moved = std::move(robot.device);
    expect(bool(moved), "it was moved here");
    fails(HCQ_ERROR_HANDLE_NULL, "a moved-from device says what it is", [&] { robot.device.info(); });
    robot.queue.submit().wait(std::chrono::seconds(10));
}

void containers(const hcq::device &device)
{
    const hcq::buffer buffer = device.alloc(16);
    const std::array<float, 4> four{1, 2, 3, 4};
    buffer.write(four);
    std::array<float, 2> two{};
    buffer.read(two, 8);
    expect(two[0] == 3 && two[1] == 4, "std::array");
    const float one[] = {7};
    buffer.write(one, 1, 4);
    float back[4];
    buffer.read(back);
    expect(back[0] == 1 && back[1] == 7 && back[3] == 4, "arrays");
    std::vector<float> values(2);
    buffer.read(values);
    expect(values[1] == 7, "std::vector");
    buffer.write(values, 8);
    expect(buffer.read<float>(4)[3] == 7, "by a count");
#if __cplusplus >= 202002L
    buffer.write(std::span(four).subspan(1, 2));
    buffer.read(std::span(values).first(1));
    expect(values[0] == 2 && values[1] == 7, "std::span");
#endif
    fails(HCQ_ERROR_MEMORY_OUT_OF_BOUNDS, "past the end", [&] { buffer.write(four, 4); });
    buffer.wait(std::chrono::seconds(1));
    const std::string cut("a\0b", 3);
    fails(HCQ_ERROR_TEXT, "a name with a NUL", [&] { buffer.set_name(cut); });
    fails(HCQ_ERROR_TEXT, "a path with a NUL", [&] { device.load_files({cut}); });
    fails(HCQ_ERROR_TEXT, "a device with a NUL", [&] { hcq::device none(cut); });
}

// hcq.h takes no list for an empty one.
void moved_arguments(const hcq::device &device, hcq::queue &queue, const hcq::kernel &axpy, const hcq::buffer &y,
                     const hcq::buffer &x)
{
    hcq::graph_builder builder = device.graph();
    const hcq_node node = builder.launch(axpy, {1, 8}, hcq::args(y, x, 1.0F, std::uint32_t{8}));
    hcq::args args(2.0F);
    const hcq::args moved = std::move(args);
    fails(HCQ_ERROR_HANDLE_NULL, "a launch", [&] { queue.launch(axpy, {1, 8}, args); });
    fails(HCQ_ERROR_HANDLE_NULL, "a node", [&] { builder.launch(axpy, {1, 8}, args); });
    fails(HCQ_ERROR_HANDLE_NULL, "a later node", [&] { builder.launch_after(axpy, {1, 8}, args, {node}); });
    fails(HCQ_ERROR_HANDLE_NULL, "an early node", [&] { builder.launch_early(axpy, {1, 8}, args, node); });
    const hcq::graph graph = builder.build();
    fails(HCQ_ERROR_HANDLE_NULL, "a patch", [&] { graph.patch(node, 2, args); });
    graph.patch(node, 2, moved);
    args = hcq::args(3.0F);
    graph.patch(node, 2, args);
}

void arguments(const hcq::device &device)
{
    const hcq::kernel axpy =
        device.load_files({KERNELS "/examples.sm_80.cubin", KERNELS "/examples.sm_87.cubin"}).kernel("axpy");
    const std::array<float, 8> ones{1, 1, 1, 1, 1, 1, 1, 1};
    const hcq::buffer x = device.alloc(sizeof ones), y = device.alloc(sizeof ones);
    x.write(ones);
    y.write(ones);
    hcq::queue queue = device.queue();
    queue.set_patience(std::chrono::seconds(10));
    hcq::args args;
    for (int i = 1; i <= 3; i++) {
        args.clear().add(y).add(x).add(static_cast<float>(i)).add(std::uint32_t{8});
        queue.launch(axpy, {1, 8}, args);
        queue.barrier();
    }
    // A struct of all parameters, as the kernel's source declares them.
    const struct {
        std::uint64_t y, x;
        float factor;
        std::uint32_t count;
    } all{y.address(), x.address(), 10.0F, 8};
    queue.launch(axpy, {1, 8}, hcq::args(all));
    queue.submit().wait(std::chrono::seconds(10));
    expect(y.read<float>(8)[7] == 17, "1 + 1 + 2 + 3 + 10");
    // 24 bytes, as the kernel takes, with two in each other's place.
    fails(HCQ_ERROR_LAUNCH_ARGUMENT_WIDTH, "two arguments that changed places",
          [&] { queue.launch(axpy, {1, 8}, hcq::args(y, 1.0F, std::uint32_t{8}, x)); });
    fails(HCQ_ERROR_LAUNCH_ARGUMENT_COUNT, "one too few", [&] { queue.launch(axpy, {1, 8}, hcq::args(y, x, 1.0F)); });
    // An argument that is refused is forgotten with the others.
    fails(HCQ_ERROR_HANDLE_NULL, "an empty buffer", [&] { args.add(hcq::buffer()); });
    fails(HCQ_ERROR_HANDLE_NULL, "a list with it", [&] { queue.launch(axpy, {1, 8}, args); });
    queue.launch(axpy, {1, 8}, args.clear().add(y).add(x).add(0.0F).add(std::uint32_t{8}));
    moved_arguments(device, queue, axpy, y, x);
}

void times()
{
    const hcq::device one, other;
    const auto taken = [](const hcq::device &device) {
        hcq::queue queue = device.queue();
        hcq::timestamp time = queue.timestamp();
        queue.submit().wait(std::chrono::seconds(10));
        return time;
    };
    const hcq::timestamp begin = taken(one), end = taken(one), foreign = taken(other);
    expect(end.since(begin).count() >= 0, "two queues of a device");
    fails(HCQ_ERROR_FOREIGN_DEVICE, "two devices", [&] { (void)end.since(foreign); });
}

} // namespace

int main()
{
    try {
        empty_owners();
        const hcq::device device;
        containers(device);
        arguments(device);
        times();
    } catch (const hcq::error &error) {
        std::cerr << error.name() << ": " << error.what() << '\n';
        return 1;
    }
    std::cout << mistakes << " mistakes\n";
    return 0;
}
