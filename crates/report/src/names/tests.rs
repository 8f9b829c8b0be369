//! Names of real kernels, and of arbitrary text.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use gpuprobe_model::text::width;
use proptest::prelude::*;

use super::{cut, fit, simplify};

/// Kernels of `PyTorch`, cuBLAS, CUTLASS, Triton, XLA, NCCL, vLLM and thrust, as CUPTI and nsys
/// name them, and those of the test recordings.
static KERNELS: &str = include_str!("kernels.txt");

fn kernels() -> Vec<&'static str> {
    KERNELS.lines().collect()
}

#[test]
fn kernels_of_frameworks() {
    for (name, simple) in [
        ("k1(float *, int)", "k1"),
        ("void k2<float>(T1 *, int)", "k2<float>"),
        (
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, \
             std::array<char *, (unsigned long)3>>(int, T2, T3)",
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3>>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, \
             std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3>>",
        ),
        (
            "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl<\
             at::native::CUDAFunctor_add<float>>(at::TensorIteratorBase &, const T1 &)::[lambda(int) \
             (instance 1)]>(int, T3)",
            "elementwise_kernel<128, 2, gpu_kernel_impl<CUDAFunctor_add<float>>::{lambda(int)#1}>",
        ),
        (
            "void at::native::(anonymous namespace)::functions<at::native::copy(at::Iterator&)::{lambda()#3}::\
             operator()() const::{lambda()#12}::operator()() const::{lambda(c10::Half)#1}>(int)",
            "functions<copy::{lambda()#3}::{lambda()#12}::{lambda(Half)#1}>",
        ),
        (
            "void at::native::<unnamed>::layer_norm_kernel<float, (bool)0>(int, T2)",
            "layer_norm_kernel<float, false>",
        ),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, true>(int)",
            "gemvx::kernel<int, true>",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_tn_align1>(T1::Params)",
            "cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_tn_align1>",
        ),
        ("void at::native::k<int>(int) [clone .kd]", "native::k<int>"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    ] {
        assert_eq!(simplify(name), simple, "{name}");
    }
}

#[test]
fn functions_of_cpp() {
    for (name, simple) in [
        (
            "at::detail::empty_cuda(c10::ArrayRef<long>, bool)",
            "empty_cuda",
        ),
        (
            "at::Tensor at::_sum_to<c10::SymInt>(at::Tensor, bool)",
            "at::_sum_to<SymInt>",
        ),
        (
            "at::TensorIteratorBase::build(at::TensorIteratorConfig&)",
            "TensorIteratorBase::build",
        ),
        (
            "at::native::(anonymous namespace)::addmm_out_cuda_impl(at::Tensor&, bool) [clone .isra.0]",
            "addmm_out_cuda_impl",
        ),
        (
            "std::vector<float, std::allocator<float> >::push_back(float const&)",
            "vector<float>::push_back",
        ),
        (
            "f(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >)::\
             {lambda(std::map<int, long, std::less<int>, std::allocator<std::pair<int const, long> > >)#1}",
            "f::{lambda(map<int, long>)#1}",
        ),
        (
            "std::string g<std::__cxx11::basic_string<char, std::char_traits<char>, \
             std::allocator<char> > >(int)",
            "g<string>",
        ),
        (
            "main::{lambda(int)#1}::operator()(int) const",
            "main::{lambda(int)#1}",
        ),
        ("ns::Adder::operator()(int) const", "Adder::operator()"),
        (
            "std::ostream& operator<< <char>(std::ostream&, char)",
            "operator<<<char>",
        ),
        ("a::B::operator<(a::B const&) const", "B::operator<"),
        ("a::B::operator bool() const", "B::operator bool"),
        ("operator new(unsigned long)", "operator new"),
        ("name[abi:cxx11](int)", "name"),
        ("ns::widget::~widget()", "widget::~widget"),
        (
            "ggml_cuda_pool_leg::alloc(unsigned long)",
            "ggml_cuda_pool_leg::alloc",
        ),
    ] {
        assert_eq!(simplify(name), simple, "{name}");
    }
}

