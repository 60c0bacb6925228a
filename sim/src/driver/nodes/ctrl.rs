//! The control node: discovery, and creation of everything else.

use crate::driver::address_space::space::AddressSpace;
use crate::driver::files::Object;
use crate::driver::log::DEVICE;
use crate::driver::machine::Machine;
use crate::driver::nodes::argument::{Reply, accept, with};
use crate::driver::nodes::channel;
use crate::driver::nodes::characteristics;
use crate::driver::nodes::nvmap;
use crate::driver::nodes::tsg;
use crate::driver::session::control::CtrlFile;
use crate::gpu::chip::SmPlace;
use nix::errno::Errno;
use nvgpu_sys::*;
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Serves a `G` command.
pub(super) fn ioctl(machine: &Arc<Machine>, file: &CtrlFile, request: u32, bytes: &mut [u8]) -> Reply {
    match request {
        NVGPU_GPU_IOCTL_GET_CHARACTERISTICS => with(bytes, |a: &mut nvgpu_gpu_get_characteristics| {
            let all = characteristics::of(machine.chip(), machine.config.cilp, file.instance);
            let size = &mut a.gpu_characteristics_buf_size;
            let bytes = characteristics::sized(all, &machine.config.what_if);
            Ok(answer(machine, a.gpu_characteristics_buf_addr, size, &bytes))
        }),
        NVGPU_GPU_IOCTL_ALLOC_AS => with(bytes, |a| alloc_as(machine, a)),
        NVGPU_GPU_IOCTL_OPEN_TSG => with(bytes, |a| open_tsg(machine, a)),
        NVGPU_GPU_IOCTL_OPEN_CHANNEL => with(bytes, |a| open_channel(machine, a)),
        NVGPU_GPU_IOCTL_GET_TPC_MASKS => with(bytes, |a: &mut nvgpu_gpu_get_tpc_masks_args| {
            let masks = [0, 1].map(|gpc| machine.chip().tpc_mask(gpc));
            Ok(answer(machine, a.mask_buf_addr, &mut a.mask_buf_size, masks.as_bytes()))
        }),
        NVGPU_GPU_IOCTL_GET_FBP_L2_MASKS => with(bytes, |a: &mut nvgpu_gpu_get_fbp_l2_masks_args| {
            Ok(answer(machine, a.mask_buf_addr, &mut a.mask_buf_size, [0xf_u32; 2].as_bytes()))
        }),
        NVGPU_GPU_IOCTL_FLUSH_L2 => accept(bytes[0] & 5 != 0 && bytes[0] & 3 != 2),
        NVGPU_GPU_IOCTL_ZCULL_GET_CTX_SIZE => with(bytes, |a: &mut nvgpu_gpu_zcull_get_ctx_size_args| {
            a.size = 164_352;
            Ok(0)
        }),
        NVGPU_GPU_IOCTL_ZCULL_GET_INFO => with(bytes, |a: &mut nvgpu_gpu_zcull_get_info_args| {
            *a = characteristics::zcull(machine.chip());
            Ok(0)
        }),
        NVGPU_GPU_IOCTL_ZBC_SET_TABLE => with(bytes, |a| zbc_set(machine, a)),
        NVGPU_GPU_IOCTL_ZBC_QUERY_TABLE => with(bytes, |a| zbc_query(machine, a)),
        NVGPU_GPU_IOCTL_SET_MMUDEBUG_MODE => Ok(0),
        NVGPU_GPU_IOCTL_SET_SM_DEBUG_MODE => with(bytes, |a: &mut nvgpu_gpu_sm_debug_mode_args| {
            // Of a channel in a group (`gv11b_gr_set_sm_debug_mode`).
            let named = machine.object_by_number(a.channel_fd);
            accept(matches!(named, Some(Object::Channel(channel)) if channel.state().tsg.is_some()))
        }),
        NVGPU_GPU_IOCTL_GET_TPC_EXCEPTION_EN_STATUS => {
            with(bytes, |a: &mut nvgpu_gpu_tpc_exception_en_status_args| {
                a.tpc_exception_en_sm_mask = (1 << machine.chip().sms) - 1;
                Ok(0)
            })
        }
        NVGPU_GPU_IOCTL_NUM_VSMS => with(bytes, |a: &mut nvgpu_gpu_num_vsms| {
            a.num_vsms = machine.chip().sms;
            Ok(0)
        }),
        NVGPU_GPU_IOCTL_VSMS_MAPPING => with(bytes, |a: &mut nvgpu_gpu_vsms_mapping| {
            let map: Vec<_> = (0..machine.chip().sms).map(sm_place).collect();
            Ok(machine.user.write_or_count(a.vsms_map_buf_addr, map.as_bytes()))
        }),
        NVGPU_GPU_IOCTL_CLEAR_SM_ERRORS => Ok(0),
        NVGPU_GPU_IOCTL_GET_CPU_TIME_CORRELATION_INFO => with(bytes, |a| correlate(machine, a)),
        NVGPU_GPU_IOCTL_GET_GPU_TIME => with(bytes, |a: &mut nvgpu_gpu_get_gpu_time_args| {
            a.gpu_timestamp = machine.clock.ptimer();
            Ok(0)
        }),
        NVGPU_GPU_IOCTL_GET_ENGINE_INFO => with(bytes, |a| engines(machine, a)),
        NVGPU_GPU_IOCTL_CLK_GET_RANGE => with(bytes, |a| clock_range(machine, a)),
        NVGPU_GPU_IOCTL_CLK_GET_VF_POINTS => with(bytes, |a| clock_points(machine, a)),
        NVGPU_GPU_IOCTL_CLK_GET_INFO => with(bytes, |a| clock_info(machine, a)),
        NVGPU_GPU_IOCTL_CLK_SET_INFO => with(bytes, |a| set_clock(machine, a)),
        NVGPU_GPU_IOCTL_SET_DETERMINISTIC_OPTS => with(bytes, |a| deterministic(machine, a)),
        NVGPU_GPU_IOCTL_REGISTER_BUFFER => with(bytes, |a| nvmap::register(machine, a)),
        NVGPU_GPU_IOCTL_GET_BUFFER_INFO => with(bytes, |a| nvmap::info(machine, a)),
        NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_PHYSICAL_MAP => {
            with(bytes, |a: &mut nvgpu_gpu_get_gpc_physical_map_args| {
                gpc_map(machine, a.map_buf_size, a.physical_gpc_buf_addr)
            })
        }
        NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_LOGICAL_MAP => {
            with(bytes, |a: &mut nvgpu_gpu_get_gpc_logical_map_args| {
                gpc_map(machine, a.map_buf_size, a.logical_gpc_buf_addr)
            })
        }
        _ => Err(Errno::ENOTTY),
    }
}

