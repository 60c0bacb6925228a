/* A client of nvgpu in C, from the names of its public headers (uapi/linux/nvgpu*.h, nvmap.h) and of the class
 * headers (clc76f.h, clc7b5.h). It knows nothing of this project: it opens the device, reserves a window of
 * addresses, brings a channel up in user-mode submit, has the copy engine copy a buffer, waits for its semaphore,
 * has the GPU read an address that nothing maps, and reads the error notifier. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The ABI, whose headers define the request macros themselves. */
#undef _IO
#undef _IOR
#undef _IOW
#undef _IOWR
#include "nvgpu-sys.h"

enum {
    AMPERE_DMA_COPY_B = 0xc7b5,
    ENTRIES = 512,
    COPIED = 1 << 20,
};

static const uint64_t WINDOW = 0xfe00000000, WINDOW_SIZE = 1 << 30;
static int ctrl, nvmap, space;

static void check(int result, const char *call) {
    if (result < 0) {
        printf("%s: %s\n", call, strerror(errno));
        exit(1);
    }
}
#define CALL(fd, request, argument) check(ioctl(fd, request, argument), #request)

struct buffer { int fd; uint64_t address; size_t size; volatile uint32_t *cpu; };

static struct buffer allocate(size_t size, uint32_t cache, uint64_t fixed) {
    struct nvmap_create_handle create = { .size = size };
    CALL(nvmap, NVMAP_IOC_CREATE, &create);
    uint32_t handle = create.handle;
    struct nvmap_alloc_handle alloc = { handle, NVMAP_HEAP_IOVMM, 0x0900u << 16 | cache, 4096, -1 };
    CALL(nvmap, NVMAP_IOC_ALLOC, &alloc);
    struct nvmap_create_handle get = { .handle = handle };
    CALL(nvmap, NVMAP_IOC_GET_FD, &get);
    struct buffer made = { (int)get.size, 0, size, NULL };
    struct nvgpu_as_map_buffer_ex_args map = {
        .flags = fixed ? NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET : 0, .compr_kind = -1, .incompr_kind = 0,
        .dmabuf_fd = (uint32_t)made.fd, .page_size = 4096, .offset = fixed,
    };
    CALL(space, NVGPU_AS_IOCTL_MAP_BUFFER_EX, &map);
    made.address = map.offset;
    /* The same address for the CPU where it is free, as unified addressing would have it. */
    void *at = mmap((void *)made.address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, made.fd, 0);
    if (at == MAP_FAILED) at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0);
    check(at == MAP_FAILED ? -1 : 0, "mmap");
    made.cpu = at;
    return made;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static volatile uint32_t *doorbell;
static struct buffer ring, userd, commands;
static uint32_t token, put, word;

/* One method of a subchannel, with its data increasing. */
static void method(uint32_t subchannel, uint32_t address, uint32_t count) {
    commands.cpu[word++] = 1u << 29 | count << 16 | subchannel << 13 | address >> 2;
}
static void data(uint32_t value) { commands.cpu[word++] = value; }

static void copy(uint64_t to, uint64_t from, uint32_t size) {
    method(4, 0x400, 4); /* OFFSET_IN_UPPER .. OFFSET_OUT_LOWER */
    data(from >> 32), data((uint32_t)from), data(to >> 32), data((uint32_t)to);
    method(4, 0x418, 1); /* LINE_LENGTH_IN */
    data(size);
    method(4, 0x300, 1); /* LAUNCH_DMA: not pipelined, flushed, pitch to pitch */
    data(0x182);
}
static void release(uint64_t semaphore, uint32_t value) {
    method(0, 0x5c, 5); /* SEM_ADDR_LO .. SEM_EXECUTE: release, wait for idle, with the time */
    data((uint32_t)semaphore), data(semaphore >> 32), data(value), data(0), data(0x02100001);
}
static void submit(uint32_t first) {
    uint64_t entry = (commands.address + first * 4ull) | (uint64_t)(word - first) << 42;
    ring.cpu[put * 2] = (uint32_t)entry, ring.cpu[put * 2 + 1] = entry >> 32;
    put = (put + 1) % ENTRIES;
    __sync_synchronize();
    userd.cpu[0x8c / 4] = put; /* GP_PUT */
    __sync_synchronize();
    doorbell[0x90 / 4] = token; /* NOTIFY_CHANNEL_PENDING */
}

