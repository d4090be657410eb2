/** What the thread does: reads files and parses them, saying in shared numbers how far it is. */
import type { MessagePort } from "node:worker_threads";
import type { ParsedManifest } from "../manifest-objects.ts";
import { parseManifest } from "../parse-manifest.ts";
import { readAndParse } from "./read-and-parse.ts";
import {
  type FileReading,
  PHASE,
  PROGRESS,
  type ReadLimits,
  type ThreadMessage,
  type ThreadRequest,
} from "./reading.ts";
import { readRegularFile } from "./regular-file.ts";

/** Objects per message. */
const PORTION = 200;

export interface ServeReadsOptions {
  readonly port: MessagePort;
  readonly progress: Int32Array;
  readonly limits: ReadLimits;
  /** @default {@link readRegularFile} */
  readonly readFile?: typeof readRegularFile;
}

/** Answers requests, one after the other, until the thread is ended. */
export function serveReads({ port, progress, limits, readFile = readRegularFile }: ServeReadsOptions): void {
  const send = (message: ThreadMessage): void => port.postMessage(message);
  const note = (phase: number, document = 0, line = 0, characters = 0): void => {
    Atomics.store(progress, PROGRESS.document, document);
    Atomics.store(progress, PROGRESS.characters, characters);
    Atomics.store(progress, PROGRESS.line, line);
    Atomics.store(progress, PROGRESS.phase, phase);
  };
  port.on("message", (request: ThreadRequest) => {
    note(PHASE.reading);
    send({ kind: "done", reading: answer(request, { limits, readFile, send, note }) });
    note(PHASE.idle);
  });
}

interface Tools {
  readonly limits: ReadLimits;
  readonly readFile: typeof readRegularFile;
  readonly send: (message: ThreadMessage) => void;
  readonly note: (phase: number, document?: number, line?: number, characters?: number) => void;
}

function answer(request: ThreadRequest, { limits, readFile, send, note }: Tools): FileReading {
  const reading = readAndParse(request, {
    limits,
    readFile,
    parse: parseManifest,
    onRead: () => note(PHASE.parsing),
    onText: (digest) => send({ kind: "text", digest }),
    onDocument: (number, line, length) => note(PHASE.parsing, number, line, length),
  });
  if (reading.kind !== "read") return reading;
  sendObjects(reading.parsed, send);
  return { ...reading, parsed: { ...reading.parsed, objects: new Map() } };
}

function sendObjects({ objects }: ParsedManifest, send: (message: ThreadMessage) => void): void {
  const all = [...objects.values()];
  for (let start = 0; start < all.length; start += PORTION) {
    send({ kind: "objects", objects: all.slice(start, start + PORTION) });
  }
}
