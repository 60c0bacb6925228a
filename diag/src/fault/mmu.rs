//! The MMU's fault record.

use nv_hw::fault::{access_type, fault_type};
use serde::Serialize;

use crate::hex::Hex;

/// Kind of the access that faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// A load or an instruction fetch.
    Read,
    /// A store.
    Write,
    /// An atomic.
    Atomic,
    /// A prefetch.
    Prefetch,
}

/// A fault of the MMU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MmuFault {
    /// The address; hardware reports its page of 4 KiB.
    pub address: Option<Hex>,
    /// Number of the fault type.
    pub fault_type: Option<u32>,
    /// The driver's name of the fault type.
    pub fault: Option<String>,
    /// The access.
    pub access: Option<Access>,
    /// The driver's name of the access.
    pub access_name: Option<String>,
    /// Number of the MMU's engine.
    pub engine_id: Option<u32>,
    /// Name of the engine.
    pub engine: Option<String>,
    /// Name of the unit.
    pub client: Option<String>,
    /// Whether the unit belongs to a GPC.
    pub in_gpc: Option<bool>,
    /// GPC.
    pub gpc: Option<u32>,
    /// The SM whose data path the unit is (inferred from unit counts: `t1_n` is SM `n & 1` of TPC `n >> 1`).
    pub sm: Option<crate::fault::sm::Place>,
    /// The instance block of the context.
    pub instance: Option<Hex>,
}

impl MmuFault {
    /// Sets the fault type by the name a driver prints, of nvgpu or of the desktop driver.
    pub fn name_fault(&mut self, text: &str) {
        let tables = [fault_type::TEXTS, fault_type::TEXTS_GV11B, fault_type::XID_TEXTS];
        self.fault_type = tables.into_iter().find_map(|table| nv_hw::number(table, text));
        self.fault =
            Some(self.fault_type.and_then(|t| nv_hw::name(fault_type::TEXTS, t)).unwrap_or(text).to_owned());
    }

    /// Sets the access by the name a driver prints.
    pub fn name_access(&mut self, text: &str) {
        let plain = text.trim().to_lowercase().replace('_', " ");
        self.access = if plain.contains("atomic") {
            Some(Access::Atomic)
        } else if plain.contains("prefetch") {
            Some(Access::Prefetch)
        } else if plain.contains("write") {
            Some(Access::Write)
        } else if plain.contains("rea") {
            Some(Access::Read)
        } else {
            None
        };
        let known =
            nv_hw::number(access_type::TEXTS, &plain).and_then(|n| nv_hw::name(access_type::TEXTS, n));
        self.access_name = Some(known.map_or(plain, str::to_owned));
    }

    /// Sets the engine by its number on ga10b (GA100's list, three of whose numbers ga10b's header confirms).
    pub fn number_engine(&mut self, id: u32) {
        self.engine_id = Some(id);
        self.engine = Some(match id {
            15..=24 => format!("copy engine {}", id - 15),
            31 => "physical".to_owned(),
            32..=63 => format!("host {} (pushbuffer fetch)", id - 32),
            64..=127 => format!("graphics, subcontext {}", id - 64),
            128..=191 => format!("BAR1 {}", id - 128),
            192.. => format!("BAR2 {}", id - 192),
            _ => format!("engine {id}"),
        });
    }

    /// Sets the unit by the name a driver prints.
    pub fn name_client(&mut self, text: &str, in_gpc: bool, gpc: Option<u32>) {
        let plain = text.trim().to_lowercase();
        let number = plain
            .strip_prefix("t1_")
            .or_else(|| plain.strip_prefix("t1 "))
            .and_then(|n| n.parse::<u32>().ok());
        self.in_gpc = Some(in_gpc);
        self.gpc = gpc.filter(|_| in_gpc);
        self.sm = number.zip(self.gpc).map(|(n, gpc)| crate::fault::sm::Place {
            gpc,
            tpc: n >> 1,
            sm: Some(n & 1),
        });
        self.client = Some(plain);
    }

    /// Whether a copy engine made the access.
    #[must_use]
    pub fn is_of_copy(&self) -> bool {
        let client = self.client.as_deref().unwrap_or_default();
        matches!(self.engine_id, Some(15..=24))
            || ["ce", "hsce", "grcopy"].iter().any(|name| client.starts_with(name))
    }

