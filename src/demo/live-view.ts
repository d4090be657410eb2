/** Turns what the live demo knows into a picture for a terminal, or into printed tables for anything else. */
import type { LiveView } from "./live.ts";
import { problemLines, reportLines } from "./once.ts";
import type { Picture } from "./screen.ts";
import type { Session } from "./session.ts";
import { type Line, segment } from "./styled-line.ts";
import { failureLines, summaryLine, tableLines } from "./table.ts";

const MAX_FAILURE_LINES = 6;
const FRAME_MS = 40;

/** Calls `show` at once and then at most every 40 ms, always with the newest view. */
export function throttled(show: (view: LiveView) => void): (view: LiveView) => void {
  let newest: LiveView | undefined;
  let isWaiting = false;
  const flush = (): void => {
    isWaiting = newest !== undefined;
    if (newest === undefined) return;
    const view = newest;
    newest = undefined;
    // Not holding the process open: what is still to be shown when the demo ends is of no interest.
    setTimeout(flush, FRAME_MS).unref();
    show(view);
  };
  return (view) => {
    newest = view;
    if (!isWaiting) flush();
  };
}

function titleLine({ syncedAt, isSettling }: LiveView, { options, network }: Session): Line {
  const time = syncedAt === 0 ? "no sync yet" : `last sync ${new Date(syncedAt).toTimeString().slice(0, 8)}`;
  return [
    segment("kube-proxy-ts", "bold"),
    segment(`  ${options.mode} mode on ${network.nodeNamespace.name} · ${time} `),
    segment(isSettling ? "· asking…" : "", "yellow"),
  ];
}

/** The last thing that the proxy complained about, if anything: klog lines begin with their severity. */
function complaintLines(log: readonly string[]): Line[] {
  const last = log.findLast((line) => /^[WEF]\d{4} /.test(line));
  return last === undefined ? [] : [[segment("kube-proxy logged: ", "yellow"), segment(last, "dim")]];
}

/** The picture of a view. */
export function pictureOf(view: LiveView, session: Session): Picture {
  const { head, body, firstChange } = tableLines(view.blocks);
  const failures = failureLines(view.blocks);
  const hidden = failures.length - MAX_FAILURE_LINES;
  const { clientNamespace } = session.network;
  return {
    head: [titleLine(view, session), summaryLine(view.blocks), head],
    body,
    focus: firstChange,
    foot: [
      [],
      ...failures.slice(0, MAX_FAILURE_LINES),
      ...(hidden > 0 ? [[segment(`  … and ${hidden} more`, "red")]] : []),
      ...problemLines(session.problems),
      ...complaintLines(session.proxy.log),
      [
        segment(`Edit ${session.options.manifests} and watch.  Try: `, "dim"),
        segment(`ip netns exec ${clientNamespace.name} sh`),
      ],
      [segment("↑ ↓ PgUp PgDn scroll · q or Ctrl-C ends and removes everything", "dim")],
    ],
  };
}

/** For output that is no terminal: prints the whole table whenever it has settled to something new. */
export function printSettled(session: Session, write: (line: Line) => void): (view: LiveView) => void {
  let last = "";
  return ({ blocks, isSettling }) => {
    if (isSettling) return;
    const lines = reportLines(blocks, session.problems);
    // Shares and counts differ from pass to pass; what clients met is the news.
    const news = JSON.stringify(
      blocks.map(({ title, pods, rows }) => [
        title,
        [...pods].map(([name, { place, state }]) => [name, place, state]),
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
