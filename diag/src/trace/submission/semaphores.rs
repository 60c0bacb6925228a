//! Semaphores that methods release and wait for: address, payload and operation from the methods that set
//! them.

use serde::Serialize;

use crate::hex::Hex;
use crate::pushbuffer::command::Write;

/// A semaphore operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Semaphore {
    /// Unit that performs it: `host`, `compute`, `inline`, `copy`.
    pub unit: &'static str,
    /// `RELEASE`, `ACQUIRE`, ... as in NVIDIA's headers.
    pub operation: &'static str,
    /// Its GPU address.
    pub address: Hex,
    /// Value written or compared.
    pub payload: Hex,
    /// Options that are on, by their names in the headers.
    pub options: Vec<String>,
}

/// Values that stay set from method to method.
#[derive(Clone, Copy, Debug, Default)]
struct Set {
    upper: u32,
    lower: u32,
    payload: u32,
    payload_upper: u32,
}

impl Set {
    fn operation(self, unit: &'static str, operation: &'static str, write: &Write, wide: bool) -> Semaphore {
        let address = u64::from(self.upper) << 32 | u64::from(self.lower);
        let payload = if wide { u64::from(self.payload_upper) << 32 } else { 0 } | u64::from(self.payload);
        let options = write.fields.iter().filter(|f| f.name != "OPERATION" && f.value != 0);
        let option = |f: &crate::pushbuffer::command::FieldValue| match f.value_name {
            Some(name) => format!("{}={name}", f.name),
            None => format!("{}={:#x}", f.name, f.value),
        };
        let (address, payload) = (Hex(address), Hex(payload));
        Semaphore { unit, operation, address, payload, options: options.map(option).collect() }
    }
}

/// The semaphore methods of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Semaphores {
    host: Set,
    old_host: Set,
    report: Set,
    new_report: Set,
    inline: Set,
    copy: Set,
}

impl Semaphores {
    /// Follows one write; an operation if it performs one. `is_copy` for methods of a copy class.
    pub(super) fn write(&mut self, write: &Write, is_copy: bool) -> Option<Semaphore> {
        let value = write.value.0 as u32;
        let field = |name| write.fields.iter().find(|f| f.name == name);
        let operation = field("OPERATION").and_then(|f| f.value_name).unwrap_or("operation without a name");
        let is_wide = field("PAYLOAD_SIZE").is_some_and(|f| f.value != 0);
        match write.name? {
            "SEM_ADDR_LO" => self.host.lower = value & !3,
            "SEM_ADDR_HI" => self.host.upper = value,
            "SEM_PAYLOAD_LO" => self.host.payload = value,
            "SEM_PAYLOAD_HI" => self.host.payload_upper = value,
            "SEM_EXECUTE" => return Some(self.host.operation("host", operation, write, is_wide)),
            "SEMAPHOREA" => self.old_host.upper = value,
            "SEMAPHOREB" => self.old_host.lower = value & !3,
            "SEMAPHOREC" => self.old_host.payload = value,
            "SEMAPHORED" => return Some(self.old_host.operation("host", operation, write, false)),
            "SET_REPORT_SEMAPHORE_A" => self.report.upper = value,
            "SET_REPORT_SEMAPHORE_B" => self.report.lower = value,
            "SET_REPORT_SEMAPHORE_C" => self.report.payload = value,
            "SET_REPORT_SEMAPHORE_D" => {
                return Some(self.report.operation("compute", operation, write, false));
            }
            "SET_REPORT_SEMAPHORE_PAYLOAD_LOWER" => self.new_report.payload = value,
            "SET_REPORT_SEMAPHORE_PAYLOAD_UPPER" => self.new_report.payload_upper = value,
            "SET_REPORT_SEMAPHORE_ADDRESS_LOWER" => self.new_report.lower = value,
            "SET_REPORT_SEMAPHORE_ADDRESS_UPPER" => self.new_report.upper = value,
            "REPORT_SEMAPHORE_EXECUTE" => {
                return Some(self.new_report.operation("compute", operation, write, true));
            }
            "SET_I2M_SEMAPHORE_A" => self.inline.upper = value,
            "SET_I2M_SEMAPHORE_B" => self.inline.lower = value,
            "SET_I2M_SEMAPHORE_C" => self.inline.payload = value,
            "SET_SEMAPHORE_A" => self.copy.upper = value,
            "SET_SEMAPHORE_B" => self.copy.lower = value,
            "SET_SEMAPHORE_PAYLOAD" => self.copy.payload = value,
            "SET_SEMAPHORE_PAYLOAD_UPPER" => self.copy.payload_upper = value,
            "LAUNCH_DMA" if is_copy && field("SEMAPHORE_TYPE").is_some_and(|f| f.value != 0) => {
                let wide = field("SEMAPHORE_PAYLOAD_SIZE").is_some_and(|f| f.value != 0);
                return Some(self.copy.operation("copy", "RELEASE", write, wide));
            }
            "LAUNCH_DMA" if !is_copy && field("COMPLETION_TYPE").is_some_and(|f| f.value == 2) => {
                return Some(self.inline.operation("inline", "RELEASE", write, false));
            }
            _ => {}
        }
        None
    }
}