#[test]
fn functions_of_other_languages_and_labels() {
    for (name, simple) in [
        (
            "<chain::Linear<T> as chain::Layer>::forward",
            "<Linear<T> as Layer>::forward",
        ),
        ("chain::main::{{closure}}", "chain::main::{{closure}}"),
        (
            "core::ops::function::FnOnce::call_once",
            "FnOnce::call_once",
        ),
        (
            "core::fmt::Write::write_fmt::h0123456789abcdef",
            "Write::write_fmt",
        ),
        ("<module>", "<module>"),
        ("train.<locals>.step", "train.<locals>.step"),
        ("Block.__init__", "Block.__init__"),
        ("libc.so.6+0x3c050", "libc.so.6+0x3c050"),
        ("cudaMalloc <- main", "cudaMalloc <- main"),
        (
            "step < main < start > cudaMalloc",
            "step < main < start > cudaMalloc",
        ),
        (
            "step  train.py:88  via torch.zeros_like > cudaMalloc",
            "step  train.py:88  via torch.zeros_like > cudaMalloc",
        ),
        (
            "[CUDA memcpy Host-to-Device]",
            "[CUDA memcpy Host-to-Device]",
        ),
        (
            "Memcpy HtoD (Pageable -> Device)",
            "Memcpy HtoD (Pageable -> Device)",
        ),
        (
            "void at::native::cut<int, at::native::Functor<fl...",
            "native::cut<int, Functor<fl...>>",
        ),
        ("", ""),
        (" ", " "),
    ] {
        assert_eq!(simplify(name), simple, "{name}");
    }
}

fn fits(names: &[&str], columns: usize) -> Vec<String> {
    let shown = fit(names, Some(columns));
    assert_eq!(shown.len(), names.len());
    for (name, shown) in names.iter().zip(&shown) {
        assert!(width(shown) <= columns, "{columns}: {shown} of {name}");
    }
    if columns >= 12 {
        let pairs: HashSet<_> = names.iter().zip(&shown).collect();
        let all: HashSet<_> = shown.iter().collect();
        assert_eq!(pairs.len(), all.len(), "{columns}: {shown:#?}");
        assert_eq!(pairs.len(), names.iter().collect::<HashSet<_>>().len());
    }
    shown
}

#[test]
fn real_kernels_differ_without_numbers() {
    let names = kernels();
    for columns in [40, 50, 60, 80, 120, 200] {
        let shown = fits(&names, columns);
        let numbered: Vec<_> = shown.iter().filter(|name| name.contains('~')).collect();
        assert!(numbered.is_empty(), "{columns}: {numbered:#?}");
    }
    let all = fit(&names, None);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), names.len());
    // The computation is visible at any of these widths.
    for columns in [40, 50, 60, 80] {
        for (name, shown) in names.iter().zip(fits(&names, columns)) {
            for functor in ["CUDAFunctor_add", "FillFunctor", "MulFunctor", "MeanOps"] {
                let is_there = !name.contains(functor) || shown.contains(functor);
                assert!(is_there, "{columns}: {shown} of {name}");
            }
        }
    }
}

#[test]
fn arguments_are_omitted_before_characters() {
    let add = kernels()[3];
    for (columns, shown) in [
        (
            80,
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3>>",
        ),
        (
            60,
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>",
        ),
        (54, "vectorized_elementwise_kernel<CUDAFunctor_add<float>>"),
        (50, "vectorized_elementwise_kernel<CUDAFunctor_add>"),
        (40, "vectorized_elementwise…<CUDAFunctor_add>"),
    ] {
        assert_eq!(fit(&[add], Some(columns)), [shown]);
    }
    let nested = kernels()[17];
    assert!(nested.contains("gpu_kernel_impl_nocast<at::native::CUDAFunctor_add"));
    for (columns, shown) in [
        (50, "elementwise_kernel<128, 2, CUDAFunctor_add<float>>"),
        (42, "elementwise_kernel<CUDAFunctor_add<float>>"),
    ] {
        assert_eq!(fit(&[nested], Some(columns)), [shown]);
    }
}

