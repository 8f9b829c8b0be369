//! The status page.

use std::fmt::Write;

use super::SessionStatus;
use super::http::Served;

/// The links of the page, and what is behind them.
const LINKS: &[(&str, &str)] = &[
    ("/metrics", "metrics, for Prometheus"),
    ("/api/v1/report", "the live report, JSON"),
    ("/api/v1/explain", "verdicts, JSON"),
    ("/debug/pprof/gpu_inuse", "profile of live memory, pprof"),
    (
        "/debug/pprof/gpu_alloc",
        "profile of memory ever allocated, pprof",
    ),
    (
        "/debug/pprof/gpu_launches",
        "profile of launches by kernel, pprof",
    ),
    ("/healthz", "whether HTTP is answered"),
    ("/readyz", "whether tracing goes on"),
];

const STYLE: &str = ":root{color-scheme:light dark}body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse}td,th{padding:.2em 1em .2em 0;text-align:left;vertical-align:top}\
td.n{text-align:right;font-variant-numeric:tabular-nums}";

/// The page for a [`SessionStatus`] in JSON.
pub(super) fn page(status: &[u8], served: &Served) -> String {
    let status: SessionStatus = serde_json::from_slice(status).unwrap_or_default();
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>gpuprobe</title>\
         <style>{STYLE}</style></head><body>\n<h1>gpuprobe {}</h1>\n",
        escaped(&status.version)
    );
    table(&mut page, "Traced", &traced(&status));
    let lost: Vec<_> = status
        .lost
        .iter()
        .map(|(what, count)| (what.clone(), count.to_string()))
        .collect();
    match lost.is_empty() {
        true => page += "<h2>Lost</h2>\n<p>Nothing.</p>\n",
        false => table(&mut page, "Lost", &lost),
    }
    let served: Vec<_> = served
        .iter()
        .map(|((path, status), count)| (format!("{path} {status}"), count.to_string()))
        .collect();
    table(&mut page, "Served", &served);
    page += "<h2>Documents</h2>\n<table>\n";
    for (path, what) in LINKS {
        // Strings can always be written to.
        let _ = writeln!(
            page,
            "<tr><td><a href=\"{path}\">{path}</a></td><td>{what}</td></tr>"
        );
    }
    page += "</table>\n</body></html>\n";
    page
}

fn traced(status: &SessionStatus) -> Vec<(String, String)> {
    let libraries = format!(
        "{} functions in {} CUDA libraries ({})",
        status.functions, status.libraries, status.attached
    );
    let rows = [
        ("target", status.target.clone()),
        ("modes", status.modes.join(", ")),
        ("attached", libraries),
        ("live traced processes", status.processes.to_string()),
        ("since", format!("{} s", status.seconds)),
        ("PID of gpuprobe", status.pid.to_string()),
    ];
    rows.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

fn table(page: &mut String, title: &str, rows: &[(String, String)]) {
    let _ = writeln!(page, "<h2>{title}</h2>\n<table>");
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let are_numbers = rows.iter().all(|(_, value)| is_number(value));
    let class = if are_numbers { " class=\"n\"" } else { "" };
    for (name, value) in rows {
        let (name, value) = (escaped(name), escaped(value));
        let _ = writeln!(page, "<tr><th>{name}</th><td{class}>{value}</td></tr>");
    }
    page.push_str("</table>\n");
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_state_and_no_markup_of_others() {
        let status = SessionStatus {
            target: "<script>alert(1)</script>".to_owned(),
            lost: vec![("memory".to_owned(), 3)],
            ..SessionStatus::default()
        };
        let status = serde_json::to_vec(&status).unwrap();
        let served = Served::from([(("/metrics", 200), 7)]);
        let page = page(&status, &served);
        assert!(
            page.contains("<tr><th>memory</th><td class=\"n\">3</td></tr>"),
            "{page}"
        );
        assert!(
            page.contains("<tr><th>/metrics 200</th><td class=\"n\">7</td></tr>"),
            "{page}"
        );
        // Numbers between words are words.
        assert!(page.contains("<td>0</td>"), "{page}");
        assert!(!page.contains("<script>"), "{page}");
        assert!(super::page(b"", &Served::new()).contains("<p>Nothing.</p>"));
    }
}
