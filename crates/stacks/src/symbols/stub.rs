//! Kernel names from the symbols of nvcc's host stubs.

/// Prefix of nvcc's names of host stubs.
const STUB_PREFIX: &str = "__device_stub_";
/// The kernel of a symbol: `_Z2k1Pfi` for the stub `_Z22__device_stub__Z2k1PfiPfi`; other symbols are
/// the kernel's name.
pub(super) fn kernel_of_symbol(symbol: &str) -> String {
    let of_stub = || {
        let name = symbol.strip_prefix("_Z")?;
        let (name, _) = source_name(name.strip_prefix('L').unwrap_or(name))?;
        let kernel = name.strip_prefix(STUB_PREFIX)?;
        // A mangled name has its own underscore; other names follow a second one.
        let plain = kernel
            .strip_prefix('_')
            .filter(|_| !kernel.starts_with("_Z"));
        Some(plain.unwrap_or(kernel))
    };
    without_local_marks(of_stub().unwrap_or(symbol))
}

/// The name that `mangled` begins with, behind its length, and the rest.
pub(super) fn source_name(mangled: &str) -> Option<(&str, &str)> {
    let digits = mangled.find(|c: char| !c.is_ascii_digit())?;
    let length = mangled[..digits].parse().ok()?;
    mangled[digits..].split_at_checked(length)
}

/// `mangled` without the `L` that marks local symbols (`_ZL4statPi`, `_ZN4workL5scaleIfEEvPj`): the host
/// stubs of static kernels and templates are local, the kernels are not.
pub(super) fn without_local_marks(mangled: &str) -> String {
    let is_nested = mangled.starts_with("_ZN");
    let prefix = if is_nested { "_ZN" } else { "_Z" };
    let Some(mut rest) = mangled.strip_prefix(prefix) else {
        return mangled.to_owned();
    };
    let mut name = prefix.to_owned();
    loop {
        rest = rest.strip_prefix('L').unwrap_or(rest);
        let Some((_, behind)) = source_name(rest) else {
            break;
        };
        name.push_str(&rest[..rest.len() - behind.len()]);
        rest = behind;
        if !is_nested {
            break;
        }
    }
    name + rest
}

#[cfg(test)]
mod tests {
    use super::kernel_of_symbol;

    #[test]
    fn stubs_map_to_their_kernels() {
        assert_eq!(
            kernel_of_symbol("_Z22__device_stub__Z2k1PfiPfi"),
            "_Z2k1Pfi"
        );
        assert_eq!(kernel_of_symbol("_Z2k1Pfi"), "_Z2k1Pfi");
        assert_eq!(
            kernel_of_symbol("_ZL22__device_stub__Z2k1PfiPfi"),
            "_Z2k1Pfi"
        );
        assert_eq!(kernel_of_symbol("_Z18__device_stub__addPf"), "add");
        assert_eq!(kernel_of_symbol("_ZL4statPi"), "_Z4statPi");
        let template = kernel_of_symbol("_ZN4workL5scaleIfEEvPj");
        assert_eq!(template, "_ZN4work5scaleIfEEvPj");
        let plain = "_ZN2at6native6kernelILi4EEEvi";
        assert_eq!(kernel_of_symbol(plain), plain);
        assert_eq!(kernel_of_symbol("_ZL"), "_Z");
        assert_eq!(kernel_of_symbol("main"), "main");
        assert_eq!(
            kernel_of_symbol("_Z99__device_stub_x"),
            "_Z99__device_stub_x"
        );
    }
}
