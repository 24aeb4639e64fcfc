//! `#[derive(Trace)]` for `rt::gc`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Fields, GenericParam, Result, parse_macro_input, parse_quote};

/// Implements `rt::gc::Trace`: the collector is shown each field, and each field's type must be `Trace`.
///
/// A type that implements `Drop` says so with `#[trace(drop)]`. Otherwise it is refused, since its `Drop` would not run: the collector
/// frees what has nothing but edges and plain data without looking at it.
///
/// `#[trace(crate = path)]` names the library if it is not `rt`.
#[proc_macro_derive(Trace, attributes(trace))]
pub fn derive_trace(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(input).unwrap_or_else(|e| e.to_compile_error()).into()
}

/// What the attributes say.
struct Options {
    has_drop: bool,
    library: syn::Path,
}

fn options(attributes: &[Attribute]) -> Result<Options> {
    let mut options = Options { has_drop: false, library: parse_quote!(::rt) };
    for attribute in attributes.iter().filter(|a| a.path().is_ident("trace")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("drop") {
                options.has_drop = true;
                return Ok(());
            }
            if meta.path.is_ident("crate") {
                options.library = meta.value()?.parse()?;
                return Ok(());
            }
            Err(meta.error("want `drop` or `crate = path`"))
        })?;
    }
    Ok(options)
}

