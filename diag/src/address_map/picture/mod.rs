//! Address maps as pictures: an address axis with scale breaks, a box for each mapping, gaps with their size,
//! and beside them windows, reservations, regions and marked addresses.

mod boxes;
mod labels;
mod legend;
mod rows;
mod scale;
mod sides;

use std::fmt::Write;

use crate::address_map::picture::boxes::{Placed, boxes};
use crate::address_map::picture::labels::{ADVANCE, fit, tooltip, wrap};
use crate::address_map::picture::legend::{Kind, Marked, Permission, swatches};
use crate::address_map::picture::rows::{Row, rows};
use crate::address_map::picture::scale::Scale;
use crate::address_map::picture::sides::{LABEL_LINE, Label, place, track_x, tracks_width};
use crate::address_map::spaces::AddressMaps;
use crate::address_map::{AddressMap, Mapping, Severity};
use crate::hex::Hex;
use crate::markup::Text;
use crate::report::counted;
use crate::size::size;

/// Width of the picture, in pixels: little more than that of printed paper, so that letters do not shrink there.
const WIDTH: f64 = 780.0;
/// Space around.
const MARGIN: f64 = 16.0;
/// Position of the axis, and of the left and the right edge of the boxes.
const AXIS: f64 = 158.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 470.0;
/// Upper edge of the first row.
const TOP: f64 = 76.0;
/// Size of text.
const FONT: f64 = 12.0;
const SMALL: f64 = 11.0;
/// Marks that are drawn.
const MAX_MARKS: usize = 12;
/// Brackets of each kind that are drawn.
const MAX_BRACKETS: usize = 8;

/// An address to draw into a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The address.
    pub address: u64,
    /// Text beside the address.
    pub text: String,
    /// Whether it is a program counter; else it is the address of a fault.
    pub is_pc: bool,
    /// Place in the document around the picture that its label links to, as `#fault-1`.
    pub link: Option<String>,
}

impl AddressMap {
    /// The map as an SVG document. Readable in print and on dark screens, in a bounded number of rows: of
    /// thousands of mappings the long ones and those near marks are drawn one by one. At most 12 marks are
    /// drawn. The label of mark N, counted from 0, has the id `mark-N`.
    #[must_use]
    pub fn svg(&self, marks: &[Mark]) -> String {
        let (drawing, height) = Picture::new(self, drawn(marks), true).draw();
        document(&self.title(), height, DEFINITIONS, &drawing)
    }
}

impl AddressMaps {
    /// The maps as one SVG document, one below the other, as [`AddressMap::svg`] draws them. Marks are in each:
    /// it is not known which of the address spaces they are of. Ids are those of the first.
    #[must_use]
    pub fn svg(&self, marks: &[Mark]) -> String {
        let (mut out, mut height) = (String::new(), 0.0);
        for (index, map) in self.spaces.iter().enumerate() {
            let (drawing, bottom) = Picture::new(map, drawn(marks), index == 0).draw();
            match index {
                0 => out += &drawing,
                _ => out += &format!("<g transform=\"translate(0 {height:.0})\">\n{drawing}</g>\n"),
            }
            height += bottom;
        }
        document(&format!("Address space of {}", self.source), height, DEFINITIONS, &out)
    }

    /// The maps as pictures of one HTML page, each with its height: the first has the style of all.
    pub(crate) fn svgs(&self, marks: &[Mark]) -> Vec<(String, f64)> {
        let pictures = self.spaces.iter().enumerate().map(|(index, map)| {
            let (drawing, height) = Picture::new(map, drawn(marks), index == 0).draw();
            let definitions = if index == 0 { DEFINITIONS } else { "" };
            (document(&map.title(), height, definitions, &drawing), height)
        });
        pictures.collect()
    }
}

/// The marks that are drawn: the first of them.
pub(crate) fn drawn<T>(marks: &[T]) -> &[T] {
    &marks[..marks.len().min(MAX_MARKS)]
}

/// The style of pictures, and the patterns in it.
const DEFINITIONS: &str = concat!(
    "<style>\n",
    include_str!("style.css"),
    "</style>\n<defs>\n\
     <pattern id=\"vm-stripes\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
     <path class=\"vm-ink\" d=\"M-2 2l4-4M0 8l8-8M6 10l4-4\"/></pattern>\n\
     <pattern id=\"vm-cross\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
     <path class=\"vm-ink\" d=\"M0 0l8 8M0 8l8-8\"/></pattern>\n</defs>\n"
);

