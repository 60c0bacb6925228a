// hcq for C++17: owners of the handles of hcq.h, and exceptions with its codes and texts.
//
//     hcq::device device;                                   // HCQ_DEVICE, or the first that opens, the software GPU last
//     hcq::kernel add = device.load_files({"vecadd.sm_87.cubin"}).kernel("vecadd");
//     hcq::buffer a = device.alloc(4096), b = device.alloc(4096), c = device.alloc(4096);
//     a.write(std::vector<float>(1024, 1.0F));
//     hcq::queue queue = device.queue();
//     queue.launch(add, {4, 256}, hcq::args(a, b, c, std::uint32_t{1024}));
//     queue.submit().wait(std::chrono::seconds(10));
//     std::vector<float> sums = c.read<float>(1024);
//
// Owners are moved, not copied. A moved-from one is empty, and a call with it throws HCQ_ERROR_HANDLE_NULL. What
// hcq.h says of threads holds here.
#ifndef HCQ_HPP
#define HCQ_HPP

#if __cplusplus < 201703L && (!defined(_MSVC_LANG) || _MSVC_LANG < 201703L)
#error "hcq.hpp needs C++17"
#endif

#include <hcq.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace hcq {

// A call that failed.
class error : public std::runtime_error {
public:
    error(hcq_status status, const std::string &text) : std::runtime_error(text), status_(status) {}

    hcq_status status() const noexcept { return status_; }
    const char *name() const noexcept { return hcq_status_name(status_); }

private:
    hcq_status status_;
};

// HCQ_ERROR_FAULT, HCQ_ERROR_LOST: the GPU stopped. what() is the report in one sentence.
class fault_error : public error {
public:
    fault_error(hcq_status status, const std::string &text, const hcq_fault &fault)
        : error(status, text), kind(fault.kind), code(fault.code), notifier(fault.notifier), address(number(fault.address)),
          pc(number(fault.pc)), offset(number(fault.offset)), nearest_address(number(fault.nearest_address)),
          nearest_len(fault.nearest_len), nearest_distance(fault.nearest_distance), nearest(words(fault.nearest)),
          kernel(words(fault.kernel)),
          in_flight(words(fault.in_flight)), instruction(words(fault.instruction)),
          explanation(words(fault.explanation)), log(words(fault.log)), core(words(fault.core)) {}

    hcq_fault_kind kind;
    std::uint32_t code, notifier;
    std::optional<std::uint64_t> address, pc, offset;
    // The mapping nearest to the address, its length, and the bytes from its end (or, negative, its start) to the
    // address; 0 if it contains it.
    std::optional<std::uint64_t> nearest_address;
    std::uint64_t nearest_len;
    std::int64_t nearest_distance;
    std::string nearest;
    // Empty where nothing is known.
    std::string kernel, in_flight, instruction, explanation, log, core;

private:
    static std::optional<std::uint64_t> number(std::uint64_t value) {
        return value == HCQ_UNKNOWN ? std::nullopt : std::optional<std::uint64_t>(value);
    }
    static std::string words(const char *text) { return text ? text : ""; }
};

// Throws the error of a call that failed.
inline void check(hcq_status status) {
    if (status == HCQ_OK)
        return;
    const std::string text = hcq_last_error();
    hcq_fault fault;
    if ((status == HCQ_ERROR_FAULT || status == HCQ_ERROR_LOST) && hcq_last_fault(&fault, sizeof fault) == HCQ_OK)
        throw fault_error(status, text, fault);
    throw error(status, text);
}

// A text for hcq.h, which would end it at a NUL inside.
inline const char *text_of(const std::string &text) {
    if (text.find('\0') != std::string::npos)
        throw error(HCQ_ERROR_TEXT, "the text has a NUL inside, where it would end");
    return text.c_str();
}

// The owner of a handle.
template <class T, hcq_status (*Free)(T *)> class owner {
public:
    owner() noexcept = default;
    explicit owner(T *handle) noexcept : handle_(handle) {}
    owner(owner &&other) noexcept : handle_(other.release()) {}
    owner &operator=(owner &&other) noexcept {
        if (this != &other)
            reset(other.release());
        return *this;
    }
    ~owner() { reset(); }

    // The handle, for functions of hcq.h.
    T *get() const noexcept { return handle_; }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    T *release() noexcept { return std::exchange(handle_, nullptr); }
    void reset(T *handle = nullptr) noexcept { Free(std::exchange(handle_, handle)); }

protected:
    // Where a call writes the handle of a new object.
    T **out() noexcept {
        reset();
        return &handle_;
    }

private:
    T *handle_ = nullptr;
};

