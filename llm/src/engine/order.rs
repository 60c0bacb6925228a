//! The order of a head's values in device memory.

/// A head whose pairs are neighbours: kernels rotate the values 2j and 2j + 1, the file has j and j + half
/// the rotating length as a pair.
///
/// Rows of query and key projections, their biases and the weights of their norms are read in this order.
/// Scores are sums over the values of a head, so the order does not change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadOrder {
    /// Values of a head.
    pub head_dim: usize,
    /// Leading values that rotate; even.
    pub rope_dim: usize,
}

impl HeadOrder {
    /// The place in the file of value `index` of all heads.
    pub fn source(self, index: usize) -> usize {
        let (head, within) = (index / self.head_dim, index % self.head_dim);
        let from = match within < self.rope_dim {
            true => within / 2 + within % 2 * (self.rope_dim / 2),
            false => within,
        };
        head * self.head_dim + from
    }

    /// `values` of whole heads in this order.
    pub fn apply(self, values: &[f32]) -> Vec<f32> {
        (0..values.len()).map(|i| values[self.source(i)]).collect()
    }
}

/// The values of each head that do not rotate, behind those that do, and their factor.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// Values of a head.
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
        let order = HeadOrder { head_dim: 6, rope_dim: 4 };
        let values: Vec<f32> = (0..12u8).map(f32::from).collect();
        assert_eq!(order.apply(&values), [0.0, 2.0, 1.0, 3.0, 4.0, 5.0, 6.0, 8.0, 7.0, 9.0, 10.0, 11.0]);
    }
}
