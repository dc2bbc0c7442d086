// Which trials are meant: a condition in the language of a study's `where`, and those that were picked.

import { h } from "./dom.js";
import { changed } from "./route.js";

export function filter(view, run, place = view.route) {
  const input = h("input", { id: "where", type: "text", spellcheck: "false", autocomplete: "off", value: place.query.get("where") ?? "", "aria-describedby": "where-help" });
  const example = `for example: ${run.names.first.example}, or ${run.names.first.example} and state != "done"`;
  return h("form", {
    class: "filter", onsubmit: (event) => {
      event.preventDefault();
      location.hash = changed(place, { where: input.value.trim(), offset: null });
    },
  }, h("label", { for: "where" }, "Only trials where"), input, h("button", {}, "Apply"),
  place.query.get("where") ? h("a", { href: changed(place, { where: null, offset: null }) }, "all trials") : null,
  h("p", { id: "where-help", class: "soft" }, example));
}

export function picked(query) {
  return (query.get("picked") ?? "").split(",").filter(Boolean);
}
