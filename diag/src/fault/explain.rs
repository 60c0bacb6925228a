//! From the lines of an incident to its report.

use nv_hw::fault::warp_esr;
use sass::Space;

use crate::catalogue::Class;
use crate::fault::advice::advise;
use crate::fault::blame::blame;
use crate::fault::chip::compute_capability;
use crate::fault::incident::Incident;
use crate::fault::judge::judge;
use crate::fault::judgement::{Judgement, Sure};
use crate::fault::mmu::MmuFault;
use crate::fault::notes::{of_lines, of_registers};
use crate::fault::records::{mmu_faults, owners, sm_records};
use crate::fault::repeats::Repeats;
use crate::fault::report::{Evidence, FaultReport, Owner, Subject, WindowTrap};
use crate::fault::sm::SmRecord;
use crate::fault::suspects::rank;
use crate::kernel_log::Entry;
use crate::kernel_log::lines::Kind;
use crate::process_map::code::{Code, access_of};
use crate::process_map::loose::Question;
use crate::process_map::map::{Found, Mapping, ProcessMap};

/// Explains an incident by its lines and by the map of the process's address space.
#[must_use]
pub fn explain(incident: &Incident, map: &ProcessMap) -> FaultReport {
    let owners = owners(incident);
    let by_hand;
    let (map, stranger) = match another(map, &owners) {
        Some(note) => {
            by_hand = map.by_hand();
            (&by_hand, Some(note))
        }
        None => (map, None),
    };
    let mut sms = sm_records(incident);
    sms.sort_by_key(|sm| !sm.is_error());
    let mmu = mmu_faults(incident);
    let (subject, mut what, blamed) = blame(incident, &sms, &mmu);
    let failed: Vec<&SmRecord> = sms.iter().filter(|sm| sm.is_error()).collect();
    let software = software_fault(incident);
    let of_log = compute_capability(incident);
    let sm = map.sm.or(of_log);
    let found = code_of(&failed, &mmu, map, sm, software.as_ref().map(|(code, _)| code));
    let Found { code, guess, notes: of_programs } = found;
    let instruction = code.iter().find(|c| !c.doubtful).and_then(|c| c.instruction());
    let space = instruction.and_then(access_of).map(|(space, _)| space);
    let in_page = mmu.iter().find_map(|fault| fault.address).and_then(|address| map.locate(address.0, true));
    // Addresses of shared and local memory are offsets.
    let exact = failed.iter().find_map(|sm| sm.address);
    let exact = exact.filter(|_| !matches!(space, Some(Space::Shared | Space::Local | Space::Constant)));
    let access = exact.and_then(|address| map.locate(address.0, false)).or(in_page);
    let window_trap = window_trap(&sms, space, map);
    if let Some(text) = instruction
        && subject == Subject::Sm
        && text.split_whitespace().any(|word| word.starts_with("BPT"))
    {
        what.words = "a trap instruction, as a failed assertion runs into".to_owned();
    }
    let mut notes = incident.notes.clone();
    notes.extend(stranger);
    notes.extend(software.map(|(_, note)| note));
    notes.extend(of_lines(incident, subject, &what, blamed));
    notes.extend(of_registers(&failed, &mmu));
    notes.extend(of_programs);
    if let (Some(given), Some(named)) = (map.sm, of_log)
        && given != named
    {
        notes.push(format!("the lines are of a GPU of sm_{named}, not of sm_{given}"));
    }
    notes.extend(foreign_code(sm, &code));
    let time = incident.entries.iter().find_map(|e| e.time);
    let mut report = FaultReport {
        subject,
        verdict: String::new(),
        what,
        device: incident.entries.first().and_then(|e| e.device.clone()),
        host: incident.entries.first().and_then(|e| e.host.clone()),
        time_us: time.map(|t| t.micros),
        repeats: Repeats::once(time, owners.iter().filter_map(|o| o.channel)),
        owners,
        sms,
        mmu,
        code,
        guess,
        access,
        window_trap,
        xid: blamed.or(incident.entries.first()).and_then(|e| e.xid),
        previous: incident.entries.iter().find_map(|e| e.fields.id("previous")),
        judgement: Judgement::new(Class::Program, Sure::Possible, ""),
        cause_line: blamed.or(incident.entries.first()).map_or(0, |e| e.line),
        root: None,
        consequences: Vec::new(),
        led_to: Vec::new(),
        consequences_dropped: 0,
        causes: Vec::new(),
        try_next: Vec::new(),
        notes,
        evidence: incident.entries.iter().map(evidence).collect(),
        evidence_dropped: incident.dropped,
    };
    (report.causes, report.try_next) = advise(&report, blamed, map);
    report.verdict = verdict(&report);
    report.judgement = judge(&report, incident, blamed);
    report
}

