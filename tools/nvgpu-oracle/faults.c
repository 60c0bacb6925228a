/*
 * What the driver prints about faults, with the registers or the packet that it was given.
 *
 * F <seed> <kind> <name>=<value>...    what happened, numbers in hexadecimal; text is last and goes to the end of the line
 * K <line>                             what the driver printed
 */
#include "oracle.h"
#include "world.h"

#include <nvgpu/channel.h>
#include <nvgpu/dma.h>
#include <nvgpu/gk20a.h>
#include <nvgpu/gr/gr_intr.h>
#include <nvgpu/mmu_fault.h>
#include <nvgpu/nvgpu_mem.h>
#include <nvgpu/vm.h>
#include <nvgpu/hw/ga10b/hw_fb_ga10b.h>
#include <nvgpu/hw/ga10b/hw_gmmu_ga10b.h>
#include <nvgpu/hw/ga10b/hw_gr_ga10b.h>
#include <nvgpu/hw/ga10b/hw_pbdma_ga10b.h>
#include <nvgpu/hw/ga10b/hw_timer_ga10b.h>
#include <stdlib.h>

#define FAULT_ENTRIES 64

static struct world *w;
static FILE *out;

static u32 any(void) { return (u32)random_u64(); }

/* The channel runs on the graphics engine, which has that interrupt. */
static void interrupt(u32 pending)
{
	gpu_set_register(gr_intr_r(), pending);
	gpu_set_register(gr_fecs_current_ctx_r(), gr_fecs_current_ctx_valid_f(1) | (u32)(w->instance >> 12));
}

static void owner(void)
{
	fprintf(out, " channel=%x tsg=%x comm=%s\n", w->channel->chid, w->tsg->tsgid, w->channel->thread_name);
}

static void sm_exception(u64 seed)
{
	u32 gpc = (u32)random_below(2), tpc = (u32)random_below(4), sm = (u32)random_below(2);
	u32 unit = gpc * 0x8000 + tpc * 0x800, tpc_id = (u32)random_below(WORLD_SMS / 2);
	u32 global = random_chance(70) ? 4 : random_chance(50) ? 0 : any();
	u32 warp = random_chance(70) ? (u32)random_below(0x24) | (u32)random_below(64) << 16 : any();
	u64 pc = random_u64() >> 15;

	interrupt(gr_intr_exception_pending_f());
	gpu_set_register(gr_exception_r(), gr_exception_gpc_m());
	gpu_set_register(gr_exception1_r(), 1U << gpc);
	gpu_set_register(gr_gpc0_gpccs_gpc_exception_r() + gpc * 0x8000, 1U << (16 + tpc));
	gpu_set_register(gr_gpc0_tpc0_tpccs_tpc_exception_r() + unit, 2);
	gpu_set_register(gr_gpc0_tpc0_sm_tpc_esr_sm_sel_r() + unit, 1U << sm);
	gpu_set_register(gr_gpc0_gpm_pd_sm_id_r(tpc) + gpc * 0x8000, tpc_id);
	gpu_set_register(gr_gpc0_tpc0_sm0_hww_global_esr_r() + unit + sm * 0x80, global);
	gpu_set_register(gr_gpc0_tpc0_sm0_hww_warp_esr_r() + unit + sm * 0x80, warp);
	gpu_set_register(gr_gpc0_tpc0_sm0_hww_warp_esr_pc_r() + unit + sm * 0x80, (u32)pc);
	gpu_set_register(gr_gpc0_tpc0_sm0_hww_warp_esr_pc_hi_r() + unit + sm * 0x80, (u32)(pc >> 32));
	fprintf(out, "F %llx sm gpc=%x tpc=%x sm=%x sm_id=%x global=%x warp=%x pc=%llx", seed, gpc, tpc, sm, tpc_id * 2 + sm, global, warp,
		pc);
	owner();
	nvgpu_gr_intr_stall_isr(w->g);
}