/// The fields that a pattern binds, by the names of the bindings.
fn bind(fields: &Fields) -> (TokenStream, Vec<(syn::Ident, &syn::Type)>) {
    let bound: Vec<(syn::Ident, &syn::Type)> =
        fields.iter().enumerate().map(|(i, f)| (format_ident!("field_{i}"), &f.ty)).collect();
    let names = bound.iter().map(|(name, _)| name);
    let pattern = match fields {
        Fields::Named(named) => {
            let keys = named.named.iter().map(|f| &f.ident);
            quote!({ #(#keys: #names),* })
        }
        Fields::Unnamed(_) => quote!((#(#names),*)),
        Fields::Unit => quote!(),
    };
    (pattern, bound)
}

fn expand(mut input: DeriveInput) -> Result<TokenStream> {
    let Options { has_drop, library } = options(&input.attrs)?;
    for field in fields(&input.data) {
        if let Some(a) = field.attrs.iter().find(|a| a.path().is_ident("trace")) {
            return Err(Error::new(a.span(), "fields have no such attribute: all of them are traced"));
        }
    }
    let name = input.ident.clone();
    let variants: Vec<(TokenStream, &Fields)> = match &input.data {
        Data::Struct(s) => vec![(quote!(#name), &s.fields)],
        Data::Enum(e) => {
            e.variants.iter().map(|v| (&v.ident, &v.fields)).map(|(v, f)| (quote!(#name::#v), f)).collect()
        }
        Data::Union(u) => return Err(Error::new(u.union_token.span(), "a union cannot be traced: which field is it?")),
    };
    let mut arms = Vec::new();
    let mut types = Vec::new();
    for (path, fields) in &variants {
        let (pattern, bound) = bind(fields);
        let calls = bound
            .iter()
            .map(|(field, ty)| quote_spanned!(here(ty)=> <#ty as #library::gc::Trace>::trace(#field, visitor);));
        arms.push(quote!(#path #pattern => { #(#calls)* }));
        types.extend(bound.iter().map(|(_, ty)| *ty));
    }
    let body = if arms.is_empty() { quote!(match *self {}) } else { quote!(match self { #(#arms)* }) };
    let edges = types.iter().map(|ty| quote_spanned!(here(ty)=> <#ty as #library::gc::Trace>::HAS_EDGES));
    let drops = types.iter().map(|ty| quote_spanned!(here(ty)=> <#ty as #library::gc::Trace>::NEEDS_DROP));
    let drops = if has_drop { quote!(true) } else { quote!(false #(|| #drops)*) };
    let edges = quote!(false #(|| #edges)*);
    let flats = types.iter().map(|ty| quote_spanned!(here(ty)=> <#ty as #library::gc::Trace>::IS_FLAT));
    let flats = quote!(true #(&& #flats)*);
    for param in &mut input.generics.params {
        if let GenericParam::Type(t) = param {
            t.bounds.push(parse_quote!(#library::gc::Trace));
        }
    }
    let (impls, args, wheres) = input.generics.split_for_impl();
    // Overlaps with the blanket implementation if the type is `Drop`, which the compiler then reports, by this name.
    let no_drop = (!has_drop).then(|| {
        quote! {
            trait ATypeWithDropSaysTraceDrop {}
            #[allow(drop_bounds)]
            impl<T: ::core::ops::Drop> ATypeWithDropSaysTraceDrop for T {}
            impl #impls ATypeWithDropSaysTraceDrop for #name #args #wheres {}
        }
    });
    Ok(quote! {
        const _: () = {
            #no_drop
            // SAFETY: each field is shown once, by its own implementation, and the type has no others. Objects give out `&T` only.
            #[automatically_derived]
            unsafe impl #impls #library::gc::Trace for #name #args #wheres {
                const HAS_EDGES: bool = #edges;
                const NEEDS_DROP: bool = #drops;
                const IS_FLAT: bool = #flats;
                #[inline]
                fn trace(&self, visitor: &mut #library::gc::Visitor<'_>) {
                    let _ = &visitor;
                    #body
                }
            }
        };
    })
}

fn fields(data: &Data) -> Vec<&syn::Field> {
    match data {
        Data::Struct(s) => s.fields.iter().collect(),
        Data::Enum(e) => e.variants.iter().flat_map(|v| v.fields.iter()).collect(),
        Data::Union(_) => Vec::new(),
    }
}

/// Where the type is written, for messages, but with the derive's names: the type may come from another macro.
fn here(ty: &syn::Type) -> proc_macro2::Span {
    ty.span().resolved_at(proc_macro2::Span::call_site())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(source: &str) -> Result<String> {
        expand(syn::parse_str(source).expect("the source is a type")).map(|tokens| tokens.to_string())
    }

    fn refusal(source: &str) -> String {
        expanded(source).expect_err("it is to be refused").to_string()
    }

    #[test]
    fn what_is_refused_is_told_why() {
        assert_eq!(refusal("union U { a: u8, b: i8 }"), "a union cannot be traced: which field is it?");
        for fields in ["#[trace(skip)] a: u8", "a: u8, #[trace(drop)] b: u8"] {
            let why = "fields have no such attribute: all of them are traced";
            assert_eq!(refusal(&format!("struct S {{ {fields} }}")), why);
            assert_eq!(refusal(&format!("enum E {{ A {{ {fields} }} }}")), why);
        }
        for attribute in ["#[trace(skip)]", "#[trace(drop, unsafe_no_drop)]"] {
            assert_eq!(refusal(&format!("{attribute} struct S;")), "want `drop` or `crate = path`");
        }
        // Not a list, not a path: syn's own words.
        for attribute in ["#[trace]", "#[trace = 1]", "#[trace(crate)]", "#[trace(crate = 1)]"] {
            assert!(!refusal(&format!("{attribute} struct S;")).is_empty());
        }
    }

    /// The check that a type has no `Drop` is left out for those that say they have one, and for no others.
    #[test]
    fn the_check_for_drop_is_there_unless_it_is_said() {
        let check = "impl ATypeWithDropSaysTraceDrop for S";
        assert!(expanded("struct S(u8);").unwrap().contains(check));
        assert!(expanded("#[trace(crate = other)] struct S(u8);").unwrap().contains(check));
        let says = expanded("#[trace(drop)] struct S(u8);").unwrap();
        assert!(!says.contains("ATypeWithDrop") && says.contains("NEEDS_DROP : bool = true"));
    }

    /// Parameters get the bound, beside those that they have; lifetimes and constants get none.
    #[test]
    fn generics_get_a_bound() {
        let made = expanded("struct S<'a, T: Clone, const N: usize>(&'a [T; N]) where T: Copy;").unwrap();
        assert!(made.contains("impl < 'a , T : Clone + :: rt :: gc :: Trace , const N : usize > :: rt :: gc :: Trace for S < 'a , T , N > where T : Copy"), "{made}");
    }
}
