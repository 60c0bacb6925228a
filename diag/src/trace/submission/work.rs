//! Work that methods start: launches, copies, and semaphores that they release and wait for, from the methods
//! that set their values.

use serde::Serialize;

use crate::hex::Hex;
use crate::pushbuffer::command::Write;
use crate::trace::submission::launch::DecodedLaunch;

/// Something that a segment has the GPU do.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// A launch.
    Launch(Box<DecodedLaunch>),
    /// A copy, a fill, or an upload of words of the segment.
    Copy(Copy),
    /// A semaphore is released or waited for.
    Semaphore(Semaphore),
}

/// A copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Copy {
    /// GPU address that is read; absent where constants or words of the segment are written.
    pub from: Option<Hex>,
    /// GPU address that is written.
    pub to: Hex,
    /// Bytes of a line.
    pub size_bytes: u64,
    /// Lines.
    pub lines: u32,
    /// The constant that is written, of a fill.
    pub fill: Option<Hex>,
}

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

/// The values of a copy that stay set.
#[derive(Clone, Copy, Debug, Default)]
struct CopySet {
    from: [u32; 2],
    to: [u32; 2],
    length: u32,
    lines: u32,
    constant: u32,
    is_fill: bool,
    /// Bytes of an element where components are remapped.
    element: u32,
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

/// Work that a write starts.
#[derive(Debug)]
pub(super) enum Started {
    Work(Work),
    /// The launch of the QMD at this address.
    Launch(u64),
}

/// The methods of a channel that work depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Methods {
    host: Set,
    old_host: Set,
    report: Set,
    new_report: Set,
    inline: Set,
    copy: Set,
    copied: CopySet,
    uploaded: CopySet,
    qmd: u32,
}

fn field(write: &Write, name: &str) -> u32 {
    write.fields.iter().find(|field| field.name == name).map_or(0, |field| field.value)
}

impl Methods {
    /// Follows one write; what it starts. `is_copy` for methods of a copy class.
    pub(super) fn write(&mut self, write: &Write, is_copy: bool) -> Vec<Started> {
        let Some(name) = write.name else { return Vec::new() };
        let value = write.value.0 as u32;
        let copied = if is_copy { &mut self.copied } else { &mut self.uploaded };
        match name {
            "SEND_PCAS_A" => self.qmd = value,
            "SEND_SIGNALING_PCAS_B" | "SEND_SIGNALING_PCAS2_B" if value != 0 => {
                return vec![Started::Launch(u64::from(self.qmd) << 8)];
            }
            "OFFSET_IN_UPPER" => copied.from[1] = value,
            "OFFSET_IN_LOWER" => copied.from[0] = value,
            "OFFSET_OUT_UPPER" => copied.to[1] = value,
            "OFFSET_OUT_LOWER" | "OFFSET_OUT" => copied.to[0] = value,
            "LINE_LENGTH_IN" => copied.length = value,
            "LINE_COUNT" => copied.lines = value,
            "SET_REMAP_CONST_A" => copied.constant = value,
            "SET_REMAP_COMPONENTS" => {
                // CONST_A.
                copied.is_fill = field(write, "DST_X") == 4;
                let parts = ["COMPONENT_SIZE", "NUM_DST_COMPONENTS"].map(|part| field(write, part) + 1);
                copied.element = parts[0] * parts[1];
            }
            "LAUNCH_DMA" => return self.dma(write, is_copy),
            _ => return self.semaphore(name, value, write).into_iter().map(semaphore).collect(),
        }
        Vec::new()
    }