/// The document around a drawing of some height.
fn document(title: &str, height: f64, definitions: &str, drawing: &str) -> String {
    let title = Text(&tooltip(title)).to_string();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"vm\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"monospace\" role=\"img\">\n\
         <title>{title}</title>\n{definitions}\
         <rect class=\"vm-page\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n{drawing}</svg>\n"
    )
}

/// Columns of small text in some pixels.
fn room(pixels: f64, font: f64) -> usize {
    (pixels / (font * ADVANCE)).max(0.0) as usize
}

/// A picture that is being drawn. Writing to its string cannot fail, so results of `write!` are dropped.
struct Picture<'a> {
    map: &'a AddressMap,
    marks: &'a [Mark],
    /// Whether it is the first of its document: the labels of its marks are places to link to.
    is_first: bool,
    rows: &'a [Row],
    out: String,
}

impl<'a> Picture<'a> {
    fn new(map: &'a AddressMap, marks: &'a [Mark], is_first: bool) -> Self {
        Self { map, marks, is_first, rows: &[], out: String::new() }
    }

    /// The drawing, and its height.
    fn draw(self) -> (String, f64) {
        let addresses: Vec<u64> = self.marks.iter().map(|mark| mark.address).collect();
        let rows = rows(self.map, &addresses);
        let mut picture = Picture { rows: &rows, ..self };
        let scale = Scale::new(&rows, TOP);
        let mut labels = picture.labels(&scale);
        let labels_end = place(&mut labels, TOP - 12.0);
        let placed = boxes(&rows);
        picture.title();
        picture.ranges(&scale);
        for one in &placed {
            picture.one_box(&scale, *one);
        }
        picture.axis(&scale);
        for label in &labels {
            picture.label(label);
        }
        let height = picture.legend(&placed, scale.bottom().max(labels_end) + 18.0);
        (picture.out, height)
    }

    /// A text that begins (or, at `end`, ends) at `x`, cut to the width given in pixels.
    fn text(&mut self, class: &str, font: f64, (x, y): (f64, f64), pixels: f64, text: &str) {
        let text = fit(text, room(pixels, font));
        let _ = writeln!(
            self.out,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{font}\">{}</text>",
            Text(&text)
        );
    }

    /// A short text that ends at `x`.
    fn text_before(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let _ = writeln!(
            self.out,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{SMALL}\" text-anchor=\"end\">{}</text>",
            Text(text)
        );
    }

    fn title(&mut self) {
        let map = self.map;
        self.text("vm-text", 16.0, (MARGIN, 28.0), WIDTH - 2.0 * MARGIN, &map.title());
        let totals = &map.totals;
        let mut words = match map.mappings.len() {
            0 => "nothing is mapped".to_owned(),
            n => format!(
                "{} in {}; free {}, the largest hole {}",
                size(totals.mapped_bytes),
                counted(n as u64, "mapping"),
                size(totals.free_bytes),
                size(totals.largest_hole_bytes)
            ),
        };
        match map.remarks.iter().filter(|remark| remark.severity == Severity::Problem).count() {
            0 => {}
            n => words += &format!("; {}", counted(n as u64, "problem")),
        }
        self.text("vm-aside", FONT, (MARGIN, 48.0), WIDTH - 2.0 * MARGIN, &words);
    }

    /// Draws the rows beside mappings: gaps, windows, reservations.
    fn ranges(&mut self, scale: &Scale<'_>) {
        for (index, row) in self.rows.iter().enumerate() {
            let (top, bottom) = scale.row(index);
            let (class, pattern, what) = match (row.window, row.reserved) {
                (true, _) => ("vm-window", None, "window"),
                (_, true) => ("vm-reserved", Some("stripes"), "reserved"),
                _ => ("vm-gap", None, "free"),
            };
            if row.mappings > 0 && !row.window {
                continue;
            }
            let tip = format!("{what}: {} from {} to {}", size(row.len()), Hex(row.start), Hex(row.end));
            let edges = (LEFT, RIGHT, top, bottom);
            self.rectangle(class, pattern, edges, &tip);
            if row.mappings == 0 {
                let text = format!("{} {what}", size(row.len()));
                let y = (top + bottom) / 2.0 + 4.0;
                let style = if row.window { "vm-window-text" } else { "vm-aside" };
                self.text(style, SMALL, (LEFT + 100.0, y), RIGHT - LEFT - 100.0, &text);
            }
        }
    }

