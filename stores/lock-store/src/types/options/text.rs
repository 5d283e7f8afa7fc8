//! Options as text, for configuration files, the environment and command lines.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::types::error::LockError;
use crate::types::options::{LockOptions, Renew, Wait};
use crate::types::system::text::{self, UNITS};

/// Reads a duration such as `10s`, `250ms` or `1m30s`.
pub fn parse_duration(text: &str) -> Result<Duration, LockError> {
    text::duration(text.trim()).map_err(|why| {
        LockError::misconfigured(format!("{text:?} is not a duration: {why}; write for example 10s, 250ms or 1m30s"))
    })
}

/// Writes a duration in whole milliseconds, so that it can be read again.
struct Text(Duration);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0.as_millis();
        if left == 0 {
            return f.write_str("0s");
        }
        for (name, millis) in UNITS {
            let count = left / u128::from(millis);
            if count > 0 {
                write!(f, "{count}{name}")?;
            }
            left %= u128::from(millis);
        }
        Ok(())
    }
}

/// Reads `none`, `forever` or a duration such as `10s`.
impl FromStr for Wait {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        Ok(match text {
            "none" => Self::None,
            "forever" => Self::Forever,
            _ => parse_duration(text)
                .map_err(|error| LockError::misconfigured(format!("{error}, none or forever")))?
                .into(),
        })
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Forever => f.write_str("forever"),
            Self::AtMost(limit) => write!(f, "{}", Text(*limit)),
        }
    }
}

/// Reads `auto`, `off` or a duration such as `10s`.
impl FromStr for Renew {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        Ok(match text {
            "auto" => Self::Auto,
            "off" => Self::Off,
            _ => Self::Every(
                parse_duration(text).map_err(|error| LockError::misconfigured(format!("{error}, auto or off")))?,
            ),
        })
    }
}

impl fmt::Display for Renew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Every(interval) => write!(f, "{}", Text(*interval)),
        }
    }
}

impl LockOptions {
    /// Sets one option by its name. Returns whether an option of that name exists.
    #[doc(hidden)]
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, LockError> {
        match name {
            "ttl" => self.ttl = parse_duration(value)?,
            "wait" => self.wait = value.parse()?,
            "renew" => self.renew = value.parse()?,
            "max_hold" => self.max_hold = Some(parse_duration(value)?),
            "min_hold" => self.min_hold = parse_duration(value)?,
            "stuck_after" => self.stuck_after = Some(parse_duration(value)?),
            "handoff" => self.handoff = parse_bool(value)?,
            "release_in_background" => self.release_in_background = parse_bool(value)?,
            "durability" => self.durability = Some(value.parse()?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn parse_bool(text: &str) -> Result<bool, LockError> {
    text.parse().map_err(|_| LockError::misconfigured(format!("{text:?} is neither true nor false")))
}

#[cfg(feature = "serde")]
mod with_serde {
    use std::fmt;

    use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
    use serde::ser::{SerializeStruct, Serializer};
    use serde::{Deserialize, Serialize};

    use super::Text;
    use crate::types::options::{LockOptions, NAMES};

    /// Reads a table of options, each by its name. Durations are written as `"10s"`. `wait` may also be `"none"` or
    /// `"forever"`, and `renew` may be `"auto"` or `"off"`. An option that is left out keeps its default. An unknown
    /// name is an error, and so are options that contradict each other.
    impl<'de> Deserialize<'de> for LockOptions {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_struct("LockOptions", &NAMES, Table)
        }
    }

    struct Table;

    impl<'de> Visitor<'de> for Table {
        type Value = LockOptions;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table of lock options, such as ttl = \"10s\"")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LockOptions, A::Error> {
            let mut options = LockOptions::default();
            while let Some(name) = map.next_key::<String>()? {
                let value = map.next_value::<Value>()?.0;
                let known = options.set(&name, &value).map_err(|error| A::Error::custom(format!("{name}: {error}")))?;
                if !known {
                    return Err(A::Error::unknown_field(&name, &NAMES));
                }
            }
            options.validate().map_err(A::Error::custom)?;
            Ok(options)
        }
    }

    /// A value that is text or a boolean.
    struct Value(String);

    impl<'de> Deserialize<'de> for Value {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(Scalar)
        }
    }

    struct Scalar;

    impl Visitor<'_> for Scalar {
        type Value = Value;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("text with a unit, such as \"10s\"")
        }

        fn visit_str<E>(self, value: &str) -> Result<Value, E> {
            Ok(Value(value.to_owned()))
        }

        fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
            Ok(Value(value.to_string()))
        }
    }

    /// Writes a table that can be read again. Unset options are left out. Times are cut to whole milliseconds.
    impl Serialize for LockOptions {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut table = serializer.serialize_struct("LockOptions", NAMES.len())?;
            table.serialize_field("ttl", &Text(self.ttl).to_string())?;
            table.serialize_field("wait", &self.wait.to_string())?;
            table.serialize_field("renew", &self.renew.to_string())?;
            match self.max_hold {
                Some(limit) => table.serialize_field("max_hold", &Text(limit).to_string())?,
                None => table.skip_field("max_hold")?,
            }
            table.serialize_field("min_hold", &Text(self.min_hold).to_string())?;
            match self.stuck_after {
                Some(age) => table.serialize_field("stuck_after", &Text(age).to_string())?,
                None => table.skip_field("stuck_after")?,
            }
            table.serialize_field("handoff", &self.handoff)?;
            table.serialize_field("release_in_background", &self.release_in_background)?;
            match self.durability {
                Some(durability) => table.serialize_field("durability", &durability.to_string())?,
                None => table.skip_field("durability")?,
            }
            table.end()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse_duration;
    use crate::types::options::{Renew, Wait};

    #[test]
    fn durations_are_read_as_the_attribute_reads_them() {
        for (text, millis) in
            [("10s", 10_000), ("250ms", 250), ("1m30s", 90_000), ("1d2h3m4s5ms", 93_784_005), ("0s", 0)]
        {
            let read = parse_duration(text).unwrap();
            assert_eq!(read, Duration::from_millis(millis), "{text}");
            assert_eq!(Renew::Every(read).to_string(), text);
        }
        for (text, says) in [
            ("", "empty"),
            ("10", "unit is missing"),
            ("1m30", "unit is missing"),
            ("s", "number is missing"),
            ("1.5s", "whole numbers"),
            ("10 s", "whole numbers"),
            ("10sec", "whole numbers"),
            ("30s1m", "from large to small"),
            ("1s1s", "each once"),
            ("-1s", "whole numbers"),
            ("99999999999999999999s", "too large"),
            ("999999999999999999d", "too long"),
        ] {
            let error = parse_duration(text).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("1m30s"), "{text}: {error}");
        }
    }

    #[test]
    fn waits_and_renewals_have_words_of_their_own() {
        for (text, wait) in [
            ("none", Wait::None),
            ("0s", Wait::None),
            ("forever", Wait::Forever),
            ("5s", Wait::AtMost(Duration::from_secs(5))),
        ] {
            assert_eq!(text.parse::<Wait>().unwrap(), wait);
        }
        for text in ["auto", "off", "10s"] {
            assert_eq!(text.parse::<Renew>().unwrap().to_string(), text);
        }
        assert!("never".parse::<Wait>().unwrap_err().to_string().ends_with("none or forever"));
        assert!("yes".parse::<Renew>().unwrap_err().to_string().ends_with("auto or off"));
    }
}
