//! Text in columns.

/// Pads cells so that columns begin at the same place; no line ends with spaces.
pub(crate) fn align<const N: usize>(lines: &[[String; N]]) -> Vec<String> {
    let mut widths = [0; N];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let padded = |line: &[String; N]| {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(padded).collect()
}

/// Breaks a text into lines of at most so many characters, each after an indent.
pub(crate) fn wrap(text: &str, indent: &str, width: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty()
            && indent.chars().count() + line.chars().count() + 1 + word.chars().count() > width
        {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_begin_at_the_same_place() {
        let lines = [["a", "bb", ""], ["äöü", "c", "d"]].map(|line| line.map(str::to_owned));
        assert_eq!(align(&lines), ["a    bb", "äöü  c   d"]);
    }

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrap("one two  three four", "  ", 10), "  one two\n  three\n  four");
        assert_eq!(wrap("averylongword x", "", 5), "averylongword\nx");
    }
}
