// The server: questions with answers, and one stream of what is new.

export class Refused extends Error {}

export function address(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== undefined && one !== "") query.append(name, one);
  }
  return `/api/${path}?${query}`;
}

export async function ask(path, parameters = {}) {
  let answer;
  try {
    answer = await fetch(address(path, parameters), { headers: { Accept: "application/json" } });
  } catch {
    throw new Refused("the server does not answer; is `tradewind serve` still running?");
  }
  const kind = answer.headers.get("content-type") ?? "";
  if (!kind.startsWith("application/json")) throw new Refused(await answer.text());
  const found = await answer.json();
  if (!answer.ok) throw new Refused(found.error ?? `the server answered ${answer.status}`);
  return found;
}

const LOST_MS = 12000;

// Follows the server; `hear(kind, content)` gets runs, run and link (connected, lost).
export class Stream {
  constructor(hear) {
    this.hear = hear;
    this.run = null;
    this.heard = 0;
    setInterval(() => {
      if (Date.now() - this.heard > LOST_MS) this.hear("link", "lost");
    }, 2000);
  }

  follow(run) {
    if (this.source && this.run === run) return;
    this.run = run;
    this.source?.close();
    this.source = new EventSource(`/api/events${run ? `?run=${encodeURIComponent(run)}` : ""}`);
    for (const kind of ["runs", "run", "beat"]) {
      this.source.addEventListener(kind, (event) => {
        this.heard = Date.now();
        this.hear("link", "connected");
        if (kind !== "beat") this.hear(kind, JSON.parse(event.data));
      });
    }
    this.source.onerror = () => this.hear("link", "lost");
  }
}
