/** The page: a header with the daemon's health, and one view at a time, chosen by the part of the URL after `#`. */

import { connectionsView } from "./connections-view.ts";
import { byId, el, plain } from "./dom.ts";
import { nodeView } from "./node-view.ts";
import { serviceView } from "./service-view.ts";
import { servicesView } from "./services-view.ts";
import { State, type View } from "./state.ts";
import { syncsView } from "./syncs-view.ts";
import { traceView } from "./trace-view.ts";

const VIEWS: Readonly<Record<string, { readonly title: string; readonly view: View }>> = {
  "/services": { title: "Services", view: servicesView },
  "/service": { title: "Service", view: serviceView },
  "/connections": { title: "Connections", view: connectionsView },
  "/trace": { title: "Packet", view: traceView },
  "/syncs": { title: "Syncs", view: syncsView },
  "/node": { title: "Node", view: nodeView },
};

const state = new State();
let end: () => void = () => {};

function show(isFirst: boolean): void {
  const [path = "", query = ""] = location.hash.replace(/^#/, "").split("?", 2);
  const { title, view } = VIEWS[path] ?? VIEWS["/services"] ?? { title: "", view: servicesView };
  end();
  const main = byId("main");
  main.replaceChildren();
  document.title = `${title} · kube-proxy`;
  for (const link of document.querySelectorAll("nav a")) {
    const own = path === "/service" ? "/services" : VIEWS[path] === undefined ? "/services" : path;
    if (link.getAttribute("href") === `#${own}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  end = view(main, new URLSearchParams(query), state);
  if (!isFirst) main.focus();
  window.scrollTo(0, 0);
}

function showHealth(): void {
  const health = byId("health");
  const { known, isSilent } = state;
  const [kind, text] = healthText();
  if (health.textContent !== text)
    health.replaceChildren(el("span", { class: `dot ${kind}`, "aria-hidden": "true" }), text);
  byId("where").textContent =
    known === undefined ? "" : plain(`${known.answer.status.node} · ${known.answer.status.mode}`);
  document.body.classList.toggle("silent", isSilent);
}

/** How old the answer is that the page shows. */
function showAge(): void {
  const { answeredMs } = state;
  byId("age").textContent = answeredMs === undefined ? "" : `answer ${ageText(Date.now() - answeredMs)} old`;
}

function ageText(ageMs: number): string {
  const seconds = Math.max(0, Math.round(ageMs / 1000));
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}

function healthText(): readonly [kind: string, text: string] {
  const { known, isSilent } = state;
  if (isSilent) return ["bad", "No answer: the daemon hangs, has stopped, or cannot be reached"];
  if (known === undefined) return ["", "Loading …"];
  const { isHealthy, failures } = known.answer.status;
  if (!isHealthy) return ["bad", "Not healthy: it does not keep up"];
  if (failures.length > 0) return ["warn", `Healthy, but ${failures.length} refused`];
  return ["good", "Healthy"];
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof Element && event.target.matches("input, select, textarea");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
  event.preventDefault();
  if (document.querySelector("#search") === null) {
    location.hash = "#/services";
    window.addEventListener("hashchange", () => byId("search").focus(), { once: true });
  } else byId("search").focus();
});
window.addEventListener("hashchange", () => show(false));
state.onChange(showHealth);
window.setInterval(showAge, 1000);
showHealth();
show(true);
state.start();
