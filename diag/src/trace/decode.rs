//! Decoding of a traced call's bytes.

use std::borrow::Cow;

use nv_hw::fault::hww_esr;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::trace::abi::{self, Field, Layout, Pointer};
use crate::trace::bytes::Bytes;
use crate::trace::event::{Call, Event};

/// Elements of an array that are shown.
const SHOWN_ELEMENTS: usize = 8;
/// Bytes of a field of bytes that are shown.
const SHOWN_BYTES: usize = 64;

/// Fields that mean something before and after a call, where several overlap. Others show the first.
const READINGS: &[(&str, &str, &str)] = &[
    ("NVMAP_IOC_CREATE", "size", "handle"),
    ("NVMAP_IOC_CREATE_64", "size64", "handle64"),
    ("NVMAP_IOC_GET_FD", "handle", "fd"),
    ("NVMAP_IOC_FROM_FD", "fd", "handle"),
    ("NVMAP_IOC_FROM_IVC_ID", "ivm_id", "ivm_handle"),
    ("NVMAP_IOC_GET_IVC_ID", "ivm_handle", "ivm_id"),
    ("NVGPU_GPU_IOCTL_OPEN_CHANNEL", "in.runlist_id", "out.channel_fd"),
];
/// From this many fields on those that are zero are left out.
const MANY_FIELDS: usize = 12;

/// Named values, in the order of the header.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(pub Vec<(&'static str, Value)>);

impl Fields {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// A decoded `ioctl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Decoded {
    /// Its name; the number and its parts if it is not known.
    pub name: String,
    /// Whether it is known.
    pub known: bool,
    /// The class or the command it is about.
    pub about: Option<String>,
    /// Its fields before the call.
    pub arguments: Fields,
    /// The fields that the call changed, as they are after it.
    pub answers: Fields,
    /// Memory that it points to.
    pub memory: Vec<DecodedMemory>,
    /// Status that the driver wrote to the argument, where that is not success.
    pub status: Option<String>,
}

/// Memory that a pointer of an argument names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecodedMemory {
    /// The field that points to it, with the element of an array in brackets.
    pub field: String,
    /// Its struct.
    pub layout: Option<&'static str>,
    /// Its fields before the call.
    pub arguments: Fields,
    /// The fields that the call changed.
    pub answers: Fields,
}

/// Decodes an event; `None` for those that are no `ioctl`.
#[must_use]
pub fn decode(event: &Event) -> Option<Decoded> {
    let Call::Ioctl { node, request, argument, input, output, memory, .. } = &event.call else { return None };
    let number = request.0 as u32;
    let Some(known) = abi::request(node, number) else {
        return Some(Decoded { name: unknown(number, argument.0), ..Decoded::default() });
    };
    let mut decoded = Decoded { name: known.name.to_owned(), known: true, ..Decoded::default() };
    if let Some((_, signed)) = known.number {
        decoded.arguments = value_of_number(&input.0, signed);
        if input != output && !output.0.is_empty() {
            decoded.answers = value_of_number(&output.0, signed);
        }
        return Some(decoded);
    }
    if nvgpu_sys::BY_VALUE.contains(&number) {
        decoded.arguments = Fields(vec![("value", hex(argument.0))]);
        return Some(decoded);
    }
    let Some(layout) = known.layout(input.0.len()) else { return Some(decoded) };
    let reading = READINGS.iter().find(|(name, ..)| *name == known.name).map(|(_, old, new)| (*old, *new));
    (decoded.arguments, decoded.answers) = both(layout, reading, &input.0, &output.0);
    decoded.about = about(layout, &input.0);
    decoded.status = status(layout, if output.0.is_empty() { &input.0 } else { &output.0 });
    let pointers = abi::pointers(layout, &input.0);
    decoded.memory = pointers
        .iter()
        .filter_map(|pointer| Some((pointer, memory.iter().find(|m| m.address.0 == pointer.address)?)))
        .flat_map(|(pointer, memory)| behind(pointer, &memory.input.0, &memory.output.0))
        .collect();
    Some(decoded)
}

