/* Requests of control files. */
#include "requests.h"

void open_space(void)
{
	struct nvgpu_alloc_as_args *a = CALL(struct nvgpu_alloc_as_args, one(&client.ctrl), NVGPU_GPU_IOCTL_ALLOC_AS);

	a->flags = NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA;
	a->va_range_start = 0x200000;
	a->va_range_end = 0xff00000000;
	if (random_chance(5))
		a->reserved = 1;
	call_makes(&a->as_fd);
	if (call_end() == 0)
		hold(&client.spaces, call_made());
}

/* A buffer that the driver fills: what fits, and how much there is. */
static void masks(int ctrl)
{
	u32 bytes = random_chance(60) ? 8 : (u32)random_below(20);

	switch (random_below(4)) {
	case 0: {
		struct nvgpu_gpu_get_tpc_masks_args *a = CALL(struct nvgpu_gpu_get_tpc_masks_args, ctrl, NVGPU_GPU_IOCTL_GET_TPC_MASKS);

		a->mask_buf_size = bytes;
		call_memory(&a->mask_buf_addr, 32);
		break;
	}
	case 1: {
		struct nvgpu_gpu_get_fbp_l2_masks_args *a = CALL(struct nvgpu_gpu_get_fbp_l2_masks_args, ctrl, NVGPU_GPU_IOCTL_GET_FBP_L2_MASKS);

		a->mask_buf_size = bytes;
		call_memory(&a->mask_buf_addr, 32);
		break;
	}
	case 2: {
		struct nvgpu_gpu_get_gpc_physical_map_args *a = CALL(struct nvgpu_gpu_get_gpc_physical_map_args, ctrl, NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_PHYSICAL_MAP);

		a->map_buf_size = bytes;
		call_memory(&a->physical_gpc_buf_addr, 32);
		break;
	}
	default: {
		struct nvgpu_gpu_get_gpc_logical_map_args *a = CALL(struct nvgpu_gpu_get_gpc_logical_map_args, ctrl, NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_LOGICAL_MAP);

		a->map_buf_size = bytes;
		call_memory(&a->logical_gpc_buf_addr, 32);
	}
	}
	call_end();
}

static void sms(int ctrl)
{
	switch (random_below(3)) {
	case 0: CALL(struct nvgpu_gpu_num_vsms, ctrl, NVGPU_GPU_IOCTL_NUM_VSMS); break;
	case 1: {
		struct nvgpu_gpu_vsms_mapping *a = CALL(struct nvgpu_gpu_vsms_mapping, ctrl, NVGPU_GPU_IOCTL_VSMS_MAPPING);

		if (random_chance(10))
			call_no_memory(&a->vsms_map_buf_addr);
		else
			/* Which SM has which number follows from masks of the chip that are not known. */
			call_ignore(call_memory(&a->vsms_map_buf_addr, 128), 128);
		break;
	}
	default: {
		struct nvgpu_gpu_tpc_exception_en_status_args *a =
			CALL(struct nvgpu_gpu_tpc_exception_en_status_args, ctrl, NVGPU_GPU_IOCTL_GET_TPC_EXCEPTION_EN_STATUS);

		/* Read from registers. */
		call_ignore(a, sizeof(*a));
	}
	}
	call_end();
}

static void times(int ctrl)
{
	if (random_chance(40)) {
		struct nvgpu_gpu_get_gpu_time_args *a = CALL(struct nvgpu_gpu_get_gpu_time_args, ctrl, NVGPU_GPU_IOCTL_GET_GPU_TIME);

		call_ignore(&a->gpu_timestamp, 8);
	} else {
		struct nvgpu_gpu_get_cpu_time_correlation_info_args *a =
			CALL(struct nvgpu_gpu_get_cpu_time_correlation_info_args, ctrl, NVGPU_GPU_IOCTL_GET_CPU_TIME_CORRELATION_INFO);

		a->count = wrong() ? ONE_OF(17, 100, 0xffffffff) : (u32)random_below(17);
		a->source_id = wrong() ? ONE_OF(0, 3, 4, 0xffffffff) : ONE_OF(1, 2);
		call_ignore(a->samples, sizeof(a->samples));
	}
	call_end();
}

static void flush(int ctrl)
{
	*(u32 *)CALL(struct nvgpu_gpu_l2_fb_args, ctrl, NVGPU_GPU_IOCTL_FLUSH_L2) = random_chance(85) ? (u32)random_below(8) : (u32)random_u64();
	call_end();
}

static void deterministic(int ctrl)
{
	struct nvgpu_gpu_set_deterministic_opts_args *a = CALL(struct nvgpu_gpu_set_deterministic_opts_args, ctrl, NVGPU_GPU_IOCTL_SET_DETERMINISTIC_OPTS);
	int handles[3];
	u32 count = (u32)random_below(4);

	for (u32 i = 0; i < count; i++) {
		struct client_channel *ch = some_channel();

		handles[i] = mostly(ch == NULL ? HANDLE_NONE : ch->file);
	}
	a->num_channels = count;
	a->flags = random_chance(85) ? (u32)random_below(3) : ONE_OF(3, 4, 7, 0xffffffff);
	if (random_chance(10))
		call_no_memory(&a->channels);
	else
		call_descriptors(&a->channels, handles, count);
	call_end();
}

