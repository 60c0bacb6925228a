//! Matrices in device memory: quantized as in the file, split into planes.

use std::sync::{Mutex, PoisonError};

use hcq::{Args, Buffer, Device};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::gguf::TensorView;
use crate::kernels::format::Format;
use crate::kernels::pack::pack;

/// Planes start at multiples of this many bytes.
const PLANE_ALIGN: u64 = 256;
/// Most planes of a format.
const PLANES: usize = 4;
/// Bytes of a tensor that one task packs: few enough to stay in a core's cache until they are written to the
/// device, enough to amortize the start of a transfer through staging memory.
const PART_BYTES: usize = 512 << 10;

/// One or more tensors of equal type and row length, one below the other.
#[derive(Clone, Debug)]
pub struct Matrix {
    buffer: Buffer,
    /// Where each plane starts.
    planes: Vec<u64>,
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

    /// Addresses of the planes from row `row` on: the first arguments of a kernel that reads a matrix.
    pub fn args_from(&self, row: u32) -> Args {
        let blocks = u64::from(self.cols / self.format.block()) * u64::from(row);
        let planes = self.format.planes().iter().zip(&self.planes);
        planes.fold(Args::new(), |args, (plane, at)| {
            args.buffer_at(&self.buffer, at + blocks * u64::from(plane.block_bytes))
        })
    }

    /// Adds the address of the values, `[rows][cols]` in f16, of a matrix of [`Format::F16`].
    pub fn halves(&self, args: Args) -> Args {
        args.buffer_at(&self.buffer, self.planes[0])
    }

    /// The buffer with all planes.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Addresses of the planes.
    pub fn addresses(&self) -> Vec<u64> {
        self.planes.iter().map(|at| self.buffer.va().raw() + at).collect()
    }

    /// Addresses of the planes: the first arguments of every kernel that reads a whole matrix.
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
    rows: &'a [u8],
    buffer: Buffer,
    /// Byte offset of the rows in each plane.
    at: [u64; PLANES],
}

impl<'a> Loader<'a> {
    /// Reserves memory for tensors of equal type and row length, which [`Loader::load`] fills.
    ///
    /// # Errors
    /// As [`Matrix::format_of`]; what the device reports.
    ///
    /// # Panics
    /// If there is no tensor, or types or row lengths differ.
    pub fn add(&mut self, device: &Device, tensors: &[TensorView<'a>]) -> Result<Matrix> {
        let first = &tensors[0];
        let format = Matrix::format_of(first)?;
        let cols = first.row_len();
        assert!(tensors.iter().all(|t| t.ty == first.ty && t.row_len() == cols), "tensors that do not match");
        let rows: usize = tensors.iter().map(TensorView::rows).sum();
        let blocks_per_row = cols as u64 / u64::from(format.block());
        let row_bytes: Vec<u64> =
            format.planes().iter().map(|p| blocks_per_row * u64::from(p.block_bytes)).collect();
        let mut planes = Vec::new();
        let mut end = 0u64;
        for bytes in &row_bytes {
            planes.push(end);
            end = (end + bytes * rows as u64).next_multiple_of(PLANE_ALIGN);
        }
        let buffer = device.alloc(end)?;
        buffer.set_name(&tensors.iter().map(|t| t.name).collect::<Vec<_>>().join(", "));

        let mut row = 0u64;
        for tensor in tensors {
            let rows_per_part = (PART_BYTES / tensor.row_bytes()).max(1);
            for rows in tensor.data.chunks(rows_per_part * tensor.row_bytes()) {
                let mut at = [0; PLANES];
                for (at, (plane, bytes)) in at.iter_mut().zip(planes.iter().zip(&row_bytes)) {
                    *at = plane + row * bytes;
                }
                self.0.push(Part { format, rows, buffer: buffer.clone(), at });
                row += (rows.len() / tensor.row_bytes()) as u64;
            }
        }
        let (rows, cols) = (fits(rows)?, fits(cols)?);
        Ok(Matrix { buffer, planes, format, rows, cols })
    }

    /// Copies all parts; `loaded` is called with the bytes of each.
    ///
    /// # Errors
    /// What the device reports.
    pub fn load(self, loaded: &mut (dyn FnMut(u64) + Send)) -> Result<()> {
        let loaded = Mutex::new(loaded);
        // In the order of the file, which is the fastest if it is not in memory yet.
        self.0.into_iter().par_bridge().try_for_each_init(<[Vec<u8>; PLANES]>::default, |packed, part| {
            if part.format.is_quantized() {
                packed.iter_mut().for_each(Vec::clear);
                pack(part.format, part.rows, packed);
                for (at, plane) in part.at.iter().zip(packed.iter()).filter(|(_, plane)| !plane.is_empty()) {
                    part.buffer.write(*at, plane)?;
                }
            } else {
                part.buffer.write(part.at[0], part.rows)?;
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
