//! Matrix times vector with weights and activations in single precision: slow, and the reference of the step
//! kernel.
//!
//! A warp takes two rows at a time and shares the activations between them.

use std::fmt;

use ptxgen::{Cache, Global, Kernel, Multiple, Pointer, Ptr, Reg, Special, kernel_params};
use serde::{Deserialize, Serialize};

use crate::kernels::activation::silu_times;
use crate::kernels::format::{Format, Packed};
use crate::kernels::operations::striped::{striped_chunk, striped_index};

/// The division of a kernel's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Warps of a block: 1, 2, 4, 8 or 16.
    pub warps: u32,
    /// Rows that a warp computes together: 1, 2 or 4; for [`Epilogue::Gate`] half of them gate and half up: 2
    /// or 4.
    pub rows: u32,
    /// Units of each row that a lane loads together: 1, 2 or 4.
    pub unroll: u32,
}

impl Default for Shape {
    /// The shape of the committed kernels.
    fn default() -> Self {
        Self { warps: 4, rows: 2, unroll: 1 }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} warps, {} rows, unroll {}", self.warps, self.rows, self.unroll)
    }
}

impl Shape {
    /// Whether a kernel can be generated with this shape.
    pub fn is_valid(self, epilogue: Epilogue) -> bool {
        let rows: &[u32] = if epilogue == Epilogue::Gate { &[2, 4] } else { &[1, 2, 4] };
        [1, 2, 4, 8, 16].contains(&self.warps)
            && rows.contains(&self.rows)
            && [1, 2, 4].contains(&self.unroll)
    }

    /// Threads of a block.
    pub const fn threads(self) -> u32 {
        32 * self.warps
    }

    /// Name of the kernel.
    pub fn kernel_name(self, format: Format, epilogue: Epilogue) -> String {
        let Shape { warps, rows, unroll } = self;
        let name = format!("{}_{}", epilogue.prefix(), format.suffix());
        if self == Self::default() { name } else { format!("{name}_{warps}x{rows}_{unroll}") }
    }

    /// Blocks for `rows` results.
    pub const fn blocks(self, epilogue: Epilogue, rows: u32) -> u32 {
        rows.div_ceil(self.results(epilogue) * self.warps)
    }

    /// Results of a warp.
    const fn results(self, epilogue: Epilogue) -> u32 {
        match epilogue {
            Epilogue::Store | Epilogue::Add => self.rows,
            Epilogue::Gate => self.rows / 2,
        }
    }
}

/// The use of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Epilogue {
    /// `out[r] = W[r]·x`.
    Store,
    /// `out[r] += W[r]·x`.
    Add,
    /// `out[r] = silu(W[r]·x) · (W[rows + r]·x)`, striped: the matrix has gate rows, then as many up rows.
    Gate,
}

impl Epilogue {
    /// All of them.
    pub const ALL: [Epilogue; 3] = [Epilogue::Store, Epilogue::Add, Epilogue::Gate];

    /// First part of kernel names.
    pub const fn prefix(self) -> &'static str {
        match self {
            Epilogue::Store => "matvec",
            Epilogue::Add => "matvec_add",
            Epilogue::Gate => "gate_up",
        }
    }
}

kernel_params! {
    /// The activations that belong to a unit, by run.
    pub struct Matvec(format: Format) {
        weights: Ptr<u8, 16>, x: Ptr<f32, 16>, out: Ptr<f32, 4>,
        rows: u32, cols: Multiple = format.block(),
    }
}