/// The target of a pointer: a struct, the elements of an array that are not zero, or a text.
fn behind(pointer: &Pointer, input: &[u8], output: &[u8]) -> Vec<DecodedMemory> {
    let Some(layout) = pointer.layout else {
        let text = |bytes: &[u8]| {
            let text = text(bytes).map(|text| ("text", json!(text)));
            Fields(text.into_iter().collect())
        };
        let answers = if input == output { Fields::default() } else { text(output) };
        let (field, arguments) = (pointer.field.to_owned(), text(input));
        return vec![DecodedMemory { field, layout: None, arguments, answers }];
    };
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let count = (input.len().max(output.len()) / layout.size).max(1);
    let element = |index: usize| {
        let part = |bytes: &'_ [u8]| bytes.get(index * layout.size..).unwrap_or(&[]).to_vec();
        let (mut before, mut after) = (part(input), part(output));
        // A struct of an older release is shorter, and the last element may be cut.
        before.truncate(layout.size);
        after.truncate(layout.size);
        (index, before, after)
    };
    let elements = (0..count).map(element);
    let elements =
        elements.filter(|(index, before, after)| *index == 0 || !is_zero(before) || !is_zero(after));
    let decoded = elements.take(SHOWN_ELEMENTS).map(|(index, before, after)| {
        let (arguments, answers) = both(layout, None, &before, &after);
        let field = match count {
            1 => pointer.field.to_owned(),
            _ => format!("{}[{index}]", pointer.field),
        };
        DecodedMemory { field, layout: Some(layout.name), arguments, answers }
    });
    decoded.collect()
}

/// The class or the command that a request of the desktop driver is about.
fn about(layout: &Layout, bytes: &[u8]) -> Option<String> {
    let (number, name): (u32, fn(u32) -> Option<&'static str>) = match layout.name {
        "NVOS54_PARAMETERS" => (layout.value("cmd", bytes)? as u32, rm_sys::control_name),
        "NVOS64_PARAMETERS" | "NVOS21_PARAMETERS" => {
            (layout.value("hClass", bytes)? as u32, rm_sys::class_name)
        }
        "nv_ioctl_xfer_t" => (layout.value("cmd", bytes)? as u32, escape_name),
        _ => return None,
    };
    Some(name(number).map_or_else(|| format!("{number:#x}"), str::to_owned))
}

fn escape_name(number: u32) -> Option<&'static str> {
    abi::find(abi::Family::Escape, number).map(|known| known.name)
}

/// Returns the meaning of a status field, unless it is success.
fn status(layout: &Layout, bytes: &[u8]) -> Option<String> {
    let names = ["status", "params.status", "rmStatus"];
    let status = names.iter().find_map(|name| layout.value(name, bytes))? as u32;
    let is_desktop =
        layout.name.starts_with("NV") || layout.name.starts_with("nv_") || layout.name.starts_with("UVM");
    (is_desktop && status != 0).then(|| rm_sys::Status(status).to_string())
}

fn unknown(request: u32, argument: u64) -> String {
    let kind = char::from((request >> 8) as u8);
    let kind =
        if kind.is_ascii_graphic() { format!("'{kind}'") } else { format!("{:#04x}", request >> 8 & 0xff) };
    let direction = ["no", "write", "read", "read and write"][(request >> 30) as usize];
    let bytes = request >> 16 & 0x3fff;
    format!(
        "request {request:#010x} ({kind} {:#04x}, {direction} argument of {bytes} bytes at {argument:#x})",
        request & 0xff
    )
}

