//! Labels beside the boxes: brackets of regions, windows and reservations, and the labels of these and of
//! marks, moved apart where they would overlap.

/// Brackets that stand side by side.
const TRACKS: usize = 4;
/// Distance from one track to the next.
const TRACK: f64 = 9.0;
/// Height of a line of a label.
pub(super) const LABEL_LINE: f64 = 14.0;
/// Space between two labels.
const BETWEEN: f64 = 5.0;

/// A label, with its range.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Label {
    /// The class of its text and of its lines.
    pub(super) class: &'static str,
    /// Its lines.
    pub(super) lines: Vec<String>,
    /// The whole text.
    pub(super) tooltip: String,
    /// Place on the page that it points to: one for a mark, two for a bracket.
    pub(super) from: f64,
    pub(super) to: f64,
    /// The track of its bracket; none for a mark.
    pub(super) track: Option<usize>,
    /// The mark that it is of, by its index.
    pub(super) mark: Option<usize>,
    /// Upper edge of the text.
    pub(super) y: f64,
}

impl Label {
    /// Height of its lines.
    pub(super) fn height(&self) -> f64 {
        self.lines.len() as f64 * LABEL_LINE
    }
}

/// Distance of a track from the boxes.
pub(super) fn track_x(track: usize) -> f64 {
    8.0 + TRACK * track as f64
}

/// Width of all tracks.
pub(super) fn tracks_width() -> f64 {
    track_x(TRACKS)
}

/// Gives brackets their tracks and labels their places, from `top` downwards; the lower edge of the last.
pub(super) fn place(labels: &mut [Label], top: f64) -> f64 {
    labels.sort_by(|a, b| a.from.total_cmp(&b.from).then(b.to.total_cmp(&a.to)));
    let mut ends = [f64::MIN; TRACKS];
    for label in labels.iter_mut().filter(|label| label.track.is_some()) {
        let free = ends.iter().position(|end| *end <= label.from + 0.5).unwrap_or(TRACKS - 1);
        ends[free] = ends[free].max(label.to);
        label.track = Some(free);
    }
    // A label stands in the middle of its range, unless that is higher than a page.
    let middle = |l: &Label| (l.from + (l.to - l.from).min(60.0) / 2.0) - l.height() / 2.0;
    labels.sort_by(|a, b| middle(a).total_cmp(&middle(b)));
    let mut y = top;
    for label in labels.iter_mut() {
        label.y = middle(label).max(y);
        y = label.y + label.height() + BETWEEN;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(from: f64, to: f64) -> Label {
        let lines = vec!["one".to_owned(), "two".to_owned()];
        Label { class: "", lines, tooltip: String::new(), from, to, track: Some(0), mark: None, y: 0.0 }
    }

    #[test]
    fn labels_of_one_place_are_moved_apart() {
        let mut labels = vec![label(50.0, 60.0), label(40.0, 90.0), label(50.0, 60.0), label(95.0, 99.0)];
        let bottom = place(&mut labels, 10.0);
        assert!(labels.windows(2).all(|pair| pair[0].y + pair[0].height() < pair[1].y), "{labels:?}");
        assert!(labels.last().is_some_and(|last| last.y + last.height() < bottom));
        let tracks: Vec<_> = labels.iter().filter(|l| l.from < 95.0).map(|l| l.track).collect();
        assert_eq!(tracks.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    }
}
