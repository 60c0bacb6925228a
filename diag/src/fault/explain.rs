//! From the lines of an incident to its report.

use super::advice::advise;
use super::front_end::unit_exception;
use super::host::{MethodHeader, notifier_words, ring_entry};
use super::incident::Incident;
use super::mmu::MmuFault;
use super::report::{Evidence, FaultReport, Owner, Subject, What, WindowTrap};
use super::sm::{self, Place, SmRecord, Strides, code};
use super::tables::{self, PBDMA_INTR_0, PBDMA_INTR_1};
use crate::Hex;
use crate::kernel_log::{Entry, Kind, Role};
use crate::process_map::{Mapping, ProcessMap, Space, access_of};

/// Report masks of warp errors seen on chips whose registers have Hopper's strides.
const HOPPER_MASKS: [u32; 2] = [0x1f81_fb60, 0x1c81_fb60];

/// Explains an incident by its lines and by what is known of the process's address space.
#[must_use]
pub fn explain(incident: &Incident, map: &ProcessMap) -> FaultReport {
    let sms = sm_records(incident);
    let mmu = mmu_faults(incident);
    let (subject, mut what, blamed) = blame(incident, &sms, &mmu);
    let failed: Vec<&SmRecord> = sms.iter().filter(|sm| sm.is_error()).collect();
    let mut code = Vec::new();
    for pc in failed.iter().filter_map(|sm| sm.pc) {
        for found in map.code_at(pc.0) {
            if !code.contains(&found) && code.len() < 8 {
                code.push(found);
            }
        }
    }
    let instruction = code.first().and_then(|c| c.instruction());
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
    let mut notes = dump_notes(incident);
    if failed.iter().any(|sm| sm.global_esr.value.0 & 4 != 0) {
        notes.push("several warps failed; the registers describe the first of them".to_owned());
    }
    if let (Some(sm), Some(fault)) = (failed.iter().find_map(|sm| sm.place), mmu.iter().find_map(|f| f.sm))
        && sm == fault
    {
        notes.push("the MMU's fault and the SM's exception are of the same SM".to_owned());
    }
    let orin = |device: &str| device == "ga10b" || device.ends_with(".gpu");
    if let Some(other) = code.iter().find(|code| !(80..=87).contains(&code.sm))
        && incident.entries.iter().any(|entry| entry.device.as_deref().is_some_and(orin))
    {
        notes.push(format!(
            "{} is for sm_{}, which a Jetson Orin (sm_87) does not run: the instruction shown is not the one that failed; give the \
             cubin that was loaded",
            other.module, other.sm
        ));
    }
    if incident.has(Kind::DroppedFault) || incident.has(Kind::HubMmuError) {
        notes.push("the MMU lost fault records: there were more faults than these".to_owned());
    }
    let mut report = FaultReport {
        subject,
        verdict: String::new(),
        what,
        device: incident.entries.first().and_then(|e| e.device.clone()),
        time_us: incident.entries.first().and_then(|e| e.time).map(|t| t.micros),
        owners: owners(incident),
        sms,
        mmu,
        code,
        access,
        window_trap,
        causes: Vec::new(),
        try_next: Vec::new(),
        notes,
        evidence: incident.entries.iter().map(evidence).collect(),
        evidence_dropped: incident.dropped,
    };
    (report.causes, report.try_next) = advise(&report, blamed, map);
    report.verdict = verdict(&report);
    report
}

fn evidence(entry: &Entry) -> Evidence {
    Evidence {
        line: entry.line,
        kind: entry.kind,
        role: entry.kind.role(),
        meaning: entry.kind.meaning(),
        fields: entry.fields.clone(),
        missing: entry.missing.clone(),
        text: entry.text.clone(),
    }
}

/// The fault in one sentence.
fn verdict(report: &FaultReport) -> String {
    let mut text = match &report.window_trap {
        Some(trap) if trap.certain => format!("memory-window trap: {}", report.what.words),
        _ => report.what.words.clone(),
    };
    if let Some(code) = report.code.iter().find(|c| c.certain)
        && let (Some(function), Some(offset)) = (&code.function, code.offset)
    {
        text += &format!(", in {function}+{offset}");
    }
    if let Some(comm) = report.owners.iter().find_map(|o| o.comm.as_ref()) {
        text += &format!(" [{comm}]");
    }
    text
}

