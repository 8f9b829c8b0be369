//! Attaching on arm64, which has to be asked for.

use anyhow::{Result, bail};

/// Refuses to attach on arm64 unless `allowed`. `architecture` is as in `std::env::consts::ARCH`.
///
/// # Errors
/// It is arm64, and not allowed.
pub fn permit(architecture: &str, allowed: bool) -> Result<()> {
    if architecture == "aarch64" && !allowed {
        bail!(
            "on arm64, kernels have a fault with instructions that a probe makes them execute in \
             single steps, which has corrupted GPU programs; give --allow-arm64 to trace all the same"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm64_has_to_be_allowed() {
        assert!(permit("x86_64", false).is_ok());
        assert!(permit("aarch64", true).is_ok());
        let refused = permit("aarch64", false).map_err(|error| error.to_string());
        assert!(refused.is_err_and(|why| why.contains("--allow-arm64")));
    }
}
