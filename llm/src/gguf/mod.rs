//! GGUF files: the container that llama.cpp's models come in.
//!
//! [`Gguf`] reads versions 2 and 3 from mapped files or from memory: all metadata, and a table of tensors
//! whose data is not copied. A split model is one: its first file is given, the others are beside it. Layout by the
//! GGUF specification (`docs/gguf.md` in the ggml repository).

mod data;
mod fingerprint;
mod layout;
mod parse;
mod split;
pub(crate) mod value;
pub(crate) mod write;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

pub use crate::tensor_type::GgmlType;
pub use fingerprint::Fingerprint;
pub use layout::TensorInfo;
pub use value::{Array, Value};
pub use write::{TensorWriter, Writer};

use crate::error::{Error, Result};
use data::Data;
use layout::Layout;

/// A parsed GGUF file, or the files of a split model, with its data.
pub struct Gguf {
    layout: Layout,
    /// One, or those of a split model in order.
    files: Vec<Data>,
    fingerprint: OnceLock<Fingerprint>,
}

/// A tensor with its data.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    /// The tensor's name.
    pub name: &'a str,
    /// Type of its values.
    pub ty: GgmlType,
    /// Dimensions in ggml's order: `dims[0]` is the length of a row.
    pub dims: &'a [u64],
    /// The stored values: `rows()` rows of `row_bytes()` bytes.
    pub data: &'a [u8],
}

impl Gguf {
    /// Maps and parses the file at `path`, and the others of a split model if it is the first of them.
    ///
    /// The files must not change while the model is in use: their bytes are read from the mapping.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be opened or mapped, otherwise what is wrong with its contents;
    /// [`Error::SplitFile`] and the others of split models.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (layout, files) = split::join(path, Data::open(path)?)?;
        Ok(Self { layout, files, fingerprint: OnceLock::new() })
    }

    /// Parses a file in memory: a `&'static [u8]` or a `Vec<u8>`.
    ///
    /// # Errors
    /// The fault of the contents; [`Error::Split`] for a part of a model.
    pub fn from_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self> {
        let bytes = bytes.into();
        let layout = parse::parse(&bytes)?;
        split::check_whole(&layout)?;
        Ok(Self { layout, files: vec![Data::Memory(bytes)], fingerprint: OnceLock::new() })
    }

    /// Has the system read `part`, bytes of a file, ahead of their use, if the file is mapped. Does not
    /// wait.
    pub(crate) fn fetch(&self, part: &[u8]) {
        self.files.iter().for_each(|file| file.fetch(part));
    }

    /// The number of files: more than one if the model is split.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The container version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.layout.version
    }

    /// Alignment of every tensor in the data section, in bytes.
    pub fn alignment(&self) -> u64 {
        self.layout.alignment
    }

    /// Size of all files, in bytes.
    pub fn len(&self) -> u64 {
        self.files.iter().map(|file| file.bytes().len() as u64).sum()
    }

    /// The hash of all files, which all cores compute when it is first asked for.
    pub fn fingerprint(&self) -> Fingerprint {
        *self.fingerprint.get_or_init(|| Fingerprint::of(self.files.iter().map(Data::bytes)))
    }

    /// Whether the file holds no tensor.
    pub fn is_empty(&self) -> bool {
        self.layout.tensors.is_empty()
    }

    /// All metadata, by key.
    pub fn metadata(&self) -> &BTreeMap<String, Value> {
        &self.layout.metadata
    }

    /// The tensor table, in the order of the files.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.layout.tensors
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        self.layout.index.get(name).map(|&at| self.view(at))
    }

    /// The tensor in row `at` of the table.
    fn view(&self, at: usize) -> TensorView<'_> {
        let info = &self.layout.tensors[at];
        // The parser checked that the range lies in the file, so both ends fit `usize`.
        let data = &self.files[info.file].bytes()[info.offset as usize..(info.offset + info.bytes) as usize];
        TensorView { name: &info.name, ty: info.ty, dims: &info.dims, data }
    }

    /// The value under `key`, if there is one.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.layout.metadata.get(key)
    }

    /// The integer under `key`.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value has another type or is negative.
    pub fn uint(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "an integer that is not negative", Value::as_uint)
    }

    /// The real number under `key`.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value has another type.
    pub fn real(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a real number", Value::as_real)
    }

    /// The boolean under `key`.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value has another type.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a boolean", Value::as_bool)
    }

    /// The string under `key`.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value has another type.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", Value::as_str)
    }

    /// The list of strings under `key`.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value has another type.
    pub fn strings(&self, key: &str) -> Result<Option<&[String]>> {
        self.typed(key, "an array of strings", Value::as_strings)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match read(value) {
            Some(v) => Ok(Some(v)),
            None => Err(Error::KeyType { key: key.into(), expected, found: value.kind() }),
        }
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("version", &self.layout.version)
            .field("keys", &self.layout.metadata.len())
            .field("tensors", &self.layout.tensors.len())
            .field("bytes", &self.len())
            .finish_non_exhaustive()
    }
}

impl TensorView<'_> {
    /// Values in a row.
    pub fn row_len(&self) -> usize {
        self.dims[0] as usize
    }

    /// Number of rows, over all higher dimensions.
    pub fn rows(&self) -> usize {
        self.dims[1..].iter().product::<u64>() as usize
    }

    /// Bytes in a row.
    pub fn row_bytes(&self) -> usize {
        self.data.len() / self.rows()
    }
}

impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.name, self.ty, self.dims)
    }
}
