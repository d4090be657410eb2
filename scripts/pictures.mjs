/**
 * Draws pictures of the documents: `node scripts/pictures.mjs [FOLDER]` writes change.svg, end-tcp.svg and flat.svg, each for light and dark,
 * into docs/pictures. A test compares them with what is committed.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";

const STYLE = `
    text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; text-anchor: middle }
    .small { font-size: 11px; fill: #59636e }
    .left { text-anchor: start }
    .code { font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; font-size: 11px }
    .box { fill: #f6f8fa; stroke: #8c959f }
    .ours { fill: #ddf4ff; stroke: #0969da }
    .end { fill: #dafbe1; stroke: #1a7f37 }
    .drop { fill: #ffebe9; stroke: #cf222e }
    .line { fill: none; stroke: #59636e; stroke-width: 1.4 }
    .tip { fill: #59636e }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .small { fill: #9198a1 }
      .box { fill: #212830; stroke: #656c76 }
      .ours { fill: #0c2d4d; stroke: #4493f8 }
      .end { fill: #0f3a1f; stroke: #3fb950 }
      .drop { fill: #4a1216; stroke: #f85149 }
      .line { stroke: #9198a1 }
      .tip { fill: #9198a1 }
    }`;
const TIP =
  '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>';

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const words = (kind, x, y, text) => `<text class="${kind}" x="${x}" y="${y}">${escaped(text)}</text>`;
const arrow = (...points) => `<path class="line" d="M${points.join(" ")}" marker-end="url(#tip)"/>`;

/** A box with lines of text in its middle: the first as a name, a line that begins with a backquote as code, others small. */
function box(kind, x, y, width, height, ...lines) {
  const first = y + height / 2 - (lines.length - 1) * 8.5 + 4.5;
  const text = lines.map((line, index) => {
    const style = line.startsWith("`") ? "code" : index === 0 ? "" : "small";
    return words(style, x + width / 2, first + index * 17, line.replace("`", ""));
  });
  return [`<rect class="${kind}" x="${x}" y="${y}" width="${width}" height="${height}" rx="6"/>`, ...text].join("");
}

function change() {
  const steps = [
    ["box", "API server", "a line of a watch", "or a saved manifest"],
    ["ours", "agent/cluster/", "the bytes become a record", "of what a proxy needs"],
    ["ours", "model/", "which service ports", "differ now"],
    ["ours", "modes/", "plans these ports alone,", "and the difference"],
    ["ours", "kernel/", "as few transactions", "as the kernel allows"],
  ];
  const boxes = steps.map(([kind, ...lines], index) => box(kind, 12 + index * 178, 20, 162, 78, ...lines));
  const arrows = steps.slice(1).map((_, index) => arrow(174 + index * 178, 59, "H", 189 + index * 178));
  return {
    name: "change",
    height: 330,
    title: "How a change reaches the kernel",
    description:
      "A line of a watch becomes a record, the service ports that differ, a plan of these, and a transaction. The kernel accepts it, or refuses one port, whose last rules stay.",
    parts: [
      ...boxes,
      ...arrows,
      words(
        "small",
        450,
        122,
        "agent/sync/ decides when: at once, or after the rest that the kernel's last commit asks for",
      ),
      arrow(760, 98, "V", 134, "H", 705, "V", 148),
      arrow(805, 98, "V", 148),
      box("end", 530, 150, 215, 58, "accepted", "new connections follow the new rules"),
      box("drop", 760, 150, 128, 58, "a port is refused", "the others go in"),
      arrow(824, 208, "V", 238),
      box(
        "drop",
        690,
        240,
        198,
        72,
        "its last rules stay",
        "the log and /healthz name it,",
        "a later sync tries it again",
      ),
      arrow(530, 179, "H", 497),
      box("ours", 280, 143, 215, 72, "conntrack", "stale UDP and SCTP flows go,", "while syncs go on"),
      arrow(280, 179, "H", 247),
      box("ours", 30, 150, 215, 58, "agent/server/", "health ports, /livez, metrics"),
      arrow(600, 208, "V", 238),
      box(
        "box",
        380,
        240,
        285,
        72,
        "another program changes a rule",
        "the kernel says so, or the next check sees it;",
        "the ports concerned are planned again",
      ),
    ],
  };
}

