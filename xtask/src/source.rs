//! Reads Rust source just well enough to measure it: without comments and the insides of texts.

/// The source with comments, texts and characters blanked out, line by line as before.
pub(crate) fn bare(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest, out.chars().next_back());
        if length == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        }
    }
    out
}

/// How long the comment, text or character is that starts here; 0 if none does.
fn skipped(rest: &str, before: Option<char>) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if rest.starts_with('"') {
        return quoted(rest, '"');
    }
    let in_a_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if !in_a_word && let Some(hashes) = raw_start(rest) {
        let end = format!("\"{}", "#".repeat(hashes));
        let start = rest.find('"').map_or(rest.len(), |at| at + 1);
        return rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len());
    }
    if rest.starts_with('\'') {
        return character(rest);
    }
    0
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// The number of `#` if a raw text starts here.
fn raw_start(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.bytes().take_while(|b| *b == b'#').count();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// A character such as `'x'` or `'\n'`; a lifetime is none.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) => quoted(rest, '\''),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// A function and the lines it takes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) length: usize,
}

/// The functions with a body in bare source. A nested one counts for itself and for the outer one.
pub(crate) fn functions(bare: &str) -> Vec<Function> {
    let starts = bare.match_indices("fn ").filter(|(at, _)| {
        let before = bare[..*at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_')
    });
    starts.filter_map(|(at, _)| function(bare, at)).collect()
}

fn function(bare: &str, at: usize) -> Option<Function> {
    let rest = &bare[at..];
    let name: String = rest[3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let body = body(rest).filter(|_| !name.is_empty())?;
    let mut depth = 0;
    let end = rest[body..].char_indices().find_map(|(at, c)| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        (depth == 0).then_some(body + at)
    })?;
    let line = bare[..at].matches('\n').count() + 1;
    Some(Function { name, line, length: rest[..end].matches('\n').count() + 1 })
}

/// Where the body starts; `None` if the head ends with a semicolon. One in `[u8; 4]` ends nothing.
fn body(rest: &str) -> Option<usize> {
    let mut depth = 0;
    let end = rest.char_indices().find(|(_, c)| {
        depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
        depth <= 0 && matches!(c, '{' | ';')
    });
    end.filter(|(_, c)| *c == '{').map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_texts_and_characters_are_blanked_lines_stay() {
        let source =
            "let a = \"{ \\\" }\"; // {\nlet b = '{'; /* { /* { */\n */ let c = r#\"{\"# ; let d: &'a str;\n";
        let bare = bare(source);
        assert!(!bare.contains('{'), "{bare}");
        assert_eq!(bare.matches('\n').count(), source.matches('\n').count());
        assert!(bare.contains("let b =") && bare.contains("let c =") && bare.contains("&'a str"), "{bare}");
        assert_eq!(super::bare("for\"x\""), "for   ");
    }

    #[test]
    fn functions_are_measured() {
        let source = "trait T { fn none(&self); }\nfn one(a: [u8; 4]) {}\nimpl A {\n    fn two() {\n        if x {\n        }\n    }\n}\n";
        let found = functions(source);
        let expected = [("one", 2, 1), ("two", 4, 4)];
        let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.length)).collect();
        assert_eq!(found, expected);
    }
}
