/* Everything that a program should not do with handles, pointers and numbers: each call returns the status that
 * names the mistake, and the process goes on. */
#define _POSIX_C_SOURCE 200809L
#include <hcq.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS ((int64_t)1000 * 1000 * 1000)

static int bad;

static void expect(int line, const char *call, hcq_status wanted, hcq_status got)
{
    if (wanted == got && (got == HCQ_OK || hcq_last_error()[0]))
        return;
    fprintf(stderr, "line %d: %s: %s in place of %s: %s\n", line, call, hcq_status_name(got),
            hcq_status_name(wanted), hcq_last_error());
    bad++;
}

#define EXPECT(status, call) expect(__LINE__, #call, status, (call))
#define OK(call) EXPECT(HCQ_OK, call)

static const hcq_launch_config one = {{1, 1, 1}, {1, 1, 1}, 0, 0};

static void opening(void)
{
    hcq_device *device = (hcq_device *)&bad;
    hcq_options options;
    EXPECT(HCQ_ERROR_OPEN_UNKNOWN_SELECTOR, hcq_device_open("gpu", NULL, &device));
    if (device || !strstr(hcq_last_error(), "expected auto, nvgpu, rm or sim"))
        bad++;
    EXPECT(HCQ_ERROR_TEXT, hcq_device_open("\xff", NULL, &device));
    EXPECT(HCQ_ERROR_POINTER, hcq_device_open("sim", NULL, NULL));
    EXPECT(HCQ_ERROR_POINTER, hcq_options_init(NULL, sizeof options));
    OK(hcq_options_init(&options, sizeof options));
    options.size = 8;
    EXPECT(HCQ_ERROR_SIZE, hcq_device_open("sim", &options, &device));
    OK(hcq_options_init(&options, sizeof options));
    options.conservative = 7;
    EXPECT(HCQ_ERROR_VALUE, hcq_device_open("sim", &options, &device));
    options.conservative = 1;
    options.interleave = 3;
    EXPECT(HCQ_ERROR_VALUE, hcq_device_open("sim", &options, &device));
    options.interleave = 2;
    options.profile = "release = never";
    EXPECT(HCQ_ERROR_VALUE, hcq_device_open("sim", &options, &device));
    options.profile = "release = host";
    OK(hcq_device_open("sim", &options, &device));
    OK(hcq_device_free(device));
    if (strcmp(hcq_status_name(12345), "unknown status") != 0 || strcmp(hcq_status_name(0), "HCQ_OK") != 0)
        bad++;
}

static void handles(hcq_device *device, hcq_queue *queue)
{
    hcq_buffer *buffer, *other;
    hcq_info info;
    uint64_t len;
    char on_the_stack[16];
    OK(hcq_buffer_alloc(device, 64, &buffer));
    EXPECT(HCQ_ERROR_HANDLE_NULL, hcq_device_get_info(NULL, &info, sizeof info));
    EXPECT(HCQ_ERROR_HANDLE_NULL, hcq_buffer_len(NULL, &len));
    EXPECT(HCQ_ERROR_HANDLE_NULL, hcq_queue_submit(NULL, NULL));
    EXPECT(HCQ_ERROR_HANDLE_NULL, hcq_point_wait(NULL, 0));
    EXPECT(HCQ_ERROR_HANDLE_KIND, hcq_buffer_len((hcq_buffer *)queue, &len));
    EXPECT(HCQ_ERROR_HANDLE_KIND, hcq_buffer_free((hcq_buffer *)device));
    EXPECT(HCQ_ERROR_HANDLE_KIND, hcq_queue_barrier((hcq_queue *)buffer));
    EXPECT(HCQ_ERROR_HANDLE_UNKNOWN, hcq_buffer_len((hcq_buffer *)on_the_stack, &len));
    EXPECT(HCQ_ERROR_HANDLE_UNKNOWN, hcq_buffer_free((hcq_buffer *)1));
    EXPECT(HCQ_ERROR_POINTER, hcq_buffer_len(buffer, NULL));
    OK(hcq_buffer_free(buffer));
    EXPECT(HCQ_ERROR_HANDLE_FREED, hcq_buffer_free(buffer));
    EXPECT(HCQ_ERROR_HANDLE_FREED, hcq_buffer_len(buffer, &len));
    OK(hcq_buffer_alloc(device, 64, &other));
    EXPECT(HCQ_ERROR_HANDLE_FREED, hcq_buffer_len(buffer, &len));
    OK(hcq_buffer_free(other));
    OK(hcq_buffer_free(NULL));
    OK(hcq_device_free(NULL));
    OK(hcq_queue_free(NULL));
}

