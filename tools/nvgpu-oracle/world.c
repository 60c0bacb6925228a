/* The GPU and its users at the time of a fault: one channel in one group, and what the driver's handlers ask for. */
#include "oracle.h"
#include "world.h"

#include <linux/kernel-services.h>
#include <nvgpu/channel.h>
#include <nvgpu/enabled.h>
#include <nvgpu/engines.h>
#include <nvgpu/gk20a.h>
#include <nvgpu/gr/config.h>
#include <nvgpu/mmu_fault.h>
#include <nvgpu/rc.h>
#include <nvgpu/tsg.h>
#include "common/gr/gr_config_priv.h"
#include "common/gr/gr_priv.h"
#include <stdlib.h>

#define CHANNELS 512

void notifier_attach(struct nvgpu_channel *ch);

static struct nvgpu_channel channels[CHANNELS];
static struct nvgpu_tsg tsgs[CHANNELS];
static struct nvgpu_tsg_sm_error_state sm_states[WORLD_SMS];
static struct nvgpu_gr gr;
static struct nvgpu_gr_config gr_config;
static u32 gpc_tpcs[2] = { 4, 4 };
static struct world now;

/* What the driver does after it has said what happened. */
static void recover(struct gk20a *g, u32 engines, u32 id, unsigned int id_type, unsigned int rc_type, struct mmu_fault_info *fault)
{
	(void)engines;
	(void)fault;
	if (rc_type == RC_TYPE_MMU_FAULT && id_type == ID_TYPE_TSG)
		nvgpu_tsg_set_ctx_mmu_error(g, &g->fifo.tsg[id]);
}

static u32 no_engines(struct gk20a *g) { (void)g; return 0; }
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
	gr.g = g;
	gr.config = &gr_config;
	g->gr = &gr;
	g->num_gr_instances = 1;
	g->ops.fifo.recover = recover;
	g->ops.top.get_num_lce = no_engines;
	g->ops.gr.sm_debugger_attached = no_debugger;
	now.g = g;
	now.channel = ch;
	now.tsg = tsg;
	return &now;
}

bool nvgpu_is_powered_on(struct gk20a *g) { (void)g; return true; }

struct nvgpu_channel *nvgpu_channel_get__func(struct nvgpu_channel *ch, const char *caller) { (void)caller; return ch; }
void nvgpu_channel_put__func(struct nvgpu_channel *ch, const char *caller) { (void)ch; (void)caller; }

struct nvgpu_channel *nvgpu_channel_from_id__func(struct gk20a *g, u32 chid, const char *caller)
{
	(void)g;
	(void)caller;
	return chid == now.channel->chid ? now.channel : NULL;
}

struct nvgpu_channel *nvgpu_channel_refch_from_inst_ptr(struct gk20a *g, u64 inst_ptr)
{
	(void)g;
	return inst_ptr == WORLD_INSTANCE ? now.channel : NULL;
}
