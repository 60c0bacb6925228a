//! Matrices in device memory: quantized as in the file, in the layout of [`Format`].

use std::sync::{Mutex, PoisonError};

use hcq::{Buffer, BufferAt, Device};
use rayon::prelude::*;

use crate::engine::order::{HeadOrder, Tail};
use crate::error::{Error, Result};
use crate::gguf::{Gguf, TensorView};
use crate::kernels::format::Format;
use crate::kernels::pack::pack;
use crate::kernels::repack::{repack, stored_as};
use crate::kernels::rescale::rescale;

/// Bytes of a tensor that one task packs: few enough to stay in a core's cache until they are written to the
/// device, enough to amortize the start of a transfer through staging memory.
const PART_BYTES: usize = 512 << 10;
/// Parts that the system reads before they are packed: enough requests for a disk to be busy with.
const AHEAD: usize = 32;

/// One or more tensors of equal type and row length, one below the other.
#[derive(Clone, Debug)]
pub struct Matrix {
    buffer: Buffer,
    /// Format of the values.
    pub format: Format,
    /// Rows of all the tensors together.
    pub rows: u32,
    /// Values in a row.
    pub cols: u32,
}

impl Matrix {
    /// The format of `tensor`.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`], or [`Error::PartialBlock`] if its rows are not whole units.
    pub fn format_of(tensor: &TensorView<'_>) -> Result<Format> {
        let name = || tensor.name.to_owned();
        let unsupported = || Error::UnsupportedType { name: name(), ty: tensor.ty };
        let format = Format::of(stored_as(tensor.ty)).ok_or_else(unsupported)?;
        let (row, block) = (tensor.row_len() as u64, u64::from(format.block()));
        if row % block != 0 {
            return Err(Error::PartialBlock { name: name(), ty: tensor.ty, row, block });
        }
        Ok(format)
    }

    /// Bytes of weights, without padding.
    pub fn bytes(&self) -> u64 {
        self.row_bytes() * u64::from(self.rows)
    }

    /// Bytes of weights in a row.
    pub fn row_bytes(&self) -> u64 {
        self.format.ty().bytes_for(self.cols.into()).unwrap_or_default()
    }

    /// Byte offset of row `row`, a multiple of [`Format::rows_together`].
    pub fn offset_of(&self, row: u32) -> u64 {
        assert!(row.is_multiple_of(self.format.rows_together()), "{:?} is divided at row {row}", self.format);
        self.format.packed_bytes(row.into(), self.cols.into())
    }

    /// The weights from row `row` on, a multiple of [`Format::rows_together`].
    pub fn at_row(&self, row: u32) -> BufferAt<'_> {
        self.buffer.at(self.offset_of(row))
    }

    /// The buffer with the weights; of [`Format::F16`] the values, `[rows][cols]`.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}

/// Copies weights to the device.
///
/// All cores pack and write parts of all tensors: each byte is read once from the mapped file and written
/// once to memory that the device or its copy engine reads; in between it stays in a core's cache.
#[derive(Debug, Default)]
pub struct Loader<'a>(Vec<Part<'a>>);

/// A tensor to copy.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The tensor.
    pub tensor: TensorView<'a>,
    /// The order of its rows on the device, unless it is that of the file.
    pub order: Option<HeadOrder>,
    /// The factor of some rows.
    pub tail: Option<Tail>,
}

impl Rows<'_> {
    /// The number of rows on the device.
    pub fn count(&self) -> usize {
        let rows = self.tensor.rows();
        self.order.map_or(rows, |order| order.count(rows))
    }
}

impl<'a> From<TensorView<'a>> for Rows<'a> {
    fn from(tensor: TensorView<'a>) -> Self {
        Self { tensor, order: None, tail: None }
    }
}

/// Rows that one task copies.
#[derive(Debug)]
struct Part<'a> {
    format: Format,
    cols: u32,
    from: Rows<'a>,
    /// Number of the first row in the tensor, and of all rows.
    first: usize,
    count: usize,
    buffer: Buffer,
    /// Address of the rows on the device.
    at: u64,
}

impl<'a> Part<'a> {
    /// Its rows as they are in the file, or rows in about the same place if their order is another.
    fn in_file(&self) -> &'a [u8] {
        let tensor = &self.from.tensor;
        let (rows, all) = (tensor.rows(), self.from.count());
        let [from, to] =
            [self.first, self.first + self.count].map(|row| row * rows / all * tensor.row_bytes());
        &tensor.data[from..to]
    }

    /// Its rows as they go to the device; `changed` holds them if they are others than in the file. `None` if
    /// their type cannot hold those with a factor.
    fn rows<'s>(&self, changed: &'s mut Vec<u8>) -> Option<&'s [u8]>
    where
        'a: 's,
    {
        let Rows { tensor, order, tail } = self.from;
        let bytes = tensor.row_bytes();
        if order.is_none() && tail.is_none() {
            return Some(self.in_file());
        }
        changed.clear();
        for row in self.first..self.first + self.count {
            let at = changed.len();
            match order.map_or(Some(row), |order| order.source(row)) {
                Some(from) => changed.extend_from_slice(&tensor.data[from * bytes..][..bytes]),
                // Zeros are zero in every type.
                None => changed.resize(at + bytes, 0),
            }
            if let Some(tail) = tail.filter(|tail| tail.has(row)) {
                rescale(tensor.ty, &mut changed[at..], tail.factor)?;
            }
        }
        Some(changed)
    }
}

