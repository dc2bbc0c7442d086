// The page: what the address says is shown, and what the server says is new goes to what is shown.

import { comparePage } from "./compare.js";
import { fill, state } from "./dom.js";
import { Refused, Stream } from "./link.js";
import { read } from "./route.js";
import { runPage } from "./run.js";
import { runsPage } from "./runs.js";
import { trialPage } from "./trial.js";

const main = document.getElementById("main");
const link = document.getElementById("link");
const PAGES = { "": runsPage, run: runPage, trial: trialPage, compare: comparePage };

let view = null;

class View {
  constructor(route) {
    this.route = route;
    this.main = main;
    this.hears = {};
  }

  get gone() {
    return view !== this;
  }

  on(kind, hear) {
    this.hears[kind] = hear;
  }
}

const stream = new Stream((kind, content) => {
  if (kind === "link") {
    const words = content === "connected" ? "live" : "connection lost; trying again …";
    if (link.textContent !== words) link.textContent = words;
    link.className = `link ${content}`;
  } else {
    view?.hears[kind]?.(content);
  }
});

async function show(moved) {
  const route = read();
  const here = (view = new View(route));
  const name = route.parts[0] ?? "";
  const page = PAGES[name];
  for (const one of document.querySelectorAll("#pages a")) {
    const current = name === "compare" ? "#/compare" : "#/";
    if (one.getAttribute("href") === current) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  document.title = ["Tradewind", ...route.parts].join(" · ");
  stream.follow(name === "run" || name === "trial" ? route.parts[1] : null);
  try {
    if (!page) throw new Refused("there is no such page");
    await page(here);
    if (moved && !here.gone && !main.contains(document.activeElement)) main.focus({ preventScroll: true });
  } catch (error) {
    if (!here.gone) fill(main, state("error", error instanceof Refused ? error.message : `the page has an error: ${error.message}`));
    if (!(error instanceof Refused)) throw error;
  }
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
// The key to this page is in a cookie now, and need not stay where others may read it.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);
addEventListener("hashchange", () => show(true));
show(false);