    /// `LAUNCH_DMA`: a copy, and the release behind it.
    fn dma(&self, write: &Write, is_copy: bool) -> Vec<Started> {
        let is_set = |name| field(write, name) != 0;
        let set = if is_copy { self.copied } else { self.uploaded };
        let address = |[lower, upper]: [u32; 2]| Hex(u64::from(upper) << 32 | u64::from(lower));
        let is_remapped = is_copy && is_set("REMAP_ENABLE");
        let is_fill = is_remapped && set.is_fill;
        let element = if is_remapped { set.element.max(1) } else { 1 };
        let copy = Copy {
            from: (is_copy && !is_fill).then(|| address(set.from)),
            to: address(set.to),
            size_bytes: u64::from(set.length) * u64::from(element),
            lines: if !is_copy || is_set("MULTI_LINE_ENABLE") { set.lines } else { 1 },
            fill: is_fill.then_some(Hex(set.constant.into())),
        };
        let moves = !is_copy || is_set("DATA_TRANSFER_TYPE");
        let release = match is_copy {
            true => is_set("SEMAPHORE_TYPE")
                .then(|| self.copy.operation("copy", "RELEASE", write, is_set("SEMAPHORE_PAYLOAD_SIZE"))),
            false => (field(write, "COMPLETION_TYPE") == 2)
                .then(|| self.inline.operation("inline", "RELEASE", write, false)),
        };
        let copy = moves.then_some(Started::Work(Work::Copy(copy)));
        copy.into_iter().chain(release.map(semaphore)).collect()
    }

    fn semaphore(&mut self, name: &str, value: u32, write: &Write) -> Option<Semaphore> {
        let operation = write.fields.iter().find(|f| f.name == "OPERATION").and_then(|f| f.value_name);
        let operation = operation.unwrap_or("operation without a name");
        let (set, part) = match name {
            "SEM_EXECUTE" => {
                return Some(self.host.operation(
                    "host",
                    operation,
                    write,
                    field(write, "PAYLOAD_SIZE") != 0,
                ));
            }
            "SEMAPHORED" => return Some(self.old_host.operation("host", operation, write, false)),
            "SET_REPORT_SEMAPHORE_D" => {
                return Some(self.report.operation("compute", operation, write, false));
            }
            "REPORT_SEMAPHORE_EXECUTE" => {
                return Some(self.new_report.operation("compute", operation, write, true));
            }
            "SEM_ADDR_LO" => (&mut self.host, 1),
            "SEM_ADDR_HI" => (&mut self.host, 0),
            "SEM_PAYLOAD_LO" => (&mut self.host, 2),
            "SEM_PAYLOAD_HI" => (&mut self.host, 3),
            "SEMAPHOREA" => (&mut self.old_host, 0),
            "SEMAPHOREB" => (&mut self.old_host, 1),
            "SEMAPHOREC" => (&mut self.old_host, 2),
            "SET_REPORT_SEMAPHORE_A" => (&mut self.report, 0),
            "SET_REPORT_SEMAPHORE_B" => (&mut self.report, 1),
            "SET_REPORT_SEMAPHORE_C" => (&mut self.report, 2),
            "SET_REPORT_SEMAPHORE_ADDRESS_UPPER" => (&mut self.new_report, 0),
            "SET_REPORT_SEMAPHORE_ADDRESS_LOWER" => (&mut self.new_report, 1),
            "SET_REPORT_SEMAPHORE_PAYLOAD_LOWER" => (&mut self.new_report, 2),
            "SET_REPORT_SEMAPHORE_PAYLOAD_UPPER" => (&mut self.new_report, 3),
            "SET_I2M_SEMAPHORE_A" => (&mut self.inline, 0),
            "SET_I2M_SEMAPHORE_B" => (&mut self.inline, 1),
            "SET_I2M_SEMAPHORE_C" => (&mut self.inline, 2),
            "SET_SEMAPHORE_A" => (&mut self.copy, 0),
            "SET_SEMAPHORE_B" => (&mut self.copy, 1),
            "SET_SEMAPHORE_PAYLOAD" => (&mut self.copy, 2),
            "SET_SEMAPHORE_PAYLOAD_UPPER" => (&mut self.copy, 3),
            _ => return None,
        };
        // The lower bits of a host semaphore's address are options of older chips.
        let is_host = matches!(name, "SEM_ADDR_LO" | "SEMAPHOREB");
        let value = if is_host { value & !3 } else { value };
        *[&mut set.upper, &mut set.lower, &mut set.payload, &mut set.payload_upper][part] = value;
        None
    }
}

fn semaphore(semaphore: Semaphore) -> Started {
    Started::Work(Work::Semaphore(semaphore))
}
