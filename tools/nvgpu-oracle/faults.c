/*
 * What the driver prints about faults, with the registers or the packet that it was given.
 */
#include "oracle.h"
#include "world.h"

#include <nvgpu/channel.h>
#include <nvgpu/gk20a.h>
#include <nvgpu/gr/gr_intr.h>
#include <nvgpu/mmu_fault.h>
#include <nvgpu/hw/ga10b/hw_gr_ga10b.h>
#include <nvgpu/hw/ga10b/hw_gmmu_ga10b.h>
#include <nvgpu/hw/ga10b/hw_fb_ga10b.h>

static const char *const comms[] = { "python3", "bench kernels", "gpu-channel-hel", "a", "train[0], x" };

static void sm_exception(struct world *w, FILE *out)
{
	u32 gpc = (u32)random_below(2), tpc = (u32)random_below(4), sm = (u32)random_below(2);
	u32 unit = gpc * 0x8000 + tpc * 0x800, sm_id = (u32)random_below(WORLD_SMS / 2);
	u32 global = random_chance(70) ? 4 : (u32)random_u64(), warp = (u32)random_u64();
	u64 pc = random_u64() >> 15;

	if (random_chance(70))
		warp = (u32)random_below(0x24) | (u32)random_below(64) << 16;
	gpu_set_register(gr_intr_r(), gr_intr_exception_pending_f());
	gpu_set_register(gr_exception_r(), gr_exception_gpc_m());
	gpu_set_register(gr_exception1_r(), 1U << gpc);
	gpu_set_register(gr_gpc0_gpccs_gpc_exception_r() + gpc * 0x8000, 1U << (16 + tpc));
	gpu_set_register(gr_gpc0_tpc0_tpccs_tpc_exception_r() + unit, 2);
	gpu_set_register(gr_gpc0_tpc0_sm_tpc_esr_sm_sel_r() + unit, 1U << sm);
	gpu_set_register(gr_gpc0_gpm_pd_sm_id_r(tpc) + gpc * 0x8000, sm_id);
	gpu_set_register(gr_gpc0_tpc0_sm0_hww_global_esr_r() + unit + sm * 0x80, global);
	gpu_set_register(gr_gpc0_tpc0_sm0_hww_warp_esr_r() + unit + sm * 0x80, warp);
	gpu_set_register(gr_gpc0_tpc0_sm0_hww_warp_esr_pc_r() + unit + sm * 0x80, (u32)pc);
	gpu_set_register(gr_gpc0_tpc0_sm0_hww_warp_esr_pc_hi_r() + unit + sm * 0x80, (u32)(pc >> 32));
	gpu_set_register(gr_fecs_current_ctx_r(), gr_fecs_current_ctx_valid_f(1) | (u32)(WORLD_INSTANCE >> 12));
	fprintf(out, "sm gpc=%u tpc=%u sm=%u sm_id=%u global=%x warp=%x pc=%llx channel=%u\n", gpc, tpc, sm, sm_id * 2 + sm, global,
		warp, pc, w->channel->chid);
	nvgpu_gr_intr_stall_isr(w->g);
}

void faults_write(u64 seed, u32 count, FILE *out)
{
	(void)count;
	random_seed(seed ^ 0x6661756c7473ULL);
	struct world *w = world_new((u32)random_below(512), (u32)random_below(512), comms[random_below(5)]);

	os_log_to(out);
	if (setjmp(os_bug) == 0)
		sm_exception(w, out);
	else
		fprintf(out, "BUG in %s\n", os_bug_where);
	os_log_to(NULL);
}
