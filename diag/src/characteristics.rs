//! Characteristics of a GPU from nvgpu, more than programs need: every field, decoded, and its clocks.

use std::io::{self, Write};

use nvgpu_sys::{nvgpu_gpu_characteristics, nvgpu_gpu_zcull_get_info_args};
use serde::Serialize;

use crate::hex::Hex;
use crate::report::style::{ASIDE, HEADING, NAME};
use crate::size::size;

/// Report of nvgpu, as one document.
#[derive(Clone, Debug, Serialize)]
pub struct Characteristics {
    /// Groups of fields, in the order of their importance to a compute program.
    pub groups: Vec<Group>,
    /// The flags as the driver gave them.
    pub flags: Hex,
    /// Features of the driver (`NVGPU_GPU_FLAGS_*`), by the header's names without their prefix.
    pub supported: Vec<&'static str>,
    /// Known features that it does not have here.
    pub unsupported: Vec<&'static str>,
    /// Bits of the flags that have no name here.
    pub unknown_flags: Option<Hex>,
    /// Clocks of the GPU, if the driver reports them.
    pub clocks: Clocks,
}

/// Fields that belong together.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Subject of the fields.
    pub name: &'static str,
    /// They.
    pub fields: Vec<Field>,
}

/// A field.
#[derive(Clone, Debug, Serialize)]
pub struct Field {
    /// As the kernel header spells it.
    pub name: &'static str,
    /// Its value.
    pub value: i128,
    /// The value in words, where it means more than a number.
    pub words: Option<String>,
}

/// Clocks of the GPU in Hz.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Clocks {
    /// Lowest that can be set.
    pub min_hz: Option<u64>,
    /// Highest that can be set.
    pub max_hz: Option<u64>,
    /// The requested one.
    pub target_hz: Option<u64>,
    /// The one that is set.
    pub actual_hz: Option<u64>,
    /// The one that is counted.
    pub effective_hz: Option<u64>,
    /// Those that the driver sets.
    pub points_hz: Vec<u64>,
}

/// Names of the flags, by bit.
const FLAGS: [(u32, &str); 55] = [
    (0, "HAS_SYNCPOINTS"),
    (2, "SUPPORT_SPARSE_ALLOCS"),
    (3, "SUPPORT_SYNC_FENCE_FDS"),
    (4, "SUPPORT_CYCLE_STATS"),
    (6, "SUPPORT_CYCLE_STATS_SNAPSHOT"),
    (8, "SUPPORT_TSG"),
    (9, "SUPPORT_CLOCK_CONTROLS"),
    (10, "SUPPORT_GET_VOLTAGE"),
    (11, "SUPPORT_GET_CURRENT"),
    (12, "SUPPORT_GET_POWER"),
    (13, "SUPPORT_GET_TEMPERATURE"),
    (14, "SUPPORT_SET_THERM_ALERT_LIMIT"),
    (15, "SUPPORT_DEVICE_EVENTS"),
    (16, "SUPPORT_FECS_CTXSW_TRACE"),
    (17, "SUPPORT_MAP_COMPBITS"),
    (18, "SUPPORT_DETERMINISTIC_SUBMIT_NO_JOBTRACKING"),
    (19, "SUPPORT_DETERMINISTIC_SUBMIT_FULL"),
    (20, "SUPPORT_IO_COHERENCE"),
    (21, "SUPPORT_RESCHEDULE_RUNLIST"),
    (22, "SUPPORT_TSG_SUBCONTEXTS"),
    (24, "SUPPORT_DETERMINISTIC_OPTS"),
    (25, "SUPPORT_SCG"),
    (26, "SUPPORT_SYNCPOINT_ADDRESS"),
    (27, "SUPPORT_VPR"),
    (28, "SUPPORT_USER_SYNCPOINT"),
    (29, "CAN_RAILGATE"),
    (30, "SUPPORT_USERMODE_SUBMIT"),
    (31, "DRIVER_REDUCED_PROFILE"),
    (32, "SUPPORT_SET_CTX_MMU_DEBUG_MODE"),
    (33, "SUPPORT_FAULT_RECOVERY"),
    (34, "SUPPORT_MAPPING_MODIFY"),
    (35, "SUPPORT_REMAP"),
    (36, "SUPPORT_COMPRESSION"),
    (37, "SUPPORT_SM_TTU"),
    (38, "SUPPORT_POST_L2_COMPRESSION"),
    (39, "SUPPORT_MAP_ACCESS_TYPE"),
    (40, "SUPPORT_2D"),
    (41, "SUPPORT_3D"),
    (42, "SUPPORT_COMPUTE"),
    (43, "SUPPORT_I2M"),
    (44, "SUPPORT_ZBC"),
    (46, "SUPPORT_PROFILER_V2_DEVICE"),
    (47, "SUPPORT_PROFILER_V2_CONTEXT"),
    (48, "SUPPORT_SMPC_GLOBAL_MODE"),
    (49, "SUPPORT_GET_GR_CONTEXT"),
    (50, "SUPPORT_BUFFER_METADATA"),
    (51, "L2_MAX_WAYS_EVICT_LAST_ENABLED"),
    (52, "SUPPORT_VAB"),
    (53, "SUPPORT_NVS"),
    (55, "SCHED_EXIT_WAIT_FOR_ERRBAR_SUPPORTED"),
    (56, "MULTI_PROCESS_TSG_SHARING"),
    (57, "SUPPORT_GPU_MMIO"),
    (60, "ECC_ENABLED_SM_LRF"),
    (61, "ECC_ENABLED_SM_SHM"),
    (62, "ECC_ENABLED_TEX"),
];
/// The sign bit, which a table of positive shifts would hide.
const ECC_LTC: (u32, &str) = (63, "ECC_ENABLED_LTC");

