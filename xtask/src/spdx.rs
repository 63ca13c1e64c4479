//! Licence expressions, as far as crates use them: names, `AND`, `OR`, `WITH`, parentheses, and the
//! old `/` for `OR`.

/// Whether a choice of licences that are all allowed satisfies the expression.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn allowed(expression: &str, allow: &[&str]) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allow };
    let answer = reader.either();
    match (answer, reader.words) {
        (Some(answer), []) => Ok(answer),
        _ => Err(format!("cannot read the licence expression \"{expression}\"")),
    }
}

struct Reader<'a> {
    words: &'a [&'a str],
    allow: &'a [&'a str],
}

impl Reader<'_> {
    fn either(&mut self) -> Option<bool> {
        let mut any = self.both()?;
        while self.takes("OR") {
            any |= self.both()?;
        }
        Some(any)
    }

    fn both(&mut self) -> Option<bool> {
        let mut all = self.one()?;
        while self.takes("AND") {
            all &= self.one()?;
        }
        Some(all)
    }

    fn one(&mut self) -> Option<bool> {
        if self.takes("(") {
            let inner = self.either()?;
            return self.takes(")").then_some(inner);
        }
        let mut name = self.next().filter(|word| !matches!(*word, "OR" | "AND" | "WITH" | ")"))?.to_owned();
        if self.takes("WITH") {
            name = format!("{name} WITH {}", self.next()?);
        }
        Some(self.allow.contains(&name.as_str()))
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        if is_next {
            self.words = &self.words[1..];
        }
        is_next
    }

    fn next(&mut self) -> Option<&str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged() {
        let allow = ["MIT", "ISC", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
        let table = [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("MIT OR GPL-3.0 AND LGPL-2.1", true),
            ("GPL-3.0 AND (MIT OR ISC)", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
        ];
        for (expression, answer) in table {
            assert_eq!(allowed(expression, &allow), Ok(answer), "{expression}");
        }
        for broken in ["", "MIT OR", "(MIT", "MIT ISC", "AND MIT", "MIT WITH"] {
            assert!(allowed(broken, &allow).is_err(), "{broken}");
        }
    }
}
