//! The committed cubins, for the targets that they are compiled for.

/// The cubins of one target: module and content.
pub type Cubins = &'static [(&'static str, &'static [u8])];

/// Embeds the cubins of the modules, for one target after the other.
macro_rules! embed {
    ($modules:tt $($constant:ident $target:literal),*) => { $(embed!(@ $constant $target $modules);)* };
    (@ $constant:ident $target:literal [$($module:literal)*]) => {
        const $constant: Cubins = &[
            $(($module, include_bytes!(concat!("../../kernels/", $module, ".", $target, ".cubin")))),*
        ];
    };
}

embed! {
    [
        "attention" "bf16" "dequantize" "f16" "f32" "gemm" "prompt" "q4_0" "q4_k" "q5_k" "q6_k" "q8_0" "step_bf16"
        "step_f16" "step_f32" "step_q4_0" "step_q4_k" "step_q5_k" "step_q6_k" "step_q8_0" "vector"
    ]
    SM87 "sm_87", SM90 "sm_90"
}

/// The cubins for the GPU generation `sm` (87 for sm_87); `None` if there are none.
pub const fn cubins(sm: u32) -> Option<Cubins> {
    match sm {
        87 => Some(SM87),
        90 => Some(SM90),
        _ => None,
    }
}

/// The cubin of `module` for the GPU generation `sm`.
pub fn cubin(sm: u32, module: &str) -> Option<&'static [u8]> {
    cubins(sm)?.iter().find(|(name, _)| *name == module).map(|(_, bytes)| *bytes)
}
