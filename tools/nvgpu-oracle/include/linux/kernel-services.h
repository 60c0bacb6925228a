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
#define IS_ERR(ptr) ((unsigned long)(uintptr_t)(ptr) >= (unsigned long)-4095)
#define PTR_ERR(ptr) ((long)(intptr_t)(ptr))
#define ERR_PTR(err) ((void *)(intptr_t)(err))
#define IS_ENABLED(option) 0
#define LINUX_VERSION_CODE 0x050f00
#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))

typedef unsigned int fmode_t;
#define FMODE_READ 0x1U
#define FMODE_WRITE 0x2U
#define FMODE_PREAD 0x8U
#define FMODE_PWRITE 0x10U

struct file_operations {
	int nothing;
};

struct file {
	fmode_t f_mode;
	const struct file_operations *f_op;
	void *private_data;
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

static inline int copy_from_user(void *to, const void *from, unsigned long bytes)
{
	memcpy(to, from, bytes);
	return 0;
}

static inline int copy_to_user(void *to, const void *from, unsigned long bytes)
{
	memcpy(to, from, bytes);
	return 0;
}

static inline struct file *fget(int fd) { (void)fd; return NULL; }
static inline void fput(struct file *file) { (void)file; }

#endif
