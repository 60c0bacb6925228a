//! The part of a GGUF file before its data section: metadata and the tensor table.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Result};
use crate::gguf::value::Value;
use crate::tensor_type::GgmlType;

/// Four bytes at the start of every file.
pub(super) const MAGIC: [u8; 4] = *b"GGUF";
/// Alignment of the data section where the file names none, in bytes.
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;

/// Everything before the data section.
pub(super) struct Layout {
    pub version: u32,
    pub alignment: u64,
    pub metadata: BTreeMap<String, Value>,
    pub tensors: Vec<TensorInfo>,
    /// Row of each tensor in the table, by name.
    pub index: HashMap<String, usize>,
}

impl Layout {
    /// Adds the tensors of another file, which becomes number `file`.
    ///
    /// # Errors
    /// [`Error::DuplicateTensor`].
    pub fn append(&mut self, other: Self, file: usize) -> Result<()> {
        for tensor in other.tensors {
            if self.index.insert(tensor.name.clone(), self.tensors.len()).is_some() {
                return Err(Error::DuplicateTensor { name: tensor.name });
            }
            self.tensors.push(TensorInfo { file, ..tensor });
        }
        Ok(())
    }
}

/// One row of the tensor table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The tensor's name, for example `blk.0.attn_q.weight`.
    pub name: String,
    /// Type of its values.
    pub ty: GgmlType,
    /// Dimensions in ggml's order: `dims[0]` is the length of a row, the fastest axis. One to four, none
    /// zero.
    pub dims: Vec<u64>,
    /// The number of its file, from 0.
    pub file: usize,
    /// Start of the data, in bytes from the start of the file.
    pub offset: u64,
    /// Size of the data, in bytes.
    pub bytes: u64,
}
