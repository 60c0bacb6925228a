//! Owner of a fault, how sure that is, and the action that follows.

use crate::catalogue::{self, Class};
use crate::fault::incident::Incident;
use crate::fault::judgement::{Judgement, Sure};
use crate::fault::report::{FaultReport, Subject};
use crate::kernel_log::Entry;
use crate::kernel_log::lines::Kind;

const RELOAD: &str = "reboot, or unload and load the driver; then find the first error of that boot";
const RELEASES: &str =
    "bring kernel module, firmware and libraries to one release (`nvdiag doctor`), then reboot";
const LINK: &str = "reseat the device, check its slot, riser and power cables; if it returns, replace it (RMA) \
                    with the log and `nvdiag report` attached";
const REPLACE: &str = "run again and watch where it returns; if it does, replace the board (RMA) with the log \
                       and `nvdiag report` attached";

/// Judges an incident by the unit to blame and the line that says so.
pub(super) fn judge(report: &FaultReport, incident: &Incident, blamed: Option<&Entry>) -> Judgement {
    use Class::{Driver, Hardware, Program};
    use Sure::{Certain, Likely, Possible};
    let of_number = report.xid.and_then(catalogue::xid);
    let is_decoded = matches!(report.subject, Subject::Sm | Subject::Mmu | Subject::FrontEnd)
        && matches!(report.xid, Some(13 | 31 | 69));
    if let Some(known) = of_number.filter(|_| !is_decoded) {
        let sure = if known.also.is_empty() { Certain } else { Likely };
        return match (known.class, report.previous.and_then(catalogue::xid)) {
            (_, Some(previous)) => Judgement::new(previous.class, Likely, previous.action.clone()),
            (Class::Consequence, None) => Judgement::new(Program, Possible, known.action.clone()),
            (class, None) => Judgement::new(class, sure, known.action.clone()),
        };
    }
    let action = |text: &str| text.to_owned();
    let of_nouveau = incident.has(Kind::NouveauTimeout) || incident.has(Kind::NouveauPbdma);
    let (whose, sure, action) = match report.subject {
        // A number that no catalogue has.
        _ if report.xid.is_some() && of_number.is_none() => {
            (Class::Unknown, Possible, action("ask NVIDIA with the log and `nvdiag report`"))
        }
        _ if of_nouveau => (Driver, Likely, action("restart the program; update Mesa and the kernel")),
        Subject::Sm => (Program, Certain, of_instruction(report)),
        Subject::Mmu => mmu(report, incident),
        Subject::Pushbuffer if report.what.name.contains("SIGNATURE") => (Driver, Likely, action(RELOAD)),
        Subject::FrontEnd | Subject::Pushbuffer | Subject::Copy => {
            (Program, Likely, action("fix the command that the lines name; restart the program"))
        }
        Subject::Hardware => (Hardware, Certain, action(REPLACE)),
        Subject::Firmware => (Driver, Likely, action(RELOAD)),
        Subject::Register => (Driver, Likely, action(RELEASES)),
        Subject::Timeout => {
            (Program, Likely, action("bound the kernel's loops and waits; restart the program"))
        }
        Subject::Driver => match blamed.map(|e| e.kind) {
            Some(Kind::AllocationFailed) => (Program, Possible, action("free memory, or enlarge CMA")),
            Some(Kind::BringUpFailed) => (Driver, Likely, action(RELEASES)),
            _ => (Driver, Likely, action(RELOAD)),
        },
        Subject::Channel => match blamed.and_then(|e| catalogue::notifier(e.fields.id("code")?)) {
            Some(known) => (known.class, Possible, known.action.clone()),
            None => (Program, Possible, action("find the first error of this channel; restart the program")),
        },
        Subject::Platform => return platform(blamed.map(|e| e.kind)),
    };
    Judgement::new(whose, sure, action)
}

