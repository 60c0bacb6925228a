//! The writer of the container, for files larger than memory: first the table, then the data piece by piece.

use std::io::{self, Write};

use crate::gguf::layout::{DEFAULT_ALIGNMENT, MAGIC};
use crate::gguf::value::{Array, Value, with_value_types};
use crate::tensor_type::GgmlType;

/// Collects metadata and tensor table.
///
/// ```
/// use ga10b_llm::gguf::{GgmlType, Gguf, Value, Writer};
///
/// let mut writer = Writer::new();
/// writer.key("general.architecture", Value::String("llama".into()));
/// writer.tensor("output_norm.weight", GgmlType::F32, &[2]);
/// let mut data = writer.begin(Vec::new())?;
/// data.write(&1.0f32.to_le_bytes())?;
/// data.write(&2.0f32.to_le_bytes())?;
/// let file = Gguf::from_bytes(data.finish()?)?;
/// assert_eq!(file.tensor("output_norm.weight").map(|t| t.data.len()), Some(8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Writer {
    keys: Vec<(String, Value)>,
    tensors: Vec<(String, GgmlType, Vec<u64>, u64)>,
}

impl Writer {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a metadata pair.
    pub fn key(&mut self, key: impl Into<String>, value: Value) {
        self.keys.push((key.into(), value));
    }

    /// Adds a row to the tensor table; `dims[0]` is the length of a row.
    ///
    /// # Panics
    /// If the tensor is not whole blocks of `ty`.
    pub fn tensor(&mut self, name: impl Into<String>, ty: GgmlType, dims: &[u64]) {
        let name = name.into();
        let whole = dims[0].is_multiple_of(ty.block_values());
        let bytes = ty.bytes_for(dims.iter().product()).filter(|_| whole);
        let bytes = bytes.unwrap_or_else(|| panic!("{name}: {dims:?} is not whole blocks of {ty}"));
        self.tensors.push((name, ty, dims.to_vec(), bytes));
    }

    /// Size of the whole file, in bytes.
    pub fn file_bytes(&self) -> u64 {
        let data: u64 = self.tensors.iter().map(|t| t.3.next_multiple_of(DEFAULT_ALIGNMENT)).sum();
        (self.header().len() as u64).next_multiple_of(DEFAULT_ALIGNMENT) + data
    }

    /// Writes everything up to the data section. The data of the tensors follows in the order of the table.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn begin<W: Write>(self, mut out: W) -> io::Result<TensorWriter<W>> {
        let header = self.header();
        out.write_all(&header)?;
        let sizes = self.tensors.iter().map(|t| t.3).collect::<Vec<_>>().into_iter();
        let mut writer = TensorWriter { out, sizes, left: 0, at: header.len() as u64 };
        writer.pad()?;
        Ok(writer)
    }

    fn header(&self) -> Vec<u8> {
        let mut h = MAGIC.to_vec();
        h.extend(3u32.to_le_bytes());
        h.extend((self.tensors.len() as u64).to_le_bytes());
        h.extend((self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            key.put(&mut h);
            h.extend(value.type_id().to_le_bytes());
            value.put(&mut h);
        }
        let mut offset = 0u64;
        for (name, ty, dims, bytes) in &self.tensors {
            name.put(&mut h);
            h.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|d| h.extend(d.to_le_bytes()));
            h.extend(ty.id().to_le_bytes());
            h.extend(offset.to_le_bytes());
            offset += bytes.next_multiple_of(DEFAULT_ALIGNMENT);
        }
        h
    }
}

/// Writes the data section.
#[derive(Debug)]
pub struct TensorWriter<W> {
    out: W,
    /// Sizes of the tensors that are not started.
    sizes: std::vec::IntoIter<u64>,
    /// Bytes of the current tensor that are not written.
    left: u64,
    /// Bytes written so far, from the start of the file.
    at: u64,
}

impl<W: Write> TensorWriter<W> {
    /// Writes the next bytes of the current tensor, or the first of the next tensor.
    ///
    /// # Errors
    /// The output's errors; [`io::ErrorKind::InvalidInput`] if `bytes` exceed the tensor.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.left == 0 {
            self.left = self.sizes.next().unwrap_or(0);
        }
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more bytes than the tensor has"));
        };
        self.out.write_all(bytes)?;
        self.left = left;
        self.at += bytes.len() as u64;
        if left == 0 { self.pad() } else { Ok(()) }
    }

    /// Flushes the output and returns it.
    ///
    /// # Errors
    /// The output's errors; [`io::ErrorKind::UnexpectedEof`] if a tensor is not complete.
    pub fn finish(mut self) -> io::Result<W> {
        if self.left > 0 || self.sizes.len() > 0 {
            let kind = io::ErrorKind::UnexpectedEof;
            return Err(io::Error::new(kind, format!("{} tensors are not complete", self.sizes.len() + 1)));
        }
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes zeros up to the next multiple of the alignment.
    fn pad(&mut self) -> io::Result<()> {
        let end = self.at.next_multiple_of(DEFAULT_ALIGNMENT);
        let zeros = [0; DEFAULT_ALIGNMENT as usize];
        self.out.write_all(&zeros[..(end - self.at) as usize])?;
        self.at = end;
        Ok(())
    }
}

/// A type of values, as a file stores it.
trait Stored {
    /// Appends the value to `h`.
    fn put(&self, h: &mut Vec<u8>);
}

/// Implements [`Stored`] for little-endian numbers.
macro_rules! numbers {
    ($($ty:ty)*) => { $(impl Stored for $ty {
        fn put(&self, h: &mut Vec<u8>) {
            h.extend(self.to_le_bytes());
        }
    })* };
}
numbers! { u8 i8 u16 i16 u32 i32 f32 u64 i64 f64 }

impl Stored for bool {
    fn put(&self, h: &mut Vec<u8>) {
        h.push((*self).into());
    }
}

impl Stored for String {
    fn put(&self, h: &mut Vec<u8>) {
        h.extend((self.len() as u64).to_le_bytes());
        h.extend(self.as_bytes());
    }
}

/// Implements [`Stored`] for values and arrays of every type.
macro_rules! writers {
    ($($name:ident($ty:ty) = $id:literal),*) => {
        impl Stored for Value {
            fn put(&self, h: &mut Vec<u8>) {
                match self { $(Self::$name(v) => v.put(h),)* }
            }
        }

        impl Stored for Array {
            fn put(&self, h: &mut Vec<u8>) {
                h.extend(self.type_id().to_le_bytes());
                h.extend((self.len() as u64).to_le_bytes());
                match self { $(Self::$name(v) => v.iter().for_each(|x| x.put(h)),)* }
            }
        }
    };
}
with_value_types!(writers);
