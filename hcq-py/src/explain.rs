//! A fault in the words of `nvdiag`.

use hcq::{FaultKind, FaultReport};
use nvdiag::fault::FaultList;
use nvdiag::process_map::{Mapping, ProcessMap};
use nvdiag::provoke::{Capture, Outcome, SmRegisters};
use nvdiag::{Hex, Report};

/// The account that `nvdiag` prints: what happened, where, why, and what to try.
pub(crate) fn explain(report: &FaultReport) -> Option<String> {
    let mut map = ProcessMap::default();
    map.mappings.extend(report.nearest.iter().map(|nearest| Mapping {
        what: nearest.what.to_owned(),
        va: Hex(nearest.va.raw()),
        size_bytes: nearest.len,
        ..Mapping::default()
    }));
    let register = |value: u32| Hex(value.into());
    let registers = report.raw.sms.iter().map(|sm| SmRegisters {
        sm_id: sm.sm,
        global_esr: register(sm.global_esr),
        warp_esr: register(sm.warp_esr),
        pc: Hex(sm.pc),
    });
    let (is_mmu_fault, fault_type) = match report.kind {
        FaultKind::Mmu { fault_type } => (true, fault_type),
        _ => (false, None),
    };
    let capture = Capture {
        outcome: Outcome::Fault,
        device: String::new(),
        launched: String::new(),
        came_back: Vec::new(),
        error: report.to_string(),
        notifier: report.raw.notifier,
        sms: registers.collect(),
        address: report.address.map(|address| Hex(address.raw())),
        is_mmu_fault,
        fault_type,
        log: report.raw.log.clone(),
        map: map.document(),
    };
    let faults = FaultList {
        source: String::new(),
        lines: report.raw.log.len() as u64,
        found: 1,
        faults: vec![capture.explain()?],
        messages: Vec::new(),
        messages_dropped: 0,
        unknown_found: 0,
        unknown_errors: 0,
        unknown: Vec::new(),
    };
    let mut text = Vec::new();
    faults.print(&mut anstream::StripStream::new(&mut text)).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end().to_owned())
}
