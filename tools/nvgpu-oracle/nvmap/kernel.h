/*
 * The kernel's vocabulary, as far as nvmap uses it: Linux 5.15 for arm64, one process, one thread.
 *
 * nvmap's files are compiled in user space; what they ask of Linux is declared here and answered by kernel.c and memory.c.
 * What the process ends with it gives back: nothing is freed before.
 */
#ifndef ORACLE_NVMAP_KERNEL_H
#define ORACLE_NVMAP_KERNEL_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/ioctl.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
typedef u64 phys_addr_t, dma_addr_t, pgprot_t;
typedef unsigned int gfp_t, vm_fault_t;
typedef unsigned long vm_flags_t;

#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))
#define LINUX_VERSION_CODE KERNEL_VERSION(5, 15, 0)
#define CONFIG_ARM64 1
#define CONFIG_ARM64_4K_PAGES 1
#define CONFIG_MMU 1
#define CONFIG_DMA_CMA 1
#define IS_ENABLED(option) 1

#define __user
#define __iomem
#define __force
#define __init
#define __exit
#define __refdata
#define __weak __attribute__((weak))
#define ____cacheline_aligned_in_smp
#define likely(condition) (condition)
#define unlikely(condition) (condition)
#define EXPORT_SYMBOL(name)
#define MODULE_DEVICE_TABLE(bus, table)
#define MODULE_IMPORT_NS(name)
#define MODULE_DESCRIPTION(text)
#define MODULE_AUTHOR(text)
#define MODULE_LICENSE(text)
#define module_param_named(...)
#define module_init(function) int oracle_module_init(void) { return function(); }
#define module_exit(function)
#define THIS_MODULE NULL
#define U32_MAX UINT32_MAX
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define BIT(n) (1UL << (n))
#define DMA_BIT_MASK(n) (~0ULL)
#define SZ_32K 0x8000
#define SZ_32M 0x2000000
#define S_IRUGO 0444
#define S_IWUSR 0200
#define min(a, b) ((a) < (b) ? (a) : (b))
#define min_t(type, a, b) ((type)(a) < (type)(b) ? (type)(a) : (type)(b))
#define max_t(type, a, b) ((type)(a) > (type)(b) ? (type)(a) : (type)(b))
#define ALIGN(value, step) (((value) + (step) - 1) & ~((typeof(value))(step) - 1))
#define IS_ALIGNED(value, step) (((value) & ((step) - 1)) == 0)
#define round_up(value, step) ALIGN((value), (step))
#define round_down(value, step) ((value) & ~((typeof(value))(step) - 1))
#define DIV_ROUND_UP(value, step) (((value) + (step) - 1) / (step))
#define BITS_TO_LONGS(bits) DIV_ROUND_UP((bits), 64)
#define container_of(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))
#define order_base_2(n) (63 - __builtin_clzl(n))
#define __fls(n) (63UL - (unsigned long)__builtin_clzl(n))
#define IS_ERR_VALUE(value) ((unsigned long)(value) >= (unsigned long)-4095)
#define IS_ERR(pointer) IS_ERR_VALUE((uintptr_t)(pointer))
#define IS_ERR_OR_NULL(pointer) ((pointer) == NULL || IS_ERR(pointer))
#define PTR_ERR(pointer) ((long)(intptr_t)(pointer))
#define ERR_PTR(err) ((void *)(intptr_t)(err))
#define ERR_CAST(pointer) ((void *)(pointer))

/* ---- the log, the end ---- */

void kernel_log(const char *format, ...);
#define pr_err(...) kernel_log(__VA_ARGS__)
#define pr_warn(...) kernel_log(__VA_ARGS__)
#define pr_info(...) kernel_log(__VA_ARGS__)
#define pr_debug(...) kernel_log(__VA_ARGS__)
#define pr_err_ratelimited(...) kernel_log(__VA_ARGS__)
#define dev_err(device, ...) kernel_log(__VA_ARGS__)
#define dev_dbg(device, ...) ((void)0)
/* The machine stops; what it was doing is recorded as that. */
_Noreturn void kernel_bug(const char *where);
#define BUG() kernel_bug(__func__)
#define BUG_ON(condition) ((void)((condition) ? kernel_bug(__func__) : (void)0))
#define WARN_ON(condition) ({ bool warned_ = (condition); if (warned_) kernel_log("WARNING: in %s\n", __func__); warned_; })
#define WARN(condition, ...) WARN_ON(condition)
#define WARN_ONCE(condition, ...) WARN_ON(condition)
#define WARN_ON_ONCE(condition) WARN_ON(condition)

