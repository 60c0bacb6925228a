/* The kernel under nvmap: files, mappings, dma-bufs, trees and arrays, and the device that it finds. */
#include "kernel.h"
#include "machine.h"

#include <linux/nvscierror.h>
#include <linux/nvsciipc_interface.h>
#include <stdarg.h>

struct task_struct kernel_task;
static struct mm_struct mm;

void kernel_log(const char *format, ...)
{
	va_list args;

	if (getenv("ORACLE_LOG") == NULL)
		return;
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
}

void *kernel_alloc(size_t bytes)
{
	void *piece = calloc(1, bytes == 0 ? 1 : bytes);

	if (piece == NULL)
		exit(3);
	return piece;
}

struct kmem_cache *kernel_cache(size_t bytes)
{
	struct kmem_cache *cache = kernel_alloc(sizeof(*cache));

	cache->bytes = bytes;
	return cache;
}

static bool is_user_memory(const void *at, unsigned long bytes) { return bytes == 0 || (uintptr_t)at >= PAGE_SIZE; }

unsigned long copy_from_user(void *to, const void *from, unsigned long bytes)
{
	if (!is_user_memory(from, bytes)) {
		/* What is not copied is cleared (Linux, include/linux/uaccess.h). */
		memset(to, 0, bytes);
		return bytes;
	}
	memcpy(to, from, bytes);
	return 0;
}

unsigned long copy_to_user(void *to, const void *from, unsigned long bytes)
{
	if (!is_user_memory(to, bytes))
		return bytes;
	memcpy(to, from, bytes);
	return 0;
}

/* ---- lists, trees, arrays ---- */

static void insert(struct list_head *node, struct list_head *before, struct list_head *after)
{
	node->prev = before;
	node->next = after;
	before->next = after->prev = node;
}

void list_add(struct list_head *node, struct list_head *list) { insert(node, list, list->next); }
void list_add_tail(struct list_head *node, struct list_head *list) { insert(node, list->prev, list); }

void list_del(struct list_head *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
}

void rb_link_node(struct rb_node *node, struct rb_node *parent, struct rb_node **link)
{
	*node = (struct rb_node){ .parent = parent };
	*link = node;
}

/* Trees are not balanced: which of two nodes with the same key is found does not depend on what came before. */
static void put_in_place_of(struct rb_node *old, struct rb_node *new, struct rb_root *root)
{
	if (old->parent == NULL)
		root->rb_node = new;
	else if (old->parent->rb_left == old)
		old->parent->rb_left = new;
	else
		old->parent->rb_right = new;
	if (new != NULL)
		new->parent = old->parent;
}

void rb_replace_node(struct rb_node *old, struct rb_node *new, struct rb_root *root)
{
	*new = *old;
	put_in_place_of(old, new, root);
	if (new->rb_left != NULL)
		new->rb_left->parent = new;
	if (new->rb_right != NULL)
		new->rb_right->parent = new;
}

void rb_erase(struct rb_node *node, struct rb_root *root)
{
	struct rb_node *last = node->rb_left;

	if (node->rb_left == NULL || node->rb_right == NULL) {
		put_in_place_of(node, node->rb_left != NULL ? node->rb_left : node->rb_right, root);
		return;
	}
	/* The largest of those that are not larger: nodes with its key lie to its left, where they stay. */
	while (last->rb_right != NULL)
		last = last->rb_right;
	put_in_place_of(last, last->rb_left, root);
	rb_replace_node(node, last, root);
}

struct rb_node *rb_first(const struct rb_root *root)
{
	struct rb_node *node = root->rb_node;

	while (node != NULL && node->rb_left != NULL)
		node = node->rb_left;
	return node;
}

struct rb_node *rb_next(const struct rb_node *node)
{
	if (node->rb_right != NULL)
		return rb_first(&(struct rb_root){ node->rb_right });
	while (node->parent != NULL && node->parent->rb_right == node)
		node = node->parent;
	return node->parent;
}

/* Entries in the order of their numbers. */
struct xa_slot {
	struct xa_slot *next;
	u32 id;
	void *entry;
};

int xa_alloc(struct xarray *array, u32 *id, void *entry, struct xa_limit limit, gfp_t gfp)
{
	struct xa_slot **at = &array->first, *slot = kernel_alloc(sizeof(*slot));
	u32 free = limit.min;

	(void)gfp;
	for (; *at != NULL && (*at)->id <= free; at = &(*at)->next) {
		if ((*at)->id < free)
			continue;
		if (free == limit.max)
			return -EBUSY;
		free++;
	}
	*slot = (struct xa_slot){ *at, free, entry };
	*at = slot;
	*id = free;
	return 0;
}

void *xa_load(struct xarray *array, unsigned long id)
{
	for (struct xa_slot *slot = array->first; slot != NULL; slot = slot->next)
		if (slot->id == id)
			return slot->entry;
	return NULL;
}

