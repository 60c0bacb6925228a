//! The committed cubins, for the targets that they are compiled for.

use ptxgen::Target;

/// The cubins of one target: module and content.
pub type Cubins = &'static [(&'static str, &'static [u8])];

/// Embeds the cubins of the modules, for one target after the other, and those that it alone has, with the
/// target that they are compiled for.
macro_rules! embed {
    ($modules:tt $($constant:ident $target:literal $own:tt),*) => {
        $(embed!(@ $constant $target $modules $own);)*
    };
    (@ $constant:ident $target:literal [$($module:literal)*] [$($own:literal $of:literal)*]) => {
        const $constant: Cubins = &[
            $(($module, include_bytes!(concat!("../../kernels/", $module, ".", $target, ".cubin"))),)*
            $(($own, include_bytes!(concat!("../../kernels/", $own, ".", $of, ".cubin"))),)*
        ];
    };
}

/// The targets that cubins are committed for. The code for sm_80 also serves sm_86 and sm_89.
pub const TARGETS: [Target; 3] = [Target::Sm80, Target::Sm87, Target::Sm90];

embed! {
    [
        "codebook" "columns" "columns_experts" "columns_product" "dequantize" "gemm" "layers" "mixture" "prompt"
        "sample" "stream" "stream_codebook" "stream_f16" "stream_plain" "stream_q4_k" "stream_q6_k"
        "stream_q8_0"
    ]
    SM80 "sm_80" [], SM87 "sm_87" [], SM90 "sm_90" ["gemm_warpgroups" "sm_90a"]
}

/// The cubins that run on the GPU generation `sm` (87 for sm_87): compiled for it, or for an earlier part of
/// its major version. `None` if there are none.
pub fn cubins(sm: u32) -> Option<Cubins> {
    let device = Target::from_sm(sm)?;
    let mut code = TARGETS.into_iter().zip([SM80, SM87, SM90]);
    code.find_map(|(code, cubins)| code.runs_on(device).then_some(cubins))
}

/// The cubin of `module` for the GPU generation `sm`.
pub fn cubin(sm: u32, module: &str) -> Option<&'static [u8]> {
    cubins(sm)?.iter().find(|(name, _)| *name == module).map(|(_, bytes)| *bytes)
}
