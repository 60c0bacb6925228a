//! The unit that failed first.

use nv_hw::fault::{pbdma_intr_0, pbdma_intr_1, pri_error, warp_esr};

use crate::catalogue::{self, Class};
use crate::fault::front_end::unit_exception;
use crate::fault::host::notifier_words;
use crate::fault::incident::Incident;
use crate::fault::mmu::MmuFault;
use crate::fault::report::{Subject, What};
use crate::fault::sm::{self, SmRecord};
use crate::hex::Hex;
use crate::kernel_log::Entry;
use crate::kernel_log::lines::{Kind, Role};
use crate::known_lines::table::Table;

/// A unit, its error, and the line that reports it.
type Blame<'a> = (Subject, What, Option<&'a Entry>);

/// Returns the unit to blame, in the order in which one failure leads to another.
pub(super) fn blame<'a>(incident: &'a Incident, sms: &[SmRecord], mmu: &[MmuFault]) -> Blame<'a> {
    memory_cells(incident)
        .or_else(|| hardware_number(incident))
        .or_else(|| front_end(incident, sms))
        .or_else(|| host(incident))
        .or_else(|| mmu.first().map(|fault| of_mmu(incident, fault)))
        .or_else(|| of_sm(incident, sms))
        .or_else(|| sm_lines(incident))
        .or_else(|| others(incident))
        .or_else(|| channel(incident))
        .unwrap_or_else(|| match incident.entries.first() {
            Some(e) if e.kind.role() == Role::Platform => (Subject::Platform, words(e), Some(e)),
            Some(e) => (Subject::Channel, words(e), Some(e)),
            None => (Subject::Channel, What::default(), None),
        })
}

/// The first line of one of these kinds.
fn first<'a>(incident: &'a Incident, kinds: &[Kind]) -> Option<&'a Entry> {
    incident.entries.iter().find(|e| kinds.contains(&e.kind))
}

/// Returns the meaning of a line's kind.
fn words(entry: &Entry) -> What {
    What { code: None, name: upper_snake(entry.kind), words: entry.kind.meaning().to_owned() }
}

fn memory_cells(incident: &Incident) -> Option<Blame<'_>> {
    let first = |kinds: &[Kind]| first(incident, kinds);
    if let Some(e) = first(&[Kind::EccError]) {
        let known = Table::built_in().find(&e.text).map(|known| known.line.meaning.clone());
        let words = known.unwrap_or_else(|| e.kind.meaning().to_owned());
        let words = format!("uncorrected bit error: {words}");
        return Some((Subject::Hardware, What { code: None, name: "ECC".to_owned(), words }, Some(e)));
    }
    None
}

/// An Xid of hardware, or one of the driver before all others: whatever else is reported follows from it.
fn hardware_number(incident: &Incident) -> Option<Blame<'_>> {
    let of_hardware =
        |e: &&Entry| e.kind == Kind::XidOther && catalogue::class_of(e.xid) == Some(Class::Hardware);
    let first = incident.entries.first().filter(|e| {
        e.kind == Kind::XidOther
            && matches!(catalogue::class_of(e.xid), Some(Class::Driver | Class::Power | Class::Configuration))
    });
    incident.entries.iter().find(of_hardware).or(first).map(of_number)
}

/// The unit to blame by the driver's number.
fn of_number(entry: &Entry) -> Blame<'_> {
    let number = entry.xid.unwrap_or(0);
    let words = match catalogue::xid(number) {
        Some(known) => known.title.clone(),
        None => format!("an error of a number that is not known: {}", entry.text),
    };
    let code = Some(Hex(number.into()));
    (Subject::Channel, What { code, name: format!("Xid {number}"), words }, Some(entry))
}

fn front_end<'a>(incident: &'a Incident, sms: &[SmRecord]) -> Option<Blame<'a>> {
    // After an exception of an SM the desktop driver prints the position of the front end, which is no cause.
    let aside = |e: &Entry| e.kind == Kind::CopyError || e.kind == Kind::XidMethod && !sms.is_empty();
    let mut front_end = incident.entries.iter().filter(|e| e.kind.role() == Role::Cause && !aside(e));
    if let Some((e, (name, text))) = front_end.find_map(|e| Some((e, unit_exception(e)?))) {
        let code =
            e.fields.register("esr").or(e.fields.register("code")).map(|v| Hex((v & 0x3fff_ffff).into()));
        return Some((Subject::FrontEnd, What { code, name, words: text }, Some(e)));
    }
    None
}