/* ---- one thread: locks, atomics and barriers are what they guard ---- */

struct mutex { int nothing; };
typedef struct { int nothing; } spinlock_t;
typedef struct { int nothing; } wait_queue_head_t;
#define mutex_init(lock) ((void)(lock))
#define mutex_lock(lock) ((void)(lock))
#define mutex_unlock(lock) ((void)(lock))
#define spin_lock_init(lock) ((void)(lock))
#define spin_lock(lock) ((void)(lock))
#define spin_unlock(lock) ((void)(lock))
#define spin_lock_irqsave(lock, flags) ((void)(lock), (flags) = 0)
#define spin_unlock_irqrestore(lock, flags) ((void)(lock), (void)(flags))
#define init_waitqueue_head(queue) ((void)(queue))
#define wake_up(queue) ((void)(queue))
/* Nobody else runs: what is not so now stays so until the time is over. */
#define wait_event_interruptible_timeout(queue, condition, time) ((condition) ? (time) : 0)
#define msecs_to_jiffies(ms) (ms)
#define mb() ((void)0)
#define wmb() ((void)0)
#define smp_rmb() ((void)0)
#define sched_clock() 0UL

typedef struct { int counter; } atomic_t;
typedef struct { long counter; } atomic_long_t, atomic64_t;
#define atomic_read(a) ((a)->counter)
#define atomic_set(a, value) ((void)((a)->counter = (value)))
#define atomic_inc(a) ((void)((a)->counter++))
#define atomic_dec(a) ((void)((a)->counter--))
#define atomic_add(value, a) ((void)((a)->counter += (value)))
#define atomic_sub(value, a) ((void)((a)->counter -= (value)))
#define atomic_inc_return(a) (++(a)->counter)
#define atomic_dec_return(a) (--(a)->counter)
#define atomic_add_return(value, a) ((a)->counter += (value))
#define atomic_inc_not_zero(a) ((a)->counter == 0 ? 0 : ++(a)->counter)
#define atomic_fetch_add_unless(a, value, unless) ({ int was_ = (a)->counter; if (was_ != (unless)) (a)->counter += (value); was_; })
#define atomic_add_unless(a, value, unless) (atomic_fetch_add_unless((a), (value), (unless)) != (unless))
#define atomic_long_read(a) ((a)->counter)
#define atomic_long_inc_not_zero(a) atomic_inc_not_zero(a)
#define atomic_long_cmpxchg(a, old, new) ({ long was_ = (a)->counter; if (was_ == (old)) (a)->counter = (new); was_; })
#define atomic64_read(a) ((a)->counter)
#define atomic64_set(a, value) ((void)((a)->counter = (long)(value)))
#define atomic64_add(value, a) ((void)((a)->counter += (long)(value)))
#define atomic64_sub(value, a) ((void)((a)->counter -= (long)(value)))
struct kref { atomic_t refcount; };
#define kref_init(ref) atomic_set(&(ref)->refcount, 1)
#define kref_get(ref) atomic_inc(&(ref)->refcount)
#define kref_put(ref, release) ((void)(atomic_dec_return(&(ref)->refcount) == 0 ? (release)(ref) : (void)0))

/* ---- lists, trees, arrays ---- */

struct list_head { struct list_head *next, *prev; };
#define INIT_LIST_HEAD(list) ((void)((list)->next = (list)->prev = (list)))
#define list_empty(list) ((list)->next == (list))
#define list_entry(node, type, member) container_of(node, type, member)
#define list_first_entry(list, type, member) list_entry((list)->next, type, member)
#define list_for_each_entry(at, list, member) \
	for (at = list_entry((list)->next, typeof(*at), member); &at->member != (list); at = list_entry(at->member.next, typeof(*at), member))
#define list_for_each_entry_safe(at, after, list, member) \
	for (at = list_entry((list)->next, typeof(*at), member), after = list_entry(at->member.next, typeof(*at), member); \
	     &at->member != (list); at = after, after = list_entry(after->member.next, typeof(*after), member))
void list_add(struct list_head *node, struct list_head *list);
void list_add_tail(struct list_head *node, struct list_head *list);
void list_del(struct list_head *node);