static void memory(hcq_device *device)
{
    hcq_buffer *buffer, *made;
    char bytes[64];
    void *pointer;
    memset(bytes, 7, sizeof bytes);
    EXPECT(HCQ_ERROR_MEMORY_EMPTY_BUFFER, hcq_buffer_alloc(device, 0, &made));
    EXPECT(HCQ_ERROR_VALUE, hcq_buffer_alloc_at(device, UINT64_MAX, 64, &made));
    EXPECT(HCQ_ERROR_MEMORY_ADDRESS_TAKEN, hcq_buffer_alloc_at(device, 1, 64, &made));
    OK(hcq_buffer_alloc(device, sizeof bytes, &buffer));
    OK(hcq_buffer_write(buffer, 0, bytes, sizeof bytes));
    EXPECT(HCQ_ERROR_MEMORY_OUT_OF_BOUNDS, hcq_buffer_write(buffer, 1, bytes, sizeof bytes));
    EXPECT(HCQ_ERROR_MEMORY_OUT_OF_BOUNDS, hcq_buffer_read(buffer, UINT64_MAX, bytes, 2));
    EXPECT(HCQ_ERROR_POINTER, hcq_buffer_write(buffer, 0, NULL, 1));
    EXPECT(HCQ_ERROR_VALUE, hcq_buffer_write(buffer, 0, bytes, SIZE_MAX));
    EXPECT(HCQ_ERROR_POINTER, hcq_buffer_set_name(buffer, NULL));
    OK(hcq_buffer_write(buffer, 64, NULL, 0));
    OK(hcq_buffer_host_pointer(buffer, &pointer));
    if (pointer)
        bad++;
    OK(hcq_buffer_free(buffer));
}

static void programs(hcq_device *device, hcq_program *program)
{
    static const char *const absent[] = {"/nowhere/it.cubin"};
    static const char *const null_path[] = {NULL};
    hcq_image text = {"no cubin", 8}, lost = {NULL, 8};
    hcq_program *made;
    hcq_kernel *kernel;
    uint32_t stack;
    EXPECT(HCQ_ERROR_FILE, hcq_program_load_files(device, absent, 1, &made));
    EXPECT(HCQ_ERROR_POINTER, hcq_program_load_files(device, null_path, 1, &made));
    /* What has no end is not read, nor is what is no file. */
    const char *const endless[] = {"/dev/zero"}, *const folder[] = {"/"};
    EXPECT(HCQ_ERROR_FILE, hcq_program_load_files(device, endless, 1, &made));
    EXPECT(HCQ_ERROR_FILE, hcq_program_load_files(device, folder, 1, &made));
    EXPECT(HCQ_ERROR_CUBIN_NONE_FITS, hcq_program_load_files(device, NULL, 0, &made));
    EXPECT(HCQ_ERROR_CUBIN_ELF, hcq_program_load(device, &text, 1, &made));
    EXPECT(HCQ_ERROR_POINTER, hcq_program_load(device, &lost, 1, &made));
    EXPECT(HCQ_ERROR_PROGRAM_NO_KERNEL, hcq_program_kernel(program, "absent", &kernel));
    EXPECT(HCQ_ERROR_VALUE, hcq_program_kernel_at(program, 99, &kernel));
    EXPECT(HCQ_ERROR_CUBIN_ELF, hcq_largest_stack("no cubin", 8, &stack));
}

