//! Series that are kept between scrapes, and names and verdicts that come now and then.

use super::*;
use gpuprobe_model::Untraced;

/// The samples of a text, sorted.
fn samples(text: &str) -> Vec<&str> {
    let mut samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    samples.sort_unstable();
    samples
}

#[test]
fn series_that_are_kept_are_the_ones_that_would_be_made() {
    let mut host = Host::default();
    let mut kept = Metrics::default();
    for pid in 1..20 {
        host.begin(pid, "train");
        host.alloc(pid, "cudaMalloc", 100);
    }
    let step_ns = 100_000_000;
    for round in 0..200 {
        let pid = 1 + round * 7 % 25;
        match round % 5 {
            0 if round > 50 => host.end(pid),
            1 => host.alloc(pid, "cudaMallocManaged", 1000 + u64::from(round)),
            2 => host.launches(pid, 7, u64::from(round)),
            3 => host.copy(pid, 10),
            _ => host.alloc(pid, "cudaMalloc", 10 << 20),
        }
        if round == 100 {
            host.usage.processes.insert(4, vec![(3, 1 << 30)]);
            host.usage.untraced.insert(400, Untraced::default());
        }
        host.time_ns += step_ns;
        host.update(&mut kept);
        // Made at once of all processes.
        let mut families = families(&kept);
        let text = kept.text().unwrap();
        let none = vec![Vec::new(); families.len()];
        let whole = text::document(families.clone(), &none).unwrap();
        assert_eq!(samples(&text), samples(&whole));
        assert!(text.ends_with("# EOF\n"));
        kept.mark_scraped();
        let mut fresh = Metrics::default();
        host.update(&mut fresh);
        let mut fresh = super::families(&fresh);
        // Verdicts come later, and a reader that has just come knows of no process that has ended.
        for family in [&mut families, &mut fresh] {
            family.retain(|one| {
                let own = one.metric.description();
                let is_late = [Metric::Verdict, Metric::Series].contains(&one.metric);
                own.kind == MetricType::Gauge && !is_late
            });
        }
        assert_eq!(families, fresh, "round {round}");
    }
}

#[test]
fn names_and_verdicts_are_given_again_now_and_then() {
    let mut host = Host::default();
    let mut metrics = Metrics::default();
    host.begin(7, "train");
    host.begin(8, "idle");
    host.alloc(7, "cudaMalloc", 100);
    host.alloc(8, "cudaMalloc", 100);
    let site = |families: &[Family], pid, name| {
        sum(families, Metric::Site, &[("pid", pid), ("site", name)])
    };
    let families = host.served(&mut metrics);
    assert_eq!(host.described, HashSet::from([7, 8]));
    assert_eq!(site(&families, "7", "cudaMalloc"), 100);
    let mut described = [0, 0];
    for second in 1..=60 {
        host.time_ns += 1_000_000_000;
        host.alloc(7, "cudaMalloc", 1);
        let families = host.served(&mut metrics);
        assert_eq!(site(&families, "7", "cudaMalloc"), 100 + second);
        for (count, pid) in described.iter_mut().zip([7, 8]) {
            *count += usize::from(host.described.contains(&pid));
        }
    }
    // After 5 s each; after 10, 20 and 40 s.
    assert_eq!(described, [12, 3]);
    // A call site that was never seen is named at once.
    host.alloc(8, "cudaMallocManaged", 7);
    host.time_ns += 1_000_000_000;
    let families = host.served(&mut metrics);
    assert_eq!(site(&families, "8", "cudaMallocManaged"), 7);
    // The process that has the id now has nothing of the one before.
    host.end(8);
    host.begin(8, "other");
    let families = host.served(&mut metrics);
    assert_eq!(sum(&families, Metric::Site, &[("pid", "8")]), 0);
    assert_eq!(sum(&families, Metric::Verdict, &[("pid", "8")]), 0);
}

#[test]
fn few_call_sites_are_named_at_a_time_and_sums_are_exact() {
    let mut host = Host::default();
    let mut metrics = Metrics::new(MetricLimits {
        series: 100_000,
        ..MetricLimits::default()
    });
    for pid in 1..=1500 {
        host.begin(pid, "train");
        host.alloc(pid, "cudaMalloc", 100);
    }
    let mut named = Vec::new();
    for _ in 0..5 {
        host.time_ns += 1_000_000_000;
        let families = host.served(&mut metrics);
        assert_eq!(sum(&families, Metric::Site, &[]), 150_000);
        named.push(sum(&families, Metric::Site, &[("site", "cudaMalloc")]) / 100);
    }
    assert_eq!(named, [500, 1000, 1500, 1500, 1500]);
}
