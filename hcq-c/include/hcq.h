/* hcq: hardware command queues for NVIDIA GPUs without the CUDA runtime.
 *
 * Every function but the three that return a text returns a status: HCQ_OK, or why it failed. hcq_last_error()
 * has the text. No call crashes on a handle: NULL, freed before, of another kind or of another device are errors.
 *
 * Handles are pointers of types of their own that stand for objects and are never followed. One that a call
 * returns belongs to the caller, who frees it; an object that others need stays until they are gone. Where a call
 * fails that returns a handle, it is NULL.
 *
 * Pointers to data point to as many bytes as the call takes, which nothing else changes while it runs.
 *
 * Threads: all functions may be called by several threads at once, with the same handles. Queues, graph builders and
 * argument lists are used by one thread at a time: a call beside another one is HCQ_ERROR_BUSY. An object that
 * another thread frees lives until the calls end that use it. The last error is each thread's own. A device belongs
 * to the process that opened it: in a fork calls are HCQ_ERROR_FORKED.
 *
 * Generated from the crate hcq-c; UPDATE=1 cargo test -p hcq-c --test it header */


#ifndef HCQ_H
#define HCQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A number that is not known, in fields whose comment says so.
#define HCQ_UNKNOWN UINT64_MAX

// The outcome of a call. Codes keep their numbers; later versions add some.
typedef enum hcq_status {
  // The call did what it is for.
  HCQ_OK = 0,
  // A handle is `NULL`.
  HCQ_ERROR_HANDLE_NULL = 1,
  // A handle was freed before.
  HCQ_ERROR_HANDLE_FREED,
  // A handle stands for an object of another kind.
  HCQ_ERROR_HANDLE_KIND,
  // A pointer is no handle of this library.
  HCQ_ERROR_HANDLE_UNKNOWN,
  // 2^28 handles of a kind are in use.
  HCQ_ERROR_HANDLES_USED_UP,
  // Another thread is in a call with this queue, graph builder or argument list, which one thread uses at a
  // time.
  HCQ_ERROR_BUSY,
  // A pointer to data is `NULL`, or not aligned for its type.
  HCQ_ERROR_POINTER,
  // A text is not UTF-8, or in C++ has a NUL inside.
  HCQ_ERROR_TEXT,
  // A number is none that the call takes, such as a negative deadline.
  HCQ_ERROR_VALUE,
  // A structure has a size that this library does not know.
  HCQ_ERROR_SIZE,
  // A file could not be read.
  HCQ_ERROR_FILE,
  // The GPU has not taken the timestamp.
  HCQ_ERROR_NOT_TAKEN,
  // The last error of this thread is no fault of the GPU.
  HCQ_ERROR_NO_FAULT,
  // A mistake of this library; the object that the call was about is not used any more.
  HCQ_ERROR_PANIC,
  // An error that this interface has no code for; the text says which.
  HCQ_ERROR_OTHER,
  // No device has that name: "auto", "nvgpu", "rm" or "sim".
  HCQ_ERROR_OPEN_UNKNOWN_SELECTOR = 100,
  // A variable of the environment has a value that means nothing.
  HCQ_ERROR_OPEN_UNKNOWN_SETTING,
  // The file that `HCQ_PROFILE` names cannot be used.
  HCQ_ERROR_OPEN_PROFILE,
  // The device is not part of this build.
  HCQ_ERROR_OPEN_NOT_BUILT,
  // No GPU can be used.
  HCQ_ERROR_OPEN_NO_DEVICE,
  // A device's node cannot be opened.
  HCQ_ERROR_OPEN_NODE,
  // The GPU did not start.
  HCQ_ERROR_OPEN_NOT_STARTED,
  // The desktop driver cannot be used.
  HCQ_ERROR_OPEN_DRIVER,
  // The driver or the GPU has a property that is not supported.
  HCQ_ERROR_OPEN_UNSUPPORTED,
  // The node is that of an Orin's display.
  HCQ_ERROR_OPEN_DISPLAY_DRIVER,
  // The GPU's SM version is not supported.
  HCQ_ERROR_OPEN_UNSUPPORTED_SM,
  // The driver refused a request.
  HCQ_ERROR_DRIVER_IOCTL = 200,
  // The driver gave an answer that is not expected.
  HCQ_ERROR_DRIVER_ANSWER,
  // Memory could not be mapped into the process.
  HCQ_ERROR_DRIVER_MMAP,
  // The desktop driver refused a request.
  HCQ_ERROR_DRIVER_STATUS,
  // Signals interrupted a request for as long as the device's patience.
  HCQ_ERROR_DRIVER_INTERRUPTED,
  // Memory is used up.
  HCQ_ERROR_MEMORY_OUT_OF_MEMORY = 300,
  // The process may not map so much (`RLIMIT_AS`).
  HCQ_ERROR_MEMORY_PROCESS_LIMIT,
  // No free range of GPU addresses is long enough.
  HCQ_ERROR_MEMORY_OUT_OF_ADDRESSES,
  // The range overlaps a window that the hardware claims.
  HCQ_ERROR_MEMORY_IN_WINDOW,
  // The range is not free, not aligned or outside the address space.
  HCQ_ERROR_MEMORY_ADDRESS_TAKEN,
  // The range does not lie in the buffer.
  HCQ_ERROR_MEMORY_OUT_OF_BOUNDS,
  // The CPU cannot reach the memory.
  HCQ_ERROR_MEMORY_NOT_MAPPED,
  // A buffer of no bytes was asked for.
  HCQ_ERROR_MEMORY_EMPTY_BUFFER,
  // A copy would read what it writes.
  HCQ_ERROR_MEMORY_OVERLAP,
  // The program has no such kernel; the text names those it has.
  HCQ_ERROR_PROGRAM_NO_KERNEL = 400,
  // The image is no ELF file.
  HCQ_ERROR_CUBIN_ELF,
  // The image is another kind of file: PTX, a fat binary.
  HCQ_ERROR_CUBIN_OTHER,
  // The ELF file is for another machine.
  HCQ_ERROR_CUBIN_NOT_CUDA,
  // The code is for an SM that is not known.
  HCQ_ERROR_CUBIN_UNKNOWN_SM,
  // The code is for another SM.
  HCQ_ERROR_CUBIN_WRONG_SM,
  // None of the images runs on the device.
  HCQ_ERROR_CUBIN_NONE_FITS,
  // The cubin ends early.
  HCQ_ERROR_CUBIN_TRUNCATED,
  // The cubin has an attribute that cannot be read.
  HCQ_ERROR_CUBIN_ATTRIBUTE,
  // A section has an alignment that is none.
  HCQ_ERROR_CUBIN_ALIGNMENT,
  // A section is too large.
  HCQ_ERROR_CUBIN_TOO_LARGE,
  // A symbol is missing.
  HCQ_ERROR_CUBIN_SYMBOL,
  // A relocation is of a kind that is not known.
  HCQ_ERROR_CUBIN_RELOCATION,
  // The image is compressed, and cannot be unpacked.
  HCQ_ERROR_CUBIN_COMPRESSED,
  // The table of source lines cannot be read.
  HCQ_ERROR_CUBIN_LINES,
  // A kernel lacks something that a launch needs.
  HCQ_ERROR_CUBIN_MISSING,
  // The launch exceeds a limit of the GPU or the kernel.
  HCQ_ERROR_LAUNCH_LIMIT = 500,
  // The kernel was compiled for blocks of another shape.
  HCQ_ERROR_LAUNCH_BLOCK_SHAPE,
  // The kernel has no `griddepcontrol.wait`.
  HCQ_ERROR_LAUNCH_NO_GRID_WAIT,
  // The arguments have another size than the parameters of a kernel whose cubin does not list them.
  HCQ_ERROR_LAUNCH_ARGUMENTS,
  // The launch has no such argument to patch.
  HCQ_ERROR_LAUNCH_NO_ARGUMENT,
  // An argument has another width than its parameter, or than the one that it replaces.
  HCQ_ERROR_LAUNCH_ARGUMENT_WIDTH,
  // An argument's alignment is no power of two up to 4096.
  HCQ_ERROR_LAUNCH_ALIGNMENT,
  // The launch cannot be encoded.
  HCQ_ERROR_LAUNCH_QMD,
  // The node of the graph is no launch.
  HCQ_ERROR_LAUNCH_NOT_A_LAUNCH,
  // The node belongs to another graph.
  HCQ_ERROR_LAUNCH_FOREIGN_NODE,
  // The kernel has more parameters than there are arguments, or fewer.
  HCQ_ERROR_LAUNCH_ARGUMENT_COUNT,
  // An argument lies at another place than its parameter, as it has another alignment.
  HCQ_ERROR_LAUNCH_ARGUMENT_PLACE,
  // The driver lets the device have no more queues.
  HCQ_ERROR_QUEUE_TOO_MANY = 600,
  // A queue of this kind cannot do that.
  HCQ_ERROR_QUEUE_WRONG_QUEUE,
  // The work is larger than the queue's ring.
  HCQ_ERROR_QUEUE_RING_TOO_SMALL,
  // The GPU did not finish in time.
  HCQ_ERROR_QUEUE_TIMEOUT,
  // The queue was freed, and its work did not end in time.
  HCQ_ERROR_QUEUE_STOPPED,
  // The work waits for work of a queue that was freed, which did not end.
  HCQ_ERROR_QUEUE_STARVED,
  // The queue was freed before the work was submitted.
  HCQ_ERROR_QUEUE_DISCARDED,
  // Two objects belong to different devices.
  HCQ_ERROR_FOREIGN_DEVICE = 700,
  // The device belongs to the process that this one was forked from.
  HCQ_ERROR_FORKED,
  // The GPU stopped; `hcq_last_fault` has the report.
  HCQ_ERROR_FAULT,
  // The device was lost to an earlier fault; `hcq_last_fault` has its report.
  HCQ_ERROR_LOST,
} hcq_status;