static void debug_modes(int ctrl)
{
	struct client_channel *ch = some_channel();

	switch (random_below(5)) {
	case 0: CALL(struct nvgpu_gpu_mmu_debug_mode_args, ctrl, NVGPU_GPU_IOCTL_SET_MMUDEBUG_MODE)->state = (u32)random_below(3); break;
	case 1: {
		struct nvgpu_gpu_sm_debug_mode_args *a = CALL(struct nvgpu_gpu_sm_debug_mode_args, ctrl, NVGPU_GPU_IOCTL_SET_SM_DEBUG_MODE);

		call_descriptor(&a->channel_fd, mostly(ch == NULL ? HANDLE_NONE : ch->file));
		a->enable = (u32)random_below(2);
		a->sms = random_chance(70) ? random_below(0x10000) : random_u64();
		break;
	}
	case 2: call_begin(ctrl, "NVGPU_GPU_IOCTL_CLEAR_SM_ERRORS", NVGPU_GPU_IOCTL_CLEAR_SM_ERRORS); break;
	case 3: call_begin(ctrl, "unknown", ONE_OF(_IO('G', 0), _IO('G', 99), _IO('H', 1), _IOWR('G', 8, u32), _IOR('G', 30, u64))); break;
	default:
		CALL(struct nvgpu_gpu_zcull_get_ctx_size_args, ctrl, NVGPU_GPU_IOCTL_ZCULL_GET_CTX_SIZE);
	}
	call_end();
}

static void zcull(int ctrl)
{
	CALL(struct nvgpu_gpu_zcull_get_info_args, ctrl, NVGPU_GPU_IOCTL_ZCULL_GET_INFO);
	call_end();
}

static void engines(int ctrl)
{
	struct nvgpu_gpu_get_engine_info_args *a = CALL(struct nvgpu_gpu_get_engine_info_args, ctrl, NVGPU_GPU_IOCTL_GET_ENGINE_INFO);

	a->engine_info_buf_size = random_chance(50) ? 256 : (u32)random_below(200);
	call_memory(&a->engine_info_buf_addr, 256);
	call_end();
}

static void characteristics(int ctrl)
{
	struct nvgpu_gpu_get_characteristics *a = CALL(struct nvgpu_gpu_get_characteristics, ctrl, NVGPU_GPU_IOCTL_GET_CHARACTERISTICS);

	a->gpu_characteristics_buf_size = random_chance(50) ? sizeof(struct nvgpu_gpu_characteristics) : random_below(1000);
	if (random_chance(10))
		call_no_memory(&a->gpu_characteristics_buf_addr);
	else {
		struct nvgpu_gpu_characteristics *all = call_memory(&a->gpu_characteristics_buf_addr, 1024);

		/* Of a board: the model has an Orin's. */
		call_ignore(&all->flags, 8);
		call_ignore(&all->max_freq, 8);
		call_ignore(&all->per_device_identifier, 8);
	}
	call_end();
}

static void buffers(int ctrl)
{
	if (random_chance(50)) {
		struct nvgpu_gpu_register_buffer_args *a = CALL(struct nvgpu_gpu_register_buffer_args, ctrl, NVGPU_GPU_IOCTL_REGISTER_BUFFER);

		call_descriptor(&a->dmabuf_fd, mostly(some_buffer()));
		/* Compression tags are not modelled. */
		a->comptags_alloc_control = random_chance(95) ? 0 : 3;
		a->metadata_size = (u16)(random_chance(80) ? random_below(64) : ONE_OF(256, 257, 65535));
		a->flags = random_chance(70) ? (u32)random_below(4) : ONE_OF(4, 8, 0xffffffff);
		memset(call_memory(&a->metadata_addr, 256), 7, 256);
	} else {
		struct nvgpu_gpu_get_buffer_info_args *a = CALL(struct nvgpu_gpu_get_buffer_info_args, ctrl, NVGPU_GPU_IOCTL_GET_BUFFER_INFO);
		u32 room = (u32)random_below(300);

		call_descriptor(&a->in.dmabuf_fd, mostly(some_buffer()));
		a->in.metadata_size = room;
		call_memory(&a->in.metadata_addr, 512);
	}
	call_end();
}

void request_of_control(void)
{
	int ctrl = one(&client.ctrl);
	u64 dice = random_below(100);

	if (dice < 12)
		masks(ctrl);
	else if (dice < 22)
		sms(ctrl);
	else if (dice < 32)
		times(ctrl);
	else if (dice < 42)
		flush(ctrl);
	else if (dice < 60)
		deterministic(ctrl);
	else if (dice < 70)
		debug_modes(ctrl);
	else if (dice < 75)
		zcull(ctrl);
	else if (dice < 82)
		engines(ctrl);
	else if (dice < 88)
		characteristics(ctrl);
	else
		buffers(ctrl);
}
