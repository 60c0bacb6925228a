/* Runs many dependent steps in one launch: a kernel that stays on the GPU, whose blocks wait for each other.
 *
 * Between the steps of a launch like this one nothing goes through the host or the GPU's scheduler. The price: all
 * blocks have to run at the same time, or those that run wait for ever for those that do not. */
#include "example.h"
#include <string.h>

/* Cells of the automaton "rule 90", a power of two, and its generations. */
#define CELLS (1 << 12)
#define STEPS 100
#define THREADS 128

/* One generation on the CPU: each cell becomes the exclusive or of its neighbours, in a ring. */
static void step(const uint32_t *cells, uint32_t *next)
{
    for (int i = 0; i < CELLS; i++)
        next[i] = cells[(i + CELLS - 1) % CELLS] ^ cells[(i + 1) % CELLS];
}

int main(void)
{
    static uint32_t cells[CELLS], next[CELLS];
    const uint32_t zero = 0;
    int status = EXIT_FAILURE;
    hcq_device *device = NULL;
    hcq_program *program = NULL;
    hcq_kernel *kernel = NULL;
    hcq_buffer *even = NULL, *odd = NULL, *arrived = NULL;
    hcq_args *args = NULL;
    hcq_queue *queue = NULL;
    hcq_timestamp *begin = NULL, *end_of_it = NULL;
    hcq_point *done = NULL;

    TRY(hcq_device_open(NULL, NULL, &device));
    TRY(hcq_program_load_files(device, EXAMPLES, EXAMPLES_COUNT, &program));
    TRY(hcq_program_kernel(program, "rule90", &kernel));

    /* As many blocks as there is work for, but never more than the GPU holds at once. */
    hcq_info info;
    hcq_occupancy occupancy;
    TRY(hcq_device_get_info(device, &info, sizeof info));
    TRY(hcq_kernel_occupancy(kernel, THREADS, 0, &occupancy));
    uint32_t blocks = occupancy.blocks_per_sm * info.sm_count;
    if (blocks > CELLS / THREADS)
        blocks = CELLS / THREADS;
    hcq_launch_config shape = {{blocks, 1, 1}, {THREADS, 1, 1}, 0, occupancy.blocks_per_sm};
    printf("%u blocks on %u SMs\n", blocks, info.sm_count);

    cells[CELLS / 2] = 1;
    TRY(hcq_buffer_alloc(device, sizeof cells, &even));
    TRY(hcq_buffer_alloc(device, sizeof cells, &odd));
    TRY(hcq_buffer_write(even, 0, cells, sizeof cells));
    /* The counter that blocks meet at. */
    TRY(hcq_buffer_alloc(device, sizeof zero, &arrived));
    TRY(hcq_buffer_write(arrived, 0, &zero, sizeof zero));

    TRY(hcq_args_new(&args));
    hcq_args_buffer(args, even);
    hcq_args_buffer(args, odd);
    hcq_args_buffer(args, arrived);
    hcq_args_u32(args, CELLS);
    hcq_args_u32(args, STEPS);
    TRY(hcq_queue_open(device, &queue));
    TRY(hcq_queue_timestamp(queue, &begin));
    TRY(hcq_queue_launch(queue, kernel, &shape, args));
    TRY(hcq_queue_timestamp(queue, &end_of_it));
    TRY(hcq_queue_submit(queue, &done));
    TRY(hcq_point_wait(done, 10 * SECONDS));
    int64_t ns;
    TRY(hcq_timestamp_elapsed(begin, end_of_it, &ns));
    fprintf(stderr, "%lld ns on the GPU\n", (long long)ns);

    for (int i = 0; i < STEPS; i++) {
        step(cells, next);
        memcpy(cells, next, sizeof cells);
    }
    /* An even number of steps. */
    TRY(hcq_buffer_read(even, 0, next, sizeof next));
    if (memcmp(cells, next, sizeof cells) != 0) {
        fprintf(stderr, "the cells differ from the CPU's\n");
        goto end;
    }
    printf("%d generations of %d cells in one launch\n", STEPS, CELLS);
    status = EXIT_SUCCESS;
end:
    hcq_point_free(done);
    hcq_timestamp_free(end_of_it);
    hcq_timestamp_free(begin);
    hcq_queue_free(queue);
    hcq_args_free(args);
    hcq_buffer_free(arrived);
    hcq_buffer_free(odd);
    hcq_buffer_free(even);
    hcq_kernel_free(kernel);
    hcq_program_free(program);
    hcq_device_free(device);
    return status;
}
