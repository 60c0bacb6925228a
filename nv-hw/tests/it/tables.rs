//! The generated tables are what `tests/data/` says.
//!
//! `UPDATE=1 cargo test -p nv-hw --test it tables` writes them anew.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value};

const CLASSES: &str = include_str!("../data/class-methods.json");
const FAULTS: &str = include_str!("../data/fault-tables.json");

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("the data is JSON")
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// A name of a header as an identifier.
fn ident(name: &str) -> String {
    let digit = name.starts_with(|c: char| c.is_ascii_digit());
    format!("{}{name}", if digit { "_" } else { "" })
}

fn field((name, about): (&String, &Value)) -> String {
    let mut text = format!("{name} {}:{}", about["bits"][0], about["bits"][1]);
    let values = about["enum"].as_object().into_iter().flat_map(Map::iter);
    let values: Vec<String> = values.map(|(name, n)| format!("{} {n}", ident(name))).collect();
    if !values.is_empty() {
        write!(text, " ({})", values.join(", ")).unwrap();
    }
    text
}

/// The text of one class.
fn class(about: &Value) -> String {
    let (name, header) = (about["name"].as_str().unwrap(), about["source"].as_str().unwrap());
    let header = header.rsplit('/').next().unwrap();
    let kind = about["kind"].as_str().unwrap();
    let mut text = format!(
        "// @generated from tests/data/class-methods.json by tests/it/tables.rs.\n\n\
         //! Methods of `{name}`, from `{header}`.\n\n\
         use crate::class::method::class;\n\n\
         class! {{ {name} = {:#06x}, {}{}, \"{header}\";\n",
        number(&about["id"]),
        kind[..1].to_uppercase(),
        &kind[1..],
    );
    let mut methods: Vec<_> = object(&about["methods"]).collect();
    methods.sort_by_key(|(_, method)| number(&method["offset"]));
    for (name, method) in methods {
        write!(text, "    {name} = {:#06x}", number(&method["offset"])).unwrap();
        if let Some(stride) = method.get("stride") {
            write!(text, " + {stride}").unwrap();
        }
        let fields: Vec<String> = object(&method["fields"]).map(field).collect();
        if !fields.is_empty() {
            write!(text, " {{ {} }}", fields.join("; ")).unwrap();
        }
        text.push('\n');
    }
    text + "}\n"
}

fn check(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, text).expect("the table can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("the table can be read");
    assert!(text == committed, "{} is not what the data says: see tests/it/tables.rs", path.display());
}

#[test]
fn the_methods_are_generated_from_the_data() {
    for about in json(CLASSES)["classes"].as_object().expect("classes").values() {
        check(&format!("src/class/c{:x}.rs", number(&about["id"]) & 0xfff), &class(about));
    }
}

/// Numbers and their names.
type Rows = Vec<(u64, String)>;

/// A module of numbers, from the generated file that holds it.
struct Codes {
    module: &'static str,
    about: &'static str,
    rows: Vec<(u64, String, Option<String>)>,
    texts: Vec<(&'static str, &'static str, Rows)>,
}

impl Codes {
    fn new(module: &'static str, about: &'static str, rows: impl Iterator<Item = (u64, String)>) -> Self {
        let mut codes = Self { module, about, rows: Vec::new(), texts: Vec::new() };
        for (number, name) in rows {
            // Of two names of one number the driver prints the last.
            codes.rows.retain(|(known, ..)| *known != number);
            codes.rows.push((number, name, None));
        }
        codes
    }

    /// With the chips that have each, where `rows` say so.
    fn of(mut self, rows: &Value) -> Self {
        for ((_, _, about), row) in self.rows.iter_mut().zip(rows.as_array().unwrap()) {
            let chips: Vec<_> =
                row["generations"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            *about = Some(if chips.is_empty() {
                "of Fermi".to_owned()
            } else {
                format!("of {}", chips.join(", "))
            });
        }
        self
    }

    fn with(
        mut self,
        name: &'static str,
        doc: &'static str,
        texts: impl Iterator<Item = (u64, String)>,
    ) -> Self {
        self.texts.push((name, doc, texts.collect()));
        self
    }

    fn render(&self) -> String {
        let mut text =
            format!("\n/// {}\npub mod {} {{\n    crate::names::names! {{\n", self.about, self.module);
        for (number, name, about) in &self.rows {
            let about = about.as_ref().map(|about| format!(" {about:?}")).unwrap_or_default();
            writeln!(text, "        {} = {number:#x}{about},", ident(name)).unwrap();
        }
        for (name, doc, rows) in &self.texts {
            write!(text, "        ;\n        /// {doc}\n        {name} {{\n").unwrap();
            for (number, row) in rows {
                writeln!(text, "            {number:#x} {row:?},").unwrap();
            }
            text.push_str("        }\n");
        }
        text + "    }\n}\n"
    }
}

/// Rows of an array of objects: the number under `key`, the text under `name` where there is one.
fn rows<'a>(list: &'a Value, key: &'a str, name: &'a str) -> impl Iterator<Item = (u64, String)> + 'a {
    let list = list.as_array().expect("an array").iter();
    list.filter_map(move |row| Some((row[key].as_u64()?, row[name].as_str()?.to_owned())))
}

