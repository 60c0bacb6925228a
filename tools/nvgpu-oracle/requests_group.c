/* Requests of group files. */
#include "requests.h"

void open_group(void)
{
	struct nvgpu_gpu_open_tsg_args *a = CALL(struct nvgpu_gpu_open_tsg_args, one(&client.ctrl), NVGPU_GPU_IOCTL_OPEN_TSG);

	if (random_chance(5))
		a->flags = ONE_OF(1, 2, 0xfffffffe);
	if (random_chance(5))
		a->source_device_instance_id = random_below(4);
	if (random_chance(5))
		a->share_token = random_below(4);
	call_makes(&a->tsg_fd);
	if (call_end() == 0)
		hold(&client.groups, call_made());
}

static void event(int group)
{
	struct nvgpu_event_id_ctrl_args *a = CALL(struct nvgpu_event_id_ctrl_args, group, NVGPU_IOCTL_TSG_EVENT_ID_CTRL);

	a->cmd = wrong() ? ONE_OF(0, 2, 0xffffffff) : NVGPU_IOCTL_CHANNEL_EVENT_ID_CMD_ENABLE;
	a->event_id = wrong() ? ONE_OF(6, 7, 0xffffffff) : (u32)random_below(6);
	call_makes(&a->event_fd);
	if (call_end() == 0)
		hold(&client.events, call_made());
}

static void timeslice(int group)
{
	if (random_chance(60)) {
		struct nvgpu_timeslice_args *a = CALL(struct nvgpu_timeslice_args, group, NVGPU_IOCTL_TSG_SET_TIMESLICE);

		a->timeslice_us = wrong() ? ONE_OF(0, 999, 50001, 0xffffffff) : random_chance(30) ? ONE_OF(1000, 50000) : 1000 + (u32)random_below(49000);
	} else
		CALL(struct nvgpu_timeslice_args, group, NVGPU_IOCTL_TSG_GET_TIMESLICE);
	call_end();
}

static void interleave(int group)
{
	CALL(struct nvgpu_runlist_interleave_args, group, NVGPU_IOCTL_TSG_SET_RUNLIST_INTERLEAVE)->level = wrong() ? ONE_OF(3, 4, 0xffffffff) : (u32)random_below(3);
	call_end();
}

static void sm_error(int group)
{
	struct nvgpu_tsg_read_single_sm_error_state_args *a = CALL(struct nvgpu_tsg_read_single_sm_error_state_args, group, NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE);

	a->sm_id = wrong() ? ONE_OF(15, 16, 17, 0xffffffff) : (u32)random_below(16);
	a->record_size = random_chance(60) ? 24 : random_chance(50) ? random_below(40) : random_u64();
	if (random_chance(5))
		call_no_memory(&a->record_mem);
	else
		call_memory(&a->record_mem, 64);
	call_end();
}

static void l2(int group)
{
	switch (random_below(3)) {
	case 0: CALL(struct nvgpu_tsg_l2_max_ways_evict_last_args, group, NVGPU_TSG_IOCTL_SET_L2_MAX_WAYS_EVICT_LAST)->max_ways = random_chance(80) ? (u32)random_below(20) : (u32)random_u64(); break;
	case 1: CALL(struct nvgpu_tsg_l2_max_ways_evict_last_args, group, NVGPU_TSG_IOCTL_GET_L2_MAX_WAYS_EVICT_LAST); break;
	default:
		CALL(struct nvgpu_tsg_set_l2_sector_promotion_args, group, NVGPU_TSG_IOCTL_SET_L2_SECTOR_PROMOTION)->promotion_flag = wrong() ? ONE_OF(0, 3, 8, 0xffffffff) : ONE_OF(1, 2, 4);
	}
	call_end();
}

static void subcontext(int group)
{
	if (random_chance(70)) {
		struct nvgpu_tsg_create_subcontext_args *a = CALL(struct nvgpu_tsg_create_subcontext_args, group, NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT);

		a->type = random_chance(75) ? NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC : ONE_OF(0, 2, 0xffffffff);
		call_descriptor(&a->as_fd, some(&client.spaces));
	} else
		CALL(struct nvgpu_tsg_delete_subcontext_args, group, NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT)->veid = wrong() ? ONE_OF(63, 64, 0xffffffff) : (u32)random_below(3);
	call_end();
}

static void unbind(int group)
{
	struct client_channel *ch = some_channel();
	int *fd;

	if (ch == NULL)
		return;
	fd = CALL(int, random_chance(75) && ch->group != HANDLE_NONE ? ch->group : group, NVGPU_TSG_IOCTL_UNBIND_CHANNEL);
	if (random_chance(4))
		*fd = -1 - (int)random_below(3);
	else
		call_descriptor(fd, mostly(ch->file));
	call_end();
}

static void without_argument(int group)
{
	switch (random_below(4)) {
	case 0: call_begin(group, "NVGPU_IOCTL_TSG_ENABLE", NVGPU_IOCTL_TSG_ENABLE); break;
	case 1: call_begin(group, "NVGPU_IOCTL_TSG_DISABLE", NVGPU_IOCTL_TSG_DISABLE); break;
	case 2: call_begin(group, "NVGPU_IOCTL_TSG_PREEMPT", NVGPU_IOCTL_TSG_PREEMPT); break;
	default:
		call_begin(group, "unknown", ONE_OF(_IO('T', 0), _IO('T', 99), _IO('G', 1), _IOW('T', 5, u64), _IOWR('T', 11, u32)));
	}
	call_end();
}

void request_of_group(void)
{
	int group = one(&client.groups);
	u64 dice = random_below(100);

	if (dice < 10)
		event(group);
	else if (dice < 32)
		timeslice(group);
	else if (dice < 42)
		interleave(group);
	else if (dice < 54)
		sm_error(group);
	else if (dice < 68)
		l2(group);
	else if (dice < 82)
		subcontext(group);
	else if (dice < 88)
		unbind(group);
	else
		without_argument(group);
}
