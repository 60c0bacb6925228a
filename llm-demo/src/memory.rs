//! Whether a model fits the device, before any of it is copied.

use std::fmt::Write;

use anyhow::bail;
use ga10b_llm::engine::PAGE;
use ga10b_llm::{CacheType, ColumnsOptions, EngineOptions, Footprint, Model};
use hcq::{BackendKind, Device};

/// A size in the units of the other reports.
pub fn size(bytes: u64) -> String {
    match bytes as f64 {
        large if large >= 1e9 => format!("{:.2} GB", large / 1e9),
        small => format!("{:.1} MB", small / 1e6),
    }
}

/// Bytes of weights that a model has at least which somebody might use instead.
const WORTHWHILE: u64 = 64 << 20;

/// Bytes of the weights in the smallest quantization that is supported: 4.5 bits each.
fn smallest(model: &Model) -> u64 {
    let elements: u64 = model.gguf.tensors().iter().map(|tensor| tensor.dims.iter().product::<u64>()).sum();
    elements / 16 * 9
}

/// Whether chunks of prompts keep expanded weights: as `asked`, else on a GPU with memory of its own where what is
/// `needed` with them takes at most half of what is free.
pub fn keeps_expanded(
    device: &Device,
    asked: Option<bool>,
    needed: impl FnOnce() -> ga10b_llm::Result<Footprint>,
) -> anyhow::Result<bool> {
    let info = device.info();
    match (asked, device.free_memory()) {
        (Some(asked), _) => Ok(asked),
        (None, Ok(free)) if !info.unified_memory && info.backend != BackendKind::Sim => {
            Ok(needed()?.total() <= free / 2)
        }
        (None, _) => Ok(false),
    }
}

/// Reports what an engine takes and what the device has left; an error with what to try if that is less.
pub fn check(device: &Device, model: &Model, options: &EngineOptions) -> anyhow::Result<()> {
    let info = device.info();
    let needed = Footprint::of(model, options, device)?;
    let free = match device.free_memory() {
        Ok(free) => free,
        Err(error) => {
            tracing::warn!(%error, "the driver does not say how much memory is free");
            return Ok(());
        }
    };
    let Footprint { cache, scratch, .. } = needed;
    let weights = needed.weights + needed.expanded;
    let parts = format!(
        "{} of weights, {} of cache for {} positions in {}, {} of scratch",
        size(weights),
        size(cache),
        options.context,
        options.kv.name(),
        size(scratch)
    );
    if needed.total() <= free {
        tracing::info!("the model needs {}: {parts}; {} are free", size(needed.total()), size(free));
        return Ok(());
    }
    let mut advice = String::new();
    if needed.expanded > 0 {
        let less = size(needed.expanded);
        write!(advice, "\n  try: --prompt-weights expand, which takes {less} less")?;
    }
    let longest = |kv| {
        let options = options.clone().with_cache(kv);
        Footprint::longest_context(model, &options, device, free)
    };
    if let Some(context) = longest(options.kv)? {
        write!(
            advice,
            "\n  try: fewer positions: {context} fit, which are those of the prompt (-p) and of what is \
             generated (-n) together"
        )?;
    }
    let smaller = options.kv == CacheType::F16 && CacheType::Q8_0.check(&model.config).is_ok();
    if smaller && let Some(context) = longest(CacheType::Q8_0)? {
        write!(advice, "\n  try: --kv q8_0, with which {context} positions fit")?;
    }
    let left = free.saturating_sub(cache).saturating_sub(scratch);
    if (smallest(model)..weights).contains(&left) {
        let most = size(left);
        write!(advice, "\n  try: a smaller quantization: weights of up to {most} fit beside this cache")?;
    } else if (WORTHWHILE..weights).contains(&left) {
        let most = size(left);
        write!(advice, "\n  try: a smaller model: weights of up to {most} fit beside this cache")?;
    }
    if info.unified_memory {
        advice.push_str("\n  try: end other programs, the desktop among them: CPU and GPU share the memory");
    }
    bail!(
        "the model does not fit: it needs {} ({parts}), and {} of {} are free{advice}",
        size(needed.total()),
        size(free),
        size(info.memory)
    );
}

/// Reports what sequences that are processed together take and what the device has left. If that is less,
/// they share fewer pages; an error with what to try if `least` pages do not fit.
pub fn share(
    device: &Device,
    model: &Model,
    options: ColumnsOptions,
    least: usize,
) -> anyhow::Result<ColumnsOptions> {
    let free = match device.free_memory() {
        Ok(free) => free,
        Err(error) => {
            tracing::warn!(%error, "the driver does not say how much memory is free");
            return Ok(options);
        }
    };
    let with_pages = |pages| {
        let options = options.with_pages(pages);
        Footprint::of_columns(model, &options, device).map(|needed| (options, needed))
    };
    let fits = |(_, needed): &(ColumnsOptions, Footprint)| needed.total() <= free;
    // The largest number of pages that fits is in this range, if `least` do.
    let (mut low, mut high) = (least, options.pages.max(least));
    let mut best = with_pages(high)?;
    if !fits(&best) {
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(&with_pages(middle)?) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        best = with_pages(low)?;
    }
    let (chosen, needed) = &best;
    let parts = format!(
        "{} of weights, {} of cache for {} positions in {}, shared by up to {} sequence{}, {} of scratch",
        size(needed.weights + needed.expanded),
        size(needed.cache),
        chosen.pages * PAGE,
        chosen.kv.name(),
        chosen.sequences,
        if chosen.sequences == 1 { "" } else { "s" },
        size(needed.scratch)
    );
    if !fits(&best) {
        let expand = if needed.expanded > 0 { "--prompt-weights expand, " } else { "" };
        bail!(
            "the model does not fit: it needs {} ({parts}), and {} of {} are free\n  try: {expand}fewer sequences or \
             positions, --kv q8_0, or a smaller model",
            size(needed.total()),
            size(free),
            size(device.info().memory)
        );
    }
    tracing::info!("the model needs {}: {parts}; {} are free", size(needed.total()), size(free));
    if chosen.pages < options.pages {
        let (pages, wanted) = (chosen.pages * PAGE, options.pages * PAGE);
        tracing::warn!("{pages} positions fit instead of {wanted}: long requests wait for each other");
    }
    Ok(*chosen)
}
