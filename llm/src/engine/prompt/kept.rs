//! Weights that stay expanded: a copy in f16 of what the products of chunks multiply, made once.

use std::collections::BTreeMap;

use hcq::{Buffer, BufferAt, LaunchConfig};
use ptxgen::Params;

use crate::engine::launch::{Launch, filled, record};
use crate::engine::layers::LayerMemory;
use crate::engine::matrix::Matrix;
use crate::engine::memory::DeviceModel;
use crate::engine::programs::Programs;
use crate::engine::prompt::products::{SLICE, SLICE_ROWS, as_it_is};
use crate::error::Result;
use crate::gguf::GgmlType;
use crate::kernels::prompt::dequantize;
use crate::model::Model;

/// The copies, by the address of the first matrix of a product.
#[derive(Debug, Default)]
pub struct Kept(BTreeMap<u64, Buffer>);

/// The launch that expands `rows` rows of a matrix from row `first` on.
pub fn expansion(
    programs: &mut Programs,
    matrix: &Matrix,
    (first, rows): (u32, u32),
    out: BufferAt<'_>,
) -> Result<Launch> {
    let (module, name) =
        (matrix.format.module("dequantize"), format!("dequantize_{}", matrix.format.suffix()));
    let kernel = programs.kernel(module, &name)?;
    let args = dequantize::Dequantize { weights: matrix.at_row(first), out, rows, cols: matrix.cols }.args();
    let grid = dequantize::grid(matrix.format, rows, matrix.cols);
    let config = filled(&kernel, LaunchConfig::new(grid, dequantize::THREADS));
    let read = matrix.row_bytes() * u64::from(rows);
    Ok(Launch::new("expand", kernel, config, args).with_weights(read))
}

impl Kept {
    /// Bytes of the copies of a model's weights. Experts are expanded in every chunk.
    pub fn bytes(model: &Model) -> u64 {
        let of_layers =
            model.gguf.tensors().iter().filter(|t| t.name.starts_with("blk.") && t.dims.len() == 2);
        let expanded = of_layers.filter(|t| t.ty != GgmlType::F16 && !t.name.contains("ffn_gate_inp"));
        expanded.map(|t| 2 * t.dims.iter().product::<u64>()).sum()
    }

    /// Expands the weights of the model `m`.
    pub fn new(m: &DeviceModel, programs: &mut Programs) -> Result<Self> {
        let mut kept = BTreeMap::new();
        let mut launches = Vec::new();
        let products = m.layers.iter().flat_map(LayerMemory::products);
        let parts = products.map(|product| product.matrices.iter().collect::<Vec<_>>());
        for parts in parts.filter(|parts| as_it_is(parts).is_none()) {
            let values: u64 = parts.iter().map(|part| u64::from(part.rows) * u64::from(part.cols)).sum();
            let copy = m.device.alloc(2 * values)?;
            copy.set_name("expanded weights");
            let mut at = 0;
            for part in &parts {
                let step = (SLICE / part.cols / SLICE_ROWS).max(1) * SLICE_ROWS;
                for first in (0..part.rows).step_by(step as usize) {
                    let rows = step.min(part.rows - first);
                    launches.push(expansion(programs, part, (first, rows), copy.at(at))?);
                    at += 2 * u64::from(rows) * u64::from(part.cols);
                }
            }
            if let Some(first) = parts.first() {
                kept.insert(first.buffer().va().raw(), copy);
            }
        }
        if !launches.is_empty() {
            let patience = m.patience * m.layers.len() as u32;
            m.device.queue()?.replay(&record(&m.device, &launches)?)?.wait(patience)?;
        }
        Ok(Self(kept))
    }

    /// The copy of a product's matrices, one below the other.
    pub fn of(&self, parts: &[&Matrix]) -> Option<&Buffer> {
        self.0.get(&parts.first()?.buffer().va().raw())
    }
}
