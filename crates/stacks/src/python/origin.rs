//! Origin of Python code: user, standard library or package.

use crate::cuda::file_name;

/// Origin of a Python file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileOrigin<'a> {
    /// The user: a file in none of the folders below, or code compiled from a string.
    User,
    /// The standard library, with frozen modules.
    Standard,
    /// An installed package, by name (`transformers`), and for large ones with the subpackage
    /// (`torch.nn`).
    Package(&'a str, Option<&'a str>),
}

/// Folders of installed packages.
const INSTALLED: [&str; 2] = ["site-packages", "dist-packages"];

impl<'a> FileOrigin<'a> {
    /// The origin of a code object's file.
    pub fn of(file: &'a str) -> Self {
        let parts: Vec<_> = file.split('/').collect();
        let name = |part: &&'a str| part.strip_suffix(".py").unwrap_or(part);
        let mut installed = parts.iter().skip_while(|part| !INSTALLED.contains(part));
        if let Some(package) = installed.nth(1).map(name) {
            // In a large package `torch.nn` is not `torch.autograd`.
            let inner = installed.next().filter(|_| package == "torch");
            return Self::Package(package, inner.map(name));
        }
        let is_library = |part: &[&str]| part[0].starts_with("lib") && is_version(part[1]);
        match file.starts_with("<frozen ") || parts.windows(3).any(is_library) {
            true => Self::Standard,
            false => Self::User,
        }
    }
}

/// Whether a folder has the name `python3`, `python3.12`, `python3.13t`.
fn is_version(folder: &str) -> bool {
    let version = folder.strip_prefix("python3");
    version.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || ".t".contains(c)))
}

/// Prefixes of files of the interpreter, and of libraries by which it calls C.
const INTERPRETER: [&str; 4] = ["libpython", "python", "_ctypes.", "libffi"];

/// Prefixes of functions by which the interpreter runs Python code and calls C.
const API: [&str; 14] = [
    "Py_",
    "PyCFunction_",
    "PyEval_",
    "PyFunction_",
    "PyGen_",
    "PyImport_",
    "PyIter_",
    "PyMethod_",
    "PyNumber_",
    "PyObject_",
    "PyRun_",
    "PySequence_",
    "PyType_",
    "PyVectorcall_",
];

/// Whether a native function belongs to the interpreter, or a library by which it calls C. Programs that
/// embed an interpreter may have its functions in their own file.
pub fn is_interpreter(function: &str, module: &str) -> bool {
    let file = file_name(module);
    let name = function.trim_start_matches('_');
    let begins = |list: &[&str], name: &str| list.iter().any(|begin| name.starts_with(begin));
    begins(&API, name) || begins(&INTERPRETER, file) || module.contains("/lib-dynload/")
}

impl std::fmt::Display for FileOrigin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User => f.write_str("user"),
            Self::Standard => f.write_str("python"),
            Self::Package(package, None) => f.write_str(package),
            Self::Package(package, Some(inner)) => write!(f, "{package}.{inner}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreter_frames_are_recognised() {
        for (function, module, expected) in [
            ("_PyEval_EvalFrameDefault", "/usr/bin/python3.12", true),
            ("python3.12+0x54caed", "/usr/bin/python3.12", true),
            ("ffi_call", "/usr/lib/libffi.so.8", true),
            (
                "f",
                "/usr/lib/python3.12/lib-dynload/_asyncio.cpython-312.so",
                true,
            ),
            ("PyObject_Call", "/srv/embeds", true),
            ("PyTorch_grow", "/srv/embeds", false),
            ("THPVariable_mul", "/v/libtorch_python.so", false),
        ] {
            assert_eq!(is_interpreter(function, module), expected, "{function}");
        }
    }

    #[test]
    fn origins_are_recognised_by_path() {
        for (file, origin) in [
            ("/home/ada/train.py", "user"),
            ("train.py", "user"),
            ("<string>", "user"),
            ("/tmp/ipykernel_7/3.py", "user"),
            ("/srv/app.zip/inner/step.py", "user"),
            ("/srv/python3.12-app/main.py", "user"),
            ("/home/ada/lib/python/step.py", "user"),
            ("/usr/lib/python3.12", "user"),
            ("/v/site-packages", "user"),
            ("/srv/python3.12/main.py", "user"),
            ("/usr/lib/python3.12/threading.py", "python"),
            ("/opt/conda/lib/python3.11/asyncio/events.py", "python"),
            ("/x/lib/python3.14t/json/decoder.py", "python"),
            ("<frozen runpy>", "python"),
            ("/usr/lib/python3/dist-packages/numpy/core/x.py", "numpy"),
            (
                "/v/lib/python3.12/site-packages/torch/nn/modules/linear.py",
                "torch.nn",
            ),
            (
                "/v/lib/python3.12/site-packages/torch/_tensor.py",
                "torch._tensor",
            ),
            (
                "/v/lib/python3.12/site-packages/transformers/models/gpt2/x.py",
                "transformers",
            ),
            ("/v/lib/python3.12/site-packages/six.py", "six"),
        ] {
            assert_eq!(FileOrigin::of(file).to_string(), origin, "{file}");
        }
    }
}
