//! The opt-in for attaching on arm64.

use anyhow::{Result, bail};

/// Checks whether attaching is allowed on `architecture`, as in `std::env::consts::ARCH`.
///
/// # Errors
/// Returns an error on arm64 unless `allowed`.
pub fn permit(architecture: &str, allowed: bool) -> Result<()> {
    if architecture == "aarch64" && !allowed {
        bail!(
            "attaching is disabled on arm64: a kernel bug in single-stepping of probed instructions \
             has corrupted GPU programs; give --allow-arm64 to trace all the same"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm64_needs_the_option() {
        assert!(permit("x86_64", false).is_ok());
        assert!(permit("aarch64", true).is_ok());
        let refused = permit("aarch64", false).map_err(|error| error.to_string());
        assert!(refused.is_err_and(|why| why.contains("--allow-arm64")));
    }
}