/// The records of all SMs that the lines speak of.
fn sm_records(incident: &Incident) -> Vec<SmRecord> {
    let mut records: Vec<SmRecord> = Vec::new();
    // Records whose registers have not been repeated in hexadecimal yet.
    let mut unconfirmed = 0;
    // Where the driver was asked, its answer has what its log leaves out.
    let asked = incident.has(Kind::SmRecordLive);
    for entry in incident.entries.iter().filter(|e| !asked || e.xid.is_none()) {
        let f = &entry.fields;
        let registers = || Some((f.register("warp_esr")?, f.register("global_esr")?));
        match entry.kind {
            Kind::SmErrorState => {
                let (warp, global) =
                    (f.register("warp_esr").unwrap_or(0), f.register("global_esr").unwrap_or(0));
                let mut record = SmRecord::new(warp, global, f.number("pc"));
                record.sm_id = f.id("sm_id");
                if let (Some(gpc), Some(tpc)) = (f.id("gpc"), f.id("tpc")) {
                    let from_offset = f.id("offset").map(Place::from_offset);
                    record.place = Some(Place { gpc, tpc, sm: from_offset.and_then(|p| p.sm) });
                    if from_offset.is_some_and(|p| (p.gpc, p.tpc) != (gpc, tpc)) {
                        record.notes.push("the offset on the line names another TPC than its ids".to_owned());
                    }
                }
                if !entry.missing.is_empty() {
                    record.notes.push("the line is cut short: values that are missing show as 0".to_owned());
                }
                records.push(record);
            }
            Kind::SmRegisters => {
                let Some((warp, global)) = registers() else { continue };
                let fresh = SmRecord::new(warp, global, None);
                match records.get_mut(unconfirmed) {
                    Some(record) => {
                        if record.warp_esr != fresh.warp_esr || record.global_esr != fresh.global_esr {
                            record.notes.push(format!(
                                "the two lines disagree ({} and {}); the hexadecimal one counts",
                                record.warp_esr.value, fresh.warp_esr.value
                            ));
                        }
                        (record.warp_esr, record.global_esr) = (fresh.warp_esr, fresh.global_esr);
                    }
                    None => records.push(fresh),
                }
                unconfirmed = records.len().min(unconfirmed + 1);
            }
            Kind::SmRecordLive | Kind::UserSmState => {
                let Some((warp, global)) = registers() else { continue };
                records.push(SmRecord {
                    sm_id: f.id("sm_id"),
                    address: f.number("address").map(Hex),
                    ..SmRecord::new(warp, global, f.number("pc"))
                });
            }
            Kind::NouveauTrap => {
                let Some((warp, global)) = registers() else { continue };
                let place = f.id("gpc").zip(f.id("tpc")).map(|(gpc, tpc)| Place { gpc, tpc, sm: None });
                records.push(SmRecord { place, ..SmRecord::new(warp, global, None) });
            }
            Kind::XidSmWarp => {
                let place = f.id("gpc").zip(f.id("tpc")).map(|(gpc, tpc)| Place { gpc, tpc, sm: f.id("sm") });
                let code = f.text("error").and_then(sm::code_of_text);
                if !records.iter().any(|r| r.place == place) {
                    records.push(SmRecord { place, ..SmRecord::new(code.unwrap_or(0), 0, None) });
                }
            }
            Kind::XidEsr => {
                let Some((warp, global)) = registers() else { continue };
                let address = f.register("address").unwrap_or(0);
                let mask = f.register("warp_mask").unwrap_or(0);
                let strides = if HOPPER_MASKS.contains(&mask) { Strides::Hopper } else { Strides::Ampere };
                let places =
                    [strides, Strides::Ampere, Strides::Hopper].map(|s| Place::from_register(address, s));
                let announced = |r: &&mut SmRecord| places.contains(&r.place) && r.place.is_some();
                let fresh = SmRecord::new(warp, global, None);
                match records.iter_mut().find(announced) {
                    Some(record) => {
                        (record.warp_esr, record.global_esr) = (fresh.warp_esr, fresh.global_esr);
                    }
                    None => records.push(SmRecord { place: places[0], ..fresh }),
                }
            }
            _ => {}
        }
    }
    for record in records.iter_mut().filter(|r| !r.is_error()) {
        record.notes.push("this SM did not fail: it was only stopped, or its record was cleared".to_owned());
    }
    records
}