/// The code at the program counters of the SMs that failed; where none of it is certain, the instruction that
/// the software ga10b names comes first. Without a program counter, the instructions that can have failed so.
fn code_of(
    failed: &[&SmRecord],
    mmu: &[MmuFault],
    map: &ProcessMap,
    sm: Option<u32>,
    software: Option<&Code>,
) -> Found {
    let access = mmu.first().and_then(|fault| fault.access);
    let mut all = Found::default();
    let mut ask = |pc: Option<u64>, error: u32| {
        let named = software.filter(|named| named.listing.iter().any(|line| Some(line.va.0) == pc));
        let rank = |text: &str| match named.and_then(Code::instruction) {
            Some(named) => (named == text).then_some(0),
            None => rank(error, access, text),
        };
        let found = map.code_at(&Question { pc, sm, rank: &rank });
        for code in found.code {
            if !all.code.contains(&code) && all.code.len() < 8 {
                all.code.push(code);
            }
        }
        all.guess = all.guess.or(found.guess);
        all.notes
            .extend(found.notes.into_iter().filter(|note| !all.notes.contains(note)).collect::<Vec<_>>());
    };
    let mut counters = failed.iter().filter_map(|sm| Some((sm.pc?.0, sm.warp_esr.code))).peekable();
    if counters.peek().is_some() {
        counters.for_each(|(pc, error)| ask(Some(pc), error));
    } else if let Some(error) = failed.iter().map(|sm| sm.warp_esr.code).find(|code| *code != 0) {
        ask(None, error);
    } else if mmu.iter().any(|fault| fault.sm.is_some()) {
        ask(None, warp_esr::MMU_FAULT);
    }
    if all.code.iter().any(|code| code.certain) {
        all.guess = None;
    } else if let Some(named) = software {
        all.code.insert(0, named.clone());
    }
    all
}

fn evidence(entry: &Entry) -> Evidence {
    Evidence {
        line: entry.line,
        kind: entry.kind,
        xid: entry.xid,
        role: entry.kind.role(),
        meaning: entry.kind.meaning(),
        fields: entry.fields.clone(),
        missing: entry.missing.clone(),
        text: entry.text.clone(),
    }
}

/// Returns the report of the software ga10b itself: the instruction, and the threads that executed it.
fn software_fault(incident: &Incident) -> Option<(Code, String)> {
    let fields = &incident.of(Kind::SoftwareFault).next()?.fields;
    let lanes = fields.register("lanes")?;
    let threads = match lanes.count_ones() {
        1 => "1 thread".to_owned(),
        n => format!("{n} threads"),
    };
    let note = format!(
        "the software ga10b names {threads} of warp {} of block ({}), lanes {lanes:#010x}",
        fields.id("warp")?,
        fields.text("block")?,
    );
    Some((Code::of_log(fields.number("pc")?, fields.text("instruction")?), note))
}

/// Returns the note for code that is not the device's.
fn foreign_code(sm: Option<u32>, code: &[Code]) -> Option<String> {
    let mut of_files = code.iter().filter(|code| !code.named_by_log);
    let other = of_files.find(|code| sm.is_some_and(|sm| code.sm / 10 != sm / 10 || code.sm > sm))?;
    let (module, of, sm) = (&other.module, other.sm, sm?);
    let gpu = if sm == 87 { "a Jetson Orin" } else { "the GPU of this log" };
    Some(format!(
        "{module} is for sm_{of}, which {gpu} (sm_{sm}) does not run: the instruction shown is not the one that failed; give \
         the cubin that was loaded"
    ))
}

/// Returns the note for a map of a process that the lines do not name.
fn another(map: &ProcessMap, owners: &[Owner]) -> Option<String> {
    let pids: Vec<u32> = owners.iter().filter_map(|owner| owner.pid).collect();
    let pid = map.pid.filter(|pid| !pids.is_empty() && !pids.contains(pid))?;
    let of = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    Some(format!("the map is of process {pid}, the fault is of process {of}: the map is not used"))
}

/// The fault in one sentence.
fn verdict(report: &FaultReport) -> String {
    let number = report.xid.map_or(String::new(), |number| format!("Xid {number}: "));
    let mut text = number
        + &match &report.window_trap {
            Some(trap) if trap.certain => format!("memory-window trap: {}", report.what.words),
            _ => report.what.words.clone(),
        };
    if let Some(code) = report.code.iter().find(|c| c.certain)
        && let Some(place) = code.place()
    {
        text += &format!(", in {place}");
    }
    if let Some(comm) = report.owners.iter().find_map(|o| o.comm.as_ref()) {
        text += &format!(" [{comm}]");
    }
    text
}

/// Whether this is the trap of the memory windows.
fn window_trap(sms: &[SmRecord], space: Option<Space>, map: &ProcessMap) -> Option<WindowTrap> {
    let record = sms.iter().find(|sm| sm.warp_esr.code != 0)?;
    let possible = match (record.warp_esr.code, space) {
        (warp_esr::INVALID_ADDR_SPACE, space) => {
            space.is_none_or(|s| matches!(s, Space::Global | Space::Generic))
        }
        (warp_esr::OOR_ADDR | warp_esr::MISALIGNED_ADDR, Some(space)) => space == Space::Generic,
        (warp_esr::OOR_ADDR | warp_esr::MISALIGNED_ADDR, None) => map.trapped().next().is_some(),
        _ => false,
    };
    // Of several buffers in windows, the one that was accessed.
    let accessed = |mapping: &Mapping| record.address.is_none_or(|address| mapping.contains(address.0));
    let trapped = map.trapped().find(|(mapping, _)| accessed(mapping)).or_else(|| map.trapped().next());
    possible.then(|| WindowTrap {
        certain: trapped.is_some(),
        window: trapped.map(|(_, window)| window.name.clone()),
        mapping: trapped.map(|(mapping, _)| mapping.clone()),
    })
}
