//! Search for the first values that are no numbers: a batch step of one column, with a look at its vectors
//! after each launch.
//!
//! Only a step that gave NaN, infinity or nothing but zeros is run again this way, so a good one pays
//! nothing.

use std::ops::Range;

use half::f16;
use hcq::Queue;

use crate::cache::BLOCK;
use crate::engine::batch::{Column, Steps, To};
use crate::engine::cache::PAGE;
use crate::engine::launch::{Launch, record};
use crate::engine::layers::LayerMemory;
use crate::engine::matrix::fits;
use crate::engine::memory::DeviceModel;
use crate::engine::state::State;
use crate::engine::times::layers;
use crate::error::{Error, Result};
use crate::kernels::columns::fragments;

/// A sequence whose results are in doubt. The first table of the steps is its, and the state has the tokens of the
/// context.
pub struct Suspect<'a> {
    /// The model.
    pub model: &'a DeviceModel,
    /// Position and tokens.
    pub state: &'a State,
    /// Its batch steps.
    pub steps: &'a mut Steps,
    /// The launches of a batch step of one column.
    pub launches: &'a [Launch],
    /// The queue.
    pub queue: &'a mut Queue,
    /// The pages of its positions.
    pub pages: &'a [u32],
}

impl Suspect<'_> {
    /// The phase and the layer that first give a value that is no number, in the context up to `position`. The
    /// activations of batch steps are undefined after it.
    pub fn find(&mut self, position: usize) -> Result<Error> {
        // Bad values of an earlier position in the cache spoil all later ones.
        let mut at = position;
        for layer in &self.model.layers {
            at = scan((self.model, self.pages), layer, 0..at + 1)?.bad.unwrap_or(at);
        }
        let found = self.trace(at)?;
        Ok(found.unwrap_or(Error::NotFinite { phase: "step", layer: None, position: at }))
    }

    /// As [`Suspect::find`], after logits or keys that are all zero: `None` if they are what the model computes.
    /// A step in one launch makes zeros of values whose squares leave single precision, where batch steps make
    /// NaN.
    pub fn find_zeros(&mut self, position: usize) -> Result<Option<Error>> {
        let mut at = position;
        for layer in &self.model.layers {
            at = scan((self.model, self.pages), layer, 0..at + 1)?.zero.unwrap_or(at);
        }
        self.trace(at)
    }

    /// Runs the token at position `at` launch by launch until a value is no number.
    fn trace(&mut self, at: usize) -> Result<Option<Error>> {
        let Self { model: m, steps, queue, pages, .. } = self;
        let (numbers, all_fragments) = steps.buffers().vectors(&m.config);
        for vector in numbers.iter().map(|(vector, _)| *vector).chain(all_fragments.iter().copied()) {
            vector.write(0, &vec![0; vector.len() as usize])?;
        }
        let token = self.state.token(at)?;
        steps.write(&[Column { token, position: fits(at)?, table: 0 }])?;
        let roles: Vec<&str> = self.launches.iter().map(|l| l.role).collect();
        for (launch, layer) in self.launches.iter().zip(layers(&roles)) {
            queue.replay(&record(&m.device, [launch])?)?.wait(m.patience)?;
            let mut bad = false;
            for (vector, count) in &numbers {
                bad |= !all_finite(&vector.read_vec::<f32>(0, *count)?);
            }
            for vector in &all_fragments {
                let bytes = vector.read_vec::<u8>(0, vector.len() as usize)?;
                bad |= !bytes.chunks(fragments::BYTES as usize).all(fragments::are_finite);
            }
            if bad {
                return Ok(Some(Error::NotFinite { phase: launch.role, layer, position: at }));
            }
            if launch.role == "rotate, cache"
                && let Some(index) = layer
                && scan((m, pages), &m.layers[index], 0..at + 1)?.bad == Some(at)
            {
                return Ok(Some(Error::CacheRange { layer: index, position: at, kv: m.cache.kv.name() }));
            }
        }
        Ok(None)
    }

    /// Checks the keys and values of the `positions` positions in the cache: a step in one launch computes with
    /// numbers from those that are none.
    pub fn check_cache(&mut self, positions: usize) -> Result<()> {
        let Some(last) = positions.checked_sub(1) else { return Ok(()) };
        let mut zeros = false;
        for layer in &self.model.layers {
            let found = scan((self.model, self.pages), layer, 0..positions)?;
            if found.bad.is_some() {
                return Err(self.find(last)?);
            }
            zeros |= found.zero.is_some();
        }
        if zeros {
            self.find_zeros(last)?.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Finds the reason if a batch step gives no numbers for `token` at `position`, which the state has.
    pub fn probe(&mut self, token: u32, position: usize) -> Result<()> {
        let column = Column { token, position: fits(position)?, table: 0 };
        match gives_numbers(self.model, self.steps, self.queue, column)? {
            true => Ok(()),
            false => Err(self.find(position)?),
        }
    }
}

/// Whether a batch step gives numbers for a token: a step in one launch is more tolerant, as it computes in integers, of
/// weights that are no numbers, and gives zeros of what is too large.
pub fn gives_numbers(m: &DeviceModel, steps: &mut Steps, queue: &mut Queue, column: Column) -> Result<bool> {
    steps.write(&[column])?;
    steps.run(m, queue, 1, To::Logits)?;
    let mut logits = vec![0.0; m.config.vocab];
    steps.read_logits(0, &mut logits)?;
    Ok(all_finite(&logits))
}

/// Whether all values are finite. Looks at every one even after a bad one, which compiles to vector
/// instructions.
pub fn all_finite(values: &[f32]) -> bool {
    values.iter().fold(true, |all, value| all & value.is_finite())
}

/// Whether logits say that nothing is wrong. A vector with NaN or infinity gives no logit that is a number,
/// so the first one tells; zeros alone are what a norm makes of values that are too large.
pub fn are_plausible(logits: &[f32]) -> bool {
    match logits.first() {
        Some(first) if *first == 0.0 => logits.iter().any(|logit| logit.is_finite() && *logit != 0.0),
        Some(first) => first.is_finite(),
        None => true,
    }
}

/// Positions of a layer's cache that are not as usual.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan {
    /// The first one of which a key or value cannot be a number.
    pub bad: Option<usize>,
    /// The first one of which the key of a head is zero.
    pub zero: Option<usize>,
}

