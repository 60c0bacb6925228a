/* The nodes as files: the paths that lead to them, flags of open, and the calls on descriptors that know nothing of
 * a GPU. Prints what each answers. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#undef _IO
#undef _IOR
#undef _IOW
#undef _IOWR
#include "nvgpu-sys.h"

#define CTRL_NODE "/dev/nvgpu/igpu0/ctrl"

static const char *said(long result) { return result < 0 ? strerrorname_np(errno) : "ok"; }

/* Whether a descriptor is of the GPU's control node. */
static const char *asked(int fd) {
    if (fd < 0) return strerrorname_np(errno);
    uint32_t characteristics[256];
    struct nvgpu_gpu_get_characteristics ask = { sizeof characteristics, (uintptr_t)characteristics };
    return said(ioctl(fd, NVGPU_GPU_IOCTL_GET_CHARACTERISTICS, &ask));
}

static void tried(const char *what, int fd) {
    printf("%s: %s\n", what, asked(fd));
    if (fd >= 0) close(fd);
}

static void kind(const char *what, int result, const struct stat *status) {
    printf("%s: %s %o %u\n", what, said(result), status->st_mode, (unsigned)status->st_rdev & 0xff);
}

static void paths(void) {
    tried("/dev//nvgpu/./igpu0/ctrl", open("/dev//nvgpu/./igpu0/ctrl", O_RDWR));
    tried("/dev/nvgpu/../nvgpu/igpu0/../igpu0/ctrl", open("/dev/nvgpu/../nvgpu/igpu0/../igpu0/ctrl", O_RDWR));
    int dev = open("/dev", O_RDONLY | O_DIRECTORY);
    tried("of /dev, nvgpu/igpu0/ctrl", openat(dev, "nvgpu/igpu0/ctrl", O_RDWR));
    int folder = openat(dev, "nvgpu", O_RDONLY);
    tried("of /dev/nvgpu, igpu0/ctrl", openat(folder, "igpu0/ctrl", O_RDWR));
    printf("of /dev/nvgpu, ../null: %s\n", said(openat(folder, "../null", O_RDWR)));
    struct stat status;
    kind("fstat of it", fstat(folder, &status), &status);
    kind("fstatat of it", fstatat(folder, "", &status, AT_EMPTY_PATH), &status);
    DIR *listing = fdopendir(folder);
    for (struct dirent *entry; (entry = readdir(listing));) printf("  %s\n", entry->d_name);
    closedir(listing);

    printf("chdir: %s\n", said(chdir("/dev")));
    tried("of the working folder", open("nvgpu/igpu0/ctrl", O_RDWR));
    kind("stat", stat("nvgpu", &status), &status);
    printf("nothing: %s\n", said(access("nvgpu/nothing", R_OK)));
}

