//! The core file: a GPU core dump of a fault, as cuda-gdb and `nvdiag core` read it.
//!
//! If `HCQ_CORE` names a folder, the fault that stops a device leaves `gpu-core.PID.N.nvcudmp` there: the
//! device, the loaded cubins, the exceptions of its SMs, and from the software ga10b the block that failed, with
//! the registers of all its warps. Drivers give no registers: on hardware the file has none.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use core_dump::{Block, Context, CoreDump, Device, Exception, Generator, Grid, Module, Sm};
use nv_hw::fault::{hww_esr, warp_esr};

use crate::backend::{RawFault, Stopped};
use crate::core::Core;
use crate::cubin::error::CubinError;
use crate::error::report::SmRecord;
use crate::fault::new_file;
use crate::program::image::Image;
use crate::program::registry::Registry;

/// Handle of the one context. Debuggers take 0 for none, for grids too.
const CONTEXT: u64 = 1;

/// The folder, if the environment names one.
fn folder() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(|| super::folder("HCQ_CORE")).as_ref()
}

/// Whether faults leave core files: programs keep their cubins for them.
pub(crate) fn is_asked_for() -> bool {
    folder().is_some()
}

/// Writes the file of a fault, if it is asked for, and returns its name, or why it could not be written.
pub(crate) fn write(core: &Core, programs: &Registry, raw: &RawFault) -> Option<Result<PathBuf, String>> {
    let folder = folder()?;
    let dump = CoreDump {
        generator: Some(generator()),
        devices: vec![device(core, programs, raw)],
        ..CoreDump::default()
    };
    let name = |number| folder.join(format!("gpu-core.{}.{number}.nvcudmp", std::process::id()));
    let bytes = dump.to_bytes().map_err(io::Error::other);
    // It holds the program's data.
    let saved = bytes.and_then(|bytes| new_file::write(name, &bytes));
    Some(saved.map_err(|error| format!("cannot write to {}: {error}", folder.display())))
}

fn generator() -> Generator {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as u32);
    Generator { name: concat!("hcq ", env!("CARGO_PKG_VERSION")).to_owned(), time, ..Generator::default() }
}

fn device(core: &Core, programs: &Registry, raw: &RawFault) -> Device {
    let (info, layout) = (core.info(), core.backend().layout());
    let images = programs.images();
    let context = Context {
        id: CONTEXT,
        shared_window: layout.shared_window.raw(),
        local_window: layout.local_window.raw(),
        thread: nix::unistd::gettid().as_raw().cast_unsigned(),
        modules: images.iter().map(|image| module(image)).collect(),
        ..Context::default()
    };
    let stopped = raw.stopped.as_deref();
    let grid = stopped.map(|stopped| grid(&stopped.grid, programs));
    // Debuggers look for every SM by its number.
    let sms = (0..info.sm_count).map(|id| {
        let record = raw.sms.iter().find(|record| record.sm == id);
        let blocks = stopped.filter(|stopped| stopped.sm == id).map(|s| block(s, record, programs));
        Sm {
            id,
            exception: record.map_or(Exception::NONE, exception),
            error_pc: record.map(|record| record.pc).filter(|pc| *pc != 0),
            blocks: blocks.into_iter().collect(),
        }
    });
    Device {
        name: info.name.clone(),
        sm_type: format!("sm_{}", info.sm_number()),
        sm_count: info.sm_count,
        warps_per_sm: info.max_warps_per_sm,
        lanes_per_warp: 32,
        // With RZ, PT, URZ and UPT: cuda-gdb 13.0 reads the last of each, too.
        registers_per_lane: 256,
        predicates_per_lane: PT + 1,
        uniform_registers: 64,
        uniform_predicates: PT + 1,
        capability: [info.sm >> 8, info.sm & 0xff],
        instruction_bytes: sass::WORD_BYTES as u32,
        contexts: vec![context],
        grids: grid.into_iter().collect(),
        sms: sms.collect(),
        ..Device::default()
    }
}

