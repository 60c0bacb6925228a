//! The parameters of a kernel as a struct: what the generator declares, and what a launch passes.

use std::fmt::Debug;
use std::marker::PhantomData;

use crate::builder::{Contract, Kernel};
use crate::pointer::{Global, Multiple, Pointer};
use crate::reg::Reg;
use crate::ty::Element;

/// The type of a parameter, as [`kernel_params!`](crate::kernel_params) takes it.
///
/// | type | what the generator gets | what a launch passes | after `=` |
/// | --- | --- | --- | --- |
/// | [`Ptr<E, ALIGN>`](Ptr) | [`Pointer<Global, E>`](Pointer) | an address | |
/// | [`Nullable`] | `Reg<u64>` | an address, or `None` for 0 | |
/// | `u32`, `i32`, `u64`, `i64`, `f32`, `f64` | [`Reg`] of it | the number | |
/// | [`Multiple`] | [`Multiple`] | a `u32` | what divides it |
/// | `Option` of another | `Option` | `Option` | `Some` of the other's, or `None` where the kernel lacks it |
/// | [`Late`] of another | [`Late`], to be loaded | as of the other | as of the other |
pub trait ParamType {
    /// Detail of the declaration beyond the type.
    type Detail: Copy + Debug;
    /// Value through which the generator reads the parameter.
    type Value: Copy + Debug;
    /// Argument of a launch, in which an `A` names memory.
    type Argument<A>;

    /// Adds the parameter to the kernel's list.
    fn list(k: &Kernel, name: &str, detail: Self::Detail);

    /// Adds the instructions that load it.
    fn load(k: &Kernel, name: &'static str, detail: Self::Detail) -> Self::Value;

    /// The argument as an item of an argument list; `None` if there is none.
    fn pass<A, T: Argument<A>>(argument: Self::Argument<A>) -> Option<T>;
}

/// An item of an argument list, made of an address `A` or of a number: a driver's own type, such as `hcq`'s
/// `Argument`.
pub trait Argument<A>:
    From<A> + From<u32> + From<i32> + From<u64> + From<i64> + From<f32> + From<f64>
{
}
impl<A, T> Argument<A> for T where
    T: From<A> + From<u32> + From<i32> + From<u64> + From<i64> + From<f32> + From<f64>
{
}

/// The type of a parameter that points to elements `E` in global memory; the launch promises that the address
/// is a multiple of `ALIGN` bytes.
#[derive(Debug)]
pub struct Ptr<E, const ALIGN: u32>(PhantomData<E>);

impl<E: Element, const ALIGN: u32> ParamType for Ptr<E, ALIGN> {
    type Detail = ();
    type Value = Pointer<Global, E>;
    type Argument<A> = A;

    fn list(k: &Kernel, name: &str, (): ()) {
        k.list_pointer(name, ALIGN);
    }

    fn load(k: &Kernel, name: &'static str, (): ()) -> Self::Value {
        k.load_pointer(name, ALIGN)
    }

    fn pass<A, T: Argument<A>>(argument: A) -> Option<T> {
        Some(argument.into())
    }
}

/// The type of a parameter that is an address as a number, or 0 if a launch passes none.
#[derive(Debug)]
pub struct Nullable;

impl ParamType for Nullable {
    type Detail = ();
    type Value = Reg<u64>;
    type Argument<A> = Option<A>;

    fn list(k: &Kernel, name: &str, (): ()) {
        k.list::<u64>(name, Contract::Any);
    }

    fn load(k: &Kernel, name: &'static str, (): ()) -> Reg<u64> {
        k.load_param(name)
    }

    fn pass<A, T: Argument<A>>(argument: Option<A>) -> Option<T> {
        Some(argument.map_or_else(|| 0u64.into(), Into::into))
    }
}

impl ParamType for Multiple {
    type Detail = u32;
    type Value = Multiple;
    type Argument<A> = u32;

    fn list(k: &Kernel, name: &str, of: u32) {
        k.list_multiple(name, of);
    }

    fn load(k: &Kernel, name: &'static str, of: u32) -> Multiple {
        Multiple::promised(k.load_param(name), of)
    }

    fn pass<A, T: Argument<A>>(argument: u32) -> Option<T> {
        Some(argument.into())
    }
}

impl<P: ParamType> ParamType for Option<P> {
    type Detail = Option<P::Detail>;
    type Value = Option<P::Value>;
    type Argument<A> = Option<P::Argument<A>>;

    fn list(k: &Kernel, name: &str, detail: Self::Detail) {
        if let Some(detail) = detail {
            P::list(k, name, detail);
        }
    }

