use super::*;
use crate::tests::database;

const TABLES: &str = "
    INSERT INTO StringIds VALUES (1, 'f'), (2, '/lib/libx.so'), (3, '/a.py'), (4, 'python'),
        (5, 'native'), (6, 'x = 1');
    CREATE TABLE CUDA_CALLCHAINS (id, symbol, module, unresolved, originalIP, stackDepth);
    INSERT INTO CUDA_CALLCHAINS VALUES
        (7, NULL, NULL, 1, 2748, 1), (7, 1, 2, 0, 16, 0), (7, 1, 3, NULL, NULL, 2);";
const FRAMES: &str = "
    CREATE TABLE GPUPROBE_META (key, val);
    CREATE TABLE GPUPROBE_FRAMES (chain, depth, file, line, isInlined, language, source);
    INSERT INTO GPUPROBE_FRAMES VALUES
        (7, 2, 3, 12, 0, 4, 6), (7, 0, 3, 5, 1, 5, NULL), (7, 9, 3, 1, 0, 4, NULL),
        (7, -1, 3, 1, 0, 4, NULL), (7, 1, 3, -1, 0, NULL, NULL);";

#[test]
fn strings_are_shortened_and_kept_up_to_a_limit() {
    let long = "é".repeat(MAX_CHARACTERS);
    let sql =
        format!("INSERT INTO StringIds VALUES (1, 'f'), (2, '{long}'), (3, '{long}x'), (4, NULL)");
    let database = database(&sql);
    let resolver = Resolver::new(&database).unwrap();
    assert_eq!(&*resolver.string(1), "f");
    assert_eq!(*resolver.string(2), long);
    assert_eq!(*resolver.string(3), format!("{long}..."));
    assert_eq!((&*resolver.string(4), &*resolver.string(9)), ("[4]", "[9]"));
    assert_eq!(resolver.cached_strings.borrow().len(), 5);
    let fill = |first: i64, count: usize| {
        let known = (first..).take(count).map(|id| (id, "known".into()));
        *resolver.cached_strings.borrow_mut() = known.collect();
    };
    fill(1, 1);
    assert_eq!(&*resolver.string(1), "known");
    fill(100, MAX_CACHED - 1);
    resolver.string(1);
    assert_eq!(resolver.cached_strings.borrow().len(), MAX_CACHED);
    resolver.string(2);
    assert_eq!(resolver.cached_strings.borrow().len(), 1);
}

#[test]
fn stacks_have_frames_by_depth_and_their_source_lines() {
    let database = database(&format!("{TABLES}{FRAMES}"));
    let resolver = Resolver::new(&database).unwrap();
    let stack = resolver.stack(7);
    let names = stack
        .iter()
        .map(|f| (&*f.function, &*f.module, module_of(f), f.address));
    let names: Vec<_> = names.collect();
    let expected = [
        ("f", "/lib/libx.so", "/lib/libx.so", 16),
        ("0xabc", "[unknown]", "[unknown]", 2748),
        ("f", "", "/a.py", 0),
    ];
    assert_eq!(names, expected);
    let flags = stack.iter().map(|f| (f.inlined, f.language));
    let expected = [
        (true, Language::Native),
        (false, Language::Python),
        (false, Language::Python),
    ];
    assert_eq!(flags.collect::<Vec<_>>(), expected);
    let places = stack.iter().map(|f| (f.line, f.source.as_deref()));
    let expected = [(Some(5), None), (None, None), (Some(12), Some("x = 1"))];
    assert_eq!(places.collect::<Vec<_>>(), expected);
    assert!(
        stack
            .iter()
            .all(|frame| frame.file.as_deref() == Some("/a.py"))
    );
    assert!(resolver.stack(8).is_empty());
    assert!(Rc::ptr_eq(&resolver.stack(7), &stack));
    let fill = |count: usize| {
        let known = (100..).take(count).map(|id| (id, Rc::clone(&stack)));
        *resolver.cached_stacks.borrow_mut() = known.collect();
    };
    fill(MAX_CACHED - 1);
    resolver.stack(7);
    assert_eq!(resolver.cached_stacks.borrow().len(), MAX_CACHED);
    resolver.stack(8);
    assert_eq!(resolver.cached_stacks.borrow().len(), 1);
}

#[test]
fn a_python_frame_without_a_file_has_no_module() {
    let sql = "
        INSERT INTO StringIds VALUES (7, '[python]');
        INSERT INTO CUDA_CALLCHAINS VALUES (8, 1, 7, NULL, NULL, 0);
        INSERT INTO GPUPROBE_FRAMES VALUES (8, 0, NULL, NULL, 0, 4, NULL);";
    let database = database(&format!("{TABLES}{FRAMES}{sql}"));
    let stack = Resolver::new(&database).unwrap().stack(8);
    assert_eq!((stack.len(), &*stack[0].module), (1, ""));
    assert_eq!(module_of(&stack[0]), PYTHON);
}

#[test]
fn languages_are_known_by_name_or_file() {
    assert_eq!(Language::Native.name(), "native");
    assert_eq!(Language::Python.name(), "python");
    for (name, file, language) in [
        (Some("python"), None, Language::Python),
        (Some("native"), Some("a.py"), Language::Native),
        (None, Some("a.py"), Language::Python),
        (None, Some("a.c"), Language::Native),
        (None, None, Language::Native),
    ] {
        assert_eq!(language_of(name, file), language);
    }
}

#[test]
fn some_exports_refer_to_the_chain_before() {
    let offset = |ids: &[i64], referred: &[i64], others: &str| {
        let list = |ids: &[i64], class: &str| {
            let rows = ids.iter().map(|id| format!("({id}{class})"));
            rows.collect::<Vec<_>>().join(", ")
        };
        let database = database(&format!(
            "CREATE TABLE CUDA_CALLCHAINS (id);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (callchainId, eventClass);
            INSERT INTO CUDA_CALLCHAINS VALUES {};
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES {}; {others}",
            list(ids, ""),
            list(referred, ", 67"),
        ));
        chain_offset(&database).unwrap()
    };
    assert_eq!(offset(&[1, 2, 3], &[2, 0, 1], ""), 1);
    assert_eq!(offset(&[1, 2, 3], &[1, 2, 3], ""), 0);
    assert_eq!(offset(&[1, 2, 3], &[0, 1], ""), 1);
    assert_eq!(offset(&[1, 2, 3], &[1, 2], ""), 0);
    assert_eq!(offset(&[0, 1, 3], &[0, 1, 2], ""), 0);
    let of_calls = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (9, 0), (NULL, 67)";
    assert_eq!(offset(&[1, 2], &[0, 1], of_calls), 1);
    let ours = "CREATE TABLE GPUPROBE_META (key, val)";
    assert_eq!(offset(&[1, 2], &[0, 1], ours), 0);
    assert_eq!(chain_offset(&database("")).unwrap(), 0);
    let shifted = database(&format!(
        "{TABLES} UPDATE CUDA_CALLCHAINS SET id = 1;
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (callchainId, eventClass);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (0, 67);"
    ));
    let resolver = Resolver::new(&shifted).unwrap();
    assert_eq!((resolver.stack(0).len(), resolver.stack(1).len()), (3, 0));
}
