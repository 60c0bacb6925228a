//! The addresses of faults, as marks in a picture of the address space.

use crate::address_map::picture::Mark;
use crate::fault::report::{FaultList, FaultReport};
use crate::process_map::code::Code;

impl FaultList {
    /// Returns the marks for the map of process `pid`: the addresses of faults and their program counters,
    /// each once, addresses first. Faults of other processes are left out where both are known.
    #[must_use]
    pub fn marks(&self, pid: Option<u32>) -> Vec<Mark> {
        self.marks_by_fault(pid, true).into_iter().map(|(_, mark)| mark).collect()
    }

    /// The marks, each with the indices of its faults. With `places` the texts tell what is mapped there.
    pub(super) fn marks_by_fault(&self, pid: Option<u32>, places: bool) -> Vec<(Vec<usize>, Mark)> {
        let mut marks: Vec<(Vec<usize>, Mark)> = Vec::new();
        for (index, fault) in self.faults.iter().enumerate() {
            let pids: Vec<u32> = fault.owners.iter().filter_map(|owner| owner.pid).collect();
            if pid.is_some_and(|pid| !pids.is_empty() && !pids.contains(&pid)) {
                continue;
            }
            let number = if self.faults.len() > 1 { format!("fault {}: ", index + 1) } else { String::new() };
            for mark in of_fault(fault, places) {
                let is_same = |m: &Mark| (m.address, m.is_pc) == (mark.address, mark.is_pc);
                match marks.iter_mut().find(|(_, m)| is_same(m)) {
                    Some((faults, _)) => faults.push(index),
                    None => {
                        let text = format!("{number}{}", mark.text);
                        marks.push((vec![index], Mark { text, ..mark }));
                    }
                }
            }
        }
        marks.sort_by_key(|(_, mark)| mark.is_pc);
        marks
    }
}

/// The marks of one fault.
fn of_fault(fault: &FaultReport, places: bool) -> Vec<Mark> {
    let mut marks = Vec::new();
    let place = |address: u64| {
        let access = fault.access.as_ref().filter(|access| places && access.address.0 == address);
        access.map_or(String::new(), |access| format!(": {}", access.words))
    };
    let mut mark = |address, text, is_pc| marks.push(Mark { address, text, is_pc, link: None });
    for mmu in &fault.mmu {
        let Some(address) = mmu.address else { continue };
        let words: Vec<&str> =
            [&mmu.fault, &mmu.access_name].into_iter().flatten().map(String::as_str).collect();
        let words = if words.is_empty() { "fault of the MMU".to_owned() } else { words.join(", ") };
        mark(address.0, words + &place(address.0), false);
    }
    // An address that nothing was looked up for is an offset into shared or local memory.
    let known = fault.access.as_ref().map(|access| access.address);
    for sm in fault.sms.iter().filter(|sm| sm.is_error()) {
        let name = sm.warp_esr.name.unwrap_or("SM exception");
        if let Some(address) = sm.address.filter(|address| Some(*address) == known) {
            mark(address.0, format!("{name}{}", place(address.0)), false);
        }
        if let Some(pc) = sm.pc {
            let code = fault.code.iter().find(|code| code.certain);
            let function = code.and_then(Code::place);
            let text = match (function, code.and_then(|code| code.instruction())) {
                (Some(function), Some(instruction)) => format!("{function}: {instruction}"),
                (Some(function), None) => function,
                (None, Some(instruction)) => instruction.to_owned(),
                (None, None) => name.to_owned(),
            };
            mark(pc.0, text, true);
        }
    }
    marks
}
