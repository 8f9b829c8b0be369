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
    /// If its tensors are not recorded: the share of a thread's time that they took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors_not_recorded: Option<f64>,
}

impl TracingCost {
    /// What is said of it, if anything.
    pub fn lines(&self) -> Vec<String> {
        let (percent, hits) = (self.share_of_thread * 100.0, rounded(self.hits_per_second));
        let cost = (self.share_of_thread > SAID_FROM).then(|| {
            format!("gpuprobe costs this process about {percent:.1} % of a thread ({hits} hits/s)")
        });
        let tensors = self.tensors_not_recorded.map(|share| {
            let percent = share * 100.0;
            format!("tensors not recorded: they would cost {percent:.0} % of a thread")
        });
        cost.into_iter().chain(tensors).collect()
    }

    /// The same, of which process.
    pub fn lines_with_pid(&self) -> Vec<String> {
        let who = printable(self.comm.as_deref().unwrap_or("?"));
        let lines = self.lines().into_iter();
        lines
            .map(|line| format!("{who} (pid {}): {line}", self.pid))
            .collect()
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
        assert_eq!(cost.lines(), [said]);
        cost.tensors_not_recorded = Some(0.07);
        let off = "tensors not recorded: they would cost 7 % of a thread";
        assert_eq!(cost.lines(), [said, off]);
        (cost.pid, cost.comm) = (574, Some("e\u{1b}vil".to_owned()));
        assert_eq!(
            cost.lines_with_pid()[1],
            format!("e\\u{{1b}}vil (pid 574): {off}")
        );
        cost.share_of_thread = 0.01;
        assert_eq!(cost.lines(), [off]);
        cost.tensors_not_recorded = None;
        assert!(cost.lines().is_empty());
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