// The kind of a fault.
typedef enum hcq_fault_kind {
  // A kind that this version of the header does not name.
  HCQ_FAULT_UNNAMED = 0,
  // An address that is not mapped, or not for this access. The code is the MMU's fault type, where known.
  HCQ_FAULT_MMU,
  // An access that is not aligned to its size.
  HCQ_FAULT_MISALIGNED_ADDRESS,
  // An access into a memory window that does not take it.
  HCQ_FAULT_INVALID_ADDRESS_SPACE,
  // An address outside what the access can reach.
  HCQ_FAULT_OUT_OF_RANGE_ADDRESS,
  // A word that is not an instruction.
  HCQ_FAULT_ILLEGAL_INSTRUCTION,
  // An instruction with operands it does not take.
  HCQ_FAULT_ILLEGAL_PARAMETER,
  // A register beyond the kernel's, or a misaligned register tuple.
  HCQ_FAULT_BAD_REGISTER,
  // A program counter that is misaligned or outside the program.
  HCQ_FAULT_BAD_PROGRAM_COUNTER,
  // A constant bank read past its end.
  HCQ_FAULT_INVALID_CONSTANT_ADDRESS,
  // Another exception of an SM; its `HWW_WARP_ESR` code.
  HCQ_FAULT_SM_EXCEPTION,
  // A malformed pushbuffer.
  HCQ_FAULT_PUSHBUFFER,
  // An exception of the compute engine.
  HCQ_FAULT_ENGINE,
  // The driver's limit for switching away was exceeded: a hang, or a kernel too long beside other users.
  HCQ_FAULT_SWITCH_TIMEOUT,
  // The driver gave the channels up without a notification.
  HCQ_FAULT_TORN_DOWN,
  // A `trap` or a breakpoint.
  HCQ_FAULT_TRAP,
  // The channel was reset.
  HCQ_FAULT_RESET,
  // Another error; the notifier's code.
  HCQ_FAULT_OTHER,
} hcq_fault_kind;

