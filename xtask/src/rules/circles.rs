//! No more than three files of a crate may import each other: whoever reads one of a circle has to read all of it.
//!
//! A file that re-exports what another has leads to that other, not to itself.

use crate::{
    Finding,
    tree::{Language, Source, Tree},
};
use std::collections::{BTreeMap, BTreeSet};
use syn::{
    Attribute, Item, ItemMod, ItemUse, Macro, UseTree, Visibility,
    visit::{self, Visit},
};

const CIRCLE_MAX: usize = 3;

/// The parts of an allocator call each other: who first takes memory connects, who connects starts the watcher, the watcher has
/// all parts give back, and a forked child has all of them begin anew.
const EXEMPT: &str = "crates/tmalloc/src";

/// The names of a path, `["super", "select", "Selector"]`.
type Names = Vec<String>;

/// A file, as a module of its crate.
#[derive(Debug, Default)]
struct Module {
    file: String,
    /// What it imports or names.
    paths: Vec<Names>,
    /// What others get from here that is elsewhere, by the name that it has here.
    exports: BTreeMap<String, Names>,
    /// Names that its own code begins with.
    begins: BTreeSet<String>,
    /// Modules below it that only tests have.
    test_modules: BTreeSet<String>,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let roots = tree.in_language(Language::Rust).filter_map(|source| {
        source.path.strip_suffix("/lib.rs").or_else(|| source.path.strip_suffix("/main.rs"))
    });
    let roots: BTreeSet<&str> = roots.filter(|root| root.ends_with("src") && *root != EXEMPT).collect();
    roots.iter().flat_map(|root| check_crate(tree, root)).collect()
}

fn check_crate(tree: &Tree, root: &str) -> Vec<Finding> {
    let mut modules = BTreeMap::new();
    for source in tree.in_language(Language::Rust) {
        let Some(name) = module_of(source, root) else { continue };
        match syn::parse_file(&source.text) {
            Ok(file) => {
                let mut module = Module { file: source.path.clone(), ..Module::default() };
                module.visit_file(&file);
                modules.insert(name, module);
            }
            Err(error) => {
                return vec![Finding::new(&source.path, 0, error.to_string())];
            }
        }
    }
    let tests: BTreeSet<Names> = modules
        .iter()
        .flat_map(|(name, module)| {
            module.test_modules.iter().map(|below| [name.as_slice(), std::slice::from_ref(below)].concat())
        })
        .collect();
    modules.retain(|name, _| !tests.iter().any(|test| name.starts_with(test)));
    circles(&modules).into_iter().filter(|circle| circle.len() > CIRCLE_MAX).map(found).collect()
}

fn found(circle: Vec<&Module>) -> Finding {
    let files: Vec<&str> = circle.iter().map(|module| module.file.as_str()).collect();
    let message = format!(
        "{} files import each other, and no more than {CIRCLE_MAX} may: {}; move what several need to a file of its own",
        files.len(),
        files.join(", ")
    );
    Finding::new(files.first().copied().unwrap_or_default(), 0, message)
}

/// `["select", "load"]` for `select/load.rs`; `None` where it belongs to another crate, or to none.
fn module_of(source: &Source, root: &str) -> Option<Names> {
    let path = source.path.strip_prefix(root)?.strip_prefix('/')?.strip_suffix(".rs")?;
    let mut names: Names = path.split('/').map(str::to_owned).collect();
    if names.first().is_some_and(|first| first == "bin") {
        return None;
    }
    if names.last().is_some_and(|last| last == "mod") || matches!(path, "lib" | "main") {
        names.pop();
    }
    Some(names)
}

/// Those that reach each other.
fn circles(modules: &BTreeMap<Names, Module>) -> Vec<Vec<&Module>> {
    let leads = |(name, module): (&Names, &Module)| {
        module.paths.iter().filter_map(|path| resolve(name, path, modules)).collect::<BTreeSet<&Names>>()
    };
    let leads: BTreeMap<&Names, BTreeSet<&Names>> = modules.iter().map(|one| (one.0, leads(one))).collect();
    let reached: BTreeMap<&Names, BTreeSet<&Names>> =
        modules.keys().map(|name| (name, reached_from(name, &leads))).collect();
    let reaches = |from, to| reached.get(from).is_some_and(|all| all.contains(to));
    let mut seen: BTreeSet<&Names> = BTreeSet::new();
    let mut circles = Vec::new();
    for name in modules.keys() {
        if seen.contains(name) {
            continue;
        }
        let circle: Vec<(&Names, &Module)> = modules
            .iter()
            .filter(|(other, _)| *other == name || (reaches(name, *other) && reaches(*other, name)))
            .collect();
        seen.extend(circle.iter().map(|(name, _)| *name));
        circles.push(circle.into_iter().map(|(_, module)| module).collect());
    }
    circles
}

fn reached_from<'a>(
    start: &'a Names,
    leads: &BTreeMap<&'a Names, BTreeSet<&'a Names>>,
) -> BTreeSet<&'a Names> {
    let mut reached = BTreeSet::new();
    let mut next = vec![start];
    while let Some(name) = next.pop() {
        let all = leads.get(name).into_iter().flatten();
        next.extend(all.copied().filter(|to| *to != name && reached.insert(*to)));
    }
    reached
}

