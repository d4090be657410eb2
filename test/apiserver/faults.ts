/** What can be made to go wrong with an answer of the test API server. */
import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { createGzip, type Gzip } from "node:zlib";
import { type StatusOptions, statusObject } from "./status-object.ts";
import type { WireFormat } from "./wire-format.ts";

export type Fault =
  /** A Status object. */
  | {
      readonly kind: "status";
      readonly code: number;
      readonly reason?: string;
      readonly message?: string;
      readonly retryAfterSeconds?: number;
      readonly cause?: string;
    }
  /** 200 with something else than was asked for, as a captive portal answers. */
  | { readonly kind: "text"; readonly contentType: string; readonly text: string }
  /** The connection is closed without an answer. */
  | { readonly kind: "reset" }
  /** The connection stays and nothing comes. */
  | { readonly kind: "silent" }
  /** The connection is cut in the middle of the body. */
  | { readonly kind: "cut"; readonly afterBytes: number }
  /** The body ends early, as if it were whole. */
  | { readonly kind: "truncate"; readonly afterBytes: number }
  /** The connection stays but nothing more comes. */
  | { readonly kind: "stall"; readonly afterBytes: number }
  /** The body comes in small pieces. */
  | { readonly kind: "slow"; readonly pieceBytes: number; readonly delayMs: number };

/** What a captive portal says to everything. */
export const WEB_PAGE: Fault = {
  kind: "text",
  contentType: "text/html",
  text: "<html><body>Please log in</body></html>",
};

/** A body that suffers from a fault, or from none. */
export class FaultyBody {
  readonly #response: ServerResponse;
  readonly #fault: Fault | undefined;
  readonly #onSent: (bytes: number) => void;
  readonly #gzip: Gzip | undefined;
  #left: number;
  #isOver = false;
  #queue: Promise<void> = Promise.resolve();

  /** @param onSent called with the number of bytes that were written. */
  constructor(
    response: ServerResponse,
    fault: Fault | undefined,
    isCompressed: boolean,
    onSent: (bytes: number) => void = () => {},
  ) {
    this.#response = response;
    this.#fault = fault;
    this.#onSent = onSent;
    this.#left = fault !== undefined && "afterBytes" in fault ? fault.afterBytes : Number.POSITIVE_INFINITY;
    if (!isCompressed) return;
    this.#gzip = createGzip();
    this.#gzip.on("data", (chunk: Buffer) => this.#send(chunk));
    this.#gzip.on("end", () => this.#finish());
  }

  write(content: string | Buffer): void {
    if (this.#isOver) return;
    const bytes = Buffer.from(content);
    if (this.#gzip === undefined) this.#send(bytes);
    else this.#gzip.write(bytes);
  }

  /** Sends what is written meanwhile together: a server's own writing is not what tests wait for. */
  inOnePiece(write: () => void): void {
    this.#response.cork();
    write();
    this.#response.uncork();
  }

  /** Ends the answer, unless a fault keeps it open. */
  end(): void {
    if (this.#gzip === undefined) this.#finish();
    else this.#gzip.end();
  }

  /** From now on nothing is sent; the connection stays. */
  stall(): void {
    this.#isOver = true;
  }

  /** Closes the connection at once. */
  cut(): void {
    this.#isOver = true;
    this.#response.destroy();
  }

  #send(bytes: Buffer): void {
    if (this.#isOver || this.#response.destroyed) return;
    const fault = this.#fault;
    this.#onSent(bytes.length);
    if (fault?.kind === "slow") {
      this.#queue = this.#queue.then(() => this.#sendSlowly(bytes, fault.pieceBytes, fault.delayMs));
      return;
    }
    const part = bytes.subarray(0, this.#left);
    this.#left -= part.length;
    if (part.length > 0) this.#response.write(part);
    if (this.#left > 0) return;
    this.#isOver = true;
    if (fault?.kind === "truncate") this.#response.end();
    if (fault?.kind === "cut") setTimeout(() => this.#response.destroy(), 5);
  }

  #finish(): void {
    this.#queue = this.#queue.then(() => {
      if (!this.#isOver) this.#response.end();
      this.#isOver = true;
    });
  }

  async #sendSlowly(bytes: Buffer, pieceBytes: number, delayMs: number): Promise<void> {
    for (let at = 0; at < bytes.length && !this.#response.destroyed; at += pieceBytes) {
      this.#response.write(bytes.subarray(at, at + pieceBytes));
      await sleep(delayMs);
    }
  }
}

/** Answers with the fault if it leaves nothing else to say. @returns whether it did. */
export function answerFault(response: ServerResponse, fault: Fault | undefined, format: WireFormat): boolean {
  switch (fault?.kind) {
    case "status":
      sendStatus(response, fault, format);
      return true;
    case "text":
      response.writeHead(200, { "Content-Type": fault.contentType });
      response.end(fault.text);
      return true;
    case "reset":
      response.destroy();
      return true;
    case "silent":
      return true;
    default:
      return false;
  }
}

/** Answers with a Status object. */
export function sendStatus(response: ServerResponse, status: StatusOptions, format: WireFormat): void {
  response.writeHead(status.code, {
    "Content-Type": format.mediaType,
    ...(status.retryAfterSeconds === undefined ? {} : { "Retry-After": String(status.retryAfterSeconds) }),
  });
  response.end(format.object(statusObject(status)));
}