void *xa_erase(struct xarray *array, unsigned long id)
{
	for (struct xa_slot **at = &array->first; *at != NULL; at = &(*at)->next)
		if ((*at)->id == id) {
			void *entry = (*at)->entry;

			*at = (*at)->next;
			return entry;
		}
	return NULL;
}

static bool is_set(const unsigned long *map, unsigned long bit) { return map[bit / 64] >> bit % 64 & 1; }

unsigned long bitmap_find_next_zero_area(unsigned long *map, unsigned long size, unsigned long start, unsigned int count, unsigned long align)
{
	unsigned long run = 0;

	for (unsigned long at = ALIGN(start, align + 1); at + run < size;) {
		if (is_set(map, at + run)) {
			at = ALIGN(at + run + 1, align + 1);
			run = 0;
		} else if (++run == count)
			return at;
	}
	return size;
}

void bitmap_set(unsigned long *map, unsigned int start, int count)
{
	for (int i = 0; i < count; i++)
		map[(start + i) / 64] |= 1UL << (start + i) % 64;
}

void bitmap_clear(unsigned long *map, unsigned int start, int count)
{
	for (int i = 0; i < count; i++)
		map[(start + i) / 64] &= ~(1UL << (start + i) % 64);
}

/* ---- files ---- */

#define FILES 512

static struct file *table[FILES];
static int installed;
/* Files without a reference: they end when the call returns to the process. */
static struct file *pending[FILES];
static int pending_count;

static struct file *new_file(const struct file_operations *operations, void *data, unsigned int mode)
{
	struct file *file = kernel_alloc(sizeof(*file));

	*file = (struct file){ operations, data, { 1 }, mode };
	return file;
}

struct file *kernel_file(int fd) { return fd < FILES_FIRST || fd >= FILES_FIRST + installed ? NULL : table[fd - FILES_FIRST]; }

long kernel_references(void)
{
	long sum = 0;

	for (int i = 0; i < installed; i++)
		sum += table[i] == NULL ? 0 : table[i]->f_count.counter;
	return sum;
}

/* A number is used once: the next descriptor is the next file. */
int get_unused_fd_flags(unsigned int flags)
{
	(void)flags;
	if (installed == FILES)
		exit(3);
	return FILES_FIRST + installed;
}

void put_unused_fd(int fd) { (void)fd; }

void fd_install(int fd, struct file *file)
{
	table[fd - FILES_FIRST] = file;
	installed++;
}

int close_fd(unsigned int fd)
{
	struct file *file = kernel_file((int)fd);

	if (file == NULL)
		return -EBADF;
	table[fd - FILES_FIRST] = NULL;
	fput(file);
	return 0;
}

void fput(struct file *file)
{
	if (--file->f_count.counter == 0)
		pending[pending_count++] = file;
}

void kernel_return(void)
{
	while (pending_count > 0) {
		struct file *file = pending[--pending_count];

		file->f_op->release(NULL, file);
	}
}

/* ---- mappings: every one in a place of its own ---- */

#define MAPPINGS 64
#define MAPPING_ROOM (1UL << 32)

static struct vm_area_struct mappings[MAPPINGS];
static int mapping_count;

int kernel_mmap(struct file *file, size_t bytes, unsigned long page, bool writes, struct vm_area_struct **out)
{
	struct vm_area_struct *vma = &mappings[mapping_count];
	int err;

	if (mapping_count == MAPPINGS)
		exit(3);
	if (writes && (file->f_mode & FMODE_WRITE) == 0)
		return -EACCES;
	*vma = (struct vm_area_struct){
		.vm_start = 0x100000000000UL + MAPPING_ROOM * (unsigned long)mapping_count,
		.vm_pgoff = page,
		.vm_flags = VM_READ | VM_SHARED | (writes ? VM_WRITE : 0),
		.file = file,
	};
	vma->vm_end = vma->vm_start + PAGE_ALIGN(bytes);
	err = file->f_op->mmap(file, vma);
	if (err != 0) {
		vma->vm_end = 0;
		return err;
	}
	atomic_inc(&file->f_count);
	mapping_count++;
	*out = vma;
	return 0;
}

void kernel_munmap(struct vm_area_struct *vma)
{
	vma->vm_ops->close(vma);
	fput(vma->file);
	vma->vm_end = 0;
}

u32 *kernel_touch(struct vm_area_struct *vma, size_t offset)
{
	struct vm_fault fault = { .vma = vma, .address = vma->vm_start + (offset & PAGE_MASK) };
	vm_fault_t result;

	vma->faulting = &fault;
	result = vma->vm_ops->fault(&fault);
	if (result == VM_FAULT_NOPAGE)
		return memremap((fault.pfn << PAGE_SHIFT) + (offset & ~PAGE_MASK), 4, 0);
	return result == 0 ? (u32 *)((u8 *)page_address(fault.page) + (offset & ~PAGE_MASK)) : NULL;
}

struct vm_area_struct *find_vma(struct mm_struct *of, unsigned long address)
{
	(void)of;
	for (int i = 0; i < mapping_count; i++)
		if (address < mappings[i].vm_end)
			return &mappings[i];
	return NULL;
}