struct rb_node { struct rb_node *parent, *rb_left, *rb_right; };
struct rb_root { struct rb_node *rb_node; };
#define RB_ROOT (struct rb_root){ NULL }
#define rb_entry(node, type, member) container_of(node, type, member)
void rb_link_node(struct rb_node *node, struct rb_node *parent, struct rb_node **link);
void rb_erase(struct rb_node *node, struct rb_root *root);
void rb_replace_node(struct rb_node *old, struct rb_node *new, struct rb_root *root);
struct rb_node *rb_first(const struct rb_root *root);
struct rb_node *rb_next(const struct rb_node *node);
#define rb_insert_color(node, root) ((void)(root))

struct xa_limit { u32 max, min; };
#define XA_LIMIT(from, to) (struct xa_limit){ .min = (from), .max = (to) }
#define XA_FLAGS_ALLOC1 0
struct xarray { struct xa_slot *first; };
#define xa_init_flags(array, flags) ((void)((array)->first = NULL))
#define xa_lock(array) ((void)(array))
#define xa_unlock(array) ((void)(array))
#define xa_destroy(array) ((void)((array)->first = NULL))
int xa_alloc(struct xarray *array, u32 *id, void *entry, struct xa_limit limit, gfp_t gfp);
void *xa_load(struct xarray *array, unsigned long id);
void *xa_erase(struct xarray *array, unsigned long id);

unsigned long bitmap_find_next_zero_area(unsigned long *map, unsigned long size, unsigned long start, unsigned int count, unsigned long align);
void bitmap_set(unsigned long *map, unsigned int start, int count);
void bitmap_clear(unsigned long *map, unsigned int start, int count);

/* ---- memory of the kernel ---- */

#define GFP_KERNEL 1U
#define __GFP_HIGHMEM 2U
#define __GFP_NOWARN 4U
#define __GFP_ZERO 8U
#define __GFP_NOMEMALLOC 16U
#define __GFP_RECLAIM 32U
#define kzalloc(bytes, gfp) kernel_alloc(bytes)
#define kmalloc(bytes, gfp) kernel_alloc(bytes)
#define vmalloc(bytes) kernel_alloc(bytes)
#define vzalloc(bytes) kernel_alloc(bytes)
#define devm_kzalloc(device, bytes, gfp) kernel_alloc(bytes)
#define krealloc(pointer, bytes, gfp) realloc((pointer), (bytes))
#define kfree(pointer) ((void)(pointer))
#define kfree_const(pointer) ((void)(pointer))
#define kfree_sensitive(pointer) ((void)(pointer))
#define vfree(pointer) ((void)(pointer))
#define kvfree(pointer) ((void)(pointer))
void *kernel_alloc(size_t bytes);
struct kmem_cache { size_t bytes; };
#define KMEM_CACHE(type, flags) kernel_cache(sizeof(struct type))
#define kmem_cache_alloc(cache, gfp) kernel_alloc((cache)->bytes)
#define kmem_cache_zalloc(cache, gfp) kernel_alloc((cache)->bytes)
#define kmem_cache_free(cache, pointer) ((void)(pointer))
#define kmem_cache_destroy(cache) ((void)(cache))
struct kmem_cache *kernel_cache(size_t bytes);
/* Every pointer that nvmap keeps is one of the kernel's. */
#define virt_addr_valid(pointer) ((pointer) != NULL)

/* ---- physical memory: memory.c ---- */

