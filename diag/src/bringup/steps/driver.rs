//! Steps 1 to 3: the machine, its driver and its GPU.

use std::os::fd::AsFd;

use anyhow::ensure;
use nv_hw::class::{AMPERE_CHANNEL_GPFIFO_B, AMPERE_COMPUTE_B, AMPERE_DMA_COPY_B};
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

/// Bytes of characteristics that nvgpu writes in the releases that were read.
const CHARACTERISTICS_BYTES: u64 = 328;
/// Source of the lengths of structs.
const HEADER: &str = "include/uapi/linux/nvgpu-ctrl.h, r36.2 to r36.4.3";
/// Source of the classes.
const CHIP: &str = "an AGX Orin: agx-orin-dev-kit, test_gpu_submit.log; include/nvgpu/class.h, r36.4.3";
/// Chips of other modules, as their drivers call them.
const OTHERS: [(&str, &str); 5] = [
    ("gm20b", "a Jetson TX1 or the Nano of 2019"),
    ("gp10b", "a Jetson TX2"),
    ("gv11b", "a Jetson Xavier"),
    ("gb10b", "a Jetson Thor"),
    ("tu10x", "a Turing GPU beside a Tegra"),
];
/// SM version of ga10b, major in bits 15:8.
const SM: u32 = 0x807;
/// Compute, copy and channel class of ga10b.
const CLASSES: [u32; 3] = [AMPERE_COMPUTE_B, AMPERE_DMA_COPY_B, AMPERE_CHANNEL_GPFIFO_B];

pub fn machine(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    if rig.software {
        let place = if is_software(rig.machine) { "libnvgpu_sim.so" } else { "this program" };
        notes.fact("machine", format!("the software ga10b: its nodes are part of {place}"));
    } else {
        let diagnosis = examine(rig.machine);
        if rig.platform == Platform::Nvgpu && diagnosis.platform != doctor::Platform::Jetson {
            // Another driver's checks do not report the nodes that are missing.
            Nodes::open(&rig.sys)?;
        }
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
    notes.expect("chip", &name, "ga10b", "hal/init/hal_ga10b.c, r36.4.3");
    let length = args.gpu_characteristics_buf_size;
    // A longer struct has fields that are not read here, a shorter one leaves zeros.
    notes.expect(
        "characteristics",
        format!("{length} bytes"),
        format!("{CHARACTERISTICS_BYTES} bytes"),
        HEADER,
    );
    notes.expect("SM version", format!("{:#x}", gpu.sm_arch_sm_version), format!("{SM:#x}"), CHIP);
    notes.fact("warp count", gpu.sm_arch_warp_count);
    let classes =
        [("compute", gpu.compute_class), ("copy", gpu.dma_copy_class), ("channel", gpu.gpfifo_class)];
    let named = |role, number| {
        let class = Class::new(role, number);
        format!("{number:#x} {}", class.name.unwrap_or("unknown"))
    };
    for ((role, number), wanted) in classes.into_iter().zip(CLASSES) {
        notes.expect(&format!("{role} class"), named(role, number), named(role, wanted), CHIP);
    }
    notes.fact("clock", format!("up to {} MHz", gpu.max_freq / 1_000_000));
    notes.fact("L2 cache", size(gpu.L2_cache_size));
    notes.fact("GPCs", format!("{}, of {} TPCs at most", gpu.num_gpc, gpu.num_tpc_per_gpc));
    let big_pages = match gpu.big_page_size {
        0 => "none".to_owned(),
        bytes => size(bytes.into()),
    };
    notes.expect("big pages", big_pages, "none", "os/linux/platform_ga10b_tegra.c, r36.4.3");
    let coherent = gpu.flags & NVGPU_GPU_FLAGS_SUPPORT_IO_COHERENCE != 0;
    notes.judge(
        "I/O coherence",
        format!("{} (flags {:#x})", if coherent { "yes" } else { "no" }, gpu.flags),
        coherent,
        "yes: else CPU and GPU do not see each other's writes, which step 14 tries",
        HEADER,
    );
    let other = OTHERS.iter().find(|(chip, _)| *chip == name);
    ensure!(
        other.is_none(),
        "the chip is {name}, {}: this program has launch descriptors and kernels for ga10b, a Jetson Orin",
        other.map_or("", |(_, module)| module)
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
        notes.fact("memory", size(device.info().memory));
        return Ok(());
    }
    let nodes = Nodes::open(&rig.sys)?;
    let mut sms = nvgpu_gpu_num_vsms::default();
    nodes.ctrl.ask(&mut sms)?;
    let sms = sms.num_vsms;
    notes.judge(
        "SMs",
        format!("{sms}: {}", module(sms)),
        (2..=16).contains(&sms) && sms.is_multiple_of(2),
        "2 to 16, two for each TPC",
        "NVIDIA's data sheets of the modules",
    );
    ensure!(sms > 0, "the driver counts no SM");
    let ram = match rig.software {
        true => None,
        false => doctor::meminfo(rig.machine, "MemTotal"),
    };
    let mut heap = nvmap_query_heap_params { heap_mask: NVMAP_HEAP_IOVMM, ..Default::default() };
    let asked = nodes.nvmap.ask(&mut heap);
    let (found, as_expected) = match (&asked, ram) {
        (Err(error), _) => (format!("not reported: {error:#}"), false),
        (Ok(()), Some(ram)) => (
            format!("{}, {} free, of {} of RAM", size(heap.total), size(heap.free), size(ram)),
            (ram / 2..=ram + ram / 8).contains(&heap.total),
        ),
        (Ok(()), None) => (format!("{}, {} free", size(heap.total), size(heap.free)), heap.total >= 64 << 20),
    };
    const NVMAP: &str = "nvmap_ioctl.c of nvidia-oot, r36.4.3: the heap's size is the machine's memory";
    notes.judge("heap", found, as_expected, "about as large as the RAM", NVMAP);
    Ok(())
}
