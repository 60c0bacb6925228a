//! Values of more than 32 bits, which methods take in halves.

use nv_hw::class::Method;

/// The half of an address (or of a size) that precedes the other half.
#[derive(Clone, Copy, Debug)]
pub(super) struct Half {
    pub subchannel: u8,
    pub method: u32,
    pub known: &'static Method,
    pub value: u32,
}

impl Half {
    /// Whether it is the upper half; `None` for a method that is half of nothing.
    fn is_upper(self) -> Option<bool> {
        let [field] = self.known.fields else { return None };
        let is = |word: &str, end: &str| field.name.contains(word) || self.known.name.ends_with(end);
        if is("UPPER", "_HI") {
            return Some(true);
        }
        (is("LOWER", "_LO") || self.known.name.ends_with("WINDOW_B")).then_some(false)
    }

    /// Returns the common part of the names of the two halves.
    fn stem(self) -> String {
        let name = self.known.name.replace("UPPER", "").replace("LOWER", "");
        let ends = ["_A", "_B", "_LO", "_HI"];
        ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name).to_owned()
    }
}

/// The value of two halves, if they are those of one.
pub(super) fn whole(before: Half, now: Half) -> Option<u64> {
    if before.subchannel != now.subchannel || before.method + 4 != now.method {
        return None;
    }
    let (upper, lower) = match (before.is_upper()?, now.is_upper()?) {
        (true, false) => (before, now),
        (false, true) => (now, before),
        _ => return None,
    };
    if before.stem() != now.stem() {
        return None;
    }
    Some(u64::from(upper.value) << 32 | u64::from(lower.value))
}
