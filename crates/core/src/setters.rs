//! The macro that gives a struct of options a method for each option. Thread safety does not apply.

/// Methods that set fields of a struct: `setters! { size_ratio: u32, … }` within an `impl` block. So a struct
/// that gets more fields later can be made by `Options::default().size_ratio(4)`.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("Sets [`", stringify!($name), "`](Self#structfield.", stringify!($name), ").")]
            #[must_use]
            pub fn $name(mut self, value: $type) -> Self {
                self.$name = value;
                self
            }
        )*
    };
}
