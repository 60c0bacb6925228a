/* The GPU and its users at the time of a fault: one channel in one group, and what the driver's handlers ask for. */
#include "oracle.h"
#include "world.h"

#include <linux/kernel-services.h>
#include <nvgpu/channel.h>
#include <nvgpu/device.h>
#include <nvgpu/dma.h>
#include <nvgpu/ecc.h>
#include <nvgpu/enabled.h>
#include <nvgpu/engines.h>
#include <nvgpu/gk20a.h>
#include <nvgpu/gr/config.h>
#include <nvgpu/mmu_fault.h>
#include <nvgpu/rc.h>
#include <nvgpu/tsg.h>
#include "common/gr/gr_config_priv.h"
#include "common/gr/gr_intr_priv.h"
#include "common/gr/gr_priv.h"
#include <stdlib.h>

#define CHANNELS 512

void notifier_attach(struct nvgpu_channel *ch);

static struct nvgpu_channel channels[CHANNELS];
static struct nvgpu_tsg tsgs[CHANNELS];
static struct nvgpu_tsg_sm_error_state sm_states[WORLD_SMS];
static struct nvgpu_gr gr;
static struct nvgpu_gr_intr gr_intr;
static struct nvgpu_gr_config gr_config;
static u32 gpc_tpcs[2] = { 4, 4 };
static u32 tpc_numbers[4] = { 0, 1, 2, 3 };
static u32 *gpc_tpc_numbers[2] = { tpc_numbers, tpc_numbers };
static struct nvgpu_device graphics, copy[6];
static const struct nvgpu_device *engines[1 + 6];
static struct world now;

/* What the driver does after it has said what happened. */
static void recover(struct gk20a *g, u32 engines, u32 id, unsigned int id_type, unsigned int rc_type, struct mmu_fault_info *fault)
{
	(void)engines;
	(void)fault;
	if (rc_type == RC_TYPE_MMU_FAULT && id_type == ID_TYPE_TSG)
		nvgpu_tsg_set_ctx_mmu_error(g, &g->fifo.tsg[id]);
}

/* Copy engines of an Orin, as the fault ids count them. */
static u32 copy_engines(struct gk20a *g) { (void)g; return 6; }
static void no_fifo_access(struct gk20a *g, bool enable) { (void)g; (void)enable; }
static void flushed(struct gk20a *g) { (void)g; }
static void fault_reset(struct gk20a *g, struct nvgpu_channel *ch, bool eng, bool pbdma) { (void)g; (void)ch; (void)eng; (void)pbdma; }
static void disabled(struct nvgpu_tsg *tsg) { (void)tsg; }
static int preempted(struct gk20a *g, struct nvgpu_tsg *tsg) { (void)g; (void)tsg; return 0; }
static int controlled(struct gk20a *g, u32 method, u32 data, u32 *answer) { (void)g; (void)method; (void)data; (void)answer; return 0; }
static bool no_debugger(struct gk20a *g) { (void)g; return false; }

struct world *world_new(u32 channel, u32 group, const char *comm)
{
	const struct gpu_options options = { 0 };
	struct gk20a *g;
	struct nvgpu_channel *ch = &channels[channel];
	struct nvgpu_tsg *tsg = &tsgs[group];

	memory_reset();
	os_reset();
	gpu_reset_registers();
	g = gpu_new(&options);
	memset(channels, 0, sizeof(channels));
	memset(tsgs, 0, sizeof(tsgs));
	memset(&gr, 0, sizeof(gr));
	memset(&gr_config, 0, sizeof(gr_config));
	nvgpu_mutex_init(&g->dbg_sessions_lock);
	nvgpu_mutex_init(&g->fifo.engines_reset_mutex);

	g->fifo.g = g;
	g->fifo.num_channels = CHANNELS;
	g->fifo.channel = channels;
	g->fifo.tsg = tsgs;
	ch->g = g;
	ch->chid = channel;
	ch->tsgid = group;
	ch->referenceable = true;
	snprintf(ch->thread_name, sizeof(ch->thread_name), "%s", comm);
	nvgpu_init_list_node(&ch->ch_entry);
	notifier_attach(ch);
	tsg->g = g;
	tsg->tsgid = group;
	tsg->in_use = true;
	tsg->abortable = true;
	nvgpu_init_list_node(&tsg->ch_list);
	nvgpu_rwsem_init(&tsg->ch_list_lock);
	nvgpu_list_add_tail(&ch->ch_entry, &tsg->ch_list);
	memset(sm_states, 0, sizeof(sm_states));
	tsg->sm_error_states = sm_states;
	nvgpu_mutex_init(&tsg->sm_exception_mask_lock);