/// Number of the predicate that is always true.
const PT: u32 = 7;

/// A loaded program, with the address of its image as its handle.
fn module(image: &Image) -> Module {
    let skip = |error: &CubinError| tracing::warn!(%error, "a program is left out of the GPU core dump");
    Module {
        handle: image.base().raw(),
        relocated: image.relocated_file().and_then(|file| file.inspect_err(skip).ok()),
        original: image.file().map(<[u8]>::to_vec),
    }
}

fn grid(grid: &Grid, programs: &Registry) -> Grid {
    let image = programs.image_at(grid.entry);
    let offset = |image: &Image| {
        let at = grid.entry - image.base().raw();
        image.kernels().iter().find(|kernel| kernel.code.offset == at).map(|kernel| kernel.param_base)
    };
    Grid {
        id: grid.id.max(1),
        context: CONTEXT,
        function: grid.entry,
        module: image.as_ref().map_or(0, |image| image.base().raw()),
        parameter_offset: image.as_ref().and_then(|image| offset(image)).unwrap_or(0).into(),
        ..grid.clone()
    }
}

/// The block that was stopped, with the SM's exception in the warp that the SM names.
fn block(stopped: &Stopped, record: Option<&SmRecord>, programs: &Registry) -> Block {
    let mut block = Block { grid: stopped.grid.id.max(1), ..stopped.block.clone() };
    let with_true = |predicates: &mut Vec<bool>| {
        if !predicates.is_empty() {
            predicates.resize(PT as usize, false);
            predicates.push(true);
        }
    };
    for warp in &mut block.warps {
        with_true(&mut warp.uniform_predicates);
        for lane in &mut warp.lanes {
            with_true(&mut lane.predicates);
            let image = programs.image_at(lane.pc);
            let offset = image.as_ref().and_then(|image| image.function_at(lane.pc));
            lane.offset = offset.map_or(0, |(_, offset)| offset);
        }
        let Some(record) = record.filter(|record| hww_esr::WARP_ID.of(record.warp_esr) == warp.id) else {
            continue;
        };
        warp.error_pc = Some(record.pc).filter(|pc| *pc != 0);
        warp.is_broken = record.is_trap();
        let failed = warp.lanes.iter_mut().filter(|lane| warp.active >> lane.lane & 1 != 0);
        failed.for_each(|lane| lane.exception = exception(record));
    }
    block
}

/// CUDA's exception for the error of an SM: those of cuda-gdb's manual, by what they are described as.
fn exception(record: &SmRecord) -> Exception {
    match record.code() {
        0 => Exception::NONE,
        warp_esr::STACK_ERROR | warp_esr::API_STACK_ERROR | warp_esr::STACK_OVERFLOW => {
            Exception::WARP_HARDWARE_STACK_OVERFLOW
        }
        warp_esr::PC_WRAP | warp_esr::MISALIGNED_PC | warp_esr::PC_OVERFLOW => Exception::WARP_INVALID_PC,
        warp_esr::MISALIGNED_REG
        | warp_esr::OOR_REG
        | warp_esr::ILLEGAL_INSTR_ENCODING
        | warp_esr::ILLEGAL_INSTR_PARAM => Exception::WARP_ILLEGAL_INSTRUCTION,
        warp_esr::OOR_ADDR => Exception::WARP_OUT_OF_RANGE_ADDRESS,
        warp_esr::MISALIGNED_ADDR => Exception::WARP_MISALIGNED_ADDRESS,
        warp_esr::INVALID_ADDR_SPACE => Exception::WARP_INVALID_ADDRESS_SPACE,
        warp_esr::MMU_FAULT | warp_esr::MMU_NACK => Exception::WARP_ILLEGAL_ADDRESS,
        _ => Exception::UNKNOWN,
    }
}
