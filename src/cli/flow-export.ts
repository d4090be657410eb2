/** Flows for other programs: JSON lines in a file. Nothing waits for a slow disk: its losses are counted. */
import { createWriteStream } from "node:fs";
import type { NamedFlow } from "../explain/flows.ts";
import { messageOf } from "../logging/message-of.ts";
import { countingLosses, jsonLine, type Note } from "./flow-sinks.ts";
import type { FlowTaker } from "./flows-watch.ts";

/** The most that may wait for the disk. */
const MOST_BYTES = 16 * 1024 * 1024;

/** Appends a line per flow to a file. Rejects with the system's error if the file cannot be opened. */
export async function fileSink(path: string, note: Note): Promise<FlowTaker> {
  const stream = createWriteStream(path, { flags: "a", mode: 0o600 });
  await new Promise((resolve, reject) => stream.once("open", resolve).once("error", reject));
  let isBroken = false;
  stream.on("error", (error) => {
    isBroken = true;
    note(messageOf(error));
  });
  const take = (flow: NamedFlow): boolean => {
    if (isBroken || stream.writableLength > MOST_BYTES) return false;
    stream.write(jsonLine(flow));
    return true;
  };
  const close = async () => {
    if (!isBroken) await new Promise<void>((resolve) => stream.end(resolve));
    return 0;
  };
  return countingLosses({ take, close }, note);
}