static void launches(hcq_device *device, hcq_device *another, hcq_queue *queue, hcq_kernel *fill)
{
    hcq_buffer *buffer, *foreign;
    hcq_args *args;
    hcq_queue *copies;
    hcq_launch_config shape = one;
    OK(hcq_buffer_alloc(device, 64, &buffer));
    OK(hcq_buffer_alloc(another, 64, &foreign));
    OK(hcq_queue_open_copy(device, &copies));
    OK(hcq_args_new(&args));
    EXPECT(HCQ_ERROR_LAUNCH_ARGUMENT_COUNT, hcq_queue_launch(queue, fill, &one, NULL));
    OK(hcq_args_buffer(args, buffer));
    EXPECT(HCQ_ERROR_LAUNCH_ARGUMENT_COUNT, hcq_queue_launch(queue, fill, &one, args));
    OK(hcq_args_u32(args, 1));
    EXPECT(HCQ_ERROR_POINTER, hcq_queue_launch(queue, fill, NULL, args));
    EXPECT(HCQ_ERROR_HANDLE_NULL, hcq_queue_launch(queue, NULL, &one, args));
    shape.block[0] = 1 << 20;
    EXPECT(HCQ_ERROR_LAUNCH_LIMIT, hcq_queue_launch(queue, fill, &shape, args));
    shape.block[0] = 0;
    EXPECT(HCQ_ERROR_LAUNCH_QMD, hcq_queue_launch(queue, fill, &shape, args));
    EXPECT(HCQ_ERROR_QUEUE_WRONG_QUEUE, hcq_queue_launch(copies, fill, &one, args));
    OK(hcq_args_bytes(args, "x", 1, 3));
    EXPECT(HCQ_ERROR_LAUNCH_ALIGNMENT, hcq_queue_launch(queue, fill, &one, args));
    /* An argument that could not be added is an error of the launch too, until the list is cleared. */
    OK(hcq_args_clear(args));
    EXPECT(HCQ_ERROR_HANDLE_NULL, hcq_args_buffer(args, NULL));
    OK(hcq_args_buffer(args, buffer));
    OK(hcq_args_u32(args, 1));
    EXPECT(HCQ_ERROR_HANDLE_NULL, hcq_queue_launch(queue, fill, &one, args));
    OK(hcq_args_clear(args));
    OK(hcq_args_buffer(args, foreign));
    OK(hcq_args_u32(args, 1));
    EXPECT(HCQ_ERROR_FOREIGN_DEVICE, hcq_queue_launch(queue, fill, &one, args));
    EXPECT(HCQ_ERROR_FOREIGN_DEVICE, hcq_queue_copy(queue, foreign, 0, buffer, 0, 4));
    EXPECT(HCQ_ERROR_MEMORY_OUT_OF_BOUNDS, hcq_queue_copy(queue, buffer, 0, buffer, 61, 4));
    EXPECT(HCQ_ERROR_MEMORY_OVERLAP, hcq_queue_copy(queue, buffer, 0, buffer, 2, 4));
    OK(hcq_args_free(args));
    EXPECT(HCQ_ERROR_HANDLE_FREED, hcq_queue_launch(queue, fill, &one, args));
    OK(hcq_queue_free(copies));
    OK(hcq_buffer_free(foreign));
    OK(hcq_buffer_free(buffer));
}

/* A launch that stands until a copy opens its gate. */
static void waits(hcq_device *device, hcq_device *another, hcq_queue *queue, hcq_kernel *spin)
{
    const uint32_t closed = 0, open = 1;
    hcq_buffer *gate, *key;
    hcq_args *args;
    hcq_queue *copies, *other;
    hcq_point *point, *opened;
    hcq_timestamp *time;
    uint64_t ns;
    int64_t between;
    bool done = true;
    OK(hcq_buffer_alloc(device, 4, &gate));
    OK(hcq_buffer_alloc(device, 4, &key));
    OK(hcq_buffer_write(gate, 0, &closed, 4));
    OK(hcq_buffer_write(key, 0, &open, 4));
    OK(hcq_queue_open_copy(device, &copies));
    OK(hcq_queue_open(another, &other));
    OK(hcq_args_new(&args));
    OK(hcq_args_buffer(args, gate));
    OK(hcq_queue_launch(queue, spin, &one, args));
    OK(hcq_queue_timestamp(queue, &time));
    OK(hcq_queue_submit(queue, &point));
    EXPECT(HCQ_ERROR_VALUE, hcq_point_wait(point, -1));
    EXPECT(HCQ_ERROR_VALUE, hcq_point_wait(point, INT64_MIN));
    EXPECT(HCQ_ERROR_QUEUE_TIMEOUT, hcq_point_wait(point, 0));
    EXPECT(HCQ_ERROR_QUEUE_TIMEOUT, hcq_point_wait(point, 1000 * 1000));
    OK(hcq_point_is_done(point, &done));
    if (done)
        bad++;
    EXPECT(HCQ_ERROR_QUEUE_TIMEOUT, hcq_buffer_wait(gate, 0));
    EXPECT(HCQ_ERROR_VALUE, hcq_buffer_wait(gate, -1));
    EXPECT(HCQ_ERROR_HANDLE_NULL, hcq_buffer_wait(NULL, 0));
    EXPECT(HCQ_ERROR_VALUE, hcq_queue_set_patience(queue, -1));
    OK(hcq_queue_set_patience(queue, SECONDS));
    EXPECT(HCQ_ERROR_NOT_TAKEN, hcq_timestamp_ns(time, &ns));
    EXPECT(HCQ_ERROR_NOT_TAKEN, hcq_timestamp_elapsed(time, time, &between));
    EXPECT(HCQ_ERROR_FOREIGN_DEVICE, hcq_queue_wait_for(other, point));
    OK(hcq_queue_copy(copies, key, 0, gate, 0, 4));
    OK(hcq_queue_submit(copies, &opened));
    OK(hcq_point_wait(opened, 60 * SECONDS));
    OK(hcq_point_wait(point, INT64_MAX));
    OK(hcq_timestamp_ns(time, &ns));
    OK(hcq_timestamp_elapsed(time, time, &between));
    if (between != 0)
        bad++;
    OK(hcq_timestamp_free(time));
    OK(hcq_point_free(opened));
    OK(hcq_point_free(point));
    OK(hcq_args_free(args));
    OK(hcq_queue_free(other));
    OK(hcq_queue_free(copies));
    OK(hcq_buffer_free(key));
    OK(hcq_buffer_free(gate));
}

