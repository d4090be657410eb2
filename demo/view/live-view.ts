/** Turns the live demo's state into a picture for a terminal, or into printed tables for other output. */
import { relative } from "node:path";
import type { LiveView } from "../live.ts";
import { problemLines, reportLines } from "../once.ts";
import { demoNode } from "../played-node.ts";
import type { Block } from "../results.ts";
import type { Session } from "../session.ts";
import type { Browser } from "./browser.ts";
import { detailLines } from "./details.ts";
import { bodyRows, type Picture, type Size } from "./screen.ts";
import { cutLine, type Line, segment } from "./styled-line.ts";
import { failureLines, summaryLine, tableLines } from "./table.ts";
import { wrapLine } from "./wrap.ts";

/** The most lines of a message; the details of a service port have all of it. */
const MESSAGE_LINES = 3;
/** The largest share of the terminal for all messages. */
const MESSAGES_SHARE = 0.3;
const FRAME_MS = 40;

/** Calls `show` at once and then at most every {@link FRAME_MS}, always with the newest view. */
export function throttled(show: (view: LiveView) => void): (view: LiveView) => void {
  let newest: LiveView | undefined;
  let isWaiting = false;
  const flush = (): void => {
    isWaiting = newest !== undefined;
    if (newest === undefined) return;
    const view = newest;
    newest = undefined;
    // Does not keep the process alive: a last view does not matter when the demo ends.
    setTimeout(flush, FRAME_MS).unref();
    show(view);
  };
  return (view) => {
    newest = view;
    if (!isWaiting) flush();
  };
}

const KEYS = [
  "↑ ↓ k j       previous, next service port",
  "PgUp PgDn     one page",
  "Enter         details: expected and actual answers of each address",
  "/             filters by name, type, address, port or pods",
  "/ !           shows only what is not as expected",
  "Esc           clears the filter",
  "s             order: what is wrong first, by name, by type",
  "q Ctrl-C      ends the demo and removes everything it made",
  "",
];

/** What can be tried while the demo runs, in another terminal. */
function besideLines({ options, network, proxy, node }: Session): string[] {
  const manifests = relative(process.cwd(), options.manifests) || ".";
  const own = `-f ${manifests} --node ${node.name} --config ${proxy.config}`;
  return [
    "In another terminal, in this folder, a shell on the node, and commands there:",
    `  ip netns exec ${network.nodeNamespace.name} sh`,
    ...["status", "monitor --last 5"].map((command) => `  bin/kube-proxy ${command} --socket ${proxy.socket}`),
    `  bin/kube-proxy flows --socket ${proxy.socket}`,
    `  bin/kube-proxy explain shop/web --kernel ${own}`,
    "",
    "Any key goes back.",
  ];
}

function titleLine({ syncedAt, isSettling }: LiveView, { options, network, node }: Session): Line {
  const time = syncedAt === 0 ? "no sync yet" : `last sync ${new Date(syncedAt).toTimeString().slice(0, 8)}`;
  const where = node.name === demoNode.name ? `on ${network.nodeNamespace.name}` : `as ${node.name}`;
  return [
    segment("kube-proxy-ts", "bold"),
    segment(`  ${options.mode} ${where} · ${time} `),
    segment(isSettling ? "· asking…" : "", "yellow"),
  ];
}

/** The proxy's last warning or error that is not about the manifests: klog lines start with their severity. */
function complaintLines(log: readonly string[]): Line[] {
  const last = log.findLast((line) => /^[WEF]\d{4} (?!.* manifest-folder\.ts:)/.test(line));
  return last === undefined ? [] : [[segment("kube-proxy logged: ", "yellow"), segment(last, "dim")]];
}

/** Wrapped messages; those without room are counted. */
function messageLines(blocks: readonly Block[], session: Session, { columns, rows }: Size): Line[] {
  const messages = [
    // Causes before their effects.
    ...problemLines(session.problems),
    ...complaintLines(session.proxy.log),
    ...failureLines(blocks),
  ].map((line) => shortened(wrapLine(line, columns, 2)));
  const room = Math.max(2, Math.floor(rows * MESSAGES_SHARE));
  const shown: Line[] = [];
  for (const [index, lines] of messages.entries()) {
    const isLast = index === messages.length - 1;
    if (shown.length + lines.length + (isLast ? 0 : 1) > room && shown.length > 0) {
      return [...shown, [segment(`  … and ${messages.length - index} more`, "yellow")]];
    }
    shown.push(...lines);
  }
  return shown;
}

