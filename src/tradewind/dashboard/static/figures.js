// The report's figures, drawn by the server: each an image with its words, and what it is of in the address.

import { choose, fill, h, state } from "./dom.js";
import { filter, picked } from "./filter.js";
import { address, ask } from "./link.js";
import { changed, write } from "./route.js";

const AGAIN_MS = 8000;

export async function figure(view, place, about) {
  if (!place.firstChild) fill(place, state("loading", "drawing …"));
  try {
    const found = await ask("figure", about);
    if (view.gone) return;
    const image = h("img", { src: address("figure.svg", about), alt: `${found.title}. ${found.note}` });
    image.addEventListener("error", () => fill(place, state("error", "the figure can't be shown")));
    const dark = h("source", { srcset: address("figure.svg", { ...about, theme: "dark" }), media: "(prefers-color-scheme: dark)" });
    fill(place, h("figure", {}, h("picture", {}, dark, image), h("figcaption", {}, h("b", {}, `${found.title}. `), found.note)));
  } catch (error) {
    if (!view.gone) fill(place, state("empty", error.message));
  }
}

// Drawn again while the run goes on, though not with every trial.
async function kept(view, place, about) {
  await figure(view, place, about);
  let done = view.summary.done;
  const timer = setInterval(() => {
    if (view.gone) clearInterval(timer);
    else if (view.summary.done !== done) {
      done = view.summary.done;
      figure(view, place, about);
    }
  }, AGAIN_MS);
}

function chosen(view) {
  const some = picked(view.route.query);
  return some.length ? h("p", {}, `Only picked trials: ${some.join(", ")}. `, h("a", { href: changed(view.route, { picked: null }) }, "all trials"), " · ",
    h("a", { href: write(["run", view.route.parts[1], "trials"], { where: view.route.query.get("where"), picked: some.join(",") }) }, "pick others")) :
    h("p", { class: "soft" }, "Pick trials in ", h("a", { href: write(["run", view.route.parts[1], "trials"], { where: view.route.query.get("where") }) }, "the list"), " to see only theirs.");
}

function asked(view) {
  return { run: view.route.parts[1], where: view.route.query.get("where"), trials: view.route.query.get("picked") };
}

export async function curvesPart(view, body, run) {
  const place = h("div");
  fill(body, h("h2", {}, "Training curves, by epoch and by second"), filter(view, run), chosen(view), place);
  await kept(view, place, { ...asked(view), kind: "curves" });
}

export async function frontPart(view, body, run) {
  const query = view.route.query;
  const first = run.names.first;
  const times = run.names.measures.filter((name) => name.endsWith("_s"));
  const scores = run.names.measures.filter((name) => !name.endsWith("_s"));
  const [time, score] = [query.get("time") ?? first.time, query.get("score") ?? first.score];
  const go = (name) => (value) => { location.hash = changed(view.route, { [name]: value }); };
  const place = h("div");
  fill(body, h("h2", {}, "Time against score"), h("div", { class: "fields" }, choose("time", times, time, go("time")), choose("score", scores, score, go("score"))),
    filter(view, run), chosen(view), place);
  await kept(view, place, { ...asked(view), kind: "front", time, score });
}

export async function linesPart(view, body, run) {
  const query = view.route.query;
  const first = run.names.first;
  const names = run.names.hyperparameters.filter((one) => one.values > 1).map((one) => one.name);
  const [x, y] = [query.get("x") ?? first.x ?? names[0], query.get("y") ?? first.time ?? first.score];
  const color = query.get("color") ?? first.color ?? "";
  const go = (name) => (value) => { location.hash = changed(view.route, { [name]: value === "" ? "none" : value }); };
  const place = h("div");
  fill(body, h("h2", {}, "One measure along one hyperparameter"), h("div", { class: "fields" }, choose("along", names, x, go("x")),
    choose("measure", run.names.measures, y, go("y")), choose("a line for each", names, color === "none" ? "" : color, go("color"), "none")), filter(view, run), chosen(view), place);
  if (!x) fill(place, state("empty", "No hyperparameter varies in the trials that are done."));
  else await kept(view, place, { ...asked(view), kind: "line", x, y, color: color === "none" ? "" : color });
}
