//! What was measured: rows of named figures, the ratios between them, and medians over runs.

use std::fmt;

/// Names and values. The names are those of the JSON fields.
pub(super) type Figures = Vec<(&'static str, f64)>;

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Replay,
    Pairs,
    OneKey,
    Clients,
    Poller,
    HandOver,
    Held,
}

impl Kind {
    /// In JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Replay => "replay",
            Kind::Pairs => "pairs",
            Kind::OneKey => "one_key",
            Kind::Clients => "clients",
            Kind::Poller => "poller",
            Kind::HandOver => "hand_over",
            Kind::Held => "held",
        }
    }

    /// What is counted by the size of a row: the name of its JSON field, too.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Kind::Plain | Kind::Replay => "depth",
            Kind::Pairs | Kind::OneKey => "tasks",
            Kind::Clients | Kind::Poller => "clients",
            Kind::HandOver => "hand_overs",
            Kind::Held => "leases",
        }
    }
}

/// One measurement.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) size: usize,
    pub(super) figures: Figures,
}

impl Row {
    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// For people.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = grouped(&self.size.to_string());
        let s = if self.size == 1 { "" } else { "s" };
        match self.kind {
            Kind::Plain => write!(f, "plain, depth {size}"),
            Kind::Replay => write!(f, "replay, depth {size}"),
            Kind::Pairs | Kind::OneKey => write!(f, "{size} task{s}"),
            Kind::Clients => write!(f, "{size} client{s}"),
            Kind::Poller => write!(f, "{size} poller{s}, 1 ms"),
            Kind::HandOver => write!(f, "{size} hand-over{s}"),
            Kind::Held => write!(f, "{size} leases"),
        }
    }
}

pub(super) fn find(rows: &[Row], kind: Kind, size: usize) -> Option<&Row> {
    rows.iter().find(|row| row.kind == kind && row.size == size)
}

/// Adds the ratios of one run.
pub(super) fn add_ratios(rows: &mut [Row]) {
    let raw = |kind, rows: &[Row]| rows.iter().find(|row| row.kind == kind)?.get("pairs_per_s");
    let (plain, replay) = (raw(Kind::Plain, rows), raw(Kind::Replay, rows));
    let pollers: Vec<_> = rows.iter().filter(|row| row.kind == Kind::Poller).cloned().collect();
    for row in rows {
        let (kind, size) = (row.kind, row.size);
        let mut add = |name, figure: &str, other: Option<f64>| {
            if let (Some(ours), Some(other)) = (row.get(figure), other) {
                row.figures.push((name, ours / other));
            }
        };
        match kind {
            Kind::Pairs => {
                add("over_replay", "pairs_per_s", replay);
                add("over_plain", "pairs_per_s", plain);
            }
            Kind::Clients => {
                let poller = find(&pollers, Kind::Poller, size);
                add("over_poller", "hand_overs_per_s", poller.and_then(|row| row.get("hand_overs_per_s")));
            }
            _ => {}
        }
    }
}

/// The median of each figure over runs that measured the same.
pub(super) fn medians(runs: &[Vec<Row>]) -> Vec<Row> {
    let Some(first) = runs.first() else { return Vec::new() };
    let median = |row: &Row, name: &str| {
        let rows = runs.iter().filter_map(|run| find(run, row.kind, row.size));
        let mut values: Vec<f64> = rows.filter_map(|row| row.get(name)).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let of_row = |row: &Row| Row {
        figures: row.figures.iter().map(|(name, _)| (*name, median(row, name))).collect(),
        ..*row
    };
    first.iter().map(of_row).collect()
}

/// Three digits that count, and groups of three.
pub(super) fn shown(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_infinite() { "inf".to_owned() } else { "-".to_owned() };
    }
    let decimals = match value.abs() {
        0.0 => 0,
        v if v < 0.001 => 5,
        v if v < 0.01 => 4,
        v if v < 1.0 => 3,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    if decimals == 0 { grouped(&text) } else { text }
}

fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: Kind, size: usize, figures: &[(&'static str, f64)]) -> Row {
        Row { kind, size, figures: figures.to_vec() }
    }

    #[test]
    fn ratios_are_those_of_one_run() {
        let mut run = vec![
            row(Kind::Plain, 64, &[("pairs_per_s", 100.0)]),
            row(Kind::Pairs, 64, &[("pairs_per_s", 50.0)]),
            row(Kind::Replay, 64, &[("pairs_per_s", 25.0)]),
            row(Kind::Clients, 8, &[("hand_overs_per_s", 60.0)]),
            row(Kind::Poller, 8, &[("hand_overs_per_s", 10.0)]),
            row(Kind::Poller, 64, &[("hand_overs_per_s", 1.0)]),
        ];
        add_ratios(&mut run);
        assert_eq!((run[1].get("over_plain"), run[1].get("over_replay")), (Some(0.5), Some(2.0)));
        assert_eq!(run[3].get("over_poller"), Some(6.0));
    }

    #[test]
    fn the_median_is_taken_of_each_figure() {
        let run = |a, b| vec![row(Kind::Pairs, 1, &[("a", a), ("b", b)])];
        let all = medians(&[run(3.0, f64::INFINITY), run(1.0, 7.0), run(2.0, 8.0)]);
        assert_eq!(all[0].figures, [("a", 2.0), ("b", 8.0)]);
    }

    #[test]
    fn three_digits_count() {
        let table = [
            (0.0, "0"),
            (0.000_123_4, "0.00012"),
            (0.456_7, "0.457"),
            (1.046, "1.05"),
            (45.67, "45.7"),
            (456.7, "457"),
            (1_234_567.8, "1,234,568"),
            (f64::INFINITY, "inf"),
        ];
        for (value, text) in table {
            assert_eq!(shown(value), text);
        }
    }
}
