//! The reader of the container: header, metadata, tensor table.
//!
//! The bytes are not trusted: every length is checked against the rest of the file before memory is reserved
//! for it, so the memory used is bounded by a small multiple of the file's size.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Result};
use crate::gguf::layout::{DEFAULT_ALIGNMENT, Layout, MAGIC, TensorInfo};
use crate::gguf::value::{Array, Value, with_value_types};
use crate::tensor_type::GgmlType;

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
        if let Some(first) = metadata.get(&key) {
            return Err(Error::DuplicateKey { differ: *first != value, key });
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

    // Offsets in the table are relative to the data section, which starts at the next multiple of the
    // alignment.
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

/// A type of values, as a file stores it.
trait Stored: Sized {
    /// Fewest bytes of an element.
    const LEAST: u64;

    /// Reads one. `depth` is the number of arrays around it.
    fn read(r: &mut Reader<'_>, what: &str, depth: usize) -> Result<Self>;
}

/// Implements [`Stored`] for little-endian numbers.
macro_rules! numbers {
    ($($ty:ty)*) => { $(impl Stored for $ty {
        const LEAST: u64 = size_of::<$ty>() as u64;

        fn read(r: &mut Reader<'_>, what: &str, _: usize) -> Result<Self> {
            let bytes = r.take(Self::LEAST, what)?;
            Ok(<$ty>::from_le_bytes(std::array::from_fn(|i| bytes[i])))
        }
    })* };
}
numbers! { u8 i8 u16 i16 u32 i32 f32 u64 i64 f64 }

impl Stored for bool {
    const LEAST: u64 = 1;

    fn read(r: &mut Reader<'_>, what: &str, depth: usize) -> Result<Self> {
        Ok(u8::read(r, what, depth)? != 0)
    }
}

impl Stored for String {
    const LEAST: u64 = 8;

    fn read(r: &mut Reader<'_>, what: &str, _: usize) -> Result<Self> {
        r.string(what)
    }
}

impl Stored for Array {
    const LEAST: u64 = 12;

    fn read(r: &mut Reader<'_>, key: &str, depth: usize) -> Result<Self> {
        r.array(key, depth + 1)
    }
}

/// Implements the reading of values of every type.
macro_rules! readers {
    ($($name:ident($ty:ty) = $id:literal),*) => { impl Reader<'_> {
        fn value(&mut self, key: &str) -> Result<Value> {
            Ok(match self.u32(key)? {
                $($id => Value::$name(<$ty>::read(self, key, 0)?),)*
                id => return Err(Error::ValueType { key: key.into(), id }),
            })
        }

        fn array(&mut self, key: &str, depth: usize) -> Result<Array> {
            if depth > MAX_NESTING {
                return Err(Error::Nesting { key: key.into(), limit: MAX_NESTING });
            }
            let (ty, count) = (self.u32(key)?, self.u64(key)?);
            Ok(match ty {
                $($id => Array::$name(self.elements(key, count, depth)?),)*
                id => return Err(Error::ValueType { key: key.into(), id }),
            })
        }
    } };
}
with_value_types!(readers);

impl<'a> Reader<'a> {
    fn u32(&mut self, what: &str) -> Result<u32> {
        u32::read(self, what, 0)
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        u64::read(self, what, 0)
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

    /// Reads `count` elements of an array inside `depth` arrays.
    fn elements<T: Stored>(&mut self, key: &str, count: u64, depth: usize) -> Result<Vec<T>> {
        self.check_count(count, T::LEAST, key)?;
        (0..count).map(|_| T::read(self, key, depth)).collect()
    }

    /// One row of the tensor table; its offset is still relative to the data section.
    fn tensor(&mut self, alignment: u64) -> Result<TensorInfo> {
        let name = self.string("a tensor name")?;
        let rank = self.u32(&name)?;
        if rank == 0 || rank > MAX_DIMS {
            return Err(Error::Rank { name, rank });
        }
        let dims = (0..rank).map(|_| self.u64(&name)).collect::<Result<Vec<u64>>>()?;
        if dims.contains(&0) {
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
        Ok(TensorInfo { name, ty, dims, file: 0, offset, bytes })
    }
}
