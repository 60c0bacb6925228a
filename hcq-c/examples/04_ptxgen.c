/* Launches a kernel that was written in Rust with `ptxgen`, and compiled for five SMs.
 *
 * The cubins are in the program's memory, as those of a program that embeds them. */
#include "example.h"

#define COUNT 1000

static const char *const FILES[] = {
    KERNELS "/ptxgen/scale.sm_80.cubin", KERNELS "/ptxgen/scale.sm_86.cubin",
    KERNELS "/ptxgen/scale.sm_87.cubin", KERNELS "/ptxgen/scale.sm_89.cubin",
    KERNELS "/ptxgen/scale.sm_90.cubin",
};

#define FILES_COUNT (sizeof FILES / sizeof FILES[0])

/* The bytes of a file, which the caller frees; an image without data where it cannot be read. */
static hcq_image contents(const char *path)
{
    hcq_image image = {NULL, 0};
    enum { MOST = 1 << 20 };
    FILE *file = fopen(path, "rb");
    if (!file)
        return image;
    void *data = malloc(MOST);
    size_t len = data ? fread(data, 1, MOST, file) : 0;
    fclose(file);
    image.data = data;
    image.len = len;
    return image;
}

int main(void)
{
    static float floats[COUNT];
    int status = EXIT_FAILURE;
    hcq_image images[FILES_COUNT];
    hcq_device *device = NULL;
    hcq_program *program = NULL;
    hcq_kernel *kernel = NULL;
    hcq_buffer *x = NULL;
    hcq_args *args = NULL;
    hcq_queue *queue = NULL;
    hcq_point *done = NULL;

    for (size_t i = 0; i < FILES_COUNT; i++)
        images[i] = contents(FILES[i]);
    TRY(hcq_device_open(NULL, NULL, &device));
    TRY(hcq_program_load(device, images, FILES_COUNT, &program));
    TRY(hcq_program_kernel(program, "scale", &kernel));

    TRY(hcq_buffer_alloc(device, sizeof floats, &x));
    for (int i = 0; i < COUNT; i++)
        floats[i] = (float)i;
    TRY(hcq_buffer_write(x, 0, floats, sizeof floats));
    /* scale(x, count, factor) */
    TRY(hcq_args_new(&args));
    hcq_args_buffer(args, x);
    hcq_args_u32(args, COUNT);
    hcq_args_f32(args, 0.5F);
    hcq_launch_config shape = {{(COUNT + 127) / 128, 1, 1}, {128, 1, 1}, 0, 0};
    TRY(hcq_queue_open(device, &queue));
    TRY(hcq_queue_launch(queue, kernel, &shape, args));
    TRY(hcq_queue_submit(queue, &done));
    TRY(hcq_point_wait(done, 10 * SECONDS));

    TRY(hcq_buffer_read(x, 0, floats, sizeof floats));
    for (int i = 0; i < COUNT; i++) {
        if (floats[i] != 0.5F * (float)i) {
            fprintf(stderr, "a float is not half of what it was\n");
            goto end;
        }
    }
    printf("%d floats halved\n", COUNT);
    status = EXIT_SUCCESS;
end:
    hcq_point_free(done);
    hcq_queue_free(queue);
    hcq_args_free(args);
    hcq_buffer_free(x);
    hcq_kernel_free(kernel);
    hcq_program_free(program);
    hcq_device_free(device);
    for (size_t i = 0; i < FILES_COUNT; i++)
        free((void *)images[i].data);
    return status;
}
