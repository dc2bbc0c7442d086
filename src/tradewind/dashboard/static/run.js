// One run: progress, workers, tables, figures, failures, advice; each part has its own address.

import { ago, duration, fill, h, number, plain, state, table, text } from "./dom.js";
import { curvesPart, frontPart, linesPart } from "./figures.js";
import { Refused, ask } from "./link.js";
import { write } from "./route.js";
import { bestWords, progress, stateWords } from "./runs.js";
import { tablePart, trialsPart } from "./tables.js";
import { timeline } from "./timeline.js";

const PARTS = {
  overview: ["Overview", overview], table: ["Table", tablePart], trials: ["Trials", trialsPart], plot: ["Plot", linesPart],
  curves: ["Curves", curvesPart], pareto: ["Pareto front", frontPart], failures: ["Failures", failures], advice: ["Advice", advice],
  study: ["Study", study],
};

export async function runPage(view) {
  const [, name, part = "overview"] = view.route.parts;
  if (view.main.querySelector("h1")?.textContent !== name) fill(view.main, h("h1", {}, name), state("loading", "reading the run …"));
  const run = await loaded(view, name);
  if (view.gone) return;
  const keep = view.route.query;
  const links = Object.entries(PARTS).map(([key, [label]]) =>
    h("a", { href: write(["run", name, key], kept(keep)), "aria-current": key === part ? "page" : null }, label));
  const head = h("div", { class: "head" });
  const body = h("section", { "aria-label": PARTS[part]?.[0] ?? part });
  fill(view.main, h("h1", {}, name), head, h("nav", { class: "parts", "aria-label": "Parts of the run" }, links), body);
  const said = h("p", { class: "visually-hidden", role: "status" });
  view.main.append(said);
  headline(head, run.summary);
  announce(view, said);
  view.on("run", (news) => {
    headline(head, news.summary);
    view.news?.(news);
    view.summary = news.summary;
  });
  view.summary = run.summary;
  const clock = setInterval(() => (view.gone ? clearInterval(clock) : headline(head, view.summary)), 5000); // how long ago, and whether it is stale
  if (!PARTS[part]) fill(body, state("error", `there is no part ${part}`));
  else await guarded(view, body, () => PARTS[part][1](view, body, run));
}

// What is shown stays chosen from part to part: the condition and the picked trials.
function kept(query) {
  return { where: query.get("where"), picked: query.get("picked") };
}

async function loaded(view, name) {
  for (;;) {
    try {
      return await ask("run", { run: name });
    } catch (error) {
      if (!error.message.endsWith("still being read") || view.gone) throw error;
      await new Promise((done) => setTimeout(done, 500));
    }
  }
}

async function guarded(view, place, work) {
  try {
    await work();
  } catch (error) {
    if (!view.gone) fill(place, state("error", error.message));
    if (!(error instanceof Refused)) throw error;
  }
}

function headline(place, run) {
  const facts = [
    ["state", stateWords(run)], ["done", number(run.done)], ["pruned", number(run.pruned)], ["stopped", number(run.stopped)], ["failed", number(run.failed)],
    ["running", number(run.running)], ["left", run.left === null ? "?" : number(run.left)],
    ["time left", run.state === "running" ? duration(run.eta_s) : "–"],
    [run.metric ? `best ${run.metric}` : "best", run.best ? `${bestWords(run)}, trial ${plain(run.best.trial)}${run.caveat && `; ${run.caveat}`}` : "–"],
    ["last trial", ago(run.last_at)],
  ];
  if (run.damaged) facts.push(["damaged lines, skipped", number(run.damaged)]);
  fill(place, progress(run, "ended trials"),
    h("dl", { class: "cards" }, facts.map(([name, value]) => h("div", { class: "card" }, h("dt", {}, name), h("dd", {}, value)))));
}

// A screen reader hears how far it is now and then, not with every trial.
function announce(view, place) {
  let last = "";
  const timer = setInterval(() => {
    if (view.gone) {
      clearInterval(timer);
      return;
    }
    const run = view.summary;
    const words = `${run.done + run.pruned + run.stopped + run.failed} of ${run.trials ?? "?"} trials ended, ${run.failed} failed`;
    if (words !== last) place.textContent = last = words;
  }, 10000);
}

