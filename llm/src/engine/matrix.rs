//! Matrices in device memory: quantized as in the file, in the layout of [`Format`].

use std::sync::{Mutex, PoisonError};

use hcq::{Args, Buffer, Device};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::gguf::TensorView;
use crate::kernels::format::Format;
use crate::kernels::pack::pack;

/// Bytes of a tensor that one task packs: few enough to stay in a core's cache until they are written to the
/// device, enough to amortize the start of a transfer through staging memory.
const PART_BYTES: usize = 512 << 10;

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
        let format = Format::of(tensor.ty).ok_or_else(unsupported)?;
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

    /// The address from row `row` on, a multiple of [`Format::rows_together`]: the first argument of a kernel
    /// that reads a matrix.
    pub fn args_from(&self, row: u32) -> Args {
        Args::new().buffer_at(&self.buffer, self.offset_of(row))
    }

    /// Adds the address of the values, `[rows][cols]` in f16, of a matrix of [`Format::F16`].
    pub fn halves(&self, args: Args) -> Args {
        args.buffer(&self.buffer)
    }

    /// The buffer with the weights.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The address of the weights: the first argument of every kernel that reads a whole matrix.
    pub fn args(&self) -> Args {
        self.args_from(0)
    }
}

/// Copies weights to the device.
///
/// All cores pack and write parts of all tensors: each byte is read once from the mapped file and written
/// once to memory that the device or its copy engine reads; in between it stays in a core's cache.
#[derive(Debug, Default)]
pub struct Loader<'a>(Vec<Part<'a>>);

/// Rows that one task copies.
#[derive(Debug)]
struct Part<'a> {
    format: Format,
    cols: u32,
    rows: &'a [u8],
    buffer: Buffer,
    /// Where the rows go.
    at: u64,
}

impl<'a> Loader<'a> {
    /// Reserves memory for tensors of equal type and row length, which [`Loader::load`] fills.
    ///
    /// # Errors
    /// As [`Matrix::format_of`]; what the device reports.
    ///
    /// # Panics
    /// If there is no tensor, if types or row lengths differ, or if the rows of one that is not the last are no
    /// multiple of [`Format::rows_together`].
    pub fn add(&mut self, device: &Device, tensors: &[TensorView<'a>]) -> Result<Matrix> {
        let first = &tensors[0];
        let format = Matrix::format_of(first)?;
        let cols = first.row_len();
        assert!(tensors.iter().all(|t| t.ty == first.ty && t.row_len() == cols), "tensors that do not match");
        let together = format.rows_together() as usize;
        let whole =
            tensors[1..].iter().zip(tensors).all(|(_, before)| before.rows().is_multiple_of(together));
        assert!(whole, "tensors that share tiles");
        let rows: usize = tensors.iter().map(TensorView::rows).sum();
        let (rows, cols) = (fits(rows)?, fits(cols)?);
        let bytes = |rows: u64| format.packed_bytes(rows, cols.into());
        let buffer = device.alloc(bytes(rows.into()))?;
        buffer.set_name(&tensors.iter().map(|t| t.name).collect::<Vec<_>>().join(", "));

        let mut row = 0u64;
        for tensor in tensors {
            let rows_per_part = (PART_BYTES / tensor.row_bytes()).next_multiple_of(together).max(1);
            for rows in tensor.data.chunks(rows_per_part * tensor.row_bytes()) {
                self.0.push(Part { format, cols, rows, buffer: buffer.clone(), at: bytes(row) });
                row += (rows.len() / tensor.row_bytes()) as u64;
            }
        }
        Ok(Matrix { buffer, format, rows, cols })
    }

    /// Copies all parts; `loaded` is called with the bytes of each.
    ///
    /// # Errors
    /// What the device reports.
    pub fn load(self, loaded: &mut (dyn FnMut(u64) + Send)) -> Result<()> {
        let loaded = Mutex::new(loaded);
        // In the order of the file, which is the fastest if it is not in memory yet.
        self.0.into_iter().par_bridge().try_for_each_init(Vec::new, |packed, part| {
            if part.format.is_quantized() {
                packed.clear();
                pack(part.format, part.cols, part.rows, packed);
                part.buffer.write(part.at, packed)?;
            } else {
                part.buffer.write(part.at, part.rows)?;
            }
            loaded.lock().unwrap_or_else(PoisonError::into_inner)(part.rows.len() as u64);
            Ok(())
        })
    }
}

/// A size as kernels take it.
///
/// # Errors
/// [`Error::TooLarge`].
pub fn fits(size: usize) -> Result<u32> {
    u32::try_from(size).map_err(|_| Error::TooLarge { size })
}
