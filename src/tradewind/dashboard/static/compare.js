// Runs side by side, and beside what the papers printed.

import { choose, fill, h, number, plain, state, table, unit } from "./dom.js";
import { figure } from "./figures.js";
import { ask } from "./link.js";
import { write } from "./route.js";
import { bestWords, stateWords } from "./runs.js";

export async function comparePage(view) {
  const query = view.route.query;
  const chosen = query.getAll("run");
  const known = (await ask("runs")).runs;
  if (view.gone) return;
  const place = h("div");
  const boxes = known.map((run) => h("label", { class: "box" }, h("input", { type: "checkbox", name: "run", value: run.name, checked: chosen.includes(run.name) }), run.name));
  const form = h("form", {
    onsubmit: (event) => {
      event.preventDefault();
      location.hash = write(["compare"], { run: [...form.querySelectorAll("input:checked")].map((box) => box.getAttribute("value")) });
    },
  }, h("fieldset", {}, h("legend", {}, "Runs to compare"), boxes, h("button", {}, "Compare")));
  fill(view.main, h("h1", {}, "Compare"), known.length ? form : state("empty", "There is no run yet."), place);
  if (chosen.length < 2) return fill(place, state("empty", "Choose two runs or more."));
  fill(place, state("loading", "loading …"));
  const words = { run: chosen, rows: query.get("rows"), value: query.get("value"), stat: query.get("stat") ?? "median" };
  const found = await ask("compare", words);
  if (view.gone) return null;
  const go = (name) => (value) => { location.hash = write(["compare"], { ...words, rows: found.rows, value: found.value, [name]: value }); };
  const picture = h("div");
  fill(place, overview(found), h("h2", {}, "One measure side by side"),
    found.lines.length === 0 ? null : h("div", { class: "fields" }, choose("rows", found.common, found.rows, go("rows")), choose("measure", found.measures, found.value, go("value")),
      choose("statistic", ["mean", "median", "min", "max", "std", "n"], found.stat, go("stat"))),
    found.lines.length ? beside(found) : state("empty", "These runs have no hyperparameter and measure in common."),
    Object.entries(found.notes).map(([name, note]) => h("p", { class: "soft" }, `${name}: ${note}`)), picture, found.papers.map(paper));
  if (found.lines.length) await figure(view, picture, { run: chosen, kind: "line", x: found.rows, y: found.value });
  return null;
}

function overview(found) {
  const rows = found.runs.map((run) => [
    h("a", { href: write(["run", run.name]) }, run.name), stateWords(run), number(run.done), number(run.pruned), number(run.stopped), number(run.failed),
    run.best ? `${run.metric} ${bestWords(run)}, trial ${plain(run.best.trial)}${run.caveat && "; pruned"}` : "–",
  ]);
  return table({ caption: "The runs", head: ["run", "state", "done", "pruned", "stopped", "failed", "best"], rows, words: true, headed: true });
}

function beside(found) {
  const names = found.runs.map((run) => run.name);
  const head = [found.rows, ...names.flatMap((name, k) => (k ? [name, `÷ ${names[0]}`] : [name]))];
  const rows = found.lines.map((line) => [plain(line.label), ...line.cells.flatMap((cell, k) => {
    const shown = h("td", {}, `${cell.text} `, h("small", {}, `n = ${number(cell.n)}`));
    return k ? [shown, h("td", {}, cell.ratio === null ? "–" : number(cell.ratio))] : [shown];
  })]);
  return table({ caption: `${found.stat} of ${found.value}${unit(found.value) ? ` in${unit(found.value)}` : ""} by ${found.rows}`, head, rows, headed: true });
}

function paper(one) {
  const findings = one.verdicts.map((verdict) => [verdict.verdict, verdict.claim, verdict.text, verdict.rule]);
  const rows = one.rows.map((row) => [
    Object.entries(row.config).map(([name, value]) => `${name} ${plain(value)}`).join(", "), row.measure, number(row.published),
    row.measured === null ? row.note || "–" : `${number(row.measured)} (n = ${number(row.n)})`, row.ratio === null ? "–" : number(row.ratio),
  ]);
  return h("section", { "aria-label": `${one.run} beside ${one.title}` }, h("h2", {}, `${one.run} beside ${one.title}`),
    h("p", { class: "soft" }, `published on ${one.published_on || "a machine not named"}; measured on ${one.measured_on}`),
    one.differs.length ? h("p", {}, `It differs: ${one.differs.join("; ")}.`) : null,
    findings.length ? table({ caption: "Findings", head: ["verdict", "finding", "what was measured", "rule"], rows: findings, words: true, headed: true }) : null,
    rows.length ? table({ caption: "Numbers", head: ["config", "measure", "published", "measured", "measured ÷ published"], rows, words: true, headed: true }) : null);
}
