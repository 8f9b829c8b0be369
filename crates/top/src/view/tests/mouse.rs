//! Clicks and the wheel.

use ratatui::crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use super::*;

fn mouse(view: &mut TopView, kind: MouseEventKind, (column, row): (u16, u16)) -> Vec<Request> {
    view.event(&Input::Mouse(MouseEvent {
        kind,
        column,
        row,
        modifiers: KeyModifiers::NONE,
    }))
}

const LEFT: MouseEventKind = MouseEventKind::Down(MouseButton::Left);

/// The line and column of `text` on the screen.
fn place(screen: &[String], text: &str) -> (u16, u16) {
    let found = screen.iter().zip(0..).find_map(|(line, y)| {
        let before = &line[..line.find(text)?];
        Some((u16::try_from(before.chars().count()).unwrap(), y))
    });
    found.unwrap_or_else(|| panic!("no {text} in {screen:#?}"))
}

/// Clicks where `text` is.
fn click(view: &mut TopView, at: (u16, u16), text: &str) -> Vec<Request> {
    let place = place(&drawn(view, at), text);
    mouse(view, LEFT, place)
}

#[test]
fn a_click_selects_a_row_and_a_second_one_opens_it() {
    let (mut scene, mut view) = opened();
    let at = (120, 24);
    assert_eq!(click(&mut view, at, "python3"), []);
    assert_eq!(view.selected_pid(), Some(10));
    // A key in between, and it is a first click again.
    keys(&mut view, &[KeyCode::Up]);
    assert_eq!(click(&mut view, at, "python3"), []);
    let opened = click(&mut view, at, "python3");
    let [Request::Detail(Some(detail))] = opened[..] else {
        panic!("{opened:?}");
    };
    assert_eq!(detail.pid, 10);
    view.update(scene.update(Some(detail)));
    // A tab, and back to the call sites.
    click(&mut view, at, "threads");
    assert!(drawn(&mut view, at).iter().any(|line| line.contains("TID")));
    click(&mut view, at, "sites");
    click(&mut view, at, "train.py:1");
    let opened = click(&mut view, at, "train.py:1");
    assert!(
        matches!(opened[..], [Request::Detail(Some(detail))] if detail.allocations),
        "{opened:?}"
    );
    // Text has nothing to click on.
    assert_eq!(click(&mut view, at, "call stack"), []);
}

#[test]
fn a_click_on_a_heading_sorts_and_a_second_one_turns_it_round() {
    let (_, mut view) = opened();
    let at = (120, 24);
    click(&mut view, at, "PID");
    assert!(place(&drawn(&mut view, at), "PID▼").1 > 0);
    let order = |view: &mut TopView| {
        let screen = drawn(view, at);
        place(&screen, " 10 ").1 < place(&screen, " 20 ").1
    };
    assert!(order(&mut view));
    click(&mut view, at, "PID");
    assert!(!order(&mut view));
    assert!(place(&drawn(&mut view, at), "PID▲").1 > 0);
    // To the right of a name that begins there.
    click(&mut view, at, "OMMAND");
    assert!(place(&drawn(&mut view, at), "COMMAND▼").1 > 0);
}

#[test]
fn clicks_elsewhere_do_nothing_and_the_wheel_scrolls() {
    let (_, mut view) = opened();
    drawn(&mut view, (120, 24));
    for at in [(0, 0), (0, 23), (500, 3), (0, 20), (u16::MAX, u16::MAX)] {
        assert_eq!(mouse(&mut view, LEFT, at), [], "{at:?}");
    }
    assert_eq!(view.selected_pid(), Some(20));
    mouse(&mut view, MouseEventKind::ScrollDown, (0, 0));
    assert_eq!(view.selected_pid(), Some(10));
    mouse(&mut view, MouseEventKind::ScrollUp, (0, 0));
    assert_eq!(view.selected_pid(), Some(20));
    letters(&mut view, "?");
    let before = drawn(&mut view, (40, 10));
    mouse(&mut view, MouseEventKind::ScrollDown, (0, 0));
    assert_eq!(drawn(&mut view, (40, 10))[3], before[6]);
}
