/*
 * Physical memory: pages of tables, which have content here, and pages of buffers, which only have addresses.
 */
#include "oracle.h"

#include <linux/kernel-services.h>
#include <nvgpu/dma.h>
#include <nvgpu/gk20a.h>
#include <nvgpu/kmem.h>
#include <nvgpu/mm.h>
#include <nvgpu/nvgpu_mem.h>
#include <nvgpu/nvgpu_sgt.h>
#include <nvgpu/nvgpu_sgt_os.h>
#include <nvgpu/sizes.h>
#include "os/linux/dmabuf_priv.h"
#include <stdlib.h>

#define PAGE 4096ULL
#define BUFFERS 1024

/* ---- tables ---- */

/* Runs of pages in the order of their addresses: an address is never used twice. */
static struct table {
	u64 address;
	u64 bytes;
	u32 *words;
} *tables;
static size_t table_count, table_room;
static u64 next_table;

static struct dma_buf *buffers[BUFFERS];
static u32 buffer_count;
static u64 next_buffer_page;

void memory_reset(void)
{
	for (size_t i = 0; i < table_count; i++)
		free(tables[i].words);
	table_count = 0;
	next_table = MEMORY_TABLES;
	for (u32 i = 0; i < buffer_count; i++) {
		for (struct scatterlist *sg = buffers[i]->table.sgl; sg != NULL;) {
			struct scatterlist *next = sg->next;

			free(sg);
			sg = next;
		}
		free(buffers[i]->words);
		free(buffers[i]);
	}
	buffer_count = 0;
	next_buffer_page = MEMORY_BUFFERS / PAGE;
}

static struct table *find_table(u64 address)
{
	size_t low = 0, high = table_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (tables[middle].address + tables[middle].bytes <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < table_count && tables[low].address <= address ? &tables[low] : NULL;
}

u32 *memory_table(u64 address)
{
	struct table *table = find_table(address);

	return table == NULL || table->words == NULL ? NULL : table->words + (address - table->address) / sizeof(u32);
}

void memory_each_table(void (*each)(u64 address, const u32 *words, void *context), void *context)
{
	for (size_t i = 0; i < table_count; i++)
		for (u64 at = 0; tables[i].words != NULL && at < tables[i].bytes; at += PAGE)
			each(tables[i].address + at, tables[i].words + at / sizeof(u32), context);
}

int nvgpu_dma_alloc_flags_sys(struct gk20a *g, unsigned long flags, size_t size, struct nvgpu_mem *mem)
{
	u64 bytes = (size + PAGE - 1) / PAGE * PAGE;

	(void)g;
	(void)flags;
	if (table_count == table_room) {
		table_room = table_room == 0 ? 256 : table_room * 2;
		tables = realloc(tables, table_room * sizeof(*tables));
	}
	tables[table_count] = (struct table){ next_table, bytes, calloc(1, bytes) };
	mem->cpu_va = tables[table_count].words;
	mem->aperture = APERTURE_SYSMEM;
	mem->size = size;
	mem->aligned_size = bytes;
	mem->gpu_va = 0;
	/* Every other run lies far away, so that high bits of addresses of tables are seen too. */
	next_table += bytes + (table_count % 2 == 0 ? 0 : PAGE * 37);
	table_count++;
	return 0;
}

void nvgpu_dma_free_sys(struct gk20a *g, struct nvgpu_mem *mem)
{
	u64 address = nvgpu_mem_get_addr(g, mem);
	struct table *table = find_table(address);

	if (table != NULL) {
		free(table->words);
		table->words = NULL;
	}
	mem->cpu_va = NULL;
	mem->aperture = APERTURE_INVALID;
}

u64 nvgpu_mem_get_addr(struct gk20a *g, struct nvgpu_mem *mem)
{
	(void)g;
	if (mem->priv.sgt != NULL)
		return mem->priv.sgt->sgl->phys;
	for (size_t i = table_count; i-- > 0;)
		if (tables[i].words == mem->cpu_va && mem->cpu_va != NULL)
			return tables[i].address;
	return 0;
}

u64 nvgpu_mem_get_phys_addr(struct gk20a *g, struct nvgpu_mem *mem)
{
	return nvgpu_mem_get_addr(g, mem);
}

/* ---- scatter-gather tables ---- */

static void *sgl_next(void *sgl) { return ((struct scatterlist *)sgl)->next; }
static u64 sgl_phys(struct gk20a *g, void *sgl) { (void)g; return ((struct scatterlist *)sgl)->phys; }
static u64 sgl_dma(void *sgl) { return ((struct scatterlist *)sgl)->phys; }
static u64 sgl_length(void *sgl) { return ((struct scatterlist *)sgl)->length; }

static u64 sgl_ipa_to_pa(struct gk20a *g, void *sgl, u64 ipa, u64 *pa_len)
{
	(void)g;
	(void)sgl;
	(void)pa_len;
	return ipa;
}

static u64 sgl_gpu_addr(struct gk20a *g, void *sgl, struct nvgpu_gmmu_attrs *attrs)
{
	if (gpu_options(g)->iommu)
		return nvgpu_mem_iommu_translate(g, sgl_phys(g, sgl));
	return g->ops.mm.gmmu.gpu_phys_addr(g, attrs, sgl_phys(g, sgl));
}

static bool sgt_iommuable(struct gk20a *g, struct nvgpu_sgt *sgt) { (void)sgt; return gpu_options(g)->iommu; }
static void sgt_free(struct gk20a *g, struct nvgpu_sgt *sgt) { nvgpu_kfree(g, sgt); }

static const struct nvgpu_sgt_ops sgt_ops = {
	.sgl_next = sgl_next,
	.sgl_phys = sgl_phys,
	.sgl_ipa = sgl_phys,
	.sgl_ipa_to_pa = sgl_ipa_to_pa,
	.sgl_dma = sgl_dma,
	.sgl_length = sgl_length,
	.sgl_gpu_addr = sgl_gpu_addr,
	.sgt_iommuable = sgt_iommuable,
	.sgt_free = sgt_free,
};

struct nvgpu_sgt *nvgpu_linux_sgt_create(struct gk20a *g, struct sg_table *table)
{
	struct nvgpu_sgt *sgt = nvgpu_kzalloc(g, sizeof(*sgt));