/// Bits of a preemption mode, graphics and compute.
const GRAPHICS_MODES: [(u32, &str); 2] = [(0, "WFI"), (1, "GFXP")];
const COMPUTE_MODES: [(u32, &str); 3] = [(0, "WFI"), (1, "CTA"), (2, "CILP")];

fn bits(value: u32, names: &[(u32, &str)]) -> String {
    let named: Vec<_> =
        names.iter().filter(|(bit, _)| value >> bit & 1 != 0).map(|(_, name)| *name).collect();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}

fn hex(value: impl Into<u64>) -> Option<String> {
    Some(format!("{:#x}", value.into()))
}

fn bytes(value: u64) -> Option<String> {
    Some(if value == 0 { "none".to_owned() } else { size(value) })
}

fn count_of(mask: u32, what: &str) -> Option<String> {
    Some(format!("{mask:#x}: {} {what}", mask.count_ones()))
}

/// Makes a group of fields of `$gpu`, each by its own name, some with words.
macro_rules! group {
    ($name:literal, $gpu:ident, $($field:ident $(= $words:expr)?),* $(,)?) => {
        Group { name: $name, fields: vec![$(Field {
            name: stringify!($field).trim_end_matches('_'),
            value: i128::from($gpu.$field),
            words: { let words: Option<String> = None; $( let words: Option<String> = words.or($words); )? words },
        }),*] }
    };
}

impl Characteristics {
    /// Decodes the driver's report.
    #[must_use]
    pub fn of(
        gpu: &nvgpu_gpu_characteristics,
        zcull: Option<&nvgpu_gpu_zcull_get_info_args>,
        zcull_context_bytes: Option<u32>,
        clocks: Clocks,
    ) -> Self {
        let named = FLAGS.iter().chain([&ECC_LTC]);
        let (on, off): (Vec<_>, Vec<_>) = named.clone().partition(|(bit, _)| gpu.flags >> bit & 1 != 0);
        let known = named.fold(0, |known, (bit, _)| known | 1_u64 << bit);
        let names = |list: Vec<&(u32, &'static str)>| list.into_iter().map(|(_, name)| *name).collect();
        let mut groups = groups(gpu);
        let mut zculls = Vec::new();
        if let Some(bytes) = zcull_context_bytes {
            zculls.push(Field { name: "ctx_size", value: bytes.into(), words: Some(size(bytes.into())) });
        }
        if let Some(zcull) = zcull {
            let group = group!(
                "zcull",
                zcull,
                width_align_pixels,
                height_align_pixels,
                pixel_squares_by_aliquots,
                aliquot_total,
                region_byte_multiplier,
                region_header_size,
                subregion_header_size,
                subregion_width_align_pixels,
                subregion_height_align_pixels,
                subregion_count,
            );
            zculls.extend(group.fields);
        }
        if !zculls.is_empty() {
            groups.push(Group { name: "zcull", fields: zculls });
        }
        Self {
            groups,
            flags: Hex(gpu.flags),
            supported: names(on),
            unsupported: names(off),
            unknown_flags: Some(gpu.flags & !known).filter(|bits| *bits != 0).map(Hex),
            clocks,
        }
    }

    /// Prints it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{HEADING}Clocks{HEADING:#}")?;
        let mhz =
            |hz: Option<u64>| hz.map_or("not reported".to_owned(), |hz| format!("{} MHz", hz / 1_000_000));
        let clocks = &self.clocks;
        let mut row = |name: &str, value: &str| writeln!(out, "  {NAME}{name:<34}{NAME:#}{value}");
        row("target, actual, effective", &{
            let now = [clocks.target_hz, clocks.actual_hz, clocks.effective_hz];
            now.map(mhz).join(", ")
        })?;
        row("range", &format!("{} to {}", mhz(clocks.min_hz), mhz(clocks.max_hz)))?;
        for group in &self.groups {
            writeln!(out, "{HEADING}nvgpu: {}{HEADING:#}", group.name)?;
            for field in &group.fields {
                let value = field.words.clone().unwrap_or_else(|| field.value.to_string());
                writeln!(out, "  {NAME}{:<34}{NAME:#}{value}", field.name)?;
            }
        }
        for (what, names) in [("supports", &self.supported), ("does not support", &self.unsupported)] {
            writeln!(out, "{HEADING}nvgpu {what}{HEADING:#}")?;
            for line in names.chunks(3) {
                writeln!(out, "  {}", line.join(", "))?;
            }
        }
        match self.unknown_flags {
            Some(bits) => writeln!(out, "  {ASIDE}and flags without a name here: {bits}{ASIDE:#}"),
            None => Ok(()),
        }
    }
}

