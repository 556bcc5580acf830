//! Values that have a text of their own.

/// Declares an enum whose values each have one: `VALUE = "text",` for each value, and behind the enum the method that gives
/// the text. With `Display` behind the method's name the value displays so, too.
#[macro_export]
macro_rules! texts {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident { $($(#[$doc:meta])* $value:ident = $text:literal,)* }
        $(#[$said:meta])*
        fn $method:ident $(, $display:ident)?
    ) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$doc])* $value,)*
        }

        impl $name {
            /// All of them, in a stable order.
            $vis const ALL: [Self; [$($name::$value,)*].len()] = [$(Self::$value,)*];

            $(#[$said])*
            #[must_use]
            $vis const fn $method(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }
        }

        $(impl core::fmt::$display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.$method())
            }
        })?
    };
}

/// Has a value be written, in JSON and the like, as it displays, and read as it parses.
macro_rules! as_text {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <alloc::string::String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