/// Writes as much of `bytes` as fits the program's buffer, and how many there are; gives how many could not
/// be copied.
fn answer<S: Copy + TryInto<usize> + TryFrom<usize>>(
    machine: &Machine,
    address: u64,
    size: &mut S,
    bytes: &[u8],
) -> i32 {
    let room = (*size).try_into().unwrap_or(usize::MAX);
    if let Ok(whole) = S::try_from(bytes.len()) {
        *size = whole;
    }
    machine.user.write_or_count(address, &bytes[..room.min(bytes.len())])
}

fn engines(machine: &Machine, a: &mut nvgpu_gpu_get_engine_info_args) -> Reply {
    let item = |engine_id, engine_instance, runlist_id| nvgpu_gpu_get_engine_info_item {
        engine_id,
        engine_instance,
        runlist_id,
        ..Default::default()
    };
    // Copy engines are numbered through, whatever their kind (`nvgpu_gpu_fetch_engine_info_item`). Which of them
    // an Orin has is not known.
    let items = [
        item(NVGPU_GPU_ENGINE_ID_GR, 0, 0),
        item(NVGPU_GPU_ENGINE_ID_GR_COPY, 0, 0),
        item(NVGPU_GPU_ENGINE_ID_ASYNC_COPY, 1, 1),
        item(NVGPU_GPU_ENGINE_ID_ASYNC_COPY, 2, 2),
    ];
    let whole = size_of::<nvgpu_gpu_get_engine_info_item>();
    let len = (a.engine_info_buf_size as usize).min(items.as_bytes().len()) / whole * whole;
    a.engine_info_buf_size = items.as_bytes().len() as u32;
    Ok(machine.user.write_or_count(a.engine_info_buf_addr, &items.as_bytes()[..len]))
}

fn alloc_as(machine: &Arc<Machine>, a: &mut nvgpu_alloc_as_args) -> Reply {
    // There are no big pages, and without them nothing to split.
    if a.big_page_size != 0 || a.va_range_split != 0 {
        return Err(Errno::EINVAL);
    }
    let mut driver = machine.driver();
    let id = driver.address_spaces + 1;
    let space = AddressSpace::new(id, a.va_range_start, a.va_range_end, &machine.dram)?;
    driver.address_spaces = id;
    let fd = driver.files.open(Object::AddressSpace(Arc::new(space)), |n| format!("nvhost-ga10b-fd{n}"))?;
    a.as_fd = fd.into_raw_fd();
    Ok(0)
}

