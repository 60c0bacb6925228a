/* Records launches once as a graph, and replays them with one doorbell each, with a patched argument.
 *
 * A graph is encoded into GPU memory when it is built. A replay costs the CPU about as much as one launch,
 * however many launches the graph has. */
#include "example.h"

#define COUNT 256
/* Number of `factor` among the arguments of axpy(y, x, factor, n). */
#define FACTOR 2

static void axpy_args(hcq_args *args, hcq_buffer *y, hcq_buffer *x, float factor)
{
    hcq_args_clear(args);
    hcq_args_buffer(args, y);
    hcq_args_buffer(args, x);
    hcq_args_f32(args, factor);
    hcq_args_u32(args, COUNT);
}

int main(void)
{
    static float values[COUNT];
    int status = EXIT_FAILURE;
    hcq_device *device = NULL;
    hcq_program *program = NULL;
    hcq_kernel *axpy = NULL;
    hcq_buffer *x = NULL, *y = NULL;
    hcq_args *args = NULL;
    hcq_graph_builder *builder = NULL;
    hcq_graph *graph = NULL;
    hcq_queue *queue = NULL;
    hcq_point *done = NULL;

    TRY(hcq_device_open(NULL, NULL, &device));
    TRY(hcq_program_load_files(device, EXAMPLES, EXAMPLES_COUNT, &program));
    TRY(hcq_program_kernel(program, "axpy", &axpy));
    TRY(hcq_buffer_alloc(device, sizeof values, &x));
    TRY(hcq_buffer_alloc(device, sizeof values, &y));
    TRY(hcq_buffer_write(y, 0, values, sizeof values));
    for (int i = 0; i < COUNT; i++)
        values[i] = 1;
    TRY(hcq_buffer_write(x, 0, values, sizeof values));

    /* y += 1 * x, then y += 10 * x. The barrier lets the second launch see what the first one wrote. */
    hcq_launch_config shape = {{(COUNT + 127) / 128, 1, 1}, {128, 1, 1}, 0, 0};
    hcq_node first;
    TRY(hcq_args_new(&args));
    TRY(hcq_graph_begin(device, &builder));
    axpy_args(args, y, x, 1);
    TRY(hcq_graph_launch(builder, axpy, &shape, args, &first));
    TRY(hcq_graph_barrier(builder));
    axpy_args(args, y, x, 10);
    TRY(hcq_graph_launch(builder, axpy, &shape, args, NULL));
    hcq_status built = hcq_graph_build(builder, &graph);
    builder = NULL; /* The build has freed it. */
    TRY(built);

    /* Ten replays add 11 each. Replays of one graph follow each other: no wait is needed between them. */
    TRY(hcq_queue_open(device, &queue));
    for (int i = 0; i < 10; i++)
        TRY(hcq_queue_replay(queue, graph, NULL));
    /* From here on the first launch adds 2 * x. Replays that are still running keep the old factor. */
    TRY(hcq_args_clear(args));
    hcq_args_f32(args, 2);
    TRY(hcq_graph_patch_args(graph, first, FACTOR, args));
    TRY(hcq_queue_replay(queue, graph, &done));
    TRY(hcq_point_wait(done, 10 * SECONDS));

    const float expected = 10 * 11 + 12;
    size_t launches;
    TRY(hcq_graph_launches(graph, &launches));
    TRY(hcq_buffer_read(y, 0, values, sizeof values));
    for (int i = 0; i < COUNT; i++) {
        if (values[i] != expected) {
            fprintf(stderr, "an element is %f, not %f\n", (double)values[i], (double)expected);
            goto end;
        }
    }
    printf("11 replays of %zu launches: every element is %g\n", launches, (double)expected);
    status = EXIT_SUCCESS;
end:
    hcq_point_free(done);
    hcq_queue_free(queue);
    hcq_graph_free(graph);
    hcq_graph_builder_free(builder);
    hcq_args_free(args);
    hcq_buffer_free(y);
    hcq_buffer_free(x);
    hcq_kernel_free(axpy);
    hcq_program_free(program);
    hcq_device_free(device);
    return status;
}