static void flags(void) {
    printf("O_CREAT|O_EXCL: %s\n", said(open(CTRL_NODE, O_RDWR | O_CREAT | O_EXCL, 0600)));
    printf("O_DIRECTORY: %s\n", said(open(CTRL_NODE, O_RDWR | O_DIRECTORY)));
    printf("folder, O_RDWR: %s\n", said(open("/dev/nvgpu", O_RDWR)));
    printf("folder, O_CREAT|O_EXCL: %s\n", said(open("/dev/nvgpu", O_CREAT | O_EXCL | O_RDWR, 0600)));
    printf("node and a slash: %s\n", said(open(CTRL_NODE "/", O_RDWR)));
    printf("below a node: %s\n", said(open(CTRL_NODE "/x", O_RDWR)));
    printf("no node: %s\n", said(open("/dev/nvgpu/igpu0/x", O_RDWR)));
    int fd = open(CTRL_NODE, O_RDWR | O_CLOEXEC);
    printf("F_GETFL: %#x F_GETFD: %d\n", fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK), fcntl(fd, F_GETFD));
    printf("F_SETFL: %s", said(fcntl(fd, F_SETFL, O_NONBLOCK)));
    printf(" F_GETFL: %#x\n", fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK));
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 40);
    printf("F_DUPFD_CLOEXEC: %s %d, F_GETFL: %#x\n", asked(copy), fcntl(copy, F_GETFD),
           fcntl(copy, F_GETFL) & (O_ACCMODE | O_NONBLOCK));
    int reads = open(CTRL_NODE, O_RDONLY), writes = open(CTRL_NODE, O_WRONLY);
    printf("read only, F_GETFL: %#x F_GETFD: %d\n", fcntl(reads, F_GETFL) & O_ACCMODE, fcntl(reads, F_GETFD));
    char byte = 0;
    printf("read: %s, of one for writing: %s\n", said(read(fd, &byte, 1)), said(read(writes, &byte, 1)));
    printf("write: %s, of one for reading: %s\n", said(write(fd, &byte, 1)), said(write(reads, &byte, 1)));
    printf("pread: %s lseek: %s\n", said(pread(fd, &byte, 1, 0)), said(lseek(fd, 0, SEEK_SET)));
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reads, 0);
    printf("mmap for stores of one for reading: %s\n", said(page == MAP_FAILED ? -1 : 0));
    page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, writes, 0);
    printf("mmap of one for writing: %s\n", said(page == MAP_FAILED ? -1 : 0));
    struct pollfd poll_of = { fd, POLLIN | POLLOUT | POLLPRI, 0 };
    int ready = poll(&poll_of, 1, 5000);
    printf("poll: %d %#x\n", ready, poll_of.revents);
    struct epoll_event event = { .events = EPOLLIN };
    printf("epoll: %s\n", said(epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, fd, &event)));

    int path = open(CTRL_NODE, O_PATH | O_CLOEXEC);
    struct stat status;
    printf("O_PATH: %s, ioctl: %s\n", said(path), asked(path));
    kind("fstat of it", fstat(path, &status), &status);
    kind("fstatat", fstatat(fd, "", &status, AT_EMPTY_PATH), &status);
}

static void copies(void) {
    int fd = open(CTRL_NODE, O_RDWR | O_CLOEXEC);
    int second = dup(fd);
    tried("dup", second);
    second = dup2(fd, 60);
    printf("dup2: %d %s\n", second, asked(second));
    printf("dup2 of itself: %d, of nothing: %s\n", dup2(60, 60), said(dup2(1000, 1000)));
    second = dup3(fd, 61, O_CLOEXEC);
    printf("dup3: %d %s %d, of itself: %s\n", second, asked(61), fcntl(61, F_GETFD), said(dup3(61, 61, 0)));
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) printf("socketpair: %s\n", said(-1));
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec piece = { &byte, 1 };
    struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    printf("sendmsg: %s", said(sendmsg(pair[0], &message, 0)));
    printf(" recvmsg: %s", said(recvmsg(pair[1], &message, 0)));
    memcpy(&second, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof second);
    printf(" ioctl: %s\n", asked(second));

    /* sched is open once: what closes it by other means makes it free at once. */
    int sched = open("/dev/nvgpu/igpu0/sched", O_RDWR);
    printf("sched: %s, again: %s", said(sched), said(open("/dev/nvgpu/igpu0/sched", O_RDWR)));
    dup2(fd, sched);
    int again = open("/dev/nvgpu/igpu0/sched", O_RDWR);
    printf(", after dup2: %s", said(again));
    close_range(again, again, 0);
    printf(", after close_range: %s\n", said(open("/dev/nvgpu/igpu0/sched", O_RDWR)));
}

