//! What gpuprobe costs a program.

use serde::Serialize;

use crate::text::printable;

/// From this share of a thread on, the cost is said.
const SAID_FROM: f64 = 0.01;

/// What gpuprobe costs a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TracingCost {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// Name (comm) of the process.
    pub comm: Option<String>,
    /// Time that the hits of probes took, as a share of a thread's time.
    pub share_of_thread: f64,
    /// Hits of probes per second.
    pub hits_per_second: f64,
}

impl TracingCost {
    /// What is said of it, if anything.
    pub fn line(&self) -> Option<String> {
        let (percent, hits) = (self.share_of_thread * 100.0, rounded(self.hits_per_second));
        (self.share_of_thread > SAID_FROM).then(|| {
            format!("gpuprobe costs this process about {percent:.1} % of a thread ({hits} hits/s)")
        })
    }

    /// The same, of which process.
    pub fn line_with_pid(&self) -> Option<String> {
        let who = printable(self.comm.as_deref().unwrap_or("?"));
        Some(format!("{who} (pid {}): {}", self.pid, self.line()?))
    }
}

/// `51,000`: two digits are known.
fn rounded(number: f64) -> String {
    let unit = 10_f64.powf(number.max(10.0).log10().floor() - 1.0);
    let mut text = format!("{:.0}", (number / unit).round() * unit);
    for at in (1..text.len())
        .rev()
        .filter(|at| (text.len() - at) % 3 == 0)
        .collect::<Vec<_>>()
    {
        text.insert(at, ',');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_said_from_a_hundredth_of_a_thread_on() {
        let mut cost = TracingCost {
            share_of_thread: 0.0212,
            hits_per_second: 51_234.0,
            ..TracingCost::default()
        };
        let said = "gpuprobe costs this process about 2.1 % of a thread (51,000 hits/s)";
        assert_eq!(cost.line().as_deref(), Some(said));
        (cost.pid, cost.comm) = (574, Some("e\u{1b}vil".to_owned()));
        let with_pid = format!("e\\u{{1b}}vil (pid 574): {said}");
        assert_eq!(cost.line_with_pid(), Some(with_pid));
        cost.share_of_thread = 0.01;
        assert_eq!(cost.line_with_pid(), None);
    }

    #[test]
    fn two_digits_of_a_rate_are_said() {
        let cases = [
            (0.4, "0"),
            (7.0, "7"),
            (996.0, "1,000"),
            (1_249_999.0, "1,200,000"),
        ];
        for (number, text) in cases {
            assert_eq!(rounded(number), text);
        }
    }
}
