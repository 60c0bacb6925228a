//! Other users of the GPU.

use std::str::FromStr;

/// Other users of the GPU.
///
/// Alone, a group keeps the engine as long as it has work: a kernel that does not end is never reported.
/// Beside a desktop the engine is to leave the group after each time slice, and a context switch that takes
/// too long stops the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Session {
    /// Nothing.
    #[default]
    Headless,
    /// A desktop that always has a frame to draw, which takes no time.
    Desktop,
    /// A desktop whose frame comes due once in each grid, after that many of its blocks have started: the
    /// moment that a grid whose blocks wait for each other does not survive under preemption between blocks.
    DesktopAfterBlocks(u64),
}

impl Session {
    /// Values that [`from_str`](Self::from_str) takes.
    pub const EXPECTED: &'static str = "headless, desktop, or desktop:N with a number of blocks";
}

/// The text means no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", Session::EXPECTED)]
pub struct UnknownSession;

impl FromStr for Session {
    type Err = UnknownSession;

    fn from_str(text: &str) -> Result<Self, UnknownSession> {
        match text {
            "headless" => Ok(Self::Headless),
            "desktop" => Ok(Self::Desktop),
            _ => {
                let blocks = text.strip_prefix("desktop:").and_then(|blocks| blocks.parse().ok());
                blocks.map(Self::DesktopAfterBlocks).ok_or(UnknownSession)
            }
        }
    }
}
