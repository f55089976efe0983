//! Colours and styles shared by the page and the drawings.

/// Number of distinct colours; if there are more engines, colours are reused.
const SERIES: usize = 8;

/// CSS class of an engine's colour.
pub(super) fn series(number: usize) -> String {
    format!("s{}", number % SERIES)
}

/// A square in the colour of an engine.
pub(crate) fn key(number: usize) -> String {
    format!("<span class=\"key {}\"></span>", series(number))
}

/// Series colours that colour-blind readers can distinguish (after Okabe and Ito), lighter on a
/// dark background.
pub(super) const COLOURS: &str = "
:root { color-scheme: light dark; --ground: #fdfdfb; --ink: #1d2125; --soft: #5c646c; --rule: #d9dcdf; --panel: #f3f4f2;
  --bad: #b3261e; --soft-fill: #a4abb2; --s0: #0072b2; --s1: #c25a00; --s2: #00875f; --s3: #a8528c; --s4: #7a6a00; --s5: #555c63;
  --s6: #4b3fa7; --s7: #1f7a8a; }
@media (prefers-color-scheme: dark) { :root { --ground: #15181b; --ink: #e6e8ea; --soft: #9aa3ab; --rule: #33393f; --panel: #1e2226;
  --bad: #f2877d; --soft-fill: #6b747d; --s0: #5bb0ea; --s1: #f09a4b; --s2: #3fc795; --s3: #dd93c4; --s4: #cdbb4a; --s5: #b0b7bd;
  --s6: #a49bf2; --s7: #74cfdc; } }
";

/// Styles of drawings.
pub(super) const CHARTS: &str = "
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
.name { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; } svg .tick { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--rule); stroke-width: 1; } .zero { stroke: var(--soft); stroke-width: 1.5; } .median { stroke: var(--ink); stroke-width: 2; }
.line { fill: none; stroke-width: 2; } .dot { fill-opacity: .75; stroke: none; }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); } .s4 { --c: var(--s4); } .s5 { --c: var(--s5); }
.s6 { --c: var(--s6); } .s7 { --c: var(--s7); }
.line { stroke: var(--c); } .dot { fill: var(--c); }
";

/// Styles of everything else on a page.
pub(super) const LAYOUT: &str = "
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 1.2rem 1rem 3rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; } p { margin: .4rem 0; } .soft { color: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .28rem .55rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } thead th { font-weight: 600; vertical-align: bottom; white-space: normal; }
caption { text-align: left; max-width: calc(100vw - 2rem); color: var(--soft); font-size: .85rem; padding: .2rem 0; }
table + table, .scroll + .scroll { margin-top: 1rem; }
.words th, .words td { text-align: left; white-space: normal; vertical-align: top; }
.words th { white-space: nowrap; font-weight: 600; color: var(--soft); } .words thead th { white-space: normal; }
.faint { color: var(--soft); } .claim { font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); gap: 1.2rem 2rem; }
figure { margin: 0; max-width: 36rem; } svg { display: block; width: 100%; height: auto; } .broad { min-width: 40rem; }
.legend > span { display: inline-block; margin-right: 1.2rem; white-space: nowrap; } pre { background: var(--panel); padding: .7rem .9rem; overflow-x: auto; font-size: .88rem; }
.w-program { --c: var(--ink); } .w-load { --c: var(--rule); } .w-other { --c: var(--soft-fill); } rect { fill: var(--c); }
.w-wait { fill: none; stroke: var(--c); }
.zoom { font-size: .85rem; } svg.time { padding: 0 24px 0 44px; overflow: visible; } figure:has(.x4:checked) svg { width: 400%; } figure:has(.x16:checked) svg { width: 1600%; }
details { margin: .5rem 0; } summary { cursor: pointer; }
@media (max-width: 32rem) { .figure tbody th { white-space: normal; overflow-wrap: anywhere; min-width: 7rem; }
  body { font-size: 15px; padding: .9rem .75rem 2rem; } th, td { padding: .25rem .45rem; } }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; background: var(--c); margin-right: .4em; }
";
