//! Printing of the object handles of texture and surface operations.

use crate::printer::Printer;

/// A constant: bank and word.
pub(super) fn constant(p: &mut Printer<'_>) {
    hex(p, 54, 5);
    hex(p, 40, 14);
}

/// Two constants of one bank.
pub(super) fn two_constants(p: &mut Printer<'_>) {
    hex(p, 54, 5);
    hex(p, 40, 6);
    hex(p, 46, 8);
}

/// A register of the warp, and an offset.
pub(super) fn uniform(p: &mut Printer<'_>) {
    p.next();
    p.ureg_read(40, 1);
    hex(p, 46, 8);
}

fn hex(p: &mut Printer<'_>, lo: u8, width: u8) {
    let value = p.bits(lo, width);
    p.next();
    p.put_fmt(format_args!("{value:#x}"));
}
