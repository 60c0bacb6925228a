//! Repetitions of a fault: count, first and last time, channels.

use serde::Serialize;

use crate::kernel_log::frame::Time;

/// Channels remembered of equal faults.
const MAX_CHANNELS: usize = 64;

/// Equal faults, folded into the report of the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repeats {
    /// Their number.
    pub count: u64,
    /// Time of the last one, in the unit of the first one's time.
    pub last_time_us: Option<u64>,
    /// Their channels, in order, the first 64 that were seen.
    pub channels: Vec<u32>,
    #[serde(skip)]
    first: Option<Time>,
    #[serde(skip)]
    last: Option<Time>,
}

impl Repeats {
    /// One fault.
    #[must_use]
    pub fn once(time: Option<Time>, channels: impl IntoIterator<Item = u32>) -> Self {
        let mut one = Self {
            count: 1,
            last_time_us: time.map(|t| t.micros),
            channels: Vec::new(),
            first: time,
            last: time,
        };
        one.add(channels);
        one
    }

    fn add(&mut self, channels: impl IntoIterator<Item = u32>) {
        for channel in channels {
            if let Err(at) = self.channels.binary_search(&channel)
                && self.channels.len() < MAX_CHANNELS
            {
                self.channels.insert(at, channel);
            }
        }
    }

    /// Adds later ones.
    pub fn absorb(&mut self, later: &Self) {
        self.count += later.count;
        self.last = later.last.or(self.last);
        self.last_time_us = self.last.map(|t| t.micros);
        self.add(later.channels.iter().copied());
    }

    /// Returns the time of the first one.
    #[must_use]
    pub fn first(&self) -> Option<Time> {
        self.first
    }

    /// `500 times, from 1.000000 s to 3.000000 s, channels 505 to 507`; `None` for one.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        if self.count < 2 {
            return None;
        }
        let mut text = format!("{} times", self.count);
        if let (Some(first), Some(last)) = (self.first, self.last) {
            text += &format!(", from {first} to {last}");
        }
        match self.channels.as_slice() {
            [] => {}
            [one] => text += &format!(", channel {one}"),
            [low, .., high] if (high - low) as usize + 1 == self.channels.len() => {
                text += &format!(", channels {low} to {high}");
            }
            all => {
                text +=
                    &format!(", channels {}", all.iter().map(u32::to_string).collect::<Vec<_>>().join(", "));
            }
        }
        Some(text)
    }
}
