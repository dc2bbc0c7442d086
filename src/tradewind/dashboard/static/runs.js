// All runs: how far each is, what it has found, what failed.

import { ago, duration, fill, h, number, state, table } from "./dom.js";
import { ask } from "./link.js";
import { write } from "./route.js";

export const WORDS = {
  running: "running", ended: "ended", unfinished: "not finished, no job runs", empty: "nothing has ended yet",
  loading: "being read …", error: "can't be read",
};

export function stateWords(run) {
  const now = Date.now() / 1000;
  const stale = run.state === "running" && run.last_at && now - run.last_at > run.stale_after_s;
  return stale ? `running, but nothing was written since ${ago(run.last_at)}` : WORDS[run.state] ?? run.state;
}

/** The mean of the best config, with its spread and n, and which way is better. */
export function bestWords(run) {
  if (!run.best) return "–";
  const { score, spread, n, provisional } = run.best;
  const better = `${run.best.direction === "minimize" ? "lower" : "higher"} is better`;
  const mean = `${number(score)}${spread === null ? "" : ` ± ${number(spread)}`}`;
  return `${mean} (n = ${n}${provisional ? ", provisional" : ""}, ${better})`;
}

export function progress(run, label) {
  const ended = run.done + run.pruned + run.stopped + run.failed;
  const total = run.epochs ? run.epochs.expected : run.trials ?? 0;
  const bar = h("progress", { max: Math.max(1, total), "aria-label": label });
  if (run.trials !== null) bar.value = Math.min(run.epochs ? run.epochs.done : ended, total);
  const epochs = run.epochs ? `, ${number(run.epochs.done)} of ≈${number(run.epochs.expected)} epochs` : "";
  return h("span", { class: "progress" }, bar, h("span", { class: "ended" }, ` ${number(ended)} of ${run.trials === null ? "?" : (run.exact ? "" : "≈") + number(run.trials)}${epochs}`));
}

export async function runsPage(view) {
  const found = await ask("runs");
  if (view.gone) return;
  const runs = new Map(found.runs.map((run) => [run.name, run]));
  const place = h("div");
  fill(view.main, h("h1", {}, "Runs"), place);
  const draw = () => {
    if (!runs.size) {
      fill(place, state("empty", "There is no run yet. `tradewind run quick` makes one under runs/; it appears here by itself."));
      return;
    }
    const focused = document.activeElement?.getAttribute("href");
    const order = [...runs.values()].sort((a, b) => (b.state === "running") - (a.state === "running") || a.name.localeCompare(b.name));
    const rows = order.map((run) => [
      h("a", { href: write(["run", run.name]) }, run.name),
      h("span", { class: `badge ${run.state}`, title: run.error || null }, stateWords(run)),
      progress(run, `ended trials of ${run.name}`),
      run.state === "running" ? duration(run.eta_s) : "–",
      run.best ? h("a", { href: write(["trial", run.name, String(run.best.trial)]) }, `${run.metric} ${bestWords(run)}${run.caveat && " (pruned)"}`) : "–",
      number(run.running),
      run.failed ? h("a", { href: write(["run", run.name, "failures"]) }, number(run.failed)) : "0",
      ago(run.last_at),
    ]);
    fill(place, table({
      caption: `${runs.size} runs`, head: ["run", "state", "trials ended", "time left", "best", "running", "failed", "last trial"], rows, words: true, headed: true,
    }));
    if (focused) [...place.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
  };
  draw();
  const clock = setInterval(() => (view.gone ? clearInterval(clock) : draw()), 5000); // how long ago, and what is stale
  view.on("runs", (news) => {
    for (const run of news.runs) runs.set(run.name, run);
    draw();
  });
}