class buffer;

// A place in a buffer, as an argument.
struct buffer_at {
    const hcq_buffer *handle;
    std::uint64_t offset;
};

class buffer : public owner<hcq_buffer, hcq_buffer_free> {
public:
    using owner::owner;

    std::uint64_t size() const {
        std::uint64_t len;
        check(hcq_buffer_len(get(), &len));
        return len;
    }
    std::uint64_t address() const {
        std::uint64_t address;
        check(hcq_buffer_address(get(), &address));
        return address;
    }
    // The CPU's address of a buffer of alloc_host; null for another one.
    void *host_pointer() const {
        void *pointer;
        check(hcq_buffer_host_pointer(get(), &pointer));
        return pointer;
    }
    // Waits for the submissions that name the buffer, before the memory of host_pointer is touched.
    void wait(std::chrono::nanoseconds timeout) const { check(hcq_buffer_wait(get(), timeout.count())); }
    void set_name(const std::string &name) const { check(hcq_buffer_set_name(get(), text_of(name))); }
    buffer_at at(std::uint64_t offset) const noexcept { return {get(), offset}; }

    // Offsets are in bytes, counts in values.
    template <class T> void write(const T *values, std::size_t count, std::uint64_t offset = 0) const {
        static_assert(std::is_trivially_copyable_v<T>, "bytes are copied");
        check(hcq_buffer_write(get(), offset, values, bytes_of<T>(count)));
    }
    // All of std::vector, std::array, std::span, and of an array, which has a count of its own before an offset.
    template <class C, class = decltype(std::data(std::declval<const C &>()))>
    void write(const C &values, std::uint64_t offset = 0) const {
        write(std::data(values), std::size(values), offset);
    }
    template <class T> void read(T *values, std::size_t count, std::uint64_t offset = 0) const {
        static_assert(std::is_trivially_copyable_v<T>, "bytes are copied");
        check(hcq_buffer_read(get(), offset, values, bytes_of<T>(count)));
    }
    template <class C, class = decltype(std::data(std::declval<C &>()))>
    void read(C &&values, std::uint64_t offset = 0) const {
        read(std::data(values), std::size(values), offset);
    }
    template <class T> std::vector<T> read(std::size_t count, std::uint64_t offset = 0) const {
        std::vector<T> values(count);
        read(values.data(), count, offset);
        return values;
    }

private:
    // No object is as long as the length that stands for too many.
    template <class T> static std::size_t bytes_of(std::size_t count) noexcept {
        return count > SIZE_MAX / sizeof(T) ? SIZE_MAX : count * sizeof(T);
    }
};

// The arguments of a launch: buffers, places in buffers, and values, each with its own width and alignment.
class args : public owner<hcq_args, hcq_args_free> {
public:
    template <class... T> explicit args(const T &...values) {
        check(hcq_args_new(out()));
        (add(values), ...);
    }

    // The handle, for a launch. To hcq.h no list is an empty one; a moved-from list is a mistake.
    const hcq_args *list() const {
        if (!*this)
            throw error(HCQ_ERROR_HANDLE_NULL, "the list of arguments was moved from");
        return get();
    }

    // Leaves none, and keeps the memory: a loop that fills the list again allocates nothing.
    args &clear() { return added(hcq_args_clear(get())); }

    args &add(const buffer &value) { return added(hcq_args_buffer(get(), value.get())); }
    args &add(buffer_at value) { return added(hcq_args_buffer_at(get(), value.handle, value.offset)); }
    template <class T> args &add(const T &value) {
        static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>, "a value, as the kernel takes it");
        return added(hcq_args_bytes(get(), &value, sizeof value, alignof(T)));
    }

private:
    args &added(hcq_status status) {
        check(status);
        return *this;
    }
};

// Blocks or threads along x, y and z.
struct extent {
    std::uint32_t x = 1, y = 1, z = 1;
    constexpr extent(std::uint32_t along_x, std::uint32_t along_y = 1, std::uint32_t along_z = 1)
        : x(along_x), y(along_y), z(along_z) {}
};

// The shape of a launch.
struct shape : hcq_launch_config {
    shape(extent blocks, extent threads, std::uint32_t shared_bytes = 0, std::uint32_t most_per_sm = 0)
        : hcq_launch_config{{blocks.x, blocks.y, blocks.z}, {threads.x, threads.y, threads.z}, shared_bytes, most_per_sm} {}
};

class kernel : public owner<hcq_kernel, hcq_kernel_free> {
public:
    using owner::owner;