/// The faults of the MMU that the lines speak of.
fn mmu_faults(incident: &Incident) -> Vec<MmuFault> {
    let mut faults: Vec<MmuFault> = Vec::new();
    let mut clients = 0;
    let mut instances = 0;
    for entry in &incident.entries {
        let f = &entry.fields;
        match entry.kind {
            Kind::MmuFault | Kind::OldMmuFault => {
                let mut fault = MmuFault { address: f.number("address").map(Hex), ..MmuFault::default() };
                if entry.kind == Kind::MmuFault
                    && let Some(engine) = f.id("engine")
                {
                    fault.number_engine(engine);
                }
                if let Some(text) = f.text("fault") {
                    fault.name_fault(text);
                }
                if let Some(text) = f.text("access") {
                    fault.name_access(text);
                }
                if let Some(client) = f.text("client") {
                    fault.name_client(client, f.text("client_type") == Some("gpc"), None);
                    fault.instance = f.number("instance").map(Hex);
                }
                faults.push(fault);
            }
            Kind::MmuClient => {
                if faults.len() == clients {
                    faults.push(MmuFault::default());
                }
                if let (Some(fault), Some(client)) = (faults.get_mut(clients), f.text("client")) {
                    fault.name_client(client, f.text("client_type") == Some("gpc"), f.id("gpc"));
                }
                clients += 1;
            }
            Kind::MmuInstance => {
                if let Some(fault) = faults.get_mut(instances) {
                    fault.instance = f.number("instance").map(Hex);
                }
                instances += 1;
            }
            Kind::XidMmuFault => {
                let address = f.number("high").zip(f.number("low")).map(|(high, low)| Hex(high << 32 | low));
                let mut fault = MmuFault { address, ..MmuFault::default() };
                fault.engine = f.text("engine").map(str::to_owned);
                if let Some(text) = f.text("fault") {
                    fault.name_fault(text);
                }
                if let Some(text) = f.text("access") {
                    fault.name_access(text);
                }
                if let Some(client) = f.text("client") {
                    let gpc = client.strip_prefix("GPC").and_then(|rest| rest.split_once(' '));
                    match gpc {
                        Some((gpc, client)) => {
                            let client = client.strip_prefix("GPCCLIENT_").unwrap_or(client);
                            fault.name_client(client, true, gpc.parse().ok());
                        }
                        None => fault.name_client(
                            client.strip_prefix("HUBCLIENT_").unwrap_or(client),
                            false,
                            None,
                        ),
                    }
                }
                faults.push(fault);
            }
            _ => {}
        }
    }
    faults
}

