//! Stop strings: a text ends before the first of them, and no part of one is passed on.

/// Finds stop strings in a text that comes in pieces. Where the pieces end makes no difference.
#[derive(Debug)]
pub struct Stops {
    stops: Vec<String>,
    /// The end of the text, which may be the beginning of a stop string.
    held: String,
    stopped: bool,
}

impl Stops {
    /// None of `stops` may be empty.
    pub fn new(stops: Vec<String>) -> Self {
        debug_assert!(stops.iter().all(|stop| !stop.is_empty()), "an empty string is everywhere");
        Self { stops, held: String::new(), stopped: false }
    }

    /// Whether the text has ended.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// The text that `piece` makes certain: all but what may begin a stop string. Empty after the end.
    pub fn push(&mut self, piece: &str) -> String {
        let mut certain = String::new();
        for c in piece.chars() {
            if self.stopped {
                break;
            }
            self.held.push(c);
            // The first that is complete ends the text; of several with one end the longest.
            let ends = self.stops.iter().filter(|stop| self.held.ends_with(*stop)).map(String::len).max();
            if let Some(length) = ends {
                self.stopped = true;
                certain.push_str(&self.held[..self.held.len() - length]);
                self.held.clear();
                break;
            }
            let kept = self.may_begin();
            let text = self.held.len() - kept;
            certain.extend(self.held.drain(..text));
        }
        certain
    }

    /// Bytes that are held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The rest, for a text that ends otherwise.
    pub fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes of the longest end of the text that begins a stop string.
    fn may_begin(&self) -> usize {
        let starts = self.held.char_indices().map(|(at, _)| &self.held[at..]);
        let begins = |end: &&str| self.stops.iter().any(|stop| stop.starts_with(*end));
        starts.clone().find(begins).map_or(0, str::len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut found = Stops::new(stops.iter().map(|s| (*s).to_owned()).collect());
        let mut text: String = pieces.iter().map(|piece| found.push(piece)).collect();
        let stopped = found.stopped();
        text.push_str(&found.rest());
        (text, stopped)
    }

    #[test]
    fn a_text_ends_before_a_stop_string_over_several_pieces() {
        assert_eq!(pieces(&["\n\n"], &["one\n", "two\n", "\nthree"]), ("one\ntwo".into(), true));
        assert_eq!(pieces(&["END"], &["E", "N", "EN", "D!"]), ("EN".into(), true));
        assert_eq!(pieces(&["END"], &["the EN"]), ("the EN".into(), false));
        assert_eq!(pieces(&["é"], &["caf", "é!"]), ("caf".into(), true));
        assert_eq!(pieces(&["bc", "abcd"], &["xabcd"]), ("xa".into(), true));
        assert_eq!(pieces(&["c", "bc"], &["abc"]), ("a".into(), true));
        assert_eq!(pieces(&[], &["abc"]), ("abc".into(), false));
    }

    #[test]
    fn what_may_begin_a_stop_string_is_held_back_and_no_more() {
        let mut stops = Stops::new(vec!["aab".into()]);
        assert_eq!(stops.push("xa"), "x");
        assert_eq!(stops.push("a"), "");
        assert_eq!(stops.push("a"), "a");
        assert_eq!(stops.push("c"), "aac");
        assert_eq!(stops.push("aab more"), "");
        assert!(stops.stopped());
    }

    /// The definition: the end of the text is the first place where a stop string is complete.
    fn model(stops: &[String], text: &str) -> (String, bool) {
        for (at, c) in text.char_indices() {
            let before = &text[..at + c.len_utf8()];
            let longest = stops.iter().filter(|stop| before.ends_with(*stop)).map(String::len).max();
            if let Some(length) = longest {
                return (before[..before.len() - length].to_owned(), true);
            }
        }
        (text.to_owned(), false)
    }

    proptest! {
        #[test]
        fn the_pieces_make_no_difference(
            stops in prop::collection::vec("[abé]{1,4}", 0..4),
            pieces in prop::collection::vec("[abcé]{0,5}", 0..8),
        ) {
            let mut found = Stops::new(stops.clone());
            let mut text = String::new();
            for piece in &pieces {
                text.push_str(&found.push(piece));
                // Nothing is passed on that a stop string could still take back.
                prop_assert!(model(&stops, &pieces.concat()).0.starts_with(&text));
            }
            let stopped = found.stopped();
            text.push_str(&found.rest());
            prop_assert_eq!((text, stopped), model(&stops, &pieces.concat()));
        }
    }
}