function shortened(lines: readonly Line[]): readonly Line[] {
  if (lines.length <= MESSAGE_LINES) return lines;
  return [...lines.slice(0, MESSAGE_LINES - 1), [...(lines[MESSAGE_LINES - 1] ?? []), segment(" …", "dim")]];
}

function helpBody(session: Session, columns: number): Line[] {
  return [...KEYS, ...besideLines(session)].flatMap((line) => wrapLine([segment(line)], columns, 4));
}

/** The picture of a view in the browser's state. */
export function pictureOf(view: LiveView, session: Session, browser: Browser, size: Size): Picture {
  const { columns } = size;
  const blocks = browser.visible(view.blocks, view.isSettling);
  const selected = blocks.find(({ title }) => title === browser.selected);
  const title = cutLine(titleLine(view, session), columns);
  if (browser.isHelping) return { head: [title, []], body: helpBody(session, columns), foot: [] };
  if (browser.isDetailed && selected !== undefined) {
    const foot = [[], [segment("↑↓ PgUp PgDn scroll · Esc or Enter back · q ends", "dim")]];
    const body = detailLines(selected, columns);
    const room = bodyRows({ head: [title, []], foot }, size.rows);
    browser.linesPerPage = Math.max(1, room - 1);
    browser.scroll = Math.min(Math.max(0, browser.scroll), Math.max(0, body.length - room));
    return { head: [title, []], body, foot, focus: { from: browser.scroll, to: browser.scroll + room } };
  }
  const { head, body, starts } = tableLines(blocks, { columns, selected: browser.selected });
  const foot = [[], ...messageLines(view.blocks, session, size), ...helpLines(session, browser, columns)];
  const at = selected === undefined ? -1 : blocks.indexOf(selected);
  const hidden = view.blocks.length - blocks.length;
  const summary: Line = [
    ...summaryLine(view.blocks),
    segment(` · ${at + 1} of ${blocks.length}, ${browser.order}`, "dim"),
    segment(hidden === 0 ? "" : ` · ${hidden} hidden by the filter`, "yellow"),
  ];
  const heads = [title, summary, head];
  browser.blocksPerPage = Math.max(
    1,
    Math.floor((bodyRows({ head: heads, foot }, size.rows) * blocks.length) / Math.max(1, body.length)),
  );
  const from = starts[at] ?? 0;
  return { head: heads, body, foot, focus: { from, to: (starts[at + 1] ?? body.length + 1) - 1 } };
}

function helpLines({ options, network, page, proxy }: Session, { filter, isTyping }: Browser, columns: number): Line[] {
  if (isTyping) {
    return [
      [segment("filter: "), segment(`${filter}▏`, "bold")],
      [segment("name, address or pod; ! for what is wrong · Enter keeps it · Esc clears it", "dim")],
    ];
  }
  const keys = "↑↓ move · Enter details · / filter · ? keys, commands to try · q ends";
  return [
    cutLine(
      [
        segment(
          `Edit ${relative(process.cwd(), options.manifests) || "."} and watch. From outside, and beside it, try:`,
          "dim",
        ),
      ],
      columns,
    ),
    [segment(`  ip netns exec ${network.clientNamespace.name} sh`)],
    [segment(`  bin/kube-proxy services --socket ${proxy.socket}`)],
    cutLine([segment("The proxy's own page, in a browser: ", "dim"), segment(page.url)], columns),
    [segment(filter === "" ? keys : `filter: ${filter} · Esc clears it · Enter details · q ends`, "dim")],
  ];
}

/** For output that is not a terminal: prints the whole table whenever it has settled with a different result. */
export function printSettled(session: Session, write: (line: Line) => void): (view: LiveView) => void {
  let last = "";
  return ({ blocks, isSettling }) => {
    if (isSettling) return;
    const lines = reportLines(blocks, session);
    // Shares and counts differ in every pass; only what clients met counts as different.
    const news = JSON.stringify(
      blocks.map(({ title, pods, rows }) => [
        title,
        [...pods].map(([family, shares]) => [
          family,
          [...shares].map(([name, { place, state }]) => [name, place, state]),
        ]),
        rows.map(({ target, cells }) => [
          target.address,
          [...cells.values()].map(({ judgement }) => judgement?.isRight),
        ]),
      ]),
    );
    if (news === last) return;
    last = news;
    for (const line of [...lines, []]) write(line);
  };
}
