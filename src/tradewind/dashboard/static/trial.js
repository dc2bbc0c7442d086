// One trial: config, where the time went, curve, machine, log, error, and the study that runs it again.

import { duration, fill, h, moment, number, plain, state, svg, table, text, withUnit } from "./dom.js";
import { figure } from "./figures.js";
import { ask } from "./link.js";
import { write } from "./route.js";

export async function trialPage(view) {
  const [, run, trial] = view.route.parts;
  const top = [h("p", {}, h("a", { href: write(["run", run]) }, run), " · ", h("a", { href: write(["run", run, "trials"]) }, "all trials")), h("h1", {}, `Trial ${trial}`)];
  fill(view.main, top, state("loading", "loading …"));
  const found = await ask("trial", { run, trial });
  if (view.gone) return;
  const place = h("div");
  fill(view.main, top, h("p", {}, h("span", { class: `badge ${found.state}` }, found.state), found.reason ? ` ${found.reason}` : ""), place);
  if (found.state === "running") {
    fill(place, h("p", {}, `runs for ${duration(Date.now() / 1000 - found.at)}, attempt ${found.attempt}, epoch ${found.epoch}`), curve(found));
    view.on("run", (news) => {
      if (!news.running.some((one) => String(one.trial) === trial)) trialPage(view);
    });
    return;
  }
  const picture = h("div");
  fill(place,
    section("Config", pairs("Set by the study", found.config), Object.keys(found.defaults).length ? h("details", {}, h("summary", {}, "Defaults"), pairs("Defaults", found.defaults)) : null),
    section("Scores", pairs("Test", found.scores), pairs("Last training and validation", found.last)),
    section("Times", stacked(found.stacked), pairs(`Times; purpose ${text(found.facts.purpose)}, machine ${text(found.facts.machine)}, n = 1`, scalars(found.times))),
    found.traceback ? section("Error", h("pre", { tabindex: "0" }, found.traceback), found.stderr ? h("pre", { tabindex: "0" }, found.stderr) : null) : null,
    section("Curve", picture, curve(found)),
    section("Where and how", pairs("Machine and facts", found.facts)),
    section("Log", found.log ? h("pre", { tabindex: "0" }, found.log) : state("empty", "It printed nothing.")),
    section("Run it again", h("pre", { tabindex: "0" }, found.command), found.study ? copying(found.study) : null));
  if (found.curve.length && found.state === "done") await figure(view, picture, { run, kind: "curves", trials: trial });
}

function section(title, ...content) {
  return h("section", { "aria-label": title }, h("h2", {}, title), content);
}

function scalars(values) {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Array.isArray(value) ? `${value.length} values, from ${number(Math.min(...value))} to ${number(Math.max(...value))}` : value]));
}

function pairs(caption, values) {
  const rows = Object.entries(values ?? {}).map(([name, value]) => [name, name === "started" || name === "finished" ? (typeof value === "number" ? moment(value) : text(value))
    : /_(s|bytes|gb)$/.test(name) ? withUnit(name, value) : plain(value)]);
  return rows.length ? table({ caption, head: ["name", "value"], rows, words: true, headed: true }) : state("empty", `${caption}: none`);
}

function stacked(parts) {
  const whole = parts.reduce((sum, part) => sum + part.seconds, 0);
  if (!whole) return null;
  let at = 0;
  const bars = parts.map((part, k) => {
    const bar = svg("rect", { x: at.toFixed(2), y: 0, width: ((1000 * part.seconds) / whole).toFixed(2), height: 24, class: `part p${k % 7}` }, svg("title", {}, `${part.name} ${number(part.seconds)} s`));
    at += (1000 * part.seconds) / whole;
    return bar;
  });
  const words = parts.map((part) => `${part.name} ${number(part.seconds)} s`).join(", ");
  return h("figure", { class: "stacked" }, svg("svg", { viewBox: "0 0 1000 24", preserveAspectRatio: "none", role: "img", "aria-label": words }, bars),
    h("figcaption", {}, parts.map((part, k) => h("span", { class: `key p${k % 7}` }, `${part.name} ${number(part.seconds)} s (${((100 * part.seconds) / whole).toFixed(1)} %)`))));
}

function curve(found) {
  const rows = found.curve;
  if (!rows.length) return state("empty", "No curve was recorded.");
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const shown = rows.length <= 40 ? rows : [...rows.slice(0, 20), ...rows.slice(-20)];
  return h("details", {}, h("summary", {}, `${number(found.epochs_known ?? rows.length)} epochs in numbers`),
    table({ caption: rows.length > 40 ? "The first and the last 20 epochs" : "Epoch by epoch", head: names, rows: shown.map((row) => names.map((name) => number(row[name]))) }));
}

function copying(study) {
  const words = JSON.stringify(study, null, 2);
  const said = h("span", { role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(words);
      said.textContent = " copied";
    } catch {
      said.textContent = " can't be copied here; it stands below";
    }
  };
  return [h("p", {}, h("button", { onclick: copy }, "Copy as study"), said), h("details", {}, h("summary", {}, "The study of this trial"), h("pre", { tabindex: "0" }, words))];
}
