/* The latency of a control loop, as `hcq-bench loop` measures it: at each tick a kernel adds 64 floats, and the
 * program waits for it and reads the sums.
 *
 *   cc -O2 08_latency.c $(pkg-config --cflags --libs hcq) -o latency
 *   ./latency 1000 10          ticks per second, seconds
 *   ./latency 1000 10 poll     polls the clock until the next tick instead of sleeping
 */
#define _POSIX_C_SOURCE 200809L
#include "example.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define VALUES 64

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * SECONDS + time.tv_nsec;
}

static void wait_until(int64_t due, int poll)
{
    if (poll) {
        while (now() < due)
            ;
        return;
    }
    struct timespec time = {.tv_sec = due / SECONDS, .tv_nsec = due % SECONDS};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
}

static int by_value(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void row(const char *name, int64_t *times, int64_t count)
{
    static const struct {
        const char *name;
        int64_t part;
    } columns[] = {{"min", 0}, {"p50", 5000}, {"p99", 9900}, {"p99.99", 9999}, {"max", 10000}};
    qsort(times, (size_t)count, sizeof *times, by_value);
    printf("  %-22s", name);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        int64_t at = count * columns[i].part / 10000;
        printf(" %s %9.2f ", columns[i].name, (double)times[at < count ? at : count - 1] / 1e3);
    }
    printf(" us\n");
}

int main(int words, char **word)
{
    int64_t hz = words > 2 ? atoll(word[1]) : 0, seconds = words > 2 ? atoll(word[2]) : 0;
    int poll = words == 4 && strcmp(word[3], "poll") == 0;
    if (hz < 1 || hz > 100000 || seconds < 1 || seconds > 86400 || words != 3 + poll) {
        fprintf(stderr, "usage: %s HZ SECONDS [poll]: 1 to 100000 ticks per second for 1 to 86400 s\n", word[0]);
        return 2;
    }
    const int64_t period = SECONDS / hz, count = seconds * SECONDS / period;
    int64_t *wake_up = calloc((size_t)count, sizeof *wake_up), *work = calloc((size_t)count, sizeof *work);
    int64_t *response = calloc((size_t)count, sizeof *response);
    int status = EXIT_FAILURE;
    hcq_device *device = NULL;
    hcq_program *program = NULL;
    hcq_kernel *kernel = NULL;
    hcq_buffer *buffers[3] = {NULL, NULL, NULL};
    float *values[3];
    hcq_args *args = NULL;
    hcq_queue *queue = NULL;
    if (wake_up == NULL || work == NULL || response == NULL) {
        fprintf(stderr, "no memory for %lld ticks\n", (long long)count);
        goto end;
    }

    /* All that a tick needs is made before the first one. Input and result are the CPU's memory. */
    TRY(hcq_device_open(NULL, NULL, &device));
    TRY(hcq_program_load_files(device, EXAMPLES, EXAMPLES_COUNT, &program));
    TRY(hcq_program_kernel(program, "vecadd", &kernel));
    TRY(hcq_args_new(&args));
    for (int i = 0; i < 3; i++) {
        TRY(hcq_buffer_alloc_host(device, sizeof(float) * VALUES, &buffers[i]));
        void *pointer = NULL;
        TRY(hcq_buffer_host_pointer(buffers[i], &pointer));
        values[i] = pointer;
        for (int j = 0; j < VALUES; j++)
            values[i][j] = (float)j;
        hcq_args_buffer(args, buffers[i]);
    }
    hcq_args_u32(args, VALUES);
    TRY(hcq_queue_open(device, &queue));
    const hcq_launch_config shape = {{1, 1, 1}, {VALUES, 1, 1}, 0, 0};

    int64_t start = 0, ticks = 0, missed = 0, tick = -100;
    while (tick < count) {
        if (tick == 0)
            start = now() + period;
        /* The first hundred, of negative numbers, make what is made once. */
        const int64_t due = start + tick * period;
        if (tick >= 0)
            wait_until(due, poll);
        const int64_t began = now();
        hcq_point *done = NULL;
        values[0][0] = (float)tick;
        TRY(hcq_queue_launch(queue, kernel, &shape, args));
        TRY(hcq_queue_submit(queue, &done));
        hcq_status waited = hcq_point_wait(done, 10 * SECONDS);
        hcq_point_free(done);
        TRY(waited);
        float sums[VALUES];
        memcpy(sums, values[2], sizeof sums);
        const int64_t ended = now();
        if (sums[0] != (float)tick || sums[VALUES - 1] != 2 * (VALUES - 1)) {
            fprintf(stderr, "the sums of tick %lld are wrong\n", (long long)tick);
            goto end;
        }
        if (tick++ < 0)
            continue;
        wake_up[ticks] = began - due;
        work[ticks] = ended - began;
        response[ticks++] = ended - due;
        /* A tick whose time has passed is missed. */
        int64_t next = (ended - start) / period + 1;
        next = next < count ? next : count;
        if (next > tick) {
            missed += next - tick;
            tick = next;
        }
    }
    printf("%lld Hz%s: %lld ticks, %lld missed\n", (long long)hz, poll ? ", polled" : "", (long long)ticks,
           (long long)missed);
    row("wake-up", wake_up, ticks);
    row("launch + wait + read", work, ticks);
    row("response", response, ticks);
    status = EXIT_SUCCESS;
end:
    hcq_queue_free(queue);
    hcq_args_free(args);
    for (int i = 0; i < 3; i++)
        hcq_buffer_free(buffers[i]);
    hcq_kernel_free(kernel);
    hcq_program_free(program);
    hcq_device_free(device);
    free(response);
    free(work);
    free(wake_up);
    return status;
}
