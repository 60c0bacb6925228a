//! Joins what the driver recorded about a fault with what this process knows: its memory, its programs, its
//! launches.

use crate::address::GpuVa;
use crate::backend::RawFault;
use crate::core::{Core, Explain, Position};
use crate::error::report::{FaultKind, FaultRecord, FaultReport, Neighbour, SmRecord};
use crate::fault::{core_file, map_file};
use crate::program::registry::Registry;

/// A mapping further away than this, or than a page of the GPU where that is more, has nothing to do with an
/// access.
const NEAR: u64 = 1 << 20;

impl Explain for Registry {
    fn explain(&self, core: &Core, at: Position, raw: &RawFault) -> FaultReport {
        map_file::write(core, self);
        let fault_type = raw.mmu.and_then(|m| m.kind);
        // The first SM with a code of its own: later ones often follow from it.
        let sm = raw.sms.iter().find(|s| s.code() != 0).or(raw.sms.first());
        let kind = match sm {
            Some(sm) if sm.code() != 0 => FaultKind::of_warp(sm.code(), fault_type),
            _ if raw.sms.iter().any(SmRecord::is_trap) => FaultKind::Trap,
            // Also where the notifier has another error, which came first.
            _ if raw.mmu.is_some() => FaultKind::Mmu { fault_type },
            _ => FaultKind::of_notifier(raw.notifier, fault_type),
        };
        let recorded = sm.map(|s| s.pc).filter(|pc| *pc != 0);
        let running = if recorded.is_none() { self.in_flight(at) } else { Vec::new() };
        let pc = recorded.or_else(|| {
            let ([(image, index)], FaultKind::Mmu { .. }) = (running.as_slice(), kind) else { return None };
            let store = raw.mmu.and_then(|m| m.store);
            image.only_access(*index, |access| match access {
                sass::Access::Load => store != Some(true),
                sass::Access::Store => store != Some(false),
                sass::Access::Atomic => true,
            })
        });
        let in_flight: Vec<String> =
            running.iter().filter_map(|(image, i)| image.kernel_name(*i)).map(str::to_owned).collect();
        let only = if let [name] = in_flight.as_slice() { Some(name.clone()) } else { None };
        let image = pc.and_then(|pc| self.image_at(pc));
        let at_pc = image.as_ref().zip(pc);
        let function = at_pc.and_then(|(image, pc)| image.function_at(pc));
        let address = raw.mmu.and_then(|m| GpuVa::new(m.va));
        FaultReport {
            kind,
            address,
            kernel: function.map(|(name, _)| name.to_owned()).or(only),
            in_flight,
            pc,
            offset: function.map(|(_, offset)| offset),
            instruction: at_pc.and_then(|(image, pc)| image.instruction_at(pc)),
            nearest: address.and_then(|va| nearest(core, va.raw())),
            explanation: raw.explanation.clone(),
            core: core_file::write(core, self, raw),
            raw: FaultRecord { notifier: raw.notifier, sms: raw.sms.clone(), log: raw.log.clone() },
        }
    }
}

/// The mapping nearest to `va`, if one is near.
fn nearest(core: &Core, va: u64) -> Option<Neighbour> {
    let (before, after) = core.memory().around(va);
    let before = before.map(|m| {
        let end = m.va.raw() + m.len;
        (if va < end { 0 } else { (va - end) as i64 + 1 }, m)
    });
    let after = after.map(|m| (-((m.va.raw() - va) as i64), m));
    let (distance, m) = [before, after].into_iter().flatten().min_by_key(|(d, _)| d.unsigned_abs())?;
    let near = distance.unsigned_abs() <= NEAR.max(core.backend().layout().granule);
    near.then_some(Neighbour { va: m.va, len: m.len, what: m.what, distance })
}
