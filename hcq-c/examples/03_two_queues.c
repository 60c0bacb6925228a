/* Overlaps copies with launches: a copy queue moves data while a compute queue works on other data. Submissions of
 * one queue follow each other; between queues nothing is ordered but by hcq_queue_wait_for.
 *
 * Input and output are the CPU's memory, which the program fills and reads through pointers. */
#include "example.h"

/* Parts that the data goes through the GPU in, and floats of each. */
#define PARTS 8
#define COUNT (1 << 14)
#define BYTES (sizeof(float) * COUNT)

int main(void)
{
    int status = EXIT_FAILURE;
    hcq_device *device = NULL;
    hcq_program *program = NULL;
    hcq_kernel *vecadd = NULL;
    hcq_buffer *input = NULL, *output = NULL, *parts[2] = {NULL, NULL};
    hcq_args *args = NULL;
    hcq_queue *copies = NULL, *launches = NULL;
    hcq_point *doubled[PARTS] = {NULL}, *copied = NULL;
    void *in, *out;

    TRY(hcq_device_open(NULL, NULL, &device));
    TRY(hcq_program_load_files(device, EXAMPLES, EXAMPLES_COUNT, &program));
    TRY(hcq_program_kernel(program, "vecadd", &vecadd));

    /* Memory of the CPU, which the copy engine reads and writes, and two parts' worth of the GPU's own. */
    TRY(hcq_buffer_alloc_host(device, BYTES * PARTS, &input));
    TRY(hcq_buffer_alloc_host(device, BYTES * PARTS, &output));
    TRY(hcq_buffer_host_pointer(input, &in));
    TRY(hcq_buffer_host_pointer(output, &out));
    TRY(hcq_buffer_alloc(device, BYTES, &parts[0]));
    TRY(hcq_buffer_alloc(device, BYTES, &parts[1]));
    for (int i = 0; i < PARTS * COUNT; i++)
        ((float *)in)[i] = (float)i;

    TRY(hcq_queue_open_copy(device, &copies));
    TRY(hcq_queue_open(device, &launches));
    TRY(hcq_args_new(&args));
    hcq_launch_config shape = {{(COUNT + 255) / 256, 1, 1}, {256, 1, 1}, 0, 0};
    for (int part = 0; part < PARTS; part++) {
        hcq_buffer *memory = parts[part % 2];
        /* In: after the part that was here before has gone out, which the same queue did earlier. */
        TRY(hcq_queue_copy(copies, input, BYTES * (uint64_t)part, memory, 0, BYTES));
        TRY(hcq_queue_submit(copies, &copied));
        TRY(hcq_queue_wait_for(launches, copied));
        TRY(hcq_point_free(copied));
        copied = NULL;
        /* Doubles floats in place: each thread reads only what it writes. */
        hcq_args_clear(args);
        hcq_args_buffer(args, memory);
        hcq_args_buffer(args, memory);
        hcq_args_buffer(args, memory);
        hcq_args_u32(args, COUNT);
        TRY(hcq_queue_launch(launches, vecadd, &shape, args));
        TRY(hcq_queue_submit(launches, &doubled[part]));
        /* Out: one part late, so that the copy engine brings the next part in while this one is worked on. */
        for (int last = part > 0 ? part - 1 : 0; last < (part + 1 == PARTS ? PARTS : part); last++) {
            TRY(hcq_queue_wait_for(copies, doubled[last]));
            TRY(hcq_queue_copy(copies, parts[last % 2], 0, output, BYTES * (uint64_t)last, BYTES));
        }
    }
    TRY(hcq_queue_submit(copies, &copied));
    TRY(hcq_point_wait(copied, 10 * SECONDS));

    for (int i = 0; i < PARTS * COUNT; i++) {
        if (((float *)out)[i] != 2 * (float)i) {
            fprintf(stderr, "a float is not twice what it was\n");
            goto end;
        }
    }
    printf("%d floats doubled in %d parts\n", PARTS * COUNT, PARTS);
    status = EXIT_SUCCESS;
end:
    for (int part = 0; part < PARTS; part++)
        hcq_point_free(doubled[part]);
    hcq_point_free(copied);
    hcq_queue_free(launches);
    hcq_queue_free(copies);
    hcq_args_free(args);
    hcq_buffer_free(parts[1]);
    hcq_buffer_free(parts[0]);
    hcq_buffer_free(output);
    hcq_buffer_free(input);
    hcq_kernel_free(vecadd);
    hcq_program_free(program);
    hcq_device_free(device);
    return status;
}