#[test]
fn differences_stay_visible() {
    let at = |names: &[&str], columns| fits(names, columns);
    assert_eq!(
        at(&kernels()[3..5], 54),
        [
            "vectorized_elementwise_kernel<4, CUDAFunctor_add>",
            "vectorized_elementwise_kernel<2, CUDAFunctor_add>"
        ]
    );
    assert_eq!(
        at(&["f(int)", "f(long)", "g(int)"], 40),
        ["f(int)", "f(long)", "g"]
    );
    assert_eq!(
        at(&["a::function_f()", "b::function_f()"], 40),
        ["a::function_f", "b::function_f"]
    );
    assert_eq!(at(&["x", "x"], 40), ["x", "x"]);
    let gemms: Vec<_> = kernels()
        .into_iter()
        .filter(|name| name.contains("tilesize"))
        .collect();
    for shown in at(&gemms, 40) {
        assert!(shown.contains('x') && shown.starts_with("sm"), "{shown}");
    }
    // Where nothing else helps.
    let long = [
        "x".repeat(200) + &"a".repeat(200),
        "x".repeat(200) + &"b".repeat(300),
    ];
    assert!(
        at(&[&long[0], &long[1]], 40)
            .iter()
            .all(|shown| !shown.contains('~'))
    );
    assert_eq!(fit(&["abc", "abd"], Some(2)).len(), 2);
    assert_eq!(fit(&["abc"], Some(0)), [""]);
}

#[test]
fn shortened_lines_differ() {
    let lines = [
        "void f<int>(int)  /a/long/path/of/a/file.cpp:12  (module)",
        "void f<int>(int)  /a/long/path/of/a/file.cpp:13  (module)",
        "f",
    ];
    assert_eq!(cut(&lines, None), lines);
    let shown = cut(&lines, Some(30));
    assert_eq!(shown[2], "f");
    assert_ne!(shown[0], shown[1]);
    assert!(
        shown
            .iter()
            .all(|line| width(line) <= 30 && !line.contains('~')),
        "{shown:?}"
    );
    assert!(shown[0].contains(":12"), "{shown:?}");
}

#[test]
fn the_order_of_names_does_not_matter() {
    let mut names = kernels();
    let before: HashSet<_> = names.iter().copied().zip(fit(&names, Some(30))).collect();
    names.reverse();
    let after: HashSet<_> = names.iter().copied().zip(fit(&names, Some(30))).collect();
    assert_eq!(before, after);
}

#[test]
fn long_names_take_linear_time() {
    const LENGTH: usize = 100_000;
    let begun = Instant::now();
    for part in [
        "<",
        "(",
        "a<",
        "a::",
        "f(",
        "<>",
        ")",
        ">",
        "a<b>::",
        "[abi:",
        "operator<",
        "operator ",
    ] {
        let name = part.repeat(LENGTH / part.len());
        for name in [&name, &format!("void {name}"), &format!("{name}...")] {
            simplify(name);
            fits(&[name, &format!("{name}x")], 40);
        }
    }
    // Quadratic time would be many minutes.
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
}

fn any_name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("void "),
        Just("at::native::"),
        Just("k<"),
        Just(">"),
        Just("(int)4"),
        Just(", "),
        Just("("),
        Just(")"),
        Just("Functor"),
        Just("{lambda(int)#1}"),
        Just("::"),
        Just("float"),
        Just("operator()"),
        Just("operator<"),
        Just(" const"),
        Just("[abi:cxx11]"),
        Just("std::"),
        Just("allocator<char>"),
        Just("..."),
        Just("é漢"),
        Just("[lambda(int) (instance 1)]"),
        Just("<unnamed>"),
        Just("(anonymous namespace)"),
        Just(" [clone .x]"),
        Just("~2"),
        Just("x"),
    ];
    proptest::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn names_differ_and_fit(
        names in proptest::collection::hash_set(prop_oneof![any_name(), "\\PC{0,60}"], 1..24),
        columns in 12..200usize,
    ) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        fits(&names, columns);
        let all = fit(&names, None);
        prop_assert_eq!(all.iter().collect::<HashSet<_>>().len(), names.len());
    }

    #[test]
    fn names_that_differ_in_one_character_differ(length in 30..300usize, columns in 12..60usize) {
        let name = |at: usize| {
            let mut text = vec![b'x'; length];
            text[at] = b'y';
            String::from_utf8(text).unwrap_or_default()
        };
        let names: Vec<String> = (0..length).map(name).collect();
        fits(&names.iter().map(String::as_str).collect::<Vec<_>>(), columns);
    }

    #[test]
    fn arbitrary_text_is_accepted(text in "\\PC*") {
        simplify(&text);
    }
}
