//! Groups log lines into incidents: all lines of one fault, and no other's.

use nv_hw::fault::{fault_type, warp_esr};
use std::collections::VecDeque;

use crate::catalogue::{Class, class_of};
use crate::kernel_log::Entry;
use crate::kernel_log::lines::{Kind, Role, Source};
use crate::kernel_log::shape::Value;

/// Lines kept of one incident; later ones are counted.
const MAX_ENTRIES: usize = 256;
/// Incidents that can be open at once; a further one closes the oldest.
const MAX_OPEN: usize = 16;
/// Lines of a log without times after which an incident is over.
const MAX_LINES: u64 = 400;

/// The lines of one fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Incident {
    /// The lines, oldest first.
    pub entries: Vec<Entry>,
    /// Lines that were too many to keep.
    pub dropped: u64,
    /// Notes on the origin of the lines.
    pub notes: Vec<String>,
}

impl Incident {
    /// Adds an SM's registers that come from no log: typed by hand, or read from the driver.
    pub fn add_registers(
        &mut self,
        sm_id: Option<u32>,
        warp_esr: u32,
        global_esr: u32,
        pc: Option<u64>,
        address: Option<u64>,
    ) {
        let id = sm_id.map(|id| ("sm_id", Value::Decimal(id.into())));
        let registers =
            [("global_esr", Value::Hex(global_esr.into())), ("warp_esr", Value::Hex(warp_esr.into()))];
        let fields = id.into_iter().chain(registers).chain(pc.map(|pc| ("pc", Value::Hex(pc))));
        let fields = fields.chain(address.map(|address| ("address", Value::Hex(address))));
        let of_sm = sm_id.map_or(String::new(), |id| format!(" of SM {id}"));
        let at = pc.map_or(String::new(), |pc| format!(", pc {pc:#x}"));
        let accessed = address.map_or(String::new(), |address| format!(", address {address:#x}"));
        let text = format!(
            "registers{of_sm}: global ESR {global_esr:#010x}, warp ESR {warp_esr:#010x}{at}{accessed}"
        );
        self.add(Kind::SmRecordLive, fields, text);
    }

    /// Adds a fault of the MMU that comes from no log.
    pub fn add_mmu_fault(&mut self, address: u64, fault_type: Option<u32>) {
        let name = fault_type.and_then(|t| nv_hw::name(fault_type::TEXTS, t));
        let fault = name.map(|name| ("fault", Value::Text(name.to_owned())));
        let text =
            format!("the driver's record of the channel: {} at {address:#x}", name.unwrap_or("MMU fault"));
        self.add(Kind::MmuFault, [("address", Value::Hex(address))].into_iter().chain(fault), text);
    }

    /// Adds that a program gave up waiting.
    pub fn add_deadline(&mut self, error: &str) {
        self.add(Kind::Deadline, [], error.to_owned());
    }

    /// Adds the code of an error notifier that comes from no log.
    pub fn add_notice(&mut self, code: u32) {
        let text = format!("the channel's error notifier holds {code}");
        self.add(Kind::Notifier, [("code", Value::Decimal(code.into()))], text);
    }

    fn add(&mut self, kind: Kind, fields: impl IntoIterator<Item = (&'static str, Value)>, text: String) {
        let fields = fields.into_iter().collect();
        self.entries.push(Entry {
            line: 0,
            time: None,
            kind,
            device: None,
            host: None,
            xid: None,
            pid: None,
            comm: None,
            fields,
            missing: Vec::new(),
            text,
        });
    }

    /// Two incidents, where lines of an SM's exception and of an MMU fault of another channel are mixed.
    #[must_use]
    pub fn parted(&self) -> Option<(Self, Self)> {
        let told = |code| self.of(Kind::Notifier).find(|e| e.fields.id("code") == Some(code));
        let of_sm = channel(told(13)?)?;
        let of_mmu = channel(told(31)?)?;
        let is_own = |e: &&Entry| {
            let code = e.fields.register("warp_esr").unwrap_or(0) & 0xffff;
            !matches!(code, 0 | warp_esr::MMU_FAULT | warp_esr::MMU_NACK)
        };
        let faulted = self.of(Kind::MmuFault).all(|e| channel(e) == Some(of_mmu));
        if of_sm == of_mmu || !faulted || !self.of(Kind::SmErrorState).any(|e| is_own(&e)) {
            return None;
        }
        let belongs = |e: &Entry| {
            let kinds =
                [Kind::SmMachineCheck, Kind::SmErrorState, Kind::SmRegisters, Kind::GrExceptionNotice];
            kinds.contains(&e.kind) || channel(e) == Some(of_sm)
        };
        let (sm, mmu): (Vec<Entry>, Vec<Entry>) = self.entries.iter().cloned().partition(belongs);
        let part = |entries| Self { entries, dropped: 0, notes: self.notes.clone() };
        Some((part(mmu), part(sm)))
    }

    /// The entries of a kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |e| e.kind == kind)
    }