/// Whose work it was: from notices, and from the dump, which knows processes and groups.
fn owners(incident: &Incident) -> Vec<Owner> {
    let mut owners: Vec<Owner> = Vec::new();
    for entry in &incident.entries {
        let f = &entry.fields;
        let channel = f.id("channel");
        match entry.kind {
            Kind::Notifier => {
                let notifier = f.id("code");
                owners.push(Owner {
                    channel,
                    comm: f.text("comm").map(str::to_owned),
                    notifier,
                    notifier_name: notifier.map(|n| notifier_words(n).0),
                    ..Owner::default()
                });
            }
            Kind::DumpChannel => {
                if let Some(owner) = owners.iter_mut().find(|o| o.channel == channel) {
                    (owner.pid, owner.tsg) = (f.id("pid"), f.id("tsg"));
                }
            }
            Kind::NouveauChannel => owners.push(Owner {
                channel,
                pid: f.id("pid"),
                comm: f.text("comm").map(str::to_owned),
                ..Owner::default()
            }),
            _ if entry.xid.is_some() => {
                let fresh = Owner { channel, pid: entry.pid, comm: entry.comm.clone(), ..Owner::default() };
                let same = |o: &Owner| o.pid == fresh.pid && (o.channel.is_none() || channel.is_none());
                match owners.iter().position(same) {
                    Some(at) => owners[at].channel = owners[at].channel.or(channel),
                    None if owners.contains(&fresh) || fresh == Owner::default() => {}
                    None => owners.push(fresh),
                }
            }
            Kind::MmuFault | Kind::Watchdog | Kind::FaultInSwitch | Kind::FirmwareWatchdog
                if channel.is_some() =>
            {
                owners.push(Owner { channel, ..Owner::default() });
            }
            _ => {}
        }
    }
    let group = incident.entries.iter().find_map(|e| match e.kind {
        Kind::TsgMmuFault | Kind::SwitchTimeout => e.fields.id("tsg"),
        _ => None,
    });
    // A notice says more about a channel than the line of the fault itself.
    let told: Vec<Option<u32>> = owners.iter().filter(|o| o.notifier.is_some()).map(|o| o.channel).collect();
    owners.retain(|o| o.notifier.is_some() || o.channel.is_none() || !told.contains(&o.channel));
    owners.dedup();
    for owner in &mut owners {
        owner.tsg = owner.tsg.or(group);
    }
    owners
}

