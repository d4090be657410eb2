/** Where `kube-proxy flows` writes flows. */
import { createWriteStream } from "node:fs";
import { escapeJson } from "../../logging/escape.ts";
import { messageOf } from "../../logging/message-of.ts";
import { FLOW_HEAD, flowCells, type NamedFlow } from "../explain/flows.ts";
import { safe } from "../explain/safe-text.ts";
import { tableText } from "../explain/table.ts";
import type { FlowSink, FlowTaker } from "./flows-watch.ts";
import { type Output, painted } from "./output.ts";

/** The most lines of a table, which is laid out as a whole. */
const MOST_ROWS = 10_000;
/** Lines that arrive within this time are written together: writing single lines costs more than everything else. */
const GATHER_MS = 20;
/** The most lines to gather: large buffers are garbage-collected late. */
const GATHERED = 200;

/** The most characters to keep for a slow reader of an endless stream of lines; more are lost. */
const MOST_WAITING = 4 * 1024 * 1024;

/** The most bytes that may wait for the disk. */
const MOST_UNWRITTEN = 16 * 1024 * 1024;

/** Tells the user what went wrong. */
type Note = (text: string) => void;

/** Takes `count` flows and is full then. @param count Infinity: no limit. */
export function upTo(count: number, { tell, close }: FlowTaker): FlowSink {
  let left = count;
  return {
    tell(flow) {
      left -= 1;
      tell(flow);
    },
    get isFull() {
      return left <= 0;
    },
    close,
  };
}

/** Prints a table at the end. */
export function tableSink(output: Output): FlowTaker {
  const rows: (readonly string[])[] = [FLOW_HEAD];
  let told = 0;
  return {
    tell(flow) {
      told += 1;
      if (rows.length <= MOST_ROWS) rows.push(flowCells(flow));
    },
    async close() {
      const shown = rows.some((row, at) => at > 0 && row.at(-1) !== "") ? rows : rows.map((row) => row.slice(0, -1));
      output.out(painted(safe(tableText(shown, "", output.terminal?.width)), output.terminal));
      if (told > MOST_ROWS) output.err(`note: ${told - MOST_ROWS} more; -o json prints all.\n`);
    },
  };
}

/**
 * Prints a line per flow. Nothing waits for a slow reader: its losses are counted, and reported each time they have grown tenfold.
 *
 * @param note reports what a slow reader has lost; without it, all lines are kept. @param mostWaiting of what {@link Output.waiting} counts.
 */
export function lineSink(
  { out, waiting }: Pick<Output, "out" | "waiting">,
  isJson: boolean,
  note?: Note,
  mostWaiting = MOST_WAITING,
): FlowTaker {
  let [told, lost, nextNote] = [0, 0, 1];
  let gathered: string[] = [];
  let flushing: NodeJS.Timeout | undefined;
  const flush = (): void => {
    clearTimeout(flushing);
    flushing = undefined;
    if (gathered.length > 0) out(gathered.join(""));
    gathered = [];
  };
  return {
    tell(flow) {
      told += 1;
      if (note === undefined || waiting === undefined || waiting() <= mostWaiting) {
        gathered.push(isJson ? jsonLine(flow) : safe(`${lineText(flow)}\n`));
        if (gathered.length >= GATHERED) flush();
        else flushing ??= setTimeout(flush, GATHER_MS);
        return;
      }
      lost += 1;
      if (lost < nextNote) return;
      note(`the reader of the flows is too slow: it has missed ${lost} of ${told} so far`);
      nextNote *= 10;
    },
    async close() {
      flush();
      if (lost > 0) note?.(`the reader missed ${lost} of ${told} flows`);
    },
  };
}

/** Appends a line of JSON per flow to a file. Rejects with the system's error if the file cannot be opened. */
export async function fileSink(path: string, note: Note): Promise<FlowTaker> {
  const stream = createWriteStream(path, { flags: "a", mode: 0o600 });
  await new Promise((resolve, reject) => stream.once("open", resolve).once("error", reject));
  let isBroken = false;
  stream.on("error", (error) => {
    isBroken = true;
    note(messageOf(error));
  });
  const waiting = () => (isBroken ? Number.POSITIVE_INFINITY : stream.writableLength);
  const lines = lineSink({ out: (text) => void stream.write(text), waiting }, true, note, MOST_UNWRITTEN);
  return {
    tell: lines.tell,
    async close() {
      await lines.close();
      if (!isBroken) await new Promise<void>((resolve) => stream.end(resolve));
    },
  };
}

function lineText(flow: NamedFlow): string {
  const [port, client, frontend, endpoint, state, age, sent, received, rtt] = flowCells(flow);
  const way = `${port}  ${client} → ${frontend} → ${endpoint}`;
  const time = new Date().toISOString().slice(11, 23);
  if (flow.ended === null) return `${time}  begins  ${way}  ${state}`;
  return `${time}  ends    ${way}  ${state}  after ${age}  sent ${sent}  received ${received}  ${rtt}`.trimEnd();
}

export function jsonLine(flow: NamedFlow): string {
  return `${escapeJson(JSON.stringify(flow))}\n`;
}