/// The fields before a call, and those that it changed. `reading` names the one field that means something on
/// either side.
fn both(
    layout: &'static Layout,
    reading: Option<(&str, &str)>,
    input: &[u8],
    output: &[u8],
) -> (Fields, Fields) {
    if let Some((before, after)) = reading {
        let one = |name: &str, bytes: &[u8]| {
            let field = layout.field(name)?;
            Some(Fields(vec![(field.name, value(field, bytes)?)]))
        };
        let answers = if input == output { None } else { one(after, output) };
        return (one(before, input).unwrap_or_default(), answers.unwrap_or_default());
    }
    let mut covered = vec![false; layout.size];
    let (mut before, mut after) = (Fields::default(), Fields::default());
    for field in &layout.fields {
        let range = field.offset..(field.offset + field.width * field.count).min(layout.size);
        if field.bits.is_none() && covered[range.clone()].iter().any(|c| *c) {
            continue;
        }
        covered[range.clone()].fill(field.bits.is_none());
        let is_filler =
            ["reserved", "padding", "pad"].iter().any(|w| field.name.to_ascii_lowercase().contains(w));
        let may_be_left_out = is_filler || layout.fields.len() >= MANY_FIELDS;
        let is_zero = input.get(range).is_none_or(|bytes| bytes.iter().all(|b| *b == 0));
        let (old, new) = (value(field, input), value(field, output));
        if let Some(new) = new.filter(|new| old.as_ref() != Some(new)) {
            after.0.push((field.name, new));
        }
        if let Some(old) = old.filter(|_| !(may_be_left_out && is_zero)) {
            before.0.push((field.name, old));
        }
    }
    (before, after)
}

/// Bytes that are a text, with zeros behind it.
fn text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let text = bytes.split(|b| *b == 0).next().unwrap_or(&[]);
    let is_text = !text.is_empty() && text.iter().all(|b| b.is_ascii_graphic() || *b == b' ');
    let ends = bytes[text.len()..].iter().all(|b| *b == 0);
    (is_text && ends).then(|| String::from_utf8_lossy(text))
}

/// A field that is no integer, such as a UUID.
fn digits(bytes: &[u8]) -> String {
    let shown = Bytes(bytes.iter().take(SHOWN_BYTES).copied().collect());
    match bytes.len() {
        n if n > SHOWN_BYTES => format!("{shown}... ({n} bytes)"),
        _ => shown.to_string(),
    }
}

fn value_of_number(bytes: &[u8], signed: bool) -> Fields {
    let field = Field { name: "value", offset: 0, width: 4, count: 1, signed, bits: None };
    Fields(value(&field, bytes).map(|value| ("value", value)).into_iter().collect())
}

/// The value of a field: a number, a hexadecimal number where people know it so, a text, or a list.
fn value(field: &Field, bytes: &[u8]) -> Option<Value> {
    if field.count == 1 {
        return match field.value(bytes, 0) {
            Some(number) => Some(one(field, number)),
            None => bytes.get(field.offset..field.offset + field.width).map(|b| json!(digits(b))),
        };
    }
    let all = bytes.get(field.offset..field.offset.checked_add(field.width * field.count)?)?;
    if let Some(text) = text(all).filter(|_| field.width == 1) {
        return Some(json!(text));
    }
    if field.width == 1 || field.width > 8 {
        return Some(json!(digits(all)));
    }
    let used = all.chunks(field.width).rposition(|c| c.iter().any(|b| *b != 0)).map_or(0, |last| last + 1);
    let mut list: Vec<Value> =
        (0..used.min(SHOWN_ELEMENTS)).filter_map(|i| field.value(bytes, i)).map(|n| one(field, n)).collect();
    if used > SHOWN_ELEMENTS {
        list.push(json!(format!("... {} of {}", used, field.count)));
    }
    Some(Value::Array(list))
}