/// The pushbuffer unit.
fn host(incident: &Incident) -> Option<Blame<'_>> {
    let first = |kinds: &[Kind]| first(incident, kinds);
    if let Some(e) = first(&[
        Kind::PbdmaState,
        Kind::PbdmaInterrupt,
        Kind::PbdmaError,
        Kind::PbdmaInterrupt1,
        Kind::HostCopyError,
        Kind::XidPbdma,
    ]) && !incident.has(Kind::AcquireTimeout)
    {
        return Some((Subject::Pushbuffer, pushbuffer(incident, e), Some(e)));
    }
    None
}

fn of_mmu<'a>(incident: &'a Incident, fault: &MmuFault) -> Blame<'a> {
    let name = fault.fault.clone().unwrap_or_else(|| "MMU fault".to_owned());
    let access = fault.access_name.as_deref().unwrap_or("access");
    let at = fault.address.map_or(String::new(), |a| format!(" of {a}"));
    let text = format!("{}: {access}{at}, {}", fault.words(), fault.client_words());
    let kinds = [Kind::MmuFault, Kind::OldMmuFault, Kind::XidMmuFault, Kind::NouveauFault];
    let entry = first(incident, &kinds);
    (Subject::Mmu, What { code: fault.fault_type.map(|t| Hex(t.into())), name, words: text }, entry)
}

fn of_sm<'a>(incident: &'a Incident, sms: &[SmRecord]) -> Option<Blame<'a>> {
    let own = |sm: &&SmRecord| {
        sm.warp_esr.code != 0 && !matches!(sm.warp_esr.code, warp_esr::MMU_FAULT | warp_esr::MMU_NACK)
    };
    let sm = sms.iter().find(own).or_else(|| sms.iter().find(|sm| sm.is_error())).or(sms.first());
    if let Some(sm) = sm {
        let esr = sm.warp_esr;
        let what = match esr.code {
            0 if sm.is_error() => What {
                code: Some(sm.global_esr.value),
                name: sm.global_esr.bits.join(" | "),
                words: match sm.global_esr.bits.iter().any(|bit| bit.contains("WARP")) {
                    true => {
                        "warps of this SM failed; the register of the first was cleared before".to_owned()
                    }
                    false => "the SM reported an error that belongs to no warp".to_owned(),
                },
            },
            0 if sm.global_esr.bits.iter().any(|b| b == "BPT_INT") => What {
                code: Some(sm.global_esr.value),
                name: "BPT_INT".to_owned(),
                words: "a kernel stopped at a trap instruction or a breakpoint".to_owned(),
            },
            value => What {
                code: Some(Hex(value.into())),
                name: esr.name.unwrap_or("UNKNOWN").to_owned(),
                words: sm::words(value).to_owned(),
            },
        };
        let kinds = [
            Kind::SmErrorState,
            Kind::SmRegisters,
            Kind::XidSmWarp,
            Kind::XidEsr,
            Kind::NouveauTrap,
            Kind::UserSmState,
        ];
        return Some((Subject::Sm, what, first(incident, &kinds)));
    }
    None
}

/// Lines about an SM without a record of it.
fn sm_lines(incident: &Incident) -> Option<Blame<'_>> {
    let first = |kinds: &[Kind]| first(incident, kinds);
    if let Some(e) = first(&[Kind::XidSmWarp]) {
        let text = e.fields.text("error").unwrap_or("an error without a name");
        let words = format!("an SM stopped: {text}");
        return Some((Subject::Sm, What { code: None, name: text.to_owned(), words }, Some(e)));
    }
    if let Some(e) = first(&[Kind::SmMachineCheck, Kind::SmRecordLost]) {
        return Some((Subject::Sm, words(e), Some(e)));
    }
    if let Some(e) = first(&[Kind::CopyError])
        && let Some((name, text)) = unit_exception(e)
    {
        let code = e.fields.register("code").map(|v| Hex(v.into()));
        return Some((Subject::Copy, What { code, name, words: text }, Some(e)));
    }
    None
}

