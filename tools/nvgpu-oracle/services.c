/* What the driver's files ask of a kernel when they serve requests, and what they leave to units that no answer shows. */
#include "machine.h"
#include "oracle.h"

#include "os_linux_services.h"
#include <nvgpu/as.h>
#include <nvgpu/channel.h>
#include <nvgpu/cond.h>
#include <nvgpu/enabled.h>
#include <nvgpu/nvhost.h>
#include <nvgpu/os_sched.h>
#include <nvgpu/swprofile.h>
#include <nvgpu/timers.h>
#include <nvgpu/worker.h>
#include "os/linux/ioctl.h"
#include "os/linux/ioctl_as.h"
#include "os/linux/ioctl_channel.h"
#include "os/linux/ioctl_ctrl.h"
#include "os/linux/ioctl_dbg.h"
#include "os/linux/ioctl_tsg.h"

/* ---- the nodes ---- */

const struct file_operations gk20a_as_ops = { .release = gk20a_as_dev_release, .unlocked_ioctl = gk20a_as_dev_ioctl };
const struct file_operations gk20a_channel_ops = { .open = gk20a_channel_open, .release = gk20a_channel_release, .unlocked_ioctl = gk20a_channel_ioctl };
const struct file_operations gk20a_tsg_ops = { .open = nvgpu_ioctl_tsg_dev_open, .release = nvgpu_ioctl_tsg_dev_release, .unlocked_ioctl = nvgpu_ioctl_tsg_dev_ioctl };
const struct file_operations gk20a_ctrl_ops = { .open = gk20a_ctrl_dev_open, .release = gk20a_ctrl_dev_release, .unlocked_ioctl = gk20a_ctrl_dev_ioctl, .mmap = gk20a_ctrl_dev_mmap };
const struct file_operations gk20a_dbg_ops = { .open = gk20a_dbg_gpu_dev_open, .release = gk20a_dbg_gpu_dev_release, .unlocked_ioctl = gk20a_dbg_gpu_dev_ioctl, .poll = gk20a_dbg_gpu_dev_poll };

static struct nvgpu_cdev node;
struct cdev *machine_node(void) { return &node.cdev; }
struct gk20a *nvgpu_get_gk20a_from_cdev(struct nvgpu_cdev *cdev) { (void)cdev; return machine_gpu(); }
u32 nvgpu_get_gpu_instance_id_from_cdev(struct gk20a *g, struct nvgpu_cdev *cdev) { (void)g; (void)cdev; return 0; }
struct gk20a *get_gk20a(struct device *dev) { return dev->g; }

/* The tool that sets other processes' groups: there is none. */
void gk20a_sched_ctrl_tsg_added(struct gk20a *g, struct nvgpu_tsg *tsg) { (void)g; (void)tsg; }
void gk20a_sched_ctrl_tsg_removed(struct gk20a *g, struct nvgpu_tsg *tsg) { (void)g; (void)tsg; }

/* ---- processes and threads: one of each ---- */

int nvgpu_current_pid(struct gk20a *g) { (void)g; return 1000; }
int nvgpu_current_tid(struct gk20a *g) { (void)g; return 1000; }
void nvgpu_get_thread_name(char *dest) { strcpy(dest, "client"); }
void nvgpu_print_current_impl(struct gk20a *g, const char *func_name, int line, void *ctx, enum nvgpu_log_type type)
{
	(void)g;
	(void)func_name;
	(void)line;
	(void)ctx;
	(void)type;
}

/* Work that is put off concerns jobs of the kernel's submissions, which no sequence makes: none is taken. */
void nvgpu_worker_init_name(struct nvgpu_worker *worker, const char *worker_name, const char *gpu_name) { (void)worker; (void)worker_name; (void)gpu_name; }
int nvgpu_worker_init(struct gk20a *g, struct nvgpu_worker *worker, const struct nvgpu_worker_ops *ops) { (void)g; (void)worker; (void)ops; return 0; }
void nvgpu_worker_deinit(struct nvgpu_worker *worker) { (void)worker; }
int nvgpu_worker_enqueue(struct nvgpu_worker *worker, struct nvgpu_list_node *item) { (void)worker; (void)item; return -EBUSY; }

void nvgpu_swprofile_initialize(struct gk20a *g, struct nvgpu_swprofiler *p, const char *names[]) { (void)g; (void)p; (void)names; }
void nvgpu_swprofile_begin_sample(struct nvgpu_swprofiler *p) { (void)p; }
void nvgpu_swprofile_snapshot(struct nvgpu_swprofiler *p, u32 id) { (void)p; (void)id; }
bool nvgpu_swprofile_is_enabled(struct nvgpu_swprofiler *p) { (void)p; return false; }

/* ---- waiting: nobody else runs, so a condition that is not met stays so ---- */

int nvgpu_cond_init(struct nvgpu_cond *cond) { memset(cond, 0, sizeof(*cond)); cond->initialized = true; return 0; }
void nvgpu_cond_destroy(struct nvgpu_cond *cond) { (void)cond; }
void nvgpu_cond_signal(struct nvgpu_cond *cond) { (void)cond; }
int nvgpu_cond_broadcast(struct nvgpu_cond *cond) { (void)cond; return 0; }
int nvgpu_cond_broadcast_interruptible(struct nvgpu_cond *cond) { (void)cond; return 0; }

