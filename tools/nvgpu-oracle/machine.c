/*
 * A GPU that serves requests: its units as the driver's start leaves them. Registers are a table (gpu.c), so engines are idle
 * and everything that the driver asks of the hardware is done at once. The firmware answers every method with success.
 */
#include "machine.h"
#include "oracle.h"

#include "os_linux_services.h"
#include <nvgpu/falcon.h>
#include <nvgpu/gr/gr_falcon.h>
#include <nvgpu/gr/global_ctx.h>
#include "common/fbp/fbp_priv.h"
#include "common/gr/gr_config_priv.h"
#include <nvgpu/ltc.h>
#include "common/gr/gr_falcon_priv.h"
#include "common/gr/gr_intr_priv.h"
#include "common/gr/gr_priv.h"
#include "common/gr/obj_ctx_priv.h"
#include "os/linux/channel.h"
#include <nvgpu/channel.h>
#include <nvgpu/device.h>
#include <nvgpu/ecc.h>
#include <nvgpu/enabled.h>
#include <nvgpu/engines.h>
#include <nvgpu/fbp.h>
#include <nvgpu/fifo.h>
#include <nvgpu/fifo/userd.h>
#include <nvgpu/gr/config.h>
#include <nvgpu/gr/ctx.h>
#include <nvgpu/gr/gr.h>
#include <nvgpu/gr/gr_falcon.h>
#include <nvgpu/gr/hwpm_map.h>
#include <nvgpu/gr/obj_ctx.h>
#include <nvgpu/gr/zcull.h>
#include <nvgpu/grmgr.h>
#include <nvgpu/nvhost.h>
#include <nvgpu/runlist.h>
#include <nvgpu/sizes.h>
#include <nvgpu/tsg.h>
#include <nvgpu/vm.h>
#include <stdlib.h>

#include "characteristics.inc"

/* Bytes of context images as the firmware tells them; which they are is not known, and no answer shows it. */
#define GOLDEN_BYTES 0x20000
#define PM_BYTES 0x10000
#define PREEMPT_BYTES 0x80000
/* An Orin's answer to ZCULL_GET_CTX_SIZE, from field notes. */
#define ZCULL_BYTES 164352

/* 2 GPCs of 4 TPCs of 2 SMs. */
static u32 one(struct gk20a *g) { (void)g; return 1; }
static u64 l2_bytes(struct gk20a *g) { (void)g; return 4 << 20; }
static u32 two(struct gk20a *g) { (void)g; return 2; }
static u32 four(struct gk20a *g) { (void)g; return 4; }
static u32 gpc_mask(struct gk20a *g) { (void)g; return 3; }
static u32 tpc_mask(struct gk20a *g, struct nvgpu_gr_config *config, u32 gpc) { (void)g; (void)config; (void)gpc; return 15; }
static u32 tpc_count(struct gk20a *g, struct nvgpu_gr_config *config, u32 gpc) { (void)g; (void)config; (void)gpc; return 4; }
static u32 pes_mask(struct gk20a *g, struct nvgpu_gr_config *config, u32 gpc, u32 pes) { (void)g; (void)config; (void)gpc; return pes == 0 ? 3 : 12; }

static void perfmons(struct gk20a *g, u32 *sys, u32 *fbp, u32 *gpc) { (void)g; *sys = *fbp = *gpc = 1; }

static int gpc_ids(struct gk20a *g, u32 count, struct nvgpu_gpc *gpcs)
{
	(void)g;
	for (u32 i = 0; i < count; i++) {
		gpcs[i].logical_id = i;
		gpcs[i].physical_id = i;
		gpcs[i].gpcgrp_id = 0;
	}
	return 0;
}

/* Where the registers of a runlist lie. */
#define RUNLIST_BASE 0x01000000U
#define RUNLIST_BYTES 0x10000U

/* Two PBDMAs for the graphics runlist, one for each of the others. */
static void pbdmas(struct gk20a *g, u32 base, struct nvgpu_pbdma_info *info)
{
	u32 runlist = (base - RUNLIST_BASE) / RUNLIST_BYTES;

	(void)g;
	for (u32 i = 0; i < PBDMA_PER_RUNLIST_SIZE; i++) {
		info->pbdma_id[i] = runlist == 0 || i == 0 ? runlist * 2 + i : NVGPU_INVALID_PBDMA_ID;
		info->pbdma_pri_base[i] = 0x00040000 + info->pbdma_id[i] * 0x2000;
	}
}

static void add_device(struct gk20a *g, u32 type, u32 instance, u32 engine, u32 runlist, u32 runlist_engine)
{
	struct nvgpu_device *dev = nvgpu_kzalloc(g, sizeof(*dev));

	dev->type = type;
	dev->inst_id = instance;
	dev->engine_id = engine;
	dev->fault_id = 64 + engine;
	dev->runlist_id = runlist;
	dev->engine = true;
	dev->rleng_id = runlist_engine;
	/* The hardware's window of a runlist. */
	dev->rl_pri_base = RUNLIST_BASE + runlist * RUNLIST_BYTES;
	nvgpu_list_add_tail(&dev->dev_list_node, &g->devs->devlist_heads[type]);
	g->devs->dev_counts[type]++;
}