int main(void) {
    check(ctrl = open("/dev/nvgpu/igpu0/ctrl", O_RDWR | O_CLOEXEC), "ctrl");
    check(nvmap = open("/dev/nvmap", O_RDWR | O_CLOEXEC), "nvmap");
    uint32_t characteristics[256] = { 0 };
    struct nvgpu_gpu_get_characteristics ask = { sizeof characteristics, (uintptr_t)characteristics };
    CALL(ctrl, NVGPU_GPU_IOCTL_GET_CHARACTERISTICS, &ask);
    printf("characteristics of %llu bytes\n", (unsigned long long)ask.gpu_characteristics_buf_size);

    struct nvgpu_alloc_as_args as = { .flags = NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA,
        .va_range_start = 0x200000, .va_range_end = 0xffffe00000 };
    CALL(ctrl, NVGPU_GPU_IOCTL_ALLOC_AS, &as);
    space = as.as_fd;
    struct nvgpu_as_alloc_space_args window = { WINDOW_SIZE / 4096, 4096, NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET,
        WINDOW, { 0 } };
    CALL(space, NVGPU_AS_IOCTL_ALLOC_SPACE, &window);
    printf("window at %#llx\n", (unsigned long long)window.o_a);

    struct nvgpu_gpu_open_tsg_args tsg = { 0 };
    CALL(ctrl, NVGPU_GPU_IOCTL_OPEN_TSG, &tsg);
    struct nvgpu_gpu_open_channel_args channel = { -1 };
    CALL(ctrl, NVGPU_GPU_IOCTL_OPEN_CHANNEL, &channel);
    int fd = channel.channel_fd;
    struct nvgpu_as_bind_channel_args bind = { (uint32_t)fd };
    CALL(space, NVGPU_AS_IOCTL_BIND_CHANNEL, &bind);
    struct nvgpu_tsg_bind_channel_ex_args join = { .channel_fd = fd };
    CALL((int)tsg.tsg_fd, NVGPU_TSG_IOCTL_BIND_CHANNEL_EX, &join);
    struct nvgpu_channel_wdt_args watchdog = { NVGPU_IOCTL_CHANNEL_DISABLE_WDT, 0 };
    CALL(fd, NVGPU_IOCTL_CHANNEL_WDT, &watchdog);
    ring = allocate(ENTRIES * 8, NVMAP_HANDLE_WRITE_COMBINE, 0);
    userd = allocate(4096, NVMAP_HANDLE_WRITE_COMBINE, 0);
    commands = allocate(65536, NVMAP_HANDLE_WRITE_COMBINE, 0);
    struct nvgpu_channel_setup_bind_args setup = { .num_gpfifo_entries = ENTRIES,
        .flags = NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC | NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
        .userd_dmabuf_fd = userd.fd, .gpfifo_dmabuf_fd = ring.fd };
    CALL(fd, NVGPU_IOCTL_CHANNEL_SETUP_BIND, &setup);
    token = setup.work_submit_token;
    struct nvgpu_alloc_obj_ctx_args object = { .class_num = AMPERE_DMA_COPY_B };
    CALL(fd, NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX, &object);
    struct buffer notifier = allocate(4096, NVMAP_HANDLE_INNER_CACHEABLE, 0);
    struct nvgpu_set_error_notifier post = { .size = 4096, .mem = (uint32_t)notifier.fd };
    CALL(fd, NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER, &post);
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ctrl, 0);
    check(page == MAP_FAILED ? -1 : 0, "the doorbell");
    doorbell = page;

    struct buffer from = allocate(COPIED, NVMAP_HANDLE_INNER_CACHEABLE, WINDOW + 0x200000);
    struct buffer to = allocate(COPIED, NVMAP_HANDLE_INNER_CACHEABLE, 0);
    struct buffer semaphore = allocate(4096, NVMAP_HANDLE_WRITE_COMBINE, 0);
    for (uint32_t i = 0; i < COPIED / 4; i++) from.cpu[i] = i * 2654435761u;
    method(4, 0, 1); /* SET_OBJECT */
    data(AMPERE_DMA_COPY_B);
    copy(to.address, from.address, COPIED);
    release(semaphore.address, 7);
    submit(0);
    double limit = seconds() + 20;
    while (semaphore.cpu[0] != 7 && seconds() < limit) usleep(100);
    __sync_synchronize();
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < COPIED / 4; i++) wrong += to.cpu[i] != i * 2654435761u;
    printf("semaphore %u, %u wrong words\n", semaphore.cpu[0], wrong);

    uint32_t first = word;
    copy(to.address, 0x123400000, 4096);
    release(semaphore.address, 8);
    submit(first);
    limit = seconds() + 20;
    while (notifier.cpu[3] >> 16 != 0xffff && seconds() < limit) usleep(100);
    printf("semaphore %u, notifier %u\n", semaphore.cpu[0], notifier.cpu[2]);
    struct nvgpu_as_unmap_buffer_args unmap = { from.address };
    CALL(space, NVGPU_AS_IOCTL_UNMAP_BUFFER, &unmap);
    return wrong != 0;
}
