//! The generated tables of fields, `src/table/v0*/fields.rs`, are what `tests/data/qmd-fields.json` says.
//!
//! `UPDATE=1 cargo test -p nv-qmd --test it tables` writes them anew.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value};

/// The text of one table.
fn render(module: &str, table: &Value) -> String {
    let mut rows: Vec<_> = table["fields"].as_object().expect("fields").iter().collect();
    rows.sort_by_key(|(_, row)| bits(row)[1].as_u64());
    let mut text = format!(
        "// @generated from tests/data/qmd-fields.json by tests/it/tables.rs.\n\n\
         use crate::table::field::fields;\n\n\
         fields! {{ {}, \"`{}`\";\n",
        module.to_uppercase(),
        table["header"].as_str().expect("the header's name")
    );
    for (name, row) in rows {
        let (hi, lo) = (&bits(row)[0], &bits(row)[1]);
        write!(text, "    {name} = [{hi}:{lo}").unwrap();
        if let (Some(count), Some(stride)) = (row.get("count"), row.get("stride")) {
            write!(text, "; {count} every {stride}").unwrap();
        }
        let mut values: Vec<_> = row.get("enum").and_then(Value::as_object).map_or(vec![], names);
        values.sort_by_key(|(_, number)| *number);
        let values: Vec<String> = values.iter().map(|(name, number)| format!(" {name} {number}")).collect();
        writeln!(text, "]{};", values.join(",")).unwrap();
    }
    text + "}\n"
}

fn bits(row: &Value) -> &[Value] {
    row.get("bits").or_else(|| row.get("base")).and_then(Value::as_array).expect("bits or base")
}

fn names(values: &Map<String, Value>) -> Vec<(&str, u64)> {
    values.iter().map(|(name, number)| (name.as_str(), number.as_u64().expect("a number"))).collect()
}

#[test]
fn the_tables_are_generated_from_the_data() {
    let data: Value =
        serde_json::from_str(include_str!("../data/qmd-fields.json")).expect("the data is JSON");
    for (module, layout) in [("v03", "QMDV03_00"), ("v04", "QMDV04_00")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/table/{module}/fields.rs"));
        let text = render(module, &data["layouts"][layout]);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &text).expect("the table can be written");
        }
        let committed = std::fs::read_to_string(&path).expect("the table can be read");
        assert!(text == committed, "{} is not what the data says: see tests/it/tables.rs", path.display());
    }
}
