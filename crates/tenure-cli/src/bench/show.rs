//! Results for people, for pages and for programs.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::figures::{Figures, Kind, Row, find, shown};
use super::{Results, machine::Machine};

/// What stands over the rows of a table.
const GROUPS: [(&str, &[Kind]); 5] = [
    (
        "Uncontended: each task acquires and releases a key of its own",
        &[Kind::Plain, Kind::Replay, Kind::Pairs],
    ),
    ("One key, tasks of one client", &[Kind::OneKey]),
    ("One key, separate clients on two workers", &[Kind::Clients, Kind::Poller]),
    ("Hand-over after 20 to 70 ms of quiet", &[Kind::HandOver]),
    ("Leases held and renewed", &[Kind::Held]),
];

/// Titles of columns, by the names of figures.
const TITLES: [(&str, &str); 25] = [
    ("pairs_per_s", "pairs/s"),
    ("pair_p50_ms", "p50 ms"),
    ("pair_p99_ms", "p99 ms"),
    ("pair_p999_ms", "p99.9 ms"),
    ("over_replay", "/ replay"),
    ("over_plain", "/ plain"),
    ("grants_per_s", "grants/s"),
    ("hand_overs_per_s", "hand-overs/s"),
    ("wait_p50_ms", "wait p50 ms"),
    ("wait_p99_ms", "wait p99 ms"),
    ("most_over_fewest", "most/fewest"),
    ("fewest_grants", "fewest"),
    ("over_poller", "/ poller"),
    ("client_cpu_us", "client CPU us"),
    ("hand_over_p50_ms", "p50 ms"),
    ("hand_over_p99_ms", "p99 ms"),
    ("publish_p50_ms", "PUBLISH p50 ms"),
    ("publish_p99_ms", "PUBLISH p99 ms"),
    ("over_publish", "/ PUBLISH"),
    ("acquired_in_ms", "acquired in ms"),
    ("client_cpu_percent", "client CPU %"),
    ("memory_mb", "memory MB"),
    ("lowest_remaining_of_term", "lowest left/term"),
    ("lost", "lost"),
    ("commands_per_s", "commands/s"),
];

/// What the project asks of itself. Told, not enforced: other machines have other figures.
struct Goal {
    what: &'static str,
    kind: Kind,
    size: usize,
    figure: &'static str,
    at_least: bool,
    bound: f64,
    only_redis: bool,
}

const fn goal(
    what: &'static str,
    (kind, size, figure): (Kind, usize, &'static str),
    at_least: bool,
    bound: f64,
    only_redis: bool,
) -> Goal {
    Goal { what, kind, size, figure, at_least, bound, only_redis }
}

static GOALS: [Goal; 8] = [
    goal("one key, 64 tasks: grants/s", (Kind::OneKey, 64, "grants_per_s"), true, 500_000.0, false),
    goal("one key, 64 tasks: most/fewest", (Kind::OneKey, 64, "most_over_fewest"), false, 1.2, false),
    goal("8 clients / poller", (Kind::Clients, 8, "over_poller"), true, 5.0, true),
    goal("8 clients: most/fewest", (Kind::Clients, 8, "most_over_fewest"), false, 1.05, true),
    goal("64 clients / poller", (Kind::Clients, 64, "over_poller"), true, 3.5, true),
    goal("64 clients: most/fewest", (Kind::Clients, 64, "most_over_fewest"), false, 1.05, true),
    goal("100,000 leases: client CPU %", (Kind::Held, 100_000, "client_cpu_percent"), false, 15.0, false),
    goal(
        "100,000 leases: lowest left/term",
        (Kind::Held, 100_000, "lowest_remaining_of_term"),
        true,
        0.5,
        false,
    ),
];

struct Measured {
    goal: &'static Goal,
    value: f64,
    is_met: bool,
}

fn goals(results: &Results) -> Vec<Measured> {
    let measured = GOALS.iter().filter_map(|goal| {
        if goal.only_redis && results.engine != "redis" {
            return None;
        }
        let value = find(&results.rows, goal.kind, goal.size)?.get(goal.figure)?;
        let is_met = if goal.at_least { value >= goal.bound } else { value <= goal.bound };
        Some(Measured { goal, value, is_met })
    });
    measured.collect()
}

impl Measured {
    fn bound(&self) -> String {
        format!("{} {}", if self.goal.at_least { ">=" } else { "<=" }, shown(self.goal.bound))
    }

    fn verdict(&self) -> &'static str {
        if self.is_met { "met" } else { "missed" }
    }
}

/// A table: a title, and cells by row; the first row is the head.
type Table = (String, Vec<Vec<String>>);

