/* Threads that share a device, a program, a kernel, a graph and a buffer, each with a queue of its own; handles that
 * one thread frees while others call with them; and forks meanwhile. */
#define _POSIX_C_SOURCE 200809L
#include <hcq.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 10
#define FORKS 10
#define COUNT 256
#define SECONDS ((int64_t)1000 * 1000 * 1000)

static hcq_device *device;
static hcq_kernel *vecadd;
static hcq_graph *graph;
static hcq_buffer *ones, *copied;
static hcq_buffer *_Atomic shared;
static hcq_queue *one_queue;

static int mistakes(int count, const char *what)
{
    if (count)
        fprintf(stderr, "%s: %s\n", what, hcq_last_error());
    return count;
}

#define OK(call) bad += mistakes((call) != HCQ_OK, #call)

/* Sums of its own, replays of the graph, and calls that other threads disturb. */
static void *work(void *bad_of_thread)
{
    int bad = 0;
    float values[COUNT];
    hcq_queue *queue;
    hcq_buffer *sums;
    hcq_args *args;
    hcq_launch_config shape = {{1, 1, 1}, {COUNT, 1, 1}, 0, 0};
    OK(hcq_queue_open(device, &queue));
    OK(hcq_buffer_alloc(device, sizeof values, &sums));
    OK(hcq_args_new(&args));
    OK(hcq_args_buffer(args, ones));
    OK(hcq_args_buffer(args, ones));
    OK(hcq_args_buffer(args, sums));
    OK(hcq_args_u32(args, COUNT));
    for (int round = 0; round < ROUNDS; round++) {
        hcq_point *done;
        OK(hcq_queue_launch(queue, vecadd, &shape, args));
        OK(hcq_queue_replay(queue, graph, &done));
        OK(hcq_point_wait(done, 60 * SECONDS));
        OK(hcq_point_free(done));
        OK(hcq_buffer_read(sums, 0, values, sizeof values));
        for (int i = 0; i < COUNT; i++)
            bad += values[i] != 2;
        /* One of the threads frees it: the others see that, or had it in time. */
        hcq_status read = hcq_buffer_read(shared, 0, values, sizeof values);
        bad += mistakes(read != HCQ_OK && read != HCQ_ERROR_HANDLE_FREED, "read");
        /* A queue that all use at once: one at a time gets it. */
        hcq_status busy = hcq_queue_copy(one_queue, ones, 0, copied, 0, sizeof values);
        bad += mistakes(busy != HCQ_OK && busy != HCQ_ERROR_BUSY, "copy");
        busy = hcq_queue_submit(one_queue, NULL);
        bad += mistakes(busy != HCQ_OK && busy != HCQ_ERROR_BUSY, "submit");
        if (round == ROUNDS / 2) {
            hcq_status freed = hcq_buffer_free(shared);
            bad += mistakes(freed != HCQ_OK && freed != HCQ_ERROR_HANDLE_FREED, "free");
        }
        /* Its own last error is not that of the others. */
        bad += hcq_buffer_free((hcq_buffer *)args) != HCQ_ERROR_HANDLE_KIND;
        bad += strcmp(hcq_last_error(), "the handle stands for a list of arguments, a buffer is wanted") != 0;
    }
    OK(hcq_args_free(args));
    OK(hcq_buffer_free(sums));
    OK(hcq_queue_free(queue));
    *(int *)bad_of_thread = bad;
    return NULL;
}

static _Atomic bool ended;

/* Makes and frees handles all the time, so that forks meet the lock of their registry. */
static void *churn(void *bad_of_thread)
{
    int bad = 0;
    while (!ended) {
        hcq_args *args;
        OK(hcq_args_new(&args));
        OK(hcq_args_free(args));
    }
    *(int *)bad_of_thread = bad;
    return NULL;
}