// The driver that serves a device.
typedef enum hcq_backend {
  // One that this version of the header does not name.
  HCQ_BACKEND_UNNAMED = 0,
  // A Jetson's `nvgpu`.
  HCQ_BACKEND_NVGPU,
  // NVIDIA's desktop driver.
  HCQ_BACKEND_RM,
  // The software ga10b.
  HCQ_BACKEND_SIM,
} hcq_backend;

// The resource that keeps more blocks off an SM.
typedef enum hcq_occupancy_limit {
  // One that this version of the header does not name.
  HCQ_LIMIT_UNNAMED = 0,
  // The number of warps an SM holds.
  HCQ_LIMIT_WARPS,
  // The number of blocks an SM holds.
  HCQ_LIMIT_BLOCKS,
  // The register file.
  HCQ_LIMIT_REGISTERS,
  // Shared memory.
  HCQ_LIMIT_SHARED_MEMORY,
} hcq_occupancy_limit;

// The arguments of a launch, in order, each at its natural alignment. One thread uses a list at a time.
//
// A launch compares each with the parameter of its number, by size and place, where the cubin lists them. One
// argument with the bytes of all parameters, a struct that a program has packed, is taken for all of them.
//
// A call that adds an argument and fails makes each launch with the list fail in the same way, until the list is
// cleared: it is enough to look at the launch's status.
typedef struct hcq_args hcq_args;

// Memory that CPU and GPU access.
typedef struct hcq_buffer hcq_buffer;

// A GPU with an address space.
typedef struct hcq_device hcq_device;

// A recorded list of launches, copies and barriers.
typedef struct hcq_graph hcq_graph;

// A graph that is being recorded. One thread uses it at a time.
typedef struct hcq_graph_builder hcq_graph_builder;

// A kernel of a program.
typedef struct hcq_kernel hcq_kernel;

// A point in a queue's work that can be waited for.
typedef struct hcq_point hcq_point;

// A cubin in a device's memory.
typedef struct hcq_program hcq_program;

// A channel to the GPU. One thread uses a queue at a time.
typedef struct hcq_queue hcq_queue;

// A time taken by the GPU.
typedef struct hcq_timestamp hcq_timestamp;

// The report of a fault. Texts are `NULL` where nothing is known, and belong to the library: they stay until the
// thread calls `hcq_last_fault` again.
typedef struct hcq_fault {
  // The kind of the fault.
  enum hcq_fault_kind kind;
  // The code that goes with the kind; 0xffffffff where there is none.
  uint32_t code;
  // The driver's error notifier.
  uint32_t notifier;
  // Not used.
  uint32_t reserved;
  // The address accessed; `HCQ_UNKNOWN` where the driver does not report it.
  uint64_t address;
  // The program counter, an absolute GPU address; `HCQ_UNKNOWN` where it is not known.
  uint64_t pc;
  // Bytes from the start of the kernel to the program counter; `HCQ_UNKNOWN` where it is not known.
  uint64_t offset;
  // Start of the mapping nearest to the address; `HCQ_UNKNOWN` where none is near.
  uint64_t nearest_address;
  // Its length in bytes.
  uint64_t nearest_len;
  // Bytes from its end (positive) or its start (negative) to the address; 0 if it contains it.
  int64_t nearest_distance;
  // The object that it is: "buffer", "program", ...
  const char *nearest;
  // The kernel that was running.
  const char *kernel;
  // If the kernel is not known: those that had not ended, separated by commas.
  const char *in_flight;
  // The instruction at the program counter.
  const char *instruction;
  // The software GPU's account: block, warp and lanes. Lines.
  const char *explanation;
  // Lines of the kernel log about it.
  const char *log;
  // The GPU core dump that was written of it (`HCQ_CORE`).
  const char *core;
  // All of it in one sentence, as `hcq_last_error` has it.
  const char *report;
} hcq_fault;

