//! Further facts of a fault, from its lines and registers.

use crate::catalogue;
use crate::fault::host::{MethodHeader, ring_entry};
use crate::fault::incident::Incident;
use crate::fault::mmu::MmuFault;
use crate::fault::report::{Subject, What};
use crate::fault::sm::SmRecord;
use crate::kernel_log::lines::Kind;
use crate::kernel_log::{Entry, Value};

/// Facts of the lines beside the error itself.
pub(super) fn of_lines(
    incident: &Incident,
    subject: Subject,
    what: &What,
    blamed: Option<&Entry>,
) -> Vec<String> {
    let mut notes = dump_notes(incident);
    notes.extend(smmu_note(incident));
    if what.name.starts_with("Xid ") {
        notes.extend(blamed.and_then(|e| Some(catalogue::xid(e.xid?)?.meaning.clone())));
    }
    if subject == Subject::Platform {
        notes.extend(blamed.and_then(values));
    }
    if incident.has(Kind::DroppedFault) || incident.has(Kind::HubMmuError) {
        notes.push("the MMU lost fault records: there were more faults than these".to_owned());
    }
    notes
}

/// Facts of the registers of the SMs that failed beside the error itself.
pub(super) fn of_registers(failed: &[&SmRecord], mmu: &[MmuFault]) -> Vec<String> {
    let mut notes = Vec::new();
    if failed.iter().any(|sm| sm.global_esr.value.0 & 4 != 0) {
        notes.push("several warps failed; the registers describe the first of them".to_owned());
    }
    if let (Some(sm), Some(fault)) = (failed.iter().find_map(|sm| sm.place), mmu.iter().find_map(|f| f.sm))
        && sm == fault
    {
        notes.push("the MMU's fault and the SM's exception are of the same SM".to_owned());
    }
    notes
}

/// The values of a line, by their names.
fn values(entry: &Entry) -> Option<String> {
    let shown = |(name, value): (&str, &Value)| match value {
        Value::Text(text) => format!("{name} {text}"),
        Value::Decimal(n) => format!("{name} {n}"),
        Value::Hex(n) => format!("{name} {n:#x}"),
    };
    let values: Vec<String> = entry.fields.iter().filter(|(name, _)| *name != "rest").map(shown).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// Direction and reason of an access that the SMMU refused: FSYNR0.WNR, and TF, AFF and PF of FSR, by the
/// SMMUv2 architecture (Arm IHI 0062).
fn smmu_note(incident: &Incident) -> Option<String> {
    let f = &incident.of(Kind::SmmuFault).next()?.fields;
    let direction = if f.register("fsynr")? & 0x10 != 0 { "a write" } else { "a read" };
    let reasons = [
        (2, "the page is not mapped"),
        (4, "the access flag is not set"),
        (8, "the permission does not allow it"),
    ];
    let fsr = f.register("fsr").unwrap_or(0);
    let reason =
        reasons.iter().find(|(bit, _)| fsr & bit != 0).map_or(String::new(), |(_, r)| format!(": {r}"));
    Some(format!("{direction} of {:#x}{reason}", f.number("iova")?))
}

/// Returns notes on the fault from the state of the host.
fn dump_notes(incident: &Incident) -> Vec<String> {
    let mut notes = Vec::new();
    let mut channel = None;
    for entry in &incident.entries {
        let f = &entry.fields;
        match entry.kind {
            Kind::PbdmaState => {
                if let (Some(header), Some(shadow)) = (f.register("header"), f.register("shadow")) {
                    if header != 0 {
                        notes.push(format!("the unit was at {}", MethodHeader::decoded(header)));
                    }
                    if shadow != 0 {
                        notes.push(format!("the last header it read was {}", MethodHeader::raw(shadow)));
                    }
                }
                if let (Some(low), Some(high)) = (f.register("entry_low"), f.register("entry_high"))
                    && (low, high) != (0, 0)
                {
                    let (address, words) = ring_entry(low, high);
                    notes.push(format!("the ring entry in work names {words} words at {address:#x}"));
                }
            }
            Kind::DumpChannel => channel = f.id("channel"),
            Kind::DumpRamfc => {
                let name = channel.map_or("a channel".to_owned(), |c| format!("channel {c}"));
                if let (Some(put), Some(get)) = (f.number("put"), f.number("get"))
                    && put != get
                {
                    let header = f.register("header").filter(|h| *h != 0);
                    let at = header.map_or(String::new(), |h| format!(", at {}", MethodHeader::decoded(h)));
                    notes.push(format!("{name} is at {get:#x} of {put:#x}{at}"));
                }
                if let (Some(address), Some(payload)) = (f.number("semaphore"), f.number("payload"))
                    && address != 0
                {
                    notes.push(format!(
                        "{name} last named the semaphore at {address:#x} with value {payload:#x}"
                    ));
                }
            }
            Kind::DumpEngineId if matches!(f.text("status"), Some("load" | "save")) => {
                notes.push("the driver's dump swaps the words load and save of an engine's state".to_owned());
            }
            Kind::WalkFailed => {
                notes.push("the driver found no page-table entry for the address either".to_owned())
            }
            _ => {}
        }
        if notes.len() >= 16 {
            break;
        }
    }
    notes
}