fn groups(gpu: &nvgpu_gpu_characteristics) -> Vec<Group> {
    let version = |value: u32| Some(format!("{}.{}", value >> 8, value & 0xff));
    let mode = |value: u32, names: &[(u32, &str)]| Some(bits(value, names));
    vec![
        identity(gpu),
        group!(
            "units",
            gpu,
            num_gpc,
            max_gpc_count,
            gpc_mask = count_of(gpu.gpc_mask, "GPCs"),
            num_tpc_per_gpc,
            num_ppc_per_gpc,
            max_tex_per_tpc,
            sm_arch_sm_version = version(gpu.sm_arch_sm_version),
            sm_arch_spa_version = version(gpu.sm_arch_spa_version),
            sm_arch_warp_count =
                Some(format!("{} (a constant of the driver, not what an SM holds)", gpu.sm_arch_warp_count)),
            max_freq = Some(format!("{} MHz", gpu.max_freq / 1_000_000)),
        ),
        memory(gpu),
        group!(
            "classes",
            gpu,
            compute_class = hex(gpu.compute_class),
            dma_copy_class = hex(gpu.dma_copy_class),
            gpfifo_class = hex(gpu.gpfifo_class),
            inline_to_memory_class = hex(gpu.inline_to_memory_class),
            threed_class = hex(gpu.threed_class),
            twod_class = hex(gpu.twod_class),
        ),
        group!(
            "scheduling",
            gpu,
            max_gpfifo_entries,
            max_veid_count_per_tsg,
            compute_preemption_mode_flags = mode(gpu.compute_preemption_mode_flags, &COMPUTE_MODES),
            default_compute_preempt_mode = mode(gpu.default_compute_preempt_mode, &COMPUTE_MODES),
            graphics_preemption_mode_flags = mode(gpu.graphics_preemption_mode_flags, &GRAPHICS_MODES),
            default_graphics_preempt_mode = mode(gpu.default_graphics_preempt_mode, &GRAPHICS_MODES),
            max_ctxsw_ring_buffer_size = bytes(gpu.max_ctxsw_ring_buffer_size.into()),
            max_css_buffer_size = bytes(gpu.max_css_buffer_size.into()),
            max_dbg_tsg_timeslice = Some(format!("{} us", gpu.max_dbg_tsg_timeslice)),
            reg_ops_limit,
        ),
        group!(
            "highest request numbers",
            gpu,
            gpu_ioctl_nr_last,
            tsg_ioctl_nr_last,
            dbg_gpu_ioctl_nr_last,
            ioctl_channel_nr_last,
            as_ioctl_nr_last,
            event_ioctl_nr_last,
            ctxsw_ioctl_nr_last,
            prof_ioctl_nr_last,
            nvs_ioctl_nr_last,
        ),
    ]
}

fn identity(gpu: &nvgpu_gpu_characteristics) -> Group {
    let chip: String = gpu.chipname.iter().take_while(|b| **b != 0).map(|b| char::from(*b)).collect();
    let mut identity = group!(
        "identity",
        gpu,
        arch = hex(gpu.arch),
        impl_ = hex(gpu.impl_),
        rev = hex(gpu.rev),
        per_device_identifier = hex(gpu.per_device_identifier),
        device_instance_id,
        gpu_instance_id,
        gr_instance_id,
        bus_type = Some(match gpu.bus_type {
            nvgpu_sys::NVGPU_GPU_BUS_TYPE_NONE => "none".to_owned(),
            nvgpu_sys::NVGPU_GPU_BUS_TYPE_AXI => "AXI".to_owned(),
            other => format!("{other:#x}"),
        }),
        numa_domain_id = (gpu.numa_domain_id == nvgpu_sys::NVGPU_GPU_CHARACTERISTICS_NO_NUMA_INFO)
            .then(|| "not reported".to_owned()),
        pci_vendor_id = hex(gpu.pci_vendor_id),
        pci_device_id = hex(gpu.pci_device_id),
        pci_subsystem_vendor_id = hex(gpu.pci_subsystem_vendor_id),
        pci_subsystem_device_id = hex(gpu.pci_subsystem_device_id),
        pci_class = hex(gpu.pci_class),
        pci_revision = hex(gpu.pci_revision),
        vbios_version = hex(gpu.vbios_version),
        vbios_oem_version = hex(gpu.vbios_oem_version),
    );
    identity.fields.insert(0, Field { name: "chipname", value: 0, words: Some(chip) });
    identity
}

