/** Where `kube-proxy flows` writes what it tells. */
import { FLOW_HEAD, flowCells, type NamedFlow } from "../explain/flows.ts";
import { safe } from "../explain/safe-text.ts";
import { tableText } from "../explain/table.ts";
import { escapeJson } from "../logging/escape.ts";
import type { FlowSink, FlowTaker } from "./flows-watch.ts";
import type { Output } from "./output.ts";
import { painted } from "./paint.ts";

/** Lines of a table, which is made as a whole. */
const MOST_ROWS = 10_000;
/** Lines that come within this time are written together: a line at a time costs more than all else. */
const GATHER_MS = 20;

/** Takes so many flows and is full then. @param count Infinity: no end. */
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

/** A line for each. */
export function lineSink(output: Pick<Output, "out">, isJson: boolean): FlowTaker {
  let gathered: string[] = [];
  let flushing: NodeJS.Timeout | undefined;
  const flush = (): void => {
    flushing = undefined;
    if (gathered.length > 0) output.out(gathered.join(""));
    gathered = [];
  };
  return {
    tell(flow) {
      gathered.push(isJson ? jsonLine(flow) : safe(`${lineText(flow)}\n`));
      flushing ??= setTimeout(flush, GATHER_MS);
    },
    async close() {
      clearTimeout(flushing);
      flush();
    },
  };
}

function lineText(flow: NamedFlow): string {
  const [
    port = "",
    client = "",
    frontend = "",
    endpoint = "",
    state = "",
    age = "",
    sent = "",
    received = "",
    rtt = "",
  ] = flowCells(flow);
  const way = `${port}  ${client} → ${frontend} → ${endpoint}`;
  const time = new Date().toISOString().slice(11, 23);
  if (flow.ended === null) return `${time}  begins  ${way}  ${state}`;
  return `${time}  ends    ${way}  ${state}  after ${age}  sent ${sent}  received ${received}  ${rtt}`.trimEnd();
}

export function jsonLine(flow: NamedFlow): string {
  return `${escapeJson(JSON.stringify(flow))}\n`;
}