/* A child finds no lock that a thread of the parent holds: its calls end, and are refused where they reach the GPU. */
static int fork_of_it(void)
{
    pid_t child = fork();
    if (child == 0) {
        uint64_t len = 0;
        float value;
        hcq_args *args;
        alarm(20);
        bool right = hcq_buffer_len(ones, &len) == HCQ_OK && len == sizeof(float) * COUNT;
        right = right && hcq_buffer_read(ones, 0, &value, sizeof value) == HCQ_ERROR_FORKED;
        right = right && hcq_args_new(&args) == HCQ_OK && hcq_args_free(args) == HCQ_OK;
        /* Another program in its place: valgrind would look for what the child has lost with the threads. */
        execl(right ? "/bin/true" : "/bin/false", "fork", (char *)NULL);
        _exit(1);
    }
    int status;
    return waitpid(child, &status, 0) != child || status != 0;
}

#ifndef __SANITIZE_ADDRESS__
/* Waits for work until it is cancelled. */
static void *wait_on(void *unused)
{
    (void)unused;
    hcq_queue *queue;
    if (hcq_queue_open(device, &queue) != HCQ_OK)
        return NULL;
    for (;;) {
        hcq_point *done;
        if (hcq_queue_replay(queue, graph, &done) == HCQ_OK) {
            hcq_point_wait(done, 60 * SECONDS);
            hcq_point_free(done);
        }
        pthread_testcancel();
    }
}

/* A thread that is cancelled ends after its call, and nothing of it is held for others. */
static int cancelled(void)
{
    int bad = 0;
    for (int i = 0; i < 8; i++) {
        pthread_t waiting;
        void *result;
        bad += pthread_create(&waiting, NULL, wait_on, NULL) != 0;
        const struct timespec some = {.tv_nsec = 7 * 1000 * 1000};
        nanosleep(&some, NULL);
        bad += pthread_cancel(waiting) != 0;
        bad += pthread_join(waiting, &result) != 0 || result != PTHREAD_CANCELED;
    }
    return bad;
}
#endif

int main(void)
{
    static const char *const files[] = {KERNELS "/examples.sm_87.cubin"};
    int bad = 0, of_threads[THREADS], of_churn = 0;
    float values[COUNT];
    pthread_t threads[THREADS], churning;
    hcq_program *program;
    hcq_graph_builder *builder;
    hcq_buffer *made;

    OK(hcq_device_open("sim", NULL, &device));
    OK(hcq_program_load_files(device, files, 1, &program));
    OK(hcq_program_kernel(program, "vecadd", &vecadd));
    for (int i = 0; i < COUNT; i++)
        values[i] = 1;
    OK(hcq_buffer_alloc(device, sizeof values, &ones));
    OK(hcq_buffer_write(ones, 0, values, sizeof values));
    OK(hcq_buffer_alloc(device, sizeof values, &copied));
    OK(hcq_buffer_alloc(device, sizeof values, &made));
    shared = made;
    OK(hcq_queue_open_copy(device, &one_queue));
    OK(hcq_graph_begin(device, &builder));
    OK(hcq_graph_copy(builder, ones, 0, copied, 0, sizeof values, NULL));
    OK(hcq_graph_build(builder, &graph));
    for (int i = 0; i < THREADS; i++)
        bad += pthread_create(&threads[i], NULL, work, &of_threads[i]) != 0;
    bad += pthread_create(&churning, NULL, churn, &of_churn) != 0;
    for (int i = 0; i < FORKS; i++)
        bad += fork_of_it();
    ended = true;
    bad += pthread_join(churning, NULL) != 0;
    bad += of_churn;
    for (int i = 0; i < THREADS; i++) {
        bad += pthread_join(threads[i], NULL) != 0;
        bad += of_threads[i];
    }
#ifndef __SANITIZE_ADDRESS__
    /* Its unwinding leaves the poison of the frames that it passes. */
    bad += cancelled();
#endif
    OK(hcq_queue_free(one_queue));
    OK(hcq_graph_free(graph));
    OK(hcq_buffer_free(copied));
    OK(hcq_buffer_free(ones));
    OK(hcq_kernel_free(vecadd));
    OK(hcq_program_free(program));
    OK(hcq_device_free(device));
    printf("%d threads, %d mistakes\n", THREADS, bad);
    return bad != 0;
}
