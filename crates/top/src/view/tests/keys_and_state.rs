//! Keys, messages, the end of a process, and pauses.

use super::*;
use crate::feed::PlaybackState;
use gpuprobe_model::UserLoss;

#[test]
fn a_process_that_ends_stays_on_the_screen() {
    let (mut scene, mut view) = opened();
    enter(&mut scene, &mut view);
    scene.apply(&Event::Exit(task(20, "evil")));
    for _ in 0..3 {
        let detail = view.pages.detail();
        view.update(scene.update(detail));
    }
    let screen = drawn(&mut view, (80, 24));
    assert!(
        screen.iter().any(|line| line.contains("(ended)")),
        "{screen:#?}"
    );
    assert!(
        screen.iter().any(|line| line.contains("9.00 GiB")),
        "{screen:#?}"
    );
    keys(&mut view, &[KeyCode::Esc]);
    assert!(
        drawn(&mut view, (80, 24))
            .iter()
            .any(|line| line.contains("python3"))
    );
}

#[test]
fn what_gpuprobe_costs_the_process_looked_at_is_said() {
    let (mut scene, mut view) = opened();
    let mut update = enter(&mut scene, &mut view);
    let cost = |pid, share_of_thread| TracingCost {
        pid,
        share_of_thread,
        ..TracingCost::default()
    };
    Arc::make_mut(&mut update.report).tracing_costs = vec![cost(10, 0.5), cost(20, 0.021)];
    view.update(update);
    let screen = drawn(&mut view, (80, 24));
    let said = screen.iter().filter(|line| line.contains("gpuprobe costs"));
    let expected = "gpuprobe costs this process about 2.1 % of a thread (0 hits/s)";
    assert_eq!(said.collect::<Vec<_>>(), [expected]);
}

#[test]
fn a_paused_view_stays_and_goes_on_with_the_latest() {
    let (mut scene, mut view) = opened();
    let before = drawn(&mut view, (80, 24));
    letters(&mut view, " ");
    scene.apply(&allocation(10, "cudaMalloc", 100, 64 << 30, 1));
    view.update(scene.update(None));
    let paused = drawn(&mut view, (80, 24));
    assert!(paused[0].contains("PAUSED"), "{}", paused[0]);
    assert_eq!(before[3..23], paused[3..23]);
    letters(&mut view, " ");
    let screen = drawn(&mut view, (80, 24));
    assert!(row(&screen, " 10 ").contains(&"64.02"), "{screen:#?}");
}

#[test]
fn a_message_is_shown_for_a_while() {
    let (mut scene, mut view) = opened();
    view.tell("flame graph in a\u{1b}.svg".into());
    let shown = "flame graph in a\\u{1b}.svg";
    for second in 0..12 {
        let is_shown = drawn(&mut view, (80, 24))[23] == shown;
        assert_eq!(is_shown, second <= 10, "{second}");
        view.update(scene.update(None));
    }
}

#[test]
fn keys_ask_for_what_the_session_does() {
    let (_, mut view) = opened();
    let asked = letters(&mut view, "efrq");
    let requests = [
        Request::Explain(20),
        Request::Flamegraph(20),
        Request::Record(20),
        Request::Quit,
    ];
    assert_eq!(asked, requests);
    // Of a recording, other keys have a meaning.
    let mut view = TopView::new(ScreenConfig {
        is_replay: true,
        ..ScreenConfig::default()
    });
    let mut update = Scene::new().update(None);
    update.playing = Some(PlaybackState {
        file: "run.sqlite".into(),
        at_ns: 42 * SECOND,
        length_ns: 310 * SECOND,
        speed: 10.0,
        is_stopped: true,
    });
    view.update(update);
    assert!(drawn(&mut view, (80, 24))[0].contains("42s of 5m10s, 10x, stopped"));
    let asked = letters(&mut view, "r []{}+-");
    let seeks = [-10.0, 10.0, -60.0, 60.0].map(Request::Seek);
    let faster = [2.0, 0.5].map(Request::Faster);
    let all = [&[Request::Stop], &seeks[..], &faster[..]].concat();
    assert_eq!(asked, all);
}

#[test]
fn the_help_names_every_key_and_scrolls() {
    let (_, mut view) = opened();
    letters(&mut view, "?");
    let text = drawn(&mut view, (120, 60)).join("\n");
    for key in [
        "tab", "/", "< >", "space", "  r ", "  f ", "  e ", "  t ", "ctrl-c",
    ] {
        assert!(text.contains(key), "{key}: {text}");
    }
    let first = drawn(&mut view, (40, 10));
    keys(&mut view, &[KeyCode::PageDown]);
    assert_ne!(drawn(&mut view, (40, 10)), first);
    keys(&mut view, &[KeyCode::End]);
    let last = drawn(&mut view, (40, 10));
    assert!(last[8].contains("minutes"), "{last:#?}");
    keys(&mut view, &[KeyCode::Esc]);
    assert!(
        drawn(&mut view, (80, 24))
            .iter()
            .any(|line| line.contains("COMMAND"))
    );
}

#[test]
fn losses_are_explained_in_the_help() {
    let (mut scene, mut view) = opened();
    letters(&mut view, "?");
    assert!(!drawn(&mut view, (80, 24)).concat().contains("lost events"));
    for count in [5, 7, 7] {
        let mut update = scene.update(None);
        let report = Arc::make_mut(&mut update.report);
        report.lost.tensors = count;
        report.lost_by_user = vec![UserLoss {
            uid: 1001,
            pid: Some(20),
            comm: Some("evil\u{1b}".into()),
            what: "tensors".into(),
            count,
        }];
        view.update(update);
    }
    let screen = drawn(&mut view, (80, 24));
    assert!(screen[0].contains("LOST 7 (see ?)"), "{screen:#?}");
    let losses = [
        "lost events",
        "  7 tensors; first seen 2.0s ago, last 1.0s ago",
        "  7 tensors of user 1001 (PID 20 evil\\u{1b})",
    ];
    assert_eq!(screen[2..5], losses);
}

#[test]
fn colours_are_left_out_unless_asked_for() {
    for colored in [false, true] {
        let mut view = TopView::new(ScreenConfig {
            colored,
            ..ScreenConfig::default()
        });
        view.update(Scene::new().update(None));
        let cells = buffer(&mut view, (120, 24)).content;
        assert_eq!(cells.iter().any(|cell| cell.fg != Color::Reset), colored);
    }
}
