//! A parser for the part of PromQL that these dashboards and rules use.
//!
//! It is strict: it refuses unknown syntax. `promtool` checks the same text end to end.

use lock_testing::limit;

/// A parsed query.
#[derive(Debug)]
pub(crate) enum Expr {
    Number,
    Text(String),
    Selector {
        name: String,
        matchers: Vec<(String, String)>,
        range: Option<String>,
    },
    Call {
        function: String,
        arguments: Vec<Expr>,
    },
    Aggregate {
        /// Whether the operator returns series unchanged.
        picks: bool,
        by: Vec<String>,
        parameter: Option<Box<Expr>>,
        of: Box<Expr>,
    },
    Binary {
        operator: String,
        left: Box<Expr>,
        right: Box<Expr>,
        matching: Matching,
        group: Option<Side>,
    },
    /// The values of a query over a time range.
    Subquery(Box<Expr>),
}

/// The labels on which two sides match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Matching {
    All,
    On(Vec<String>),
    Ignoring(Vec<String>),
}

/// Which side of a many-to-one match keeps its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

const FUNCTIONS: [&str; 18] = [
    "abs",
    "changes",
    "count_over_time",
    "quantile_over_time",
    "deriv",
    "histogram_quantile",
    "increase",
    "irate",
    "label_replace",
    "last_over_time",
    "max_over_time",
    "min_over_time",
    "rate",
    "round",
    "sum_over_time",
    "time",
    "timestamp",
    "vector",
];
/// Binary operators, the weakest binding first.
const OPERATORS: [&[&str]; 5] =
    [&["or"], &["and", "unless"], &["==", "!=", ">=", "<=", ">", "<"], &["+", "-"], &["*", "/"]];

/// Reads a query.
pub(crate) fn parse(text: &str) -> Result<Expr, String> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0 };
    let expr = parser.binary(0)?;
    match parser.peek() {
        "" => Ok(expr),
        rest => Err(format!("{rest:?} is left over in {text}")),
    }
}

impl Expr {
    /// Visits every part, from the outside in; `inside` is the function around it.
    pub(crate) fn visit<'a>(&'a self, inside: &'a str, look: &mut dyn FnMut(&'a Self, &'a str)) {
        look(self, inside);
        match self {
            Self::Number | Self::Text(_) | Self::Selector { .. } => {}
            Self::Subquery(inner) => inner.visit("", look),
            Self::Call { function, arguments } => {
                arguments.iter().for_each(|argument| argument.visit(function, look));
            }
            Self::Aggregate { parameter, of, .. } => {
                if let Some(parameter) = parameter {
                    parameter.visit("", look);
                }
                of.visit("", look);
            }
            Self::Binary { left, right, .. } => {
                left.visit("", look);
                right.visit("", look);
            }
        }
    }
}

