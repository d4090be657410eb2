/** Reads the user's input: a file, a pipe or standard input, up to a size that no cluster's dump reaches. */
import { createReadStream } from "node:fs";
import { messageOf } from "../../logging/message-of.ts";
import { textOf } from "../../text/decode-text.ts";

/** Three times the rules of 10,000 Services as nft prints them in JSON. A device may never end. */
const MAX_BYTES = 128 * 2 ** 20;

/**
 * Reads all of a file or stream.
 *
 * @throws Error with a message for people if the input is larger than 128 MiB, and the errors of the file system.
 */
export async function readBounded(source: string | NodeJS.ReadableStream, mostBytes = MAX_BYTES): Promise<Buffer> {
  const portions: Buffer[] = [];
  const path = typeof source === "string" && isStandardInput(source) ? process.stdin : source;
  for await (const part of bounded(typeof path === "string" ? createReadStream(path) : path, mostBytes)) {
    portions.push(part);
  }
  return Buffer.concat(portions);
}

/** Whether the path is standard input, which cannot be opened where it is a socket. */
export const isStandardInput = (path: string): boolean =>
  path === "-" || /^\/(?:dev\/stdin|dev\/fd\/0|proc\/self\/fd\/0)$/.test(path);

const REFUSALS: Readonly<Record<string, string>> = {
  ...{ ENOENT: "there is no such file or folder", EISDIR: "it is a folder", ECONNREFUSED: "no process listens there" },
  ...{ EACCES: "the permissions do not allow it", ENOTSOCK: "it is no socket" },
};

/** Why the system refused a file or a socket that the user named, without the name; any other error's message. */
export function refusalText(error: unknown): string {
  return (error instanceof Error && "code" in error && REFUSALS[String(error.code)]) || messageOf(error);
}

/**
 * Passes on the parts of a stream up to a size.
 *
 * @param isLines whether the size is that of a line. @throws Error with a message for people
 */
export async function* bounded(
  stream: NodeJS.ReadableStream,
  mostBytes: number,
  isLines = false,
): AsyncGenerator<Buffer, void> {
  let bytes = 0;
  for await (const portion of stream) {
    const part = typeof portion === "string" ? Buffer.from(portion) : portion;
    bytes = isLines && part.includes("\n") ? 0 : bytes + part.length;
    if (bytes > mostBytes) throw new Error(`it is larger than ${mostBytes / 2 ** 20} MiB`);
    yield part;
  }
}

/** Reads text, also of UTF-16; `-` is standard input. @throws as {@link readBounded} */
export async function readInputText(path: string, standardInput: NodeJS.ReadableStream): Promise<string> {
  return textOf(await readBounded(isStandardInput(path) ? standardInput : path));
}
