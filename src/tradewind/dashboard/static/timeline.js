// Who had which trial when: a bar for each of the latest trials, a line for each worker.

import { h, moment, state, svg } from "./dom.js";

const HEIGHT = 18;
const WIDTH = 1000;

export function timeline(spans, running, name) {
  const ended = spans.filter((span) => span[4] > 0 && span[5] >= span[4]);
  if (!ended.length) return state("empty", "The timeline begins with the first trial that ends.");
  const lanes = [...new Set(ended.map((span) => span[1]))].sort();
  const now = Date.now() / 1000;
  const begin = Math.min(...ended.map((span) => span[4]));
  const end = running.length ? Math.max(now, ...ended.map((span) => span[5])) : Math.max(...ended.map((span) => span[5]));
  const x = (at) => ((at - begin) / Math.max(1e-9, end - begin)) * WIDTH;
  const bars = ended.map(([, lane, trial, how, from, to]) => {
    const bar = svg("rect", {
      x: x(from).toFixed(2), y: lanes.indexOf(lane) * HEIGHT + 2, width: Math.max(0.6, x(to) - x(from)).toFixed(2), height: HEIGHT - 4, class: `bar ${["done", "pruned", "stopped", "failed"].includes(how) ? how : "done"}`,
    }, svg("title", {}, `trial ${trial}: ${how}, ${(to - from).toPrecision(3)} s`));
    return bar;
  });
  const picture = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${lanes.length * HEIGHT}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `Timeline of ${ended.length} trials on ${lanes.length} workers of ${name}; the table below says how busy each was`,
  }, bars);
  picture.style.height = `${lanes.length * HEIGHT * 1.3}px`;
  const shown = lanes.length <= 40 ? lanes : [...lanes.slice(0, 39), `and ${lanes.length - 39} more`];
  return h("figure", { class: "timeline" },
    h("div", { class: "lanes" }, h("ol", { "aria-hidden": "true" }, shown.map((lane) => h("li", {}, lane))), picture),
    h("figcaption", {}, `${moment(begin)} to ${moment(end)}; the latest ${ended.length} trials; `,
      ["done", "pruned", "stopped", "failed"].map((how) => h("span", { class: `key ${how}` }, how))));
}
