/*
 * The kernel's vocabulary, as far as the driver's Linux layer of the address-space node uses it.
 *
 * The driver's files are compiled in user space; what they ask of Linux is declared here and answered by os.c and
 * memory.c. One process, one thread, one GPU.
 */
#ifndef ORACLE_KERNEL_SERVICES_H
#define ORACLE_KERNEL_SERVICES_H

#include <nvgpu/types.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>

#define __user
#define IS_ALIGNED(value, step) (((value) & ((step) - 1)) == 0)
#define access_ok(at, bytes) is_user_memory((const void *)(at), (bytes))
#define __maybe_unused __attribute__((unused))
#define max_t(type, a, b) ((type)(a) > (type)(b) ? (type)(a) : (type)(b))
#define IS_ERR(ptr) ((unsigned long)(uintptr_t)(ptr) >= (unsigned long)-4095)
#define PTR_ERR(ptr) ((long)(intptr_t)(ptr))
#define ERR_PTR(err) ((void *)(intptr_t)(err))
#define IS_ENABLED(option) 0
#define LINUX_VERSION_CODE 0x050f00
#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))

static inline bool is_power_of_2(unsigned long n) { return n != 0 && (n & (n - 1)) == 0; }
static inline unsigned long rounddown_pow_of_two(unsigned long n) { return 1UL << (63 - __builtin_clzl(n)); }
static inline unsigned long roundup_pow_of_two(unsigned long n) { return n <= 1 ? 1 : 1UL << (64 - __builtin_clzl(n - 1)); }

typedef unsigned int fmode_t;
#define FMODE_READ 0x1U
#define FMODE_WRITE 0x2U
#define FMODE_PREAD 0x8U
#define FMODE_PWRITE 0x10U

struct file;
struct inode;
struct module;
struct vm_area_struct;
typedef struct poll_table_struct {
	int nothing;
} poll_table;

struct file_operations {
	struct module *owner;
	int (*open)(struct inode *inode, struct file *file);
	int (*release)(struct inode *inode, struct file *file);
	unsigned int (*poll)(struct file *file, poll_table *wait);
	long (*unlocked_ioctl)(struct file *file, unsigned int request, unsigned long argument);
	int (*mmap)(struct file *file, struct vm_area_struct *vma);
};

struct file {
	fmode_t f_mode;
	const struct file_operations *f_op;
	void *private_data;
	u32 references;
};

struct cdev {
	int nothing;
};

struct inode {
	struct cdev *i_cdev;
};

struct device {
	struct gk20a *g;
};

/* ---- a process's mappings of a node ---- */

struct rw_semaphore_services {
	int nothing;
};

struct mm_struct {
	struct rw_semaphore_services mmap_lock;
};

struct vm_operations_struct {
	void (*open)(struct vm_area_struct *vma);
	void (*close)(struct vm_area_struct *vma);
};

struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_pgoff, vm_flags;
	int vm_page_prot;
	const struct vm_operations_struct *vm_ops;
	void *vm_private_data;
	struct mm_struct *vm_mm;
};

#define VM_IO 1
#define VM_DONTCOPY 2
#define VM_DONTEXPAND 4
#define VM_NORESERVE 8
#define VM_DONTDUMP 16
#define VM_PFNMAP 32
#define PAGE_SHIFT 12
#define pgprot_noncached(prot) (prot)
#define down_write_trylock(lock) 1
#define up_write(lock) ((void)0)
static inline void zap_vma_ptes(struct vm_area_struct *vma, unsigned long at, unsigned long bytes) { (void)vma; (void)at; (void)bytes; }
static inline int io_remap_pfn_range(struct vm_area_struct *vma, unsigned long at, unsigned long pfn, unsigned long bytes, int prot)
{
	(void)vma;
	(void)at;
	(void)pfn;
	(void)bytes;
	(void)prot;
	return 0;
}

/* ---- work that is put off ---- */

struct work_struct {
	void (*run)(struct work_struct *work);
};
#define INIT_WORK(work, function) ((work)->run = (function))
static inline void schedule_work(struct work_struct *work) { work->run(work); }
static inline void cancel_work_sync(struct work_struct *work) { (void)work; }

/* ---- what a file says about itself ---- */

#define THIS_MODULE NULL
#define POLLIN 1
#define POLLPRI 2
#define POLLERR 8
#define poll_wait(file, queue, wait) ((void)(file), (void)(wait))
#define dev_name(device) "17000000.gpu"
#define dev_err(device, ...) ((void)(device))
#define dev_dbg(device, ...) ((void)(device))
#define dev_get_drvdata(device) NULL
#define pr_err(...) ((void)0)
#define pr_warn(...) ((void)0)
#define pr_info(...) ((void)0)
/* An ordinary user's process. */
#define CAP_SYS_NICE 23
#define CAP_SYS_ADMIN 21
#define capable(capability) 0
int dev_to_node(struct device *device);
ssize_t strscpy(char *to, const char *from, size_t bytes);

#define timespec64 timespec
#define ktime_get_real_ts64(at) memset((at), 0, sizeof(*(at)))
#define get_jiffies_64() 0
#define jiffies_to_timespec64(jiffies, at) ((void)(jiffies), memset((at), 0, sizeof(*(at))))

struct scatterlist {
	struct scatterlist *next;
	u64 phys;
	u64 length;
};

struct sg_table {
	struct scatterlist *sgl;
};

struct dma_buf_ops {
	int nothing;
};

struct gk20a_dmabuf_priv;

/* A buffer of the modelled process: scattered pages with a number. */
struct dma_buf {
	size_t size;
	/* Its content, once something maps it. */
	void *words;
	struct file *file;
	u32 number;
	u32 references;
	struct sg_table table;
	struct file file_storage;
	struct gk20a_dmabuf_priv *driver_data;
};

struct dma_buf_attachment {
	struct dma_buf *dmabuf;
};

enum dma_data_direction { DMA_BIDIRECTIONAL, DMA_TO_DEVICE, DMA_FROM_DEVICE };

struct dma_buf *dma_buf_get(int fd);
void dma_buf_put(struct dma_buf *dmabuf);

static inline u64 sg_phys(struct scatterlist *sg) { return sg->phys; }
static inline u64 sg_dma_address(struct scatterlist *sg) { return sg->phys; }

static inline int dma_buf_begin_cpu_access(struct dma_buf *buf, enum dma_data_direction direction) { (void)buf; (void)direction; return 0; }
static inline int dma_buf_end_cpu_access(struct dma_buf *buf, enum dma_data_direction direction) { (void)buf; (void)direction; return 0; }

/* No address of the process lies in the first page; what is not copied is counted. */
static inline int is_user_memory(const void *at, unsigned long bytes)
{
	return bytes == 0 || (uintptr_t)at >= 4096;
}

static inline unsigned long copy_from_user(void *to, const void *from, unsigned long bytes)
{
	if (!is_user_memory(from, bytes))
		return bytes;
	memcpy(to, from, bytes);
	return 0;
}

static inline unsigned long copy_to_user(void *to, const void *from, unsigned long bytes)
{
	if (!is_user_memory(to, bytes))
		return bytes;
	memcpy(to, from, bytes);
	return 0;
}

/* ---- files.c ---- */

struct file *fget(int fd);
void fput(struct file *file);
int get_unused_fd_flags(unsigned int flags);
void put_unused_fd(int fd);
void fd_install(int fd, struct file *file);
struct file *anon_inode_getfile(const char *name, const struct file_operations *operations, void *data, int flags);

#endif
