//! Instructions with the names of the symbols they refer to, written as NVIDIA's disassembler writes them.

use std::collections::BTreeMap;

use hcq::cubin::{Part, Reference};

/// The text of an instruction whose address the loader fills in, or that calls or returns to a function of the
/// same section: the name stands in the place of the number. Other texts stay as they are.
#[must_use]
pub fn named(text: String, reference: Option<&Reference<'_>>, functions: &BTreeMap<u64, &str>) -> String {
    // The immediate or target is the last operand of all instructions that take an address, but for selects
    // of the predicate kind, which the compiler does not use so.
    let Some((start, operand)) = text.rfind([' ', ',']).map(|at| text.split_at(at + 1)) else { return text };
    if let Some(reference) = reference.filter(|reference| !reference.symbol.is_empty()) {
        if !is_number(operand) {
            return text;
        }
        let name = match reference.addend {
            0 => reference.symbol.to_owned(),
            addend => format!("{} + {addend:#x}", reference.symbol),
        };
        return match reference.part {
            Part::Low => format!("{start}32@lo({name})"),
            Part::High => format!("{start}32@hi({name})"),
            _ => format!("{start}`({name})"),
        };
    }
    let operation = text.strip_prefix('@').and_then(|rest| rest.split_once(' ')).map_or(&*text, |it| it.1);
    if !operation.starts_with("CALL.REL") && !operation.starts_with("RET.REL") {
        return text;
    }
    let target = operand.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match target.and_then(|target| functions.get(&target)) {
        Some(name) => format!("{start}`({name})"),
        None => text,
    }
}

fn is_number(operand: &str) -> bool {
    operand.trim_start_matches('-').starts_with("0x")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str, part: Part, addend: i64) -> String {
        let reference = Reference { offset: 0, part, symbol: "fib", addend };
        named(text.to_owned(), Some(&reference), &BTreeMap::new())
    }

    #[test]
    fn a_filled_in_address_is_named() {
        assert_eq!(with("CALL.ABS.NOINC 0x0", Part::Other(0x3a), 0), "CALL.ABS.NOINC `(fib)");
        assert_eq!(with("MOV R4, 0x0", Part::Low, 0), "MOV R4, 32@lo(fib)");
        assert_eq!(with("@P0 MOV R5, 0x0", Part::High, 0xdf0), "@P0 MOV R5, 32@hi(fib + 0xdf0)");
        assert_eq!(with("MOV R5, R6", Part::High, 0), "MOV R5, R6");
    }

    #[test]
    fn functions_of_the_section_are_named_where_they_are_called() {
        let functions = BTreeMap::from([(0, "kernel"), (0x120, "slow")]);
        let read = |text: &str| named(text.to_owned(), None, &functions);
        assert_eq!(read("@!P0 CALL.REL.NOINC 0x120"), "@!P0 CALL.REL.NOINC `(slow)");
        assert_eq!(read("RET.REL.NODEC R2 0x0"), "RET.REL.NODEC R2 `(kernel)");
        assert_eq!(read("CALL.REL.NOINC 0x130"), "CALL.REL.NOINC 0x130");
        assert_eq!(read("BRA 0x120"), "BRA 0x120");
        assert_eq!(read("NOP"), "NOP");
    }
}
