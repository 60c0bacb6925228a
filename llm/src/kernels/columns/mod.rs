//! The kernels of a batch step: vectors of different sequences, or of one sequence at successive
//! positions, which read the weights once.
//!
//! Results of a column do not depend, in any bit, on the other columns, on their number or on the column's
//! own: every sum has an order that the matrix alone decides.

pub mod attention;
pub mod experts;
pub mod fragments;
pub mod product;
pub mod state;
mod unpack;
pub mod vector;

use ptxgen::{Kernel, Target};

use crate::cache::CacheType;
use crate::kernels::format::Format;
use crate::kernels::heads::HEAD_DIMS;
use crate::model::architecture::Activation;

/// The module with all kernels but the products.
pub const NAME: &str = "columns";

/// All kernels but the products.
pub(crate) fn vectors(target: Target) -> Vec<Kernel> {
    let mut kernels = vec![vector::argmax(target), vector::choose(target), attention::merge(target)];
    kernels.extend([false, true].map(|layer| vector::norm(layer, target)));
    kernels.extend(Activation::ALL.map(|activation| vector::act(activation, target)));
    kernels.extend([vector::add_position(target), experts::act(target)]);
    kernels.extend(Format::WITHOUT_CODEBOOK.map(|format| vector::embed(format, target)));
    kernels.extend(Format::WITHOUT_CODEBOOK.map(|format| experts::scores(format, target)));
    for kv in CacheType::ALL {
        kernels.push(vector::rope(kv, target));
        for limited in [false, true] {
            kernels.extend(HEAD_DIMS.map(|dims| attention::kernel(dims, kv, limited, target)));
        }
    }
    kernels
}

/// The products of `formats`.
pub(crate) fn products(formats: &[Format], target: Target) -> Vec<Kernel> {
    let of_format = |format: &Format| product::SIZES.map(|size| product::kernel(*format, size, target));
    formats.iter().flat_map(of_format).collect()
}

/// The products of experts of `formats`.
pub(crate) fn experts_products(formats: &[Format], target: Target) -> Vec<Kernel> {
    let of_format = |format: &Format| product::SIZES.map(|size| product::experts(*format, size, target));
    formats.iter().flat_map(of_format).collect()
}

/// The kernels of formats with a codebook, in a module of their own.
pub(crate) fn with_codebook(target: Target) -> Vec<Kernel> {
    let formats = &Format::WITH_CODEBOOK;
    let mut kernels = products(formats, target);
    kernels.extend(experts_products(formats, target));
    kernels.extend(formats.map(|format| vector::embed(format, target)));
    kernels
}
