/* The GPU as the driver's probe leaves it: the chip's own table of functions, and what a Jetson Orin enables. */
#include "oracle.h"

#include "os_linux_services.h"
#include <nvgpu/cbc.h>
#include <nvgpu/comptags.h>
#include <nvgpu/enabled.h>
#include <nvgpu/errata.h>
#include <nvgpu/gk20a.h>
#include <nvgpu/mm.h>
#include <nvgpu/sizes.h>
#include "hal/init/hal_ga10b.h"
#include <stdlib.h>

/* Syncpoints of a Jetson Orin, and bytes of the window of each. */
#define SYNCPOINTS 1024
#define SYNCPOINT_BYTES 0x10000

static struct {
	struct nvgpu_os_linux l;
	struct gpu_options options;
	struct device dev;
	struct nvgpu_cbc cbc;
} gpu;

struct gpu_options *gpu_options(struct gk20a *g)
{
	(void)g;
	return &gpu.options;
}

struct device *dev_from_gk20a(struct gk20a *g)
{
	(void)g;
	return &gpu.dev;
}

static int done(struct gk20a *g, ...) { (void)g; return 0; }
static int flushed(struct gk20a *g, bool invalidate) { (void)g; (void)invalidate; return 0; }
static int invalidated(struct gk20a *g, struct nvgpu_mem *pdb) { (void)g; (void)pdb; return 0; }
static int tags_cleared(struct gk20a *g, enum nvgpu_cbc_op op, u32 min, u32 max) { (void)g; (void)op; (void)min; (void)max; return 0; }

struct gk20a *gpu_new(const struct gpu_options *options)
{
	struct gk20a *g = &gpu.l.g;

	memset(&gpu, 0, sizeof(gpu));
	gpu.options = *options;
	gpu.dev.g = g;
	nvgpu_init_enabled_flags(g);
	if (nvgpu_init_errata_flags(g) != 0 || ga10b_init_hal(g) != 0) {
		fprintf(stderr, "the driver does not initialize its ga10b functions\n");
		exit(3);
	}
	g->name = "ga10b";
	g->mm.g = g;
	g->mm.disable_bigpage = !options->big_pages;
	g->ops.mm.get_default_va_sizes(NULL, &g->mm.channel.user_size, &g->mm.channel.kernel_size);
	if (g->ops.mm.pd_cache_init(g) != 0)
		exit(3);

	/* What gk20a_init_linux_characteristics() and the platform's probe enable. */
	nvgpu_set_enabled(g, NVGPU_HAS_SYNCPOINTS, true);
	nvgpu_set_enabled(g, NVGPU_SUPPORT_REMAP, true);
	nvgpu_set_enabled(g, NVGPU_SUPPORT_MAPPING_MODIFY, true);
	nvgpu_set_enabled(g, NVGPU_MM_HONORS_APERTURE, true);
	nvgpu_set_enabled(g, NVGPU_MM_UNIFIED_MEMORY, true);
	nvgpu_set_enabled(g, NVGPU_SUPPORT_NVLINK, false);

	/* Operations on the hardware that leave no trace in what is compared. */
	g->ops.mm.cache.l2_flush = flushed;
	g->ops.mm.cache.fb_flush = (int (*)(struct gk20a *))done;
	g->ops.fb.tlb_invalidate = invalidated;
	g->ops.cbc.ctrl = tags_cleared;

	g->syncpt_unit_base = MEMORY_SYNCPOINTS;
	g->syncpt_size = SYNCPOINT_BYTES;
	g->syncpt_unit_size = (size_t)SYNCPOINTS * SYNCPOINT_BYTES;
	if (nvgpu_mem_create_from_phys(g, &g->syncpt_mem, g->syncpt_unit_base, g->syncpt_unit_size / SZ_4K) != 0)
		exit(3);

	g->cbc = &gpu.cbc;
	if (options->tags > 0 && gk20a_comptag_allocator_init(g, &g->cbc->comp_tags, options->tags) != 0)
		exit(3);
	return g;
}

struct gk20a *nvgpu_get(struct gk20a *g) { return g; }
void nvgpu_put(struct gk20a *g) { (void)g; }
int gk20a_busy(struct gk20a *g) { (void)g; return 0; }
void gk20a_idle(struct gk20a *g) { (void)g; }
u32 nvgpu_nvhost_syncpt_unit_interface_get_byte_offset(struct gk20a *g, u32 syncpt_id)
{
	(void)g;
	return syncpt_id * SYNCPOINT_BYTES;
}

bool nvgpu_is_hypervisor_mode(struct gk20a *g) { (void)g; return false; }
bool nvgpu_platform_is_silicon(struct gk20a *g) { (void)g; return true; }
void nvgpu_init_sim_support_ga10b(struct gk20a *g) { (void)g; }
int nvgpu_pg_elpg_ms_disable(struct gk20a *g) { (void)g; return 0; }
int nvgpu_pg_elpg_ms_enable(struct gk20a *g) { (void)g; return 0; }
int nvgpu_pg_elpg_disable(struct gk20a *g) { (void)g; return 0; }
int nvgpu_pg_elpg_enable(struct gk20a *g) { (void)g; return 0; }
int nvgpu_tegra_fuse_read_gcplex_config_fuse(struct gk20a *g, u32 *val) { (void)g; *val = 0; return 0; }

/* ---- registers: what was written or set, zero otherwise ---- */

#define REGISTERS 4096

static struct {
	u32 address, value;
} registers[REGISTERS];
static u32 register_count;

void gpu_reset_registers(void) { register_count = 0; }

void gpu_set_register(u32 address, u32 value)
{
	for (u32 i = 0; i < register_count; i++)
		if (registers[i].address == address) {
			registers[i].value = value;
			return;
		}
	if (register_count == REGISTERS) {
		fprintf(stderr, "too many registers\n");
		exit(3);
	}
	registers[register_count].address = address;
	registers[register_count++].value = value;
}

u32 nvgpu_readl(struct gk20a *g, u32 r)
{
	(void)g;
	for (u32 i = 0; i < register_count; i++)
		if (registers[i].address == r)
			return registers[i].value;
	return 0;
}

u32 nvgpu_readl_impl(struct gk20a *g, u32 r) { return nvgpu_readl(g, r); }
void nvgpu_writel(struct gk20a *g, u32 r, u32 v) { (void)g; gpu_set_register(r, v); }
void nvgpu_writel_relaxed(struct gk20a *g, u32 r, u32 v) { nvgpu_writel(g, r, v); }
void nvgpu_writel_check(struct gk20a *g, u32 r, u32 v) { nvgpu_writel(g, r, v); }
void nvgpu_writel_loop(struct gk20a *g, u32 r, u32 v) { nvgpu_writel(g, r, v); }