/* How many copy engines an Orin has, and which runlist serves which, is not known. */
static void add_devices(struct gk20a *g)
{
	g->devs = nvgpu_kzalloc(g, sizeof(*g->devs));
	for (u32 i = 0; i < NVGPU_MAX_DEVTYPE; i++)
		nvgpu_init_list_node(&g->devs->devlist_heads[i]);
	add_device(g, NVGPU_DEVTYPE_GRAPHICS, 0, 0, 0, 0);
	add_device(g, NVGPU_DEVTYPE_LCE, 0, 1, 0, 1);
	add_device(g, NVGPU_DEVTYPE_LCE, 1, 2, 1, 0);
	add_device(g, NVGPU_DEVTYPE_LCE, 2, 3, 2, 0);
}

/* 2 partitions with 4 slices of L2 each. */
static void add_memory_partitions(struct gk20a *g)
{
	g->fbp = nvgpu_kzalloc(g, sizeof(*g->fbp));
	g->fbp->num_fbps = 2;
	g->fbp->max_fbps_count = 2;
	g->fbp->fbp_en_mask = 3;
	g->fbp->fbp_l2_en_mask = nvgpu_kzalloc(g, 2 * sizeof(u32));
	g->fbp->fbp_l2_en_mask[0] = g->fbp->fbp_l2_en_mask[1] = 15;
}

static void done(const char *what, int err)
{
	if (err != 0) {
		fprintf(stderr, "%s: %d\n", what, err);
		exit(3);
	}
}

static int method(struct gk20a *g, u32 code, u32 data, u32 *answer) { (void)g; (void)code; (void)data; (void)answer; return 0; }
static bool no_interrupt(struct gk20a *g, u32 engine, u32 *pending) { (void)g; (void)engine; *pending = 0; return false; }
static void debug_mode(struct gk20a *g, bool on) { (void)g; (void)on; }
static int image_offset(struct gk20a *g, u32 addr, u32 most, u32 *offsets, u32 *addresses, u32 *count)
{
	(void)g;
	(void)most;
	*count = 1;
	offsets[0] = 0x10000 + addr % 0x8000;
	addresses[0] = addr;
	return 0;
}
static void nothing(struct gk20a *g) { (void)g; }
static bool no(struct gk20a *g) { (void)g; return false; }
static u32 channels(struct gk20a *g) { (void)g; return 512; }

static void add_graphics(struct gk20a *g)
{
	struct nvgpu_gr *gr;

	g->ops.gr.ecc.fecs_ecc_init = NULL;
	done("nvgpu_gr_alloc", nvgpu_gr_alloc(g));
	gr = &g->gr[0];
	gr->config = nvgpu_gr_config_init(g);
	done("nvgpu_gr_config_init", gr->config == NULL);
	done("sm_id_table", g->ops.gr.config.init_sm_id_table(g, gr->config));
	gr->falcon->sizes.golden_image_size = GOLDEN_BYTES;
	gr->falcon->sizes.pm_ctxsw_image_size = PM_BYTES;
	gr->falcon->sizes.preempt_image_size = PREEMPT_BYTES;
	gr->falcon->sizes.zcull_image_size = ZCULL_BYTES;
	done("nvgpu_gr_obj_ctx_init", nvgpu_gr_obj_ctx_init(g, &gr->golden_image, GOLDEN_BYTES));
	gr->golden_image->ready = true;
	done("nvgpu_gr_hwpm_map_init", nvgpu_gr_hwpm_map_init(g, &gr->hwpm_map, PM_BYTES));
	done("nvgpu_gr_init_ctx_bufs", nvgpu_gr_init_ctx_bufs(g, gr));
	done("nvgpu_gr_config_init_map_tiles", nvgpu_gr_config_init_map_tiles(g, gr->config));
	done("nvgpu_gr_zcull_init", nvgpu_gr_zcull_init(g, &gr->zcull, ZCULL_BYTES, gr->config));
	gr->initialized = true;
	gr->sw_ready = true;
	g->ops.gr.falcon.ctrl_ctxsw = method;
}

static struct gk20a *machine;
struct gk20a *machine_gpu(void) { return machine; }

struct gk20a *machine_new(void)
{
	const struct gpu_options options = { 0 };
	struct gk20a *g;
	struct nvgpu_os_linux *l;