// The options of `hcq_device_open`. `hcq_options_init` fills them.
typedef struct hcq_options {
  // `sizeof(hcq_options)`.
  size_t size;
  // Time in ns for which calls without a deadline (reading, writing, freeing a queue) wait for the GPU.
  uint64_t patience_ns;
  // Time in ns for which a wait spins before it yields; `HCQ_UNKNOWN` for the device's own choice.
  uint64_t spin_ns;
  // Bytes of freed buffers that are kept for later ones; `HCQ_UNKNOWN` for the device's own choice.
  uint64_t keep_freed;
  // Copies of a compute queue use a kernel from this many bytes on; `HCQ_UNKNOWN` for the device's choice.
  uint64_t kernel_copies_from;
  // Context-switch time in ns after which a Jetson's driver stops a channel; `HCQ_UNKNOWN` for the driver's.
  uint64_t switch_limit_ns;
  // Time slice in ns on a Jetson's GPU, 1000000 to 50000000 where root has not set the driver other bounds;
  // `HCQ_UNKNOWN` for its 1024000.
  uint64_t timeslice_ns;
  // Settings of channels and launches, as lines `NAME = VALUE`; `NULL` for what `HCQ_PROFILE` says.
  const char *profile;
  // As close as can be to what others have run on an Orin: 0, 1, or -1 for what `HCQ_CONSERVATIVE` says.
  int32_t conservative;
  // Whether a Jetson's level-2 cache may keep buffers: 0, 1, or -1 for what `HCQ_GPU_CACHE` says.
  int32_t gpu_cache;
  // Whether dependent launches follow each other inside the GPU's scheduler.
  int32_t chain_launches;
  // How often the device's work appears on a Jetson's run list: 0 low, 1 medium, 2 high, or -1 for the driver's,
  // which is low. Refused on the desktop driver, which has no such levels.
  int32_t interleave;
} hcq_options;

// A device's description.
typedef struct hcq_info {
  // Marketing or chip name, such as "ga10b"; cut where it is longer.
  char name[64];
  // Version of the driver, as far as it reports one; cut where it is longer.
  char driver_version[64];
  // Bytes of memory the GPU can use.
  uint64_t memory;
  // Largest shared memory of one thread block in bytes, static and dynamic together.
  uint64_t max_shared_per_block;
  // Highest clock of the SMs in Hz; 0 where the driver does not report it.
  uint64_t max_clock_hz;
  // The driver that serves it.
  enum hcq_backend backend;
  // The `sm_NN` number, such as 87.
  uint32_t sm;
  // Number of streaming multiprocessors.
  uint32_t sm_count;
  // Number of texture processing clusters that scratch memory is provided for.
  uint32_t tpc_count;
  // Resident warps per SM.
  uint32_t max_warps_per_sm;
  // Class of the compute engine, such as 0xc7c0.
  uint32_t compute_class;
  // Class of the copy engine, such as 0xc7b5.
  uint32_t copy_class;
  // Class of the channel, such as 0xc76f.
  uint32_t channel_class;
  // Whether the level-2 cache may keep buffers: 0 no, 1 yes, -1 where that is not for the library to say.
  int32_t gpu_cache;
  // Whether buffers are the CPU's own memory.
  bool unified_memory;
} hcq_info;

// A mapping of a device's address space.
typedef struct hcq_mapping {
  // First GPU address.
  uint64_t address;
  // Length in bytes; 0 for a window, whose end the hardware gives.
  uint64_t len;
  // The object that lies there, such as "buffer"; cut where it is longer.
  char what[32];
} hcq_mapping;

// One moment on the clocks of GPU and CPU.
typedef struct hcq_clock_pair {
  // The GPU's clock in ns, from which timestamps are taken.
  uint64_t gpu_ns;
  // `CLOCK_MONOTONIC` in ns.
  uint64_t cpu_ns;
  // Largest difference of the two, in ns.
  uint64_t error_ns;
} hcq_clock_pair;

// A cubin in the program's memory.
typedef struct hcq_image {
  // Its first byte.
  const void *data;
  // Its length in bytes.
  size_t len;
} hcq_image;

// Facts of a kernel.
typedef struct hcq_kernel_info {
  // GPU address of the code.
  uint64_t address;
  // Bytes of code.
  uint64_t code_bytes;
  // Registers per thread.
  uint32_t registers;
  // Bytes of static shared memory per block.
  uint32_t static_shared;
  // Bytes of stack per thread.
  uint32_t local_bytes;
  // Bytes of parameters.
  uint32_t param_bytes;
  // Most threads per block.
  uint32_t max_threads;
  // Whether its code has `griddepcontrol.wait`.
  bool waits_for_grids;
} hcq_kernel_info;