int nvgpu_cond_timedwait(struct nvgpu_cond *cond, unsigned int *ms)
{
	(void)cond;
	/* The last reference of something that nobody will drop, or a wait without an end. */
	if (*ms == 5000 || *ms == NVGPU_COND_WAIT_TIMEOUT_MAX_MS)
		nvgpu_posix_bug("a wait that never ends", 0);
	nvgpu_msleep(*ms);
	*ms = 0;
	return -ETIMEDOUT;
}

void nvgpu_timeout_init_cpu_timer_sw(struct gk20a *g, struct nvgpu_timeout *timeout, u32 duration_ms)
{
	nvgpu_timeout_init_cpu_timer(g, timeout, duration_ms);
}

void nvgpu_cic_rm_wait_for_deferred_interrupts(struct gk20a *g) { (void)g; }
int nvgpu_cic_rm_wait_for_stall_interrupts(struct gk20a *g, u32 timeout) { (void)g; (void)timeout; return 0; }
bool nvgpu_is_powered_on(struct gk20a *g) { (void)g; return true; }
bool nvgpu_is_powered_off(struct gk20a *g) { (void)g; return false; }
bool nvgpu_platform_is_simulation(struct gk20a *g) { (void)g; return false; }
bool nvgpu_platform_is_fpga(struct gk20a *g) { (void)g; return false; }
void nvgpu_sw_quiesce_with_trace(struct gk20a *g, const char *name, int line) { (void)g; (void)line; nvgpu_posix_bug(name, 0); }
void nvgpu_report_err_to_sdl(struct gk20a *g, u32 hw_unit_id, u32 err_id) { (void)g; (void)hw_unit_id; (void)err_id; }
void nvgpu_pmu_set_golden_image_initialized(struct gk20a *g, u8 state) { (void)g; (void)state; }
int nvgpu_pmu_lock_acquire(struct gk20a *g, struct nvgpu_pmu *pmu, u32 id, u32 *token) { (void)g; (void)pmu; (void)id; (void)token; return 0; }
int nvgpu_pmu_lock_release(struct gk20a *g, struct nvgpu_pmu *pmu, u32 id, u32 *token) { (void)g; (void)pmu; (void)id; (void)token; return 0; }

/* ---- syncpoints: the lowest that is free, from 1 on, as host1x gives them ---- */

#define SYNCPOINTS 1024
static u32 values[SYNCPOINTS];
static bool taken[SYNCPOINTS];

void services_reset(void)
{
	memset(values, 0, sizeof(values));
	memset(taken, 0, sizeof(taken));
	memset(&node, 0, sizeof(node));
}

u32 nvgpu_nvhost_get_syncpt_client_managed(struct nvgpu_nvhost_dev *dev, const char *name)
{
	(void)dev;
	(void)name;
	for (u32 i = 1; i < SYNCPOINTS; i++)
		if (!taken[i]) {
			taken[i] = true;
			return i;
		}
	return 0;
}

void nvgpu_nvhost_syncpt_put_ref_ext(struct nvgpu_nvhost_dev *dev, u32 id) { (void)dev; taken[id] = false; }
void nvgpu_nvhost_syncpt_set_minval(struct nvgpu_nvhost_dev *dev, u32 id, u32 value) { (void)dev; values[id] = value; }
void nvgpu_nvhost_syncpt_set_safe_state(struct nvgpu_nvhost_dev *dev, u32 id) { (void)dev; values[id] += 1000; }
const char *nvgpu_nvhost_syncpt_get_name(struct nvgpu_nvhost_dev *dev, int id) { (void)dev; (void)id; return NULL; }
int nvgpu_nvhost_syncpt_read_ext_check(struct nvgpu_nvhost_dev *dev, u32 id, u32 *value) { (void)dev; *value = values[id]; return 0; }
int nvgpu_pmu_reenable_elpg(struct gk20a *g) { (void)g; return 0; }
void nvgpu_usermode_writel(struct gk20a *g, u32 r, u32 v) { (void)g; (void)r; (void)v; }

/* ---- GET_CHARACTERISTICS ---- */

int dev_to_node(struct device *dev) { (void)dev; return -1; }
u32 nvgpu_bios_get_vbios_version(struct gk20a *g) { (void)g; return 0; }
u8 nvgpu_bios_get_vbios_oem_version(struct gk20a *g) { (void)g; return 0; }

ssize_t strscpy(char *to, const char *from, size_t bytes)
{
	snprintf(to, bytes, "%s", from);
	return (ssize_t)strlen(to);
}
/* Older releases. */
size_t strlcpy(char *to, const char *from, size_t bytes)
{
	snprintf(to, bytes, "%s", from);
	return strlen(from);
}

u32 nvgpu_css_get_max_buffer_size(struct gk20a *g) { (void)g; return 0; }
u64 nvgpu_current_unix_time_us(void) { return 1; }
u64 nvgpu_hr_timestamp_us(void) { return 1; }
u64 nvgpu_hr_timestamp(void) { return 1; }
