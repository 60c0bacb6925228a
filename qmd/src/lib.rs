//! Queue metadata (QMD) v3.0 and v4.0: typed builder, decoder, printer.
