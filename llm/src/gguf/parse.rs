//! The reader of the container: header, metadata, tensor table.
//!
//! The bytes are not trusted: every length is checked against the rest of the file before memory is reserved for it, so the
//! memory used is bounded by a small multiple of the file's size.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Result};
use crate::gguf::layout::{DEFAULT_ALIGNMENT, Layout, MAGIC, TensorInfo};
use crate::gguf::types::GgmlType;
use crate::gguf::value::{Array, Value};

/// Deepest nesting of arrays that is read; files in use have one level.
const MAX_NESTING: usize = 4;
/// Most dimensions of a tensor (`GGML_MAX_DIMS`).
const MAX_DIMS: u32 = 4;

/// Reads everything up to the data section.
pub(super) fn parse(data: &[u8]) -> Result<Layout> {
    let mut r = Reader { data, at: 0 };
    if !data.starts_with(&MAGIC) {
        return Err(Error::NotGguf { found: data[..data.len().min(4)].to_vec() });
    }
    r.at = MAGIC.len();
    let version = r.u32("the version")?;
    match version {
        2 | 3 => {}
        v if (1..=0xff).contains(&v.swap_bytes()) => return Err(Error::BigEndian),
        version => return Err(Error::Version { version }),
    }
    let tensor_count = r.u64("the tensor count")?;
    let key_count = r.u64("the key count")?;

    // A pair takes at least a key length, a value type and a one-byte value.
    r.check_count(key_count, 8 + 4 + 1, "the metadata")?;
    let mut metadata = BTreeMap::new();
    for _ in 0..key_count {
        let key = r.string("a metadata key")?;
        let value = r.value(&key)?;
        if metadata.contains_key(&key) {
            return Err(Error::DuplicateKey { key });
        }
        metadata.insert(key, value);
    }
    let alignment = match metadata.get("general.alignment") {
        None => DEFAULT_ALIGNMENT,
        Some(value) => value.as_uint().ok_or(Error::KeyType {
            key: "general.alignment".into(),
            expected: "an integer",
            found: value.kind(),
        })?,
    };
    if !alignment.is_power_of_two() || alignment > 1 << 16 {
        return Err(Error::Alignment { value: alignment });
    }

    // A tensor takes at least a name length, a dimension count, one dimension, a type and an offset.
    r.check_count(tensor_count, 8 + 4 + 8 + 4 + 8, "the tensor table")?;
    let mut tensors: Vec<TensorInfo> = Vec::new();
    let mut index = HashMap::new();
    for at in 0..tensor_count {
        let tensor = r.tensor(alignment)?;
        if index.insert(tensor.name.clone(), at as usize).is_some() {
            return Err(Error::DuplicateTensor { name: tensor.name });
        }
        tensors.push(tensor);
    }

    // Offsets in the table are relative to the data section, which starts at the next multiple of the alignment.
    let start = (r.at as u64).next_multiple_of(alignment);
    for tensor in &mut tensors {
        let left = (data.len() as u64).saturating_sub(start);
        let end = tensor.offset.checked_add(tensor.bytes);
        if end.is_none_or(|end| end > left) {
            return Err(Error::Truncated {
                what: format!("tensor {:?}", tensor.name),
                offset: start.saturating_add(tensor.offset),
                needed: tensor.bytes,
                left: left.saturating_sub(tensor.offset),
            });
        }
        tensor.offset += start;
    }
    Ok(Layout { version, alignment, metadata, tensors, index })
}

/// A position in the file.
struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

/// Declares readers of little-endian numbers.
macro_rules! numbers {
    ($($name:ident -> $ty:ty),* $(,)?) => { $(
        fn $name(&mut self, what: &str) -> Result<$ty> {
            let bytes = self.take(size_of::<$ty>() as u64, what)?;
            Ok(<$ty>::from_le_bytes(std::array::from_fn(|i| bytes[i])))
        }
    )* };
}

impl<'a> Reader<'a> {
    numbers! {
        u8 -> u8, i8 -> i8, u16 -> u16, i16 -> i16, u32 -> u32, i32 -> i32, f32 -> f32, u64 -> u64, i64 -> i64,
        f64 -> f64,
    }

    fn left(&self) -> u64 {
        (self.data.len() - self.at) as u64
    }