fn open_tsg(machine: &Arc<Machine>, a: &mut nvgpu_gpu_open_tsg_args) -> Reply {
    let share = a.flags & NVGPU_GPU_IOCTL_OPEN_TSG_FLAGS_SHARE != 0;
    if share || a.source_device_instance_id != 0 || a.share_token != 0 {
        // Share tokens come from another process; this machine has one.
        return Err(Errno::EINVAL);
    }
    let tsg = tsg::open(machine)?;
    let mut driver = machine.driver();
    driver.add_group(&tsg);
    let fd = driver.files.open(Object::Tsg(tsg), |n| format!("nvgpu-ga10b-tsg{n}"))?;
    a.tsg_fd = fd.into_raw_fd() as u32;
    Ok(0)
}

fn open_channel(machine: &Arc<Machine>, a: &mut nvgpu_gpu_open_channel_args) -> Reply {
    let channel = channel::open(machine, Some(a.in_runlist_id()))?;
    let fd = machine.driver().files.open(Object::Channel(channel), |n| format!("nvhost-{DEVICE}-fd{n}"))?;
    a.set_out_channel_fd(fd.into_raw_fd());
    Ok(0)
}

fn zbc_set(machine: &Machine, a: &mut nvgpu_gpu_zbc_set_table_args) -> Reply {
    let tables = &mut machine.driver().zbc;
    match a.type_ {
        NVGPU_ZBC_TYPE_COLOR => tables.colors.add([a.color_ds, a.color_l2], a.format)?,
        NVGPU_ZBC_TYPE_DEPTH => tables.depths.add(a.depth, a.format)?,
        NVGPU_ZBC_TYPE_STENCIL => tables.stencils.add(a.stencil, a.format)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// Answers an entry, or for no type how many colors there are; what the type has not stays as it was.
fn zbc_query(machine: &Machine, a: &mut nvgpu_gpu_zbc_query_table_args) -> Reply {
    let tables = &machine.driver().zbc;
    (a.format, a.ref_cnt) = match a.type_ {
        NVGPU_ZBC_TYPE_INVALID => {
            a.index_size = tables.colors.size();
            (0, 0)
        }
        NVGPU_ZBC_TYPE_COLOR => {
            let entry = tables.colors.entry(a.index_size)?;
            [a.color_ds, a.color_l2] = entry.value;
            (entry.format, entry.references)
        }
        NVGPU_ZBC_TYPE_DEPTH => {
            let entry = tables.depths.entry(a.index_size)?;
            a.depth = entry.value;
            (entry.format, entry.references)
        }
        NVGPU_ZBC_TYPE_STENCIL => {
            let entry = tables.stencils.entry(a.index_size)?;
            a.stencil = entry.value;
            (entry.format, entry.references)
        }
        _ => return Err(Errno::EINVAL),
    };
    Ok(0)
}

fn sm_place(id: u32) -> nvgpu_gpu_vsms_mapping_entry {
    let place = SmPlace::of(id);
    nvgpu_gpu_vsms_mapping_entry {
        gpc_logical_index: place.gpc as u8,
        gpc_virtual_index: place.gpc as u8,
        tpc_local_logical_index: place.tpc as u8,
        tpc_global_logical_index: place.global_tpc() as u8,
        sm_local_id: place.sm as u8,
        tpc_migratable_index: place.tpc as u8,
    }
}

fn gpc_map(machine: &Machine, size: u32, address: u64) -> Reply {
    let map: Vec<u32> = (0..machine.chip().gpcs()).collect();
    if size as usize != map.as_bytes().len() {
        return Err(Errno::EINVAL);
    }
    Ok(machine.user.write_or_count(address, map.as_bytes()))
}

fn correlate(machine: &Machine, a: &mut nvgpu_gpu_get_cpu_time_correlation_info_args) -> Reply {
    let limit = NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_MAX_COUNT;
    let sources = [
        NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_SRC_ID_TSC,
        NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_SRC_ID_OSTIME,
    ];
    if a.count > limit || !sources.contains(&a.source_id) {
        return Err(Errno::EINVAL);
    }
    for sample in a.samples.iter_mut().take(a.count as usize) {
        sample.gpu_timestamp = machine.clock.ptimer();
        sample.cpu_timestamp = match a.source_id {
            NVGPU_GPU_GET_CPU_TIME_CORRELATION_INFO_SRC_ID_TSC => machine.clock.ptimer() / 32,
            _ => machine.clock.wall(),
        };
    }
    Ok(0)
}

/// Slowest and fastest clock of the GPU.
const CLOCKS: [u64; 2] = [306_000_000, characteristics::MAX_HZ];

fn clock_range(machine: &Machine, a: &mut nvgpu_gpu_clk_range_args) -> Reply {
    if a.flags & !NVGPU_GPU_CLK_FLAG_SPECIFIC_DOMAINS != 0 {
        return Err(Errno::EINVAL);
    }
    let specific = a.flags & NVGPU_GPU_CLK_FLAG_SPECIFIC_DOMAINS != 0;
    if specific {
        let wanted: Vec<nvgpu_gpu_clk_range> =
            machine.user.read_array(a.clk_range_entries, a.num_entries.into())?;
        if wanted.is_empty() || wanted.iter().any(|r| r.clk_domain != NVGPU_GPU_CLK_DOMAIN_GPCCLK) {
            return Err(Errno::EINVAL);
        }
    }
    let range = nvgpu_gpu_clk_range {
        clk_domain: NVGPU_GPU_CLK_DOMAIN_GPCCLK,
        min_hz: CLOCKS[0],
        max_hz: CLOCKS[1],
        ..Default::default()
    };
    if a.num_entries > 0 {
        let count = if specific { usize::from(a.num_entries) } else { 1 };
        machine.user.write_array(a.clk_range_entries, &vec![range; count])?;
    }
    if !specific {
        a.num_entries = 1;
    }
    Ok(0)
}

fn clock_points(machine: &Machine, a: &mut nvgpu_gpu_clk_vf_points_args) -> Reply {
    if a.flags != 0 || a.clk_domain != NVGPU_GPU_CLK_DOMAIN_GPCCLK {
        return Err(Errno::EINVAL);
    }
    let points = CLOCKS.map(|freq_hz| nvgpu_gpu_clk_vf_point { freq_hz });
    let count = usize::from(a.max_entries).min(points.len());
    machine.user.write_array(a.clk_vf_point_entries, &points[..count])?;
    a.num_entries = points.len() as u16;
    a.max_entries = points.len() as u16;
    Ok(0)
}

fn clock_info(machine: &Machine, a: &mut nvgpu_gpu_clk_get_info_args) -> Reply {
    if a.flags & !NVGPU_GPU_CLK_FLAG_SPECIFIC_DOMAINS != 0 || a.num_entries == 0 {
        return Err(Errno::EINVAL);
    }
    let mut entries: Vec<nvgpu_gpu_clk_info> =
        machine.user.read_array(a.clk_info_entries, a.num_entries.into())?;
    for entry in &mut entries {
        let types = NVGPU_GPU_CLK_TYPE_TARGET..=NVGPU_GPU_CLK_TYPE_EFFECTIVE;
        if entry.clk_domain != NVGPU_GPU_CLK_DOMAIN_GPCCLK || !types.contains(&entry.clk_type.into()) {
            return Err(Errno::EINVAL);
        }
        entry.freq_hz = CLOCKS[1];
    }
    machine.user.write_array(a.clk_info_entries, &entries)?;
    Ok(0)
}

/// Requests are granted at once: the completion descriptor is readable from the start.
fn set_clock(machine: &Machine, a: &mut nvgpu_gpu_clk_set_info_args) -> Reply {
    if a.flags != 0 || a.num_entries == 0 {
        return Err(Errno::EINVAL);
    }
    let entries: Vec<nvgpu_gpu_clk_info> =
        machine.user.read_array(a.clk_info_entries, a.num_entries.into())?;
    if entries.iter().any(|e| e.clk_domain != NVGPU_GPU_CLK_DOMAIN_GPCCLK) {
        return Err(Errno::EINVAL);
    }
    let (fd, completion) = machine.driver().files.open_event(0)?;
    completion.post();
    a.completion_fd = fd.into_raw_fd();
    Ok(0)
}

fn deterministic(machine: &Machine, a: &mut nvgpu_gpu_set_deterministic_opts_args) -> Reply {
    let both = NVGPU_GPU_SET_DETERMINISTIC_OPTS_FLAGS_ALLOW_RAILGATING
        | NVGPU_GPU_SET_DETERMINISTIC_OPTS_FLAGS_DISALLOW_RAILGATING;
    if a.num_channels > 512 {
        return Err(Errno::EINVAL);
    }
    let fds: Vec<i32> = machine.user.read_array(a.channels, a.num_channels as usize)?;
    for fd in fds {
        match machine.object_by_number(fd) {
            Some(Object::Channel(channel)) if channel.state().deterministic && a.flags & both != both => {
                let allows = a.flags & NVGPU_GPU_SET_DETERMINISTIC_OPTS_FLAGS_ALLOW_RAILGATING != 0;
                if a.flags & both != 0 {
                    channel.state().may_railgate = allows;
                }
            }
            _ => return Err(Errno::EINVAL),
        }
    }
    Ok(0)
}
