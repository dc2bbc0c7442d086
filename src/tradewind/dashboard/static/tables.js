// Tables of a run: any hyperparameter as rows, columns and blocks; and all trials, sorted and filtered by the server.

import { choose, fill, h, number, plain, state, table, unit, withUnit } from "./dom.js";
import { figure } from "./figures.js";
import { filter, picked } from "./filter.js";
import { ask } from "./link.js";
import { changed, write } from "./route.js";

const PAGE = 50;

export async function tablePart(view, body, run) {
  const query = view.route.query;
  const first = run.names.first;
  const names = [...run.names.hyperparameters.map((one) => one.name), "state"];
  const words = {
    rows: query.get("rows") ?? first.rows ?? names[0], columns: query.get("columns") ?? first.columns, by: query.get("by") ?? first.by ?? "",
    value: query.get("value") ?? first.time ?? first.score, stat: query.get("stat") ?? "median",
  };
  const go = (name) => (value) => { location.hash = changed(view.route, { [name]: value === "" ? "none" : value }); };
  const by = words.by === "none" ? "" : words.by;
  const place = h("div", { "aria-live": "polite" }, state("loading", "loading …"));
  fill(body, h("h2", {}, "Table"), h("div", { class: "fields" },
    choose("rows", names, words.rows, go("rows")), choose("columns", names, words.columns, go("columns")),
    choose("blocks", names, by, go("by"), "none"), choose("measure", run.names.measures, words.value, go("value")),
    choose("statistic", run.names.stats, words.stat, go("stat"))), filter(view, run), place);
  const about = { run: view.route.parts[1], where: query.get("where"), trials: query.get("picked") };
  const found = await ask("table", { ...about, ...words, by });
  if (view.gone) return;
  const blocks = found.blocks.map((block) => pivot(found, block));
  const heat = h("div");
  fill(place, h("p", { class: "soft" }, `${found.title}${unit(found.value) ? `, in${unit(found.value)}` : ""}`), blocks, heat);
  await figure(view, heat, { ...about, kind: "heat", rows: words.rows, columns: words.columns, value: words.value });
}

// A block of a table; a click on a heading sorts its rows.
function pivot(found, block) {
  let order = block.rows.map((_, k) => k);
  let by = null;
  const even = new Set(block.n.flat().filter(Boolean)).size < 2; // then the title says it
  const place = h("div");
  const sort = (column) => {
    const down = by?.column === column && !by.down;
    by = { column, down };
    const value = (k) => (column < 0 ? k : block.cells[k][column]);
    order = block.rows.map((_, k) => k).sort((a, b) => {
      const [p, q] = [value(a), value(b)];
      if (p === null || q === null) return (p === null) - (q === null);
      return (down ? -1 : 1) * (p - q);
    });
    draw(column);
  };
  const heading = (label, column) => h("th", { scope: "col", "aria-sort": by?.column === column ? (by.down ? "descending" : "ascending") : null },
    h("button", { class: "sort", onclick: () => sort(column) }, label));
  const draw = (focus = null) => {
    const title = found.by ? `${found.by} = ${plain(block.label)}` : `${found.value} by ${found.rows} and ${found.columns}`;
    fill(place, table({
      caption: title, headed: true, head: [heading(`${found.rows} \\ ${found.columns}`, -1), ...block.columns.map((label, k) => heading(plain(label), k))],
      rows: order.map((k) => [plain(block.rows[k]), ...block.texts[k].map((cell, j) => h("td", { title: `n = ${block.n[k][j]}` }, cell, even ? null : h("small", {}, ` n = ${number(block.n[k][j])}`)))]),
    }));
    if (focus !== null) place.querySelectorAll("button.sort")[focus + 1]?.focus();
  };
  draw();
  return place;
}

export async function trialsPart(view, body, run) {
  const query = view.route.query;
  const first = run.names.first;
  const varied = run.names.hyperparameters.filter((one) => one.values > 1).map((one) => one.name).slice(0, 10);
  const usual = ["trial", "state", ...varied, first.score, first.time, "reason"].filter((name, k, all) => name && run.names.columns.includes(name) && all.indexOf(name) === k);
  const columns = (query.get("columns") ?? "").split(",").filter(Boolean);
  const shown = columns.length ? columns : usual;
  const sort = query.get("sort") ?? "trial";
  const down = query.get("order") === "down";
  const offset = Number(query.get("offset") ?? 0) || 0;
  const chosen = new Set(picked(query));
  const place = h("div", { "aria-live": "polite" }, state("loading", "loading …"));
  const add = choose("add a column", run.names.columns.filter((name) => !shown.includes(name)), "", (name) => { location.hash = changed(view.route, { columns: [...shown, name].join(",") }); }, "choose …");
  fill(body, h("h2", {}, "Trials"), filter(view, run), h("div", { class: "fields" }, add,
    columns.length ? h("a", { href: changed(view.route, { columns: null }) }, "usual columns") : null), place);
  const found = await ask("trials", { run: view.route.parts[1], where: query.get("where"), sort, order: down ? "down" : "", offset, limit: PAGE, columns: shown.join(",") });
  if (view.gone) return;
  const heads = shown.map((name) => h("th", { scope: "col", "aria-sort": sort === name ? (down ? "descending" : "ascending") : null },
    h("button", { class: "sort", onclick: () => { location.hash = changed(view.route, { sort: name, order: sort === name && !down ? "down" : null, offset: null }); } }, name + (unit(name) ? ` (${unit(name).trim()})` : ""))));
  const links = h("p");
  const select = () => fill(links, `${chosen.size} picked: `,
    h("a", { href: write(["run", view.route.parts[1], "curves"], { where: query.get("where"), picked: [...chosen].join(",") }) }, "their curves"), " · ",
    h("a", { href: write(["run", view.route.parts[1], "pareto"], { where: query.get("where"), picked: [...chosen].join(",") }) }, "their Pareto front"), " · ",
    h("a", { href: changed(view.route, { picked: [...chosen].join(",") }) }, "keep in the address"));
  const at = shown.indexOf("trial");
  const rows = found.rows.map((row) => {
    const trial = at >= 0 ? row[at] : null;
    const box = trial === null ? "" : h("input", {
      type: "checkbox", "aria-label": `pick trial ${trial}`, checked: chosen.has(String(trial)),
      onchange: (event) => { if (event.target.checked) chosen.add(String(trial)); else chosen.delete(String(trial)); select(); },
    });
    return [box, ...row.map((value, k) => shown[k] === "trial" ? h("a", { href: write(["trial", view.route.parts[1], String(value)]) }, plain(value))
      : run.names.measures.includes(shown[k]) ? withUnit(shown[k], value) : plain(value))];
  });
  select();
  const last = Math.min(found.matched, offset + PAGE);
  fill(place, found.matched ? [
    table({ caption: `${number(found.matched)} of ${number(found.all)} trials; ${number(offset + 1)} to ${number(last)} shown`, head: [h("th", { scope: "col" }, "pick"), ...heads], rows, id: "trials" }),
    h("nav", { class: "pager", "aria-label": "Pages of trials" },
      offset > 0 ? h("a", { href: changed(view.route, { offset: Math.max(0, offset - PAGE) || null }) }, "previous") : h("span", {}, "previous"),
      last < found.matched ? h("a", { href: changed(view.route, { offset: offset + PAGE }) }, "next") : h("span", {}, "next")), links,
  ] : state("empty", found.all ? "The condition holds for no trial." : "No trial has ended yet."));
}
