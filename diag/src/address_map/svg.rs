//! Address maps as drawings.

use std::fmt::Write;

use crate::address_map::bars::bars;
use crate::address_map::{AddressMap, Severity};
use crate::size::size;

/// Width of a bar, in pixels.
const WIDTH: f64 = 960.0;
/// Height of a bar.
const HEIGHT: f64 = 22.0;
/// Distance from one bar to the next.
const STEP: f64 = 52.0;
/// Space around.
const MARGIN: f64 = 20.0;

impl AddressMap {
    /// The map as an SVG document: a bar for each stretch of addresses, each mapping with its address, size and name as
    /// a tooltip.
    #[must_use]
    pub fn svg(&self) -> String {
        let bars = bars(self);
        let (width, height) = (WIDTH + 2.0 * MARGIN, 2.0 * MARGIN + STEP * (bars.len() as f64 + 0.5));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{MARGIN}\" y=\"{}\" font-size=\"14\">Address space of {}</text>\n",
            MARGIN + 4.0,
            escape(&self.source)
        );
        let problems: std::collections::BTreeSet<u64> = self
            .remarks
            .iter()
            .filter(|remark| remark.severity == Severity::Problem)
            .map(|remark| remark.va.0)
            .collect();
        for (row, bar) in bars.iter().enumerate() {
            let y = MARGIN + STEP * (row as f64 + 0.5) + 8.0;
            let x = |address: u64| {
                let offset = address.clamp(bar.start, bar.end) - bar.start;
                MARGIN + offset as f64 * WIDTH / (bar.len().max(1)) as f64
            };
            let mut rect = |start: u64, end: u64, colour: &str, title: &str| {
                let (left, width) = (x(start), (x(end) - x(start)).max(0.5));
                // Writing to a string cannot fail.
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{colour}\">\
                     <title>{}</title></rect>",
                    escape(title)
                );
            };
            rect(bar.start, bar.end, "#e4e4e4", "free");
            for window in self.windows.iter().filter(|w| w.base.0 < bar.end && bar.start < w.end()) {
                rect(
                    window.base.0,
                    window.end(),
                    "#f0c05a",
                    &format!("{} window at {}", window.name, window.base),
                );
            }
            let first = self.mappings.partition_point(|m| m.va.0 < bar.start);
            let mut drawn = f64::MIN;
            for mapping in self.mappings[first..].iter().take_while(|m| m.va.0 < bar.end) {
                let bad = problems.contains(&mapping.va.0);
                // What would lie in the pixel that is drawn already is left out.
                if x(mapping.end()) < drawn + 0.5 && !bad {
                    continue;
                }
                drawn = x(mapping.end());
                let colour = if bad { "#c03028" } else { "#4a7fb5" };
                let title = format!("{}, {}, {}", mapping.va, size(mapping.size_bytes), mapping.describe());
                rect(mapping.va.0, mapping.end(), colour, title.trim_end_matches(", "));
            }
            let label = format!("{:#x}, {}", bar.start, size(bar.len()));
            let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{:.0}\">{label}</text>", y + HEIGHT + 14.0);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
