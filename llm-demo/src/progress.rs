//! Progress bars.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of bytes, drawn on a terminal only.
pub fn byte_bar(what: &'static str) -> ProgressBar {
    let style = "{msg} [{wide_bar}] {bytes}/{total_bytes} {binary_bytes_per_sec}";
    bar(what, style)
}

/// A bar of steps, drawn on a terminal only.
pub fn step_bar(what: &'static str) -> ProgressBar {
    bar(what, "{msg} [{wide_bar}] {pos}/{len} {eta}")
}

fn bar(what: &'static str, style: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(what)
}
