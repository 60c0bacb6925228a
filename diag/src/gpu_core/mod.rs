//! A GPU core dump, explained: what failed, in which instruction of which kernel, with which registers.

mod code;
mod print;

pub use code::Place;

use std::time::{Duration, UNIX_EPOCH};

use core_dump::{Block, CoreDump, Device, Exception, Grid, Lane, Sm, Warp};
use serde::Serialize;

use crate::hex::Hex;
use code::Code;

/// A core dump.
#[derive(Clone, Debug, Serialize)]
pub struct Core {
    /// The program that wrote it, and the versions of driver and CUDA, where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator: Option<Generator>,
    /// Its devices.
    pub devices: Vec<Gpu>,
}

/// The program that wrote a dump.
#[derive(Clone, Debug, Serialize)]
pub struct Generator {
    /// Its name.
    pub name: String,
    /// Version of the GPU driver; absent where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Version of CUDA that the driver offers; absent where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// Time of the dump, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// A device.
#[derive(Clone, Debug, Serialize)]
pub struct Gpu {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The instruction set, as `sm_87`.
    pub sm_type: String,
    /// Number of SMs.
    pub sm_count: u32,
    /// The grids that ran.
    pub grids: Vec<Launch>,
    /// SMs that failed, or that had warps.
    pub sms: Vec<Stopped>,
}

/// A grid.
#[derive(Clone, Debug, Serialize)]
pub struct Launch {
    /// Its number.
    pub id: u64,
    /// The kernel.
    pub kernel: Place,
    /// Size in blocks.
    pub grid: [u32; 3],
    /// Size of a block in threads.
    pub block: [u32; 3],
    /// Registers of a thread.
    pub registers: u32,
}

/// An SM that failed or had warps.
#[derive(Clone, Debug, Serialize)]
pub struct Stopped {
    /// Its number.
    pub sm: u32,
    /// Its exception; absent where the file gives none for the SM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception: Option<Fault>,
    /// The place of that exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Place>,
    /// Its warps: those that failed in full, others as a summary or, if all are asked for, in full too.
    pub warps: Vec<WarpView>,
}

/// An exception.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Its number, `CUDBGException_t`.
    pub code: u32,
    /// Its name.
    pub name: &'static str,
}

/// A warp.
#[derive(Clone, Debug, Serialize)]
pub struct WarpView {
    /// Its number on the SM.
    pub warp: u32,
    /// Number of its grid.
    pub grid: u64,
    /// Index of its block.
    pub block: [u32; 3],
    /// Whether it failed: an error, an exception of a lane, or a trap.
    pub failed: bool,
    /// Whether it ran into a breakpoint or a trap.
    pub trapped: bool,
    /// Lanes with a thread, as a mask.
    pub valid: Hex,
    /// Lanes that were executing, as a mask.
    pub active: Hex,
    /// Its exception, the first of its lanes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception: Option<Fault>,
    /// Lanes with an exception, as a mask.
    pub failed_lanes: Hex,
    /// The place of its error; of a warp without one, that of its first active lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Place>,
    /// Return addresses of the lane that failed, the innermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backtrace: Vec<Place>,
    /// Uniform registers from UR0 on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uniform_registers: Vec<Hex>,
    /// Uniform predicates from UP0 on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uniform_predicates: Vec<bool>,
    /// Its lanes, of a warp that is shown in full.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<LaneView>,
}

/// A lane.
#[derive(Clone, Debug, Serialize)]
pub struct LaneView {
    /// Its number.
    pub lane: u32,
    /// Index of its thread in the block.
    pub thread: [u32; 3],
    /// Its exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception: Option<Fault>,
    /// Its pc.
    pub pc: Hex,
    /// Its registers from R0 on.
    pub registers: Vec<Hex>,
    /// Its predicates from P0 on.
    pub predicates: Vec<bool>,
}

impl Core {
    /// Explains a dump; with `all`, warps that did not fail are shown in full too. `read` reads the source
    /// files that cubins name, or answers `None` for those that are not there.
    #[must_use]
    pub fn of(dump: &CoreDump, all: bool, read: &mut dyn FnMut(&str) -> Option<String>) -> Self {
        Self {
            generator: dump.generator.as_ref().map(Generator::of),
            devices: dump.devices.iter().map(|device| Gpu::of(device, all, read)).collect(),
        }
    }

    /// The warps that failed.
    pub fn failed_warps(&self) -> impl Iterator<Item = &WarpView> {
        self.devices.iter().flat_map(|gpu| &gpu.sms).flat_map(|sm| &sm.warps).filter(|warp| warp.failed)
    }
}