    /// The next `count` bytes.
    fn take(&mut self, count: u64, what: &str) -> Result<&'a [u8]> {
        if count > self.left() {
            return Err(Error::Truncated {
                what: what.into(),
                offset: self.at as u64,
                needed: count,
                left: self.left(),
            });
        }
        // `count` is at most the length of a slice, so it fits.
        let bytes = &self.data[self.at..self.at + count as usize];
        self.at += count as usize;
        Ok(bytes)
    }

    /// Fails if `count` elements of at least `least` bytes do not fit into the rest of the file.
    fn check_count(&self, count: u64, least: u64, what: &str) -> Result<()> {
        let needed = count.saturating_mul(least);
        if needed > self.left() {
            let (what, offset, left) = (what.into(), self.at as u64, self.left());
            return Err(Error::Truncated { what, offset, needed, left });
        }
        Ok(())
    }

    fn string(&mut self, what: &str) -> Result<String> {
        let length = self.u64(what)?;
        let offset = self.at as u64;
        let bytes = self.take(length, what)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Error::Text { what: what.into(), offset }),
        }
    }

    fn value(&mut self, key: &str) -> Result<Value> {
        let what = key;
        Ok(match self.u32(what)? {
            0 => Value::U8(self.u8(what)?),
            1 => Value::I8(self.i8(what)?),
            2 => Value::U16(self.u16(what)?),
            3 => Value::I16(self.i16(what)?),
            4 => Value::U32(self.u32(what)?),
            5 => Value::I32(self.i32(what)?),
            6 => Value::F32(self.f32(what)?),
            7 => Value::Bool(self.u8(what)? != 0),
            8 => Value::String(self.string(what)?),
            9 => Value::Array(self.array(key, 1)?),
            10 => Value::U64(self.u64(what)?),
            11 => Value::I64(self.i64(what)?),
            12 => Value::F64(self.f64(what)?),
            id => return Err(Error::ValueType { key: key.into(), id }),
        })
    }

    fn array(&mut self, key: &str, depth: usize) -> Result<Array> {
        if depth > MAX_NESTING {
            return Err(Error::Nesting { key: key.into(), limit: MAX_NESTING });
        }
        let ty = self.u32(key)?;
        let count = self.u64(key)?;
        Ok(match ty {
            0 => Array::U8(self.elements(key, count, 1, |r| r.u8(key))?),
            1 => Array::I8(self.elements(key, count, 1, |r| r.i8(key))?),
            2 => Array::U16(self.elements(key, count, 2, |r| r.u16(key))?),
            3 => Array::I16(self.elements(key, count, 2, |r| r.i16(key))?),
            4 => Array::U32(self.elements(key, count, 4, |r| r.u32(key))?),
            5 => Array::I32(self.elements(key, count, 4, |r| r.i32(key))?),
            6 => Array::F32(self.elements(key, count, 4, |r| r.f32(key))?),
            7 => Array::Bool(self.elements(key, count, 1, |r| Ok(r.u8(key)? != 0))?),
            8 => Array::String(self.elements(key, count, 8, |r| r.string(key))?),
            9 => Array::Array(self.elements(key, count, 12, |r| r.array(key, depth + 1))?),
            10 => Array::U64(self.elements(key, count, 8, |r| r.u64(key))?),
            11 => Array::I64(self.elements(key, count, 8, |r| r.i64(key))?),
            12 => Array::F64(self.elements(key, count, 8, |r| r.f64(key))?),
            id => return Err(Error::ValueType { key: key.into(), id }),
        })
    }

    /// Reads `count` elements of at least `least` bytes each.
    fn elements<T>(
        &mut self,
        key: &str,
        count: u64,
        least: u64,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.check_count(count, least, key)?;
        (0..count).map(|_| read(self)).collect()
    }

    /// One row of the tensor table; its offset is still relative to the data section.
    fn tensor(&mut self, alignment: u64) -> Result<TensorInfo> {
        let name = self.string("a tensor name")?;
        let rank = self.u32(&name)?;
        let mut dims = Vec::new();
        for _ in 0..rank.min(MAX_DIMS) {
            dims.push(self.u64(&name)?);
        }
        if rank == 0 || rank > MAX_DIMS || dims.contains(&0) {
            return Err(Error::Dimensions { name, dims });
        }
        let id = self.u32(&name)?;
        let offset = self.u64(&name)?;
        let Some(ty) = GgmlType::from_id(id) else {
            return Err(Error::TensorType { name, id });
        };
        if dims[0] % ty.block_values() != 0 {
            return Err(Error::PartialBlock { name, ty, row: dims[0], block: ty.block_values() });
        }
        let values = dims.iter().try_fold(1u64, |product, &d| product.checked_mul(d));
        let Some(bytes) = values.and_then(|v| ty.bytes_for(v)) else {
            return Err(Error::TensorSize { name, dims });
        };
        if offset % alignment != 0 {
            return Err(Error::Misaligned { name, offset, alignment });
        }
        Ok(TensorInfo { name, ty, dims, offset, bytes })
    }
}
