//! The order of a head's values in device memory.

/// A head as it is on a device. Pairs are neighbours: kernels rotate the values 2j and 2j + 1, where a file may have
/// j and j + half the rotating length as a pair. Its length is a multiple of 8, by zeros behind its values.
///
/// Rows of query, key and value projections, their biases and the weights of norms are read in this order.
/// Scores are sums over the values of a head, so neither order nor zeros change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadOrder {
    /// Values of a head in the file.
    pub head_dim: usize,
    /// Values of a head on the device, at least as many.
    pub padded: usize,
    /// Leading values of which the file has halves together; even.
    pub halves: usize,
}

impl HeadOrder {
    /// The place in the file of value `index` of all heads; `None` for a zero.
    pub fn source(self, index: usize) -> Option<usize> {
        let (head, within) = (index / self.padded, index % self.padded);
        let from = match within < self.halves {
            true => within / 2 + within % 2 * (self.halves / 2),
            false => within,
        };
        (within < self.head_dim).then_some(head * self.head_dim + from)
    }

    /// The number of values that `values` values of the file are on the device.
    pub fn count(self, values: usize) -> usize {
        values / self.head_dim * self.padded
    }

    /// `values` of whole heads in this order.
    pub fn apply(self, values: &[f32]) -> Vec<f32> {
        let value = |i| self.source(i).map_or(0.0, |from| values[from]);
        (0..self.count(values.len())).map(value).collect()
    }
}

/// The values of each head that do not rotate, behind those that do, and their factor.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// Values of a head on the device.
    pub head_dim: usize,
    /// Leading values that rotate.
    pub rope_dim: usize,
    /// The factor.
    pub factor: f32,
}

impl Tail {
    /// Whether value `index` of all heads has the factor.
    pub fn has(self, index: usize) -> bool {
        index % self.head_dim >= self.rope_dim
    }

    /// Multiplies the values of whole heads that have the factor.
    pub fn apply(self, values: &mut [f32]) {
        let still = values.iter_mut().enumerate().filter(|(index, _)| self.has(*index));
        still.for_each(|(_, value)| *value *= self.factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_become_neighbours_and_the_rest_stays() {
        let order = HeadOrder { head_dim: 6, padded: 6, halves: 4 };
        let values: Vec<f32> = (0..12u8).map(f32::from).collect();
        assert_eq!(order.apply(&values), [0.0, 2.0, 1.0, 3.0, 4.0, 5.0, 6.0, 8.0, 7.0, 9.0, 10.0, 11.0]);
    }

    #[test]
    fn short_heads_end_with_zeros() {
        let order = HeadOrder { head_dim: 4, padded: 8, halves: 4 };
        let values: Vec<f32> = (1..9u8).map(f32::from).collect();
        let wanted = [1.0, 3.0, 2.0, 4.0, 0.0, 0.0, 0.0, 0.0, 5.0, 7.0, 6.0, 8.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(order.apply(&values), wanted);
    }
}