/// Owner, certainty and action of faults beside the GPU's own, by the kind of their line.
const PLATFORM: &[(&[Kind], Class, Sure, &str)] = &[
    (&[Kind::PcieError, Kind::PcieLinkDown, Kind::GpuLost], Class::Hardware, Sure::Likely, LINK),
    (&[Kind::NvSwitch], Class::Hardware, Sure::Likely, REPLACE),
    (
        &[Kind::IommuFault],
        Class::Driver,
        Sure::Possible,
        "update the driver; if the GPU is passed to a guest, check the guest's driver",
    ),
    (
        &[Kind::OomKill],
        Class::Program,
        Sure::Likely,
        "use less memory, or add swap; GPU buffers count as the process's memory",
    ),
    (
        &[Kind::Host1xTimeout],
        Class::Program,
        Sure::Possible,
        "restart the program that uses the engine; then update its driver",
    ),
    (
        &[Kind::KeyRejected],
        Class::Configuration,
        Sure::Certain,
        "sign the module with a key that the firmware knows (mokutil), or switch Secure Boot off",
    ),
    (
        &[Kind::OverCurrent],
        Class::Power,
        Sure::Certain,
        "check supply and cables, or choose a lower power mode (`nvpmodel`)",
    ),
    (&[Kind::PowerCable], Class::Power, Sure::Certain, "connect the GPU's power cables"),
    (
        &[Kind::HeatShutdown],
        Class::Power,
        Sure::Certain,
        "check fan, heat sink and power mode before the machine is used again",
    ),
    (
        &[Kind::SymbolVersion, Kind::ApiMismatch, Kind::FirmwareMissing, Kind::NvmapRequest],
        Class::Configuration,
        Sure::Certain,
        RELEASES,
    ),
    (
        &[Kind::BarInvalid],
        Class::Configuration,
        Sure::Certain,
        "enable 64-bit BARs (above 4G decoding) in the system's firmware, or boot with pci=realloc",
    ),
    (
        &[Kind::Refused],
        Class::Configuration,
        Sure::Certain,
        "install the release of the driver that supports this GPU",
    ),
    (
        &[Kind::OtherDriver],
        Class::Configuration,
        Sure::Certain,
        "unload or blacklist the other driver, then load this one",
    ),
    (&[Kind::InitFailed], Class::Driver, Sure::Possible, RELEASES),
    (
        &[Kind::NvmapFreed, Kind::NvmapHandle, Kind::NvmapLimit],
        Class::Program,
        Sure::Likely,
        "fix the program that the line names; restart it",
    ),
    (
        &[Kind::MemoryController, Kind::McError],
        Class::Driver,
        Sure::Possible,
        "match the client with its driver",
    ),
];

/// Judges a fault of another unit.
fn platform(kind: Option<Kind>) -> Judgement {
    let row = PLATFORM.iter().find(|(kinds, ..)| kind.is_some_and(|kind| kinds.contains(&kind)));
    match row {
        Some((_, whose, sure, action)) => Judgement::new(*whose, *sure, *action),
        None => Judgement::new(
            Class::Driver,
            Sure::Likely,
            "match the stream id with its device, and update that device's driver",
        ),
    }
}

/// A warp's error is its program's.
fn of_instruction(report: &FaultReport) -> String {
    let code = report.code.iter().find(|code| code.certain);
    match code.and_then(|code| Some((code.place()?, code.instruction()?))) {
        Some((place, text)) => format!("fix `{text}` in {place}; restart the program"),
        None => "name the instruction (--cubin or --map) and fix it; restart the program".to_owned(),
    }
}

fn mmu(report: &FaultReport, incident: &Incident) -> (Class, Sure, String) {
    use nv_hw::fault::fault_type;
    let of_driver = |kind| incident.has(kind) && report.mmu.is_empty();
    if of_driver(Kind::OtherMmuFault) || of_driver(Kind::HubMmuError) {
        return (Class::Driver, Sure::Likely, RELOAD.to_owned());
    }
    let Some(fault) = report.mmu.first() else {
        return (
            Class::Program,
            Sure::Possible,
            "find the line with the address; restart the program".to_owned(),
        );
    };
    let named = fault.fault.as_deref().unwrap_or("");
    let client = fault.client.as_deref().unwrap_or("").to_ascii_lowercase();
    if named.to_ascii_uppercase().contains("POISON") {
        return (Class::Hardware, Sure::Certain, REPLACE.to_owned());
    }
    let is_bar = fault.engine.as_deref().is_some_and(|engine| engine.contains("BAR"));
    if is_bar || ["fecs", "gpccs", "pmu"].iter().any(|unit| client.contains(unit)) {
        return (Class::Driver, Sure::Likely, RELOAD.to_owned());
    }
    let at = fault.address.map_or(String::new(), |address| format!(" to {address}"));
    match fault.fault_type {
        Some(fault_type::PDE_SIZE | fault_type::COMPRESSION_FAILURE | fault_type::UNBOUND_INST_BLOCK) => {
            (Class::Driver, Sure::Likely, RELOAD.to_owned())
        }
        _ => (Class::Program, Sure::Likely, format!("fix the access{at}; restart the program")),
    }
}