#define PAGE_SHIFT 12
#define PAGE_SIZE 4096UL
#define PAGE_MASK (~(PAGE_SIZE - 1))
#define PAGE_ALIGN(bytes) (((bytes) + PAGE_SIZE - 1) & PAGE_MASK)
#define PFN_DOWN(address) ((address) >> PAGE_SHIFT)
#define __phys_to_pfn(address) ((address) >> PAGE_SHIFT)
#define offset_in_page(address) ((address) & ~PAGE_MASK)
#define L1_CACHE_BYTES 64
#define NUMA_NO_NODE (-1)
/* CONFIG_NODES_SHIFT is 4 in arm64's default configuration. */
#define MAX_NUMNODES 16
#define PAGE_MAPCOUNT_RESERVE (-128)
struct page { atomic_t _mapcount; bool used; };
struct page *pfn_to_page(unsigned long pfn);
unsigned long page_to_pfn(const struct page *page);
bool pfn_valid(unsigned long pfn);
#define page_to_phys(page) ((phys_addr_t)page_to_pfn(page) << PAGE_SHIFT)
#define phys_to_page(address) pfn_to_page((address) >> PAGE_SHIFT)
#define nth_page(page, n) ((page) + (n))
#define page_address(page) memremap(page_to_phys(page), PAGE_SIZE, 0)
#define kmap(page) page_address(page)
#define kunmap(page) ((void)(page))
#define get_page(page) ((void)(page))
#define put_page(page) ((void)(page))
#define split_page(page, order) ((void)(page))
#define PageAnon(page) 0
#define PageCompound(page) 0
#define compound_mapcount(page) 0
#define page_mapcount(page) 0
#define page_has_type(page) 0
int get_order(unsigned long bytes);
struct page *alloc_pages_node(int node, gfp_t gfp, unsigned int order);
#define alloc_pages(gfp, order) alloc_pages_node(NUMA_NO_NODE, (gfp), (order))
unsigned long __alloc_pages_bulk(gfp_t gfp, int node, void *nodes, int count, struct list_head *list, struct page **pages);
#define numa_mem_id() 0
void __free_page(struct page *page);
unsigned long totalram_pages(void);
long si_mem_available(void);
#define NR_FREE_CMA_PAGES 0
#define global_zone_page_state(what) 0UL
struct sysinfo { unsigned long totalram; };
#define si_meminfo(info) ((void)((info)->totalram = totalram_pages()))
#define VM_MAP 4
#define PAGE_KERNEL 0
#define MEMREMAP_WB 1
#define MEMREMAP_WC 4
#define pgprot_val(prot) (prot)
#define pgprot_noncached(prot) (prot)
#define pgprot_writecombine(prot) (prot)
void *vmap(struct page **pages, unsigned int count, unsigned long flags, pgprot_t prot);
#define vunmap(address) ((void)(address))
void *memremap(phys_addr_t address, size_t bytes, unsigned long flags);
#define memunmap(address) ((void)(address))
#define ioremap_prot(address, bytes, prot) memremap((address), (bytes), 0)
#define __ioremap(address, bytes, prot) memremap((address), (bytes), 0)
#define iounmap(address) ((void)(address))
/* Caches: the memory of a process is coherent. */
#define arch_invalidate_pmem(address, bytes) ((void)(address))
#define __raw_writeb(value, at) ((void)(*(u8 *)(at) = (value)))
#define __raw_writeq(value, at) ((void)(*(u64 *)(at) = (value)))
#define zap_page_range(vma, start, bytes) ((void)(vma))

/* ---- processes ---- */

#define TASK_COMM_LEN 16
#define PF_KTHREAD 0x00200000
struct mm_struct { int mmap_lock; };
struct task_struct {
	pid_t pid, tgid;
	unsigned int flags;
	char comm[TASK_COMM_LEN];
	struct task_struct *group_leader;
	struct mm_struct *mm, *active_mm;
};
extern struct task_struct kernel_task;
#define current (&kernel_task)
#define get_current() (&kernel_task)
#define get_task_struct(task) ((void)(task))
#define put_task_struct(task) ((void)(task))
#define task_lock(task) ((void)(task))
#define task_unlock(task) ((void)(task))
#define task_tgid_nr(task) ((task)->tgid)
#define get_task_comm(name, task) strcpy((name), (task)->comm)
#define from_kuid(namespace, uid) 0
#define current_user_ns() NULL
#define current_uid() 0
#define down_read(lock) ((void)(lock))
#define up_read(lock) ((void)(lock))
struct rlimit { int nothing; };

/* No address of the process lies in the first page; what is not copied is counted. */
#define access_ok(address, bytes) ((void)(address), 1)
unsigned long copy_from_user(void *to, const void *from, unsigned long bytes);
unsigned long copy_to_user(void *to, const void *from, unsigned long bytes);
#define __put_user(value, at) ({ *(at) = (value); 0; })

/* ---- files and mappings ---- */

struct file;
struct inode { void *i_private; };
struct vm_area_struct;
struct seq_file;
struct module;
struct file_operations {
	struct module *owner;
	int (*open)(struct inode *inode, struct file *file);
	int (*release)(struct inode *inode, struct file *file);
	long (*unlocked_ioctl)(struct file *file, unsigned int request, unsigned long argument);
	int (*mmap)(struct file *file, struct vm_area_struct *vma);
	ssize_t (*read)(struct file *file, char *to, size_t bytes, off_t *at);
	off_t (*llseek)(struct file *file, off_t at, int whence);
};
#define FMODE_READ 1U
#define FMODE_WRITE 2U
struct file {
	const struct file_operations *f_op;
	void *private_data;
	atomic_long_t f_count;
	unsigned int f_mode;
};
int get_unused_fd_flags(unsigned int flags);
void put_unused_fd(int fd);
void fd_install(int fd, struct file *file);
int close_fd(unsigned int fd);
void fput(struct file *file);
#define get_file_rcu(file) atomic_long_inc_not_zero(&(file)->f_count)
#define nonseekable_open(inode, file) 0

struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long address;
	struct page *page;
	/* Where vmf_insert_pfn() put the page. */
	unsigned long pfn;
};
struct vm_operations_struct {
	void (*open)(struct vm_area_struct *vma);
	void (*close)(struct vm_area_struct *vma);
	vm_fault_t (*fault)(struct vm_fault *fault);
};
struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_pgoff, vm_flags;
	pgprot_t vm_page_prot;
	const struct vm_operations_struct *vm_ops;
	void *vm_private_data;
	struct file *file;
	struct vm_fault *faulting;
};
#define VM_READ 1
#define VM_WRITE 2
#define VM_SHARED 8
#define VM_PFNMAP 0x400
#define VM_DONTCOPY 0x20000
#define VM_DONTEXPAND 0x40000
#define VM_DONTDUMP 0x4000000
#define VM_FAULT_SIGBUS 2
#define VM_FAULT_SIGSEGV 0x40
#define VM_FAULT_NOPAGE 0x100
#define FOLL_WRITE 1
#define FOLL_FORCE 16
/* What the macro of nvmap's for older kernels names ends here. */
#define vmf_insert_pfn(vma, address, number) ((void)((vma)->faulting->pfn = (number)))
struct vm_area_struct *find_vma(struct mm_struct *mm, unsigned long address);
long get_user_pages(unsigned long address, unsigned long count, unsigned int flags, struct page **pages, void *vmas);

/* ---- dma-buf ---- */

enum dma_data_direction { DMA_BIDIRECTIONAL, DMA_TO_DEVICE, DMA_FROM_DEVICE };
struct device;
struct dma_buf;
struct scatterlist { dma_addr_t dma_address; };
struct sg_table { struct scatterlist *sgl; unsigned int nents; };
struct dma_buf_attachment { struct dma_buf *dmabuf; struct device *dev; void *priv; };
struct dma_buf_map { void *vaddr; bool is_iomem; };
struct dma_buf_ops {
	bool cache_sgt_mapping;
	int (*attach)(struct dma_buf *buf, struct dma_buf_attachment *attachment);
	void (*detach)(struct dma_buf *buf, struct dma_buf_attachment *attachment);
	struct sg_table *(*map_dma_buf)(struct dma_buf_attachment *attachment, enum dma_data_direction direction);
	void (*unmap_dma_buf)(struct dma_buf_attachment *attachment, struct sg_table *table, enum dma_data_direction direction);
	void (*release)(struct dma_buf *buf);
	int (*begin_cpu_access)(struct dma_buf *buf, enum dma_data_direction direction);
	int (*end_cpu_access)(struct dma_buf *buf, enum dma_data_direction direction);
	int (*mmap)(struct dma_buf *buf, struct vm_area_struct *vma);
	int (*vmap)(struct dma_buf *buf, struct dma_buf_map *map);
	void (*vunmap)(struct dma_buf *buf, struct dma_buf_map *map);
};
struct dma_buf {
	size_t size;
	struct file *file;
	const struct dma_buf_ops *ops;
	const char *exp_name;
	void *priv;
};
struct dma_buf_export_info {
	const char *exp_name;
	const struct dma_buf_ops *ops;
	size_t size;
	int flags;
	void *priv;
};
#define DEFINE_DMA_BUF_EXPORT_INFO(name) struct dma_buf_export_info name = { .exp_name = "" }
struct dma_buf *dma_buf_export(const struct dma_buf_export_info *info);
struct dma_buf *dma_buf_get(int fd);
#define sg_dma_address(sg) ((sg)->dma_address)
#define get_dma_buf(buf) atomic_inc(&(buf)->file->f_count)
#define dma_buf_put(buf) fput((buf)->file)

/* ---- devices ---- */