    fn load(k: &Kernel, name: &'static str, detail: Self::Detail) -> Self::Value {
        detail.map(|detail| P::load(k, name, detail))
    }

    fn pass<A, T: Argument<A>>(argument: Self::Argument<A>) -> Option<T> {
        argument.and_then(P::pass::<A, T>)
    }
}

/// A parameter that the kernel loads where it calls [`Late::load`], and not where all are declared.
#[derive(Debug)]
pub struct Late<P: ParamType> {
    name: &'static str,
    detail: P::Detail,
}

impl<P: ParamType> Clone for Late<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: ParamType> Copy for Late<P> {}

impl<P: ParamType> Late<P> {
    /// Adds the instructions that load it.
    pub fn load(self, k: &Kernel) -> P::Value {
        P::load(k, self.name, self.detail)
    }
}

impl<P: ParamType + Debug> ParamType for Late<P> {
    type Detail = P::Detail;
    type Value = Late<P>;
    type Argument<A> = P::Argument<A>;

    fn list(k: &Kernel, name: &str, detail: Self::Detail) {
        P::list(k, name, detail);
    }

    fn load(_: &Kernel, name: &'static str, detail: Self::Detail) -> Self {
        Self { name, detail }
    }

    fn pass<A, T: Argument<A>>(argument: Self::Argument<A>) -> Option<T> {
        P::pass::<A, T>(argument)
    }
}

macro_rules! numbers {
    ($($ty:ty),*) => { $(
        impl ParamType for $ty {
            type Detail = ();
            type Value = Reg<$ty>;
            type Argument<A> = $ty;

            fn list(k: &Kernel, name: &str, (): ()) {
                k.list::<$ty>(name, Contract::Any);
            }

            fn load(k: &Kernel, name: &'static str, (): ()) -> Reg<$ty> {
                k.load_param(name)
            }

            fn pass<A, T: Argument<A>>(argument: $ty) -> Option<T> {
                Some(argument.into())
            }
        }
    )* };
}
numbers!(u32, i32, u64, i64, f32, f64);

/// A struct that [`kernel_params!`](crate::kernel_params) wrote: the arguments of a launch, by name.
pub trait Params {
    /// Name of memory in a launch.
    type Address;
    /// The struct with the same fields that the generator reads.
    type Declared: Copy + Debug;

