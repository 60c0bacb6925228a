//! Findings of accesses that the hardware refuses: an exception names a warp and an address, and no more.

use crate::findings::{Checks, FaultPlace, Finding};
use crate::gpu::sm::check::act::Act;
use crate::gpu::sm::check::memory::verb;
use crate::gpu::sm::check::{Watch, coordinates, event, finding};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::fault::{Fault, esr};
use crate::gpu::sm::tlb::Miss;

use nv_hw::fault::fault_type;
use sass::{Access, Space};

/// The access of an instruction that was refused: its verb, its space, and the bytes of a thread.
fn refused(act: Act, code: u32) -> (&'static str, Space, u32) {
    match act {
        Act::Memory(memory) => (verb(memory.access), memory.space, memory.bytes),
        Act::CopyToShared if code == esr::OOR_ADDR => (verb(Access::Store), Space::Shared, 0),
        Act::CopyToShared => (verb(Access::Load), Space::Global, 0),
        Act::CopyBulk => ("copies", Space::Global, 0),
        Act::LoadMatrix => (verb(Access::Load), Space::Shared, 16),
        Act::MultiplyShared(_) => (verb(Access::Load), Space::Shared, 0),
        Act::InitObject | Act::Arrive | Act::ArriveAfterCopies | Act::CheckPhase => {
            (verb(Access::Atomic), Space::Shared, 8)
        }
        _ => ("reads", Space::Constant, 0),
    }
}

fn name(space: Space) -> &'static str {
    match space {
        Space::Global => "global",
        Space::Shared => "shared",
        Space::Local => "local",
        Space::Constant => "constant",
        Space::Generic => "generic",
    }
}

impl Watch {
    /// The launch ends with a fault at the current op, of a block that the core may have left.
    pub fn faulted(&mut self, core: &Core<'_>, block: u64, fault: &mut Fault) {
        fault.found = self.is_found(core, block, fault);
        if fault.pc != core.va() {
            return;
        }
        let lane = fault.lanes.trailing_zeros() & 31;
        let mut event = event(core, core.pc, fault.block, 32 * fault.warp + lane);
        event.block = fault.block;
        let launch = core.env.launch;
        let kernel = core.env.memory.pieces().and_then(|pieces| pieces.kernel_name(launch.program));
        let error = match nv_hw::name(nv_hw::fault::warp_esr::NAMES, fault.code) {
            Some(name) => format!("the SM stopped the launch: {name}"),
            None => format!("the SM stopped the launch: error {:#x}", fault.code),
        };
        fault.place = Some(Box::new(FaultPlace { error, program: launch.program, kernel, event }));
    }

    /// Whether a check has found the mistake, or finds it now.
    fn is_found(&mut self, core: &Core<'_>, block: u64, fault: &Fault) -> bool {
        let step = self.steps.known(core.pc);
        let (Some(step), true) = (step, self.checks.contains(Checks::MEMORY)) else { return false };
        let found = self.reported == Some((core.pc, block, fault.warp));
        if found || fault.pc != core.va() {
            return found;
        }
        let (verb, space, bytes) = refused(step.act, fault.code);
        let space = match fault.address.map(|va| core.tlb.window(va)) {
            Some(Some(Miss::Shared)) if space == Space::Generic => Space::Shared,
            Some(Some(Miss::Local)) if space == Space::Generic => Space::Local,
            _ if space == Space::Generic => Space::Global,
            _ => space,
        };
        let memory = name(space);
        let launch = core.env.launch;
        let (text, size) = match fault.code {
            esr::OOR_ADDR => match space {
                Space::Shared => (
                    format!("{verb} shared memory beyond the block's"),
                    format!("the block has {} bytes of shared memory", launch.shared_bytes),
                ),
                _ => (
                    format!("{verb} {memory} memory beyond the thread's"),
                    format!("a thread has {} bytes of local memory", launch.local_bytes),
                ),
            },
            esr::MISALIGNED_ADDR => (
                format!("{verb} {memory} memory at an address that is not a multiple of its size"),
                String::new(),
            ),
            esr::MMU_FAULT if fault.mmu.is_some_and(|mmu| mmu.kind == fault_type::RO_VIOLATION) => {
                (format!("{verb} global memory that is mapped to be read only"), String::new())
            }
            esr::MMU_FAULT => (format!("{verb} {memory} memory where nothing is mapped"), String::new()),
            esr::INVALID_ADDR_SPACE => {
                (format!("{verb} shared or local memory by an instruction for global memory"), String::new())
            }
            esr::INVALID_CONST_ADDR_LDC => ("reads beyond its constant bank".to_owned(), String::new()),
            _ => return false,
        };
        let lane = fault.lanes.trailing_zeros() & 31;
        let mut found = finding(core, Checks::MEMORY, lane, &text, None, None);
        (found.event.block, found.event.thread) = (fault.block, coordinates(launch, 32 * fault.warp + lane));
        found.address = fault.address;
        if let (Some(va), Space::Global) = (fault.address, space) {
            found.location = core.env.memory.pieces().and_then(|pieces| pieces.locate(va));
        }
        let each = if bytes > 0 { format!("{bytes} bytes of each thread") } else { String::new() };
        let parts = [each, size].into_iter().filter(|part| !part.is_empty());
        let detail = parts.collect::<Vec<_>>().join("; ");
        self.findings.record(Finding { detail, ..found });
        true
    }
}