/// The module that has what a path in module `at` names; `None` where that is of another crate.
fn resolve<'a>(at: &Names, path: &Names, modules: &'a BTreeMap<Names, Module>) -> Option<&'a Names> {
    let (mut place, mut rest) = begin(at, path, modules)?;
    // No more steps than there are modules: a re-export that leads to itself ends.
    for _ in 0..=modules.len() {
        let Some((first, after)) = rest.split_first() else { break };
        let below = [place.as_slice(), std::slice::from_ref(first)].concat();
        if modules.contains_key(&below) {
            (place, rest) = (below, after.to_vec());
        } else if let Some(export) = modules.get(&place).and_then(|module| module.exports.get(first)) {
            let (at, mut on) = begin(&place, export, modules)?;
            on.extend_from_slice(after);
            (place, rest) = (at, on);
        } else {
            break;
        }
    }
    modules.get_key_value(&place).map(|(name, _)| name)
}

/// The module that a path begins in, and what follows.
fn begin(at: &Names, path: &Names, modules: &BTreeMap<Names, Module>) -> Option<(Names, Names)> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some((Names::new(), rest.to_vec())),
        "self" => Some((at.clone(), rest.to_vec())),
        "super" => {
            let up = path.iter().take_while(|name| *name == "super").count();
            let place = at.get(..at.len().checked_sub(up)?)?;
            Some((place.to_vec(), path.get(up..)?.to_vec()))
        }
        _ => {
            let below = [at.as_slice(), std::slice::from_ref(first)].concat();
            let imports = || modules.get(at).is_some_and(|module| module.exports.contains_key(first));
            (modules.contains_key(&below) || imports()).then(|| (at.clone(), path.clone()))
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_file(&mut self, file: &'ast syn::File) {
        visit::visit_file(self, file);
        // What is only passed on is not used here.
        let used = self.exports.iter().filter(|(name, _)| self.begins.contains(*name));
        let used: Vec<Names> = used.map(|(_, path)| path.clone()).collect();
        self.paths.extend(used);
    }

    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).iter().any(is_of_tests) {
            visit::visit_item(self, item);
        } else if let Item::Mod(ItemMod { ident, .. }) = item {
            self.test_modules.insert(ident.to_string());
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut imports = Vec::new();
        expand(&item.tree, &Names::new(), &mut imports);
        if matches!(item.vis, Visibility::Inherited) {
            self.paths.extend(imports.iter().map(|(_, path)| path.clone()));
        }
        // Modules below see it even where nobody else does.
        self.exports.extend(imports);
    }

    /// Who may see something is not what it uses.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.begins.extend(names.first().cloned());
        if names.len() > 1 {
            self.paths.push(names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let text = call.tokens.to_string().replace(" :: ", "::");
        let words = text.split(|character: char| !(character.is_alphanumeric() || "_:".contains(character)));
        for word in words {
            let names: Names = word.split("::").map(str::to_owned).collect();
            self.begins.extend(names.first().cloned());
            if names.len() > 1 && names.iter().all(|name| !name.is_empty()) {
                self.paths.push(names);
            }
        }
        visit::visit_macro(self, call);
    }
}

/// Each name that an import brings, with the path to it.
fn expand(tree: &UseTree, before: &Names, into: &mut Vec<(String, Names)>) {
    let with = |name: &syn::Ident| [before.as_slice(), &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => expand(&path.tree, &with(&path.ident), into),
        UseTree::Name(name) if name.ident == "self" => {
            into.push((before.last().cloned().unwrap_or_default(), before.clone()));
        }
        UseTree::Name(name) => into.push((name.ident.to_string(), with(&name.ident))),
        UseTree::Rename(rename) => into.push((rename.rename.to_string(), with(&rename.ident))),
        UseTree::Glob(_) => into.push(("*".to_owned(), before.clone())),
        UseTree::Group(group) => group.items.iter().for_each(|item| expand(item, before, into)),
    }
}

fn is_of_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
}

const fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => item.attrs.as_slice(),
        Item::Enum(item) => item.attrs.as_slice(),
        Item::ExternCrate(item) => item.attrs.as_slice(),
        Item::Fn(item) => item.attrs.as_slice(),
        Item::ForeignMod(item) => item.attrs.as_slice(),
        Item::Impl(item) => item.attrs.as_slice(),
        Item::Macro(item) => item.attrs.as_slice(),
        Item::Mod(item) => item.attrs.as_slice(),
        Item::Static(item) => item.attrs.as_slice(),
        Item::Struct(item) => item.attrs.as_slice(),
        Item::Trait(item) => item.attrs.as_slice(),
        Item::TraitAlias(item) => item.attrs.as_slice(),
        Item::Type(item) => item.attrs.as_slice(),
        Item::Union(item) => item.attrs.as_slice(),
        Item::Use(item) => item.attrs.as_slice(),
        Item::Verbatim(_) | _ => &[],
    }
}
