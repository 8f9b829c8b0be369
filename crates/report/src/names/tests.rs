//! Names of real kernels and functions, and arbitrary text.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use gpuprobe_model::text::width;
use proptest::prelude::*;

use super::{cut, fit, qualified, simplify};

/// Kernels of `PyTorch`, cuBLAS, CUTLASS, Triton, XLA, NCCL, vLLM and thrust, as CUPTI and nsys
/// name them, each above its simplified name.
const KERNELS: &str = include_str!("kernels.txt");
/// Functions of C++, Rust and Python, and labels.
const FUNCTIONS: &str = include_str!("functions.txt");

fn kernels() -> Vec<&'static str> {
    KERNELS.lines().step_by(2).collect()
}

#[test]
fn simplified_names() {
    for table in [KERNELS, FUNCTIONS] {
        let lines: Vec<_> = table.lines().collect();
        for pair in lines.chunks(2) {
            assert_eq!(format!("  {}", simplify(pair[0])), pair[1], "{}", pair[0]);
        }
    }
    assert_eq!([simplify(""), simplify(" ")], ["", " "]);
    let method = "at::native::(anonymous namespace)::Op<at::Half>::run(int) const";
    assert_eq!(qualified(method), "at::native::Op<at::Half>::run");
}

/// The names in so many columns, which fit and differ.
fn fits(names: &[&str], columns: usize) -> Vec<String> {
    let shown = fit(names, columns, simplify);
    assert_eq!(shown.len(), names.len());
    for (name, shown) in names.iter().zip(&shown) {
        assert!(width(shown) <= columns, "{columns}: {shown} of {name}");
    }
    let pairs: HashSet<_> = names.iter().zip(&shown).collect();
    let different: HashSet<_> = shown.iter().collect();
    assert_eq!(pairs.len(), different.len(), "{columns}: {shown:#?}");
    assert_eq!(pairs.len(), names.iter().collect::<HashSet<_>>().len());
    shown
}

#[test]
fn the_computation_is_visible() {
    for columns in [50, 60, 80, usize::MAX] {
        for (name, shown) in kernels().iter().zip(fits(&kernels(), columns)) {
            for functor in ["CUDAFunctor_add", "FillFunctor", "MulFunctor", "MeanOps"] {
                let is_there = !name.contains(functor) || shown.contains(functor);
                assert!(is_there, "{columns}: {shown} of {name}");
            }
        }
    }
    let add = |columns| fit(&kernels()[3..4], columns, simplify).concat();
    let whole = "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>";
    assert_eq!(add(60), whole);
    assert_eq!(add(40), "vectorized_e…<4, CUDAFunctor_add<float>>");
    assert_eq!(add(12), "vectoriz…t>>");
    assert_eq!(add(0), "");
}

#[test]
fn equal_names_are_numbered_in_order() {
    let deep = ["k<A<B<1>>>()", "g", "k<A<B<2>>>()", "k<A<B<1>>>()"];
    let shown = ["k<A<B<…>>>", "g", "k<A<B<…>>> #2", "k<A<B<…>>>"];
    assert_eq!(fits(&deep, 40), shown);
    let overloads = ["f(int)", "f(long)", "f #2", "f()"];
    assert_eq!(fits(&overloads, 40), ["f", "f #2", "f #2 #2", "f #3"]);
    assert_eq!(fit(&["abc", "abd"], 2, simplify), ["a…", "a…"]);
}

#[test]
fn long_names_take_linear_time() {
    const PARTS: &str = "<|(|a<|a::|f(|<>|)|>|a<b>::|[abi:|a[abi:|operator<|operator |ReduceOp<a,b>::|\
                         (anonymous namespace)::|(anonymous namespace)::{| [clone ]| (.|a,|::|{|[lambda|k<ReduceOp<a,";
    const LENGTH: usize = 50_000;
    let begun = Instant::now();
    for part in PARTS.split('|') {
        let name = part.repeat(LENGTH / part.len());
        fits(&[&name, &format!("void k<{name}")], 40);
    }
    // Quadratic time would be many minutes.
    let taken = begun.elapsed();
    assert!(taken < Duration::from_secs(60), "{taken:?}");
}

fn any_name() -> impl Strategy<Value = String> {
    const PARTS: &str = "void |at::native::|k<|>|(int)4|, |(|)|Functor|{lambda(int)#1}|::|float|operator()|\
                         operator<| const|[abi:cxx11]|std::|allocator<char>|...|é漢|ReduceOp<|<unnamed>|\
                         [lambda(int) (instance 1)]|(anonymous namespace)| [clone .x]| #2|x";
    let parts: Vec<_> = PARTS.split('|').collect();
    let name = proptest::collection::vec(proptest::sample::select(parts), 0..24);
    name.prop_map(|parts| parts.concat())
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
        fits(&names, usize::MAX);
    }
}

#[test]
fn numbers_are_not_cut() {
    assert_eq!(cut("train.py:4123", 12), "train.…:4123");
    assert_eq!(cut("train.py:4123", 7), "tr…4123");
    assert_eq!(cut("train.py:4123", 5), "tr…");
    assert_eq!(cut("sgemm_128x64_tn", 9), "sge…64_tn");
    assert_eq!(cut("plain", 5), "plain");
    assert_eq!(cut("plain", 0), "");
}

#[test]
fn columns_are_counted_not_characters() {
    assert_eq!(cut("線線線線", 5), "線…線");
    assert_eq!(cut("線線線線", 4), "線…");
    assert_eq!(cut("ae\u{301}b\u{301}cd", 3), "a…d");
    assert_eq!(cut("abe\u{301}", 2), "a…");
}

proptest! {
    #[test]
    fn a_text_fits_and_no_number_is_cut(
        text in "[a-z./]{0,9}([0-9]{1,6}[線\u{301}a-z:]{1,8}){0,6}",
        columns in 0_usize..60,
    ) {
        let made = cut(&text, columns);
        prop_assert!(width(&made) <= columns, "{}", made);
        let numbers = |text: &str| -> Vec<String> {
            let parts = text.split(|c: char| !c.is_ascii_digit());
            parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let all = numbers(&text);
        for number in numbers(&made) {
            prop_assert!(all.contains(&number), "{} in {}", number, made);
        }
    }
}