static void graphs(hcq_device *device, hcq_device *another, hcq_queue *queue, hcq_kernel *fill)
{
    hcq_buffer *buffer, *target;
    hcq_args *args;
    hcq_graph_builder *builder, *second;
    hcq_graph *graph, *made;
    hcq_node node, copied, foreign;
    hcq_queue *other;
    hcq_point *done;
    uint32_t word = 0;
    OK(hcq_buffer_alloc(device, 64, &buffer));
    OK(hcq_buffer_alloc(device, 64, &target));
    OK(hcq_queue_open(another, &other));
    OK(hcq_args_new(&args));
    OK(hcq_args_buffer(args, buffer));
    OK(hcq_args_u32(args, 5));
    OK(hcq_graph_begin(device, &builder));
    OK(hcq_graph_begin(device, &second));
    OK(hcq_graph_launch(second, fill, &one, args, &foreign));
    OK(hcq_graph_launch(builder, fill, &one, args, &node));
    EXPECT(HCQ_ERROR_LAUNCH_ARGUMENT_COUNT, hcq_graph_launch(builder, fill, &one, NULL, NULL));
    EXPECT(HCQ_ERROR_LAUNCH_FOREIGN_NODE,
           hcq_graph_launch_after(builder, fill, &one, args, &foreign, 1, NULL));
    EXPECT(HCQ_ERROR_LAUNCH_FOREIGN_NODE, hcq_graph_launch_early(builder, fill, &one, args, foreign, NULL));
    EXPECT(HCQ_ERROR_POINTER, hcq_graph_launch_after(builder, fill, &one, args, NULL, 1, NULL));
    OK(hcq_graph_barrier(builder));
    OK(hcq_graph_copy(builder, buffer, 0, target, 0, 4, &copied));
    OK(hcq_graph_build(builder, &graph));
    EXPECT(HCQ_ERROR_HANDLE_FREED, hcq_graph_build(builder, &made));
    EXPECT(HCQ_ERROR_HANDLE_FREED, hcq_graph_barrier(builder));
    EXPECT(HCQ_ERROR_POINTER, hcq_graph_build(second, NULL));
    EXPECT(HCQ_ERROR_HANDLE_FREED, hcq_graph_builder_free(second));
    EXPECT(HCQ_ERROR_LAUNCH_FOREIGN_NODE, hcq_graph_patch_args(graph, foreign, 0, args));
    EXPECT(HCQ_ERROR_LAUNCH_NOT_A_LAUNCH, hcq_graph_patch_args(graph, copied, 0, args));
    EXPECT(HCQ_ERROR_LAUNCH_NO_ARGUMENT, hcq_graph_patch_args(graph, node, 1, args));
    OK(hcq_args_clear(args));
    OK(hcq_args_u32(args, 9));
    EXPECT(HCQ_ERROR_LAUNCH_ARGUMENT_WIDTH, hcq_graph_patch_args(graph, node, 0, args));
    EXPECT(HCQ_ERROR_LAUNCH_NO_ARGUMENT, hcq_graph_patch_args(graph, node, SIZE_MAX, args));
    OK(hcq_graph_patch_args(graph, node, 1, args));
    EXPECT(HCQ_ERROR_FOREIGN_DEVICE, hcq_queue_replay(other, graph, NULL));
    OK(hcq_queue_replay(queue, graph, &done));
    OK(hcq_point_wait(done, 60 * SECONDS));
    OK(hcq_point_free(done));
    OK(hcq_buffer_read(target, 0, &word, 4));
    if (word != 9)
        bad++;
    OK(hcq_graph_free(graph));
    OK(hcq_args_free(args));
    OK(hcq_queue_free(other));
    OK(hcq_buffer_free(target));
    OK(hcq_buffer_free(buffer));
}