	sgt->ops = &sgt_ops;
	sgt->sgl = table->sgl;
	return sgt;
}

struct nvgpu_sgt *nvgpu_sgt_os_create_from_mem(struct gk20a *g, struct nvgpu_mem *mem)
{
	struct nvgpu_sgt *sgt;
	struct scatterlist *sg;

	if (mem->priv.sgt != NULL)
		return nvgpu_linux_sgt_create(g, mem->priv.sgt);
	sgt = nvgpu_kzalloc(g, sizeof(*sgt));
	sg = nvgpu_kzalloc(g, sizeof(*sg));
	sg->phys = nvgpu_mem_get_addr(g, mem);
	sg->length = mem->aligned_size;
	sgt->ops = &sgt_ops;
	sgt->sgl = sg;
	return sgt;
}

bool nvgpu_iommuable(struct gk20a *g) { return gpu_options(g)->iommu; }

/* ---- dma-bufs ---- */

struct dma_buf *memory_new_buffer(u64 bytes, u64 run, int read_only)
{
	struct dma_buf *buf = calloc(1, sizeof(*buf));
	struct scatterlist **tail = &buf->table.sgl;

	if (buffer_count == BUFFERS) {
		fprintf(stderr, "too many buffers\n");
		exit(3);
	}
	buf->size = bytes;
	buf->number = buffer_count;
	buf->references = 1;
	buf->file_storage.f_mode = read_only ? FMODE_READ | FMODE_PREAD : FMODE_READ | FMODE_PREAD | FMODE_WRITE | FMODE_PWRITE;
	buf->file = &buf->file_storage;
	for (u64 left = bytes / PAGE; left > 0;) {
		u64 pages = left < run ? left : run;
		struct scatterlist *sg = calloc(1, sizeof(*sg));

		sg->phys = next_buffer_page * PAGE;
		sg->length = pages * PAGE;
		*tail = sg;
		tail = &sg->next;
		/* A gap between runs: neighbours are never consecutive by accident. */
		next_buffer_page += pages + 1;
		left -= pages;
	}
	buffers[buffer_count++] = buf;
	return buf;
}

struct dma_buf *memory_buffer(u32 number)
{
	return number < buffer_count ? buffers[number] : NULL;
}

int memory_find(u64 address, u32 *number, u64 *page)
{
	for (u32 i = 0; i < buffer_count; i++) {
		u64 before = 0;

		for (struct scatterlist *sg = buffers[i]->table.sgl; sg != NULL; sg = sg->next) {
			if (address >= sg->phys && address - sg->phys < sg->length) {
				*number = i;
				*page = before + (address - sg->phys) / PAGE;
				return 1;
			}
			before += sg->length / PAGE;
		}
	}
	return 0;
}

/* Descriptors of buffers are their numbers plus 100. */
struct dma_buf *dma_buf_get(int fd)
{
	struct dma_buf *buf = fd < 100 ? NULL : memory_buffer((u32)fd - 100);

	if (buf == NULL)
		return ERR_PTR(files_is_open(fd) ? -EINVAL : -EBADF);
	buf->references++;
	return buf;
}

void dma_buf_put(struct dma_buf *dmabuf) { dmabuf->references--; }

struct sg_table *nvgpu_mm_pin(struct device *dev, struct dma_buf *dmabuf, struct dma_buf_attachment **attachment,
			      enum dma_data_direction direction)
{
	(void)dev;
	(void)direction;
	*attachment = NULL;
	return &dmabuf->table;
}

void nvgpu_mm_unpin(struct device *dev, struct dma_buf *dmabuf, struct dma_buf_attachment *attachment, struct sg_table *sgt)
{
	(void)dev;
	(void)dmabuf;
	(void)attachment;
	(void)sgt;
}

void *gk20a_dmabuf_vmap(struct dma_buf *dmabuf)
{
	if (dmabuf->words == NULL)
		dmabuf->words = calloc(1, dmabuf->size);
	return dmabuf->words;
}

void gk20a_dmabuf_vunmap(struct dma_buf *dmabuf, void *addr)
{
	(void)dmabuf;
	(void)addr;
}

enum nvgpu_aperture gk20a_dmabuf_aperture(struct gk20a *g, struct dma_buf *dmabuf)
{
	(void)g;
	(void)dmabuf;
	return APERTURE_SYSMEM;
}

int gk20a_dmabuf_alloc_or_get_drvdata(struct dma_buf *dmabuf, struct device *dev, struct gk20a_dmabuf_priv **priv_ptr)
{
	if (dmabuf->driver_data == NULL) {
		dmabuf->driver_data = nvgpu_kzalloc(dev->g, sizeof(*dmabuf->driver_data));
		nvgpu_mutex_init(&dmabuf->driver_data->lock);
	}
	*priv_ptr = dmabuf->driver_data;
	return 0;
}

struct gk20a_dmabuf_priv *gk20a_dma_buf_get_drvdata(struct dma_buf *dmabuf, struct device *dev)
{
	(void)dev;
	return dmabuf->driver_data;
}