fn tables(results: &Results) -> Vec<Table> {
    let mut tables = Vec::new();
    for (title, kinds) in GROUPS {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| kinds.contains(&row.kind)).collect();
        let is_in = |name: &str| rows.iter().any(|row| row.get(name).is_some());
        let columns: Vec<_> = TITLES.iter().filter(|(name, _)| is_in(name)).collect();
        if rows.is_empty() {
            continue;
        }
        let head = std::iter::once(String::new()).chain(columns.iter().map(|(_, title)| (*title).to_owned()));
        let mut cells = vec![head.collect::<Vec<_>>()];
        for row in rows {
            let values = columns.iter().map(|(name, _)| row.get(name).map_or("-".to_owned(), shown));
            cells.push(std::iter::once(row.to_string()).chain(values).collect());
        }
        tables.push((title.to_owned(), cells));
    }
    let goals = goals(results);
    if !goals.is_empty() {
        let mut cells = vec![["", "measured", "goal", ""].map(str::to_owned).to_vec()];
        for one in goals {
            cells.push(vec![
                one.goal.what.to_owned(),
                shown(one.value),
                one.bound(),
                one.verdict().to_owned(),
            ]);
        }
        tables.push(("Goals of the project".to_owned(), cells));
    }
    tables
}

fn heading(results: &Results) -> String {
    let runs =
        if results.runs == 1 { "1 run".to_owned() } else { format!("median of {} runs", results.runs) };
    let (engine, place) = (&results.engine, results.place);
    format!("{engine}, {place}: {runs} of {:?} each, ratios within one run", results.span)
}

/// Aligned columns.
pub(super) fn text(results: &Results) -> String {
    let mut text = format!("{}\n", heading(results));
    let facts: Vec<_> = results.machine.0.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let _ = writeln!(text, "{}", facts.join(", "));
    for (title, cells) in tables(results) {
        let _ = writeln!(text, "\n{title}");
        let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..cells[0].len()).map(width).collect();
        for row in &cells {
            let mut line = format!("  {:<width$}", row[0], width = widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                let _ = write!(line, "  {cell:>width$}");
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    results.notes.iter().for_each(|note| {
        let _ = writeln!(text, "\n{note}");
    });
    text
}

/// A section of a page.
pub(super) fn markdown(results: &Results) -> String {
    let mut text = format!("## {}\n\n", heading(results));
    let facts: Vec<_> = results.machine.0.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let _ = writeln!(text, "{}.", facts.join(", "));
    for (title, cells) in tables(results) {
        let _ = writeln!(text, "\n### {title}\n");
        for (at, row) in cells.iter().enumerate() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
            if at == 0 {
                let _ = writeln!(text, "| --- |{}", " ---: |".repeat(row.len() - 1));
            }
        }
    }
    results.notes.iter().for_each(|note| {
        let _ = writeln!(text, "\n{note}");
    });
    text.push('\n');
    text
}

/// One object per line: the machine, the rows, the goals.
pub(super) fn lines(results: &Results) -> String {
    let mut text = String::new();
    let mut add = |kind: &str, fields: Map<String, Value>| {
        let fields = Value::Object(fields).to_string();
        let _ = writeln!(text, "{{\"v\":1,\"kind\":\"{kind}\",{}", &fields[1..]);
    };
    add("machine", machine(&results.machine, results));
    for row in &results.rows {
        let mut fields = Map::new();
        fields.insert(row.kind.unit().to_owned(), json!(row.size));
        fields.extend(values(&row.figures));
        add(row.kind.name(), fields);
    }
    for one in goals(results) {
        let mut fields = Map::new();
        fields.insert("what".to_owned(), json!(one.goal.what));
        fields.insert("measured".to_owned(), json!(one.value));
        let bound = if one.goal.at_least { "at_least" } else { "at_most" };
        fields.insert(bound.to_owned(), json!(one.goal.bound));
        fields.insert("met".to_owned(), json!(one.is_met));
        add("goal", fields);
    }
    text
}

fn machine(machine: &Machine, results: &Results) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("engine".to_owned(), json!(results.engine));
    fields.insert("place".to_owned(), json!(results.place));
    fields.insert("runs".to_owned(), json!(results.runs));
    fields.insert("span_ms".to_owned(), json!(results.span.as_secs_f64() * 1e3));
    fields.extend(machine.0.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
    fields
}

/// A ratio to nothing is null.
fn values(figures: &Figures) -> impl Iterator<Item = (String, Value)> {
    figures.iter().map(|(name, value)| ((*name).to_owned(), json!(value)))
}