/// Looks at some positions of a sequence with these `pages`; the scales say it in q8_0. Reads whole pages: many reads
/// of a head each would take longer.
pub fn scan(
    (m, pages): (&DeviceModel, &[u32]),
    layer: &LayerMemory,
    positions: Range<usize>,
) -> Result<Scan> {
    let c = &m.config;
    let (start, per_row) = match m.cache.scales_at {
        None => (0, c.padded_head()),
        Some(at) => (u64::from(at), c.padded_head() / BLOCK as usize),
    };
    let per_page = c.kv_heads * PAGE * per_row;
    let mut found = Scan::default();
    for (number, page) in pages.iter().enumerate() {
        let first = number * PAGE;
        let inside = positions.start.max(first)..positions.end.min(first + PAGE);
        if inside.is_empty() {
            continue;
        }
        for (cache, are_keys) in [(&layer.keys, true), (&layer.values, false)] {
            let at = start + 2 * u64::from(*page) * per_page as u64;
            let values = cache.read_vec::<u16>(at, per_page)?;
            let heads = values.chunks_exact(PAGE * per_row);
            let rows = heads.flat_map(|head| {
                inside.clone().zip(head[(inside.start - first) * per_row..].chunks_exact(per_row))
            });
            for (position, row) in rows {
                let is_first = |known: Option<usize>| known.is_none_or(|known| position < known);
                if is_first(found.bad) && row.iter().any(|bits| !f16::from_bits(*bits).is_finite()) {
                    found.bad = Some(position);
                }
                let is_zero = || row.iter().all(|bits| f16::from_bits(*bits) == f16::ZERO);
                if are_keys && is_first(found.zero) && is_zero() {
                    found.zero = Some(position);
                }
            }
        }
    }
    Ok(found)
}
