//! A launch: its QMD, its kernel and its arguments.

use serde::Serialize;
use serde_json::{Value, json};

use crate::hex::Hex;
use crate::queue_metadata::description::Metadata;
use crate::trace::bytes::Bytes;
use crate::trace::submission::recorded::Launch;

/// Memory in which a QMD was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Memory that the process has mapped.
    Memory,
    /// An inline-to-memory upload of the same channel.
    Upload,
    /// The methods for inline QMDs.
    Inline,
    /// Nowhere: the process has not mapped it.
    NotMapped,
}

/// A launch.
#[derive(Clone, Debug, Serialize)]
pub struct DecodedLaunch {
    /// GPU address of its QMD, where that is known.
    pub address: Option<Hex>,
    /// The QMD that names it as its dependent.
    pub after: Option<Hex>,
    /// Memory in which the QMD was read.
    pub source: Source,
    /// Decoded QMD.
    pub qmd: Option<Metadata>,
    /// Why there is none.
    pub error: Option<String>,
    /// Name of the kernel, where a cubin in the process has its code.
    pub kernel: Option<String>,
    /// Bytes of its arguments, from the first to the end of the last.
    pub arguments_size_bytes: Option<u32>,
    /// The arguments by the kernel's own layout: numbers, or bytes of another size as hexadecimal digits;
    /// empty where the constant bank was not read.
    pub arguments: Vec<Value>,
}

impl DecodedLaunch {
    pub(super) fn new(
        address: Option<Hex>,
        source: Source,
        qmd: Option<Metadata>,
        error: Option<String>,
    ) -> Self {
        let (after, kernel, arguments_size_bytes, arguments) = (None, None, None, Vec::new());
        Self { address, after, source, qmd, error, kernel, arguments_size_bytes, arguments }
    }

    pub(super) fn of(launch: &Launch) -> Self {
        let (source, read) = match &launch.bytes {
            None => (Source::NotMapped, Err("not mapped in the process".to_owned())),
            Some(bytes) => {
                let source = if launch.uploaded { Source::Upload } else { Source::Memory };
                (source, Metadata::read(&bytes.0).map_err(|error| error.to_string()))
            }
        };
        let (qmd, error) = match read {
            Ok(qmd) => (Some(qmd), None),
            Err(error) => (None, Some(error)),
        };
        let decoded = Self::new(Some(launch.address), source, qmd, error);
        let Some(kernel) = &launch.kernel else { return Self { after: launch.after, ..decoded } };
        let start = kernel.parameters.iter().map(|(offset, _)| *offset).min().unwrap_or(0);
        let end = kernel.parameters.iter().map(|(offset, size)| offset.saturating_add(*size)).max();
        let read = |constants: &Bytes| {
            let argument = |&(offset, size): &(u32, u32)| argument(&constants.0, offset, size);
            kernel.parameters.iter().map(argument).collect()
        };
        Self {
            after: launch.after,
            kernel: Some(kernel.name.clone()),
            arguments_size_bytes: Some(end.unwrap_or(0) - start),
            arguments: launch.constants.as_ref().map_or(Vec::new(), read),
            ..decoded
        }
    }
}

/// An argument: pointers in hexadecimal, shorter integers as numbers; null where the bank was not read so far.
fn argument(constants: &[u8], offset: u32, size: u32) -> Value {
    let (start, size) = (offset as usize, size as usize);
    let Some(bytes) = start.checked_add(size).and_then(|end| constants.get(start..end)) else {
        return Value::Null;
    };
    if ![1, 2, 4, 8].contains(&size) {
        return json!(crate::hex::bytes::text(bytes));
    }
    let mut word = [0; 8];
    word[..size].copy_from_slice(bytes);
    let number = u64::from_le_bytes(word);
    if size == 8 || number >= 1 << 16 { json!(Hex(number)) } else { json!(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_width_of_their_parameters() {
        let bank = [0x11, 0x22, 0, 0, 1, 0, 1, 0, 9];
        assert_eq!(argument(&bank, 0, 2), json!(0x2211));
        assert_eq!(argument(&bank, 4, 4), json!("0x10001"));
        assert_eq!(argument(&bank, 0, 8), json!("0x1000100002211"));
        assert_eq!(argument(&bank, 0, 3), json!("112200"));
        assert_eq!((argument(&bank, 8, 2), argument(&bank, u32::MAX, 8)), (Value::Null, Value::Null));
    }
}
