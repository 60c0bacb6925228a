//! Knowledge of a participant of the others' accesses: a vector clock.

/// Participants from this number on are few and far between.
const SPARSE: u32 = 1 << 24;

/// Knowledge of a participant: the clock of others up to which their accesses happened before its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge {
    /// By the number of the participant.
    dense: Vec<u32>,
    /// Of those from [`SPARSE`] on.
    sparse: Vec<(u32, u32)>,
}

impl Knowledge {
    /// Adds the accesses of `id` up to a clock.
    pub fn raise(&mut self, id: u32, clock: u32) {
        if id < SPARSE {
            let at = id as usize;
            if self.dense.len() <= at {
                self.dense.resize(at + 1, 0);
            }
            self.dense[at] = self.dense[at].max(clock);
        } else {
            match self.sparse.iter_mut().find(|(other, _)| *other == id) {
                Some((_, known)) => *known = (*known).max(clock),
                None => self.sparse.push((id, clock)),
            }
        }
    }

    /// The clock up to which the accesses of `id` are known; 0 if none is.
    #[inline]
    pub fn of(&self, id: u32) -> u32 {
        match id < SPARSE {
            true => self.dense.get(id as usize).copied().unwrap_or(0),
            false => self.sparse.iter().find(|(other, _)| *other == id).map_or(0, |(_, known)| *known),
        }
    }

    /// Whether the accesses of `id` at a clock, from 1 on, are known.
    #[inline]
    pub fn has(&self, id: u32, clock: u32) -> bool {
        self.of(id) >= clock
    }

    /// Whether it has all that `other` has.
    pub fn includes(&self, other: &Knowledge) -> bool {
        other.dense.iter().enumerate().all(|(id, clock)| self.has(id as u32, *clock))
            && other.sparse.iter().all(|(id, clock)| self.has(*id, *clock))
    }

    /// Adds what `other` knows.
    pub fn join(&mut self, other: &Knowledge) {
        if self.dense.len() < other.dense.len() {
            self.dense.resize(other.dense.len(), 0);
        }
        for (own, theirs) in self.dense.iter_mut().zip(&other.dense) {
            *own = (*own).max(*theirs);
        }
        other.sparse.iter().for_each(|&(id, clock)| self.raise(id, clock));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn participants_with_large_numbers_are_known_too() {
        let (mut one, mut two) = (Knowledge::default(), Knowledge::default());
        one.raise(SPARSE | 7, 3);
        two.raise(SPARSE | 7, 2);
        two.raise(5, 1);
        two.join(&one);
        assert!(two.has(SPARSE | 7, 3) && !two.has(SPARSE | 7, 4) && !two.has(SPARSE | 8, 1));
        assert!(two.has(5, 1) && !one.has(5, 1));
        assert!(two.includes(&one) && !one.includes(&two));
    }
}