/* A child may not use the parent's device. */
static void fork_of_it(hcq_device *device)
{
    hcq_buffer *host;
    OK(hcq_buffer_alloc_host(device, 64, &host));
    pid_t child = fork();
    if (child == 0) {
        hcq_buffer *made;
        void *pointer;
        bool refused = hcq_buffer_alloc(device, 64, &made) == HCQ_ERROR_FORKED && !made;
        refused = refused && hcq_buffer_host_pointer(host, &pointer) == HCQ_ERROR_FORKED;
        /* Another program in its place: valgrind would look for what the child has lost with the threads. */
        execl(refused ? "/bin/true" : "/bin/false", "fork", (char *)NULL);
        _exit(1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the fork was not refused\n");
        bad++;
    }
    OK(hcq_buffer_free(host));
}

/* An address that is not mapped: the wait has the fault, later calls are refused, another device works. */
static void fault(hcq_device *device, hcq_queue *queue, hcq_kernel *fill)
{
    hcq_args *args;
    hcq_point *point;
    hcq_buffer *made, *host;
    hcq_fault report;
    void *pointer;
    OK(hcq_buffer_alloc_host(device, 64, &host));
    EXPECT(HCQ_ERROR_NO_FAULT, hcq_last_fault(&report, sizeof report));
    OK(hcq_args_new(&args));
    OK(hcq_args_u64(args, UINT64_C(0xdead0000)));
    OK(hcq_args_u32(args, 1));
    OK(hcq_queue_launch(queue, fill, &one, args));
    OK(hcq_queue_submit(queue, &point));
    EXPECT(HCQ_ERROR_FAULT, hcq_point_wait(point, 60 * SECONDS));
    EXPECT(HCQ_ERROR_POINTER, hcq_last_fault(NULL, sizeof report));
    EXPECT(HCQ_ERROR_LOST, hcq_buffer_alloc(device, 64, &made));
    OK(hcq_last_fault(&report, sizeof report));
    if (report.kind != HCQ_FAULT_MMU || report.address < UINT64_C(0xdead0000) || !report.kernel ||
        strcmp(report.kernel, "fill") != 0 || !strstr(hcq_last_error(), report.report))
        bad++;
    /* Memory of the CPU is there all the same. */
    OK(hcq_buffer_host_pointer(host, &pointer));
    OK(hcq_buffer_free(host));
    OK(hcq_args_free(args));
    OK(hcq_point_free(point));
}

int main(void)
{
    static const char *const files[] = {ENDINGS};
    hcq_device *device, *another;
    hcq_program *program;
    hcq_kernel *fill, *spin;
    hcq_queue *queue;
    if (hcq_last_error()[0])
        bad++;
    opening();
    OK(hcq_device_open("sim", NULL, &device));
    OK(hcq_device_open("sim", NULL, &another));
    OK(hcq_program_load_files(device, files, 1, &program));
    OK(hcq_program_kernel(program, "fill", &fill));
    OK(hcq_program_kernel(program, "spin", &spin));
    OK(hcq_queue_open(device, &queue));
    handles(device, queue);
    memory(device);
    programs(device, program);
    launches(device, another, queue, fill);
    waits(device, another, queue, spin);
    graphs(device, another, queue, fill);
    fork_of_it(device);
    fault(device, queue, fill);
    OK(hcq_queue_free(queue));
    OK(hcq_kernel_free(spin));
    OK(hcq_kernel_free(fill));
    OK(hcq_program_free(program));
    OK(hcq_device_free(another));
    OK(hcq_device_free(device));
    EXPECT(HCQ_ERROR_HANDLE_FREED, hcq_device_free(device));
    if (bad)
        return 1;
    printf("every misuse was refused by its name\n");
    return 0;
}
