//! Native functions that belong to Python.

use super::cuda::file_name;

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
}