// The occupancy of an SM by blocks of one size.
typedef struct hcq_occupancy {
  // Blocks on an SM at once; 0 for blocks that cannot be launched.
  uint32_t blocks_per_sm;
  // Warps on an SM at once.
  uint32_t warps_per_sm;
  // Most warps an SM holds.
  uint32_t max_warps_per_sm;
  // The resource that limits it.
  enum hcq_occupancy_limit limit;
} hcq_occupancy;

// The shape of a launch. Zeros that are left out of an initializer mean none: no dynamic shared memory, blocks per
// SM as they fit. Every side of grid and block is one at least.
typedef struct hcq_launch_config {
  // Thread blocks along x, y and z.
  uint32_t grid[3];
  // Threads of a block along x, y and z.
  uint32_t block[3];
  // Bytes of shared memory per block beyond the kernel's static ones.
  uint32_t dynamic_shared;
  // Blocks for which an SM sets shared memory apart; 0 for as many as fit.
  uint32_t blocks_per_sm;
} hcq_launch_config;

// A node of a graph. A value, which nothing frees.
typedef struct hcq_node {
  // The graph's number.
  uint64_t graph;
  // The node's number among its nodes.
  uint64_t index;
} hcq_node;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, such as "1.2.3".
const char *hcq_version(void);

// The name of a code, as it stands in this header; "unknown status" for a number that is none.
const char *hcq_status_name(int32_t status);

// Why the last call of this thread that failed did: the message, its causes and, on a line of its own, what to
// try; the report of a fault. Empty where none failed. The text stays until the next failure of the thread.
const char *hcq_last_error(void);

// The report of the fault that the last failure of this thread was about.
//
// `size` is `sizeof(hcq_fault)`. `HCQ_ERROR_NO_FAULT` where that failure was none of `HCQ_ERROR_FAULT` and
// `HCQ_ERROR_LOST`; itself it leaves `hcq_last_error` as it is.
enum hcq_status hcq_last_fault(struct hcq_fault *fault,
                               size_t size);

// Fills options with the defaults. `size` is `sizeof(hcq_options)`.
enum hcq_status hcq_options_init(struct hcq_options *options, size_t size);

// Opens a device.
//
// `name` is "auto" (a Jetson's GPU, else a desktop GPU, else the software ga10b), "nvgpu", "rm" or "sim";
// `NULL` for what `HCQ_DEVICE` says, and "auto" if it says nothing. `options` may be `NULL`.
enum hcq_status hcq_device_open(const char *name,
                                const struct hcq_options *options,
                                struct hcq_device **device);

// Frees a device's handle. The device closes when everything that was made from it is freed too. `NULL` is
// no error.
enum hcq_status hcq_device_free(struct hcq_device *device);

// Describes a device. `size` is `sizeof(hcq_info)`.
enum hcq_status hcq_device_get_info(const struct hcq_device *device,
                                    struct hcq_info *info,
                                    size_t size);

// Whether kernels are interrupted between two instructions when another program is to have the GPU, or else at
// their end. Known once the first queue is open.
enum hcq_status hcq_device_gives_way(const struct hcq_device *device,
                                     bool *gives_way);

// Bytes of memory that can be allocated now.
enum hcq_status hcq_device_free_memory(const struct hcq_device *device, uint64_t *bytes);

// Gives the memory of freed buffers back that the device keeps for later ones.
enum hcq_status hcq_device_trim(const struct hcq_device *device);

// Bytes of device memory that stacks of `stack` bytes per thread take.
enum hcq_status hcq_device_stack_memory(const struct hcq_device *device,
                                        uint32_t stack,
                                        uint64_t *bytes);

// Allocates the memory for stacks of `stack` bytes per thread now.
enum hcq_status hcq_device_reserve_stacks(const struct hcq_device *device, uint32_t stack);

// Lists what is mapped in a device's address space, by address. Writes at most `capacity` mappings, and to
// `count`, which may be `NULL`, how many there are.
enum hcq_status hcq_device_memory_map(const struct hcq_device *device,
                                      struct hcq_mapping *mappings,
                                      size_t capacity,
                                      size_t *count);

// Lists the windows through which kernels reach shared and local memory, as `hcq_device_memory_map` lists
// mappings.
enum hcq_status hcq_device_windows(const struct hcq_device *device,
                                   struct hcq_mapping *windows,
                                   size_t capacity,
                                   size_t *count);

// The GPU's clock in ns.
enum hcq_status hcq_device_gpu_time(const struct hcq_device *device, uint64_t *ns);

// Reads the clocks of GPU and CPU together. Two pairs, some time apart, relate every timestamp between to the
// CPU's clock.
enum hcq_status hcq_device_clock_pair(const struct hcq_device *device,
                                      struct hcq_clock_pair *pair);