	gr_config.g = g;
	gr_config.max_gpc_count = gr_config.gpc_count = 2;
	gr_config.max_tpc_per_gpc_count = 4;
	gr_config.tpc_count = 8;
	gr_config.sm_count_per_tpc = 2;
	gr_config.no_of_sm = WORLD_SMS;
	gr_config.gpc_tpc_count = gpc_tpcs;
	gr_config.gpc_tpc_physical_id_map = gpc_tpc_numbers;
	gr.g = g;
	gr.config = &gr_config;
	memset(&gr_intr, 0, sizeof(gr_intr));
	nvgpu_spinlock_init(&gr_intr.ch_tlb_lock);
	gr.intr = &gr_intr;
	nvgpu_mutex_init(&gr.ctxsw_disable_mutex);
	g->gr = &gr;
	g->num_gr_instances = 1;
	if (nvgpu_ecc_init_support(g) != 0 || g->ops.gr.ecc.gpc_tpc_ecc_init(g) != 0 || g->ops.gr.ecc.fecs_ecc_init(g) != 0)
		exit(3);
	memset(&graphics, 0, sizeof(graphics));
	graphics.type = NVGPU_DEVTYPE_GRAPHICS;
	graphics.fault_id = 64;
	engines[0] = &graphics;
	for (u32 i = 0; i < 6; i++) {
		memset(&copy[i], 0, sizeof(copy[i]));
		copy[i].type = NVGPU_DEVTYPE_LCE;
		copy[i].inst_id = i;
		/* Engine 5 has fault id 18 in the log of an Orin. */
		copy[i].engine_id = 2 + i;
		copy[i].fault_id = 15 + i;
		engines[1 + i] = &copy[i];
	}
	g->fifo.active_engines = engines;
	g->fifo.num_engines = 7;
	g->fifo.max_subctx_count = 64;
	g->fifo.intr.pbdma.device_fatal_0 = g->ops.pbdma.device_fatal_0_intr_descs();
	g->fifo.intr.pbdma.channel_fatal_0 = g->ops.pbdma.channel_fatal_0_intr_descs();
	g->fifo.intr.pbdma.restartable_0 = g->ops.pbdma.restartable_0_intr_descs();
	g->ops.fifo.recover = recover;
	g->ops.top.get_num_lce = copy_engines;
	g->ops.gr.init.fifo_access = no_fifo_access;
	g->ops.ltc.flush = flushed;
	g->ops.channel.reset_faulted = fault_reset;
	g->ops.tsg.disable = disabled;
	g->ops.gr.falcon.ctrl_ctxsw = controlled;
	g->ops.gr.falcon.dump_stats = flushed;
	g->ops.channel.abort_clean_up = NULL;
	g->ops.fifo.preempt_tsg = preempted;
	g->ops.gr.sm_debugger_attached = no_debugger;
	if (nvgpu_dma_alloc_sys(g, 4096, &ch->inst_block) != 0)
		exit(3);
	now.instance = nvgpu_mem_get_addr(g, &ch->inst_block);
	now.g = g;
	now.channel = ch;
	now.tsg = tsg;
	return &now;
}

bool nvgpu_is_powered_on(struct gk20a *g) { (void)g; return true; }

struct nvgpu_channel *nvgpu_channel_get__func(struct nvgpu_channel *ch, const char *caller) { (void)caller; return ch; }
void nvgpu_channel_put__func(struct nvgpu_channel *ch, const char *caller) { (void)ch; (void)caller; }

void nvgpu_channel_set_error_notifier(struct gk20a *g, struct nvgpu_channel *ch, u32 error_notifier)
{
	g->ops.channel.set_error_notifier(ch, error_notifier);
}

struct nvgpu_channel *nvgpu_channel_from_id__func(struct gk20a *g, u32 chid, const char *caller)
{
	(void)g;
	(void)caller;
	return chid == now.channel->chid ? now.channel : NULL;
}

struct nvgpu_channel *nvgpu_channel_refch_from_inst_ptr(struct gk20a *g, u64 inst_ptr)
{
	(void)g;
	return inst_ptr == now.instance ? now.channel : NULL;
}

u32 nvgpu_grmgr_get_gr_gpc_phys_id(struct gk20a *g, u32 gr_instance_id, u32 gpc_local_id)
{
	(void)g;
	(void)gr_instance_id;
	return gpc_local_id;
}

const struct nvgpu_device *nvgpu_device_get(struct gk20a *g, u32 type, u32 inst_id)
{
	(void)g;
	if (type == NVGPU_DEVTYPE_GRAPHICS)
		return inst_id == 0 ? &graphics : NULL;
	return type == NVGPU_DEVTYPE_LCE && inst_id < 6 ? &copy[inst_id] : NULL;
}


void nvgpu_sw_quiesce(struct gk20a *g) { (void)g; }

bool nvgpu_channel_mark_error(struct gk20a *g, struct nvgpu_channel *ch) { (void)g; (void)ch; return false; }
void nvgpu_channel_wakeup_wqs(struct gk20a *g, struct nvgpu_channel *ch) { (void)g; (void)ch; }
void nvgpu_channel_set_unserviceable(struct nvgpu_channel *ch) { (void)ch; }

void nvgpu_gr_fecs_trace_reset_buffer(struct gk20a *g) { (void)g; }

/* The safety services of other platforms. */
void nvgpu_report_err_to_sdl(struct gk20a *g, u32 hw_unit_id, u32 err_id)
{
	(void)g;
	(void)hw_unit_id;
	(void)err_id;
}