    std::string name() const {
        std::size_t len;
        check(hcq_kernel_name(get(), nullptr, 0, &len));
        std::string text(len + 1, '\0');
        check(hcq_kernel_name(get(), text.data(), text.size(), nullptr));
        text.resize(len);
        return text;
    }
    hcq_kernel_info info() const {
        hcq_kernel_info info;
        check(hcq_kernel_get_info(get(), &info, sizeof info));
        return info;
    }
    hcq_occupancy occupancy(std::uint32_t threads, std::uint32_t dynamic_shared = 0) const {
        hcq_occupancy occupancy;
        check(hcq_kernel_occupancy(get(), threads, dynamic_shared, &occupancy));
        return occupancy;
    }
};

class program : public owner<hcq_program, hcq_program_free> {
public:
    using owner::owner;

    hcq::kernel kernel(const std::string &name) const {
        hcq_kernel *made;
        check(hcq_program_kernel(get(), text_of(name), &made));
        return hcq::kernel(made);
    }
    std::vector<hcq::kernel> kernels() const {
        std::size_t count;
        check(hcq_program_kernel_count(get(), &count));
        std::vector<hcq::kernel> found;
        for (std::size_t i = 0; i < count; i++) {
            hcq_kernel *made;
            check(hcq_program_kernel_at(get(), i, &made));
            found.emplace_back(made);
        }
        return found;
    }
};

class point : public owner<hcq_point, hcq_point_free> {
public:
    using owner::owner;

    // Throws HCQ_ERROR_QUEUE_TIMEOUT where the work does not end in time.
    void wait(std::chrono::nanoseconds timeout) const { check(hcq_point_wait(get(), timeout.count())); }
    bool is_done() const {
        bool done;
        check(hcq_point_is_done(get(), &done));
        return done;
    }
};

class timestamp : public owner<hcq_timestamp, hcq_timestamp_free> {
public:
    using owner::owner;

    std::chrono::nanoseconds since(const timestamp &begin) const {
        std::int64_t ns;
        check(hcq_timestamp_elapsed(begin.get(), get(), &ns));
        return std::chrono::nanoseconds(ns);
    }
    // The GPU's clock; nothing until the GPU has taken it.
    std::optional<std::uint64_t> ns() const {
        std::uint64_t ns;
        const hcq_status status = hcq_timestamp_ns(get(), &ns);
        if (status == HCQ_ERROR_NOT_TAKEN)
            return std::nullopt;
        check(status);
        return ns;
    }
};

class graph : public owner<hcq_graph, hcq_graph_free> {
public:
    using owner::owner;

    std::size_t launches() const {
        std::size_t count;
        check(hcq_graph_launches(get(), &count));
        return count;
    }
    // Replaces arguments of a launch from the one of number `index` on, for later replays.
    void patch(hcq_node node, std::size_t index, const args &args) const {
        check(hcq_graph_patch_args(get(), node, index, args.list()));
    }
};

class graph_builder : public owner<hcq_graph_builder, hcq_graph_builder_free> {
public:
    using owner::owner;

    hcq_node launch(const kernel &kernel, const shape &shape, const args &args) {
        hcq_node node;
        check(hcq_graph_launch(get(), kernel.get(), &shape, args.list(), &node));
        return node;
    }
    hcq_node launch_after(const kernel &kernel, const shape &shape, const args &args, const std::vector<hcq_node> &after) {
        hcq_node node;
        check(hcq_graph_launch_after(get(), kernel.get(), &shape, args.list(), after.data(), after.size(), &node));
        return node;
    }
    hcq_node launch_early(const kernel &kernel, const shape &shape, const args &args, hcq_node after) {
        hcq_node node;
        check(hcq_graph_launch_early(get(), kernel.get(), &shape, args.list(), after, &node));
        return node;
    }
    void barrier() { check(hcq_graph_barrier(get())); }
    hcq_node copy(const buffer &src, std::uint64_t src_offset, const buffer &dst, std::uint64_t dst_offset, std::uint64_t len) {
        hcq_node node;
        check(hcq_graph_copy(get(), src.get(), src_offset, dst.get(), dst_offset, len, &node));
        return node;
    }
    hcq::timestamp timestamp() {
        hcq_timestamp *made;
        check(hcq_graph_timestamp(get(), &made));
        return hcq::timestamp(made);
    }
    // Leaves the builder empty.
    graph build() {
        hcq_graph *made;
        check(hcq_graph_build(release(), &made));
        return graph(made);
    }
};

class queue : public owner<hcq_queue, hcq_queue_free> {
public:
    using owner::owner;

