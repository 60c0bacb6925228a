//! Text that fits where it stands, in a font whose characters are all equally wide.

/// Width of a character, as a part of the font's size, in the widest of the fonts that the picture names.
pub(super) const ADVANCE: f64 = 0.61;
/// Longest tooltip, in characters.
const TOOLTIP: usize = 300;

/// Columns that a text takes.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(wide).sum()
}

/// Columns of a character: Latin letters take one, what another font may have to draw takes two. So does a control
/// character, in whose place U+FFFD is drawn.
fn wide(c: char) -> usize {
    if (c < '\u{250}' && !c.is_control()) || c == '…' { 1 } else { 2 }
}

/// As much of a text as fits into some columns, with an ellipsis where that is not all.
pub(super) fn fit(text: &str, most: usize) -> String {
    // A name may be as long as a file: what cannot fit is not measured.
    if text.len() <= most.saturating_mul(4) && columns(text) <= most {
        return text.to_owned();
    }
    let mut left = most.saturating_sub(1);
    let mut short: String = text
        .chars()
        .take_while(|c| {
            let fits = wide(*c) <= left;
            left = left.saturating_sub(wide(*c));
            fits
        })
        .collect();
    if most > 0 {
        short.push('…');
    }
    short
}

/// A text as lines of some columns, cut after `lines` of them.
pub(super) fn wrap(text: &str, most: usize, lines: usize) -> Vec<String> {
    let mut wrapped: Vec<String> = Vec::new();
    let text: String = text.chars().take(most * (lines + 1)).collect();
    for word in text.split_whitespace() {
        let is_full = wrapped.len() == lines;
        match wrapped.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= most => *line = format!("{line} {word}"),
            Some(line) if is_full => {
                *line = format!("{} …", fit(line, most.saturating_sub(2)));
                return wrapped;
            }
            _ => wrapped.push(fit(word, most)),
        }
    }
    wrapped
}

/// A tooltip: whole, unless it is as long as a book.
pub(super) fn tooltip(text: &str) -> String {
    let mut short: String = text.chars().take(TOOLTIP).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_where_its_room_ends() {
        assert_eq!(fit("weights", 7), "weights");
        assert_eq!(fit("weights", 6), "weigh…");
        assert_eq!(fit("重み行列", 5), "重み…");
        assert_eq!(fit("a\0b\u{7f}", 5), "a\0b…");
        assert_eq!(fit("weights", 0), "");
        assert_eq!(wrap("a fault of the MMU", 8, 2), ["a fault", "of the …"]);
        assert_eq!(wrap("one two", 20, 2), ["one two"]);
        assert_eq!(wrap("", 20, 2), [""; 0]);
        assert_eq!(columns(&tooltip(&"x".repeat(1 << 20))), TOOLTIP + 1);
    }
}