    /// The arguments, in the kernel's order.
    fn args<T: Argument<Self::Address>, C: FromIterator<T>>(self) -> C;
}

/// The struct through which the generator reads the parameters `P`: the type of `P::declare(&k)`, for functions
/// that take it.
pub type Declared<P> = <P as Params>::Declared;

/// Declares the parameters of a kernel once, as a struct: for the generator and for the launch.
///
/// The fields are the parameters, in order, with their names in the PTX and a [`ParamType`] each. What a type
/// leaves open stands after `=`; it may use the arguments that are given after the struct's name.
///
/// - `NAME::declare(&k)`, with those arguments, declares all of them in the kernel `k` and returns a struct
///   with the same fields: pointers with their alignment, registers.
/// - `NAME { .. }` is what a launch passes, with an address of any type `A` for each pointer. [`Params::args`]
///   collects the arguments, in the kernel's order, into any list of items that are made of addresses and
///   numbers ([`Argument`]). `hcq::Args` is one.
///
/// At least one field is a pointer.
///
/// ```
/// use ptxgen::{Kernel, Multiple, Params, Ptr, Special, kernel_params};
///
/// kernel_params! {
///     /// Parameters of `scale`, or of `scale_rows`, which has another one.
///     pub struct Scale(of_rows: bool) {
///         x: Ptr<f32, 16>,
///         len: Multiple = 4,
///         rows: Option<u32> = of_rows.then_some(()),
///         factor: f32,
///     }
/// }
///
/// fn scale() -> Kernel {
///     let k = Kernel::new("scale");
///     let p = Scale::declare(&k, false);
///     let i = k.special(Special::TidX);
///     k.if_(k.lt(i, p.len.reg()), || {
///         let at = k.at(p.x, i);
///         k.store(at, k.mul(k.load(at), p.factor));
///     });
///     k
/// }
/// assert_eq!(scale().params().len(), 3);
///
/// // What a driver has for arguments: here an address is a `&str`.
/// #[derive(Debug, PartialEq)]
/// enum Item { Address(&'static str), Number(f64) }
/// impl From<&'static str> for Item { fn from(a: &'static str) -> Self { Self::Address(a) } }
/// impl From<f64> for Item { fn from(n: f64) -> Self { Self::Number(n) } }
/// # impl From<u32> for Item { fn from(n: u32) -> Self { Self::Number(n.into()) } }
/// # impl From<i32> for Item { fn from(n: i32) -> Self { Self::Number(n.into()) } }
/// # impl From<u64> for Item { fn from(n: u64) -> Self { Self::Number(n as f64) } }
/// # impl From<i64> for Item { fn from(n: i64) -> Self { Self::Number(n as f64) } }
/// # impl From<f32> for Item { fn from(n: f32) -> Self { Self::Number(n.into()) } }
///
/// let args: Vec<Item> = Scale { factor: 0.5, len: 64, rows: None, x: "buffer" }.args();
/// assert_eq!(args, [Item::Address("buffer"), Item::Number(64.0), Item::Number(0.5)]);
/// ```
///
/// An argument that is left out, or that is in the place of one of another type, does not compile:
///
/// ```compile_fail,E0063
/// # use ptxgen::{Ptr, kernel_params};
/// kernel_params! {
///     /// Parameters of `scale`.
///     pub struct Scale { x: Ptr<f32, 16>, len: u32, factor: f32 }
/// }
/// let launch = Scale { x: "buffer", factor: 0.5 };
/// ```
///
/// ```compile_fail,E0308
/// # use ptxgen::{Ptr, kernel_params};
/// kernel_params! {
///     /// Parameters of `scale`.
///     pub struct Scale { x: Ptr<f32, 16>, len: u32, factor: f32 }
/// }
/// let launch = Scale { x: "buffer", len: 0.5, factor: 64 };
/// ```
///
/// Nor does a number of 32 bits in the place of an address:
///
/// ```compile_fail,E0080
/// # use ptxgen::{Argument, Params, Ptr, kernel_params};
/// kernel_params! {
///     /// Parameters of `scale`.
///     pub struct Scale { x: Ptr<f32, 16>, len: u32, factor: f32 }
/// }
/// fn args<T: Argument<u32>>() -> Vec<T> { Scale { x: 7, len: 64, factor: 0.5 }.args() }
/// # #[derive(Debug)]
/// # struct Item;
/// # impl From<u32> for Item { fn from(_: u32) -> Self { Self } }
/// # impl From<i32> for Item { fn from(_: i32) -> Self { Self } }
/// # impl From<u64> for Item { fn from(_: u64) -> Self { Self } }
/// # impl From<i64> for Item { fn from(_: i64) -> Self { Self } }
/// # impl From<f32> for Item { fn from(_: f32) -> Self { Self } }
/// # impl From<f64> for Item { fn from(_: f64) -> Self { Self } }
/// println!("{:?}", args::<Item>());
/// ```
#[macro_export]
macro_rules! kernel_params {
    (@detail) => { () };
    (@detail $detail:expr) => { $detail };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident $(($($given:ident: $given_ty:ty),+ $(,)?))? {
            $($(#[$field_meta:meta])* $field:ident: $ty:ty $(= $detail:expr)?),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name<A = ()> {
            $(
                $(#[$field_meta])*
                #[doc = concat!("`", stringify!($ty), "`")]
                pub $field: <$ty as $crate::ParamType>::Argument<A>,
            )+
        }

        const _: () = {
            /// The parameters in the kernel.
            #[derive(Clone, Copy, Debug)]
            pub struct Declared {
                $(
                    #[doc = concat!("`", stringify!($ty), "`")]
                    pub $field: <$ty as $crate::ParamType>::Value,
                )+
            }

            impl<A> $crate::Params for $name<A> {
                type Address = A;
                type Declared = Declared;

                fn args<T: $crate::Argument<A>, C: FromIterator<T>>(self) -> C {
                    const { assert!(size_of::<A>() >= 8, "a pointer's argument is no number of 32 bits") };
                    let all = [$(<$ty as $crate::ParamType>::pass::<A, T>(self.$field)),+];
                    all.into_iter().flatten().collect()
                }
            }

            impl $name {
                /// Declares the parameters in `k`.
                $vis fn declare(k: &$crate::Kernel $($(, $given: $given_ty)+)?) -> Declared {
                    $(
                        let detail = $crate::kernel_params!(@detail $($detail)?);
                        <$ty as $crate::ParamType>::list(k, stringify!($field), detail);
                        let $field = <$ty as $crate::ParamType>::load(k, stringify!($field), detail);
                    )+
                    Declared { $($field),+ }
                }
            }
        };
    };
}
