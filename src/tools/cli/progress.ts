/**
 * How far long work is: one line on a terminal's standard error, from two seconds after the start. It is wiped before anything else is
 * printed, and at Ctrl-C.
 */
import { setImmediate } from "node:timers/promises";
import { escapeLine } from "../../logging/escape.ts";

const SILENT_MS = 2_000;
const REDRAW_MS = 100;
const WIPED = "\u001b[K";

interface Work {
  /** In the plural, `Services`, of which the last may be done in part; without `done` the whole line. */
  readonly what: string;
  readonly done?: number;
  readonly total?: number | undefined;
  /** What the work is for: `nftables on node-a, IPv4`. */
  readonly of?: string | undefined;
}

/** Takes how far the work is, often; awaiting it lets Ctrl-C through. */
export type TellProgress = (work: Work) => Promise<void>;

/** @param now milliseconds since the start of the program. @returns `end` wipes the line until more is told. */
export function progressLine(write: (text: string) => void, width: () => number, now = () => performance.now()) {
  let work: Work | undefined;
  /** Where and when the speed is measured from. */
  let from = { ms: 0, done: 0 };
  let drawnMs = 0;
  let isShown = false;
  let later: NodeJS.Timeout | undefined;
  const end = (): void => {
    work = undefined;
    if (isShown) write(`\r${WIPED}`);
    isShown = false;
    process.off("SIGINT", interrupted);
  };
  const interrupted = (): void => {
    end();
    // Ends as without this listener, unless the command has its own.
    if (process.listenerCount("SIGINT") === 0) process.kill(process.pid, "SIGINT");
  };
  const draw = (): void => {
    if (work === undefined) return;
    if (!isShown) process.prependListener("SIGINT", interrupted);
    isShown = true;
    const line = escapeLine(progressText(work, now() - from.ms, from.done));
    write(`\r${line.slice(0, Math.max(width() - 1, 1))}${WIPED}`);
  };
  const tell: TellProgress = async (next) => {
    const ms = now();
    const isNew = next.what !== work?.what || next.of !== work.of;
    // What prepares the first of them says nothing of the others.
    if (isNew || (work?.done ?? 0) === 0) from = { ms, done: next.done ?? 0 };
    work = next;
    if (ms - drawnMs < REDRAW_MS) return;
    drawnMs = ms;
    clearTimeout(later);
    if (ms >= SILENT_MS) draw();
    // Work that waits for others tells again too late.
    else later = setTimeout(draw, SILENT_MS - ms).unref();
    await setImmediate();
  };
  return { tell, end };
}

/** `1,204 of 10,000 Services, about 90 s`. @param tookMs since `from` was done. */
export function progressText({ what, done, total, of: on }: Work, tookMs: number, from = 0): string {
  if (done === undefined) return what;
  const count = (number: number) => String(Math.floor(number)).replaceAll(/\B(?=(?:\d{3})+$)/g, ",");
  const [of, name] = total === undefined ? ["", what] : [` of ${count(total)}`, total === 1 ? what.slice(0, -1) : what];
  const isKnown = total !== undefined && done > from && tookMs >= SILENT_MS / 2;
  const left = isKnown ? `, ${leftText((tookMs / (done - from)) * (total - done))}` : "";
  return `${on === undefined ? "" : `${on}: `}${count(done)}${of} ${name}${left}`;
}

function leftText(ms: number): string {
  const seconds = Math.max(Math.ceil(ms / 1_000), 1);
  if (seconds <= 10) return `about ${seconds} s`;
  return seconds <= 120 ? `about ${Math.ceil(seconds / 10) * 10} s` : `about ${Math.ceil(seconds / 60)} min`;
}
