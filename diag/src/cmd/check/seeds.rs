//! Ranges of seeds.

use std::str::FromStr;

/// Most runs.
const MOST: u64 = 10_000;

/// Seeds from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    first: u64,
    last: u64,
}

impl Seeds {
    /// Each of them.
    pub fn each(self) -> impl Iterator<Item = u64> {
        self.first..=self.last
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = text.split_once("..").and_then(|(first, last)| {
            let last = last.strip_prefix('=').unwrap_or(last);
            Some(Self { first: first.parse().ok()?, last: last.parse().ok()? })
        });
        let is_range = |seeds: &Self| seeds.first <= seeds.last && seeds.last - seeds.first < MOST;
        range
            .filter(is_range)
            .ok_or_else(|| format!("expected the first and the last of at most {MOST} seeds, as in 1..8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_range_are_in_it() {
        let seeds = |text: &str| text.parse::<Seeds>().map(|seeds| seeds.each().collect::<Vec<_>>());
        assert_eq!(seeds("1..3"), Ok(vec![1, 2, 3]));
        assert_eq!(seeds("7..=7"), Ok(vec![7]));
        for text in ["", "3", "3..1", "a..b", "..4", "0..18446744073709551615"] {
            assert!(seeds(text).is_err(), "{text}");
        }
    }
}
