//! Enums whose values each have a text of their own.

/// Declares such an enum: `VALUE = "text",` for each value, and behind the enum the method that gives the text. With `Display`
/// behind the method's name the value displays so, too.
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