impl Generator {
    fn of(generator: &core_dump::Generator) -> Self {
        let version = |[major, minor]: [u32; 2]| (major != 0).then(|| format!("{major}.{minor}"));
        let time = UNIX_EPOCH + Duration::from_secs(generator.time.into());
        Self {
            name: generator.name.clone(),
            driver: version(generator.driver),
            cuda: version(generator.cuda),
            time: (generator.time != 0).then(|| humantime::format_rfc3339_seconds(time).to_string()),
        }
    }
}

impl Gpu {
    fn of(device: &Device, all: bool, read: &mut dyn FnMut(&str) -> Option<String>) -> Self {
        let code = Code::of(device, read);
        let sms = device.sms.iter().filter(|sm| !sm.exception.is_none() || !sm.blocks.is_empty());
        Self {
            id: device.id,
            name: device.name.clone(),
            sm_type: device.sm_type.clone(),
            sm_count: device.sm_count,
            grids: device.grids.iter().map(|grid| Launch::of(grid, &code)).collect(),
            sms: sms.map(|sm| Stopped::of(sm, &code, all)).collect(),
        }
    }
}

impl Launch {
    fn of(grid: &Grid, code: &Code<'_>) -> Self {
        Self {
            id: grid.id,
            kernel: code.place(grid.entry),
            grid: grid.grid,
            block: grid.block,
            registers: grid.registers,
        }
    }
}

impl Stopped {
    fn of(sm: &Sm, code: &Code<'_>, all: bool) -> Self {
        let warps = sm.blocks.iter().flat_map(|block| block.warps.iter().map(move |warp| (block, warp)));
        Self {
            sm: sm.id,
            exception: Fault::of(sm.exception),
            at: sm.error_pc.map(|pc| code.place(pc)),
            warps: warps.map(|(block, warp)| WarpView::of(block, warp, code, all)).collect(),
        }
    }
}

impl Fault {
    fn of(exception: Exception) -> Option<Self> {
        (!exception.is_none()).then(|| Self { code: exception.0, name: exception.name() })
    }
}

impl WarpView {
    fn of(block: &Block, warp: &Warp, code: &Code<'_>, all: bool) -> Self {
        let is_faulty = |lane: &&Lane| !lane.exception.is_none();
        let is_active = |lane: &&Lane| lane.lane < 32 && warp.active >> lane.lane & 1 != 0;
        let faulty = warp.lanes.iter().find(is_faulty);
        let failed = faulty.is_some() || warp.error_pc.is_some() || warp.is_broken;
        let first = faulty.or_else(|| warp.lanes.iter().find(is_active)).or(warp.lanes.first());
        let masked = warp.lanes.iter().filter(is_faulty).filter(|lane| lane.lane < 32);
        let in_full = failed || all;
        let pc = warp.error_pc.or(first.map(|lane| lane.pc));
        let calls = first.filter(|_| in_full).map_or(&[][..], |lane| &lane.calls);
        Self {
            warp: warp.id,
            grid: block.grid,
            block: block.index,
            failed,
            trapped: warp.is_broken,
            valid: Hex(warp.valid.into()),
            active: Hex(warp.active.into()),
            exception: faulty.and_then(|lane| Fault::of(lane.exception)),
            failed_lanes: Hex(masked.fold(0, |mask, lane| mask | 1 << lane.lane)),
            at: pc.map(|pc| code.place(pc)),
            backtrace: calls.iter().map(|call| code.place(call.return_pc)).collect(),
            uniform_registers: if in_full { hex(&warp.uniform_registers) } else { Vec::new() },
            uniform_predicates: if in_full { named(&warp.uniform_predicates) } else { Vec::new() },
            lanes: warp.lanes.iter().filter(|_| in_full).map(LaneView::of).collect(),
        }
    }
}

impl LaneView {
    fn of(lane: &Lane) -> Self {
        Self {
            lane: lane.lane,
            thread: lane.thread,
            exception: Fault::of(lane.exception),
            pc: Hex(lane.pc),
            registers: hex(&lane.registers),
            predicates: named(&lane.predicates),
        }
    }
}

/// The predicates that programs set: PT and UPT, behind them, are always true.
fn named(predicates: &[bool]) -> Vec<bool> {
    predicates.iter().take(7).copied().collect()
}

fn hex(words: &[u32]) -> Vec<Hex> {
    words.iter().map(|word| Hex((*word).into())).collect()
}
