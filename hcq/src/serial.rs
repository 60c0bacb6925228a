//! Serial numbers: timeline values count modulo 2^64.
//!
//! They are compared by signed difference, as the hardware's circular acquire compares them.

/// Whether a timeline at `completed` has passed `value`.
pub(crate) fn reached(completed: u64, value: u64) -> bool {
    completed.wrapping_sub(value) as i64 >= 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_compare_across_the_rollover() {
        assert!(reached(0, u64::MAX));
        assert!(!reached(u64::MAX, 0));
        assert!(reached(5, 5));
        assert!(!reached(u64::MAX - 1, u64::MAX));
    }

    proptest! {
        #[test]
        fn a_value_is_reached_by_itself_and_what_follows(value in any::<u64>(), ahead in 0u64..1 << 62) {
            prop_assert!(reached(value.wrapping_add(ahead), value));
            prop_assert_eq!(reached(value, value.wrapping_add(ahead)), ahead == 0);
        }
    }
}
