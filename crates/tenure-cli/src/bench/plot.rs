//! Line charts as SVG, written by hand.

use std::fmt::Write as _;
use std::path::Path;

use super::figures::{Kind, Row, shown};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 55.0;
/// Told apart by people who see few colours, too.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#555555"];

/// A line: its name, and a value for each place on the horizontal axis that it has one for.
type Series = (String, Vec<Option<f64>>);

/// Writes the charts of what was measured; their names.
pub(super) fn write(folder: &Path, rows: &[Row]) -> std::io::Result<Vec<&'static str>> {
    std::fs::create_dir_all(folder)?;
    let mut written = Vec::new();
    for (name, chart) in charts(rows) {
        std::fs::write(folder.join(name), chart)?;
        written.push(name);
    }
    Ok(written)
}

fn charts(rows: &[Row]) -> Vec<(&'static str, String)> {
    let sizes = |kinds: &[Kind]| {
        let mut sizes: Vec<usize> =
            rows.iter().filter(|row| kinds.contains(&row.kind)).map(|row| row.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    };
    let series = |name: &str, kind: Kind, figure: &str, sizes: &[usize]| -> Series {
        let value = |size: &usize| super::figures::find(rows, kind, *size)?.get(figure);
        (name.to_owned(), sizes.iter().map(value).collect())
    };
    let raw = |name: &str, kind: Kind, sizes: &[usize]| -> Series {
        let value = rows.iter().find(|row| row.kind == kind).and_then(|row| row.get("pairs_per_s"));
        (name.to_owned(), vec![value; sizes.len()])
    };
    let mut charts = Vec::new();
    let tasks = sizes(&[Kind::Pairs]);
    if !tasks.is_empty() {
        let lines = [
            series("tenure", Kind::Pairs, "pairs_per_s", &tasks),
            raw("plain, depth 64", Kind::Plain, &tasks),
            raw("replay, depth 64", Kind::Replay, &tasks),
        ];
        charts.push(("pairs.svg", chart("Uncontended pairs/s", "tasks", &tasks, &lines, false)));
        let lines = [("p50", "pair_p50_ms"), ("p99", "pair_p99_ms"), ("p99.9", "pair_p999_ms")]
            .map(|(name, figure)| series(name, Kind::Pairs, figure, &tasks));
        charts.push(("latency.svg", chart("Time of an uncontended pair, ms", "tasks", &tasks, &lines, true)));
    }
    let contenders = sizes(&[Kind::OneKey, Kind::Clients, Kind::Poller]);
    if !contenders.is_empty() {
        let mut lines = Vec::new();
        for (name, kind) in
            [("one client", Kind::OneKey), ("clients", Kind::Clients), ("1 ms pollers", Kind::Poller)]
        {
            lines.push(series(&format!("{name} p50"), kind, "wait_p50_ms", &contenders));
            lines.push(series(&format!("{name} p99"), kind, "wait_p99_ms", &contenders));
        }
        let title = "Wait for one key, ms";
        charts.push(("waits.svg", chart(title, "tasks or clients", &contenders, &lines, true)));
    }
    charts
}

/// A chart over places at equal distances.
fn chart(title: &str, below: &str, places: &[usize], series: &[Series], logarithmic: bool) -> String {
    let values =
        || series.iter().flat_map(|(_, values)| values.iter().flatten().copied()).filter(|v| *v > 0.0);
    let axis = Axis::over(values(), logarithmic);
    let x = |at: usize| {
        let between = (WIDTH - LEFT - RIGHT) / places.len() as f64;
        LEFT + between * (at as f64 + 0.5)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"28\" font-size=\"17\">{}</text>\n",
        escaped(title)
    );
    for tick in &axis.ticks {
        let y = axis.y(*tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0,
            shown(*tick)
        );
    }
    for (at, place) in places.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{place}</text>",
            x(at),
            HEIGHT - BOTTOM + 20.0
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        HEIGHT - 12.0,
        escaped(below)
    );
    let drawn = series.iter().filter(|(_, values)| values.iter().flatten().any(|value| *value > 0.0));
    for (number, (name, values)) in drawn.enumerate() {
        line(&mut svg, number, name, values, &axis, &x);
    }
    svg.push_str("</svg>\n");
    svg
}

/// One line with its points and its name.
fn line(
    svg: &mut String,
    number: usize,
    name: &str,
    values: &[Option<f64>],
    axis: &Axis,
    x: &dyn Fn(usize) -> f64,
) {
    let colour = COLOURS[number % COLOURS.len()];
    let points = values.iter().enumerate().filter_map(|(at, value)| {
        let value = value.filter(|value| *value > 0.0 && value.is_finite())?;
        Some((x(at), axis.y(value)))
    });
    let points: Vec<(f64, f64)> = points.collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        path.join(" ")
    );
    for (x, y) in points {
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
    }
    let (x, y) = (WIDTH - RIGHT + 14.0, TOP + 20.0 * number as f64 + 8.0);
    let _ = writeln!(
        svg,
        "<path d=\"M{x:.1} {:.1}h18\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
        y - 4.0,
        x + 24.0,
        escaped(name)
    );
}

/// The vertical axis.
struct Axis {
    logarithmic: bool,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone, logarithmic: bool) -> Axis {
        let values = values.filter(|value| value.is_finite());
        let most = values.clone().fold(f64::MIN_POSITIVE, f64::max);
        if logarithmic {
            let least = values.fold(most, f64::min);
            let (first, last) = (least.log10().floor(), most.log10().ceil().max(least.log10().floor() + 1.0));
            let ticks = std::iter::successors(Some(first), |exponent| Some(exponent + 1.0));
            let ticks = ticks.take_while(|exponent| *exponent <= last).map(|exponent| 10f64.powf(exponent));
            return Axis { logarithmic, low: first, high: last, ticks: ticks.collect() };
        }
        // Four to ten steps of 1, 2 or 5 times a power of ten.
        let power = 10f64.powf((most / 4.0).log10().floor());
        let step = [5.0, 2.0, 1.0].map(|factor| factor * power).into_iter().find(|step| most / step >= 3.0);
        let step = step.unwrap_or(power);
        let count = (most / step).ceil();
        let ticks = std::iter::successors(Some(0.0), |number| Some(number + 1.0));
        let ticks = ticks.take_while(|number| *number <= count).map(|number| number * step).collect();
        Axis { logarithmic, low: 0.0, high: count * step, ticks }
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.log10() } else { value };
        let share = (value - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_what_is_drawn() {
        let axis = Axis::over([3.0, 141_000.0].into_iter(), false);
        assert_eq!(
            axis.ticks,
            [0.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0, 100_000.0, 120_000.0, 140_000.0, 160_000.0]
        );
        let axis = Axis::over([0.03, 4.0].into_iter(), true);
        assert_eq!((axis.low, axis.high), (-2.0, 1.0));
        for value in [0.03, 4.0] {
            assert!((TOP..=HEIGHT - BOTTOM).contains(&axis.y(value)));
        }
        // A single value, and none at all.
        assert!(Axis::over([1.0].into_iter(), true).y(1.0).is_finite());
        assert!(Axis::over(std::iter::empty(), false).y(0.0).is_finite());
    }
}