    /// Whether there is an entry of a kind.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.of(kind).next().is_some()
    }
}

/// An incident that may continue, with the facts that identify its lines.
#[derive(Debug, Default)]
struct Open {
    incident: Incident,
    /// Channels its lines name.
    channels: Vec<u32>,
    /// Channel groups its lines name.
    tsgs: Vec<u32>,
    /// Numbers of lines of the kinds that come in pairs.
    counts: [usize; PAIRED.len()],
    /// Whether the driver has notified the owner: further lines belong to something new.
    told: bool,
}

/// Kinds that are counted.
const PAIRED: [Kind; 6] = [
    Kind::PageFaultError,
    Kind::MmuFault,
    Kind::MmuClient,
    Kind::SmErrorState,
    Kind::SmRegisters,
    Kind::GrExceptionNotice,
];

impl Open {
    fn push(&mut self, entry: Entry) {
        /// Channels and groups remembered of one incident.
        const KEYS: usize = 64;
        let note = |keys: &mut Vec<u32>, key: Option<u32>| {
            if let Some(key) = key.filter(|key| keys.len() < KEYS && !keys.contains(key)) {
                keys.push(key);
            }
        };
        note(&mut self.channels, channel(&entry));
        note(&mut self.tsgs, tsg(&entry));
        if let Some(at) = PAIRED.iter().position(|kind| *kind == entry.kind) {
            self.counts[at] += 1;
        }
        self.told |= matches!(
            entry.kind,
            Kind::Notifier | Kind::XidChannel | Kind::NouveauChannel | Kind::NouveauMethod
        );
        let entries = &mut self.incident.entries;
        if entries.len() < MAX_ENTRIES { entries.push(entry) } else { self.incident.dropped += 1 }
    }

    fn count(&self, kind: Kind) -> usize {
        PAIRED.iter().position(|k| *k == kind).map_or(0, |at| self.counts[at])
    }

    /// Whether the channel of `notice` has had the same notice before.
    fn has_told(&self, notice: &Entry) -> bool {
        let key = |entry: &Entry| (entry.kind, channel(entry), entry.fields.id("code"));
        self.told && self.incident.entries.iter().any(|entry| key(entry) == key(notice))
    }

    /// Whether it consists of nothing but the announcement of an MMU fault.
    fn is_announcement(&self) -> bool {
        self.incident.entries.len() == self.count(Kind::PageFaultError)
    }
}

/// The channel a line names.
fn channel(entry: &Entry) -> Option<u32> {
    match entry.kind.role() {
        Role::Dump => None,
        _ => entry.fields.id("channel"),
    }
}

/// The channel group a line names.
fn tsg(entry: &Entry) -> Option<u32> {
    match entry.kind {
        Kind::MmuRecovery if entry.fields.id("id_type") == Some(1) => entry.fields.id("id"),
        Kind::TsgMmuFault | Kind::PreemptTimeout | Kind::SwitchTimeout => entry.fields.id("tsg"),
        _ => None,
    }
}

const fn family(source: Source) -> u8 {
    match source {
        Source::Nvgpu | Source::Dump => 0,
        Source::Xid => 1,
        Source::Other | Source::Pcie => 2,
    }
}

/// Sorts entries into incidents as they come, and returns those that are over.
#[derive(Debug, Default)]
pub struct Grouper {
    open: VecDeque<Open>,
}