impl<'a> Loader<'a> {
    /// Reserves memory for tensors of equal type and row length, which [`Loader::load`] fills.
    ///
    /// # Errors
    /// As [`Matrix::format_of`]; what the device reports.
    ///
    /// # Panics
    /// If there is no tensor, if types or row lengths differ, or if the rows of one that is not the last are
    /// no multiple of [`Format::rows_together`].
    pub fn add(&mut self, device: &Device, rows: &[Rows<'a>]) -> Result<Matrix> {
        let tensors: Vec<TensorView<'a>> = rows.iter().map(|rows| rows.tensor).collect();
        let first = &tensors[0];
        let format = Matrix::format_of(first)?;
        let cols = first.row_len();
        assert!(
            tensors.iter().all(|t| stored_as(t.ty) == format.ty() && t.row_len() == cols),
            "tensors that do not match"
        );
        let together = format.rows_together() as usize;
        let whole = rows[..rows.len() - 1].iter().all(|before| before.count().is_multiple_of(together));
        assert!(whole, "tensors that share tiles");
        let all: usize = rows.iter().map(Rows::count).sum();
        let (all, cols) = (fits(all)?, fits(cols)?);
        let bytes = |rows: u64| format.packed_bytes(rows, cols.into());
        let buffer = device.alloc(bytes(all.into()))?;
        buffer.set_name(&tensors.iter().map(|t| t.name).collect::<Vec<_>>().join(", "));

        let mut row = 0u64;
        for from in rows {
            let rows_per_part = (PART_BYTES / from.tensor.row_bytes()).next_multiple_of(together).max(1);
            for first in (0..from.count()).step_by(rows_per_part) {
                let count = rows_per_part.min(from.count() - first);
                let (buffer, at) = (buffer.clone(), bytes(row));
                self.0.push(Part { format, cols, from: *from, first, count, buffer, at });
                row += count as u64;
            }
        }
        Ok(Matrix { buffer, format, rows: all, cols })
    }

    /// Copies all parts, of tensors in `file`; `loaded` is called with the bytes of each.
    ///
    /// # Errors
    /// The device's errors.
    pub fn load(self, file: &Gguf, loaded: &mut (dyn FnMut(u64) + Send)) -> Result<()> {
        let (loaded, parts) = (Mutex::new(loaded), &self.0);
        parts.iter().take(AHEAD).for_each(|part| file.fetch(part.in_file()));
        // In the order of the file, which is the fastest if it is not in memory yet.
        parts.iter().enumerate().par_bridge().try_for_each_init(
            Buffers::default,
            |buffers, (number, part)| {
                if let Some(later) = parts.get(number + AHEAD) {
                    file.fetch(later.in_file());
                }
                let Buffers { changed, repacked, packed } = buffers;
                let tensor = &part.from.tensor;
                let inexact = || {
                    let (name, stored) = (tensor.name.to_owned(), part.format.ty());
                    Error::Inexact { name, ty: tensor.ty, stored }
                };
                let mut rows = part.rows(changed).ok_or_else(inexact)?;
                if stored_as(tensor.ty) != tensor.ty {
                    repack(tensor.ty, rows, repacked).ok_or_else(inexact)?;
                    rows = repacked;
                }
                if part.format.is_quantized() {
                    packed.clear();
                    pack(part.format, part.cols, rows, packed);
                    part.buffer.write(part.at, packed)?;
                } else {
                    part.buffer.write(part.at, rows)?;
                }
                loaded.lock().unwrap_or_else(PoisonError::into_inner)(part.in_file().len() as u64);
                Ok(())
            },
        )
    }
}

/// Buffers in which a thread packs parts.
#[derive(Default)]
struct Buffers {
    /// Rows in the order and with the factor of the device.
    changed: Vec<u8>,
    /// In the type of the device.
    repacked: Vec<u8>,
    /// In the layout of the device.
    packed: Vec<u8>,
}

/// A size as kernels take it.
///
/// # Errors
/// [`Error::TooLarge`].
pub fn fits(size: usize) -> Result<u32> {
    u32::try_from(size).map_err(|_| Error::TooLarge { size })
}
