//! Steps 1 to 3: what the machine, its driver and its GPU are.

use std::os::fd::AsFd;

use anyhow::{Context, ensure};
use nvgpu_sys::{
    NVGPU_GPU_FLAGS_SUPPORT_IO_COHERENCE, NVMAP_HEAP_IOVMM, call, nvgpu_gpu_characteristics,
    nvgpu_gpu_get_characteristics, nvgpu_gpu_num_vsms, nvmap_query_heap_params,
};

use crate::bringup::client::Nodes;
use crate::bringup::outcome::Notes;
use crate::bringup::rig::{Platform, Rig};
use crate::device::Class;
use crate::doctor::{self, Status, Surroundings, examine, is_software};
use crate::size::size;

/// What nvgpu writes of its characteristics in L4T R36.
const CHARACTERISTICS_BYTES: u64 = 328;
/// SM version of ga10b, major in bits 15:8.
const SM: u32 = 0x807;
/// Compute, copy and channel class of ga10b.
const CLASSES: [u32; 3] = [0xc7c0, 0xc7b5, 0xc76f];

pub fn machine(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    if rig.software {
        let place = if is_software(rig.machine) { "libnvgpu_sim.so" } else { "this program" };
        notes.fact("machine", format!("the software ga10b: its nodes are part of {place}"));
    } else {
        let diagnosis = examine(rig.machine);
        for check in &diagnosis.checks {
            match check.status {
                Status::Bad => {}
                Status::Good => notes.fact(check.name, &check.found),
                Status::Unknown | Status::Warning => {
                    let remedy = check.remedy.as_ref().map_or(String::new(), |r| format!(" ({r})"));
                    notes.warn(format!("{}: {}{remedy}", check.name, check.found));
                }
            }
        }
        let bad: Vec<String> = diagnosis
            .checks
            .iter()
            .filter(|check| check.status == Status::Bad)
            .map(|check| {
                let remedy = check.remedy.as_ref().map_or(String::new(), |r| format!(" -> {r}"));
                format!("{}: {}{remedy}", check.name, check.found)
            })
            .collect();
        ensure!(bad.is_empty(), "{}", bad.join("; "));
        if diagnosis.platform == doctor::Platform::Jetson {
            let around = Surroundings::of(rig.machine);
            let known = |value: Option<String>| value.unwrap_or_else(|| "not reported".to_owned());
            notes.fact("power mode", known(around.power_mode));
            notes.fact("temperature", known(around.gpu_celsius.map(|t| format!("{t:.1} °C"))));
        }
    }
    match rig.platform {
        Platform::Nvgpu => Nodes::open(&rig.sys).map(drop),
        Platform::Desktop => Ok(rig.device().map(drop)?),
    }
}

pub fn characteristics(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    if rig.platform == Platform::Desktop {
        let device = rig.device()?;
        let info = device.info();
        notes.fact("GPU", &info.name);
        notes.fact("SM version", info.sm_number());
        notes.fact("driver", &info.driver_version);
        return Ok(());
    }
    let nodes = Nodes::open(&rig.sys)?;
    let mut gpu = nvgpu_gpu_characteristics::default();
    let mut args = nvgpu_gpu_get_characteristics {
        gpu_characteristics_buf_size: size_of::<nvgpu_gpu_characteristics>() as u64,
        gpu_characteristics_buf_addr: (&raw mut gpu).expose_provenance() as u64,
    };
    // SAFETY: the address is that of `gpu`, which outlives the call and is as long as stated.
    unsafe { call(&*rig.sys, nodes.ctrl.as_fd(), &mut args) }?;
    let name: Vec<u8> = gpu.chipname.iter().copied().take_while(|byte| *byte != 0).collect();
    let name = String::from_utf8_lossy(&name).into_owned();
    let length = args.gpu_characteristics_buf_size;
    let classes =
        [("compute", gpu.compute_class), ("copy", gpu.dma_copy_class), ("channel", gpu.gpfifo_class)];
    notes.fact("chip", &name);
    notes.fact("characteristics", format!("{length} bytes"));
    notes.fact("SM version", format!("{:#x}, warp count {}", gpu.sm_arch_sm_version, gpu.sm_arch_warp_count));
    for (role, number) in classes {
        let class = Class::new(role, number);
        notes.fact(&format!("{role} class"), format!("{number:#x} {}", class.name.unwrap_or("unknown")));
    }
    notes.fact("clock", format!("up to {} MHz", gpu.max_freq / 1_000_000));
    notes.fact("L2 cache", size(gpu.L2_cache_size));
    notes.fact("GPCs", format!("{}, of {} TPCs at most", gpu.num_gpc, gpu.num_tpc_per_gpc));
    ensure!(length == CHARACTERISTICS_BYTES, "the driver wrote {length} bytes, not {CHARACTERISTICS_BYTES}");
    ensure!(name == "ga10b", "the chip is {name:?}, not ga10b");
    ensure!(gpu.sm_arch_sm_version == SM, "SM version {:#x}, not {SM:#x}", gpu.sm_arch_sm_version);
    for ((role, number), wanted) in classes.into_iter().zip(CLASSES) {
        ensure!(number == wanted, "{role} class {number:#x}, not {wanted:#x}");
    }
    ensure!(gpu.big_page_size == 0, "big pages of {} are on", size(gpu.big_page_size.into()));
    ensure!(
        gpu.flags & NVGPU_GPU_FLAGS_SUPPORT_IO_COHERENCE != 0,
        "the flags {:#x} lack I/O coherence: CPU and GPU would not see each other's writes",
        gpu.flags
    );
    Ok(())
}

/// The modules that have as many SMs; an AGX Orin has fewer in its lower power modes.
fn module(sms: u32) -> &'static str {
    match sms {
        16 => "an AGX Orin 64 GB",
        14 => "an AGX Orin 32 GB",
        8 => "an Orin NX, an Orin Nano 8 GB, or an AGX Orin in a lower power mode",
        4 => "an Orin Nano 4 GB",
        _ => "a lower power mode",
    }
}

pub fn extent(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    if rig.platform == Platform::Desktop {
        let device = rig.device()?;
        notes.fact("SMs", device.info().sm_count);
        notes.fact("memory", device.info().memory);
        return Ok(());
    }
    let nodes = Nodes::open(&rig.sys)?;
    let mut sms = nvgpu_gpu_num_vsms::default();
    nodes.ctrl.ask(&mut sms)?;
    let sms = sms.num_vsms;
    notes.fact("SMs", format!("{sms}: {}", module(sms)));
    let mut heap = nvmap_query_heap_params { heap_mask: NVMAP_HEAP_IOVMM, ..Default::default() };
    nodes.nvmap.ask(&mut heap).context("the size of the heap")?;
    notes.fact("heap", format!("{}, {} free", size(heap.total), size(heap.free)));
    ensure!((2..=16).contains(&sms) && sms.is_multiple_of(2), "{sms} SMs");
    let ram = match rig.software {
        true => None,
        false => doctor::meminfo(rig.machine, "MemTotal"),
    };
    match ram {
        Some(ram) => {
            notes.fact("RAM", size(ram));
            ensure!(
                heap.total >= ram / 2 && heap.total <= ram + ram / 8,
                "a heap of {} in a RAM of {}",
                size(heap.total),
                size(ram)
            );
        }
        None => ensure!(heap.total >= 64 << 20, "a heap of {}", size(heap.total)),
    }
    Ok(())
}