/// Rows of an object from numbers to names.
fn pairs(names: &Value) -> impl Iterator<Item = (u64, String)> + '_ {
    object(names).map(|(number, name)| (number.parse().expect("a number"), name.as_str().unwrap().to_owned()))
}

/// Flags of an exception register of the front end; the other fields say which engine, or are controls.
fn flags(register: &Value) -> impl Iterator<Item = (u64, String)> + '_ {
    let flag = |row: &&Value| row["bits"][0] == row["bits"][1];
    let rows = register["bits"].as_array().unwrap().iter().filter(flag);
    let rows = rows.map(|row| (number(&row["bits"][0]), row["name"].as_str().unwrap().to_owned()));
    rows.filter(|(_, name)| !["RESET", "EN", "FEPIPE"].contains(&name.as_str()))
}

/// A text as a name: capitals, digits and underscores; of two names of a unit the first.
fn name((number, text): (u64, String)) -> (u64, String) {
    let text = text.split('/').next().unwrap_or_default();
    (number, text.to_uppercase().replace(' ', "_"))
}

fn sm(facts: &Value) -> Vec<Codes> {
    let (warp, global) = (&facts["sm"]["warp_esr"]["codes"], &facts["sm"]["global_esr"]["bits"]);
    vec![
        Codes::new(
            "warp_esr",
            "Error codes of a warp: `HWW_WARP_ESR` bits 15:0.",
            rows(warp, "value", "name"),
        )
        .of(warp)
        .with(
            "XID_TEXTS",
            "As the desktop driver prints them in Xid 13.",
            rows(warp, "value", "xid13_text"),
        ),
        Codes::new(
            "global_esr",
            "Bits of an SM's `HWW_GLOBAL_ESR`, by their numbers.",
            rows(global, "bit", "name"),
        )
        .of(global),
    ]
}

fn mmu(facts: &Value) -> Vec<Codes> {
    let facts = &facts["mmu_fault"];
    let (types, accesses) = (&facts["fault_types"], &facts["access_types"]);
    let short = rows(types, "value", "xid31").map(|(n, name)| (n, name.replacen("FAULT_", "", 1)));
    let named = || rows(accesses, "value", "nvgpu").filter(|(_, text)| text != "xxx");
    let older = rows(types, "value", "nvgpu_gv11b").zip(rows(types, "value", "nvgpu_ga10b"));
    vec![
        Codes::new("fault_type", "Fault types of the MMU: `NV_PFAULT_FAULT_TYPE`.", short)
            .with("TEXTS", "As nvgpu prints them for ga10b.", rows(types, "value", "nvgpu_ga10b"))
            .with(
                "TEXTS_GV11B",
                "Those that nvgpu prints otherwise for gv11b.",
                older.filter(|(old, new)| old != new).map(|(old, _)| old),
            )
            .with("XID_TEXTS", "As the desktop driver prints them in Xid 31.", rows(types, "value", "xid31")),
        Codes::new("access_type", "Access types of the MMU: `NV_PFAULT_ACCESS_TYPE`.", named().map(name))
            .with("TEXTS", "As nvgpu prints them.", named()),
        Codes::new(
            "hub_client",
            "Units of the hub that access memory, by their number on ga10b.",
            pairs(&facts["hub_clients_ga10b"]).map(name),
        )
        .with("TEXTS", "As nvgpu prints them for ga10b.", pairs(&facts["hub_clients_ga10b"])),
        Codes::new(
            "gpc_client",
            "Units of a GPC that access memory, by their number on ga10b: `t1_n` is SM `n & 1` of TPC `n >> 1` (inferred from unit counts).",
            pairs(&facts["gpc_clients_ga10b"]).map(name),
        )
        .with("TEXTS", "As nvgpu prints them for ga10b.", pairs(&facts["gpc_clients_ga10b"])),
    ]
}