    fn rectangle(
        &mut self,
        class: &str,
        pattern: Option<&str>,
        (left, right, top, bottom): (f64, f64, f64, f64),
        tip: &str,
    ) {
        let (width, height) = (right - left, (bottom - top - 2.0).max(1.0));
        let place =
            format!("x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"", top + 1.0);
        let _ = writeln!(
            self.out,
            "<rect class=\"{class}\" {place}><title>{}</title></rect>",
            Text(&tooltip(tip))
        );
        if let Some(pattern) = pattern {
            // Tooltips are those of the box below.
            let _ = writeln!(self.out, "<rect {place} fill=\"url(#vm-{pattern})\" pointer-events=\"none\"/>");
        }
    }

    /// A mapping with its name, size and attributes; or how much is in a row that several became.
    fn one_box(&mut self, scale: &Scale<'_>, placed: Placed) {
        let (first, last) = (&self.rows[placed.rows.0], &self.rows[placed.rows.1]);
        let (top, bottom) = (scale.row(placed.rows.0).0, scale.row(placed.rows.1).1);
        let is_in_window = self.rows[placed.rows.0..=placed.rows.1].iter().any(|row| row.window);
        // A window stays visible beside the mappings in it.
        let left = if is_in_window { LEFT + 14.0 } else { LEFT };
        let width = (RIGHT - left) / placed.lanes as f64;
        let left = left + width * placed.lane as f64;
        let edges = (left, left + width - if placed.lanes > 1 { 3.0 } else { 0.0 }, top, bottom);
        let Some(mapping) = placed.mapping.and_then(|index| self.map.mappings.get(index)) else {
            let share = (first.mapped as f64 * 100.0 / first.len() as f64).round();
            let words = format!(
                "{}, {} of {}",
                counted(first.mappings as u64, "mapping"),
                size(first.mapped),
                size(first.len())
            );
            let tip = format!("{words} ({share} %) from {} to {}", Hex(first.start), Hex(last.end));
            self.rectangle("vm-several", None, edges, &tip);
            return self.inside(edges, &words, "", "drawn as one", None);
        };
        let (permission, kind) = (Permission::of(mapping), Kind::of(mapping));
        let whole = [mapping.va.to_string(), size(mapping.size_bytes), mapping.describe()].join(", ");
        self.rectangle(permission.class(), kind.pattern(), edges, whole.trim_end_matches(", "));
        if self.is_wrong(mapping) {
            let (left, right, top, bottom) = edges;
            let _ = writeln!(
                self.out,
                "<rect class=\"vm-wrong\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                left + 1.0,
                top + 2.0,
                right - left - 2.0,
                (bottom - top - 4.0).max(1.0)
            );
        }
        let hidden = match placed.hidden {
            0 => None,
            n => Some(format!("+ {n} more here")),
        };
        let name = mapping.name.as_deref().unwrap_or("mapping");
        let attributes = Mapping { name: None, ..mapping.clone() }.describe();
        self.inside(edges, name, &size(mapping.size_bytes), &attributes, hidden);
    }

    /// The text in a box: a name, at the right a size, and below it attributes if they fit.
    fn inside(
        &mut self,
        (left, right, top, bottom): (f64, f64, f64, f64),
        name: &str,
        len: &str,
        attributes: &str,
        hidden: Option<String>,
    ) {
        let two = bottom - top >= 2.0 * LABEL_LINE + 6.0 && (!attributes.is_empty() || hidden.is_some());
        let y = (top + bottom) / 2.0 + if two { -3.0 } else { 4.0 };
        let columns = room(right - left - 16.0, FONT);
        let is_wide = columns > len.len() + 8;
        let for_len = if is_wide { len.len() as f64 * SMALL * ADVANCE + 10.0 } else { 0.0 };
        self.text("vm-text", FONT, (left + 8.0, y), right - left - 16.0 - for_len, name);
        if is_wide && !len.is_empty() {
            self.text_before("vm-text", (right - 8.0, y), len);
        }
        if two {
            let words = [hidden.as_deref().unwrap_or(""), attributes].join(" ");
            self.text("vm-aside", SMALL, (left + 8.0, y + LABEL_LINE), right - left - 16.0, words.trim());
        }
    }

    fn is_wrong(&self, mapping: &Mapping) -> bool {
        self.map.remarks.iter().any(|r| r.severity == Severity::Problem && r.va == mapping.va)
    }

    /// The axis with an address at each edge, and a zigzag where a gap is drawn shorter than it is.
    fn axis(&mut self, scale: &Scale<'_>) {
        for index in 0..self.rows.len() {
            let (top, bottom) = scale.row(index);
            let middle = (top + bottom) / 2.0;
            let path = match scale.is_broken(index) {
                true => format!("M{AXIS} {top:.1}V{:.1}l-5 2l10 4l-10 4l5 2V{bottom:.1}", middle - 6.0),
                false => format!("M{AXIS} {top:.1}V{bottom:.1}"),
            };
            let _ = writeln!(self.out, "<path class=\"vm-line\" d=\"{path}\"/>");
        }
        let starts = self.rows.iter().map(|row| row.start);
        let edges: Vec<u64> = starts.chain(self.rows.last().map(|row| row.end)).collect();
        for address in edges {
            // The last edge may be the largest number, at which no row begins.
            let y = if self.rows.last().is_some_and(|row| row.end == address) {
                scale.bottom()
            } else {
                scale.y(address)
            };
            let _ = writeln!(self.out, "<path class=\"vm-line\" d=\"M{} {y:.1}H{LEFT}\"/>", AXIS - 4.0);
            let mark = self.marks.iter().find(|mark| mark.address == address);
            let class = mark.map_or("vm-text", |mark| if mark.is_pc { "vm-pc-text" } else { "vm-mark-text" });
            self.text_before(class, (AXIS - 12.0, y + 4.0), &Hex(address).to_string());
        }
    }

    /// The labels at the right, not placed yet.
    fn labels(&self, scale: &Scale<'_>) -> Vec<Label> {
        let columns = room(WIDTH - MARGIN - (RIGHT + tracks_width() + 26.0), SMALL);
        let map = self.map;
        let mut labels = Vec::new();
        let mut bracket = |class, what: &str, name: &str, start: u64, end: u64| {
            let len = size(end.saturating_sub(start));
            let text = format!("{what} {name}, {len}, from {} to {}", Hex(start), Hex(end));
            let lines =
                vec![fit(&format!("{} {what}", tooltip(name)), columns), format!("{len} at {}", Hex(start))];
            let (from, to) = (scale.y(start), scale.y(end));
            labels.push(Label { class, lines, tooltip: text, from, to, track: Some(0), mark: None, y: 0.0 });
        };
        for window in map.windows.iter().take(MAX_BRACKETS) {
            bracket("vm-window", "window", &window.name, window.base.0, window.end());
        }
        for range in map.reservations.iter().take(MAX_BRACKETS) {
            bracket("vm-reserved", "(reserved)", &range.name, range.va.0, range.end());
        }
        for range in map.regions.iter().take(MAX_BRACKETS) {
            bracket("vm-region", "region", &range.name, range.va.0, range.end());
        }
        for (index, mark) in self.marks.iter().enumerate() {
            let at = Hex(mark.address);
            let mut lines = vec![if mark.is_pc { format!("pc {at}") } else { format!("fault at {at}") }];
            lines.extend(wrap(&mark.text, columns, 4));
            let y = scale.y(mark.address);
            let class = if mark.is_pc { "vm-pc" } else { "vm-mark" };
            let tooltip = format!("{}: {}", lines[0], mark.text);
            let mark = Some(index);
            labels.push(Label { class, lines, tooltip, from: y, to: y, track: None, mark, y: 0.0 });
        }
        labels
    }

    fn label(&mut self, label: &Label) {
        let Label { class, from, to, y, .. } = *label;
        let x = RIGHT + tracks_width() + 22.0;
        let middle = y + label.height() / 2.0;
        let tip = Text(&tooltip(&label.tooltip)).to_string();
        match label.track {
            Some(track) => {
                let at = RIGHT + track_x(track);
                let to = to.max(from + 2.0);
                // The leader leaves the bracket at the height of the label, if it reaches there.
                let leave = middle.clamp(from, to);
                let _ = writeln!(
                    self.out,
                    "<path class=\"{class}-line\" d=\"M{:.1} {from:.1}H{at:.1}V{to:.1}H{:.1}\"><title>{tip}</title></path>\n\
                     <path class=\"vm-line\" d=\"M{at:.1} {leave:.1}L{:.1} {middle:.1}H{:.1}\"/>",
                    at - 4.0,
                    at - 4.0,
                    x - 10.0,
                    x - 4.0
                );
            }
            // Beside the boxes: a line across them would cross out their text.
            None => {
                let _ = writeln!(
                    self.out,
                    "<path class=\"{class}-line\" d=\"M{AXIS} {from:.1}H{LEFT}M{RIGHT} {from:.1}H{:.1}L{:.1} {middle:.1}H{:.1}\">\
                     <title>{tip}</title></path>\n<path class=\"{class}-fill\" d=\"M{} {from:.1}l-9-5v10z\"/>",
                    RIGHT + 6.0,
                    x - 10.0,
                    x - 4.0,
                    AXIS + 3.0
                );
            }
        }
        let mark = label.mark.filter(|_| self.is_first);
        let link = label.mark.and_then(|index| self.marks[index].link.as_ref());
        let id = mark.map_or(String::new(), |index| format!(" id=\"mark-{index}\""));
        let (start, end) = match link {
            Some(link) => (format!("<a{id} href=\"{}\">", Text(link)), "</a>"),
            None => (format!("<g{id}>"), "</g>"),
        };
        let is_grouped = label.mark.is_some();
        if is_grouped {
            self.out += &start;
        }
        for (index, line) in label.lines.iter().enumerate() {
            let text_class = if index == 0 { format!("{class}-text") } else { "vm-text".to_owned() };
            let at = (x, y + LABEL_LINE * (index as f64 + 1.0) - 3.0);
            self.text(&text_class, SMALL, at, WIDTH - MARGIN - x, line);
        }
        if is_grouped {
            let _ = writeln!(self.out, "{end}");
        }
    }

    /// Draws the legend of colours, patterns and lines from `top` on; returns where the picture ends.
    fn legend(&mut self, placed: &[Placed], top: f64) -> f64 {
        /// Width of an entry.
        const ENTRY: f64 = 360.0;
        let marked = Marked {
            faults: self.marks.iter().any(|mark| !mark.is_pc),
            program_counters: self.marks.iter().any(|mark| mark.is_pc),
        };
        let swatches = swatches(self.map, self.rows, placed, marked);
        let mut y = top;
        for (index, swatch) in swatches.iter().enumerate() {
            let x = MARGIN + ENTRY * (index % 2) as f64;
            y = top + 22.0 * (index / 2) as f64;
            self.rectangle(swatch.class, swatch.pattern, (x, x + 26.0, y, y + 16.0), swatch.text);
            self.text("vm-text", SMALL, (x + 34.0, y + 12.0), ENTRY - 40.0, swatch.text);
        }
        let mut notes = vec!["In a box the axis is linear; heights grow with the logarithm of the size. A zigzag marks a gap drawn shorter still.".to_owned()];
        let brackets = [self.map.windows.len(), self.map.reservations.len(), self.map.regions.len()];
        let left_out: usize = brackets.iter().map(|n| n.saturating_sub(MAX_BRACKETS)).sum();
        if left_out > 0 {
            notes.push(format!(
                "Without a bracket: {}.",
                counted(left_out as u64, "more window, reservation or region")
            ));
        }
        y += 8.0;
        let columns = room(WIDTH - 2.0 * MARGIN, SMALL);
        for line in notes.iter().flat_map(|note| wrap(note, columns, 2)) {
            y += LABEL_LINE;
            self.text("vm-aside", SMALL, (MARGIN, y + 14.0), WIDTH - 2.0 * MARGIN, &line);
        }
        y + 28.0
    }
}
