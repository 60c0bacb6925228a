/* Requests of debugger files. */
#include "requests.h"

static void bind_channel(int session, bool take_out)
{
	struct client_channel *ch = some_channel();

	if (ch == NULL)
		return;
	if (take_out) {
		struct nvgpu_dbg_gpu_unbind_channel_args *a = CALL(struct nvgpu_dbg_gpu_unbind_channel_args, session, NVGPU_DBG_GPU_IOCTL_UNBIND_CHANNEL);

		call_descriptor(&a->channel_fd, mostly(ch->file));
	} else {
		struct nvgpu_dbg_gpu_bind_channel_args *a = CALL(struct nvgpu_dbg_gpu_bind_channel_args, session, NVGPU_DBG_GPU_IOCTL_BIND_CHANNEL);

		call_descriptor(&a->channel_fd, mostly(ch->file));
	}
	call_end();
}

static void timeouts(int session)
{
	if (random_chance(50))
		CALL(struct nvgpu_dbg_gpu_timeout_args, session, NVGPU_DBG_GPU_IOCTL_TIMEOUT)->enable = wrong() ? ONE_OF(2, 0xffffffff) : (u32)random_below(2);
	else
		CALL(struct nvgpu_dbg_gpu_timeout_args, session, NVGPU_DBG_GPU_IOCTL_GET_TIMEOUT);
	call_end();
}

static void timeslice(int session)
{
	if (random_chance(50))
		CALL(struct nvgpu_timeslice_args, session, NVGPU_DBG_GPU_IOCTL_TSG_SET_TIMESLICE)->timeslice_us =
			wrong() ? ONE_OF(0, 999, 50001, 4000000, 4000001, 0xffffffff) : 1000 + (u32)random_below(49000);
	else
		CALL(struct nvgpu_timeslice_args, session, NVGPU_DBG_GPU_IOCTL_TSG_GET_TIMESLICE);
	call_end();
}

static void sm_error(int session)
{
	u32 sm = wrong() ? ONE_OF(15, 16, 17, 0xffffffff) : (u32)random_below(16);

	if (random_chance(50)) {
		struct nvgpu_dbg_gpu_read_single_sm_error_state_args *a =
			CALL(struct nvgpu_dbg_gpu_read_single_sm_error_state_args, session, NVGPU_DBG_GPU_IOCTL_READ_SINGLE_SM_ERROR_STATE);

		a->sm_id = sm;
		a->sm_error_state_record_size = random_chance(60) ? 24 : random_below(40);
		call_memory(&a->sm_error_state_record_mem, 64);
	} else
		CALL(struct nvgpu_dbg_gpu_clear_single_sm_error_state_args, session, NVGPU_DBG_GPU_IOCTL_CLEAR_SINGLE_SM_ERROR_STATE)->sm_id = sm;
	call_end();
}

static void settings(int session)
{
	switch (random_below(4)) {
	case 0: CALL(struct nvgpu_dbg_gpu_set_sm_exception_type_mask_args, session, NVGPU_DBG_GPU_IOCTL_SET_SM_EXCEPTION_TYPE_MASK)->exception_type_mask = wrong() ? ONE_OF(2, 0xffffffff) : (u32)random_below(2); break;
	case 1: CALL(struct nvgpu_dbg_gpu_events_ctrl_args, session, NVGPU_DBG_GPU_IOCTL_EVENTS_CTRL)->cmd = wrong() ? ONE_OF(3, 4, 0xffffffff) : (u32)random_below(3); break;
	case 2: CALL(struct nvgpu_dbg_gpu_set_next_stop_trigger_type_args, session, NVGPU_DBG_GPU_IOCTL_SET_NEXT_STOP_TRIGGER_TYPE)->broadcast = (u32)random_below(2); break;
	default:
		call_begin(session, "unknown", ONE_OF(_IO('D', 0), _IO('D', 99), _IO('G', 1), _IOWR('D', 1, u32), _IOW('D', 13, u64)));
	}
	call_end();
}

void request_of_session(void)
{
	int session = one(&client.sessions);
	u64 dice = random_below(100);

	if (dice < 30)
		bind_channel(session, false);
	else if (dice < 42)
		bind_channel(session, true);
	else if (dice < 58)
		timeouts(session);
	else if (dice < 72)
		timeslice(session);
	else if (dice < 86)
		sm_error(session);
	else
		settings(session);
}