fn tokens(text: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.');
        let length = if word(first) {
            rest.find(|c| !word(c)).unwrap_or(rest.len())
        } else if first == '"' {
            let end = rest[1..].find('"').ok_or("a string does not end")?;
            if rest[..=end].contains('\\') {
                return Err("a string has an escape, which this parser does not know".to_owned());
            }
            end + 2
        } else if ["==", "!=", ">=", "<=", "=~", "!~"].iter().any(|two| rest.starts_with(two)) {
            2
        } else if "(){}[],=<>+-*/".contains(first) {
            1
        } else {
            return Err(format!("{first:?} is no part of a query"));
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<String>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> &str {
        self.tokens.get(self.next).map_or("", String::as_str)
    }

    fn take(&mut self) -> String {
        self.next += 1;
        self.tokens.get(self.next - 1).cloned().unwrap_or_default()
    }

    fn is_next(&mut self, token: &str) -> bool {
        let found = self.peek() == token;
        self.next += usize::from(found);
        found
    }

    fn need(&mut self, token: &str) -> Result<(), String> {
        let found = self.take();
        if found == token { Ok(()) } else { Err(format!("{token:?} is missing before {found:?}")) }
    }

    fn binary(&mut self, level: usize) -> Result<Expr, String> {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while operators.contains(&self.peek()) {
            let operator = self.take();
            let _ = self.is_next("bool");
            let matching = if self.is_next("on") {
                Matching::On(self.names()?)
            } else if self.is_next("ignoring") {
                Matching::Ignoring(self.names()?)
            } else {
                Matching::All
            };
            let group = match self.peek() {
                "group_left" => Some(Side::Left),
                "group_right" => Some(Side::Right),
                _ => None,
            };
            if group.is_some() {
                self.take();
                if !self.names()?.is_empty() {
                    return Err("labels of group_left and group_right are not looked at here".to_owned());
                }
            }
            let right = Box::new(self.binary(level + 1)?);
            left = Expr::Binary { operator, left: Box::new(left), right, matching, group };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, String> {
        if self.is_next("(") {
            let inner = self.binary(0)?;
            self.need(")")?;
            if self.is_next("[") {
                let step = self.take();
                if !step.contains(':') {
                    return Err(format!("{step:?} is no range of a subquery"));
                }
                self.need("]")?;
                return Ok(Expr::Subquery(Box::new(inner)));
            }
            return Ok(inner);
        }
        let word = self.take();
        match word.as_str() {
            "sum" | "min" | "max" | "count" | "topk" | "quantile" => self.aggregate(&word),
            function if FUNCTIONS.contains(&function) => {
                let arguments = self.arguments()?;
                Ok(Expr::Call { function: word, arguments })
            }
            number if number.parse::<f64>().is_ok() => Ok(Expr::Number),
            text if text.starts_with('"') => Ok(Expr::Text(text.trim_matches('"').to_owned())),
            name if name.starts_with(|c: char| c.is_ascii_lowercase()) || name.starts_with("ALERTS") => {
                self.selector(word)
            }
            other => Err(format!("{other:?} is neither a function nor a metric")),
        }
    }

    fn aggregate(&mut self, how: &str) -> Result<Expr, String> {
        let has_parameter = ["topk", "quantile"].contains(&how);
        let by = if self.is_next("by") { self.names()? } else { Vec::new() };
        let mut arguments = self.arguments()?;
        let of = arguments.pop().ok_or("an aggregation of nothing")?;
        let parameter = arguments.pop().map(Box::new);
        if parameter.is_some() != has_parameter || !arguments.is_empty() {
            return Err("an aggregation has the wrong number of arguments".to_owned());
        }
        Ok(Expr::Aggregate { picks: how == "topk", by, parameter, of: Box::new(of) })
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, String> {
        self.need("(")?;
        let mut arguments = Vec::new();
        while !self.is_next(")") {
            arguments.push(self.binary(0)?);
            if self.peek() != ")" {
                self.need(",")?;
            }
        }
        Ok(arguments)
    }

    fn names(&mut self) -> Result<Vec<String>, String> {
        self.need("(")?;
        let mut names = Vec::new();
        while !self.is_next(")") {
            names.push(self.take());
            if self.peek() != ")" {
                self.need(",")?;
            }
        }
        Ok(names)
    }

    fn selector(&mut self, name: String) -> Result<Expr, String> {
        let mut matchers = Vec::new();
        if self.is_next("{") {
            while !self.is_next("}") {
                let label = self.take();
                let operator = self.take();
                if !["=", "!=", "=~", "!~"].contains(&operator.as_str()) {
                    return Err(format!("{operator:?} does not compare a label"));
                }
                let value = self.take();
                matchers.push((label, value.trim_matches('"').to_owned()));
                if self.peek() != "}" {
                    self.need(",")?;
                }
            }
        }
        let mut range = None;
        if self.is_next("[") {
            range = Some(self.take());
            self.need("]")?;
        }
        if self.is_next("offset") {
            self.take();
        }
        Ok(Expr::Selector { name, matchers, range })
    }
}

#[test]
#[limit]
fn reads_what_is_right_and_refuses_what_is_not() {
    for good in ["sum by (a) (rate(x{b=~\"c\"}[5m])) / 2 > 0.5", "a unless on (lock) b", "x == 0 or vector(0)"] {
        parse(good).unwrap();
    }
    for bad in ["sum(x", "rate(x[5m]))", "x{a=b c}", "x >", "sum by a (x)", "frobnicate(x)", "x[5m", "1 +", "{}", "x 1"]
    {
        assert!(parse(bad).is_err(), "{bad}");
    }
}