/// The kernel `PREFIX_SUFFIX`.
pub fn kernel(format: Format, epilogue: Epilogue, shape: Shape) -> Kernel {
    let k = Kernel::new(&shape.kernel_name(format, epilogue));
    k.max_threads(shape.threads());
    let p = Matvec::declare(&k, format);

    let lane = k.special(Special::LaneId);
    let warp = k.mad(k.special(Special::CtaidX), shape.warps, k.shr(k.special(Special::TidX), 5));
    let results = shape.results(epilogue);
    let first = if results == 1 { warp } else { k.mul(warp, results) };
    k.exit_if(k.ge(first, p.rows));
    // Past the end the last row is read again; its result is not stored.
    let result = |i: u32| if i == 0 { first } else { k.min(k.add(first, i), k.sub(p.rows, 1)) };
    let own: Vec<Reg<u32>> = match epilogue {
        Epilogue::Store | Epilogue::Add => (0..results).map(result).collect(),
        Epilogue::Gate => (0..results).map(result).flat_map(|row| [row, k.add(row, p.rows)]).collect(),
    };
    let row: Vec<_> = own.into_iter().map(|row| format.row(&k, p.weights, row, p.cols)).collect();
    let quarter = k.halve(p.cols, 2);
    let sums: Vec<Reg<f32>> = row.iter().map(|_| k.var(0f32)).collect();

    let units = k.halve(p.cols, format.unit().trailing_zeros()).reg();
    let add = |packed: &[Packed], unit: Reg<u32>| {
        let values = activations(&k, format, p.x, unit, quarter);
        for (packed, sum) in packed.iter().zip(&sums) {
            for (w, x) in format.weights(&k, packed).iter().flatten().zip(values.iter().flatten()) {
                k.mad_to(*sum, *w, *x, *sum);
            }
        }
    };
    let fetch =
        |unit: Reg<u32>| -> Vec<Packed> { row.iter().map(|row| format.fetch(&k, row, unit)).collect() };
    let rest = if shape.unroll == 1 {
        lane
    } else {
        // Whole groups of the unrolled loop, then one unit at a time.
        let together = 32 * shape.unroll;
        let whole = k.and(units, !(together - 1));
        k.for_(lane, whole, together, |unit: Reg<u32>| {
            let all: Vec<_> = (0..shape.unroll).map(|i| k.add(unit, 32 * i)).collect();
            let packed: Vec<_> = all.iter().map(|unit| fetch(*unit)).collect();
            packed.iter().zip(all).for_each(|(packed, unit)| add(packed, unit));
        });
        k.add(whole, lane)
    };
    k.for_(rest, units, 32u32, |unit: Reg<u32>| add(&fetch(unit), unit));

    let sums: Vec<Reg<f32>> = sums.into_iter().map(|s| k.warp_sum(s)).collect();
    match epilogue {
        Epilogue::Store | Epilogue::Add => {
            let mine = k.add(first, lane);
            k.if_(k.both(k.lt(lane, results), k.lt(mine, p.rows)), || {
                let to = k.at(p.out, mine);
                let value = (0..results - 1)
                    .rev()
                    .fold(sums[sums.len() - 1], |later, i| k.select(k.eq(lane, i), sums[i as usize], later));
                k.store(to, if epilogue == Epilogue::Add { k.add(k.load(to), value) } else { value });
            });
        }
        Epilogue::Gate => {
            for (i, pair) in (0u32..).zip(sums.chunks_exact(2)) {
                let mine = if i == 0 { first } else { k.add(first, i) };
                let first_lane = k.eq(lane, 0);
                let stores = if i == 0 { first_lane } else { k.both(first_lane, k.lt(mine, p.rows)) };
                k.if_(stores, || {
                    let to = striped_index(&k, mine, k.shr(p.rows, 2));
                    k.store(k.at(p.out, to), silu_times(&k, pair[0], pair[1]));
                });
            }
        }
    }
    k
}

pub(crate) fn activations(
    k: &Kernel,
    format: Format,
    x: Pointer<Global, f32>,
    unit: Reg<u32>,
    quarter: Multiple,
) -> Vec<Vec<Reg<f32>>> {
    let runs = format.runs(k, unit);
    let per_run = format.unit() / runs.len() as u32;
    runs.into_iter()
        .map(|start| {
            let mut at = striped_chunk(k, x, k.shr(start.reg(), 2), quarter);
            let mut values = Vec::new();
            for chunk in 0..per_run / 4 {
                if chunk > 0 {
                    at = k.at(at, quarter);
                }
                values.extend(k.load_with(at, 4, Cache::Default));
            }
            values
        })
        .collect()
}
