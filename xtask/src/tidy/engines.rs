//! Adding an engine is six touches, and this is what checks that none is missing.
//!
//! The table of schemes at `tenure::connect` says which engines there are. Each needs, besides its
//! row: its code, its feature, its harness, its row in the suite, its page, its row in the README.

use std::path::Path;

/// The headings that every engine's page has, in this order.
const HEADINGS: [&str; 4] = ["## How it works", "## What it promises", "## Options", "## What can go wrong"];

#[derive(Debug, PartialEq, Eq)]
struct Engine {
    name: String,
    schemes: Vec<String>,
    feature: Option<String>,
}

/// What an engine lacks.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>, String> {
    let read =
        |name: &str| std::fs::read_to_string(root.join(name)).map_err(|error| format!("{name}: {error}"));
    let client = read("crates/tenure/src/client.rs")?;
    let manifest = read("crates/tenure/Cargo.toml")?;
    let suite = read("crates/tenure-testkit/tests/contenders/mod.rs").unwrap_or_default();
    let readme = read("README.md").unwrap_or_default();
    let engines = table(&client);
    if engines.is_empty() {
        return Err("crates/tenure/src/client.rs: the table of schemes was not found".to_owned());
    }
    let mut complaints = Vec::new();
    for engine in &engines {
        let name = &engine.name;
        let mut needs = |there: bool, what: String| {
            if !there {
                complaints.push(format!("engine {name}: {what}"));
            }
        };
        for scheme in &engine.schemes {
            needs(client.contains(&format!("\"{scheme}\"")), format!("connect does not know {scheme}:"));
        }
        let code = format!("crates/tenure/src/engine/{name}");
        let has_code =
            root.join(format!("{code}.rs")).is_file() || root.join(format!("{code}/mod.rs")).is_file();
        needs(has_code, format!("no code in {code}.rs or {code}/mod.rs"));
        if let Some(feature) = &engine.feature {
            let line = format!("\n{feature} = [");
            needs(manifest.contains(&line), format!("no feature {feature} in crates/tenure/Cargo.toml"));
        }
        let harness = format!("crates/tenure-testkit/src/harness/{name}.rs");
        needs(root.join(&harness).is_file(), format!("no harness in {harness}"));
        let row = format!("name: \"{name}\"");
        needs(suite.contains(&row), "no row in crates/tenure-testkit/tests/contenders/mod.rs".to_owned());
        let page = format!("docs/engines/{name}.md");
        needs(readme.contains(&page), format!("README.md does not lead to {page}"));
        let text = read(&page).unwrap_or_default();
        needs(!text.is_empty(), format!("no page {page}"));
        let found: Vec<_> = text.lines().filter(|line| HEADINGS.contains(line)).collect();
        needs(found == HEADINGS, format!("{page} lacks a heading, or has another order: {HEADINGS:?}"));
    }
    Ok(complaints)
}

/// The rows of the table of schemes: `| schemes | what | feature |`, in the documentation of `connect`.
fn table(client: &str) -> Vec<Engine> {
    let rows = client.lines().filter_map(|line| line.strip_prefix("/// |"));
    rows.skip_while(|row| !row.contains("| feature |")).skip(2).filter_map(row).collect()
}

fn row(row: &str) -> Option<Engine> {
    let mut cells = row.split('|');
    let schemes: Vec<String> = ticked(cells.next()?)
        .filter_map(|url| url.split_once(':').map(|(scheme, _)| scheme.to_owned()))
        .collect();
    let feature = cells.nth(1).and_then(|cell| ticked(cell).next());
    let name = feature.clone().or_else(|| schemes.first().cloned())?;
    Some(Engine { name, schemes, feature })
}

/// What stands between backticks.
fn ticked(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_schemes_is_read() {
        let client = "/// | URL | engine | feature |\n/// | --- | --- | --- |\n\
                      /// | `memory:` | here | always there |\n\
                      /// | `zk://` `zks://[user@]h[?x]` | there | `zookeeper` |\n";
        let expected = [
            Engine { name: "memory".into(), schemes: vec!["memory".into()], feature: None },
            Engine {
                name: "zookeeper".into(),
                schemes: vec!["zk".into(), "zks".into()],
                feature: Some("zookeeper".into()),
            },
        ];
        assert_eq!(table(client), expected);
    }
}