impl Grouper {
    /// A grouper that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next entry, and returns the incidents that are over by it.
    pub fn push(&mut self, entry: Entry, out: &mut dyn FnMut(Incident)) {
        self.close_old(&entry, out);
        let role = entry.kind.role();
        let at = match role {
            Role::Trace | Role::Harmless | Role::Context => return,
            Role::Cause => self.for_cause(&entry),
            Role::Detail => match self.for_detail(&entry) {
                // Alone such a line means nothing, but for those with numbers of their own.
                None if !matches!(entry.kind, Kind::SmRegisters | Kind::MmuClient | Kind::PriWrite) => return,
                at => at,
            },
            Role::Notice => self.for_notice(&entry),
            Role::Recovery => match self.for_recovery(&entry) {
                None if entry.kind == Kind::AbortRunlists => return,
                at => at,
            },
            Role::Dump => match self.for_dump(&entry) {
                None => return,
                at => at,
            },
            Role::Platform => self.for_platform(&entry),
        };
        match at {
            Some(at) => self.open[at].push(entry),
            None => {
                if self.open.len() == MAX_OPEN
                    && let Some(oldest) = self.open.pop_front()
                {
                    out(oldest.incident);
                }
                let mut fresh = Open::default();
                fresh.push(entry);
                self.open.push_back(fresh);
            }
        }
    }

    /// Passes on the incidents that are left.
    pub fn finish(&mut self, out: &mut dyn FnMut(Incident)) {
        self.open.drain(..).for_each(|open| out(open.incident));
    }

    fn close_old(&mut self, entry: &Entry, out: &mut dyn FnMut(Incident)) {
        let over = |open: &Open| {
            let Some(last) = open.incident.entries.last() else { return true };
            match (last.time, entry.time) {
                (Some(a), Some(b)) => !a.is_near(b),
                _ => entry.line.saturating_sub(last.line) > MAX_LINES,
            }
        };
        for _ in 0..self.open.len() {
            if let Some(open) = self.open.pop_front() {
                if over(&open) { out(open.incident) } else { self.open.push_back(open) }
            }
        }
    }