fn one(field: &Field, number: u64) -> Value {
    let last = field.name.rsplit('.').next().unwrap_or(field.name);
    let is_fd = last.ends_with("fd") || last.ends_with("Fd") || last == "fd";
    if field.signed || is_fd {
        let spare = 64 - 8 * field.width.clamp(1, 8) as u32;
        return json!(((number << spare) as i64) >> spare);
    }
    match last {
        "hClass" | "class_num" => return named(number, rm_sys::class_name(number as u32)),
        // The error code of the SM's register.
        "warp_esr" | "hww_warp_esr" => {
            return named(number, hww_esr::ERROR.value_name(hww_esr::ERROR.of(number as u32)));
        }
        "cmd" if field.width == 4 => return named(number, rm_sys::control_name(number as u32)),
        _ => {}
    }
    if is_known_in_hex(last, field.width) { hex(number) } else { json!(number) }
}

fn named(number: u64, name: Option<&str>) -> Value {
    match name {
        Some(name) => json!(format!("{number:#x} {name}")),
        None => hex(number),
    }
}

fn hex(number: u64) -> Value {
    json!(format!("{number:#x}"))
}

/// Whether people know the values of such a field in hexadecimal: addresses, handles, flags, masks.
fn is_known_in_hex(name: &str, width: usize) -> bool {
    const WORDS: [&str; 20] = [
        "addr", "va", "offset", "flags", "mask", "handle", "ptr", "base", "params", "parms", "buf", "mem",
        "class", "token", "o_a", "gpfifo", "limit", "esr", "_pc", "entry0",
    ];
    let is_handle = name.starts_with('h') && name[1..].starts_with(|c: char| c.is_ascii_uppercase());
    let is_pointer = name.starts_with('p') && name[1..].starts_with(|c: char| c.is_ascii_uppercase());
    let lower = name.to_ascii_lowercase();
    let is_size =
        ["size", "count", "num", "len", "time", "bytes", "freq"].iter().any(|word| lower.contains(word));
    is_handle || is_pointer || !is_size && width >= 4 && WORDS.iter().any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::Hex;
    use crate::trace::event::Memory;

    fn ioctl(node: &str, request: u32, input: &[u8], output: &[u8], memory: Vec<Memory>) -> Decoded {
        let call = Call::Ioctl {
            fd: 3,
            node: node.to_owned(),
            request: Hex(request.into()),
            argument: Hex(0x7ff0),
            input: Bytes(input.to_vec()),
            output: Bytes(output.to_vec()),
            memory,
        };
        let event = Event { start_ns: 0, duration_ns: Some(1), pid: 1, tid: 1, result: 0, call };
        decode(&event).expect("an ioctl")
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn a_request_of_nvmap_reads_its_union_as_it_is_meant() {
        let decoded =
            ioctl("/dev/nvmap", nvgpu_sys::NVMAP_IOC_CREATE, &words(&[4096, 0]), &words(&[4096, 7]), vec![]);
        assert_eq!(decoded.name, "NVMAP_IOC_CREATE");
        assert_eq!(json!(decoded.arguments), json!({"size": 4096}));
        assert_eq!(json!(decoded.answers), json!({"handle": "0x7"}));
    }

    #[test]
    fn a_mapping_shows_addresses_in_hexadecimal() {
        let mut input = words(&[0x101, 0x0006_ffff, 9, 4096, 0, 0, 0x20_0000, 0, 0, 0x10]);
        let request = nvgpu_sys::NVGPU_AS_IOCTL_MAP_BUFFER_EX;
        let output = input.clone();
        input[36] = 0;
        let decoded = ioctl("nvhost-ga10b-fd9", request, &input, &output, vec![]);
        assert_eq!(
            json!(decoded.arguments),
            json!({"flags": "0x101", "compr_kind": -1, "incompr_kind": 6, "dmabuf_fd": 9, "page_size": 4096,
                   "buffer_offset": "0x0", "mapping_size": 2097152, "offset": "0x0"})
        );
        assert_eq!(json!(decoded.answers), json!({"offset": "0x1000000000"}));
    }

    #[test]
    fn a_control_shows_its_command_its_parameters_and_its_status() {
        let input = words(&[0xc1d0_0001, 0xcaf0, 0xa06c_0101, 0, 0x8000, 0, 2, 0]);
        let mut output = input.clone();
        output[28] = 0x51;
        let memory = Memory { address: Hex(0x8000), input: Bytes(vec![1, 0]), output: Bytes(vec![1, 0]) };
        let decoded = ioctl("/dev/nvidiactl", 0xc020_462a, &input, &output, vec![memory]);
        assert_eq!(decoded.name, "NV_ESC_RM_CONTROL");
        assert_eq!(decoded.about.as_deref(), Some("NVA06C_CTRL_CMD_GPFIFO_SCHEDULE"));
        assert_eq!(decoded.status.as_deref(), Some("no memory (NV_ERR_NO_MEMORY, 0x51)"));
        assert_eq!(decoded.arguments.get("hClient"), Some(&json!("0xc1d00001")));
        assert_eq!(decoded.memory[0].field, "params");
        assert_eq!(decoded.memory[0].arguments.0.len(), 2);
    }

    #[test]
    fn error_records_of_sms_have_their_fields_and_the_name_of_the_error() {
        let record = |esr: u32| words(&[0, esr, 0x10_0080, 0x10, 0xff, 0xff]);
        let input = words(&[3, 0, 0x9000, 0, 72, 0]);
        let decoded = |request: u32, after: Vec<u8>| {
            let before = vec![0; after.len()];
            let memory = Memory { address: Hex(0x9000), input: Bytes(before), output: Bytes(after) };
            ioctl("nvgpu-ga10b-tsg7", request, &input, &input, vec![memory]).memory
        };
        let one = decoded(nvgpu_sys::NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE, record(0xf));
        let answers = json!({"warp_esr": "0xf MISALIGNED_ADDR", "warp_esr_pc": "0x1000100080",
            "global_esr_report_mask": "0xff", "warp_esr_report_mask": "0xff"});
        assert_eq!((one[0].field.as_str(), json!(one[0].answers)), ("record_mem", answers.clone()));
        // Of all SMs, those whose record is not empty.
        let all = [vec![0; 48], record(0xf)].concat();
        let all = decoded(nvgpu_sys::NVGPU_TSG_IOCTL_READ_ALL_SM_ERROR_STATES, all);
        let fields: Vec<&str> = all.iter().map(|memory| memory.field.as_str()).collect();
        assert_eq!(fields, ["buffer_mem[0]", "buffer_mem[2]"]);
        assert_eq!(json!(all[1].answers), answers);
    }

    #[test]
    fn what_is_not_known_has_its_number_and_size() {
        let decoded = ioctl("/dev/nvidiactl", 0xc008_4677, &[1, 2, 3, 4, 5, 6, 7, 8], &[0; 8], vec![]);
        assert!(!decoded.known);
        assert!(decoded.name.contains("0xc0084677") && decoded.name.contains("'F' 0x77"), "{}", decoded.name);
        assert!(decoded.name.contains("argument of 8 bytes") && decoded.arguments.is_empty());
        let none = ioctl("/dev/nvmap", 0x1234, &[], &[], vec![]);
        assert!(none.arguments.is_empty() && none.name.contains("0x12 0x34"), "{}", none.name);
    }

    #[test]
    fn arguments_that_are_numbers_or_values() {
        let bind = ioctl(
            "nvgpu-ga10b-tsg7",
            nvgpu_sys::NVGPU_TSG_IOCTL_BIND_CHANNEL,
            &words(&[12]),
            &words(&[12]),
            vec![],
        );
        assert_eq!(json!(bind.arguments), json!({"value": 12}));
        let free = ioctl("/dev/nvmap", nvgpu_sys::NVMAP_IOC_FREE, &[], &[], vec![]);
        assert_eq!(json!(free.arguments), json!({"value": "0x7ff0"}));
    }
}
