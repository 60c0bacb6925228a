//! From the lines of an incident to records: of SMs, of the MMU, of whose work it was.

use crate::fault::host::notifier_words;
use crate::fault::incident::Incident;
use crate::fault::mmu::MmuFault;
use crate::fault::report::Owner;
use crate::fault::sm::{self, Place, SmRecord, Strides};
use crate::hex::Hex;
use crate::kernel_log::lines::Kind;
use crate::kernel_log::shape::Fields;

/// Report masks of warp errors seen on chips whose registers have Hopper's strides.
const HOPPER_MASKS: [u32; 2] = [0x1f81_fb60, 0x1c81_fb60];

/// The records of all SMs that the lines name.
pub(super) fn sm_records(incident: &Incident) -> Vec<SmRecord> {
    let mut records: Vec<SmRecord> = Vec::new();
    // Records whose registers have not been repeated in hexadecimal yet.
    let mut unconfirmed = 0;
    // An answer of the driver has fields that its log omits.
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
                exception_register(&mut records, f, SmRecord::new(warp, global, None));
            }
            _ => {}
        }
    }
    // The software ga10b's own line, where those of its driver are not part of the log.
    let software = incident.of(Kind::SoftwareFault).next().filter(|_| records.is_empty());
    records.extend(
        software.map(|e| SmRecord::new(e.fields.register("error").unwrap_or(0), 0, e.fields.number("pc"))),
    );
    for record in records.iter_mut().filter(|r| !r.is_error()) {
        record.notes.push("this SM did not fail: it was only stopped, or its record was cleared".to_owned());
    }
    records
}

/// An exception register of the desktop driver: it belongs to an SM that was announced, or to one of its own.
fn exception_register(records: &mut Vec<SmRecord>, f: &Fields, fresh: SmRecord) {
    let address = f.register("address").unwrap_or(0);
    let mask = f.register("warp_mask").unwrap_or(0);
    let strides = if HOPPER_MASKS.contains(&mask) { Strides::Hopper } else { Strides::Ampere };
    let places = [strides, Strides::Ampere, Strides::Hopper].map(|s| Place::from_register(address, s));
    let announced = |r: &&mut SmRecord| places.contains(&r.place) && r.place.is_some();
    match records.iter_mut().find(announced) {
        Some(record) => {
            (record.warp_esr, record.global_esr) = (fresh.warp_esr, fresh.global_esr);
        }
        None => records.push(SmRecord { place: places[0], ..fresh }),
    }
}

/// The faults of the MMU that the lines name.
pub(super) fn mmu_faults(incident: &Incident) -> Vec<MmuFault> {
    let mut faults: Vec<MmuFault> = Vec::new();
    let mut clients = 0;
    let mut instances = 0;
    for entry in &incident.entries {
        let f = &entry.fields;
        match entry.kind {
            Kind::MmuFault | Kind::OldMmuFault | Kind::NouveauFault => {
                let halves = f.number("high").zip(f.number("low")).map(|(high, low)| high << 32 | low);
                let address = f.number("address").or(halves).map(Hex);
                let engine = f.text("engine").map(str::to_owned);
                let mut fault = MmuFault { address, engine, ..MmuFault::default() };
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
                    let of_gpc = f.text("client_type") == Some("gpc") || client.starts_with("GPC");
                    fault.name_client(client, of_gpc, None);
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

/// Returns the owners of the work: from notices, and from the dump, which knows processes and groups.
pub(super) fn owners(incident: &Incident) -> Vec<Owner> {
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
            Kind::NouveauChannel | Kind::NouveauFault | Kind::NouveauMethod | Kind::NouveauPbdma => owners
                .push(Owner {
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
            Kind::OomKill => owners.push(Owner {
                pid: f.id("pid"),
                comm: f.text("comm").map(str::to_owned),
                ..Owner::default()
            }),
            Kind::MmuFault
            | Kind::ChannelMmuFault
            | Kind::Watchdog
            | Kind::FaultInSwitch
            | Kind::FirmwareWatchdog
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
