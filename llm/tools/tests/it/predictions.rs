//! Predictions for an H100 beside measurements on one.

use ga10b_llm_tools::chips::Chip;
use ga10b_llm_tools::measured::{Measurements, compare, fit};
use ga10b_llm_tools::roofline::{Fitted, Machine};

/// Largest error of a prediction, in percent of what was measured.
const MOST_PERCENT: f64 = 10.0;
/// The same for steps of several sequences.
const MOST_PERCENT_OF_COLUMNS: f64 = 7.0;

fn measured() -> (Machine, Measurements) {
    let file = Measurements::from_json(include_str!("../../data/h100.json")).expect("a file of measurements");
    let chip: Chip = file.chip.parse().expect("a chip");
    (chip.machines().remove(0), file)
}

#[test]
fn predictions_for_an_h100_are_within_the_error_that_the_docs_promise() {
    let (machine, file) = measured();
    for row in compare(&machine, &file.points) {
        assert!(row.error_percent.abs() <= MOST_PERCENT, "{row:?}");
    }
}

#[test]
fn predictions_of_several_sequences_are_within_the_error_that_the_docs_promise() {
    let file = Measurements::of_h100_columns().expect("a file of measurements");
    let chip: Chip = file.chip.parse().expect("a chip");
    let rows = compare(&file.machine(chip.machines().remove(0)), &file.points);
    assert_eq!(rows.iter().filter_map(|row| row.columns).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32]);
    for row in rows {
        assert!(row.error_percent.abs() <= MOST_PERCENT_OF_COLUMNS, "{row:?}");
    }
}

#[test]
fn the_constants_in_use_fit_the_measurements_as_well_as_any() {
    let (machine, file) = measured();
    let squares = |fitted: Fitted| -> f64 {
        let rows = compare(&machine.clone().with(fitted), &file.points);
        rows.iter().map(|row| row.error_percent.powi(2)).sum()
    };
    let (used, best) = (squares(Fitted::DEFAULT), squares(fit(&machine, &file.points)));
    assert!(used <= 1.1 * best, "{used} with the constants in use, {best} with those of a fit");
}

#[test]
fn the_docs_show_the_constants_in_use() {
    let docs = include_str!("../../../../docs/performance.md");
    let Fitted { share, ipc, attention_ipc, exchange_cycles, launch_us } = Fitted::DEFAULT;
    let constants = [
        ("share", share),
        ("ipc", ipc),
        ("attention-ipc", attention_ipc),
        ("exchange-cycles", exchange_cycles),
        ("launch-us", launch_us),
    ];
    for (name, value) in constants {
        assert!(docs.contains(&format!("| `{name}` | {value} |")), "docs/performance.md: not {name} {value}");
    }
}