/* An exception of a unit of the front end, which has an ESR. */
static void unit_exception(u64 seed)
{
	static const struct {
		const char *name;
		u32 bit, esr, info;
	} units[] = {
		{ "fe", 0, 0x404000, 0x4041b0 }, { "memfmt", 1, 0x404600, 0 }, { "pd", 2, 0x406018, 0 }, { "scc", 3, 0x408030, 0 },
		{ "ds", 4, 0x405840, 0 }, { "ssync", 5, 0x405a14, 0 }, { "mme", 7, 0x404490, 0x404494 }, { "sked", 8, 0x407020, 0 },
		{ "mme_fe1", 9, 0x40a790, 0x40a794 },
	};
	u32 i = (u32)random_below(sizeof(units) / sizeof(units[0]));
	u32 esr = 1U << random_below(30) | (random_chance(50) ? 0x80000000U : 0) | (random_chance(20) ? any() : 0);
	u32 info = units[i].info == 0 ? 0 : any();

	interrupt(gr_intr_exception_pending_f());
	gpu_set_register(gr_exception_r(), 1U << units[i].bit);
	gpu_set_register(units[i].esr, esr);
	if (units[i].info != 0)
		gpu_set_register(units[i].info, info);
	fprintf(out, "F %llx unit unit=%s esr=%x info=%x", seed, units[i].name, esr, info);
	owner();
	nvgpu_gr_intr_stall_isr(w->g);
}

/* A method that the graphics engine does not take. */
static void method_error(u64 seed)
{
	static const struct {
		const char *name;
		u32 pending;
	} errors[] = { { "illegal_method", 0x10 }, { "illegal_notify", 0x40 }, { "firmware_method", 0x100 }, { "class_error", 0x100000 } };
	u32 i = (u32)random_below(4), method = (u32)random_below(0x4000) & ~3U, subchannel = (u32)random_below(5);
	u32 class = random_chance(50) ? 0xc7c0 : 0xc7b5, code = (u32)random_below(0x80), data = any();
	u32 high = (u32)random_below(2);

	interrupt(errors[i].pending);
	gpu_set_register(gr_trapped_addr_r(), method | subchannel << 16 | high << 24);
	gpu_set_register(gr_trapped_data_lo_r(), data);
	gpu_set_register(gr_trapped_data_hi_r(), any());
	gpu_set_register(gr_fe_object_table_r(subchannel), class);
	gpu_set_register(gr_class_error_r(), code);
	fprintf(out, "F %llx method error=%s class=%x method=%x subchannel=%x code=%x data=%x", seed, errors[i].name, class, method, subchannel,
		code, data);
	owner();
	nvgpu_gr_intr_stall_isr(w->g);
}

/* The context firmware asks for help. */
static void firmware_error(u64 seed)
{
	static const struct {
		const char *name;
		u32 status;
	} errors[] = { { "error", 1 }, { "fault", 1U << 16 }, { "method", 1U << 17 }, { "watchdog", 1U << 19 } };
	u32 i = (u32)random_below(4), mailbox = (u32)random_below(0x40), method = 0x500 + (u32)random_below(16) * 4, data = any();

	interrupt(gr_intr_fecs_error_pending_f());
	gpu_set_register(gr_fecs_host_int_status_r(), errors[i].status);
	gpu_set_register(gr_fecs_ctxsw_mailbox_r(6), mailbox);
	gpu_set_register(gr_trapped_addr_r(), method | 1 << 16);
	gpu_set_register(gr_trapped_data_lo_r(), data);
	gpu_set_register(gr_fe_object_table_r(1), 0xc7c0);
	fprintf(out, "F %llx firmware error=%s mailbox=%x method=%x data=%x", seed, errors[i].name, mailbox, method, data);
	owner();
	nvgpu_gr_intr_stall_isr(w->g);
}

static void mmu_fault(u64 seed)
{
	/* Ids that are in use: types, accesses, clients of each kind. */
	static const u32 engines[] = { 64, 65, 70, 127, 15, 16, 18, 20, 32, 33, 31, 40 };
	u32 type = (u32)random_below(16), access = (u32)random_below(12), hub = (u32)random_below(2);
	u32 client = hub ? (u32)random_below(0x64) : (u32)random_below(0x17), gpc = (u32)random_below(2);
	u32 engine = engines[random_below(12)], entry = (u32)random_below(FAULT_ENTRIES - 1);
	u64 address = (random_u64() >> (15 + random_below(34))) & ~0xfffULL;
	int known = random_chance(85);
	u64 instance = known ? w->instance : 0x9876543000ULL;
	struct nvgpu_mem *buffer = &w->g->mm.hw_fault_buf[NVGPU_MMU_FAULT_NONREPLAY_REG_INDX];
	u32 words[8] = { 0 };

	if (nvgpu_dma_alloc_sys(w->g, FAULT_ENTRIES * 32, buffer) != 0)
		exit(3);
	words[0] = (u32)instance | 3 << 8;
	words[1] = (u32)(instance >> 32);
	words[2] = (u32)address;
	words[3] = (u32)(address >> 32);
	words[4] = any();
	words[5] = any();
	words[6] = engine;
	words[7] = type | client << 8 | access << 16 | hub << 20 | gpc << 24 | 1U << 31;
	for (u32 i = 0; i < 8; i++)
		nvgpu_mem_wr32(w->g, buffer, entry * 8 + i, words[i]);
	gpu_set_register(fb_mmu_fault_buffer_get_r(0), entry);
	gpu_set_register(fb_mmu_fault_buffer_put_r(0), entry + 1);
	gpu_set_register(fb_mmu_fault_buffer_size_r(0), FAULT_ENTRIES | 1U << 31);
	fprintf(out, "F %llx mmu type=%x access=%x hub=%x client=%x gpc=%x engine=%x address=%llx known=%x packet=", seed, type, access, hub,
		client, gpc, engine, address, known);
	for (u32 i = 0; i < 8; i++)
		fprintf(out, "%s%08x", i == 0 ? "" : ",", words[i]);
	owner();
	gv11b_mm_mmu_fault_handle_nonreplay_replay_fault(w->g, 0x200, NVGPU_MMU_FAULT_NONREPLAY_REG_INDX);
}

