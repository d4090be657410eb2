/** The page: a header with the daemon's health, and one view at a time, chosen by the part of the URL after `#`. */
import { type FunctionComponent, render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ConnectionsView } from "./connections-view.ts";
import { FrontView } from "./front-view.ts";
import { NodeView } from "./node-view.ts";
import { ServiceView } from "./service-view.ts";
import { ServicesView } from "./services-view.ts";
import { State } from "./state.ts";
import { SyncsView } from "./syncs-view.ts";
import { TraceView } from "./trace-view.ts";
import { ageText, html, Ticking, useChanges, type ViewProps } from "./ui.ts";

interface Place {
  readonly title: string;
  readonly view: FunctionComponent<ViewProps>;
  /** The place in the navigation. @default its own */
  readonly under?: string;
}

const FRONT: Place = { title: "Overview", view: FrontView };
const PLACES: Readonly<Record<string, Place>> = {
  front: FRONT,
  services: { title: "Services", view: ServicesView },
  service: { title: "Service", view: ServiceView, under: "services" },
  connections: { title: "Connections", view: ConnectionsView },
  trace: { title: "Packet", view: TraceView },
  syncs: { title: "Syncs", view: SyncsView },
  node: { title: "Node", view: NodeView },
};

function Page({ state }: { readonly state: State }) {
  // A view may write another hash without a visit: the next visit is one even to the same.
  const [{ hash, visit }, setPlace] = useState({ hash: location.hash, visit: 0 });
  const seeksSearch = useRef(false);
  useLayoutEffect(() => {
    window.addEventListener("hashchange", () => setPlace((last) => ({ hash: location.hash, visit: last.visit + 1 })));
    document.addEventListener("keydown", (event) => {
      const isTyping = event.target instanceof Element && event.target.matches("input, select, textarea");
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
      if (event.key === "?") document.querySelector("dialog")?.showModal();
      else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
      else if (event.key === "/") {
        const search = document.querySelector<HTMLElement>("#search");
        search?.focus();
        seeksSearch.current = search === null;
        if (search === null) location.hash = "#/services";
      } else return;
      event.preventDefault();
    });
  }, []);
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const { title, view, under = path } = PLACES[path] ?? { ...FRONT, under: "front" };
  // Before the view's own, which may have a better title.
  useLayoutEffect(() => {
    document.title = `${title} · kube-proxy`;
    if (visit > 0) document.querySelector<HTMLElement>(seeksSearch.current ? "#search" : "main")?.focus();
    seeksSearch.current = false;
    window.scrollTo(0, 0);
  }, [visit]);
  return html`
    <a class="skip" href="#main" onClick=${(event: Event) => {
      event.preventDefault();
      document.querySelector("main")?.focus();
    }}>Skip to the content</a>
    <${Header} state=${state} under=${under} />
    <${Keys} />
    <main id="main" tabindex="-1"><${view} key=${visit} query=${new URLSearchParams(query)} state=${state} /></main>`;
}

/** Focuses the next or the previous entry of the view's lists. */
function move(by: number): void {
  const entries = [...document.querySelectorAll<HTMLElement>("main :is(.wrong, tbody th, .syncs) a")];
  const at = entries.indexOf(document.activeElement as HTMLElement);
  entries[Math.max(0, Math.min(entries.length - 1, at < 0 ? 0 : at + by))]?.focus();
}

const KEYS = {
  "/": "search Services: words, an address, port, pod, node, type, is:broken",
  Enter: "open the only hit, or what is focused",
  "j, k": "next and previous entry",
  "arrow keys": "from square to square",
  "?": "these keys",
};

const Keys = () => html`<dialog aria-label="Keys">
  <dl class="node">${Object.entries(KEYS).map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
  <form method="dialog"><button>Close</button></form>
</dialog>`;

function Header({ state, under }: { readonly state: State; readonly under: string }) {
  useChanges(state);
  const { known, isSilent } = state;
  const [kind, text] = healthOf(state);
  useEffect(() => void document.body.classList.toggle("silent", isSilent), [isSilent]);
  const reload = html`<p class="banner" role="alert">The daemon is another program by now: this page may show it wrongly.
    <button type="button" onClick=${() => location.reload()}>Reload</button></p>`;
  return html`${state.isOutdated && reload}<header>
    <p class="brand"><img src="icon.svg" alt="" width="22" height="22" /> kube-proxy ${" "}
      <span id="where">${known !== undefined && `${known.answer.status.node} · ${known.answer.status.mode}`}</span></p>
    <nav aria-label="Pages">${Object.entries(PLACES).map(
      ([path, { title, under: own = path }]) =>
        own === path && html`<a href=${`#/${path}`} aria-current=${path === under ? "page" : undefined}>${title}</a>`,
    )}</nav>
    <p id="health" role="status"><span class=${`dot ${kind}`} aria-hidden="true" />${text}</p>
    <p id="age"><${Ticking} draw=${() => state.answeredMs !== undefined && `answer ${ageText(Date.now() - state.answeredMs)} old`} /></p>
  </header>`;
}

function healthOf({ known, isSilent }: State): readonly [kind: string, text: string] {
  if (isSilent) return ["bad", "No answer: the daemon hangs, has stopped, or cannot be reached"];
  if (known === undefined) return ["", "Loading …"];
  const { isHealthy, failures } = known.answer.status;
  if (!isHealthy) return ["bad", "Daemon not healthy: it does not keep up"];
  if (failures.length > 0) return ["warn", `Daemon healthy, but ${failures.length} refused`];
  return ["good", "Daemon healthy"];
}

const state = new State();
document.body.replaceChildren();
render(html`<${Page} state=${state} />`, document.body);
state.start();