// Allocates a buffer of `len` bytes, aligned to 256, and to 2 MiB from 8 MiB on. Its content is not specified.
enum hcq_status hcq_buffer_alloc(const struct hcq_device *device,
                                 uint64_t len,
                                 struct hcq_buffer **buffer);

// Allocates a buffer in the CPU's memory, which both sides reach: the GPU over its bus, the CPU without a copy
// (`hcq_buffer_host_pointer`).
enum hcq_status hcq_buffer_alloc_host(const struct hcq_device *device,
                                      uint64_t len,
                                      struct hcq_buffer **buffer);

// Allocates a buffer at a GPU address, a multiple of 4 KiB.
enum hcq_status hcq_buffer_alloc_at(const struct hcq_device *device,
                                    uint64_t address,
                                    uint64_t len,
                                    struct hcq_buffer **buffer);

// Frees a buffer's handle. The memory goes back when the last submission, graph and argument list that names it
// has ended. `NULL` is no error.
enum hcq_status hcq_buffer_free(struct hcq_buffer *buffer);

// A buffer's length in bytes.
enum hcq_status hcq_buffer_len(const struct hcq_buffer *buffer, uint64_t *len);

// A buffer's GPU address.
enum hcq_status hcq_buffer_address(const struct hcq_buffer *buffer, uint64_t *address);

// Names a buffer in what the checks of the software ga10b find.
enum hcq_status hcq_buffer_set_name(const struct hcq_buffer *buffer, const char *name);

// Copies `len` bytes to `offset` in a buffer, after the last submission that names it has completed.
enum hcq_status hcq_buffer_write(const struct hcq_buffer *buffer,
                                 uint64_t offset,
                                 const void *data,
                                 size_t len);

// Copies `len` bytes from `offset` in a buffer, after the last submission that names it has completed.
enum hcq_status hcq_buffer_read(const struct hcq_buffer *buffer,
                                uint64_t offset,
                                void *data,
                                size_t len);

// Waits until the last submissions that name a buffer have completed, at most `timeout_ns`, which is not negative: after
// that the memory of `hcq_buffer_host_pointer` may be touched. Work that was recorded and not submitted is not waited
// for. `HCQ_ERROR_QUEUE_TIMEOUT` where it was not done in time.
enum hcq_status hcq_buffer_wait(const struct hcq_buffer *buffer,
                                int64_t timeout_ns);

// The CPU's address of a buffer of `hcq_buffer_alloc_host`; `NULL` for another one.
//
// It stays until the buffer's handle is freed. Nothing orders accesses through it: wait for the submissions
// that use the buffer before (`hcq_buffer_wait`), and make them after. The checks of the software ga10b do not see them.
enum hcq_status hcq_buffer_host_pointer(const struct hcq_buffer *buffer,
                                        void **pointer);

// Loads a cubin: of the given ones, for example of one source for several SMs, the one that runs on the device.
enum hcq_status hcq_program_load(const struct hcq_device *device,
                                 const struct hcq_image *images,
                                 size_t count,
                                 struct hcq_program **program);

// Loads a cubin from a file: of the given ones the one that runs on the device.
enum hcq_status hcq_program_load_files(const struct hcq_device *device,
                                       const char *const *paths,
                                       size_t count,
                                       struct hcq_program **program);

// Frees a program's handle. The code goes back when the last kernel, graph and launch of it has. `NULL` is no
// error.
enum hcq_status hcq_program_free(struct hcq_program *program);

// The number of kernels of a program.
enum hcq_status hcq_program_kernel_count(const struct hcq_program *program, size_t *count);

// The kernel of that number, from 0.
enum hcq_status hcq_program_kernel_at(const struct hcq_program *program,
                                      size_t index,
                                      struct hcq_kernel **kernel);

// The kernel of that name, mangled where the compiler mangled it.
enum hcq_status hcq_program_kernel(const struct hcq_program *program,
                                   const char *name,
                                   struct hcq_kernel **kernel);

// Bytes per thread of the largest stack that a kernel of a cubin needs, for `hcq_device_reserve_stacks`.
enum hcq_status hcq_largest_stack(const void *cubin,
                                  size_t len,
                                  uint32_t *stack);

// Frees a kernel's handle. `NULL` is no error.
enum hcq_status hcq_kernel_free(struct hcq_kernel *kernel);

// Copies a kernel's name to `name`, cut to `size` bytes with its NUL; `len`, which may be `NULL`, gets its whole
// length without the NUL.
enum hcq_status hcq_kernel_name(const struct hcq_kernel *kernel,
                                char *name,
                                size_t size,
                                size_t *len);

// Facts of a kernel. `size` is `sizeof(hcq_kernel_info)`.
enum hcq_status hcq_kernel_get_info(const struct hcq_kernel *kernel,
                                    struct hcq_kernel_info *info,
                                    size_t size);

// The occupancy of an SM by blocks of `threads` threads with `dynamic_shared` bytes of shared memory beyond the
// static ones. A grid whose blocks wait for each other has at most `blocks_per_sm` times the SMs.
enum hcq_status hcq_kernel_occupancy(const struct hcq_kernel *kernel,
                                     uint32_t threads,
                                     uint32_t dynamic_shared,
                                     struct hcq_occupancy *occupancy);