static void mappings(void) {
    int nvmap = open("/dev/nvmap", O_RDWR | O_CLOEXEC);
    struct nvmap_create_handle create = { .size = 1 << 16 };
    ioctl(nvmap, NVMAP_IOC_CREATE, &create);
    struct nvmap_alloc_handle alloc = { create.handle, NVMAP_HEAP_IOVMM, NVMAP_HANDLE_WRITE_COMBINE, 4096, -1 };
    ioctl(nvmap, NVMAP_IOC_ALLOC, &alloc);
    struct nvmap_create_handle get = { .handle = create.handle };
    ioctl(nvmap, NVMAP_IOC_GET_FD, &get);
    int fd = (int)get.size;
    static const struct { int flag; const char *name; } kinds[] = {
        { MAP_POPULATE, "MAP_POPULATE" }, { MAP_LOCKED, "MAP_LOCKED" }, { MAP_NORESERVE, "MAP_NORESERVE" },
    };
    volatile uint32_t *plain = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (uint32_t i = 0; i < 3; i++) {
        volatile uint32_t *at = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | kinds[i].flag, fd, 0);
        if (at == MAP_FAILED) {
            printf("%s: %s\n", kinds[i].name, said(-1));
            continue;
        }
        at[1000] = 7 + i;
        unsigned char resident[16] = { 0 };
        mincore((void *)at, 1 << 16, resident);
        int all = 1;
        for (int page = 0; page < 16; page++) all &= resident[page];
        printf("%s: the other mapping has %u", kinds[i].name, plain[1000]);
        /* Only the first two promise it; a page that was stored to is there in any case. */
        if (kinds[i].flag != MAP_NORESERVE) printf(", resident %d", all);
        printf(", munmap %s\n", said(munmap((void *)at, 1 << 16)));
    }
    char byte;
    printf("read of a buffer: %s, write: %s\n", said(read(fd, &byte, 1)), said(write(fd, &byte, 1)));
    printf("lseek to its end: %ld\n", (long)lseek(fd, 0, SEEK_END));
}

/* The event of a clock request, which is granted at once. */
static int posted(int ctrl) {
    struct nvgpu_gpu_clk_info clock = { .clk_domain = NVGPU_GPU_CLK_DOMAIN_GPCCLK, .freq_hz = 300000000 };
    struct nvgpu_gpu_clk_set_info_args set = { .num_entries = 1, .clk_info_entries = (uintptr_t)&clock };
    if (ioctl(ctrl, NVGPU_GPU_IOCTL_CLK_SET_INFO, &set)) printf("clock: %s\n", said(-1));
    return set.completion_fd;
}

static void events(void) {
    int ctrl = open(CTRL_NODE, O_RDWR | O_CLOEXEC);
    int event = posted(ctrl);
    struct pollfd poll_of = { event, POLLIN | POLLPRI, 0 };
    int ready = poll(&poll_of, 1, 5000);
    printf("event, F_GETFL: %#x poll: %d %#x", fcntl(event, F_GETFL) & O_ACCMODE, ready, poll_of.revents);
    ready = poll(&poll_of, 1, 10);
    printf(", again: %d\n", ready);
    event = posted(ctrl);
    int epoll = epoll_create1(0);
    struct epoll_event wanted = { .events = EPOLLPRI, .data.u32 = 77 }, found = { 0 };
    printf("epoll: %s", said(epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted)));
    ready = epoll_wait(epoll, &found, 1, 5000);
    printf(" %d %#x of %u", ready, found.events, found.data.u32);
    printf(", again: %d\n", epoll_wait(epoll, &found, 1, 10));
}

/* Whether the flag is set that a request of the kernel itself, with the number `on`, changes. */
static void switched(const char *what, int fd, unsigned long request, int on) {
    printf("%s %d: %s", what, on, said(ioctl(fd, request, &on)));
    printf(", O_NONBLOCK %d O_CLOEXEC %d\n", !!(fcntl(fd, F_GETFL) & O_NONBLOCK), fcntl(fd, F_GETFD));
}

static void requests_of_the_kernel(void) {
    int fd = open(CTRL_NODE, O_RDWR);
    switched("FIONBIO", fd, FIONBIO, 1);
    switched("FIONBIO", fd, FIONBIO, 0);
    switched("FIOCLEX", fd, FIOCLEX, 0);
    switched("FIONCLEX", fd, FIONCLEX, 0);
    switched("FIOASYNC", fd, FIOASYNC, 0);
    switched("FIOASYNC", fd, FIOASYNC, 1);
    printf("FIONBIO of nothing: %s\n", said(ioctl(fd, FIONBIO, NULL)));
    printf("after them: %s\n", asked(fd));
    printf("access, 8: %s, folder: %s\n", said(access(CTRL_NODE, 8)), said(access("/dev/nvgpu", 8)));
    char byte = 0;
    struct iovec piece = { &byte, 1 };
    printf("vmsplice: %s\n", said(vmsplice(fd, &piece, 1, 0)));
}

int main(void) {
    paths();
    flags();
    copies();
    mappings();
    events();
    requests_of_the_kernel();
    return 0;
}