fn memory(gpu: &nvgpu_gpu_characteristics) -> Group {
    let mut memory = group!(
        "memory",
        gpu,
        L2_cache_size = bytes(gpu.L2_cache_size),
        on_board_video_memory_size = bytes(gpu.on_board_video_memory_size),
        local_video_memory_size = bytes(gpu.local_video_memory_size),
        gpu_va_bit_count,
        pde_coverage_bit_count,
        big_page_size = bytes(gpu.big_page_size.into()),
        available_big_page_sizes = bytes(gpu.available_big_page_sizes.into()),
        compression_page_size = bytes(gpu.compression_page_size.into()),
        map_buffer_batch_limit,
        max_fbps_count,
        fbp_en_mask = count_of(gpu.fbp_en_mask, "FBPs"),
        emc_en_mask = hex(gpu.emc_en_mask),
        max_ltc_per_fbp,
        max_lts_per_ltc,
        num_ltc,
        lts_per_ltc,
        num_sub_partition_per_fbpa,
        gr_compbit_store_base_hw = hex(gpu.gr_compbit_store_base_hw),
        gr_gobs_per_comptagline_per_slice,
        cbc_cache_line_size,
        cbc_comptags_per_line,
    );
    for (name, value) in ["rop_l2_en_mask_DEPRECATED[0]", "rop_l2_en_mask_DEPRECATED[1]"]
        .into_iter()
        .zip(gpu.rop_l2_en_mask_DEPRECATED)
    {
        memory.fields.push(Field { name, value: value.into(), words: hex(value) });
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../nvgpu-sys/include/nvgpu-ctrl.h");
        std::fs::read_to_string(path).expect("the header")
    }

    fn decoded(gpu: &nvgpu_gpu_characteristics) -> Characteristics {
        let zcull = nvgpu_gpu_zcull_get_info_args::default();
        Characteristics::of(gpu, Some(&zcull), Some(4096), Clocks::default())
    }

    #[test]
    fn every_field_of_the_header_is_shown_by_its_name() {
        let header = header();
        let shown = decoded(&nvgpu_gpu_characteristics::default());
        let names: Vec<_> = shown.groups.iter().flat_map(|g| &g.fields).map(|f| f.name).collect();
        for (start, passed_over) in [
            ("struct nvgpu_gpu_characteristics {", &["flags", "pad", "reserved"][..]),
            ("struct nvgpu_gpu_zcull_get_info_args {", &[]),
        ] {
            let body =
                header.split(start).nth(1).and_then(|rest| rest.split('}').next()).expect("the struct");
            for line in body.lines().filter(|line| line.contains("__")) {
                let name = line.trim().trim_end_matches(';').rsplit(['\t', ' ']).next().expect("a name");
                let name = name.split('[').next().expect("a name");
                if passed_over.iter().any(|p| name.trim_start_matches('_').starts_with(p)) {
                    continue;
                }
                assert!(names.iter().any(|n| n.split('[').next() == Some(name)), "{name} is not shown");
            }
        }
    }

    #[test]
    fn every_flag_of_the_header_has_its_name() {
        for line in header().lines() {
            let Some(rest) = line.strip_prefix("#define NVGPU_GPU_FLAGS_") else { continue };
            let (name, value) = rest.split_once(' ').expect("a value");
            let value = value.trim_start_matches("0x").trim_end_matches("ULL");
            let value = u64::from_str_radix(value, 16).expect("a number");
            if value.count_ones() > 1 {
                continue;
            }
            let shown = decoded(&nvgpu_gpu_characteristics { flags: value, ..Default::default() });
            assert_eq!((shown.supported.as_slice(), shown.unknown_flags), (&[name][..], None));
        }
    }

    #[test]
    fn flags_of_a_later_driver_are_shown_as_bits() {
        let shown = decoded(&nvgpu_gpu_characteristics { flags: 1 << 1 | 1 << 8, ..Default::default() });
        assert_eq!((shown.supported.as_slice(), shown.unknown_flags), (&["SUPPORT_TSG"][..], Some(Hex(2))));
        let mut text = Vec::new();
        shown.print(&mut text).expect("memory takes all");
        assert!(String::from_utf8_lossy(&text).contains("flags without a name here: 0x2"));
    }
}
