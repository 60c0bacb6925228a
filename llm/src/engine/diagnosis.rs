//! Where values stop being numbers: a step by one launch per operation, with a look at every buffer after each.
//!
//! Only a step that gave NaN or infinity is run again this way, so a good one pays nothing.

use half::f16;
use hcq::{Buffer, Queue};

use crate::cache::BLOCK;
use crate::engine::launch::record;
use crate::engine::memory::{DeviceModel, LayerMemory};
use crate::engine::operations::Operations;
use crate::engine::times::layers;
use crate::error::{Error, Result};

/// The phase and the layer that first give a value that is no number, in the context up to `position`, whose
/// tokens are in the device's state. The position in the state, and the activations, are undefined after it.
pub fn find(m: &DeviceModel, operations: &Operations, queue: &mut Queue, position: usize) -> Result<Error> {
    // What an earlier position left in the cache spoils all later ones.
    let mut at = position;
    for layer in &m.layers {
        at = first_bad(m, layer, at)?.unwrap_or(at);
    }
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
            return Ok(Error::NotFinite { phase: launch.role, layer, position: at });
        }
        if launch.role == "rotate, cache"
            && let Some(index) = layer
            && first_bad(m, &m.layers[index], at)? == Some(at)
        {
            return Ok(Error::CacheRange { layer: index, position: at, kv: m.cache.kv.name() });
        }
    }
    Ok(Error::NotFinite { phase: "step", layer: None, position: at })
}

/// Whether all values are finite. Looks at every one even after a bad one, which compiles to vector
/// instructions.
pub fn all_finite(values: &[f32]) -> bool {
    values.iter().fold(true, |all, value| all & value.is_finite())
}

/// Whether every value of a vector in `f32` in device memory is finite.
fn is_finite(vector: &Buffer) -> Result<bool> {
    let mut bytes = vec![0; vector.len() as usize];
    vector.read(0, &mut bytes)?;
    Ok(bytes.as_chunks().0.iter().all(|b| f32::from_le_bytes(*b).is_finite()))
}

/// The first position up to `last` of which a key or value cannot be a number; the scales say it in q8_0.
fn first_bad(m: &DeviceModel, layer: &LayerMemory, last: usize) -> Result<Option<usize>> {
    let (c, context) = (&m.config, u64::from(m.cache.context));
    let kv_heads = c.kv_heads as u64;
    let (start, per_row) = match m.cache.scales_at {
        None => (0, c.head_dim),
        Some(at) => (u64::from(at), c.head_dim / BLOCK as usize),
    };
    let row_bytes = 2 * per_row as u64;
    let mut first = None;
    for (cache, head) in
        [&layer.keys, &layer.values].into_iter().flat_map(|c| (0..kv_heads).map(move |h| (c, h)))
    {
        let mut bytes = vec![0; (last + 1) * row_bytes as usize];
        cache.read(start + row_bytes * head * context, &mut bytes)?;
        let rows = bytes.chunks_exact(row_bytes as usize);
        let finite = |row: &[u8]| row.as_chunks().0.iter().all(|b| f16::from_le_bytes(*b).is_finite());
        let bad = rows.enumerate().find(|(_, row)| !finite(row)).map(|(position, _)| position);
        first = first.into_iter().chain(bad).min();
    }
    Ok(first)
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
    for layer in &m.layers {
        if first_bad(m, layer, last)?.is_some() {
            return Err(find(m, operations, queue, last)?);
        }
    }
    Ok(())
}

/// Runs the token at `position`, which is in the device's state, by one launch per operation, and checks its
/// logits: a whole step is more tolerant, as it computes in integers, of weights that are no numbers. The state
/// is then as before.
pub fn probe(m: &DeviceModel, operations: &Operations, queue: &mut Queue, position: usize) -> Result<()> {
    let after = (position + 1 < m.cache.context as usize).then(|| m.state.token(position + 1)).transpose()?;
    queue.replay(&record(&m.device, &operations.launches)?)?.wait(m.patience)?;
    if !all_finite(&m.state.logits()?) {
        return Err(find(m, operations, queue, position)?);
    }
    m.state.set_position(position)?;
    after.map_or(Ok(()), |token| m.state.set_tokens(position + 1, &[token]))
}
