/* Adds two vectors: allocate, load a kernel, launch it, wait, read the result.
 *
 *   cc 01_vecadd.c $(pkg-config --cflags --libs hcq) -o vecadd
 *   HCQ_DEVICE=sim ./vecadd
 */
#include "example.h"

#define COUNT 1000

int main(void)
{
    static float values[COUNT], sums[COUNT];
    int status = EXIT_FAILURE;
    hcq_device *device = NULL;
    hcq_program *program = NULL;
    hcq_kernel *kernel = NULL;
    hcq_buffer *a = NULL, *b = NULL, *c = NULL;
    hcq_args *args = NULL;
    hcq_queue *queue = NULL;
    hcq_point *done = NULL;

    /* The device: HCQ_DEVICE=nvgpu (Jetson), rm (desktop GPU), sim (software), or the first that works. */
    TRY(hcq_device_open(NULL, NULL, &device));
    hcq_info info;
    TRY(hcq_device_get_info(device, &info, sizeof info));
    printf("%s (%s)\n", info.name, info.backend == HCQ_BACKEND_SIM ? "sim" : "GPU");

    TRY(hcq_program_load_files(device, EXAMPLES, EXAMPLES_COUNT, &program));
    TRY(hcq_program_kernel(program, "vecadd", &kernel));

    /* Three buffers of floats. The content of a new buffer is not specified. */
    TRY(hcq_buffer_alloc(device, sizeof values, &a));
    TRY(hcq_buffer_alloc(device, sizeof values, &b));
    TRY(hcq_buffer_alloc(device, sizeof values, &c));
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    TRY(hcq_buffer_write(a, 0, values, sizeof values));
    TRY(hcq_buffer_write(b, 0, values, sizeof values));

    /* One thread for each element, in blocks of 256. Arguments are passed in order, each with its own width. If
     * one cannot be added, the launch says so. */
    hcq_launch_config shape = {{(COUNT + 255) / 256, 1, 1}, {256, 1, 1}, 0, 0};
    TRY(hcq_args_new(&args));
    hcq_args_buffer(args, a);
    hcq_args_buffer(args, b);
    hcq_args_buffer(args, c);
    hcq_args_u32(args, COUNT);
    TRY(hcq_queue_open(device, &queue));
    TRY(hcq_queue_launch(queue, kernel, &shape, args));
    /* Nothing has run so far: submit hands the work over, and returns a point to wait for. */
    TRY(hcq_queue_submit(queue, &done));
    TRY(hcq_point_wait(done, 10 * SECONDS));

    TRY(hcq_buffer_read(c, 0, sums, sizeof sums));
    for (int i = 0; i < COUNT; i++) {
        if (sums[i] != 2 * values[i]) {
            fprintf(stderr, "%d + %d = %f\n", i, i, (double)sums[i]);
            goto end;
        }
    }
    printf("%d sums are right\n", COUNT);
    status = EXIT_SUCCESS;
end:
    hcq_point_free(done);
    hcq_queue_free(queue);
    hcq_args_free(args);
    hcq_buffer_free(c);
    hcq_buffer_free(b);
    hcq_buffer_free(a);
    hcq_kernel_free(kernel);
    hcq_program_free(program);
    hcq_device_free(device);
    return status;
}