struct device_node { const char *name; };
struct property { const char *value; };
struct of_device_id { const char *compatible; };
struct device_dma_parameters { unsigned int max_segment_size; };
struct kobject { const char *name; };
struct device {
	struct kobject kobj;
	struct device_node *of_node;
	void *platform_data, *driver_data, *dma_mem;
	struct device_dma_parameters *dma_parms;
	u64 *dma_mask;
	u64 coherent_dma_mask;
};
struct platform_device { struct device dev; };
struct device_driver { const char *name; struct module *owner; const struct of_device_id *of_match_table; bool suppress_bind_attrs; };
struct platform_driver { int (*probe)(struct platform_device *); int (*remove)(struct platform_device *); struct device_driver driver; };
struct miscdevice { int minor; const char *name; const struct file_operations *fops; struct device *parent, *this_device; };
#define MISC_DYNAMIC_MINOR 255
int misc_register(struct miscdevice *device);
#define misc_deregister(device) ((void)(device))
int platform_driver_register(struct platform_driver *driver);
#define platform_driver_unregister(driver) ((void)(driver))
#define platform_device_unregister(device) ((void)(device))
#define platform_set_drvdata(device, data) ((void)((device)->dev.driver_data = (data)))
#define platform_get_drvdata(device) ((device)->dev.driver_data)
#define dev_get_drvdata(device) ((device)->driver_data)
#define dev_name(device) ((device)->kobj.name)
#define dev_set_name(device, format, text) ((void)((device)->kobj.name = (text)))
#define dma_set_coherent_mask(device, mask) ((void)((device)->coherent_dma_mask = (mask)))
#define DMA_ATTR_PRIVILEGED (1UL << 9)
#define DMA_ATTR_SKIP_CPU_SYNC (1UL << 5)
#define DMA_ATTR_ALLOC_SINGLE_PAGES (1UL << 7)
#define DMA_MAPPING_ERROR (~(dma_addr_t)0)
#define dma_mapping_error(device, address) ((address) == DMA_MAPPING_ERROR)
void *dma_alloc_attrs(struct device *device, size_t bytes, dma_addr_t *address, gfp_t gfp, unsigned long attributes);
#define dma_free_attrs(device, bytes, cpu, address, attributes) ((void)(device))
struct soc_device_attribute { const char *soc_id; };
#define soc_device_match(attributes) (strcmp((attributes)->soc_id, "TEGRA234") == 0)
struct arm64_ftr_reg { int nothing; };

struct reserved_mem;
struct reserved_mem_ops {
	int (*device_init)(struct reserved_mem *memory, struct device *device);
	void (*device_release)(struct reserved_mem *memory, struct device *device);
};
struct reserved_mem { const char *name; const struct reserved_mem_ops *ops; phys_addr_t base, size; void *priv; };
struct of_phandle_iterator { struct device_node *node; int at; };
int of_phandle_iterator_init(struct of_phandle_iterator *it, struct device_node *node, const char *list, const char *cells, int count);
int of_phandle_iterator_next(struct of_phandle_iterator *it);
struct reserved_mem *of_reserved_mem_lookup(struct device_node *node);
int of_reserved_mem_device_init(struct device *device);
#define of_device_is_available(node) 1
#define of_device_is_compatible(node, name) 0
#define of_property_read_u32(node, name, value) (-EINVAL)
#define of_property_read_string(node, name, value) (-EINVAL)
#define of_property_read_bool(node, name) 0
#define of_match_device(table, device) ((table) != NULL)
#define of_find_node_by_name(from, name) ((struct device_node *)NULL)
#define of_find_property(node, name, length) ((struct property *)NULL)
#define of_node_put(node) ((void)(node))
#define iommu_present(bus) 1
#define iommu_get_domain_for_dev(device) NULL

/* What the kernel has for debugging is not there. */
struct dentry;
#define debugfs_create_dir(name, parent) ((struct dentry *)ERR_PTR(-ENODEV))
#define debugfs_create_file(name, mode, parent, data, operations) ((struct dentry *)ERR_PTR(-ENODEV))
#define debugfs_create_u32(...) ((void)0)
#define debugfs_create_x32(...) ((void)0)
#define debugfs_create_x64(...) ((void)0)
#define debugfs_create_bool(...) ((void)0)
#define debugfs_create_ulong(...) ((void)0)
#define debugfs_remove(entry) ((void)(entry))
#define debugfs_remove_recursive(entry) ((void)(entry))
#define DEFINE_SIMPLE_ATTRIBUTE(name, get, set, format) static const struct file_operations name = { .owner = NULL }
struct seq_file { void *private; };
#define seq_printf(file, ...) ((void)(file))
#define seq_write(file, ...) ((void)(file))
#define seq_puts(file, ...) ((void)(file))
#define single_open(file, show, data) ((void)(show), 0)
#define seq_read NULL
#define seq_lseek NULL
#define single_release NULL

#endif