async function overview(view, body, run) {
  const workers = h("div");
  const lines = h("div");
  const now = h("div");
  fill(body, h("h2", {}, "Now"), now, h("h2", {}, "Workers"), lines, workers);
  let spans = run.spans;
  const draw = (news) => {
    fill(now, running(view.route.parts[1], news.running));
    fill(workers, lanes(news.lanes));
    fill(lines, timeline(spans, news.running, view.route.parts[1]));
  };
  draw(run);
  view.news = (news) => {
    const newest = spans.length ? spans[spans.length - 1][0] : 0;
    spans = [...spans, ...news.spans.filter((span) => span[0] > newest)].slice(-1500);
    draw(news);
  };
}

function running(name, some) {
  if (!some.length) return state("empty", "No trial is running.");
  const rows = some.map((one) => [
    h("a", { href: write(["trial", name, String(one.trial)]) }, plain(one.trial)),
    one.worker === null ? "–" : plain(one.worker), one.job, duration(Date.now() / 1000 - one.at), plain(one.epoch),
    one.waiting ? `waits for ${duration(Date.now() / 1000 - one.waiting.since)} now for ${one.waiting.for}` : Object.entries(one.scores).slice(0, 4).map(([key, value]) => `${key} ${text(value)}`).join("  ") || "–",
  ]);
  return table({ caption: "Trials that run now", head: ["trial", "worker", "job", "for", "epoch", "so far"], rows, words: true, headed: true });
}

function lanes(some) {
  if (!some.length) return state("empty", "No trial has ended yet.");
  const rows = some.map((one) => [one.lane, number(one.trials), duration(one.span_s), `${(100 * one.idle).toFixed(1)} %`]);
  return table({ caption: "Workers of the latest trials (at most 1,500)", head: ["worker", "trials", "from first to last", "idle share"], rows, words: true, headed: true });
}

async function failures(view, body) {
  const name = view.route.parts[1];
  fill(body, state("loading", "loading …"));
  const found = await ask("failures", { run: name });
  if (view.gone) return;
  if (!found.kinds.length) return fill(body, state("empty", "Every trial that ended is done."));
  fill(body, h("h2", {}, "What did not end well"), found.kinds.map((kind) => h("article", {},
    h("h3", {}, `${kind.state}: ${kind.reason || "no reason given"}`),
    h("p", {}, `n = ${number(kind.n)}, for example trial `, kind.trials.map((trial, k) => [k ? ", " : "", h("a", { href: write(["trial", name, String(trial)]) }, plain(trial))])),
    kind.traceback ? h("details", { open: found.kinds.length < 4 }, h("summary", {}, `The error of trial ${kind.trials[0]}`), h("pre", { tabindex: "0" }, kind.traceback)) : null,
    kind.stderr ? h("details", {}, h("summary", {}, "Its last output"), h("pre", { tabindex: "0" }, kind.stderr)) : null)),
    found.more ? h("p", {}, `and ${number(found.more)} other reasons`) : null);
  return null;
}

async function advice(view, body) {
  fill(body, state("loading", "working it out …"));
  const found = await ask("advice", { run: view.route.parts[1] });
  if (view.gone) return;
  fill(body, h("h2", {}, "What to choose, why, and how sure"), found.advice.map((one) => h("article", {},
    h("h3", {}, one.topic, " ", h("span", { class: "badge" }, one.sure)), h("p", {}, one.text))));
}

async function study(view, body, run) {
  const machines = Object.entries(run.machines).map(([name, facts]) => [name, Object.entries(facts).map(([key, value]) => `${key} ${text(value)}`).join(", ")]);
  const has = Object.keys(run.study).length;
  fill(body, h("h2", {}, "The study"),
    h("p", {}, run.study.description ?? ""),
    has ? h("pre", { tabindex: "0" }, JSON.stringify(run.study, null, 2)) : state("empty", "Imported results."),
    h("p", { class: "soft" }, `run folder ${run.summary.folder}; ${number(run.duplicates)} duplicates, not used`),
    h("h2", {}, "Machines"),
    machines.length ? table({ caption: "Machines", head: ["machine", "facts"], rows: machines, words: true, headed: true }) : state("empty", "No machine facts were recorded."));
}
