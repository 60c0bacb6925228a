//! Exceptions of the units in front of the SMs: scheduler, front end, macro engine, inline data, copy engine.

use nv_hw::fault::{ce_launch_error, class_error, fe_esr, memfmt_esr, mme_esr};

use crate::kernel_log::Entry;
use crate::kernel_log::lines::Kind;

/// Name of an exception and its meaning in plain words.
#[must_use]
pub fn unit_exception(entry: &Entry) -> Option<(String, String)> {
    let register = |name: &str| entry.fields.register(name).unwrap_or(0);
    let esr = register("esr");
    let bits = |table| nv_hw::bit_names(table, esr).collect::<Vec<_>>().join(" | ");
    let named = |names: String, unit: &str| if names.is_empty() { format!("{unit} {esr:#x}") } else { names };
    Some(match entry.kind {
        Kind::SkedException => {
            let checks: Vec<_> = qmd::SkedCheck::from_esr(esr & 0x3fff_ffff).collect();
            let names: Vec<String> = checks.iter().map(ToString::to_string).collect();
            let words: Vec<&str> = checks.iter().map(|check| sked_words(*check)).collect();
            let words = if words.is_empty() { "no check that is known".to_owned() } else { words.join("; ") };
            (named(names.join(" | "), "SKED"), format!("the scheduler refused the launch: {words}"))
        }
        Kind::XidSked => {
            let text = entry.fields.text("check").unwrap_or("");
            let number: Option<u8> = text.split('_').next().and_then(|n| n.parse().ok());
            let check = qmd::SkedCheck::ALL.iter().find(|check| Some(check.number()) == number);
            let words = check.map_or("a check that is not known", |check| sked_words(*check));
            (format!("SKEDCHECK{text}"), format!("the scheduler refused the launch: {words}"))
        }
        Kind::FeException => {
            let info = register("info");
            let mut words = "the front end refused a method".to_owned();
            if esr >> 1 & 1 != 0 {
                words = format!(
                    "class {:#06x} was sent to subchannel {}, which holds another (front end {}, subcontext {})",
                    info & 0xffff,
                    info >> 16 & 7,
                    info >> 19 & 1,
                    info >> 24 & 0x3f
                );
            }
            (named(bits(fe_esr::NAMES), "FE"), words)
        }
        Kind::XidUnitEsr if register("address") == 0x40_4000 => {
            (named(bits(fe_esr::NAMES), "FE"), "the front end refused a method".to_owned())
        }
        Kind::XidUnitEsr => {
            (format!("ESR {:#x}", register("address")), format!("an exception register holds {esr:#010x}"))
        }
        Kind::MmeException | Kind::MmeFe1Exception => {
            let info = register("info");
            let place = match info >> 28 & 1 {
                0 => String::new(),
                _ => format!(" at pc {:#x} of macro {:#x}", info & 0xfff, info >> 12 & 0xff),
            };
            (named(bits(mme_esr::NAMES), "MME"), format!("the macro engine stopped{place}"))
        }
        Kind::MemfmtException => (
            named(bits(memfmt_esr::NAMES), "MEMFMT"),
            "inline data does not fit its announced length".to_owned(),
        ),
        Kind::IllegalNotify => ("ILLEGAL_NOTIFY".to_owned(), "a notify request that is not legal".to_owned()),
        Kind::CopyError => {
            let code = register("code");
            let name = nv_hw::name(ce_launch_error::NAMES, code)
                .map_or(format!("copy error {code:#x}"), str::to_owned);
            (name, "the copy engine refused a transfer".to_owned())
        }
        kind if kind.meaning().ends_with("(graphics)")
            || matches!(kind, Kind::SsyncException | Kind::MpcException) =>
        {
            (format!("{kind:?}"), kind.meaning().to_owned())
        }
        _ => return method_exception(entry),
    })
}

/// Name of an exception of one method, and its meaning.
fn method_exception(entry: &Entry) -> Option<(String, String)> {
    let register = |name: &str| entry.fields.register(name).unwrap_or(0);
    Some(match entry.kind {
        Kind::ClassError => {
            let code = register("code");
            let name =
                nv_hw::name(class_error::NAMES, code).map_or(format!("class error {code:#x}"), str::to_owned);
            let words = format!(
                "method {:#06x} of class {:#06x} on subchannel {} has a value it does not take",
                register("offset"),
                register("class"),
                register("subchannel")
            );
            (name, words)
        }
        Kind::IllegalMethod => {
            let method = register("address") & 0x3ffc;
            (
                "ILLEGAL_METHOD".to_owned(),
                format!("class {:#06x} has no method {method:#06x}", register("class")),
            )
        }
        Kind::XidMethod => {
            let words = format!(
                "stopped at method {:#06x} of class {:#06x} with value {:#010x}",
                register("offset"),
                register("class"),
                register("data")
            );
            ("METHOD".to_owned(), words)
        }
        Kind::IllegalClass => {
            ("ILLEGAL_CLASS".to_owned(), format!("this GPU has no class {:#06x}", register("class")))
        }
        Kind::XidClassMismatch => {
            let words = format!(
                "class {:#06x} was sent to subchannel {}, which holds another",
                register("class"),
                register("subchannel")
            );
            ("CLASS_SUBCH_MISMATCH".to_owned(), words)
        }
        Kind::FirmwareMethod if entry.fields.register("register").is_none() => (
            "FIRMWARE_METHOD".to_owned(),
            format!(
                "method {:#06x} of class {:#06x} is one of the context firmware, which does not take it",
                register("offset") << 2,
                register("class")
            ),
        ),
        Kind::FirmwareMethod => (
            "UNIMP_FIRMWARE_METHOD".to_owned(),
            format!(
                "method {:#06x} asked the context firmware for register {:#010x}, which it does not allow",
                register("method"),
                register("register")
            ),
        ),
        _ => return None,
    })
}

/// Returns the meaning of a check of the scheduler.
const fn sked_words(check: qmd::SkedCheck) -> &'static str {
    use qmd::SkedCheck as C;
    match check {
        C::MemoryWindowOverlap => {
            "the shared and local memory windows overlap, as they do when neither was set and both are 0"
        }
        C::CtaThreadDimensionZero => "a block dimension is 0",
        C::L1ConfigTooSmall => "the shared-memory carve-out is too small for the block's shared memory",
        C::RegisterCount => "the register count is not one that the hardware takes",
        C::CtaRegisterConsumption => "one block needs more registers than an SM has",
        C::LocalMemoryLowSize | C::LocalMemoryHighSize | C::LocalMemoryTotalSize | C::LocalMemoryCrsSize => {
            "the local memory of a thread is larger than what was set up, or the local-memory methods are missing"
        }
        C::SharedMemorySize => "the shared memory is too large or not a multiple of its granule",
        C::TotalThreads => "a block has too many threads",
        C::ProgramOffset => "the program address is not aligned or out of range",
        C::ConstantBufferSize => "a constant buffer has a size that is not valid",
        _ => "one of its checks on the launch descriptor (QMD) failed",
    }
}