    /// Open incidents of the same device and driver, newest first.
    fn related<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = usize> + 'a {
        (0..self.open.len()).rev().filter(move |at| {
            let Some(first) = self.open[*at].incident.entries.first() else { return false };
            let same_family = family(first.kind.source()) == family(entry.kind.source());
            let same_device = first.host == entry.host
                && (first.device == entry.device || entry.kind.source() == Source::Dump);
            same_family
                && same_device
                && (first.pid == entry.pid || first.pid.is_none() || entry.pid.is_none())
        })
    }

    fn latest(&self, entry: &Entry) -> Option<usize> {
        self.related(entry).next()
    }

    fn for_cause(&mut self, entry: &Entry) -> Option<usize> {
        let related: Vec<usize> = self.related(entry).collect();
        let find =
            |wanted: &dyn Fn(&Open) -> bool| related.iter().copied().find(|at| wanted(&self.open[*at]));
        let own = channel(entry);
        let fits = |i: &Open| own.is_none_or(|c| i.channels.iter().all(|other| *other == c));
        match entry.kind {
            // Announces a fault whose channel the next line names.
            Kind::PageFaultError => {
                find(&|i| !i.told && i.count(Kind::MmuFault) == 0 && i.count(Kind::PageFaultError) == 0)
            }
            Kind::MmuFault => {
                let same = own.and_then(|c| find(&|i| !i.told && i.channels.contains(&c)));
                let announced = related.iter().rev().copied().find(|at| self.open[*at].is_announcement());
                match (same, announced) {
                    (Some(same), Some(announced)) if same != announced => {
                        let moved = self.open.remove(announced).map_or(Vec::new(), |o| o.incident.entries);
                        let same = if announced < same { same - 1 } else { same };
                        moved.into_iter().for_each(|e| self.open[same].push(e));
                        Some(same)
                    }
                    (Some(at), _) | (None, Some(at)) => Some(at),
                    (None, None) => find(&|i| !i.told && i.count(Kind::MmuFault) == 0 && fits(i)),
                }
            }
            // An SM that waits for a translation reports after the MMU has, in an interrupt of its own.
            Kind::SmMachineCheck | Kind::SmErrorState => find(&|i| {
                let after_mmu = i.count(Kind::MmuFault) > 0
                    && i.count(Kind::GrExceptionNotice) == 0
                    && entry.time.is_some();
                !i.told || after_mmu
            }),
            // Here the driver notifies the owner before it logs the reason.
            Kind::IllegalMethod | Kind::IllegalNotify | Kind::FirmwareMethod => {
                let told_only = |i: &Open| {
                    i.incident.entries.iter().all(|e| e.kind == Kind::Notifier || e.kind == entry.kind)
                };
                find(&|i| !i.told && fits(i)).or_else(|| find(&told_only))
            }
            // Lost hardware is no part of a program's fault.
            Kind::XidOther if class_of(entry.xid) == Some(Class::Hardware) => {
                find(&|i| !i.told && fits(i) && i.incident.entries.iter().all(|e| e.kind == Kind::XidOther))
            }
            _ => find(&|i| !i.told && fits(i)),
        }
    }

    /// Lines about one failed start of a GPU, or one broken link, are of one fault.
    fn for_platform(&self, entry: &Entry) -> Option<usize> {
        const STARTS: [Kind; 6] = [
            Kind::FirmwareMissing,
            Kind::InitFailed,
            Kind::PowerCable,
            Kind::BarInvalid,
            Kind::Refused,
            Kind::KeyRejected,
        ];
        const TOGETHER: [&[Kind]; 4] =
            [&[Kind::PcieError, Kind::PcieLinkDown], &STARTS, &[Kind::HeatShutdown], &[Kind::Host1xTimeout]];
        let kinds = TOGETHER.iter().find(|kinds| kinds.contains(&entry.kind))?;
        (0..self.open.len()).rev().find(|at| {
            let first = self.open[*at].incident.entries.first();
            first.is_some_and(|first| kinds.contains(&first.kind) && first.host == entry.host)
        })
    }

    fn for_detail(&self, entry: &Entry) -> Option<usize> {
        // The first of them that still waits for such a line: drivers print one fault after the other.
        let waiting = |of: Kind, has: Kind| {
            let mut related: Vec<usize> = self.related(entry).collect();
            related.reverse();
            related.into_iter().find(|at| self.open[*at].count(of) > self.open[*at].count(has))
        };
        let direct = match entry.kind {
            Kind::MmuClient => waiting(Kind::MmuFault, Kind::MmuClient),
            Kind::SmRegisters => waiting(Kind::SmErrorState, Kind::SmRegisters),
            _ => None,
        };
        direct.or_else(|| self.latest(entry))
    }

    /// The dump describes all channels; it goes to the incident of the first of its lines that names a
    /// channel of one.
    fn for_dump(&self, entry: &Entry) -> Option<usize> {
        let named = entry.fields.id("channel").filter(|_| entry.kind == Kind::DumpChannel);
        let by_channel =
            named.and_then(|c| self.related(entry).find(|at| self.open[*at].channels.contains(&c)));
        let last_line = |at: &usize| {
            let last = self.open[*at].incident.entries.last();
            last.filter(|e| e.kind.role() == Role::Dump).map(|e| e.line)
        };
        let going_on = || self.related(entry).filter(|at| last_line(at).is_some()).max_by_key(last_line);
        by_channel.or_else(going_on).or_else(|| self.latest(entry))
    }

    fn for_notice(&self, entry: &Entry) -> Option<usize> {
        // The driver notifies a channel of a fault once: the same again is of another fault.
        let related = || self.related(entry).filter(|at| !self.open[*at].has_told(entry));
        let by_channel =
            channel(entry).and_then(|c| related().find(|at| self.open[*at].channels.contains(&c)));
        // Further channels of a group are notified one after the other.
        let untold = || {
            related().find(|at| {
                let i = &self.open[*at];
                !i.told && i.channels.is_empty()
            })
        };
        by_channel.or_else(untold).or_else(|| related().next())
    }

    fn for_recovery(&self, entry: &Entry) -> Option<usize> {
        let own = tsg(entry);
        let by_group = own.and_then(|t| self.related(entry).find(|at| self.open[*at].tsgs.contains(&t)));
        let mut related: Vec<usize> = self.related(entry).collect();
        related.reverse();
        let waiting = || {
            related.iter().copied().find(|at| {
                let i = &self.open[*at];
                own.is_some() && i.count(Kind::MmuFault) > 0 && i.tsgs.is_empty()
            })
        };
        by_group.or_else(waiting).or_else(|| self.latest(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_log::{Parsed, Reader};

    fn incidents(log: &str) -> Vec<Incident> {
        let (mut reader, mut grouper, mut found) = (Reader::new(), Grouper::new(), Vec::new());
        let mut entries = Vec::new();
        let mut take = |parsed| {
            if let Parsed::Entry(entry) = parsed {
                entries.push(entry);
            }
        };
        reader.feed(log.as_bytes(), &mut take);
        reader.finish(&mut take);
        for entry in entries {
            grouper.push(entry, &mut |i| found.push(i));
        }
        grouper.finish(&mut |i| found.push(i));
        found
    }

    fn nvgpu(text: &str) -> String {
        format!("nvgpu: 17000000.gpu f:1 [ERR]  {text}\n")
    }

    fn mmu(channel: u32) -> String {
        nvgpu(&format!(
            "[MMU FAULT] mmu engine id:  64, ch id:  {channel}, fault addr: 0x1000, fault addr aperture: 0, fault type: \
             invalid pte, access type: virt read, "
        ))
    }

    #[test]
    fn the_lines_of_two_channels_that_fault_at_once_are_told_apart() {
        let client = nvgpu(
            "[MMU FAULT] protected mode: 0, client type: gpc, client id:  t1_0, gpc id if client type is gpc: 0, ",
        );
        let announced = nvgpu("page fault error: err_type = 0x8, fault_status = 0x200");
        let log = [
            announced.clone(),
            mmu(506),
            announced,
            mmu(507),
            client.clone(),
            client,
            nvgpu("mmu fault id=5 id_type=1 act_eng_bitmask=00000001"),
            nvgpu("mmu fault id=6 id_type=1 act_eng_bitmask=00000001"),
            nvgpu("TSG 6 generated a mmu fault"),
            nvgpu("error notifier set to 31 for ch 507 owned by b"),
            nvgpu("TSG 5 generated a mmu fault"),
            nvgpu("error notifier set to 31 for ch 506 owned by a"),
        ]
        .concat();
        let found = incidents(&log);
        assert_eq!(found.len(), 2);
        for (incident, (channel, comm, tsg)) in found.iter().zip([(506, "a", 5), (507, "b", 6)]) {
            assert_eq!(incident.entries.len(), 6, "{incident:?}");
            assert!(incident.entries.iter().filter_map(super::channel).all(|c| c == channel));
            assert!(incident.entries.iter().filter_map(super::tsg).all(|t| t == tsg));
            assert_eq!(incident.of(Kind::Notifier).next().and_then(|e| e.fields.text("comm")), Some(comm));
        }
    }

    #[test]
    fn time_ends_an_incident_and_so_does_the_notice_to_its_owner() {
        let sm = "sm hww global 0x00000004 warp 0x00000010";
        let line = |at: &str, text: &str| format!("[{at}] {}", nvgpu(text));
        let log = line("    1.000000", sm) + &line("    1.100000", sm);
        assert_eq!(incidents(&log).len(), 2);
        let log = line("    1.000000", sm) + &line("    1.010000", sm);
        assert_eq!(incidents(&log).len(), 1);
        let notice = nvgpu("error notifier set to 13 for ch 5 owned by a");
        let state = nvgpu("sm machine check err. gpc_id(0), tpc_id(0), offset(0)");
        assert_eq!(incidents(&[state.clone(), notice.clone(), state, notice].concat()).len(), 2);
    }

    #[test]
    fn a_channel_that_is_told_again_has_another_fault() {
        let notice = |of: &str| nvgpu(&format!("error notifier set to {of}"));
        // Whole lines of a group of two channels, and lines that are cut before the channel.
        for (lines, each) in [
            (&["13 for ch 5 owned by a", "13 for ch 6 owned by a"][..], 2),
            (&["13 for ch 5"], 1),
            (&["13"], 1),
        ] {
            let log: String = lines.iter().map(|of| notice(of)).collect::<String>().repeat(1000);
            let found = incidents(&log);
            assert_eq!(found.len(), 1000, "{lines:?}");
            assert!(found.iter().all(|i| i.entries.len() == each), "{lines:?}");
        }
        // Another code is a further notice of the same fault.
        let log = notice("13 for ch 5 owned by a") + &notice("43 for ch 5 owned by a");
        assert_eq!(incidents(&log).len(), 1);
    }

    #[test]
    fn a_flood_of_faults_is_bounded() {
        let log: String = (0..3000).map(mmu).collect();
        let (mut reader, mut grouper, mut count) = (Reader::new(), Grouper::new(), 0);
        let mut entries = Vec::new();
        reader.feed(log.as_bytes(), &mut |p| entries.push(p));
        for parsed in entries {
            let Parsed::Entry(entry) = parsed else { panic!("{parsed:?}") };
            grouper.push(entry, &mut |_| count += 1);
            assert!(grouper.open.len() <= MAX_OPEN);
        }
        grouper.finish(&mut |_| count += 1);
        assert_eq!(count, 3000);
    }
}