/* ---- dma-buf ---- */

static int dma_buf_release(struct inode *inode, struct file *file)
{
	struct dma_buf *buf = file->private_data;

	(void)inode;
	buf->ops->release(buf);
	return 0;
}

static int dma_buf_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct dma_buf *buf = file->private_data;

	if (vma->vm_pgoff + ((vma->vm_end - vma->vm_start) >> PAGE_SHIFT) > buf->size >> PAGE_SHIFT)
		return -EINVAL;
	return buf->ops->mmap(buf, vma);
}

static const struct file_operations dma_buf_operations = { .release = dma_buf_release, .mmap = dma_buf_mmap };

struct dma_buf *dma_buf_export(const struct dma_buf_export_info *info)
{
	struct dma_buf *buf = kernel_alloc(sizeof(*buf));

	*buf = (struct dma_buf){ .size = info->size, .ops = info->ops, .exp_name = info->exp_name, .priv = info->priv };
	buf->file = new_file(&dma_buf_operations, buf, FMODE_READ | (info->flags == O_RDWR ? FMODE_WRITE : 0));
	return buf;
}

struct dma_buf *dma_buf_get(int fd)
{
	struct file *file = kernel_file(fd);

	if (file == NULL)
		return ERR_PTR(-EBADF);
	if (file->f_op != &dma_buf_operations)
		return ERR_PTR(-EINVAL);
	atomic_inc(&file->f_count);
	return file->private_data;
}

/* ---- the device: two reserved regions, VPR and FSI, and an SMMU ---- */

static struct device_node device_node = { "tegra-carveouts" }, region_nodes[2];
static struct platform_device device = { .dev.of_node = &device_node };
static struct reserved_mem regions[2] = {
	{ .name = "vpr-carveout", .base = CARVEOUT_BASE, .size = CARVEOUT_BYTES },
	{ .name = "fsi-carveout", .base = CARVEOUT_BASE + CARVEOUT_BYTES, .size = CARVEOUT_BYTES },
};
static struct miscdevice *node;

int of_phandle_iterator_init(struct of_phandle_iterator *it, struct device_node *of, const char *list, const char *cells, int count)
{
	(void)of;
	(void)list;
	(void)cells;
	(void)count;
	*it = (struct of_phandle_iterator){ NULL, 0 };
	return 0;
}

int of_phandle_iterator_next(struct of_phandle_iterator *it)
{
	it->node = it->at < 2 ? &region_nodes[it->at++] : NULL;
	return it->node == NULL ? -ENOENT : 0;
}

struct reserved_mem *of_reserved_mem_lookup(struct device_node *of) { return &regions[of - region_nodes]; }

/* The first region of the device alone. */
int of_reserved_mem_device_init(struct device *of) { return regions[0].ops->device_init(&regions[0], of); }

/* The kernel knows the carveout's map of free pages, which nvmap asked before: what is full stays full. */
void *dma_alloc_attrs(struct device *of, size_t bytes, dma_addr_t *address, gfp_t gfp, unsigned long attributes)
{
	(void)of;
	(void)bytes;
	(void)address;
	(void)gfp;
	(void)attributes;
	return NULL;
}

int misc_register(struct miscdevice *registered)
{
	node = registered;
	return 0;
}

int platform_driver_register(struct platform_driver *driver) { return driver->probe(&device); }

int oracle_module_init(void);

void kernel_new(void)
{
	kernel_task = (struct task_struct){ .pid = 1000, .tgid = 1000, .comm = "client", .group_leader = &kernel_task, .mm = &mm, .active_mm = &mm };
	if (oracle_module_init() != 0 || node == NULL)
		exit(3);
}

int kernel_open(void)
{
	int fd = get_unused_fd_flags(0), err;
	struct file *file = new_file(node->fops, node, FMODE_READ | FMODE_WRITE);

	err = node->fops->open(NULL, file);
	if (err == 0)
		fd_install(fd, file);
	return err == 0 ? fd : err;
}

/* ---- what no sequence reaches ---- */

/* No endpoint of NvSciIpc is open. */
NvSciError NvSciIpcEndpointValidateAuthTokenLinuxCurrent(NvSciIpcEndpointAuthToken token, NvSciIpcEndpointVuid *vuid)
{
	(void)token;
	(void)vuid;
	return NvSciError_NoSuchEntry;
}

NvSciError NvSciIpcEndpointMapVuid(NvSciIpcEndpointVuid vuid, NvSciIpcTopoId *topology, NvSciIpcEndpointVuid *peer)
{
	(void)vuid;
	(void)topology;
	(void)peer;
	return NvSciError_NoSuchEntry;
}

long get_user_pages(unsigned long address, unsigned long count, unsigned int flags, struct page **list, void *vmas)
{
	(void)address;
	(void)count;
	(void)flags;
	(void)list;
	(void)vmas;
	kernel_bug("get_user_pages(), which the oracle does not have");
}
