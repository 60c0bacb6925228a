/* Makes a kernel run past the end of its buffers, and prints what the library says about it.
 *
 * The wait returns HCQ_ERROR_FAULT, whose report tells what went wrong, at which address, beside which buffer, in
 * which kernel and at which instruction. */
#include "example.h"
#include <string.h>

/* Floats in a buffer: 4 MiB, whole pages of every GPU, so that the first byte past the end is not mapped. */
#define COUNT (1 << 20)

int main(void)
{
    int status = EXIT_FAILURE;
    hcq_device *device = NULL;
    hcq_program *program = NULL;
    hcq_kernel *vecadd = NULL;
    hcq_buffer *buffers[3] = {NULL, NULL, NULL};
    hcq_args *args = NULL;
    hcq_queue *queue = NULL;
    hcq_point *done = NULL;

    TRY(hcq_device_open(NULL, NULL, &device));
    TRY(hcq_program_load_files(device, EXAMPLES, EXAMPLES_COUNT, &program));
    TRY(hcq_program_kernel(program, "vecadd", &vecadd));
    /* Two blocks of 256 threads around the end: the arguments start 256 elements before it. */
    const uint64_t bytes = sizeof(float) * COUNT;
    TRY(hcq_args_new(&args));
    for (int i = 0; i < 3; i++) {
        TRY(hcq_buffer_alloc(device, bytes, &buffers[i]));
        TRY(hcq_args_buffer_at(args, buffers[i], bytes - sizeof(float) * 256));
    }
    TRY(hcq_args_u32(args, 512));
    hcq_launch_config shape = {{2, 1, 1}, {256, 1, 1}, 0, 0};
    TRY(hcq_queue_open(device, &queue));
    /* Wrong on purpose. Nothing but this process's own device is harmed by it. */
    TRY(hcq_queue_launch(queue, vecadd, &shape, args));
    TRY(hcq_queue_submit(queue, &done));
    hcq_status waited = hcq_point_wait(done, 10 * SECONDS);
    if (waited == HCQ_OK) {
        fprintf(stderr, "the kernel ran past its buffers unnoticed\n");
        goto end;
    }
    if (waited != HCQ_ERROR_FAULT) {
        fprintf(stderr, "%s: %s\n", hcq_status_name(waited), hcq_last_error());
        goto end;
    }
    hcq_fault fault;
    TRY(hcq_last_fault(&fault, sizeof fault));
    printf("%s\n", fault.report);
    /* The device is lost with the channel; the process goes on, and may open another. */
    if (fault.kernel && strcmp(fault.kernel, "vecadd") == 0 && fault.kind == HCQ_FAULT_MMU)
        status = EXIT_SUCCESS;
end:
    hcq_point_free(done);
    hcq_queue_free(queue);
    hcq_args_free(args);
    for (int i = 0; i < 3; i++)
        hcq_buffer_free(buffers[i]);
    hcq_kernel_free(vecadd);
    hcq_program_free(program);
    hcq_device_free(device);
    return status;
}