function endTcp() {
  const rows = [
    ["terminates, and still in a slice", "end", "stays", "until its grace period ends"],
    ["not ready, or not serving", "end", "stays", "new connections go elsewhere"],
    ["left this Service only", "end", "stays", "another Service still has it"],
    ["in no slice of any Service", "drop", "ended after 5 s", "endTCPAfter"],
  ];
  const parts = rows.flatMap(([state, kind, verdict, why], index) => {
    const y = 40 + index * 62;
    return [box("box", 12, y, 270, 48, state), arrow(282, y + 24, "H", 341), box(kind, 343, y, 210, 48, verdict, why)];
  });
  return {
    name: "end-tcp",
    height: 300,
    title: "What connections.endTCP: Gone ends",
    description:
      "A connection stays while a slice of any Service has the pod's address. Five seconds after none has, it is ended: here by ECONNABORTED, elsewhere by a reset.",
    parts: [
      words("small", 147, 26, "the pod of an open connection"),
      words("small", 448, 26, "the connection"),
      ...parts,
      arrow(553, 240, "H", 582, "V", 218, "H", 611),
      arrow(553, 260, "H", 582, "V", 274, "H", 611),
      box("ours", 613, 186, 275, 48, "client on this node, or its pods", "ECONNABORTED at once"),
      box("ours", 613, 242, 275, 48, "client elsewhere", "a reset, with its next packet"),
    ],
  };
}

function flat() {
  return {
    name: "flat",
    height: 292,
    title: "How the flat layout finds an endpoint",
    description:
      "Constant rules look the address up in the set frontends, then in one map for each number of endpoints. A random slot of the Service is the endpoint.",
    parts: [
      box("box", 12, 30, 150, 62, "packet to", "`10.96.0.10:80/TCP"),
      arrow(162, 61, "H", 201),
      box("ours", 203, 30, 190, 62, "set frontends", "does a Service answer here?"),
      arrow(393, 61, "H", 432),
      box("ours", 434, 30, 200, 62, "how many endpoints?", "one map for each number"),
      box("end", 675, 30, 213, 62, "dnat to", "`10.180.0.12:8080"),
      arrow(298, 92, "V", 128),
      words("small left", 306, 114, "no"),
      box("box", 203, 130, 190, 40, "left alone"),
      arrow(534, 92, "V", 118),
      box("box", 434, 120, 200, 34, "`endpoints-1: not in it"),
      arrow(534, 154, "V", 168),
      box("box", 434, 170, 200, 34, "`endpoints-2: not in it"),
      arrow(534, 204, "V", 218),
      box("ours", 434, 220, 200, 52, "`endpoints-3", "slot = random of 3"),
      words("code left", 652, 226, "10.96.0.10 tcp 80, 0: 10.180.0.11"),
      words("code left", 652, 246, "10.96.0.10 tcp 80, 1: 10.180.0.12"),
      words("code left", 652, 266, "10.96.0.10 tcp 80, 2: 10.180.1.11"),
      arrow(782, 212, "V", 94),
      words("small", 215, 212, "A change of a Service changes elements only."),
      words("small", 215, 230, "The rules stay as they are, with 100 Services"),
      words("small", 215, 248, "as with 100,000."),
    ],
  };
}

const folder = process.argv[2] ?? join(import.meta.dirname, "../docs/pictures");
for (const { name, height, title, description, parts } of [change(), endTcp(), flat()]) {
  const lines = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 ${height}" width="900" height="${height}" role="img">`,
    `  <title>${escaped(title)}</title>`,
    `  <desc>${escaped(description)}</desc>`,
    `  <style>${STYLE}`,
    "  </style>",
    `  ${TIP}`,
    ...parts.map((part) => `  ${part}`),
    "</svg>",
    "",
  ];
  writeFileSync(join(folder, `${name}.svg`), lines.join("\n"));
}