/// Which unit is to blame, in the order in which one failure leads to another.
fn blame<'a>(
    incident: &'a Incident,
    sms: &[SmRecord],
    mmu: &[MmuFault],
) -> (Subject, What, Option<&'a Entry>) {
    let first = |kinds: &[Kind]| incident.entries.iter().find(|e| kinds.contains(&e.kind));
    let words = |entry: &Entry| What {
        code: None,
        name: upper_snake(entry.kind),
        words: entry.kind.meaning().to_owned(),
    };
    if let Some(e) = first(&[Kind::EccError]).filter(|e| !e.text.contains("(SEC) corrected")) {
        return (Subject::Hardware, What { name: "ECC".to_owned(), ..words(e) }, Some(e));
    }
    // Behind an exception of an SM the desktop driver prints where the front end was, which is no cause.
    let aside = |e: &Entry| e.kind == Kind::CopyError || e.kind == Kind::XidMethod && !sms.is_empty();
    let mut front_end = incident.entries.iter().filter(|e| e.kind.role() == Role::Cause && !aside(e));
    if let Some((e, (name, text))) = front_end.find_map(|e| Some((e, unit_exception(e)?))) {
        let code =
            e.fields.register("esr").or(e.fields.register("code")).map(|v| Hex((v & 0x3fff_ffff).into()));
        return (Subject::FrontEnd, What { code, name, words: text }, Some(e));
    }
    if let Some(e) = first(&[
        Kind::PbdmaState,
        Kind::PbdmaInterrupt,
        Kind::PbdmaError,
        Kind::PbdmaInterrupt1,
        Kind::HostCopyError,
        Kind::XidPbdma,
    ]) && !incident.has(Kind::AcquireTimeout)
    {
        return (Subject::Pushbuffer, pushbuffer(incident, e), Some(e));
    }
    if let Some(fault) = mmu.first() {
        let name = fault.fault.clone().unwrap_or_else(|| "MMU fault".to_owned());
        let access = fault.access_name.as_deref().unwrap_or("access");
        let at = fault.address.map_or(String::new(), |a| format!(" of {a}"));
        let text = format!("{}: {access}{at}, {}", fault.words(), fault.client_words());
        return (
            Subject::Mmu,
            What { code: fault.fault_type.map(|t| Hex(t.into())), name, words: text },
            None,
        );
    }
    let own = |sm: &&SmRecord| {
        sm.warp_esr.code != 0 && !matches!(sm.warp_esr.code, code::MMU_FAULT | code::MMU_NACK)
    };
    let sm = sms.iter().find(own).or_else(|| sms.iter().find(|sm| sm.is_error())).or(sms.first());
    if let Some(sm) = sm {
        let esr = sm.warp_esr;
        let what = match esr.code {
            0 if sm.is_error() => What {
                code: Some(sm.global_esr.value),
                name: sm.global_esr.bits.join(" | "),
                words: "the SM reported an error that belongs to no warp".to_owned(),
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
        return (Subject::Sm, what, None);
    }
    if let Some(e) = first(&[Kind::XidSmWarp]) {
        let text = e.fields.text("error").unwrap_or("an error without a name");
        let words = format!("an SM stopped: {text}");
        return (Subject::Sm, What { code: None, name: text.to_owned(), words }, Some(e));
    }
    if let Some(e) = first(&[Kind::SmMachineCheck, Kind::SmRecordLost]) {
        return (Subject::Sm, words(e), Some(e));
    }
    if let Some(e) = first(&[Kind::CopyError])
        && let Some((name, text)) = unit_exception(e)
    {
        let code = e.fields.register("code").map(|v| Hex(v.into()));
        return (Subject::Copy, What { code, name, words: text }, Some(e));
    }
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
        (Subject::Timeout, &[Kind::XidSwitchTimeout, Kind::Deadline]),
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
                && let Some(name) = tables::name(tables::PRI_CODES, value >> 8)
            {
                what = What { code: Some(Hex(value.into())), name: name.to_owned(), ..what };
            }
            return (subject, what, Some(e));
        }
    }
    if let Some(e) = first(&[Kind::XidOther, Kind::XidSmGlobal, Kind::XidChannel]) {
        let number = e.xid.unwrap_or(0);
        let (name, meaning) = notifier_words(number);
        let text = match (e.kind, meaning) {
            (Kind::XidOther, _) => format!("the driver reports: {}", e.text),
            (_, "another error") => e.kind.meaning().to_owned(),
            (_, meaning) => meaning.to_owned(),
        };
        return (
            Subject::Channel,
            What { code: Some(Hex(number.into())), name: name.to_owned(), words: text },
            Some(e),
        );
    }
    if let Some(e) = first(&[Kind::Notifier]) {
        let number = e.fields.id("code").unwrap_or(0);
        let (name, meaning) = notifier_words(number);
        let subject = if matches!(number, 8 | 24) { Subject::Timeout } else { Subject::Channel };
        return (
            subject,
            What { code: Some(Hex(number.into())), name: name.to_owned(), words: meaning.to_owned() },
            Some(e),
        );
    }
    match incident.entries.first() {
        Some(e) if e.kind.role() == Role::Platform => (Subject::Platform, words(e), Some(e)),
        Some(e) => (Subject::Channel, words(e), Some(e)),
        None => (Subject::Channel, What::default(), None),
    }
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

/// What the pushbuffer unit complains about.
fn pushbuffer(incident: &Incident, entry: &Entry) -> What {
    let bits = match entry.kind {
        Kind::PbdmaInterrupt1 | Kind::HostCopyError => PBDMA_INTR_1,
        _ => PBDMA_INTR_0,
    };
    let printed = incident.of(Kind::PbdmaError).find_map(|e| e.fields.text("name")).map(str::to_owned);
    let intr = entry.fields.register("intr");
    let names = intr.map(|v| tables::bit_names(bits, v).collect::<Vec<_>>().join(" | "));
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

/// What the state of the host tells.
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
                    notes.push(format!("{name} stands at {get:#x} of {put:#x}{at}"));
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

/// Whether this is the trap of the memory windows.
fn window_trap(sms: &[SmRecord], space: Option<Space>, map: &ProcessMap) -> Option<WindowTrap> {
    let record = sms.iter().find(|sm| sm.warp_esr.code != 0)?;
    let possible = match (record.warp_esr.code, space) {
        (code::INVALID_ADDR_SPACE, space) => {
            space.is_none_or(|s| matches!(s, Space::Global | Space::Generic))
        }
        (code::OOR_ADDR | code::MISALIGNED_ADDR, Some(space)) => space == Space::Generic,
        (code::OOR_ADDR | code::MISALIGNED_ADDR, None) => map.trapped().next().is_some(),
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