	memory_reset();
	os_reset();
	files_reset();
	services_reset();
	gpu_reset_registers();
	g = machine = gpu_new(&options);
	l = nvgpu_os_linux_from_gk20a(g);
	nvgpu_init_list_node(&l->ctrl_privs);
	nvgpu_mutex_init(&l->ctrl_privs_lock);
	nvgpu_mutex_init(&g->dbg_sessions_lock);
	nvgpu_mutex_init(&g->sched_ctrl.control_lock);
	nvgpu_mutex_init(&g->static_pg_lock);
	nvgpu_rwsem_init(&g->deterministic_busy);
	g->sw_ready = true;
	/* What the driver's probe sets (os/linux/driver_common.c). */
	g->ptimer_src_freq = 31250000;
	g->poll_timeout_default = 3000;
	g->ch_wdt_init_limit_ms = 5000;
	g->runlist_interleave = true;
	g->tsg_timeslice_low_priority_us = NVGPU_TSG_TIMESLICE_LOW_PRIORITY_US;
	g->tsg_timeslice_medium_priority_us = NVGPU_TSG_TIMESLICE_MEDIUM_PRIORITY_US;
	g->tsg_timeslice_high_priority_us = NVGPU_TSG_TIMESLICE_HIGH_PRIORITY_US;
	g->tsg_timeslice_min_us = NVGPU_TSG_TIMESLICE_MIN_US;
	g->tsg_timeslice_max_us = NVGPU_TSG_TIMESLICE_MAX_US;
	g->tsg_dbg_timeslice_max_us = NVGPU_TSG_DBG_TIMESLICE_MAX_US_DEFAULT;
	nvgpu_init_list_node(&g->profiler_objects);

	g->ops.channel.count = channels;
	g->ops.top.get_max_gpc_count = two;
	g->ops.top.get_max_tpc_per_gpc_count = four;
	g->ops.priv_ring.get_gpc_count = two;
	g->ops.gr.config.get_gpc_mask = gpc_mask;
	g->ops.gr.config.get_gpc_tpc_mask = tpc_mask;
	g->ops.gr.config.get_tpc_count_in_gpc = tpc_count;
	g->ops.gr.config.get_zcull_count_in_gpc = tpc_count;
	g->ops.gr.config.get_pes_tpc_mask = pes_mask;
	g->ops.grmgr.discover_gpc_ids = gpc_ids;
	g->ops.grmgr.load_timestamp_prod = NULL;
	g->ops.grmgr.get_gpcgrp_count = NULL;
	g->ops.ltc.determine_L2_size_bytes = l2_bytes;
	g->ops.top.get_max_ltc_per_fbp = one;
	g->ops.top.get_max_lts_per_ltc = four;
	g->ops.clk.get_maxrate = NULL;
	g->ltc = nvgpu_kzalloc(g, sizeof(*g->ltc));
	g->ltc->ltc_count = 2;
	g->ltc->slices_per_ltc = 4;

	g->ops.runlist.get_pbdma_info = pbdmas;
	/* The kernel's own mapping of USERD pages is not looked at. */
	g->ops.userd.setup_sw = nvgpu_userd_init_slabs;
	g->ops.mm.is_bar1_supported = no;
	g->ops.mc.is_stall_and_eng_intr_pending = no_interrupt;
	g->ops.ltc.flush = nothing;
	g->ops.fb.set_debug_mode = debug_mode;
	g->ops.perf.get_num_hwpm_perfmon = perfmons;
	/* Where registers lie in images of contexts: the firmware's lists are not here, any place is as good. */
	g->ops.gr.get_ctx_buffer_offsets = image_offset;
	g->ops.gr.falcon.dump_stats = nothing;
	nvgpu_set_enabled(g, NVGPU_SUPPORT_PES_FS, false);
	nvgpu_set_enabled(g, NVGPU_SUPPORT_ROP_IN_GPC, false);
	nvgpu_set_enabled(g, NVGPU_SUPPORT_MIG, false);
	/* Sessions of the clock arbiter: its requests are not made. */
	nvgpu_set_enabled(g, NVGPU_CLK_ARB_ENABLED, false);

	done("chip_init_gpu_characteristics", g->ops.chip_init_gpu_characteristics(g));
	/* Read from registers at the start: what an Orin shows. */
	g->params.gpu_arch = 0x170;
	g->params.gpu_impl = 0xb;
	g->params.gpu_rev = 0xa1;
	g->params.sm_arch_sm_version = 0x807;
	g->params.sm_arch_spa_version = 0x806;
	g->params.sm_arch_warp_count = 0x60;
	/* Those of gk20a_init_linux_characteristics() that gpu.c does not set. */
	nvgpu_set_enabled(g, NVGPU_SUPPORT_DETERMINISTIC_OPTS, true);
	nvgpu_set_enabled(g, NVGPU_SUPPORT_BUFFER_METADATA, true);
	nvgpu_set_enabled(g, NVGPU_SUPPORT_MULTI_PROCESS_TSG_SHARING, true);
	nvgpu_set_enabled(g, NVGPU_SUPPORT_SYNC_FENCE_FDS, true);
	/* An Orin's characteristics say so. */
	nvgpu_set_enabled(g, NVGPU_SUPPORT_VPR, true);

	add_devices(g);
	add_memory_partitions(g);
	g->mm.bar2.vm = nvgpu_vm_init(g, g->ops.mm.gmmu.get_default_big_page_size(), SZ_64K, 0, (512U << 20) - SZ_64K, 0, true, false, "bar2");
	done("bar2", g->mm.bar2.vm == NULL);
	done("nvgpu_init_gr_manager", nvgpu_init_gr_manager(g));
	done("nvgpu_fifo_setup_sw", nvgpu_fifo_setup_sw(g));
	done("nvgpu_channel_init_support_linux", nvgpu_channel_init_support_linux(l));
	add_graphics(g);
	return g;
}