    // How long calls wait for room in the queue's rings, in place of the device's patience.
    void set_patience(std::chrono::nanoseconds patience) { check(hcq_queue_set_patience(get(), patience.count())); }

    // The kernel's arguments decide what it reads and writes.
    void launch(const kernel &kernel, const shape &shape, const args &args) {
        check(hcq_queue_launch(get(), kernel.get(), &shape, args.list()));
    }
    void barrier() { check(hcq_queue_barrier(get())); }
    void copy(const buffer &src, std::uint64_t src_offset, const buffer &dst, std::uint64_t dst_offset, std::uint64_t len) {
        check(hcq_queue_copy(get(), src.get(), src_offset, dst.get(), dst_offset, len));
    }
    hcq::timestamp timestamp() {
        hcq_timestamp *made;
        check(hcq_queue_timestamp(get(), &made));
        return hcq::timestamp(made);
    }
    void wait_for(const point &point) { check(hcq_queue_wait_for(get(), point.get())); }
    point submit() {
        hcq_point *made;
        check(hcq_queue_submit(get(), &made));
        return point(made);
    }
    point replay(const graph &graph) {
        hcq_point *made;
        check(hcq_queue_replay(get(), graph.get(), &made));
        return point(made);
    }
};

// Options with their defaults.
struct options : hcq_options {
    options() { check(hcq_options_init(this, sizeof(hcq_options))); }
};

class device : public owner<hcq_device, hcq_device_free> {
public:
    // What HCQ_DEVICE says, else the first that opens.
    device() { check(hcq_device_open(nullptr, nullptr, out())); }
    // None: for a member that gets one later.
    explicit device(std::nullptr_t) noexcept {}
    explicit device(const std::string &name) { check(hcq_device_open(text_of(name), nullptr, out())); }
    device(const std::string &name, const options &options) { check(hcq_device_open(text_of(name), &options, out())); }

    hcq_info info() const {
        hcq_info info;
        check(hcq_device_get_info(get(), &info, sizeof info));
        return info;
    }
    std::uint64_t free_memory() const {
        std::uint64_t bytes;
        check(hcq_device_free_memory(get(), &bytes));
        return bytes;
    }
    void trim() const { check(hcq_device_trim(get())); }
    void reserve_stacks(std::uint32_t stack) const { check(hcq_device_reserve_stacks(get(), stack)); }
    std::vector<hcq_mapping> memory_map() const {
        std::vector<hcq_mapping> found;
        std::size_t count;
        check(hcq_device_memory_map(get(), nullptr, 0, &count));
        // Others may allocate meanwhile.
        while (found.size() < count) {
            found.resize(count);
            check(hcq_device_memory_map(get(), found.data(), found.size(), &count));
        }
        found.resize(count);
        return found;
    }
    hcq_clock_pair clock_pair() const {
        hcq_clock_pair pair;
        check(hcq_device_clock_pair(get(), &pair));
        return pair;
    }

    buffer alloc(std::uint64_t bytes) const {
        hcq_buffer *made;
        check(hcq_buffer_alloc(get(), bytes, &made));
        return buffer(made);
    }
    buffer alloc_host(std::uint64_t bytes) const {
        hcq_buffer *made;
        check(hcq_buffer_alloc_host(get(), bytes, &made));
        return buffer(made);
    }
    buffer alloc_at(std::uint64_t address, std::uint64_t bytes) const {
        hcq_buffer *made;
        check(hcq_buffer_alloc_at(get(), address, bytes, &made));
        return buffer(made);
    }
    // Of the given cubins the one that runs on the device.
    program load(const std::vector<hcq_image> &images) const {
        hcq_program *made;
        check(hcq_program_load(get(), images.data(), images.size(), &made));
        return program(made);
    }
    program load_files(const std::vector<std::string> &paths) const {
        std::vector<const char *> texts;
        for (const std::string &path : paths)
            texts.push_back(text_of(path));
        hcq_program *made;
        check(hcq_program_load_files(get(), texts.data(), texts.size(), &made));
        return program(made);
    }
    hcq::queue queue() const {
        hcq_queue *made;
        check(hcq_queue_open(get(), &made));
        return hcq::queue(made);
    }
    hcq::queue copy_queue() const {
        hcq_queue *made;
        check(hcq_queue_open_copy(get(), &made));
        return hcq::queue(made);
    }
    graph_builder graph() const {
        hcq_graph_builder *made;
        check(hcq_graph_begin(get(), &made));
        return graph_builder(made);
    }
};

} // namespace hcq

#endif