// Makes an empty list of arguments.
enum hcq_status hcq_args_new(struct hcq_args **args);

// Frees a list of arguments; launches that were recorded with it stay as they are. `NULL` is no error.
enum hcq_status hcq_args_free(struct hcq_args *args);

// Empties a list of arguments, which keeps its memory: a loop that fills one again allocates nothing.
enum hcq_status hcq_args_clear(struct hcq_args *args);

// Adds the address of a buffer, which stays as long as the list and what is launched with it.
enum hcq_status hcq_args_buffer(struct hcq_args *args, const struct hcq_buffer *buffer);

// Adds the address `offset` bytes into a buffer. An offset past the end is passed as it is.
enum hcq_status hcq_args_buffer_at(struct hcq_args *args,
                                   const struct hcq_buffer *buffer,
                                   uint64_t offset);

// Adds a 32-bit unsigned integer.
enum hcq_status hcq_args_u32(struct hcq_args *args, uint32_t value);

// Adds a 32-bit signed integer.
enum hcq_status hcq_args_i32(struct hcq_args *args, int32_t value);

// Adds a 64-bit unsigned integer.
enum hcq_status hcq_args_u64(struct hcq_args *args, uint64_t value);

// Adds a 64-bit signed integer.
enum hcq_status hcq_args_i64(struct hcq_args *args, int64_t value);

// Adds a 32-bit float.
enum hcq_status hcq_args_f32(struct hcq_args *args, float value);

// Adds a 64-bit float.
enum hcq_status hcq_args_f64(struct hcq_args *args, double value);

// Adds a value of another type: its bytes, at a multiple of `align`, a power of two up to 4096. With another
// alignment every launch is `HCQ_ERROR_LAUNCH_ALIGNMENT`.
enum hcq_status hcq_args_bytes(struct hcq_args *args,
                               const void *value,
                               size_t len,
                               size_t align);

// Copies the block of parameters so far, cut to `size` bytes; `len`, which may be `NULL`, gets its whole length.
enum hcq_status hcq_args_block(const struct hcq_args *args,
                               void *data,
                               size_t size,
                               size_t *len);

// Frees a point's handle; the work goes on. `NULL` is no error.
enum hcq_status hcq_point_free(struct hcq_point *point);

// Waits until everything submitted up to a point is done, at most `timeout_ns`, which is not negative. 0 looks
// once. `HCQ_ERROR_QUEUE_TIMEOUT` where it was not done in time, `HCQ_ERROR_FAULT` where the GPU stopped the
// work.
enum hcq_status hcq_point_wait(const struct hcq_point *point,
                               int64_t timeout_ns);

// Whether everything submitted up to a point is done.
enum hcq_status hcq_point_is_done(const struct hcq_point *point, bool *done);

// Frees a timestamp's handle. `NULL` is no error.
enum hcq_status hcq_timestamp_free(struct hcq_timestamp *timestamp);

// The GPU's clock in ns when the work before a timestamp had ended. Of a timestamp in a graph: that of the last
// replay that got so far. `HCQ_ERROR_NOT_TAKEN` before.
enum hcq_status hcq_timestamp_ns(const struct hcq_timestamp *timestamp,
                                 uint64_t *ns);

// Nanoseconds from one timestamp of a device to another, of any of its queues; negative where `end` was taken first.
// `HCQ_ERROR_FOREIGN_DEVICE` for timestamps of two devices, which have clocks of their own.
enum hcq_status hcq_timestamp_elapsed(const struct hcq_timestamp *begin,
                                      const struct hcq_timestamp *end,
                                      int64_t *ns);

// Starts to record a graph.
enum hcq_status hcq_graph_begin(const struct hcq_device *device,
                                struct hcq_graph_builder **builder);

// Frees a graph that is not to be built. `NULL` is no error.
enum hcq_status hcq_graph_builder_free(struct hcq_graph_builder *builder);

// Adds a launch, which every replay makes. `args` may be `NULL` for none, `node` where it is not wanted. Buffers in
// `args` stay as long as the graph, or until a patch replaces their addresses.
enum hcq_status hcq_graph_launch(struct hcq_graph_builder *builder,
                                 const struct hcq_kernel *kernel,
                                 const struct hcq_launch_config *config,
                                 const struct hcq_args *args,
                                 struct hcq_node *node);

// Adds a launch that starts when the `count` nodes at `after`, and everything before the last barrier, have ended.
// It may overlap all others.
enum hcq_status hcq_graph_launch_after(struct hcq_graph_builder *builder,
                                       const struct hcq_kernel *kernel,
                                       const struct hcq_launch_config *config,
                                       const struct hcq_args *args,
                                       const struct hcq_node *after,
                                       size_t count,
                                       struct hcq_node *node);

