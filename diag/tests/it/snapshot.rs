//! Compares text with committed files of `tests/golden`; `INSTA_UPDATE=always` writes them anew, `cargo insta
//! review` asks about each that differs.

/// Settings under which snapshots have no names but their own, in a folder of `tests/golden`.
pub fn settings(folder: &str) -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(std::path::Path::new("../golden").join(folder));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

/// Fails if `actual` is not the text of that name.
pub fn compare(name: &str, actual: &str) {
    settings("").bind(|| insta::assert_snapshot!(name, actual));
}