/// Units whose errors follow from nothing else.
fn others(incident: &Incident) -> Option<Blame<'_>> {
    let first = |kinds: &[Kind]| first(incident, kinds);
    for (subject, kinds) in [
        (
            Subject::Mmu,
            [Kind::DroppedFault, Kind::HubMmuError, Kind::OtherMmuFault, Kind::PageFaultError].as_slice(),
        ),
        (Subject::Firmware, &[Kind::FirmwareWatchdog, Kind::FaultInSwitch, Kind::FirmwareError]),
        (
            Subject::Timeout,
            &[Kind::AcquireTimeout, Kind::SwitchTimeout, Kind::SwitchTimeoutHost, Kind::Watchdog],
        ),
        (Subject::Timeout, &[Kind::XidSwitchTimeout, Kind::Deadline, Kind::NouveauTimeout]),
        (Subject::FrontEnd, &[Kind::NouveauData]),
        (Subject::Pushbuffer, &[Kind::NouveauPbdma]),
        (Subject::Register, &[Kind::PriTimeout, Kind::PriRing, Kind::PriWrite, Kind::BusError]),
        (
            Subject::Driver,
            &[Kind::AllocationFailed, Kind::BringUpFailed, Kind::CompressionUnsafe, Kind::BadRunlist],
        ),
        (Subject::Driver, &[Kind::Quiesce, Kind::RecoveryFailed]),
    ] {
        if let Some(e) = first(kinds) {
            let mut what = words(e);
            if subject == Subject::Register
                && let Some(value) = incident
                    .entries
                    .iter()
                    .find_map(|e| e.fields.register("code").or(e.fields.register("data")))
                && let Some(name) = nv_hw::name(pri_error::TEXTS, value >> 8)
            {
                what = What { code: Some(Hex(value.into())), name: name.to_owned(), ..what };
            }
            return Some((subject, what, Some(e)));
        }
    }
    None
}

/// The number that the driver gave the channel, where no unit says more.
fn channel(incident: &Incident) -> Option<Blame<'_>> {
    let first = |kinds: &[Kind]| first(incident, kinds);
    if let Some(e) = first(&[Kind::XidOther, Kind::XidSmGlobal, Kind::XidChannel]) {
        return Some(of_number(e));
    }
    if let Some(e) = first(&[Kind::Notifier]) {
        let number = e.fields.id("code").unwrap_or(0);
        let (name, meaning) = notifier_words(number);
        let subject = if matches!(number, 8 | 24) { Subject::Timeout } else { Subject::Channel };
        return Some((
            subject,
            What { code: Some(Hex(number.into())), name: name.to_owned(), words: meaning.to_owned() },
            Some(e),
        ));
    }
    None
}

/// `SwitchTimeout` as `SWITCH_TIMEOUT`.
fn upper_snake(kind: Kind) -> String {
    let mut name = String::new();
    for c in format!("{kind:?}").chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(c.to_uppercase());
    }
    name
}

/// Returns the pushbuffer unit's complaint.
fn pushbuffer(incident: &Incident, entry: &Entry) -> What {
    let bits = match entry.kind {
        Kind::PbdmaInterrupt1 | Kind::HostCopyError => pbdma_intr_1::TEXTS,
        _ => pbdma_intr_0::TEXTS,
    };
    let printed = incident.of(Kind::PbdmaError).find_map(|e| e.fields.text("name")).map(str::to_owned);
    let intr = entry.fields.register("intr");
    let names = intr.map(|v| nv_hw::bit_names(bits, v).collect::<Vec<_>>().join(" | "));
    let name = names.filter(|n| !n.is_empty()).or(printed).unwrap_or_else(|| "PBDMA".to_owned());
    let about = match name.as_str() {
        n if n.contains("METHOD") => "a method of the host (below 0x100) that does not exist or has bad data",
        n if n.contains("GPENTRY") => "a ring entry with reserved bits or no length",
        n if n.contains("GPPTR") => "GP_PUT points past the ring",
        n if n.contains("PBENTRY") => "a pushbuffer word that is no method header",
        n if n.contains("PBPTR") || n.contains("PBSEG") => {
            "a ring entry whose length does not fit its methods"
        }
        n if n.contains("SEMAPHORE") => {
            "a semaphore method with a misaligned address or an unknown operation"
        }
        n if n.contains("DEVICE") => "a method to a subchannel that has no object",
        n if n.contains("CRC") => "a checksum that does not match",
        n if n.contains("SIGNATURE") => "a channel context that is damaged",
        n if n.contains("hce") => "a copy or render-enable method of the host that is not legal",
        n if n.contains("ctxnotvalid") => "a channel whose context is not valid",
        _ => "what it was given",
    };
    What { code: intr.map(|v| Hex(v.into())), name, words: format!("the pushbuffer unit refused {about}") }
}
