//! Search for the first values that are no numbers: a step by one launch per operation, with a look at every
//! buffer after each.
//!
//! Only a step that gave NaN, infinity or nothing but zeros is run again this way, so a good one pays
//! nothing.

use half::f16;
use hcq::{Buffer, Queue};

use crate::cache::BLOCK;
use crate::engine::launch::record;
use crate::engine::layers::LayerMemory;
use crate::engine::memory::DeviceModel;
use crate::engine::operations::Operations;
use crate::engine::times::layers;
use crate::error::{Error, Result};

/// The phase and the layer that first give a value that is no number, in the context up to `position`, whose
/// tokens are in the device's state. The position in the state, and the activations, are undefined after it.
pub fn find(m: &DeviceModel, operations: &Operations, queue: &mut Queue, position: usize) -> Result<Error> {
    // Bad values of an earlier position in the cache spoil all later ones.
    let mut at = position;
    for layer in &m.layers {
        at = scan(m, layer, at)?.bad.unwrap_or(at);
    }
    let found = trace(m, operations, queue, at)?;
    Ok(found.unwrap_or(Error::NotFinite { phase: "step", layer: None, position: at }))
}

/// As [`find`], after logits or keys that are all zero: `None` if they are what the model computes. A whole
/// step makes zeros of values whose squares leave single precision, where operations make NaN.
pub fn find_zeros(
    m: &DeviceModel,
    operations: &Operations,
    queue: &mut Queue,
    position: usize,
) -> Result<Option<Error>> {
    let mut at = position;
    for layer in &m.layers {
        at = scan(m, layer, at)?.zero.unwrap_or(at);
    }
    // Without a finding the step ends with a choice, which is not that of the text.
    let next = m.state.token(at + 1)?;
    let found = trace(m, operations, queue, at)?;
    m.state.set_tokens(at + 1, &[next])?;
    Ok(found)
}

/// Runs the token at position `at` launch by launch until a value is no number.
fn trace(m: &DeviceModel, operations: &Operations, queue: &mut Queue, at: usize) -> Result<Option<Error>> {
    m.state.set_position(at)?;
    let products = operations.products.iter().flat_map(|p| [&p.x, &p.out]);
    let mut vectors: Vec<&Buffer> = products.chain([&operations.x]).collect();
    vectors.sort_by_key(|buffer| buffer.va().raw());
    vectors.dedup_by_key(|buffer| buffer.va().raw());
    for vector in &vectors {
        vector.write(0, &vec![0; vector.len() as usize])?;
    }
    let roles: Vec<&str> = operations.launches.iter().map(|l| l.role).collect();
    for (launch, layer) in operations.launches.iter().zip(layers(&roles)) {
        queue.replay(&record(&m.device, [launch])?)?.wait(m.patience)?;
        let mut bad = false;
        for vector in &vectors {
            bad |= !is_finite(vector)?;
        }
        if bad {
            return Ok(Some(Error::NotFinite { phase: launch.role, layer, position: at }));
        }
        if launch.role == "rotate, cache"
            && let Some(index) = layer
            && scan(m, &m.layers[index], at)?.bad == Some(at)
        {
            return Ok(Some(Error::CacheRange { layer: index, position: at, kv: m.cache.kv.name() }));
        }
    }
    Ok(None)
}

/// Whether all values are finite. Looks at every one even after a bad one, which compiles to vector
/// instructions.
pub fn all_finite(values: &[f32]) -> bool {
    values.iter().fold(true, |all, value| all & value.is_finite())
}

/// Whether every value of a vector in `f32` in device memory is finite.
fn is_finite(vector: &Buffer) -> Result<bool> {
    Ok(all_finite(&vector.read_vec::<f32>(0, vector.len() as usize / 4)?))
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
struct Scan {
    /// The first one of which a key or value cannot be a number.
    bad: Option<usize>,
    /// The first one of which the key of a head is zero.
    zero: Option<usize>,
}

/// Looks at the positions up to `last`; the scales say it in q8_0.
fn scan(m: &DeviceModel, layer: &LayerMemory, last: usize) -> Result<Scan> {
    let (c, context) = (&m.config, u64::from(m.cache.context));
    let kv_heads = c.kv_heads as u64;
    let (start, per_row) = match m.cache.scales_at {
        None => (0, c.head_dim),
        Some(at) => (u64::from(at), c.head_dim / BLOCK as usize),
    };
    let row_bytes = 2 * per_row as u64;
    let mut found = Scan::default();
    let caches = [(&layer.keys, true), (&layer.values, false)];
    for ((cache, are_keys), head) in caches.into_iter().flat_map(|c| (0..kv_heads).map(move |h| (c, h))) {
        let mut bytes = vec![0; (last + 1) * row_bytes as usize];
        cache.read(start + row_bytes * head * context, &mut bytes)?;
        let first = |holds: &dyn Fn(&[f16]) -> bool| {
            bytes.chunks_exact(row_bytes as usize).position(|row| {
                let values: Vec<f16> = row.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b)).collect();
                holds(&values)
            })
        };
        let bad = first(&|values| values.iter().any(|v| !v.is_finite()));
        found.bad = found.bad.into_iter().chain(bad).min();
        if are_keys {
            let zero = first(&|values| values.iter().all(|v| *v == f16::ZERO));
            found.zero = found.zero.into_iter().chain(zero).min();
        }
    }
    Ok(found)
}

/// Checks the keys and values of the `positions` positions in the cache: a whole step computes with numbers
/// from those that are none.
pub fn check_cache(
    m: &DeviceModel,
    operations: &Operations,
    queue: &mut Queue,
    positions: usize,
) -> Result<()> {
    let Some(last) = positions.checked_sub(1) else { return Ok(()) };
    let mut zeros = false;
    for layer in &m.layers {
        let found = scan(m, layer, last)?;
        if found.bad.is_some() {
            return Err(find(m, operations, queue, last)?);
        }
        zeros |= found.zero.is_some();
    }
    if zeros {
        find_zeros(m, operations, queue, last)?.map_or(Ok(()), Err)?;
        m.state.set_position(positions)?;
    }
    Ok(())
}

/// Runs the token at `position`, which is in the device's state, by one launch per operation, and checks its
/// logits: a whole step is more tolerant, as it computes in integers, of weights that are no numbers. The
/// state is then as before.
pub fn probe(m: &DeviceModel, operations: &Operations, queue: &mut Queue, position: usize) -> Result<()> {
    let after = (position + 1 < m.cache.context as usize).then(|| m.state.token(position + 1)).transpose()?;
    queue.replay(&record(&m.device, &operations.launches)?)?.wait(m.patience)?;
    if !all_finite(&m.state.logits()?) {
        return Err(find(m, operations, queue, position)?);
    }
    m.state.set_position(position)?;
    after.map_or(Ok(()), |token| m.state.set_tokens(position + 1, &[token]))
}