fn host(facts: &Value) -> Vec<Codes> {
    let facts = &facts["host"];
    let launch = object(facts).find(|(key, _)| key.starts_with("ce_launcherr")).expect("launch errors").1;
    let status = object(facts).find(|(key, _)| key.starts_with("ce_intr_status")).expect("interrupts").1;
    let intr_0 = &facts["pbdma_intr_0"];
    vec![
        Codes::new(
            "pbdma_intr_0",
            "Bits of the pushbuffer unit's interrupt register `INTR_0` that ga10b reports, by their numbers.",
            rows(intr_0, "bit", "ga10b_name").map(name),
        )
        .with("TEXTS", "All bits as nvgpu prints them.", rows(intr_0, "bit", "log_name")),
        Codes::new(
            "pbdma_intr_1",
            "Bits of the pushbuffer unit's interrupt register `INTR_1`, by their numbers.",
            rows(&facts["pbdma_intr_1"], "bit", "name").map(name),
        )
        .with("TEXTS", "As nvgpu's header names them.", rows(&facts["pbdma_intr_1"], "bit", "name")),
        Codes::new(
            "ce_intr",
            "Bits of a copy engine's interrupt register, by their numbers.",
            object(status).map(|(text, bit)| name((number(bit), text.clone()))),
        ),
        Codes::new("ce_launch_error", "Launch errors of a copy engine: `NV_CE_LAUNCHERR`.", pairs(launch)),
    ]
}

fn front_end(facts: &Value) -> Vec<Codes> {
    let facts = &facts["gr"];
    vec![
        Codes::new(
            "fe_esr",
            "Bits of the front end's exception register, by their numbers.",
            flags(&facts["fe_hww_esr"]),
        ),
        Codes::new(
            "mme_esr",
            "Bits of the macro engine's exception register, by their numbers.",
            flags(&facts["mme_hww_esr"]),
        ),
        Codes::new(
            "memfmt_esr",
            "Bits of the memory-format unit's exception register, by their numbers.",
            flags(&facts["memfmt_hww_esr"]),
        ),
        Codes::new("class_error", "Codes of class errors.", pairs(&facts["class_error_codes"]["codes"])),
    ]
}

fn driver(facts: &Value) -> Vec<Codes> {
    let xids = pairs(&facts["xid"]).map(|(number, text)| {
        let text = text.split('(').next().unwrap_or_default();
        (number, text.trim_start_matches("ROBUST_CHANNEL_").to_owned())
    });
    let pri = facts["pri_errors"]["codes"].as_array().expect("an array").iter().map(|row| {
        let code = row["code"].as_str().unwrap().trim_start_matches("0x");
        (u64::from_str_radix(code, 16).unwrap(), row["name"].as_str().unwrap().to_owned())
    });
    vec![
        Codes::new(
            "notifier",
            "Codes of a channel's error notifier under nvgpu.",
            rows(&facts["error_notifiers"], "uapi", "name"),
        ),
        Codes::new("xid", "Numbers of the desktop driver's error lines (Xid).", xids),
        Codes::new("pri_error", "Error codes that reads of registers return, bits 31:8.", std::iter::empty())
            .with("TEXTS", "As nvgpu prints them.", pri),
    ]
}

#[test]
fn the_codes_are_generated_from_the_data() {
    let facts = json(FAULTS);
    for (file, source, codes) in [
        (
            "sm",
            "the register headers of nvgpu, L4T r36.4.3; other chips from nvgpu's and nouveau's",
            sm(&facts),
        ),
        (
            "mmu",
            "`fb_mmu` and `pfault` headers of nvgpu, L4T r36.4.3, and of the open GPU kernel modules",
            mmu(&facts),
        ),
        ("host", "the register headers of nvgpu, L4T r36.4.3", host(&facts)),
        (
            "front_end",
            "NVIDIA's manuals of GA100, inferred for ga10b; class errors from envytools",
            front_end(&facts),
        ),
        ("driver", "nvgpu, L4T r36.4.3, and the open GPU kernel modules 595.45.04", driver(&facts)),
    ] {
        let mut text = format!(
            "// @generated from tests/data/fault-tables.json by tests/it/tables.rs.\n\n//! Source: {source}.\n"
        );
        text.extend(codes.iter().map(Codes::render));
        check(&format!("src/fault/{file}.rs"), &text);
    }
}