    /// Returns the purpose of the unit, in plain words.
    #[must_use]
    pub fn client_words(&self) -> &'static str {
        let Some(client) = self.client.as_deref() else { return "an unknown unit" };
        let begins = |names: &[&str]| names.iter().any(|name| client.starts_with(name));
        match self.in_gpc {
            Some(true) if begins(&["t1"]) => "a load, store or texture access of an SM",
            Some(true) if begins(&["gcc"]) => "a fetch of constants or instructions",
            Some(true) if begins(&["gpccs", "tpccs"]) => "saving or restoring a context",
            Some(true) if begins(&["pe", "prop", "rast", "rop"]) => "a graphics unit",
            _ if begins(&["esc"]) => "fetching a ring entry or a pushbuffer",
            _ if begins(&["host"]) => "a semaphore or another method of the host",
            _ if begins(&["ce", "hsce", "grcopy"]) => "a copy engine's source or destination",
            _ if begins(&["sked"]) => "reading a launch descriptor, or its release",
            _ if begins(&["fe"]) && !begins(&["fecs"]) => "the front end: inline data or a report semaphore",
            _ if begins(&["fecs"]) => "the context firmware",
            _ if begins(&["pd", "scc"]) => "a unit of the front end",
            _ => "another unit",
        }
    }

    /// Returns the meaning of the fault type.
    #[must_use]
    pub const fn words(&self) -> &'static str {
        match self.fault_type {
            Some(fault_type::PDE) => "nothing is mapped anywhere near the address",
            Some(fault_type::PDE_SIZE) => "the page directory has an entry of a wrong size",
            Some(fault_type::PTE) => "the page of the address is not mapped",
            Some(fault_type::VA_LIMIT_VIOLATION) => "the address is beyond the address space",
            Some(fault_type::UNBOUND_INST_BLOCK) => "the channel's context does not exist any more",
            Some(fault_type::PRIV_VIOLATION) => "the page belongs to the driver",
            Some(fault_type::RO_VIOLATION) => "a write to a read-only page",
            Some(fault_type::WO_VIOLATION) => "a read of a write-only page",
            Some(fault_type::PITCH_MASK_VIOLATION) => "the pitch mask forbids the access",
            Some(fault_type::WORK_CREATION) => "the page may not create work",
            Some(fault_type::UNSUPPORTED_APERTURE) => {
                "the page is in a kind of memory that does not take this access"
            }
            Some(fault_type::COMPRESSION_FAILURE) => "compressed data could not be read",
            Some(fault_type::UNSUPPORTED_KIND) => "the page's kind does not fit the access",
            Some(fault_type::REGION_VIOLATION) => "the page lies in a protected region",
            Some(fault_type::POISONED) => "the memory holds data that is marked as damaged",
            Some(fault_type::ATOMIC_VIOLATION) => "the page does not take atomic accesses",
            _ => "the MMU refused the access",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_drivers_names_mean_the_same() {
        for (nvgpu, desktop, number) in
            [("invalid pte", "FAULT_PTE", 2), ("write, ro violation", "FAULT_RO_VIOLATION", 6)]
        {
            let (mut a, mut b) = (MmuFault::default(), MmuFault::default());
            a.name_fault(nvgpu);
            b.name_fault(desktop);
            assert_eq!((a.fault_type, &a), (Some(number), &b));
        }
        let (mut a, mut b) = (MmuFault::default(), MmuFault::default());
        a.name_access("virt read");
        b.name_access("VIRT_READ");
        assert_eq!((a.access, &a), (Some(Access::Read), &b));
    }

    #[test]
    fn a_data_path_names_its_sm() {
        let mut fault = MmuFault::default();
        fault.name_client("t1_7", true, Some(1));
        assert_eq!(fault.sm, Some(super::super::sm::Place { gpc: 1, tpc: 3, sm: Some(1) }));
        fault.name_client("ESC", false, Some(0));
        assert_eq!(
            (fault.sm, fault.gpc, fault.client_words()),
            (None, None, "fetching a ring entry or a pushbuffer")
        );
    }
}
