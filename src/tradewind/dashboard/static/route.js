// The address keeps the view: #/run/NAME/PART?where=…, so that it can be shared and gone back to.

export function read(hash = location.hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { parts, query: new URLSearchParams(query ?? "") };
}

export function write(parts, query = {}) {
  const words = new URLSearchParams();
  const pairs = query instanceof URLSearchParams ? query : Object.entries(query);
  for (const [name, value] of pairs) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== undefined && one !== "") words.append(name, one);
  }
  const text = words.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

// The same place with some of its words changed.
export function changed(route, changes) {
  const query = new URLSearchParams(route.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, value);
  }
  return write(route.parts, query);
}