// Adds a launch that may begin while the launch `after` still runs (programmatic dependent launch), where the GPU
// can do that. Its kernel waits at `griddepcontrol.wait`, and before that touches nothing that work before it
// in the graph writes.
enum hcq_status hcq_graph_launch_early(struct hcq_graph_builder *builder,
                                       const struct hcq_kernel *kernel,
                                       const struct hcq_launch_config *config,
                                       const struct hcq_args *args,
                                       struct hcq_node after,
                                       struct hcq_node *node);

// A barrier: work added later starts after everything added so far has ended, and sees its writes.
enum hcq_status hcq_graph_barrier(struct hcq_graph_builder *builder);

// Adds a copy of `len` bytes, as `hcq_queue_copy` records one. `node` may be `NULL`.
enum hcq_status hcq_graph_copy(struct hcq_graph_builder *builder,
                               const struct hcq_buffer *src,
                               uint64_t src_offset,
                               const struct hcq_buffer *dst,
                               uint64_t dst_offset,
                               uint64_t len,
                               struct hcq_node *node);

// Adds the taking of a timestamp when everything added so far has ended; each replay takes it anew.
enum hcq_status hcq_graph_timestamp(struct hcq_graph_builder *builder,
                                    struct hcq_timestamp **timestamp);

// Encodes a graph into GPU memory. Its builder is freed, whether the call succeeds or not, unless another thread is in
// a call with it (`HCQ_ERROR_BUSY`).
enum hcq_status hcq_graph_build(struct hcq_graph_builder *builder,
                                struct hcq_graph **graph);

// Frees a graph; replays that were started go on. `NULL` is no error.
enum hcq_status hcq_graph_free(struct hcq_graph *graph);

// The number of launches in a graph.
enum hcq_status hcq_graph_launches(const struct hcq_graph *graph, size_t *count);

// Replaces arguments of a launch by those of `args`, from the one of number `index` on, for all later replays; those
// that were started keep theirs. Each is replaced by one of its width. What holds for the arguments of
// `hcq_queue_launch` holds here.
enum hcq_status hcq_graph_patch_args(const struct hcq_graph *graph,
                                     struct hcq_node node,
                                     size_t index,
                                     const struct hcq_args *args);

// Opens a queue for launches and copies.
enum hcq_status hcq_queue_open(const struct hcq_device *device, struct hcq_queue **queue);

// Opens a queue for copies alone, which run beside the launches of other queues.
enum hcq_status hcq_queue_open_copy(const struct hcq_device *device, struct hcq_queue **queue);

// Frees a queue: discards what was not submitted, and waits for what was, at most the device's patience (60 s by
// default). Work that does not end is stopped then: waits for it are `HCQ_ERROR_QUEUE_STOPPED`. On a Jetson that takes
// the device's other queues along, and later calls are `HCQ_ERROR_LOST`; where it has none, opening one takes the
// patience again, and is `HCQ_ERROR_DRIVER_IOCTL` (`EBUSY`) while the kernel runs on. `NULL` is no error.
enum hcq_status hcq_queue_free(struct hcq_queue *queue);

// Sets how long the calls of a queue wait for room in its rings, in place of the device's patience. A call that ends
// with `HCQ_ERROR_QUEUE_TIMEOUT` has recorded and handed over nothing new, and may be made again. `hcq_queue_free`
// still takes the device's patience.
enum hcq_status hcq_queue_set_patience(struct hcq_queue *queue,
                                       int64_t patience_ns);

// Records a launch. `args` may be `NULL` for none. Launches without a barrier between them may overlap.
//
// The kernel's arguments decide what it reads and writes: everything in the device's address space can be.
enum hcq_status hcq_queue_launch(struct hcq_queue *queue,
                                 const struct hcq_kernel *kernel,
                                 const struct hcq_launch_config *config,
                                 const struct hcq_args *args);

// A barrier: work recorded later starts after everything recorded so far has ended, and sees its writes.
enum hcq_status hcq_queue_barrier(struct hcq_queue *queue);

// Records a copy of `len` bytes between buffers, or between ranges of one that do not overlap. Copies of a queue
// follow each other; launches and copies need a barrier between them.
enum hcq_status hcq_queue_copy(struct hcq_queue *queue,
                               const struct hcq_buffer *src,
                               uint64_t src_offset,
                               const struct hcq_buffer *dst,
                               uint64_t dst_offset,
                               uint64_t len);

// Records the taking of a timestamp when everything recorded so far has ended.
enum hcq_status hcq_queue_timestamp(struct hcq_queue *queue, struct hcq_timestamp **timestamp);

// Work recorded later starts after `point`, which may belong to another queue of the device.
enum hcq_status hcq_queue_wait_for(struct hcq_queue *queue, const struct hcq_point *point);

// Hands everything recorded to the GPU. `point`, which may be `NULL`, gets a point to wait for.
enum hcq_status hcq_queue_submit(struct hcq_queue *queue, struct hcq_point **point);

// Runs a graph after everything recorded so far, and hands both to the GPU. Replays of one graph follow each other.
// `point` may be `NULL`.
enum hcq_status hcq_queue_replay(struct hcq_queue *queue,
                                 const struct hcq_graph *graph,
                                 struct hcq_point **point);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HCQ_H */
