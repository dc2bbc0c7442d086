// Elements from plain values. Whatever comes from a run is set as text, never as markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

export function text(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return number(value);
  if (typeof value === "string") return value === "" ? '""' : value;
  return JSON.stringify(value);
}

export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return Math.abs(value) < 1e15 ? value.toLocaleString("en-US") : value.toExponential(3);
  const size = Math.abs(value);
  return size >= 1e-4 && size < 1e6 ? String(Number(value.toPrecision(4))) : value.toExponential(3);
}

// Hyperparameters keep their digits: 1024, not 1,024.
export function plain(value) {
  return typeof value === "number" && Number.isInteger(value) ? String(value) : text(value);
}

const UNITS = [["_per_s", " /s"], ["_s", " s"], ["_gb", " GB"], ["_bytes", " B"], ["_deg", "°"], ["_percent", " %"]];

export function unit(name) {
  return (UNITS.find(([end]) => name.endsWith(end)) ?? ["", ""])[1];
}

export function withUnit(name, value) {
  return value === null || value === undefined ? "–" : typeof value === "number" ? number(value) + unit(name) : text(value);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "not known";
  if (seconds < 100) return seconds < 10 ? `${seconds.toFixed(1)} s` : `${seconds.toFixed(0)} s`;
  if (seconds < 5400) return `${(seconds / 60).toFixed(0)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} days`;
}

export function ago(at) {
  return at ? `${duration(Math.max(0, Date.now() / 1000 - at))} ago` : "never";
}

export function moment(at) {
  return new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
}

// A table: caption, names of columns, rows of cells (text or nodes); the first cell of a row may head it.
export function table({ caption, head, rows, words = false, headed = false, id = null }) {
  const cells = (row) => row.map((cell, k) =>
    cell instanceof HTMLTableCellElement ? cell : h(headed && k === 0 ? "th" : "td", headed && k === 0 ? { scope: "row" } : {}, cell));
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: words ? "words" : null, id },
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, head.map((name) => name instanceof HTMLTableCellElement ? name : h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, cells(row))))));
}

export function state(kind, message) {
  return h("p", { class: `state ${kind}`, role: kind === "error" ? "alert" : "status" }, message);
}

let labels = 0;

export function choose(label, names, chosen, change, none = null) {
  const id = `choose${++labels}`;
  const options = none === null ? names : ["", ...names];
  const select = h("select", { id, onchange: (event) => change(event.target.value) },
    options.map((name) => h("option", { value: name, selected: name === (chosen ?? "") }, name === "" ? none : name)));
  return h("span", { class: "field" }, h("label", { for: id }, label), select);
}