static void pbdma_error(u64 seed)
{
	/* Bits that the driver treats as errors, and the timeout of an acquire. */
	static const u32 bits[] = { 13, 14, 15, 16, 17, 18, 19, 21, 23, 25, 26, 27, 30, 31 };
	u32 id = (u32)random_below(4), intr = 1U << bits[random_below(14)], header = any(), shadow = any(), method = any();

	if (random_chance(20))
		intr |= 1U << bits[random_below(14)];
	gpu_set_register(pbdma_intr_0_r(id), intr);
	gpu_set_register(pbdma_pb_header_r(id), header);
	gpu_set_register(pbdma_hdr_shadow_r(id), shadow);
	gpu_set_register(pbdma_gp_shadow_0_r(id), any());
	gpu_set_register(pbdma_gp_shadow_1_r(id), any());
	gpu_set_register(pbdma_method0_r(id), method);
	/* The group is loaded. */
	gpu_set_register(pbdma_status_sched_r(id), w->tsg->tsgid | 1U << 13);
	fprintf(out, "F %llx pbdma pbdma=%x intr=%x header=%x shadow=%x method=%x", seed, id, intr, header, shadow, method);
	owner();
	w->g->ops.pbdma.handle_intr(w->g, id, true);
}

static void pri_timeout(u64 seed)
{
	static const u32 codes[] = { 0xbadf1000, 0xbadf1100, 0xbadf2000, 0xbadf4000, 0xbadf5040, 0xbadf5046, 0xbadf5100, 0xbad00200 };
	u32 address = any() & 0x1fffffc, write = (u32)random_below(2), data = any();
	u32 code = random_chance(80) ? codes[random_below(8)] | (random_chance(30) ? (u32)random_below(256) : 0) : 0;

	gpu_set_register(timer_pri_timeout_save_0_r(), address | write << 1 | (code != 0) << 31);
	gpu_set_register(timer_pri_timeout_save_1_r(), data);
	gpu_set_register(timer_pri_timeout_fecs_errcode_r(), code);
	fprintf(out, "F %llx pri address=%x write=%x data=%x code=%x", seed, address, write, data, code);
	owner();
	w->g->ops.ptimer.isr(w->g);
}

/* What follows an F line, with its mark. */
static void print_log(char *text)
{
	for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
		fprintf(out, "K %s\n", line);
}

void faults_write(u64 seed, FILE *file)
{
	static void (*const kinds[])(u64) = { sm_exception, sm_exception, unit_exception, method_error, firmware_error, mmu_fault,
					      mmu_fault, pbdma_error, pri_timeout };
	static const char *const comms[] = { "python3", "bench kernels", "gpu-channel-hel", "a", "train[0], x" };
	char *text = NULL;
	size_t bytes = 0;
	FILE *log = open_memstream(&text, &bytes);
	struct space *space;

	random_seed(seed ^ 0x6661756c7473ULL);
	out = file;
	w = world_new((u32)random_below(512), (u32)random_below(512), comms[random_below(5)]);
	if (space_open(w->g, 0, 2, 0x200000, 0xffffe00000, 0, &space) != 0)
		exit(3);
	w->channel->vm = space_vm(space);
	os_log_to(log);
	if (setjmp(os_bug) != 0)
		fprintf(log, "BUG in %s\n", os_bug_where);
	else
		kinds[random_below(sizeof(kinds) / sizeof(kinds[0]))](seed);
	os_log_to(NULL);
	fclose(log);
	print_log(text);
	free(text);
}
